"""What py-spy costs a no-op replica: `scripts/bench profile [--rounds 3] [--variant a,b]`.

One launch of each variant with one replica. In each round, in an order that is drawn anew: no
py-spy, then py-spy at 100 Hz as it is, with --nonblocking, with --native, at 25 Hz, each around a
load of the raw client with 100 connections. Prints requests/s and the CPU of py-spy itself, medians
over rounds; the ratio is to the same round's load without py-spy.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from serve_bench.cli.sitting import run_mark
from serve_bench.core.app_spec import app_named
from serve_bench.core.axes import cell_defaults
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import drive_load
from serve_bench.observing.profiler import Recording, SpyOptions
from serve_bench.observing.sampler import Sampler, Watched
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks

WAYS: dict[str, SpyOptions | None] = {
    "no py-spy": None,
    "100 Hz": SpyOptions(100),
    "100 Hz --nonblocking": SpyOptions(100, nonblocking=True),
    "100 Hz --native": SpyOptions(100, native=True),
    "25 Hz": SpyOptions(25),
}
TIMING = Timing(warmup_min_s=0.5, warmup_max_s=1.5, windows=3, window_s=1.0)


def one(serving: Serving, run_id: str, way: str, folder: Path) -> tuple[float, float, int]:
    """Requests/s, py-spy's CPU (% of a core) and its samples, of one load."""
    options, mark = WAYS[way], marks(run_id)
    (replica,) = (process for process in serving.processes() if process.role == "replica")
    load = Load(Request(serving.url + "/noop"), client="raw", connections=100)
    with ExitStack() as stack:
        watched = []
        recording = None
        if options is not None:
            recording = Recording(replica.pid, folder / "x.raw.txt", options, mark=mark)
            recording.start()
            stack.callback(recording.abandon)
            recording.wait_ready()
            watched.append(Watched(recording.py_spy_pid, "py_spy", "py-spy"))
        sampler = stack.enter_context(Sampler(watched))
        result = drive_load(load, TIMING, mark=mark)
        samples = recording.stop().samples if recording is not None else 0
    told = sampler.summary(result.started_at_ns, result.duration_s)["processes"]
    cpu = sum(seen["cpu_percent"] or 0.0 for seen in told if seen["role"] == "py_spy")
    return statistics.fmean(result.windows) / TIMING.window_s, cpu, samples


def measure(variant: str, rounds: int) -> None:
    """Prints a line for each way."""
    found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
    with run_mark() as run_id, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        spec = LaunchSpec(BUILT_IN_VARIANTS[variant], run_id, "1", folder / "ray.log")
        with Serving(spec) as serving:
            serving.start()
            serving.deploy(app_named("noop", "bench"), {**cell_defaults(), "num_replicas": 1})
            one(serving, run_id, "no py-spy", folder)  # the first load after a deploy is slower
            for _ in range(rounds):
                for way in random.sample(list(WAYS), len(WAYS)):
                    found[way].append(one(serving, run_id, way, folder))
    for way, rows in found.items():
        ratios = [row[0] / base[0] for row, base in zip(rows, found["no py-spy"], strict=True)]
        rate, cpu, samples = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"{variant:10} {way:22} {rate:8,.0f} requests/s  ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})  py-spy {cpu:5.1f} % of a core  "
            f"{samples:.0f} samples",
            flush=True,
        )


def main() -> None:
    """Measures each variant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variant", default="default,optimized")
    arguments = parser.parse_args()
    for variant in arguments.variant.split(","):
        measure(variant, arguments.rounds)


if __name__ == "__main__":
    main()
