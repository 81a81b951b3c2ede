"""`serve-bench recsys`: ingress and ranker, a ladder of users for each number of rankers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.suite import Overrides

#: Flags that go with --resume, and those that go with --url.
LATER_TOO = (
    *("resume", "format", "published", "perf_metrics", "dry_run", "no_sample"),
    "serve_metrics",
)
WITH_URL = (
    *("url", "header", "users", "duration", "quick", "out"),
    *("format", "published", "perf_metrics", "no_sample", "load_on", "load_nodes"),
)


def recsys(
    ranker_replicas: Annotated[
        str | None, typer.Option(help="Ranker replicas, with commas; 2 ingress each [1,2,4].")
    ] = None,
    variant: options.Variants = None,
    ranker: options.Ranker = None,
    device: options.Device = None,
    users: options.Users = None,
    duration: options.StepSeconds = None,
    threads: options.Threads = None,
    gpu_fraction: options.GpuFraction = None,
    table_rows: options.TableRows = None,
    max_batch_size: Annotated[
        str | None, typer.Option(help="Requests that a ranker scores at once [100].")
    ] = None,
    launches: options.Launches = None,
    env: options.Env = None,
    url: options.Urls = None,
    header: options.Headers = None,
    quick: options.QuickSteps = False,
    suite: options.Suite = "recsys",
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    no_sample: options.NoSample = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    serve_metrics: options.ServeMetrics = False,
    dry_run: options.DryRun = False,
    format: options.Format = "table",
    published: options.Published = False,
    perf_metrics: options.PerfMetrics = None,
) -> int:
    """Measure ingress and DLRM ranker: a ladder of users for each variant and number of rankers.

    Without flags: default and optimized, 1, 2 and 4 ranker replicas, 2 ingress replicas for each.

    Example: serve-bench recsys --quick --published
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.flags import asked
    from serve_bench.cli.show import Shown
    from serve_bench.core.errors import BadInput

    shown = Shown(format, published, perf_metrics)
    shown.check()
    if header and not url:
        raise BadInput("-H: is for --url")
    if url:
        wrong = asked(given, "recsys", but=WITH_URL)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        from serve_bench.cli.ladders import (
            DURATION_S,
            UrlWish,
            ladder_of,
            run_urls,
            services_of,
            timing_of,
        )
        from serve_bench.runner.load_place import read_load_on

        services = services_of(url, header or [], users=True)
        ladder = ladder_of(users or "auto", quick)
        timing = timing_of(DURATION_S if duration is None and not quick else duration, quick)
        wish = UrlWish(
            "recsys",
            services,
            ladder,
            timing,
            out,
            not no_sample,
            load_on=read_load_on(load_on, load_nodes),
        )
        return run_urls(wish, shown)

    def anew() -> measure.Sitting:
        sitting = measure.fresh("recsys", suite, _overrides(given), out)
        return measure.loading_on(sitting, load_on, load_nodes)

    if resume is not None:
        sitting = measure.resumed("recsys", resume, asked(given, "recsys", but=LATER_TOO), anew)
    else:
        sitting = anew()
        if sitting.suite.app.name != "recsys" or sitting.suite.ladder is None:
            raise BadInput(f'--suite: {suite} needs app = "recsys", and users in its [load]')
    sitting = measure.looking_inside(sitting, None, no_sample, serve_metrics)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, shown)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import flags
    from serve_bench.cli.ladders import ladder_of, timing_of
    from serve_bench.core.axes import Value, parse_env
    from serve_bench.core.suite import Overrides

    matrix: dict[str, tuple[Value, ...]] = {}
    if given["ranker"] is not None:
        matrix["ranker"] = flags.values("ranker", given["ranker"])
    if given["ranker_replicas"] is not None:
        matrix["num_replicas"] = flags.values(
            "num_replicas", given["ranker_replicas"], "--ranker-replicas"
        )
    flags.check_number("--launches", given["launches"], 1, flags.MOST_LAUNCHES)
    launches, env, users = given["launches"], given["env"], given["users"]
    timing = timing_of(given["duration"], bool(given["quick"]))
    return Overrides(
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        matrix=matrix,
        settings=flags.settings(given, ("max_batch_size", *flags.MODEL_SETTINGS)),
        ladder=ladder_of(None if users is None else str(users), bool(given["quick"])),
        windows=None if timing is None else timing.windows,
        window_s=None if timing is None else timing.window_s,
        launches=launches if isinstance(launches, int) else None,
    )
