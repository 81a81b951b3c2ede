from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.rpc import backend as rpc_needs
from serve_bench.benchmarks.rpc import command as rpc_run
from serve_bench.benchmarks.rpc.lens import REPORT_FILE
from serve_bench.cli import sitting
from serve_bench.store import RECORDS_FILE, read
from tests import places, records
from tests.cases import Call, Patch, Refuses, cases

STORED = places.FORMATS / "2-rpc.jsonl"

WORLDS = [records.rpc_world(3), records.rpc_world(3, batch=False)]
FREE: dict[str, Any] = {"master_port": 0, "output_file_path": None}
STORED_RUN = records.rpc_result(records.rpc_suite(WORLDS, ("torch", "ray"), **FREE))


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: Patch) -> None:
    """Refusals and plans are the same where torch is not installed: it is not loaded here."""
    monkeypatch.setattr(rpc_needs, "find_spec", lambda module: module)
    monkeypatch.setattr(sitting, "run_mark", lambda: pytest.fail("something would be started"))


@cases(
    "line, message",
    ("-wrld_size=3", "No such option"),
    ("--master-addr no.such.invalid", "--master-addr: 'no.such.invalid' cannot be resolved: "),
    ("--master-addr 192.0.2.1", "--master-addr: 192.0.2.1 is no address of this machine"),
    (f"--output-file-path {__file__}", "test_cli_rpc.py exists already; nothing is overwritten"),
    ("--output-file-path /nowhere/x", "--output-file-path: the folder of /nowhere/x does not exi"),
    (f"--resume {STORED} -batch=True -nlayers 3", "it does not go with --batch, --nlayers"),
    ("--output-file-path x --perf-metrics ./x", "--output-file-path and --perf-metrics: both are"),
)
def test_bad_input_is_one_line_and_exit_code_2(line: str, message: str, refuses: Refuses) -> None:
    refuses(f"rpc {line}", message)


@cases(
    "line",
    "--world-size 3,4 --batch False --state-size 4-5 --master-port 0 --out-features 7",
    "--world_size 3,4 --batch False --state_size 4-5 --master_port 0 --out_features 7",
    "-world_size=3,4 -batch=False -state_size=4-5 -master_port=0 -out_features=7",
    "-world-size 3,4 -batch no -state-size=4-5 -master-port 0 --out_features=7",
)
def test_spellings_of_one_plan(line: str, tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = call("rpc", *line.split(), "--dry-run")
    rest = "batch=False, state_size=4-5, nlayers=5, out_features=7, device=cpu, threads=1"
    launch, *worlds, last = out.splitlines()
    assert worlds == [f"  world_size={size}, {rest}" for size in (3, 4)]
    assert launch == "launch torch, round 1" and last.startswith("2 worlds, 10 episodes of 100 ")
    assert err == "" and list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_takes_nothing_else_away(tmp_path: Path) -> None:
    folder = records.store_run(tmp_path / "r", STORED_RUN)
    suite = records.rpc_suite(WORLDS, output_file_path="/dev/full")
    troubles = rpc_run._write_reports(suite, read(folder), folder)
    assert troubles == ["/dev/full: cannot be written: no space left on device"]
    assert (tmp_path / "r" / REPORT_FILE).exists()


def test_the_rest_of_a_stored_run(tmp_path: Path, call: Call) -> None:
    records.store_run(tmp_path / "r", STORED_RUN)
    before = (tmp_path / "r" / RECORDS_FILE).read_bytes()
    lines = call("rpc", "--resume", tmp_path / "r", "--dry-run")[0].splitlines()
    launches = [line for line in lines if line.startswith("launch ")]
    assert launches == ["launch torch, round 1", "launch ray, round 1"]
    assert lines[-1].startswith("4 worlds, 3 episodes of 4 steps each; about ")
    assert (tmp_path / "r" / RECORDS_FILE).read_bytes() == before
    assert not (tmp_path / "r" / REPORT_FILE).exists()
