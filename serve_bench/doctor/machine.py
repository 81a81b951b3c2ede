"""Where doctor looks: the machine itself, or a made-up one in tests.

Rule: files of /proc and /sys are read below `root`; a file that cannot be read is None.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.checks import Check
from serve_bench.serving.strays import temp_root
from serve_bench.store import RESULTS

GIB: Final = 1 << 30


@dataclass(frozen=True)
class Machine:
    """`root` stands before /proc, /sys and /dev. `python`: the interpreter whose Ray and torch are
    looked at; None for this one. `pause_s`: how long steal and swapping are watched."""

    root: Path = Path("/")
    results: Path = RESULTS
    temporary: Path = field(default_factory=temp_root)
    python: str | None = None
    pause_s: float = 0.5

    def text(self, name: str) -> str | None:
        """The content of a small file below the root, stripped; None if it cannot be read."""
        try:
            return (self.root / name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    @property
    def is_linux(self) -> bool:
        """Whether there is a Linux kernel to ask."""
        return (self.root / "proc/stat").exists()


def doubt(name: str, value: str, advice: str, detail: Mapping[str, Any]) -> Check:
    """A warning where there is advice, else all is well."""
    return Check(name, "warning" if advice else "ok", value, advice, detail)


def size(count: float) -> str:
    """Bytes as GiB, or MiB where that is little."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / (1 << 20):,.0f} MiB"


def plural(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    more = [f"{len(every) - most} more"] if len(every) > most else []
    return ", ".join(every[:most] + more)


# --------------------------------------------------------------------------------------------------
# Versions of programs, each asked for once and for a few seconds at most.

TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class Answer:
    """What a program printed: its version, or why there is none; and the whole text."""

    version: str | None
    why: str = ""
    text: str = ""


def run(
    words: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program. Raises OSError and TimeoutExpired."""
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        env=env,
    )


def why_not_run(
    words: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
) -> str | None:
    """Why a program fails, in one line; None where it ends well."""
    try:
        ran = run(words, timeout_s, env)
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout_s:.0f} s"
    lines = ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"]
    return lines[-1] if ran.returncode else None


def where(name: str) -> str | None:
    """A program on PATH, else beside this interpreter, where pip puts them."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def version_of(words: Sequence[str], pattern: str) -> Answer:
    """Runs a program and finds its version by the first group of a pattern."""
    try:
        ran = run(words, TIMEOUT_S)
    except OSError as error:
        return Answer(None, (error.strerror or "cannot be run").lower())
    except subprocess.TimeoutExpired:
        return Answer(None, f"no answer in {TIMEOUT_S:.0f} s")
    text = ran.stdout + ran.stderr
    match = re.search(pattern, text)
    if match is not None:
        return Answer(match[1], text=text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return Answer(None, first[:100], text)
