"""`serve-bench soak TARGET`: a long load, and whether a process of the cluster grows with it."""

from __future__ import annotations

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, ServiceOptions
from serve_bench.core.load_spec import ARRIVALS, MAX_RATE


class SoakOptions(ServiceOptions):
    command = "soak"
    order = f"""target soak_time rate clients arrivals url option app_name {REQUEST} protocol
        events event_timeout quick variant env out resume leak fail_on slo dry_run live format"""

    target: str | None = argument(
        "App: noop, module:app, path/file.py:app, config.yaml, or a suite.", None, "[TARGET]"
    )
    soak_time: str | None = flag(None, "Length of the load: 30s to 7d [1h].", "--for")
    rate: float | None = flag(None, "Open loop: requests/s [closed loop].", takes=(0.001, MAX_RATE))
    clients: str | None = flag(None, "Closed loop: raw:N connections [raw:10].", metavar="ROW")
    arrivals: str = flag("constant", "Open loop: constant or poisson arrivals.", takes=ARRIVALS)
    option: list[str] | None = flag(None, "Deployment.option=value; repeatable.")
    quick: bool = flag(False, "Load for 1 minute.")
    leak: float | None = flag(
        None, "Least growth that matters, in MB per million requests [50].", takes=(0.001, MAX_RATE)
    )
    fail_on: list[str] | None = flag(None, "Exit code 3 on: leak, slo; repeatable, or with commas.")


@command(SoakOptions)
def soak(options: SoakOptions) -> int:
    """Load an app for long, and say which processes grow.

    Memory, threads and descriptors of each process of the cluster, after each block of the load.

    Example: serve-bench soak examples/own_app/shop.py:app --route /best --for 1h --rate 100
    """
    from serve_bench.benchmarks.soak.drive import SoakRun

    return SoakRun(options).run()
