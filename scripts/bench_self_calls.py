"""Answers that Serve loses: `self_calls [--requests N]`. A replica calls itself by a handle, five
times nested, or six deployments call each other in a row; 3 clients, by variant.

Each call is counted by the replica that takes it, so a call that was made and never came back is
told from one that was never made.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from serve_bench.benchmarks.scale.cluster import HandleLoad, OwnCluster
from serve_bench.benchmarks.scale.request import ScaleApp, ScaleSuite, apps_of
from serve_bench.core.result import VariantUsed
from serve_bench.core.variants import BUILT_IN_VARIANTS, with_env
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.strays import new_run, reap

CLIENTS, CALLS = 3, 5
LOST_S = 2.0  # ten times the slowest answer that came

VARIANTS = (
    BUILT_IN_VARIANTS["default"],
    with_env(BUILT_IN_VARIANTS["default"], {"RAY_SERVE_USE_GRPC_BY_DEFAULT": "1"}),
    BUILT_IN_VARIANTS["optimized"],
)


def main() -> None:
    """Prints a line for each variant and way of calling."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--requests", type=int, default=1000, help="of each client")
    asked = flags.parse_args()
    own = apps_of(ScaleSuite("multi", VARIANTS, deployments=1, hops=CALLS), 1)
    row = apps_of(ScaleSuite("chain", VARIANTS, size=CALLS + 1), 1)
    print(f"{'calls':>8} {'made':>8} {'lost':>5}  variant, to")
    for variant in VARIANTS:
        _show(variant, {"itself": own, "others": row}, asked.requests)


def _show(variant: VariantUsed, ways: dict[str, tuple[ScaleApp, ...]], requests: int) -> None:
    run_id = new_run()
    with tempfile.TemporaryDirectory() as place:
        try:
            with OwnCluster(LaunchSpec(variant, run_id, "1", Path(place) / "log", 10)) as cluster:
                cluster.start()
                for name, apps in ways.items():
                    cluster.put(apps)
                    before = _taken(cluster)
                    told = cluster.handle_load(
                        HandleLoad(
                            *(apps[0].name, CLIENTS, apps[0].answer),
                            warmup_s=0.0,
                            timeout_s=LOST_S,
                            windows=0,
                            window_s=1.0,
                            requests_each=requests,
                        )
                    )
                    made = _taken(cluster) - before - told.sent  # the clients' own left out
                    lost = told.failed.get("timeout", 0)
                    print(f"{told.sent * CALLS:8,} {made:8,} {lost:5}  {variant.name}, {name}")
                    assert set(told.failed) <= {"timeout"}, told.examples
                    cluster.remove()
        finally:
            reap(run_id)


def _taken(cluster: OwnCluster) -> int:
    """Calls that replicas have taken, also those that are gone."""
    return sum(count.requests for count in cluster.counts().values())


if __name__ == "__main__":
    main()
