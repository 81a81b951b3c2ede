"""The options of `serve-bench timeline`."""

from __future__ import annotations

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import REQUEST, TargetOptions
from serve_bench.cli.panels import Command
from serve_bench.core.timeline import Timeline


class TimelineOptions(TargetOptions):
    """Load an app over time, with faults, by the second.

    An open loop in stages; seconds out of the SLO, requests lost, time to more replicas.

    Example: serve-bench timeline autoscale_step
    """

    command = "timeline"
    spec = Timeline
    order = f"""target url stages ramp faults after_s option app_name {REQUEST} timeout_s arrivals
        connections launches nodes variant env out resume dry_run live slo fail_on strict_host
        format"""

    target: str | None = argument(
        None,
        "App: module:app, path/file.py:app, a config file of Serve (.yaml), or a suite: a file "
        "(.toml), or autoscale_step, autoscale_spike, rolling_update, replica_death, scar.",
        metavar="[TARGET]",
    )
    slo: str | None = flag(
        None, "What has to hold in each second, such as p99=200ms [errors=1%].", resume=True
    )
    fail_on: str | None = flag(
        None, "Exit code 3 on: slo (a second is out of it).", takes=("slo",), resume=True
    )


timeline = Command(TimelineOptions, "benchmarks.timeline.command:TimelineExperiment.measure")
