"""`serve-bench press`: a scoring service under 1 to 3,000 clients, each with so many requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.axes import Value
    from serve_bench.core.ladder import Ladder
    from serve_bench.core.suite import Overrides
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.cli.show import Shown

#: Flags that go with --resume, and those that go with --url.
LATER_TOO = (
    *("resume", "format", "published", "perf_metrics", "dry_run", "no_sample", "serve_metrics"),
    *("log_requests", "exclude_connect"),
)
WITH_URL = (
    *(
        "url",
        "header",
        "clients",
        "requests_per_client",
        "samples",
        "timeout_ms",
        "max_row_seconds",
    ),
    *("log_requests", "exclude_connect", "quick", "out", "format", "published", "perf_metrics"),
    *("no_sample", "load_on", "load_nodes"),
)

#: Flags that make a product, and those that hold in every cell, by the axis that each sets.
MATRIX = {
    "log_level": "log_level",
    "device": "device",
    "callable": "callable",
    "ranker": "ranker",
    "num_replicas": "num_replicas",
    "max_concurrent_queries": "max_concurrent_queries",
    "max_queued_requests": "max_queued_requests",
    "max_batch_size": "max_batch_size",
}
SETTINGS = ("batch_wait_timeout_s", "threads", "table_rows", "gpu_fraction")

QUICK_CLIENTS = "1,10,20,50,100,200"


def press(
    clients: Annotated[
        str | None, typer.Option(help="Numbers with commas, published, or auto [published: 1-3000]")
    ] = None,
    requests_per_client: Annotated[
        int | None, typer.Option(help="Requests that each client makes in a row [100].")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Samples of a request, two strings each [15].")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="DEBUG, INFO, WARNING, ERROR; one or more [INFO].")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Of the model: auto, cpu, cuda; one or more [auto].")
    ] = None,
    variant: options.Variants = None,
    callable: Annotated[
        str | None, typer.Option(help="The handler: async, sync, fastapi-def; one or more [async].")
    ] = None,
    app: Annotated[
        str | None, typer.Option(help="ranker (DLRM), or noop: reads the request alone [ranker].")
    ] = None,
    timeout_ms: Annotated[float | None, typer.Option(help="Of a request [200000].")] = None,
    max_row_seconds: Annotated[
        float | None, typer.Option(help="A row that runs longer is cut off [60].")
    ] = None,
    num_replicas: Annotated[
        str | None, typer.Option(help="One or more, with commas [half the cores].")
    ] = None,
    max_concurrent_queries: options.Concurrency = None,
    max_queued_requests: Annotated[
        str | None, typer.Option(help="Waiting for a replica; more get a 503 [-1: no limit].")
    ] = None,
    ranker: options.Ranker = None,
    max_batch_size: options.Axis = None,
    batch_wait_timeout_s: options.BatchWait = None,
    threads: options.Threads = None,
    table_rows: Annotated[
        str | None, typer.Option(help="Rows of each table of the model [1000].")
    ] = None,
    gpu_fraction: options.GpuFraction = None,
    launches: options.Launches = None,
    env: options.Env = None,
    url: options.Urls = None,
    header: options.Headers = None,
    quick: Annotated[bool, typer.Option("--quick", help="1 to 200 clients.")] = False,
    log_requests: Annotated[
        Path | None, typer.Option(help="CSV of every request: client, start, latency, status.")
    ] = None,
    exclude_connect: Annotated[
        bool, typer.Option("--exclude-connect", help="Also totals without opening connections.")
    ] = False,
    suite: options.Suite = "press",
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
    """Press a scoring service: requests/s from 1 to 3,000 clients, knee, collapse, cost of logging.

    Example: serve-bench press --quick --log-level DEBUG,ERROR --published
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.flags import asked
    from serve_bench.cli.show import Shown, check_target
    from serve_bench.core.errors import BadInput

    shown = Shown(format, published, perf_metrics, exclude_connect)
    shown.check()
    if header and not url:
        raise BadInput("-H: is for --url")
    if log_requests is not None:
        check_target(log_requests, "--log-requests")
        if load_on is not None:
            raise BadInput("--log-requests: needs the load of this host; not with --load-on")
        if log_requests.exists():
            raise BadInput(f"--log-requests: {log_requests} exists already; it takes a new file")
    if url:
        wrong = asked(given, "press", but=WITH_URL)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        return press_urls(given, shown)

    def anew() -> measure.Sitting:
        named = "press_noop" if app == "noop" and suite == "press" else suite
        sitting = measure.fresh("press", named, _overrides(given), out)
        return measure.loading_on(sitting, load_on, load_nodes)

    if resume is not None:
        sitting = measure.resumed("press", resume, asked(given, "press", but=LATER_TOO), anew)
    else:
        sitting = anew()
        if sitting.suite.app.bodies is None or sitting.suite.requests_per_client is None:
            raise BadInput(
                f'--suite: {suite} needs app = "press" or "press_noop", and requests_per_client '
                "and users in its [load]"
            )
    check_reach(sitting.suite.ladder, "--clients")
    sitting = measure.looking_inside(sitting, None, no_sample, serve_metrics)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, shown, log_requests=log_requests)


def check_reach(ladder: Ladder | None, flag: str) -> None:
    """BadInput when this host has too few ports or open files for the most clients of a ladder."""
    from serve_bench.core.errors import BadInput
    from serve_bench.load.connection import lacking_descriptors, lacking_ports

    assert ladder is not None, "a press test climbs a ladder"
    most = max(ladder.steps or (ladder.ceiling,))
    lacking = lacking_descriptors(most) or lacking_ports(most)
    if lacking is not None:
        raise BadInput(f"{flag}: {lacking}")


def ladder_of(clients: object, quick: bool) -> Ladder | None:
    """What --clients and --quick say; None: as in the suite. BadInput."""
    from serve_bench.core.errors import BadInput
    from serve_bench.core.ladder import PRESS, parse_ladder

    if clients is None and not quick:
        return None
    if clients is not None and quick:
        raise BadInput(f"--quick: stands for --clients {QUICK_CLIENTS}; give one of the two")
    text = str(clients) if clients is not None else QUICK_CLIENTS
    return parse_ladder(text, "--clients", ceiling=max(PRESS), published=PRESS)


def check_numbers(given: dict[str, object]) -> None:
    """BadInput on a number of clients' requests, seconds or milliseconds that makes no sense."""
    from serve_bench.cli.flags import MOST_LAUNCHES, check_number
    from serve_bench.core.load_spec import MAX_TIMEOUT_S
    from serve_bench.serving.apps.press_samples import MOST_SAMPLES

    check_number("--requests-per-client", given["requests_per_client"], 1)
    check_number("--samples", given["samples"], 1, MOST_SAMPLES)
    check_number("--max-row-seconds", given["max_row_seconds"], 0.5, 86_400)
    check_number("--timeout-ms", given["timeout_ms"], 1, MAX_TIMEOUT_S * 1000)
    check_number("--launches", given["launches"], 1, MOST_LAUNCHES)


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import flags
    from serve_bench.core.axes import parse_env
    from serve_bench.core.errors import BadInput
    from serve_bench.core.suite import Overrides
    from serve_bench.load.workers import usable_cores

    if given["app"] not in (None, "ranker", "noop"):
        raise BadInput(f"--app: {given['app']!r} is not allowed; it takes ranker or noop")
    if given["app"] is not None and given["suite"] != "press":
        raise BadInput("--app: a suite names its app; it goes with the shipped suite press")
    check_numbers(given)
    if given["log_level"] is not None:
        given = {**given, "log_level": str(given["log_level"]).upper()}
    matrix: dict[str, tuple[Value, ...]] = {
        axis: flags.values(axis, given[name])
        for name, axis in MATRIX.items()
        if given[name] is not None
    }
    settings = flags.settings(given, SETTINGS)
    if given["samples"] is not None:
        settings["rows_per_request"] = int(str(given["samples"]))
    if given["suite"] == "press" and "num_replicas" not in matrix:
        settings["num_replicas"] = max(1, usable_cores() // 2)
    launches, env = given["launches"], given["env"]
    each, timeout_ms = given["requests_per_client"], given["timeout_ms"]
    return Overrides(
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        matrix=matrix,
        settings=settings,
        ladder=ladder_of(given["clients"], bool(given["quick"])),
        launches=launches if isinstance(launches, int) else None,
        requests_per_client=each if isinstance(each, int) else None,
        max_row_s=_seconds(given["max_row_seconds"]),
        timeout_s=None if timeout_ms is None else float(str(timeout_ms)) / 1000.0,
    )


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


# --------------------------------------------------------------------------------------------------
# What `press --url` does with what its flags say: the same requests to a service of one's own.
#
# The service takes the same request as ours: POST, JSON, so many samples of two strings each
# (docs/press.md shows one). Any answer with status 200 counts.

SAMPLES, EACH, MAX_ROW_S, TIMEOUT_MS = 15, 100, 60.0, 200_000.0


def press_urls(given: dict[str, object], shown: Shown) -> int:
    """Presses services that are there already. Returns the exit code."""
    from serve_bench.cli.ladders import UrlWish, run_urls, services_of
    from serve_bench.core.app_spec import bodies
    from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, Ladder
    from serve_bench.core.plan import JSON, row_timing
    from serve_bench.runner.load_place import read_load_on

    check_numbers(given)
    ladder = ladder_of(given["clients"], bool(given["quick"])) or Ladder(steps=PRESS)
    check_reach(ladder, "--clients")
    urls, headers = _texts(given["url"]), _texts(given["header"])
    samples = int(_number(given["samples"], SAMPLES))
    asked = bodies({"rows_per_request": samples, "sparse_features": 2})
    services = tuple(
        replace(
            one,
            request=replace(
                one.request, method="POST", headers=(*JSON, *one.request.headers), bodies=asked
            ),
        )
        for one in services_of(urls, headers, users=False)
    )
    out, log, place = given["out"], given["log_requests"], given["load_on"]
    wish = UrlWish(
        command="press",
        services=services,
        ladder=replace(ladder, runs=COLLAPSE_RUNS),
        timing=row_timing(_number(given["max_row_seconds"], MAX_ROW_S)),
        out=out if isinstance(out, Path) else None,
        sample=not given["no_sample"],
        each=int(_number(given["requests_per_client"], EACH)),
        timeout_s=_number(given["timeout_ms"], TIMEOUT_MS) / 1000.0,
        log_requests=log if isinstance(log, Path) else None,
        load_on=read_load_on(None if place is None else str(place), _whole(given["load_nodes"])),
    )
    return run_urls(wish, shown)


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
