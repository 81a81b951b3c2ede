"""What exporting Serve's metrics each second costs: `scripts/bench serve_metrics [--rounds 4]`.

In each round two fresh launches of each variant, in an order drawn anew: Ray's own interval (10 s)
and 1 s. The matrix's largest cell (8 replicas) is loaded by the raw client with 100 connections, by
one aiohttp client, and left alone. Prints requests/s and CPU of the launch, and ratios 1 s / 10 s
of each round. `--keep FILE` appends the raw figures, so that rounds can be spread over the day;
`--show FILE` adds such a file up and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from serve_bench.cli.sitting import run_mark
from serve_bench.core.app_spec import app_named
from serve_bench.core.axes import cell_defaults
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import drive_load
from serve_bench.observing.sampler import Sampler, Watched
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks

TIMING = Timing(warmup_min_s=1.0, warmup_max_s=3.0, windows=10, window_s=1.0)
IDLE_S = 10.0
LOADS: Final[dict[str, tuple[Client, int]]] = {
    "100 connections": ("raw", 100),
    "single client": ("aiohttp", 1),
}


def cpu_of_launch(serving: Serving, sampler: Sampler, began_ns: int, seconds: float) -> float:
    """CPU of all processes of the launch, % of a core."""
    told = sampler.summary(began_ns, seconds)["processes"]
    skip = ("load_worker", "serve_bench")
    return sum(one["cpu_percent"] or 0.0 for one in told if one["role"] not in skip)


def one_launch(variant: str, often: bool) -> dict[str, float]:
    """Requests/s of each load and the CPU of an idle launch."""
    found: dict[str, float] = {}
    with run_mark() as run_id, tempfile.TemporaryDirectory() as place:
        spec = LaunchSpec(
            BUILT_IN_VARIANTS[variant], run_id, "1", Path(place) / "ray.log", metrics=often
        )
        with Serving(spec) as serving:
            serving.start()
            serving.deploy(app_named("noop", "bench"), {**cell_defaults(), "num_replicas": 8})
            watched = [Watched(one.pid, one.role, one.title) for one in serving.processes()]
            for name, (client, connections) in LOADS.items():
                load = Load(Request(serving.url + "/noop"), client=client, connections=connections)
                with Sampler(watched):
                    result = drive_load(load, TIMING, mark=marks(run_id))
                found[name] = statistics.fmean(result.windows) / TIMING.window_s
            began_ns = time.time_ns()
            with Sampler(watched) as sampler:
                time.sleep(IDLE_S)
            found["idle CPU %"] = cpu_of_launch(serving, sampler, began_ns, IDLE_S)
    return found


def show(rounds: list[dict[str, dict[str, dict[str, float]]]]) -> None:
    """Medians, and the ratios of each round."""
    for variant in sorted({variant for one in rounds for variant in one}):
        pairs = [one[variant] for one in rounds if variant in one]
        for name in pairs[0]["10 s"]:
            long = [pair["10 s"][name] for pair in pairs]
            short = [pair["1 s"][name] for pair in pairs]
            ratios = [b / a for a, b in zip(long, short, strict=True)]
            wide = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
            print(
                f"{variant:10} {name:16} 10 s {statistics.median(long):9,.1f}  "
                f"1 s {statistics.median(short):9,.1f}  ratio mean {statistics.fmean(ratios):.3f} "
                f"± {wide:.3f} (standard error), {min(ratios):.2f} to {max(ratios):.2f}, "
                f"{len(ratios)} rounds"
            )


def main() -> None:
    """Measures or adds up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--variant", default="default,optimized")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--show", type=Path)
    arguments = parser.parse_args()
    if arguments.show is not None:
        show([json.loads(line) for line in arguments.show.read_text().splitlines()])
        return
    rounds = []
    for _ in range(arguments.rounds):
        one: dict[str, dict[str, dict[str, float]]] = {}
        plan = [(v, often) for v in arguments.variant.split(",") for often in (False, True)]
        for variant, often in random.sample(plan, len(plan)):
            name = "1 s" if often else "10 s"
            one.setdefault(variant, {})[name] = one_launch(variant, often)
            print(f"{variant} {name}: {one[variant][name]}", flush=True)
        rounds.append(one)
        if arguments.keep is not None:
            with arguments.keep.open("a") as file:
                file.write(json.dumps(one) + "\n")
    show(rounds)


if __name__ == "__main__":
    main()
