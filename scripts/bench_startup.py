"""How long `serve-bench --help` takes: median of 20 fresh processes. Goal: under 150 ms."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 20
GOAL_MS = 150


def main() -> None:
    """Prints the median, the quartiles and a bare interpreter's median beside."""
    bare = [_milliseconds(["-c", "pass"]) for _ in range(RUNS)]
    ours = [_milliseconds(["-m", "serve_bench", "--help"]) for _ in range(RUNS)]
    low, median, high = statistics.quantiles(ours, n=4)
    print(f"serve-bench --help: median {median:.0f} ms of {RUNS} (quartiles {low:.0f}, {high:.0f})")
    print(f"the interpreter alone: median {statistics.median(bare):.0f} ms")
    print(f"goal: under {GOAL_MS} ms: {'met' if median < GOAL_MS else 'MISSED'}")


def _milliseconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
