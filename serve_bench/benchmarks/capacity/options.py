"""The options of `serve-bench capacity`."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import REQUEST, RUN_HERE, TargetOptions
from serve_bench.cli.panels import Command
from serve_bench.core.capacity import CLOSED, MOST_LAUNCHES
from serve_bench.core.forms import Duration, Rate, Threshold, Time
from serve_bench.core.load_spec import MAX_DURATION_S, Arrivals

LEAST_LAUNCH_S: Final = 10.0
"""Least length of a search: a few probes of three seconds."""

MOST_START: Final = 100_000
"""Upper end of a first rate, requests/s: what a client of some cores can send."""


class CapacityOptions(TargetOptions):
    """Find the highest rate at which an SLO is met.

    Open-loop probes on fresh launches, until the interval of the rate is narrow enough.

    Example: serve-bench capacity examples/own_app/shop.py:app --route /best --slo p99=200ms
    """

    command = "capacity"
    order = f"""target slo url option app_name {REQUEST} protocol grpc_servicer call events
        event_timeout_s timeout_s replicas arrivals start connections launches launch_s precision
        budget_s quick need variant env out resume {RUN_HERE} format"""

    target: str | None = argument(
        None,
        "App: module:app, path/file.py:app, config.yaml of Serve, or a suite.",
        metavar="[TARGET]",
    )
    slo: str | None = flag(None, "What has to hold, such as p99=50ms,errors=0.1%.")
    option: list[str] | None = flag(
        None,
        "Deployment.option=value,value...; of a suite axis=value,value...; repeatable.",
        launched=True,
    )
    replicas: str | None = flag(
        None,
        "Of an app that Serve scales: fixed, its most, auto [auto].",
        takes=("fixed", "auto"),
        launched=True,
    )
    arrivals: Arrivals = flag("poisson", "Arrivals: poisson or constant.")
    start: float | None = flag(None, "First rate [half of a closed loop's].", takes=(1, MOST_START))
    connections: int = flag(CLOSED, "Connections of the closed loop at first.", takes=(1, 10_000))
    launches: int | None = flag(None, "Fewest launches; 1: just one [3].", takes=(1, MOST_LAUNCHES))
    precision: Threshold | None = flag(
        None, "Width of the 95 % interval that is narrow enough [5%]."
    )
    budget_s: Duration | None = flag(
        None,
        "Longest time of the run, or of its rest [20m for each cell].",
        "--budget",
        resume=True,
    )
    launch_s: Annotated[Time, Meta(ge=LEAST_LAUNCH_S, le=MAX_DURATION_S)] | None = flag(
        None, "Measured time of the search on each launch [2m].", "--launch-time"
    )
    quick: bool = flag(False, "Search 60 s on each launch, to a precision of 10 %.")
    need: Rate | None = flag(None, "Rate to hold, such as 2000/s: exit code 3 if no cell holds it.")


capacity = Command(CapacityOptions, "benchmarks.capacity.command:CapacityExperiment.measure")
