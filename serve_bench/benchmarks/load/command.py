"""`serve-bench load URL`: drives any HTTP server; the engine that `micro` uses, by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import (
    UNSAMPLED,
    ChatOptions,
    LoadOnOptions,
    StreamOptions,
    TraceOptions,
)
from serve_bench.core.load_spec import ARRIVALS

if TYPE_CHECKING:
    from serve_bench.core.load_spec import Arrivals, Client, Load, Timing
    from serve_bench.core.request_spec import Headers

DEFAULT_DURATION_S = 10.0
DEFAULT_WARMUP_S = 0.5

#: A window's least length (Timing) bounds that of a load.
LEAST_DURATION_S = 0.01

#: With a count, the load ends with its last response; this only bounds a server that hangs.
LONGEST_COUNT_S = 24 * 3600.0


class LoadOptions(ChatOptions, LoadOnOptions, StreamOptions, TraceOptions):
    """The options of `load`."""

    command = "load"
    order = """url connections duration count rate arrivals stages ramp client processes
        max_connections allow_late spin method header body bodies paths headers draw openai
        model input_tokens output_tokens protocol events event_timeout keepalive timeout
        connect_timeout retries expect_status expect_body unix_socket insecure cacert warmup
        seed profile trace no_sample strict_host load_on load_nodes json slo out live"""

    url: str = argument("Address that is loaded, http:// or https://.", metavar="URL")
    connections: int = flag(10, "Connections, or clients with aiohttp.", "-c", "--connections")
    duration: str | None = flag(None, "Length of the load, as 10s or 2m [10s].", "-d", "--duration")
    count: int | None = flag(None, "Stop after so many requests; no warm-up.", "-n", "--requests")
    rate: float | None = flag(None, "Open loop: requests/s that are due.", "-r", "--rate")
    arrivals: str = flag("constant", "Open loop: constant or poisson arrivals.", takes=ARRIVALS)
    stages: str | None = flag(None, "Open loop in stages, such as 100:30s,500:30s.")
    ramp: bool = flag(False, "Move linearly from stage to stage.")
    client: str = flag("raw", "Client: raw, aiohttp or grpc.", takes=("raw", "aiohttp", "grpc"))
    processes: int | None = flag(None, "Number of worker processes [as the load needs].")
    max_connections: int | None = flag(None, "Open loop: largest number of connections.")
    allow_late: bool = flag(False, "Open loop: exit code 0 though connections were too few.")
    spin: bool = flag(False, "Open loop: wait by spinning; needs a spare core.")
    method: str | None = flag(None, "HTTP method [GET; POST with a body].", "-X", "--method")
    header: list[str] | None = flag(None, "Header of the requests; repeatable.", "-H", "--header")
    body: list[str] | None = flag(None, "Request body; repeatable: bodies in turn.", "-b", "--body")
    keepalive: bool = flag(True, "Reuse connections.", "--keepalive/--no-keepalive")
    timeout: str = flag("30s", "Longest time of a request.")
    connect_timeout: str = flag("5s", "Longest time to open a connection.")
    retries: int = flag(0, "Further attempts at a failed request.")
    expect_status: str | None = flag(None, "Status codes that are no failure [any 2xx].")
    expect_body: str | None = flag(None, "Body that every response must have.")
    unix_socket: str | None = flag(None, "Connect to the socket at this path.")
    insecure: bool = flag(False, "Do not verify the certificate.", "-k", "--insecure")
    cacert: str | None = flag(None, "File of certificates to trust.")
    warmup: str | None = flag(None, "Shortest warm-up [0.5s, at most a quarter of -d].")
    seed: int = flag(1, "Seed of random arrivals, bodies and paths.")
    profile: str | None = flag(None, "Repeat the load with py-spy on proxy, replica, controller.")
    json: bool = flag(False, "Print the records' figures as JSON.")


@command(LoadOptions)
def load(options: LoadOptions) -> int:
    """Load a URL and report what it served.

    Exit code 1 when more than 1 % failed or the rate was missed; with --slo, 3 when that is missed.

    Example: serve-bench load http://127.0.0.1:8000/noop -c 100 -d 10s
    """
    from serve_bench.observing.host import CpuWatch

    watch = None if options.no_sample else CpuWatch(0.2)  # others are seen in its windows, too
    from serve_bench.benchmarks.load.drive import run
    from serve_bench.cli.flag_values import in_flags
    from serve_bench.core.errors import BadInput
    from serve_bench.core.request_spec import SpecError
    from serve_bench.runner.load_source import read_load_on

    nodes = read_load_on(options.load_on, options.load_nodes)
    options.check_chat()
    variants = _variants(options)
    _check_together(options, variants)
    try:
        request = _load(options, variants)
        timing = _timing(request, options.duration, options.warmup)
    except SpecError as error:
        raise BadInput(in_flags(str(error))) from None
    _check_here(request)
    return run(request, timing, options, nodes, watch)


class Variants(NamedTuple):
    """What requests differ in."""

    bodies: tuple[bytes, ...]
    paths: tuple[str, ...]
    headers: tuple[Headers, ...]


def _variants(options: LoadOptions) -> Variants:
    from serve_bench.cli.flag_values import bodies_of, content_of, header_sets_of, paths_of
    from serve_bench.core.chat import PROMPTS

    bodies = tuple(content_of(text, "--body") for text in options.body or ())
    bodies += bodies_of(options.bodies)
    if options.openai and not bodies:
        most = PROMPTS if options.count is None else max(1, options.count)
        bodies = options.completions().bodies(most)
    return Variants(bodies, paths_of(options.paths), header_sets_of(options.headers))


def _check_together(options: LoadOptions, variants: Variants) -> None:
    """BadInput on flags that contradict each other: a flag without effect would go unnoticed."""
    from serve_bench.core.errors import BadInput

    count, stages, timed = options.count is not None, options.stages, options.duration is not None
    profiled, cacert = options.profile is not None, options.cacert is not None
    most = max(map(len, variants))
    for wrong, line in (
        (
            options.allow_late and not (options.rate or stages),
            "--allow-late: give --rate or --stages",
        ),
        (count and timed, "-n: give a number of requests or -d"),
        (count and stages is not None, "-n: give a number of requests or --stages"),
        (count and options.warmup is not None, "--warmup: a load with -n has none"),
        (timed and stages is not None, "-d: stages have durations of their own"),
        (
            options.arrivals == "poisson" and not (options.rate or stages),
            "--arrivals: give --rate or --stages",
        ),
        (
            options.draw == "random" and most < 2,
            "--draw: give two or more of --body, or --bodies, --paths or --headers with two or "
            "more lines",
        ),
        (cacert and options.insecure, "--cacert: has no use with --insecure"),
        (cacert and not options.url.startswith("https:"), "--cacert: is for https://"),
        (
            options.load_on and options.trace is not None,
            "--trace: the times of a load from nodes are of another clock",
        ),
        (options.load_on and profiled, "--profile: does not go with --load-on"),
        (options.strict_host and options.no_sample, UNSAMPLED),
        (
            options.unix_socket is not None and profiled,
            "--profile: does not go with --unix-socket, on which no Serve listens",
        ),
    ):
        if wrong:
            raise BadInput(line)


def _load(options: LoadOptions, variants: Variants) -> Load:
    from serve_bench.cli.flag_values import (
        content_of,
        draw_of,
        header_of,
        seconds_of,
        stages_of,
        statuses_of,
    )
    from serve_bench.core.chat import chat_url, check_bodies
    from serve_bench.core.load_spec import Load
    from serve_bench.core.plan import JSON
    from serve_bench.core.request_spec import Request
    from serve_bench.core.result import GRPC

    bodies = variants.bodies
    headers = tuple(header_of(text) for text in options.header or [])
    if options.openai and "content-type" not in (name.lower() for name, _ in headers):
        headers += JSON
    expected = options.expect_body
    usual = "POST" if bodies or options.protocols() & GRPC else "GET"
    request = Request(
        url=chat_url(options.url) if options.openai else options.url,
        method=(usual if options.method is None else options.method).upper(),
        headers=headers,
        body=bodies[0] if len(bodies) == 1 else b"",
        bodies=bodies if len(bodies) > 1 else (),
        paths=variants.paths,
        header_sets=variants.headers,
        draw=draw_of(options.draw),
        expect_status=statuses_of(options.expect_status),
        expect_body=None if expected is None else content_of(expected, "--expect-body"),
        unix_socket=options.unix_socket,
        verify_tls=not options.insecure,
        ca_file=options.cacert,
    )
    if options.openai:
        check_bodies(request)
    return Load(
        request,
        client=_client(options),
        connections=options.connections,
        processes=options.processes,
        timeout_s=seconds_of(options.timeout, "--timeout"),
        connect_timeout_s=seconds_of(options.connect_timeout, "--connect-timeout"),
        keepalive=options.keepalive,
        retries=options.retries,
        rate=options.rate,
        arrivals=cast("Arrivals", options.arrivals),  # checked there
        stages=stages_of(options.stages),
        ramp=options.ramp,
        count=options.count,
        max_connections=options.max_connections,
        seed=options.seed,
        spin=options.spin,
        streaming=options.streaming(),
    )


def _client(options: LoadOptions) -> Client:
    from serve_bench.core.errors import BadInput
    from serve_bench.core.result import GRPC, HANDLES

    if wrong := options.protocols() & HANDLES:
        raise BadInput(
            f"--protocol: {wrong.pop()}: calls an app that serve-bench launches: see run and micro"
        )
    if not options.protocols() & GRPC:
        if options.client == "grpc":
            raise BadInput("--client: grpc goes with --protocol grpc or grpc-stream")
        return cast("Client", options.client)  # checked where the load is made
    if options.client not in ("raw", "grpc"):
        raise BadInput(f"--client: {options.client} speaks no gRPC; leave it out")
    return "grpc"


def _check_here(load: Load) -> None:
    from serve_bench.cli.flag_values import check_client
    from serve_bench.core.errors import BadInput
    from serve_bench.load.connection import lacking_descriptors, tls_context
    from serve_bench.load.failures import LoadError
    from serve_bench.load.workers import enough_processes, usable_cores

    check_client(load)
    processes = enough_processes(load, usable_cores())
    lacking = lacking_descriptors(-(-load.connection_limit // processes))
    if lacking is not None:
        raise BadInput(f"--connections: {lacking}")
    if load.request.ca_file is not None:
        try:
            tls_context(load.request)
        except LoadError as error:
            raise BadInput(f"--cacert: {error.reason}") from None


def _timing(load: Load, duration: str | None, warmup: str | None) -> Timing:
    from serve_bench.cli.flag_values import seconds_of
    from serve_bench.core.errors import BadInput
    from serve_bench.core.load_spec import Timing

    if load.count is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_COUNT_S)
    total_s = sum(stage.duration_s for stage in load.stages) or (
        seconds_of(duration, "-d") if duration is not None else DEFAULT_DURATION_S
    )
    usual_s = DEFAULT_WARMUP_S if warmup is None else seconds_of(warmup, "--warmup", zero=True)
    # That of a short load is a quarter of what is measured.
    warmup_s = min(usual_s, total_s / 4) if warmup is None else usual_s
    if total_s < LEAST_DURATION_S:
        flag, length = ("--stages", f"{total_s:g}s") if load.stages else ("-d", duration)
        raise BadInput(f"{flag}: must last {1000 * LEAST_DURATION_S:g}ms or more, got {length}")
    windows = min(1000, max(10, round(total_s))) if total_s >= 0.1 else 1
    timing = Timing(warmup_s, 6 * usual_s, windows, total_s / windows)
    return timing.stretchable() if duration is None else replace(timing, stretched_s=total_s)
