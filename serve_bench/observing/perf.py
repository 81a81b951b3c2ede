"""perf, if installed and allowed, on a process that is not Python (haproxy).

Its samples become raw stacks, as those of py-spy.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from serve_bench.analysis.stacks import Stacks

PACKAGE: Final = "linux-perf on Debian, linux-tools-generic on Ubuntu, perf on Fedora"
_FRAME: Final = re.compile(r"\s+[0-9a-f]+ (?P<symbol>.*) \((?P<file>[^()]*)\)")
UNKNOWN: Final = "[unknown] ([unknown])"
_OFFSET: Final = re.compile(r"\+0x[0-9a-f]+$")


class PerfUnusable(Exception):
    """perf is missing or not allowed. One line that says what to do."""


def record_perf(pid: int, duration_s: float, rate: int) -> Stacks:
    """Samples a process with perf. Raises PerfUnusable; an idle process has no stacks."""
    perf = shutil.which("perf")
    if perf is None:
        raise PerfUnusable(f"perf is not installed ({PACKAGE})")
    with tempfile.TemporaryDirectory(prefix="serve-bench-perf-") as folder:
        data = Path(folder) / "perf.data"
        words = [perf, "record", "-F", str(rate), "-g", "-p", str(pid), "-o", str(data)]
        done = _run([*words, "--", "sleep", str(math.ceil(duration_s))], duration_s + 30)
        if done.returncode != 0 or not data.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise PerfUnusable(f"perf may not record: {lines[0] if lines else 'it said nothing'}")
        script = _run([perf, "script", "-i", str(data), "-F", "comm,tid,ip,sym,dso"], 120)
    if script.returncode != 0:
        raise PerfUnusable(f"perf could not read its samples: {script.stderr.strip()[:200]}")
    return collapse(script.stdout)


def _run(words: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PerfUnusable(f"perf took more than {timeout_s:.0f} s") from None


def collapse(script: str) -> Stacks:
    """`perf script` as raw stacks: its samples are blocks of frames, the innermost first."""
    stacks: Counter[tuple[str, ...]] = Counter()
    frames: list[str] = []
    for line in [*script.splitlines(), ""]:
        match = _FRAME.fullmatch(line)
        if match is not None:
            symbol = _OFFSET.sub("", match["symbol"]).replace(";", ":")
            frame = f"{symbol} ({match['file'].rsplit('/', 1)[-1]})"
            # Code without frame pointers gives dozens of unknown frames in a row: one is enough.
            if frame != UNKNOWN or frames[-1:] != [UNKNOWN]:
                frames.append(frame)
        elif not line.strip() and frames:
            stacks[tuple(reversed(frames))] += 1
            frames = []
    return stacks
