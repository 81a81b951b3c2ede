"""`serve-bench load URL`: drives any HTTP server; the engine that `micro` uses, by itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.load_spec import Load, Timing

DEFAULT_DURATION_S = 10.0
DEFAULT_WARMUP_S = 0.5

#: A window's least length (Timing) bounds that of a load.
LEAST_DURATION_S = 0.01

#: With a count, the load ends with its last response; this only bounds a server that hangs.
LONGEST_COUNT_S = 24 * 3600.0


def load(
    url: Annotated[str, typer.Argument(help="http:// or https://")],
    connections: Annotated[
        int, typer.Option("-c", "--connections", help="Connections; with aiohttp: clients.")
    ] = 10,
    duration: Annotated[
        str | None, typer.Option("-d", "--duration", help="How long, such as 10s, 2m, 0.5 [10s].")
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--requests", help="Stop after so many requests instead.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("-r", "--rate", help="Open loop: so many requests/s are due.")
    ] = None,
    arrivals: Annotated[
        str, typer.Option(help="Open loop: constant or poisson distances.")
    ] = "constant",
    stages: Annotated[
        str | None, typer.Option(help="Open loop in stages: RATE:DURATION,... as 100:30s,500:30s.")
    ] = None,
    ramp: Annotated[
        bool, typer.Option("--ramp", help="Move linearly from stage to stage.")
    ] = False,
    client: Annotated[str, typer.Option(help="raw, aiohttp, wrk or ab (real programs).")] = "raw",
    processes: Annotated[
        int | None, typer.Option(help="Worker processes [as many as the load needs].")
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Open loop: connections may grow up to this.")
    ] = None,
    spin: Annotated[
        bool, typer.Option("--spin", help="Open loop: wait by spinning; needs a spare core.")
    ] = False,
    method: Annotated[
        str | None, typer.Option("-X", "--method", help="GET; POST when there is a body.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="'Name: value'; repeatable.")
    ] = None,
    body: Annotated[
        list[str] | None,
        typer.Option("-b", "--body", help="Text, or @FILE; repeated: bodies used in turn."),
    ] = None,
    paths: options.Paths = None,
    headers: options.HeaderSets = None,
    draw: options.Draw = None,
    keepalive: Annotated[
        bool, typer.Option("--keepalive/--no-keepalive", help="Reuse connections.")
    ] = True,
    timeout: Annotated[str, typer.Option(help="For one request.")] = "30s",
    connect_timeout: Annotated[str, typer.Option(help="For one connection.")] = "5s",
    retries: Annotated[int, typer.Option(help="Further attempts at a failed request.")] = 0,
    expect_status: Annotated[
        str | None, typer.Option(help="Statuses that are right, with commas [any 2xx].")
    ] = None,
    expect_body: Annotated[
        str | None, typer.Option(help="Text, or @FILE, that every response must be.")
    ] = None,
    unix_socket: Annotated[str | None, typer.Option(help="Connect to this path.")] = None,
    insecure: Annotated[
        bool, typer.Option("-k", "--insecure", help="Do not verify the certificate.")
    ] = False,
    cacert: Annotated[str | None, typer.Option(help="Certificates to trust.")] = None,
    warmup: Annotated[
        str | None, typer.Option(help="At least so long before the first window [0.5s].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random arrivals, bodies and paths.")] = 1,
    hgrm: Annotated[
        Path | None, typer.Option(help="Write latencies as HdrHistogram percentile text (ms).")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Then once more with py-spy on the Serve's proxy, replica, controller."),
    ] = None,
    no_sample: Annotated[
        bool, typer.Option("--no-sample", help="No CPU and memory beside the load.")
    ] = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the records' figures as JSON.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")] = None,
) -> int:
    """Load a URL and report what it served. Exit code 1 when no request succeeded.

    Example: serve-bench load http://127.0.0.1:8000/noop -c 100 -d 10s
    """
    from serve_bench.cli import drive
    from serve_bench.cli.flags import (
        content_of,
        draw_of,
        header_of,
        header_sets_of,
        in_flags,
        paths_of,
        seconds_of,
        stages_of,
        statuses_of,
    )
    from serve_bench.cli.show import check_target
    from serve_bench.core.errors import BadInput
    from serve_bench.core.load_spec import Load
    from serve_bench.core.request_spec import Request, SpecError
    from serve_bench.runner.load_place import read_load_on

    nodes = read_load_on(load_on, load_nodes)
    targets, varied = paths_of(paths), header_sets_of(headers)
    _check_together(
        (count is not None and duration is not None, "-n: give a number of requests or -d"),
        (count is not None and stages is not None, "-n: give a number of requests or --stages"),
        (count is not None and warmup is not None, "--warmup: a load with -n has none"),
        (duration is not None and stages is not None, "-d: stages have durations of their own"),
        (arrivals == "poisson" and not (rate or stages), "--arrivals: give --rate or --stages"),
        (
            draw == "random" and max(len(body or ()), len(targets), len(varied)) < 2,
            "--draw: give two or more of --body, or --paths or --headers with two or more lines",
        ),
        (cacert is not None and insecure, "--cacert: has no use with --insecure"),
        (cacert is not None and not url.startswith("https:"), "--cacert: is for https://"),
        (client in ("wrk", "ab") and hgrm is not None, f"--hgrm: {client} tells no histogram"),
        (client in ("wrk", "ab") and warmup is not None, f"--warmup: {client} has none"),
        (
            nodes is not None and client in ("wrk", "ab"),
            f"--load-on: nodes load with raw or aiohttp, not {client} (see scale --client wrk)",
        ),
        (nodes is not None and profile is not None, "--profile: does not go with --load-on"),
        (
            unix_socket is not None and profile is not None,
            "--profile: does not go with --unix-socket, on which no Serve listens",
        ),
    )
    if hgrm is not None:
        check_target(hgrm, "--hgrm")
    bodies = [content_of(text, "--body") for text in body or []]
    try:
        request = Request(
            url=url,
            method=("POST" if bodies else "GET") if method is None else method.upper(),
            headers=tuple(header_of(text) for text in header or []),
            body=bodies[0] if len(bodies) == 1 else b"",
            bodies=tuple(bodies) if len(bodies) > 1 else (),
            paths=targets,
            header_sets=varied,
            draw=draw_of(draw),
            expect_status=statuses_of(expect_status),
            expect_body=None if expect_body is None else content_of(expect_body, "--expect-body"),
            unix_socket=unix_socket,
            verify_tls=not insecure,
            ca_file=cacert,
        )
        asked = Load(
            request,
            client=client,  # type: ignore[arg-type]  # checked there
            connections=connections,
            processes=processes,
            timeout_s=seconds_of(timeout, "--timeout"),
            connect_timeout_s=seconds_of(connect_timeout, "--connect-timeout"),
            keepalive=keepalive,
            retries=retries,
            rate=rate,
            arrivals=arrivals,  # type: ignore[arg-type]  # checked there
            stages=stages_of(stages),
            ramp=ramp,
            count=count,
            max_connections=max_connections,
            seed=seed,
            spin=spin,
        )
        timing = _timing(asked, duration, warmup)
    except SpecError as error:
        raise BadInput(in_flags(str(error))) from None
    _check_here(asked, timing)
    if profile is None:
        return drive.run(
            asked, timing, out=out, hgrm=hgrm, as_json=json, sample=not no_sample, load_on=nodes
        )
    from serve_bench.cli import drive as load_profile

    chosen = load_profile.processes_behind(asked.request.url, profile)
    place = load_profile.folder_of(out)
    code = drive.run(asked, timing, out=place, hgrm=hgrm, as_json=json, sample=not no_sample)
    return code or load_profile.repeat(asked, timing, place, chosen, json)


def _check_together(*wrong: tuple[bool, str]) -> None:
    """Flags that contradict each other: a flag without effect would go unnoticed."""
    from serve_bench.core.errors import BadInput

    for found, line in wrong:
        if found:
            raise BadInput(line)


def _check_here(asked: Load, timing: Timing) -> None:
    """What this machine lacks for the load is found before anything is started. BadInput."""
    from serve_bench.core.errors import BadInput
    from serve_bench.load.connection import lacking_descriptors, tls_context
    from serve_bench.load.external import ExternalError, program_path
    from serve_bench.load.failures import LoadError
    from serve_bench.load.workers import enough_processes, usable_cores

    if asked.client in ("wrk", "ab"):
        try:
            program_path(asked.client)
        except ExternalError as error:
            raise BadInput(f"--client: {error}") from None
        if asked.count is None and not math.isclose(timing.measured_s, round(timing.measured_s)):
            raise BadInput(f"-d: {asked.client} takes whole seconds, got {timing.measured_s:g}s")
        return
    processes = enough_processes(asked, usable_cores())
    lacking = lacking_descriptors(-(-asked.connection_limit // processes))
    if lacking is not None:
        raise BadInput(f"--connections: {lacking}")
    if asked.request.ca_file is not None:
        try:
            tls_context(asked.request)
        except LoadError as error:
            raise BadInput(f"--cacert: {error.reason}") from None


def _timing(asked: Load, duration: str | None, warmup: str | None) -> Timing:
    """Windows of a second, or ten of them in a shorter load."""
    from serve_bench.cli.flags import seconds_of
    from serve_bench.core.errors import BadInput
    from serve_bench.core.load_spec import Timing

    if asked.count is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_COUNT_S)
    total_s = sum(stage.duration_s for stage in asked.stages) or (
        seconds_of(duration, "-d") if duration is not None else DEFAULT_DURATION_S
    )
    warmup_s = seconds_of(warmup, "--warmup", zero=True) if warmup is not None else DEFAULT_WARMUP_S
    if total_s < LEAST_DURATION_S:
        flag, asked_s = ("--stages", f"{total_s:g}s") if asked.stages else ("-d", duration)
        raise BadInput(f"{flag}: must last {1000 * LEAST_DURATION_S:g}ms or more, got {asked_s}")
    windows = min(1000, max(10, round(total_s))) if total_s >= 0.1 else 1
    return Timing(warmup_s, max(warmup_s, 6 * warmup_s), windows, total_s / windows)
