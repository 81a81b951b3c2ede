"""`serve-bench micro`: the matrix of batch size, concurrency and replicas, on the no-op app or on
a DLRM ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.suite import Overrides

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5

#: Flags that go with --resume: they change what is looked at and shown, not what is measured.
LATER_TOO = (
    "resume",
    "format",
    "published",
    "perf_metrics",
    "dry_run",
    "profile",
    "no_sample",
    "serve_metrics",
)


#: Flags that make a product.
MATRIX = ("max_batch_size", "max_concurrent_queries", "num_replicas", "ranker")


def micro(
    app: Annotated[
        str | None,
        typer.Option(help="noop, ranker (a DLRM) or recsys (an ingress before it) [noop]."),
    ] = None,
    max_batch_size: options.Axis = None,
    max_concurrent_queries: options.Concurrency = None,
    num_replicas: options.Axis = None,
    batch_wait_timeout_s: options.BatchWait = None,
    ranker: options.Ranker = None,
    device: options.Device = None,
    threads: options.Threads = None,
    table_rows: options.TableRows = None,
    gpu_fraction: options.GpuFraction = None,
    body_type: Annotated[
        str | None, typer.Option(help="response (Content-Length) or str (chunked, as published).")
    ] = None,
    intermediate_handle: Annotated[
        bool, typer.Option("--intermediate-handle", help="Put a forwarding deployment in front.")
    ] = False,
    data_size: Annotated[
        str | None, typer.Option(help="Request body: small (none), large (1 MiB) or bytes.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Rows: N aiohttp clients, raw:N connections [1,8,raw:100].")
    ] = None,
    windows: options.Windows = None,
    window_seconds: options.WindowSeconds = None,
    launches: options.Launches = None,
    quick: options.QuickWindows = False,
    variant: options.Variants = None,
    env: options.Env = None,
    suite: options.Suite = "micro",
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    profile: options.ProfileRows = None,
    no_sample: options.NoSample = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    serve_metrics: options.ServeMetrics = False,
    dry_run: options.DryRun = False,
    format: options.Format = "table",
    published: options.Published = False,
    perf_metrics: options.PerfMetrics = None,
) -> int:
    """Measure an app over max_batch_size x max_concurrent_queries x num_replicas.

    Without axes: the six published cells. Every row says its client.

    Example: serve-bench micro --variant default,optimized --quick
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.flags import asked
    from serve_bench.cli.show import Shown

    shown = Shown(format, published, perf_metrics)
    shown.check()

    def anew() -> measure.Sitting:
        sitting = measure.fresh("micro", suite, _overrides(given), out)
        return measure.loading_on(sitting, load_on, load_nodes)

    if resume is not None:
        sitting = measure.resumed("micro", resume, asked(given, "micro", but=LATER_TOO), anew)
    else:
        sitting = anew()
    sitting = measure.looking_inside(sitting, profile, no_sample, serve_metrics)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, shown)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import flags
    from serve_bench.core.axes import parse_env
    from serve_bench.core.suite import Overrides

    settings = flags.settings(given, ("batch_wait_timeout_s", "body_type", *flags.MODEL_SETTINGS))
    if given["intermediate_handle"]:
        settings["intermediate_handle"] = True
    windows, window_s, launches = given["windows"], given["window_seconds"], given["launches"]
    flags.check_number("--windows", windows, 1)
    flags.check_number("--window-seconds", window_s, 0.01)
    flags.check_number("--launches", launches, 1, flags.MOST_LAUNCHES)
    if given["quick"]:
        windows = QUICK_WINDOWS if windows is None else windows
        window_s = QUICK_WINDOW_S if window_s is None else window_s
    env, data_size = given["env"], given["data_size"]
    matrix = {n: flags.values(n, given[n]) for n in MATRIX if given[n] is not None}
    return Overrides(
        app=None if given["app"] is None else str(given["app"]),
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        matrix=matrix,
        settings=settings,
        clients=flags.names(given["clients"]),
        data_size=None if data_size is None else str(flags.values("data_size", data_size)[0]),
        windows=windows if isinstance(windows, int) else None,
        window_s=float(window_s) if isinstance(window_s, int | float) else None,
        launches=launches if isinstance(launches, int) else None,
    )
