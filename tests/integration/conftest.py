"""Real Ray, real programs. Every test here must leave no process and no directory behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from serve_bench import strays

#: Titles and programs that a run starts; load workers are told by their mark.
OURS = re.compile(r"raylet|gcs_server|ray::|haproxy|cluster\.py")

SERVE_BENCH = (sys.executable, "-m", "serve_bench")


def remains() -> list[str]:
    """Processes and directories of serve-bench runs, zombies excepted."""
    found = []
    for process in psutil.process_iter(["pid", "name", "cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [process.info["name"] or ""])
        marked = strays._mark_of(process, strays.RUN_MARK) is not None
        if process.info["status"] != psutil.STATUS_ZOMBIE and (marked or OURS.search(line)):
            found.append(f"{process.pid} {line[:100]}")
    for directory in strays.temp_root().glob(f"{strays.DIRECTORY_PREFIX}*"):
        if strays._DIRECTORY_NAME.fullmatch(directory.name):
            found.append(str(directory))
    return found


def wait_until_clean(seconds: float = 10.0) -> list[str]:
    """What remains after at most so many seconds; empty when all is gone."""
    deadline = time.monotonic() + seconds
    while (left := remains()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    assert remains() == [], "something of an earlier run is still there"
    yield
    assert wait_until_clean() == []


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
    arguments: Sequence[str], cwd: Path, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs serve-bench; stdout and stderr apart."""
    return subprocess.run(
        [*SERVE_BENCH, *arguments],
        cwd=cwd,
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
