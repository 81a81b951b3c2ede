"""`serve-bench capacity TARGET`: the highest arrival rate at which an SLO is met."""

from __future__ import annotations

from typing import Final

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, ServiceOptions
from serve_bench.core.capacity import MOST_LAUNCHES
from serve_bench.core.load_spec import ARRIVALS
from serve_bench.spec.forms import Threshold

MOST_START: Final = 100_000
"""Upper end of a first rate, requests/s: what a client of some cores can send."""


class CapacityOptions(ServiceOptions):
    """The options of `capacity`."""

    command = "capacity"
    order = f"""target slo url option app_name {REQUEST} protocol events event_timeout replicas
        arrivals start connections launches launch_time precision budget quick need variant env out
        resume no_sample strict_host serve_metrics dry_run live format"""

    with_resume = frozenset("resume budget no_sample strict_host dry_run live format".split())

    target: str | None = argument(
        "App: module:app, path/file.py:app, config.yaml of Serve, or a suite.", None, "[TARGET]"
    )
    slo: str | None = flag(None, "What has to hold, such as p99=50ms,errors=0.1%.")
    option: list[str] | None = flag(
        None, "Deployment.option=value,value...; of a suite axis=value,value...; repeatable."
    )
    replicas: str | None = flag(
        None, "Of an app that Serve scales: fixed, its most, auto [auto].", takes=("fixed", "auto")
    )
    arrivals: str = flag("poisson", "Arrivals: poisson or constant.", takes=ARRIVALS)
    start: float | None = flag(None, "First rate [half of a closed loop's].", takes=(1, MOST_START))
    connections: int = flag(10, "Connections of the closed loop at first.", takes=(1, 10_000))
    launches: int | None = flag(None, "Fewest launches; 1: just one [3].", takes=(1, MOST_LAUNCHES))
    precision: Threshold | None = flag(
        None, "Width of the 95 % interval that is narrow enough [5%]."
    )
    budget: str | None = flag(None, "Longest time of the run, or of its rest [20m for each cell].")
    launch_time: str | None = flag(None, "Measured time of the search on each launch [120s].")
    quick: bool = flag(False, "Search 60 s on each launch, to a precision of 10 %.")
    need: str | None = flag(None, "Rate to hold, such as 2000/s: exit code 3 if no cell holds it.")


@command(CapacityOptions)
def capacity(options: CapacityOptions) -> int:
    """Find the highest rate at which an SLO is met.

    Open-loop probes on fresh launches, until the interval of the rate is narrow enough.

    Example: serve-bench capacity examples/own_app/shop.py:app --route /best --slo p99=200ms
    """
    from serve_bench.benchmarks.capacity.drive import CapacityRun

    return CapacityRun(options).run()
