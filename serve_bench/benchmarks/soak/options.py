"""The options of `serve-bench soak`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import REQUEST, TargetOptions
from serve_bench.cli.panels import Command
from serve_bench.core.forms import Time
from serve_bench.core.load_spec import MAX_RATE, Arrivals
from serve_bench.core.soak import LEAK

LEAST_S: Final = 30.0

MOST_S: Final = 7 * 24 * 3600.0


class SoakOptions(TargetOptions):
    """Load an app for long, and say which processes grow.

    Memory, threads and descriptors of each process of the cluster, after each block of the load.

    Example: serve-bench soak examples/own_app/shop.py:app --route /best --for 1h --rate 100
    """

    command = "soak"
    order = f"""target duration rate clients arrivals url option app_name {REQUEST} protocol
        grpc_servicer call events event_timeout_s timeout_s quick variant env out resume leak
        fail_on slo dry_run live format"""

    target: str | None = argument(
        None,
        "App: noop, module:app, path/file.py:app, config.yaml, or a suite.",
        metavar="[TARGET]",
    )
    duration: Annotated[Time, Meta(ge=LEAST_S, le=MOST_S)] | None = flag(
        None, "Length of the load: 30s to 7d [1h].", "--for", "--duration"
    )
    rate: float | None = flag(None, "Open loop: requests/s [closed loop].", takes=(0.001, MAX_RATE))
    clients: str | None = flag(None, "Closed loop: raw:N connections [raw:10].", metavar="ROW")
    arrivals: Arrivals = flag("constant", "Open loop: constant or poisson arrivals.")
    option: list[str] | None = flag(None, "Deployment.option=value; repeatable.", launched=True)
    quick: bool = flag(False, "Load for 1 minute.")
    leak: float = flag(
        LEAK, "Least growth that matters, in MB per million requests.", takes=(0.001, MAX_RATE)
    )
    fail_on: tuple[Literal["leak", "slo"], ...] = flag(
        (), "Exit code 3 on: leak, slo.", resume=True
    )


soak = Command(SoakOptions, "benchmarks.soak.command:SoakExperiment.measure")
