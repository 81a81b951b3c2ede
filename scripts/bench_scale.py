"""The load of `scale` against wrk, on one deployment: `scale [--rounds N] [--variant NAME]`.

Both load the same replicas in turn, from an actor on the node, so that nothing but the client
differs; the order within a round alternates. Goal: within 10 % of wrk, or above.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from serve_bench.benchmarks.scale.cluster import OwnCluster
from serve_bench.benchmarks.scale.request import ScaleSuite, apps_of
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load.external import ExternalResult
from serve_bench.nodes import NodeCrew
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.strays import new_run, reap

GOAL = 0.9


def main() -> None:
    """Prints each round, and the median of the ratios."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--rounds", type=int, default=7)
    flags.add_argument("--seconds", type=int, default=3)
    flags.add_argument("--replicas", type=int, default=2)
    flags.add_argument("--variant", default="default", choices=sorted(BUILT_IN_VARIANTS))
    asked = flags.parse_args()
    variant = BUILT_IN_VARIANTS[asked.variant]
    suite = ScaleSuite("single", (variant,), replicas=(asked.replicas,))
    (app,) = apps_of(suite, asked.replicas)
    run_id = new_run()
    with tempfile.TemporaryDirectory() as place:
        try:
            spec = LaunchSpec(variant, run_id, "1", Path(place) / "log", asked.replicas)
            with OwnCluster(spec) as cluster:
                cluster.start()
                cluster.put([app])
                url = cluster.url + app.route
                log = Path(place) / "nodes.log"
                with NodeCrew(cluster.gcs_address, run_id, log, dict(cluster.joining)) as crew:
                    crew.start()
                    show(crew, url, asked.rounds, asked.seconds)
        finally:
            reap(run_id)


def show(crew: NodeCrew, url: str, rounds: int, seconds: int) -> None:
    """Loads in turn, and prints."""
    node = crew.nodes[0].node_id
    timing = Timing(0.5, 3.0, windows=seconds, window_s=1.0)
    loads = {
        "raw": Load(Request(url), connections=10, connection_rates=True),
        "wrk": Load(Request(url), client="wrk", connections=10, processes=10),
    }
    crew.drive({node: loads["raw"]}, timing)  # not counted
    print(f"{'round':>5} {'raw 1/s':>9} {'wrk 1/s':>9} {'raw/wrk':>8}")
    ratios = []
    for number in range(1, rounds + 1):
        rates = {}
        for name in sorted(loads, reverse=number % 2 == 0):
            part = crew.drive({node: loads[name]}, timing).parts[node]
            assert isinstance(part, LoadResult | ExternalResult), part
            rates[name] = part.rate
        ratios.append(rates["raw"] / rates["wrk"])
        print(f"{number:5} {rates['raw']:9.1f} {rates['wrk']:9.1f} {ratios[-1]:8.2f}")
    median = statistics.median(ratios)
    met = "met" if median >= GOAL else "missed"
    print(f"median {median:.2f} of {rounds} rounds; goal {GOAL} {met}")


if __name__ == "__main__":
    main()
