"""`serve-bench sweep`: a ladder of users against any suite or URL: throughput, knee, collapse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.suite import Overrides

#: Flags that go with --resume, and those that go with --url.
LATER_TOO = ("resume", "format", "perf_metrics", "dry_run", "no_sample")
WITH_URL = (
    *("url", "header", "users", "duration", "quick", "out"),
    *("format", "perf_metrics", "no_sample"),
)

#: Flags that make a product, and those that hold in every cell.
MATRIX = ("max_batch_size", "max_concurrent_queries", "num_replicas", "ranker")


def sweep(
    app: Annotated[
        str | None, typer.Option(help="noop, ranker or recsys [as in the suite: noop].")
    ] = None,
    max_batch_size: Annotated[str | None, typer.Option(help="One or more, with commas.")] = None,
    max_concurrent_queries: Annotated[
        str | None,
        typer.Option(
            "--max-concurrent-queries",
            "--max-ongoing-requests",
            help="One or more, with commas: requests that one replica takes at once.",
        ),
    ] = None,
    num_replicas: Annotated[str | None, typer.Option(help="One or more, with commas.")] = None,
    batch_wait_timeout_s: Annotated[
        str | None, typer.Option(help="How long serve.batch waits to fill a batch, seconds [0].")
    ] = None,
    ranker: Annotated[
        str | None, typer.Option(help="Of the model: plain, tuned or both [plain].")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Of the model: auto, cpu or cuda [auto].")
    ] = None,
    threads: Annotated[str | None, typer.Option(help="Of torch in each ranker [1].")] = None,
    table_rows: Annotated[str | None, typer.Option(help="Rows of each table [100000].")] = None,
    gpu_fraction: Annotated[
        str | None, typer.Option(help="Of a GPU for each ranker replica [1].")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="default, haproxy, optimized, or of the suite; with commas.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for every variant; repeatable.")
    ] = None,
    users: Annotated[
        str | None, typer.Option(help="auto, published, or numbers with commas [auto].")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of each step [20].")] = None,
    launches: Annotated[
        int | None, typer.Option(help="Fresh clusters of each variant, each all ladders [1].")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(help="NAME=URL of a service that is there already; repeatable."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="For --url: 'Name: value'.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Steps of 3 s, no refinement around the best.")
    ] = False,
    suite: Annotated[
        str, typer.Option(help="A suite file, or the name of a shipped one.")
    ] = "micro",
    out: Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, by its own plan.")
    ] = None,
    no_sample: Annotated[
        bool, typer.Option("--no-sample", help="Do not sample CPU and memory beside the load.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its expected time.")
    ] = False,
    format: Annotated[
        str, typer.Option("--format", "-f", help="table, classic, markdown, csv or json.")
    ] = "table",
    perf_metrics: Annotated[
        Path | None, typer.Option(help="Write the perf_metrics JSON of Ray's release tooling here.")
    ] = None,
) -> int:
    """Grow a closed-loop load until it gains no more: throughput, knee and collapse of any suite.

    Example: serve-bench sweep --num-replicas 2 --variant default,optimized --quick
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.ladder_flags import DURATION_S, ladder_of, services_of, timing_of
    from serve_bench.cli.matrix_flags import asked
    from serve_bench.cli.show import check_format
    from serve_bench.errors import BadInput

    check_format(format)
    if header and not url:
        raise BadInput("-H: is for --url")
    if url:
        wrong = asked(given, "micro", but=WITH_URL)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        from serve_bench.cli.ladder_url import UrlWish, run_urls

        ladder = ladder_of(users or "auto", quick, start=1)
        timing = timing_of(DURATION_S if duration is None and not quick else duration, quick)
        services = services_of(url, header or [], users=False)
        wish = UrlWish("sweep", services, ladder, timing, out, not no_sample)
        return run_urls(wish, format, perf_metrics=perf_metrics)
    if resume is not None:
        sitting = measure.resumed(resume, asked(given, "micro", but=LATER_TOO))
    else:
        sitting = measure.fresh("sweep", suite, _overrides(given), out)
    sitting = measure.looking_inside(sitting, None, no_sample, False)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, format, perf_metrics=perf_metrics)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import matrix_flags as flags
    from serve_bench.cli.ladder_flags import DURATION_S, ladder_of, timing_of
    from serve_bench.suite import Overrides
    from serve_bench.variants import parse_env

    flags.check_number("--launches", given["launches"], 1)
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
        ladder=ladder_of(str(given["users"] or "auto"), quick, start=1),
        windows=timing.windows,
        window_s=timing.window_s,
        launches=launches if isinstance(launches, int) else None,
    )
