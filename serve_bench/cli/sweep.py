"""`serve-bench sweep`: a ladder of users against any suite or URL: throughput, knee, collapse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.suite import Overrides

#: Flags that go with --resume, and those that go with --url.
LATER_TOO = ("resume", "format", "perf_metrics", "dry_run", "no_sample", "serve_metrics")
WITH_URL = (
    *("url", "header", "users", "duration", "quick", "out"),
    *("format", "perf_metrics", "no_sample", "load_on", "load_nodes"),
)

#: Flags that make a product, and those that hold in every cell.
MATRIX = ("max_batch_size", "max_concurrent_queries", "num_replicas", "ranker")


def sweep(
    app: Annotated[
        str | None, typer.Option(help="noop, ranker or recsys [as in the suite: noop].")
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
    variant: options.Variants = None,
    env: options.Env = None,
    users: options.Users = None,
    duration: options.StepSeconds = None,
    launches: options.Launches = None,
    url: options.Urls = None,
    header: options.Headers = None,
    quick: options.QuickSteps = False,
    suite: options.Suite = "micro",
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    no_sample: options.NoSample = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    serve_metrics: options.ServeMetrics = False,
    dry_run: options.DryRun = False,
    format: options.Format = "table",
    perf_metrics: options.PerfMetrics = None,
) -> int:
    """Grow a closed-loop load until it gains no more: throughput, knee and collapse of any suite.

    Example: serve-bench sweep --num-replicas 2 --variant default,optimized --quick
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.flags import asked
    from serve_bench.cli.ladders import DURATION_S, ladder_of, services_of, timing_of
    from serve_bench.cli.show import Shown
    from serve_bench.core.errors import BadInput
    from serve_bench.core.ladder import COLLAPSE_RUNS

    shown = Shown(format, perf_metrics=perf_metrics)
    shown.check()
    if header and not url:
        raise BadInput("-H: is for --url")
    if url:
        wrong = asked(given, "micro", but=WITH_URL)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        from serve_bench.cli.ladders import UrlWish, run_urls
        from serve_bench.runner.load_place import read_load_on

        ladder = ladder_of(users or "auto", quick, start=1, runs=COLLAPSE_RUNS)
        timing = timing_of(DURATION_S if duration is None and not quick else duration, quick)
        services = services_of(url, header or [], users=False)
        wish = UrlWish(
            "sweep",
            services,
            ladder,
            timing,
            out,
            not no_sample,
            load_on=read_load_on(load_on, load_nodes),
        )
        return run_urls(wish, shown)

    def anew() -> measure.Sitting:
        sitting = measure.fresh("sweep", suite, _overrides(given), out)
        return measure.loading_on(sitting, load_on, load_nodes)

    if resume is not None:
        sitting = measure.resumed("sweep", resume, asked(given, "micro", but=LATER_TOO), anew)
    else:
        sitting = anew()
    sitting = measure.looking_inside(sitting, None, no_sample, serve_metrics)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, shown)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import flags
    from serve_bench.cli.ladders import DURATION_S, ladder_of, timing_of
    from serve_bench.core.axes import parse_env
    from serve_bench.core.ladder import COLLAPSE_RUNS
    from serve_bench.core.suite import Overrides

    flags.check_number("--launches", given["launches"], 1, flags.MOST_LAUNCHES)
    env, launches, quick = given["env"], given["launches"], bool(given["quick"])
    duration = DURATION_S if given["duration"] is None and not quick else given["duration"]
    timing = timing_of(duration, quick)
    assert timing is not None
    return Overrides(
        app=None if given["app"] is None else str(given["app"]),
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        matrix={n: flags.values(n, given[n]) for n in MATRIX if given[n] is not None},
        settings=flags.settings(given, ("batch_wait_timeout_s", *flags.MODEL_SETTINGS)),
        ladder=ladder_of(str(given["users"] or "auto"), quick, start=1, runs=COLLAPSE_RUNS),
        windows=timing.windows,
        window_s=timing.window_s,
        launches=launches if isinstance(launches, int) else None,
    )
