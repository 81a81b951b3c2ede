"""How often is `versus` right? False alarms of A/A, and planted slow-downs of a known size.

    scripts/bench versus [--only aa,size12,planted12,...] [--runs 10] [--rounds 6] [--out FOLDER]

Parts: `aa` runs A against itself (--quick). `size12` and `size5` establish the true size of a
planted slow-down by one long run; `planted12` and `planted5` are runs of the usual length at
--threshold 5%; `windows12` and `windows5` the same with slices of 1 s, which are no better than
windows. Each run is an ordinary one in FOLDER; what is complete there is not measured again, so
that parts and runs can be added later.

The apps spin for a time of CPU in their handler, the base too, so that less of a request's cost is
that of Serve and the host. How large the planted part is, `size12` and `size5` say.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from serve_bench.comparing import of_versus
from serve_bench.comparing.parts import Compared
from serve_bench.errors import BadInput
from serve_bench.result import Result
from serve_bench.store import read

THRESHOLD = "5%"
LONG_ROUNDS = 12

APP = '''"""Spins for a time of CPU, then answers."""

import time

from ray import serve

SPIN_NS = SPIN


@serve.deployment(max_ongoing_requests=1000, logging_config={"enable_access_log": False})
class Spin:
    async def __call__(self, request):
        until = time.thread_time_ns() + SPIN_NS
        while time.thread_time_ns() < until:
            pass
        return "ok"


app = Spin.bind()
'''

PARTS = ("aa", "size12", "size5", "planted12", "planted5", "windows12", "windows5")


def main() -> None:
    """Measures what is missing, and prints the table."""
    asked = flags()
    asked.out.mkdir(parents=True, exist_ok=True)
    parts = asked.only.split(",")
    if parts != ["aa"]:
        write_apps(asked)
    for part in parts:
        runs = 1 if part.startswith("size") else asked.runs
        for number in range(1, runs + 1):
            measured(part, number, runs, arguments(part, asked), asked.out)
    print(f"\n{table(parts, asked.out)}")


def flags() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas")
    parser.add_argument("--runs", type=int, default=10, help="of each part but the sizes")
    parser.add_argument("--rounds", type=int, default=6, help="of each planted run")
    parser.add_argument("--variant", default="optimized")
    parser.add_argument("--base-us", type=float, default=100.0, help="spin of the base, us")
    parser.add_argument("--planted-us", default="12:30.5,5:11.7", help="NAME:US on top of the base")
    parser.add_argument("--out", type=Path, default=Path("results/bench-versus"))
    asked = parser.parse_args()
    for name in asked.only.split(","):
        if name not in PARTS:
            parser.error(f"--only: {name} is not allowed; it takes {', '.join(PARTS)}")
    return asked


def write_apps(asked: argparse.Namespace) -> None:
    """The base, and one app for each planted slow-down; those that are there stay as they are, and
    must be the same."""
    spins = {"base": asked.base_us}
    for pair in asked.planted_us.split(","):
        name, _, more_us = pair.partition(":")
        spins[f"slow{name}"] = asked.base_us + float(more_us)
    for name, spin_us in spins.items():
        file, text = (
            asked.out / f"{name}.py",
            APP.replace("= SPIN", "= " + str(round(1000 * spin_us)), 1),
        )
        if file.exists() and file.read_text() != text:
            sys.exit(f"{file}: spins otherwise in the runs that are there: give another --out")
        file.write_text(text)


def arguments(part: str, asked: argparse.Namespace) -> list[str]:
    """The flags of a run of this part, after `versus`."""
    if part == "aa":
        return ["--a", asked.variant, "--aa", "--quick"]
    percent = "".join(letter for letter in part if letter.isdigit())
    side = f"{asked.variant},{asked.out}"
    rounds = LONG_ROUNDS if part.startswith("size") else asked.rounds
    found = ["--a", f"{side}/base.py:app", "--b", f"{side}/slow{percent}.py:app"]
    found += ["--rounds", str(rounds), "--threshold", THRESHOLD]
    return [*found, "--slice", "1s"] if part.startswith("windows") else found


def measured(part: str, number: int, of: int, flags: Sequence[str], out: Path) -> None:
    """One run, unless it is there already."""
    folder = out / f"{part}-{number:02d}"
    found = stored(folder)
    line = [sys.executable, "-m", "serve_bench", "versus"]
    if found is None:
        # Each run draws an order of its own.
        line += [*flags, "--seed", str(number), "--out", str(folder)]
    elif not found.complete:
        line += ["--resume", str(folder)]
    else:
        print(f"{part} {number}/{of}: there already: {told(found)}", flush=True)
        return
    done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = stored(folder)
    if found is None or done.returncode not in (0, 1):
        sys.exit(f"{part} {number}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    print(f"{part} {number}/{of}: {told(found)}", flush=True)


def stored(folder: Path) -> Result | None:
    """The run in a folder; None where there is none."""
    try:
        return read(folder)
    except BadInput:
        return None


def throughput(result: Result) -> Compared:
    """The line of throughput of the one row."""
    return of_versus(result).rows[0].line("throughput")


def told(result: Result) -> str:
    """A run in a line."""
    line = throughput(result)
    interval = line.judged.interval
    if interval is None:
        return f"{line.judged.word}: {line.judged.why}"
    return f"{line.judged.word}: {interval.ratio:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def table(parts: Sequence[str], out: Path) -> str:
    """All runs of all parts, complete or not."""
    head = ("part", "runs", "ratio", "SD", "width", "beyond 1", "regr", "impr", "same", "inconcl")
    return "\n".join(
        "".join(f"{text:>9}" for text in row)
        for row in [head, *(fields(part, list(runs_of(part, out))) for part in parts)]
    )


def runs_of(part: str, out: Path) -> Iterator[Compared]:
    """The lines of the runs of a part."""
    for folder in sorted(out.glob(f"{part}-*")):
        result = stored(folder)
        if result is not None:
            yield throughput(result)


def fields(part: str, lines: Sequence[Compared]) -> tuple[str, ...]:
    """A row of the table: means over runs; `width` is that of the interval, `beyond 1` counts those
    that do not hold 1."""
    intervals = [one.judged.interval for one in lines if one.judged.interval is not None]
    words = Counter(one.judged.word for one in lines)
    ratios = [one.ratio for one in intervals]
    mean = f"{statistics.geometric_mean(ratios):.3f}" if ratios else "-"
    spread = f"{statistics.stdev(ratios):.3f}" if len(ratios) > 1 else "-"
    width = f"{statistics.fmean(one.high - one.low for one in intervals):.3f}" if ratios else "-"
    beyond = sum(not one.low <= 1.0 <= one.high for one in intervals)
    counts = (words[word] for word in ("regressed", "improved", "same", "inconclusive"))
    return (part, str(len(lines)), mean, spread, width, str(beyond), *map(str, counts))


if __name__ == "__main__":
    main()
