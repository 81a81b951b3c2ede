"""`serve-bench profile` without Ray: what it refuses, recipes, files, and a real Python process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_bench.cli.program import run
from tests.observing.test_profiler import TWO


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def burning() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", TWO, "60"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process.pid
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name what to profile: --pid PID, --target ROLE or --recipe NAME"),
        (["--pid", "1", "--target", "all"], "name what to profile"),
        (["--target", "proxies"], "--target: 'proxies' is not allowed; it takes proxy, replica"),
        (["--recipe", "proxi"], "--recipe: no 'proxi'; a path, or one of: controller, everything"),
        (["--pid", "999999999"], "no process 999999999: it has ended, or never was"),
        (["--pid", "1", "--rate", "0"], "--rate: 0 is not allowed; it takes 1 to 1000 a second"),
        (["--pid", "1", "--duration", "0"], "--duration: 0.0 is not allowed"),
        (["diff", "no.txt", "no.txt"], "no profile 'no.txt': neither a file nor a folder at"),
        (["diff", "a", "b", "--target", "all"], "--target: 'all' is not allowed"),
        (["--pid", str(os.getpid()), "-o", "."], "-o: . is a folder; it takes a file"),
        (["--pid", "1", "-o", "x.html"], "-o: x.html is not allowed; it takes a file that ends in"),
        (["--target", "haproxy"], "--target: 'haproxy' is not allowed; it takes proxy, replica"),
        (["--list", "--rate", "0"], "--rate: does not go with --list, which shows every Serve"),
        (["--list", "--duration", "-1"], "--duration: does not go with --list"),
        (["--list", "--pid", "0"], "--pid: does not go with --list"),
        (["--list", "--target", "proxies"], "--target: does not go with --list"),
        (["--list", "--recipe", "proxi"], "--recipe: does not go with --list"),
        (["--list", "--dump"], "--dump: does not go with --list"),
        (["--list", "-o", "."], "--out: does not go with --list"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["profile", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"serve-bench: {said}") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ptrace
def test_a_process_becomes_a_flamegraph_its_stacks_and_tables(
    burning: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["profile", "--pid", str(burning), "--duration", "1", "-o", "out.svg"]) == 0
    told = capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.raw.txt", "out.svg"]
    assert "hot (" in (tmp_path / "out.svg").read_text()
    assert re.search(r"wrote out\.svg and out\.raw\.txt \(\d+ samples\)", told)
    assert re.search(r"spend \(<string>\) +\d+\.\d +\d+\.\d", told)
    assert run(["profile", "--pid", str(burning), "--duration", "0.5", "-o", "b.svg"]) == 0
    capsys.readouterr()
    assert run(["profile", "diff", "out.raw.txt", "b.raw.txt"]) == 0
    assert capsys.readouterr().out.startswith("A out.raw.txt: ")
    assert run(["profile", "--pid", str(burning), "--dump"]) == 0
    assert "spend (<string>" in capsys.readouterr().out


@pytest.mark.ptrace
def test_an_idle_process_is_exit_code_1_and_leaves_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sleeper.stdout is not None and sleeper.stdout.readline() == "ready\n"
    assert run(["profile", "--pid", str(sleeper.pid), "--duration", "0.3"]) == 1
    sleeper.communicate("")
    error = capsys.readouterr().err
    assert f"serve-bench: process {sleeper.pid} was idle: no samples" in error
    assert list(tmp_path.iterdir()) == []


def test_folders_of_a_run_are_merged_by_role(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for variant, count in (("default", 30), ("optimized", 90)):
        folder = tmp_path / "run" / "profiles" / variant / "r1" / "cell" / "8-clients"
        folder.mkdir(parents=True)
        for pid in (1, 2):
            (folder / f"replica-{pid}.raw.txt").write_text(f"main (a.py:1);f (a.py:2) {count}\n")
        (folder / "proxy-9.raw.txt").write_text("p (p.py:1) 7\n")
    words = ["profile", "diff", "--run", str(tmp_path / "run"), "default", "optimized"]
    assert run(words) == 0
    told = capsys.readouterr().out
    assert "A default (2 processes): 60 samples" in told
    assert "B optimized (2 processes): 180 samples" in told
    assert run([*words, "--target", "proxy"]) == 0
    assert "A default: 7 samples" in capsys.readouterr().out
    assert run([*words, "--target", "controller"]) == 2
    assert "holds no profiles of controller" in capsys.readouterr().err
