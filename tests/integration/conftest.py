"""Real Ray, real programs. Every test here must leave no process and no directory behind.

Each test has a TMPDIR of its own, by which all that it starts is known; other runs on the machine
do not meet it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from serve_bench.core.result import Result
from serve_bench.serving.strays import _holds_file_under, _mark_of
from serve_bench.store import read

SERVE_BENCH = (sys.executable, "-m", "serve_bench")

#: Flags of a matrix command: rows as short as they can be, with no long wait for a steady rate.
SHORT = ("--suite", str(Path(__file__).with_name("short.toml")))


def remains() -> list[str]:
    """Processes and directories of this test's runs, zombies excepted."""
    place = os.environ["TMPDIR"]
    found = [str(path) for path in Path(place).iterdir()]
    for process in psutil.process_iter(["pid", "name", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if _mark_of(process, "TMPDIR") == place or _holds_file_under(process, place):
            found.append(f"process {process.pid} {process.info['name']}")
    return found


def wait_until_clean(seconds: float = 10.0) -> list[str]:
    """What remains after at most so many seconds; empty when all is gone."""
    deadline = time.monotonic() + seconds
    while (left := remains()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture(autouse=True)
def _leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = tempfile.mkdtemp(prefix="t", dir="/tmp")  # short: HAProxy's socket paths are limited
    monkeypatch.setenv("TMPDIR", place)
    yield
    left = wait_until_clean()
    shutil.rmtree(place)
    assert left == []


def start(
    *arguments: str, cwd: Path, stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    """Starts serve-bench as a process of its own."""
    return subprocess.Popen(
        [*SERVE_BENCH, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def run_to_end(
    arguments: Sequence[str], cwd: Path, timeout_s: float = 300, columns: int = 80
) -> subprocess.CompletedProcess[str]:
    """Runs serve-bench on a terminal of `columns`; stdout and stderr apart."""
    return subprocess.run(
        [*SERVE_BENCH, *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Reads the output until a line matches; fails with all that was read if none does."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError(f"no line like {pattern!r} in:\n{''.join(seen)}")


def wait_for_deploys(process: subprocess.Popen[str], folder: Path, count: int) -> Result:
    """What is recorded once so many deploys are in force; the records must be begun."""
    deadline = time.monotonic() + 90
    while len((found := read(folder)).deploys) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"{len(found.deploys)} deploys, not {count}"
        time.sleep(0.1)
    return found


def cluster_child(process: subprocess.Popen[str]) -> psutil.Process:
    """The process of serve-bench that holds its cluster."""
    for child in psutil.Process(process.pid).children():
        if "serve_bench/serving/cluster" in " ".join(child.cmdline()):
            return child
    raise AssertionError("no cluster child")


def warden_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The process of serve-bench that ends the run when the CLI has died."""
    (warden,) = (
        child
        for child in psutil.Process(process.pid).children()
        if "serve_bench.serving.strays" in " ".join(child.cmdline())
    )
    return warden
