"""`serve-bench recsys`: ingress and ranker, a ladder of users for each number of rankers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.ladder import Ladder
    from serve_bench.load_spec import Timing
    from serve_bench.suite import Overrides
    from serve_bench.url_runner import Service

#: --quick: steps of 3 s, and no refinement around the best.
QUICK_DURATION_S = 3.0
DURATION_S = 20.0
WARMUP_MIN_S, WARMUP_MAX_S = 1.0, 5.0

#: Flags that go with --resume, and those that go with --url.
LATER_TOO = ("resume", "format", "published", "perf_metrics", "dry_run", "no_sample")
WITH_URL = (
    *("url", "header", "users", "duration", "quick", "out"),
    *("format", "published", "perf_metrics", "no_sample"),
)


def recsys(
    ranker_replicas: Annotated[
        str | None, typer.Option(help="Ranker replicas, with commas; 2 ingress each [1,2,4].")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Ways to start Serve, with commas [default,optimized].")
    ] = None,
    ranker: Annotated[str | None, typer.Option(help="plain, tuned or both [plain].")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [auto].")] = None,
    users: Annotated[
        str | None, typer.Option(help="auto, published, or numbers with commas [auto].")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of each step [20].")] = None,
    threads: Annotated[
        str | None, typer.Option(help="Of torch in each ranker, on a CPU [1].")
    ] = None,
    gpu_fraction: Annotated[
        str | None, typer.Option(help="Of a GPU for each ranker replica [1].")
    ] = None,
    table_rows: Annotated[
        str | None, typer.Option(help="Rows of each of the 26 tables [100000].")
    ] = None,
    max_batch_size: Annotated[
        str | None, typer.Option(help="Requests that a ranker scores at once [100].")
    ] = None,
    launches: Annotated[
        int | None, typer.Option(help="Fresh clusters of each variant, each all ladders [1].")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for every variant; repeatable.")
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
    ] = "recsys",
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
    published: Annotated[
        bool, typer.Option("--published", help="Set the published tables beside.")
    ] = False,
    perf_metrics: Annotated[
        Path | None, typer.Option(help="Write the perf_metrics JSON of Ray's release tooling here.")
    ] = None,
) -> int:
    """Measure ingress and DLRM ranker: a ladder of users for each variant and number of rankers.

    Example: serve-bench recsys --quick --published
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.matrix_flags import asked
    from serve_bench.cli.show import check_format
    from serve_bench.errors import BadInput

    check_format(format)
    if header and not url:
        raise BadInput("-H: is for --url")
    if url:
        wrong = asked(given, "recsys", but=WITH_URL)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        services = tuple(_service(text, header or []) for text in url)
        _no_twins([service.name for service in services])
        from serve_bench.cli.recsys_url import UrlWish, run

        ladder = _ladder(users, quick) or _ladder("auto", quick)
        assert ladder is not None
        usual_s = QUICK_DURATION_S if quick else DURATION_S
        timing = _timing(usual_s if duration is None else duration)
        wish = UrlWish(services, ladder, timing, out, not no_sample)
        return run(wish, format, published=published, perf_metrics=perf_metrics)
    if resume is not None:
        sitting = measure.resumed(resume, asked(given, "recsys", but=LATER_TOO))
    else:
        sitting = measure.fresh("recsys", suite, _overrides(given), out)
    sitting = measure.looking_inside(sitting, None, no_sample, False)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, format, published=published, perf_metrics=perf_metrics)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.axes import Value
    from serve_bench.cli import matrix_flags as flags
    from serve_bench.suite import Overrides
    from serve_bench.variants import parse_env

    matrix: dict[str, tuple[Value, ...]] = {}
    if given["ranker"] is not None:
        matrix["ranker"] = flags.values("ranker", given["ranker"])
    if given["ranker_replicas"] is not None:
        matrix["num_replicas"] = flags.values(
            "num_replicas", given["ranker_replicas"], "--ranker-replicas"
        )
    flags.check_number("--launches", given["launches"], 1)
    duration, launches, env = given["duration"], given["launches"], given["env"]
    quick, users = bool(given["quick"]), given["users"]
    if quick and duration is None:
        duration = QUICK_DURATION_S
    timing = _timing(duration) if isinstance(duration, float | int) else None
    return Overrides(
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        matrix=matrix,
        settings=flags.settings(given, ("max_batch_size", *flags.MODEL_SETTINGS)),
        ladder=_ladder(None if users is None else str(users), quick),
        windows=None if timing is None else timing.windows,
        window_s=None if timing is None else timing.window_s,
        launches=launches if isinstance(launches, int) else None,
    )


def _ladder(users: str | None, quick: bool) -> Ladder | None:
    """What --users and --quick say of the ladder; None: as in the suite."""
    from dataclasses import replace

    from serve_bench.ladder import parse_ladder

    if users is None and not quick:
        return None
    ladder = parse_ladder(users or "auto", "--users")
    return replace(ladder, refinements=0) if quick else ladder


def _timing(duration: float) -> Timing:
    """Windows of about a second; at least three, or no spread could be told."""
    from serve_bench.cli.matrix_flags import check_number
    from serve_bench.load_spec import Timing

    check_number("--duration", duration, 0.5, 86_400)
    windows = max(3, round(duration))
    return Timing(WARMUP_MIN_S, WARMUP_MAX_S, windows, duration / windows)


def _service(text: str, headers: list[str]) -> Service:
    """`NAME=URL` as a service whose users are asked for in turn. BadInput."""
    from urllib.parse import urlsplit

    from serve_bench.app_spec import USERS
    from serve_bench.cli.load_flags import header_of
    from serve_bench.errors import BadInput
    from serve_bench.request_spec import Request, SpecError
    from serve_bench.url_runner import Service

    name, equals, url = text.partition("=")
    if not equals or not name.strip() or "://" in name:
        raise BadInput(f"--url: {text!r} is not allowed; it takes NAME=URL")
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise BadInput(f"--url: {url!r} is not allowed; ?user_id=... is added to it")
    try:
        request = Request(
            url=url,
            headers=tuple(header_of(one) for one in headers),
            expect_status=(200,),
            paths=tuple(f"{parts.path or '/'}?user_id={user}" for user in USERS),
        )
    except SpecError as error:
        raise BadInput(f"--url: {error}") from None
    return Service(name.strip(), request)


def _no_twins(names: list[str]) -> None:
    from serve_bench.errors import BadInput

    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--url: the name {name} is given twice")
