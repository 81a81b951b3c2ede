"""`serve-bench timeline TARGET`: a load over time, second by second, and what changes under it."""

from __future__ import annotations

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, TargetOptions
from serve_bench.core.load_spec import ARRIVALS


class TimelineOptions(TargetOptions):
    command = "timeline"
    order = f"""target url stages ramp fault after option app_name {REQUEST} arrivals connections
        launches nodes variant env out resume dry_run live slo fail_on strict_host format"""

    target: str | None = argument(
        "App: module:app, path/file.py:app, a config file of Serve (.yaml), or a suite: a file "
        "(.toml), or autoscale_step, autoscale_spike, rolling_update, replica_death.",
        default=None,
        metavar="[TARGET]",
    )
    stages: str | None = flag(None, "Load over time, such as 50:20s,500:30s,50:40s.")
    ramp: bool = flag(False, "Move the rate linearly from each stage to the next.")
    fault: list[str] | None = flag(None, "Fault, such as kill:replica@30s; repeatable.")
    after: str | None = flag(None, "Watch replicas for so long behind the last stage [0s].")
    arrivals: str | None = flag(None, "Arrivals: constant or poisson [constant].", takes=ARRIVALS)
    connections: int | None = flag(None, "Connections at first; up to 4000 as needed [100].")
    nodes: int | None = flag(None, "Nodes of the cluster, all on this host [1].")
    slo: str | None = flag(None, "What has to hold in each second, such as p99=200ms [errors=1%].")
    fail_on: str | None = flag(None, "Exit code 3 on: slo (a second is out of it).", takes=("slo",))


@command(TimelineOptions)
def timeline(options: TimelineOptions) -> int:
    """Load an app over time, with faults, by the second.

    An open loop in stages; seconds out of the SLO, requests lost, time to more replicas.

    Example: serve-bench timeline autoscale_step
    """
    from serve_bench.benchmarks.timeline.drive import TimelineRun

    return TimelineRun(options).run()
