import os
import pty
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

from serve_bench.cli.program import lasting
from serve_bench.cli.sitting import next_launch
from tests import places
from tests.cases import Call, Patch, Refuses, cases

SERVE_BENCH = (sys.executable, "-m", "serve_bench")


def test_no_interpreter_with_ray(refuses: Refuses, beside: Path, monkeypatch: Patch) -> None:
    suite = beside / "mine.toml"
    for python, message in (("nosuch/python", "no such file"), ("/bin/false", "no Ray installed")):
        suite.write_text(f'variant = ["v"]\n[variants.v]\npython = "{python}"\n')
        refuses(f"micro --suite {suite} --out o", message)
    # Nor is Ray found here.
    gone = Mock(side_effect=metadata.PackageNotFoundError)
    monkeypatch.setattr(metadata, "version", gone)
    for line in ("micro", "noop --port 0"):
        refuses(line, "Ray is not installed in this environment: pip install 'ray[serve]'")


def test_dry_run_prints_the_plan_alone(call: Call, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    out, _ = call("micro", "--dry-run", "--variant", "default,optimized")
    assert "36 trials of 10 x 1 s on 2 clusters; about 7 min" in out
    assert "RAY_SERVE_THROUGHPUT_OPTIMIZED=1" in out
    assert list(tmp_path.iterdir()) == []
    suite = tmp_path / "s.toml"
    suite.write_bytes(b"\xef\xbb\xbflaunches = 1\n")  # a byte order mark is no part of it
    call("micro", "--suite", suite, "--dry-run")


@cases("words", ["--help"], ["report", str(places.FORMATS / "2-micro.jsonl")])
def test_a_full_disk_behind_stdout_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*SERVE_BENCH, *words], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"serve-bench: the output cannot be written: no space left\n"


def test_an_ascii_terminal_still_gets_the_figures() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = places.execute(*SERVE_BENCH, "report", places.FORMATS / "2-noop.jsonl", env=env)
    assert done.returncode == 0 and "requests/s" in done.stdout, done.stderr


def test_help_imports_no_command_nor_records() -> None:
    code = (
        "import sys; from serve_bench.cli.program import run; run(['--help']);"
        "heavy = 'ray torch scipy aiohttp numpy rich pydantic psutil msgspec'.split();"
        "few = ' .benchmarks .benchmarks.commands .cli .cli.program .core .core.errors';"
        "few = {'serve_bench' + name for name in [*few.split(' '), '.core.secrets']};"
        "ours = {name for name in sys.modules if name.startswith('serve_bench')};"
        "print(sorted(ours - few), sorted(sys.modules.keys() & heavy))"
    )
    done = places.execute(sys.executable, "-c", code, check=True)
    assert done.stdout.splitlines()[-1] == "[] []"


@cases(
    "line",
    *("report {0}", "report . --format html -o {0}.html", "history {0}", "compare {0} {0}"),
    *("report . --format json -o {0}", "load http://127.0.0.1:1/ --out {0}"),
)
def test_an_impossible_path(line: str, tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    (tmp_path / "records.jsonl").write_bytes((places.GOLDEN / "records.jsonl").read_bytes())
    monkeypatch.chdir(tmp_path)
    (said,) = call(*line.format("x" * 300).split(), code=2)[1].splitlines()
    assert said.endswith(": file name too long")
    (said,) = call("report", tmp_path / "a\nb\u202ec", code=2)[1].splitlines()
    assert "a\\nb\\u202ec" in said  # a name starts no line, and turns none


def test_ctrl_c_while_it_is_imported_ends_it_without_a_word_of_python(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "print('importing', flush=True)\nimport time\ntime.sleep(60)"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = places.begin(*SERVE_BENCH, "--version", env=env)
    assert process.stdout is not None and process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == -signal.SIGINT


def test_a_terminal_that_was_closed_takes_the_rest_without_an_error() -> None:
    parent, child = pty.openpty()
    stream = os.fdopen(child, "w")
    terminal = lasting(stream)
    os.close(parent)
    print("interrupted", file=terminal, flush=True)
    with pytest.raises(OSError, match="Input/output error"):
        os.write(child, b"as it is by itself")


def test_ctrl_c_is_never_without_a_word(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    """typer by itself ends with 130 and says nothing."""

    monkeypatch.setattr("serve_bench.cli.report.read", Mock(side_effect=KeyboardInterrupt))
    assert call("report", tmp_path / "r", code=130)[1] == "serve-bench: interrupted\n"


def test_messages_do_not_go_to_stdout_where_stderr_is_closed(tmp_path: Path) -> None:
    line = f"exec {sys.executable} -m serve_bench report {tmp_path / 'absent'} 2>&-"
    done = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


ARRAYS = f"x = {'[' * 20_000}{']' * 20_000}\n"
TABLES = f"x = {'{a = ' * 5_000}1{'}' * 5_000}\n"
SUITES = {
    "arrays nested 20,000 deep": (ARRAYS, "not valid TOML: it is nested too deeply"),
    "inline tables nested 5,000 deep": (TABLES, "not valid TOML: it is nested too deeply"),
    "an integer of 6,000 digits": (f"launches = {'9' * 6_000}\n", "not valid TOML: a number has"),
}
TAKING_FILES = ("micro", "recsys", "press", "versus --a default --b mine", "scale curve")


@pytest.mark.parametrize("name", SUITES)
def test_hostile_suites(name: str, tmp_path: Path, call: Call) -> None:
    content, says = SUITES[name]
    suite = tmp_path / "mine.toml"
    suite.write_text(content)
    for command in ("sweep", "run", *(f"{command} --suite" for command in TAKING_FILES)):
        out, err = call(*command.split(), suite, "--dry-run", code=2)
        assert out == "" and err.count("\n") == 1 and len(err) < 2_000, command
        assert err.startswith("serve-bench: "), command
        if not command.startswith("scale"):  # whose suites have no variants and no such cells
            assert f"mine.toml: {says}" in err, command


def test_a_log_of_another_name_is_no_log_of_a_launch(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("1.old", "", "x", "²³", "1e3"):
        (tmp_path / "logs" / f"launch-{name}.log").write_text("")
    assert next_launch(tmp_path) == 1
    (tmp_path / "logs" / "launch-12.log").write_text("")
    assert next_launch(tmp_path) == 13


@cases("columns", "0", "-1", "x", "", "1", "9" * 400)
def test_a_report_whatever_columns_says(columns: str, call: Call, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for format in ("table", "markdown"):
        out, err = call("report", places.FORMATS / "2-micro.jsonl", "--format", format)
        words = " ".join(out.split())
        assert "requests/s" in words and "optimized" in words and err == ""
