"""`serve-bench load URL`: drives any HTTP server; the engine that `micro` uses, by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.load_spec import Load, Stage, Timing

DEFAULT_DURATION_S = 10.0
DEFAULT_WARMUP_S = 0.5

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
    draw: Annotated[str, typer.Option(help="Several bodies: cycle or random.")] = "cycle",
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
    seed: Annotated[int, typer.Option(help="Of random arrivals and bodies.")] = 1,
    hgrm: Annotated[
        Path | None, typer.Option(help="Write latencies as HdrHistogram percentile text (ms).")
    ] = None,
    no_sample: Annotated[
        bool, typer.Option("--no-sample", help="No CPU and memory beside the load.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the records' figures as JSON.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")] = None,
) -> int:
    """Load a URL and report what it served. Exit code 1 when no request succeeded.

    Example: serve-bench load http://127.0.0.1:8000/noop -c 100 -d 10s
    """
    from serve_bench.cli import drive
    from serve_bench.cli.show import check_target
    from serve_bench.errors import BadInput
    from serve_bench.load_spec import Load, Request, SpecError

    if count is not None and (duration is not None or stages is not None):
        raise BadInput("-n: give a number of requests or a duration, not both")
    if duration is not None and stages is not None:
        raise BadInput("-d: stages have durations of their own")
    if hgrm is not None:
        check_target(hgrm, "--hgrm")
    bodies = [_content(text, "--body") for text in body or []]
    try:
        request = Request(
            url=url,
            method=(method or ("POST" if bodies else "GET")).upper(),
            headers=tuple(_header(text) for text in header or []),
            body=bodies[0] if len(bodies) == 1 else b"",
            bodies=tuple(bodies) if len(bodies) > 1 else (),
            draw="random" if draw == "random" else _choice("--draw", draw, "cycle"),  # type: ignore[arg-type]
            expect_status=_statuses(expect_status),
            expect_body=None if expect_body is None else _content(expect_body, "--expect-body"),
            unix_socket=unix_socket,
            verify_tls=not insecure,
            ca_file=cacert,
        )
        asked = Load(
            request,
            client=client,  # type: ignore[arg-type]  # checked there
            connections=connections,
            processes=processes,
            timeout_s=_seconds(timeout, "--timeout"),
            connect_timeout_s=_seconds(connect_timeout, "--connect-timeout"),
            keepalive=keepalive,
            retries=retries,
            rate=rate,
            arrivals=arrivals,  # type: ignore[arg-type]  # checked there
            stages=_stages(stages),
            ramp=ramp,
            count=count,
            max_connections=max_connections,
            seed=seed,
            spin=spin,
        )
        timing = _timing(asked, duration, warmup)
    except SpecError as error:
        raise BadInput(str(error)) from None
    return drive.run(asked, timing, out=out, hgrm=hgrm, as_json=json, sample=not no_sample)


def _timing(asked: Load, duration: str | None, warmup: str | None) -> Timing:
    """Windows of a second, or ten of them in a shorter load."""
    from serve_bench.load_spec import Timing

    if asked.count is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_COUNT_S)
    total_s = sum(stage.duration_s for stage in asked.stages) or (
        _seconds(duration, "-d") if duration is not None else DEFAULT_DURATION_S
    )
    warmup_s = _seconds(warmup, "--warmup", zero=True) if warmup is not None else DEFAULT_WARMUP_S
    windows = min(1000, max(10, round(total_s))) if total_s >= 0.1 else 1
    return Timing(warmup_s, max(warmup_s, 6 * warmup_s), windows, total_s / windows)


def _seconds(text: str, flag: str, zero: bool = False) -> float:
    from serve_bench.errors import BadInput

    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?", text.strip())
    seconds = float(match[1]) * {"ms": 1e-3, "m": 60, "h": 3600}.get(match[2], 1) if match else -1
    if seconds < 0 or (seconds == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise BadInput(
            f"{flag}: {text!r} is not allowed; it takes a time {least}, such as 500ms, 10s or 2m"
        )
    return seconds


def _stages(text: str | None) -> tuple[Stage, ...]:
    from serve_bench.errors import BadInput
    from serve_bench.load_spec import Stage

    found = []
    for part in text.split(",") if text is not None else ():
        rate, colon, duration = part.partition(":")
        try:
            number = float(rate)
        except ValueError:
            number, colon = 0.0, ""
        if not colon:
            raise BadInput(f"--stages: {part!r} is not allowed; it takes RATE:DURATION, as 100:30s")
        found.append(Stage(number, _seconds(duration, "--stages")))
    return tuple(found)


def _content(text: str, flag: str) -> bytes:
    from serve_bench.errors import BadInput

    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise BadInput(f"{flag}: {text[1:]} cannot be read: {reason}") from None


def _header(text: str) -> tuple[str, str]:
    from serve_bench.errors import BadInput

    name, colon, value = text.partition(":")
    if not colon:
        raise BadInput(f"--header: {text!r} is not allowed; it takes 'Name: value'")
    return name.strip(), value.strip()


def _statuses(text: str | None) -> tuple[int, ...]:
    from serve_bench.errors import BadInput

    parts = text.split(",") if text is not None else []
    if not all(part.strip().isdigit() for part in parts):
        raise BadInput(f"--expect-status: {text!r} is not allowed; it takes numbers, as 200,204")
    return tuple(int(part) for part in parts)


def _choice(flag: str, value: str, allowed: str) -> str:
    from serve_bench.errors import BadInput

    if value != allowed:
        raise BadInput(f"{flag}: {value!r} is not allowed; it takes cycle or random")
    return value
