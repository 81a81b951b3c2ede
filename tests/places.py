"""Where the tests' files lie."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

TOP: Final = Path(__file__).parent.parent
FORMATS: Final = TOP / "tests" / "formats"
EXAMPLES: Final = TOP / "examples"
GOLDEN: Final = TOP / "tests" / "golden"
#: The program that holds a cluster.
CLUSTER: Final = TOP / "serve_bench" / "serving" / "cluster"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def execute(
    *words: str | Path, timeout_s: float = 60, **about: Any
) -> subprocess.CompletedProcess[str]:
    keep = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run([*map(str, words)], timeout=timeout_s, **{**keep, **about})


def begin(*words: str | Path, **about: Any) -> subprocess.Popen[str]:
    """Start a program, with pipes of what it writes."""
    keep = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*map(str, words)], text=True, **{**keep, **about})


def wait_until(ready: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def build_wheel(folder: Path) -> Path:
    words = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    done = execute(*words, cwd=TOP)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("serve_bench-*.whl")
    return wheel


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *name, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
