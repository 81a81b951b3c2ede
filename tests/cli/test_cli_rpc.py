"""`serve-bench rpc` as a command: what is refused, the published spellings, the plan. Nothing is
started here."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serve_bench.benchmarks.rpc import backend as rpc_needs
from serve_bench.benchmarks.rpc import drive as rpc_run
from serve_bench.benchmarks.rpc.lens import REPORT_FILE
from serve_bench.benchmarks.rpc.request import RpcSuite, World, rpc_plan
from serve_bench.cli import sitting
from serve_bench.cli.program import run
from serve_bench.store import RECORDS_FILE, RunFolder, read
from tests import places, records
from tests.cases import cases

STORED = places.FORMATS / "2-rpc.jsonl"

Refuses = Callable[[str, str], None]
WORLD = World(3, True, (4, 5), 2, 3, "cpu", 1)
SUITE = RpcSuite(("torch", "ray"), (WORLD, replace(WORLD, batch=False)), "batch", "127.0.0.1", 0)

BAD = [
    ("--world-size 10,20 --batch True,False", "--world-size and --batch: only one argument may be"),
    ("-world_size=10,20 -nlayers=1,2", "--world-size and --nlayers: only one argument may be a"),
    ("-world-size x", "--world-size: 'x' is not allowed"),
    ("-wrld_size=3", "No such option"),
    ("--master-addr no.such.invalid", "--master-addr: 'no.such.invalid' cannot be resolved: "),
    ("--master-addr 192.0.2.1", "--master-addr: 192.0.2.1 is no address of this machine"),
    ("--format pdf", "--format: 'pdf' is not allowed; it takes table"),
    ("--suite micro", "micro.toml: unknown key 'app'; allowed: name, rpc"),
    (f"--output-file-path {__file__}", "test_cli_rpc.py exists already; nothing is overwritten"),
    ("--output-file-path /nowhere/x", "--output-file-path: the folder of /nowhere/x does not exi"),
    ("--output-file-path /", "--output-file-path: / is a folder; it takes a file"),
    ("--perf-metrics /nowhere/x", "--perf-metrics: the folder of /nowhere/x does not exist"),
    ("--resume none", "none: no such folder"),
    (f"--resume {STORED} --world-size 3", "--resume follows the stored plan; it does not go with"),
    (f"--resume {STORED} -batch=True -nlayers 3", "it does not go with --batch, --nlayers"),
    (f"--resume {STORED} --out y", "it does not go with --out"),
    ("--output-file-path x --perf-metrics ./x", "--output-file-path and --perf-metrics: both are"),
]


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals and plans are the same where torch is not installed: it is not loaded here."""
    monkeypatch.setattr(rpc_needs, "find_spec", lambda module: module)
    monkeypatch.setattr(sitting, "run_mark", lambda: pytest.fail("something would be started"))


def test_bad_input_is_one_line_and_exit_code_2(refuses: Refuses) -> None:
    for line, message in BAD:
        refuses(f"rpc {line}", message)


def test_an_error_of_a_suite_file_names_it(
    tmp_path_factory: pytest.TempPathFactory, refuses: Refuses, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("suites") / "mine.toml"
    shipped = (places.TOP / "scenarios" / "rpc.toml").read_text()
    file.write_text(shipped.replace("batch = true", "batch = [true, false]"))
    assert run(["rpc", "--suite", str(file), "--master-port", "0", "--dry-run"]) == 0
    assert capsys.readouterr().err == ""
    said = "--world-size and mine.toml: rpc.batch: only one argument may be a list"
    refuses(f"rpc --suite {file} -world_size=3,4", said)


@cases(
    "line",
    "--world-size 3,4 --batch False --state-size 4-5 --master-port 0 --out-features 7",
    "--world_size 3,4 --batch False --state_size 4-5 --master_port 0 --out_features 7",
    "-world_size=3,4 -batch=False -state_size=4-5 -master_port=0 -out_features=7",
    "-world-size 3,4 -batch no -state-size=4-5 -master-port 0 --out_features=7",
)
def test_every_spelling_gives_the_same_plan(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["rpc", *line.split(), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    rest = "batch=False, state_size=4-5, nlayers=5, out_features=7, device=cpu, threads=1"
    launch, *worlds, last = out.splitlines()
    assert worlds == [f"  world_size={size}, {rest}" for size in (3, 4)]
    assert launch == "launch torch, round 1" and last.startswith("2 worlds, 10 episodes of 100 ")
    assert err == "" and list(tmp_path.iterdir()) == []


def stored(place: Path, command: str = "rpc") -> None:
    folder = RunFolder.create(place, now=datetime.now(UTC))
    planned = tuple(at for one in rpc_plan(SUITE) for _, at in one.worlds)
    folder.append(replace(records.run(*planned), command=command, suite=SUITE.to_json()))
    folder.close()


def test_a_report_that_cannot_be_written_takes_nothing_else_away(tmp_path: Path) -> None:
    stored(tmp_path / "r")
    suite = replace(SUITE, output_file_path="/dev/full")
    troubles = rpc_run._write_reports(suite, read(tmp_path / "r"), tmp_path / "r")
    assert troubles == ["/dev/full: cannot be written: no space left on device"]
    assert (tmp_path / "r" / REPORT_FILE).exists()


def test_the_rest_of_a_stored_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path / "r")
    before = (tmp_path / "r" / RECORDS_FILE).read_bytes()
    assert run(["rpc", "--resume", str(tmp_path / "r"), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    launches = [line for line in lines if line.startswith("launch ")]
    assert launches == ["launch torch, round 1", "launch ray, round 1"]
    assert lines[-1].startswith("4 worlds, 10 episodes of 100 steps each; about ")
    assert (tmp_path / "r" / RECORDS_FILE).read_bytes() == before
    assert not (tmp_path / "r" / REPORT_FILE).exists()
