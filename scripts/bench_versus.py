"""Is `versus` right? Changes of a known size, planted.

    scripts/bench versus truth    [--case NAMES] [--launches 4] [--minutes 2]
    scripts/bench versus coverage [--case NAMES] [--launches 1]
    scripts/bench versus table

`truth`: the size of a change at 100 connections by another way: wrk, windows of 4 s in the order
A B B A, in several launches. `coverage`: a run of `versus` on it at its defaults, whose interval
should hold the truth in 19 of 20; --launches repeats it with other seeds. `table` shows what is
there. Figures are appended to --figures, runs lie in --out, and what is there is not measured
again, so that all of it can be made in pieces, on a host with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import structs

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.ratios import paired
from serve_bench.benchmarks.versus.command import read_versus
from serve_bench.benchmarks.versus.options import VersusOptions
from serve_bench.cli.gate import Gate
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import load_of
from serve_bench.core.result import Result
from serve_bench.load.driver import drive_load
from serve_bench.observing.host import cpu_ns, fingerprint
from serve_bench.runner.in_turn import REQUEST_WAY, WARMING
from serve_bench.runner.runner import Part
from serve_bench.runner.sides import Up, deploy_at_once, start_at_once
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks, new_run, reap
from serve_bench.store import read

BASE_US: Final = 400.0
CONNECTIONS: Final = 100
WINDOW_S: Final = 4.0
PAUSE_S: Final = 0.7  # until the queue of the side that was loaded before is empty
LEAST: Final = 3

#: What is planted in B, by name; the size in the name is what was aimed at on 2 cores. Of a timer,
#: A has one too (TIMER_MS): a lock that each request holds for that time, so that the clock sets
#: the rate and the truth is known well.
CASES: Final[dict[str, dict[str, float]]] = {
    "same": {},
    "cpu-5": {"spin_us": 110},
    "cpu-10": {"spin_us": 230},
    "cpu-20": {"spin_us": 520},
    "cpu-faster-10": {"spin_us": -200},
    "hop": {"hop": 1},
    "validate": {"validate": 1},
    "payload-10": {"reply_kb": 250},
    "payload-20": {"reply_kb": 600},
    "log-10": {"lines": 3},
    "log-20": {"lines": 6},
    "block-10": {"block_ms": 0.5},
    "block-20": {"block_ms": 1.2},
    "sleep-20": {"sleep_ms": 20},
    "sleep-60": {"sleep_ms": 60},
    "lock-10": {"lock_ms": 1.5},
    "lock-20": {"lock_ms": 3},
    "timer-5": {"lock_ms": 10.5},
    "timer-10": {"lock_ms": 11.1},
    "timer-20": {"lock_ms": 12.5},
    "cpu-2": {"spin_us": 45},
}
TIMER: Final = "timer"
TIMER_MS: Final = 10.0

#: What is judged, and the key of its truth.
METRICS: Final = {"throughput": "rate", "cpu": "cpu"}

APP: Final = '''"""Answers after a spin of CPU; what is planted beside it is in PLANTED."""

import asyncio
import json
import logging
import time

from ray import serve
from starlette.responses import PlainTextResponse

PLANTED = {}
BASE_US = 0.0
QUIET = {"log_level": "INFO", "enable_access_log": False}
RECORD = json.dumps({"rows": [{"id": n, "name": "n" * 20, "score": n / 7} for n in range(60)]})
REPLY = "a" * (64 + int(1024 * PLANTED.get("reply_kb", 0)))
logger = logging.getLogger("ray.serve")


def validated(text):
    from pydantic import BaseModel

    class Row(BaseModel):
        id: int
        name: str
        score: float

    class Record(BaseModel):
        rows: list[Row]

    validated.model = getattr(validated, "model", Record)
    return validated.model.model_validate_json(text).model_dump_json()


@serve.deployment(max_ongoing_requests=1000, logging_config=QUIET)
class Planted:
    def __init__(self):
        self.lock = asyncio.Lock()
        if PLANTED.get("validate"):
            validated(RECORD)

    async def __call__(self, request):
        until = time.thread_time_ns() + int(1000 * (BASE_US + PLANTED.get("spin_us", 0)))
        while time.thread_time_ns() < until:
            pass
        if PLANTED.get("validate"):
            json.loads(validated.model.model_validate_json(RECORD).model_dump_json())
        for _ in range(int(PLANTED.get("lines", 0))):
            logger.info("a request was answered")
        if PLANTED.get("block_ms"):
            time.sleep(PLANTED["block_ms"] / 1000)
        if PLANTED.get("sleep_ms"):
            await asyncio.sleep(PLANTED["sleep_ms"] / 1000)
        if PLANTED.get("lock_ms"):
            async with self.lock:
                await asyncio.sleep(PLANTED["lock_ms"] / 1000)
        return REPLY if PLANTED.get("hop") else PlainTextResponse(REPLY)


@serve.deployment(max_ongoing_requests=1000, logging_config=QUIET)
class Front:
    def __init__(self, behind):
        self.behind = behind

    async def __call__(self, request):
        return PlainTextResponse(await self.behind.remote(None))


app = Front.bind(Planted.bind()) if PLANTED.get("hop") else Planted.bind()
'''


def main() -> None:
    """Measure what is missing of a part, or print the table."""
    args = parse_flags()
    args.out.mkdir(parents=True, exist_ok=True)
    write_apps(args.out)
    if args.part == "table":
        print(*coverage_lines(args.figures), sep="\n")
        return
    for case, launch in product(args.case.split(","), range(1, args.launches + 1)):
        about = {"part": args.part, "case": case, "variant": args.variant, "launch": launch}
        about |= {"with": args.more} if args.part == "coverage" else {}
        if any(about.items() <= figure.items() for figure in read_figures(args.figures)):
            print(f"{args.part} {case} {launch}: there already", flush=True)
            continue
        about["host"] = structs.asdict(fingerprint())
        if args.part == "coverage":
            keep(args.figures, about | coverage(case, launch, args))
            continue
        with launch_sides(case, args) as pair:
            keep(args.figures, about | measure_truth(pair, 60 * args.minutes, launch))


def parse_flags() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=("truth", "coverage", "table"))
    parser.add_argument("--case", help=f"with commas, of {', '.join(CASES)} [all]")
    parser.add_argument("--variant", default="default")
    parser.add_argument("--launches", type=int)
    parser.add_argument("--minutes", type=float, help="of load in a launch")
    parser.add_argument("--with", dest="more", default="", help="more flags of versus")
    parser.add_argument("--out", type=Path, default=Path("results/bench-versus"))
    parser.add_argument("--figures", type=Path, default=Path("scripts/figures/versus.jsonl"))
    args = parser.parse_args()
    args.case = args.case or ",".join(CASES)
    args.launches = args.launches or (4 if args.part == "truth" else 1)
    args.minutes = args.minutes or 2.0
    for name in args.case.split(","):
        if name not in CASES:
            parser.error(f"--case: {name} is not allowed; it takes {', '.join(CASES)}")
    return args


def write_apps(out: Path) -> None:
    """Write an app for each case; those that are there stay as they are, and must be the same."""
    for name, planted in {**CASES, TIMER: {"lock_ms": TIMER_MS}}.items():
        file = out / f"{name.replace('-', '_')}.py"
        text = APP.replace("PLANTED = {}", f"PLANTED = {planted}", 1)
        text = text.replace("BASE_US = 0.0", f"BASE_US = {BASE_US}", 1)
        if file.exists() and file.read_text() != text:
            sys.exit(f"{file}: is another app in the runs that are there: give another --out")
        file.write_text(text)


def name_sides(case: str, args: argparse.Namespace) -> tuple[str, str]:
    """Return the two sides as `versus` takes them, each named by its own file."""
    base = TIMER if case.startswith(TIMER) else "same"
    files = [args.out.resolve() / f"{name.replace('-', '_')}.py" for name in (base, case)]
    return f"{args.variant},{files[0]}:app", f"{args.variant},{files[1]}:app"


def read_figures(file: Path) -> list[dict[str, Any]]:
    """Return what was measured so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(file: Path, figure: dict[str, Any]) -> None:
    """Append a measurement."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(figure) + "\n")
    print(json.dumps(figure)[:400], flush=True)


@dataclass
class Pair:
    """Two sides that are up, with the load of 100 connections on each."""

    run_id: str
    ups: tuple[Up, Up]
    loads: tuple[Load, Load]

    def cpu_s(self, side: int) -> float:
        """Return the CPU s so far of the processes that requests of a side go through."""
        found = self.ups[side].serving.processes()
        return sum((cpu_ns(part.pid) or 0) / 1e9 for part in found if part.role in REQUEST_WAY)


@contextmanager
def launch_sides(case: str, args: argparse.Namespace) -> Iterator[Pair]:
    """Launch both sides anew, and warm them."""
    a, b = name_sides(case, args)
    sides: dict[str, Any] = {"aa": True} if case == "same" else {"b": [b]}
    suite, _ = read_versus(VersusOptions(a=a, clients=(f"raw:{CONNECTIONS}",), **sides), Gate())
    run_id, cell = new_run(), suite.cells[0]
    try:
        ups: list[Up] = []
        for number, side in enumerate(suite.sides):
            log = args.out / f"log-{number}"
            spec = LaunchSpec(side.launched, run_id, str(number), log, folders=side.app.folders)
            part = Part(str(number), side.launched, 1)
            ups.append(Up(side, part, Serving(spec)))
        wrong: list[Any] = list(start_at_once(ups, lambda up, words: None))
        apps = [suite.of_side(up.side, cell) for up in ups]
        if not wrong:
            put = deploy_at_once(ups, apps, suite.label(cell), lambda up, words: None)
            wrong = [result for result in put if isinstance(result, Exception)]
        if wrong:
            sys.exit(f"{case}: {wrong[0]}")
        first, second = (
            load_of(whole, suite.rows[0], up.serving.url, app)
            for up, (whole, app) in zip(ups, apps, strict=True)
        )
        for load in (first, second):
            drive_load(load, WARMING, mark=marks(run_id))
        yield Pair(run_id, (ups[0], ups[1]), (first, second))
    finally:
        reap(run_id)


def measure_truth(pair: Pair, seconds: float, seed: int) -> dict[str, Any]:
    """Measure one launch: log ratios of throughput and CPU per request, by wrk in order ABBA."""
    cycles = max(LEAST, round(seconds / (4 * (WINDOW_S + PAUSE_S))))
    rates: list[float] = []
    cpus: list[float] = []
    for cycle in range(cycles):
        first = (cycle + seed) % 2
        seen: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
        for side in (first, 1 - first, 1 - first, first):
            time.sleep(PAUSE_S)
            before = pair.cpu_s(side)
            requests, taken_s = run_wrk(pair.loads[side].request.url)
            time.sleep(0.3)  # what was in flight costs CPU too, and is one request a connection
            seen[side].append((requests / taken_s, (pair.cpu_s(side) - before) / requests))
        (a, b) = ([statistics.fmean(of) for of in zip(*seen[side], strict=True)] for side in (0, 1))
        rates.append(math.log(b[0] / a[0]))
        cpus.append(math.log(b[1] / a[1]))
    return {"rate": statistics.fmean(rates), "cpu": statistics.fmean(cpus), "cycles": cycles}


def run_wrk(url: str) -> tuple[int, float]:
    """Return the requests that wrk completed on 100 connections, and in how many seconds."""
    line = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{WINDOW_S:g}s", "--timeout", "30s", url]
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)(m?s)", text)
    if found is None or "Non-2xx" in text:
        sys.exit(f"wrk: {text[-500:]}")
    return int(found[1]), float(found[2]) / (1000 if found[3] == "ms" else 1)


def coverage(case: str, launch: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return what a run of versus says; one that was cut off is resumed."""
    more = re.findall(r"[\w.]+", args.more)
    name = "-".join(["versus", args.variant, case, str(launch), *more])
    folder = args.out / name
    a, b = name_sides(case, args)
    line = [sys.executable, "-m", "serve_bench", "versus"]
    stored = read_stored(folder)
    if stored is not None and stored.complete:
        return summarize(stored)
    sides = ["--a", a, "--aa"] if case == "same" else ["--a", a, "--b", b]
    # A record that names an app by its path is resumed once all is named again.
    seed = 100 * launch + list(CASES).index(case)
    line += [*sides, "--seed", str(seed), *args.more.split()]
    line += ["--out" if stored is None else "--resume", str(folder)]
    done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stored = read_stored(folder)
    if stored is None or done.returncode not in (0, 1):
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return summarize(stored)


def summarize(result: Result) -> dict[str, Any]:
    """Return the intervals and verdicts of a run, and its rounds."""
    comparing = of_versus(result)
    by_metric = {}
    for metric in METRICS:
        judged = comparing.rows[0].line(metric).judged
        found = judged.interval
        interval = None if found is None else [found.ratio, found.low, found.high]
        by_metric[metric] = {"interval": interval, "word": judged.word, "why": judged.why}
    return {"rounds": max((trial.round for trial in result.trials), default=0), **by_metric}


def read_stored(folder: Path) -> Result | None:
    """Return the run in a folder; None where there is none."""
    try:
        return read(folder)
    except BadInput:
        return None


def coverage_lines(file: Path) -> Iterator[str]:
    """Compare each run of versus with the truth, line by line.

    `holds`: its interval holds the truth's middle, which is known no better than its own interval
    says; `agrees`: they differ by no more than both half widths together (the root of their
    squares). Of A against itself the truth is 1.
    """
    head = ("versus", "metric", "truth (95 %)", "versus (95 %)", "holds", "agrees")
    yield f"{head[0]:30}{head[1]:>11}  {head[2]:24}{head[3]:38}{head[4]:6}{head[5]}"
    held: dict[str, list[int]] = {}
    kept = read_figures(file)
    for run in (line for line in kept if line["part"] == "coverage"):
        place = ("truth", run["case"], run["variant"])
        sizes = [line for line in kept if (line["part"], line["case"], line["variant"]) == place]
        name = f"{run['case']} {run['launch']} {run['with']}".strip()
        for metric, key in METRICS.items():
            found, known, holds, agrees = run[metric], "-", "-", "-"
            size: Any = None if len(sizes) < 2 else paired([line[key] for line in sizes])
            if run["case"] == "same":
                size = Size(1.0, 1.0, 1.0)
            if size is not None and found["interval"] is not None:
                ours = Size(*found["interval"])
                known = "1" if size.low == size.high else format_ratio(size)
                inside = ours.low <= size.ratio <= ours.high
                halves = (math.log(interval.high / interval.ratio) for interval in (size, ours))
                near = abs(math.log(ours.ratio / size.ratio)) <= math.hypot(*halves)
                holds, agrees = ("yes" if holding else "no" for holding in (inside, near))
                count = held.setdefault(metric, [0, 0, 0])
                count[:] = [n + more for n, more in zip(count, (inside, near, 1), strict=True)]
            text = "no interval" if found["interval"] is None else format_ratio(found["interval"])
            text = f"{text} {found['word']}"
            yield f"{name:30}{metric:>11}  {known:24}{text:38}{holds:6}{agrees}"
    for metric, (good, near_it, total) in sorted(held.items()):
        yield f"{metric}: holds the truth in {good} of {total}, agrees with it in {near_it}"


class Size(NamedTuple):
    """A ratio with its ends."""

    ratio: float
    low: float
    high: float


def format_ratio(size: Any) -> str:
    """Format a ratio with its interval, of three numbers or with names."""
    ratio, low, high = size if isinstance(size, list | tuple) else (size.ratio, size.low, size.high)
    return f"{ratio:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
