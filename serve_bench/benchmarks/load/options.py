"""The options of `serve-bench load`, and the load that they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from serve_bench.cli.command import MISSING, argument, flag
from serve_bench.cli.options import RowOptions, format_flag
from serve_bench.cli.panels import Command
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Rate, Stages, Time
from serve_bench.core.load_spec import MAX_DURATION_S, MAX_TIMEOUT_S, Arrivals, Client, Load, Timing
from serve_bench.core.spec import Opt
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.report import COMPARED

DURATION_S: Final = 10.0
WARMUP_S: Final = 0.5

LONGEST_WARMUP: Final = 6
"""The longest warm-up over the shortest one."""

SHORTEST_S: Final = 0.01
"""A window's least length (Timing) bounds that of a load."""

LONGEST_COUNT_S: Final = 24 * 3600.0
"""With a count, the load ends with its last response; this only bounds a server that hangs."""

FILE: Final = "; a file of them is a --requests-file"
Length: TypeAlias = Annotated[Time, Meta(ge=SHORTEST_S, le=MAX_DURATION_S)]
WarmUp: TypeAlias = Annotated[Time, Meta(le=MAX_DURATION_S / LONGEST_WARMUP)]
TimeOut: TypeAlias = Annotated[Time, Meta(gt=0, le=MAX_TIMEOUT_S)]


class LoadOptions(RowOptions):
    """Load a URL and report what it served.

    Exit code 1 when more than 1 % failed or the rate was missed; with --slo, 3 when that is missed.

    Example: serve-bench load http://127.0.0.1:8000/noop -c 100 -d 10s
    """

    command = "load"
    order = """target connections duration count rate arrivals stages ramp client processes
        max_connections allow_late spin method header body bodies paths headers requests_file
        draw openai model input_tokens output_tokens protocol events event_timeout_s keepalive
        timeout_s connect_timeout_s retries honor_retry_after expect_status expect_body
        unix_socket insecure cacert warmup seed profile trace load_on load_nodes no_sample
        strict_host dry_run live slo out format trace_out"""

    target: str = argument(MISSING, "Address that is loaded, http:// or https://.", metavar="URL")
    connections: int = flag(10, "Connections, or clients with aiohttp.", "-c", "--connections")
    duration: Length | None = flag(None, "Length of the load [10s].", "-d", "--duration")
    count: Annotated[
        int | None,
        Opt("Stop after so many requests; no warm-up", None, ("-n", "--requests"), why=FILE),
    ] = None
    rate: Rate | None = flag(None, "Open loop: requests/s that are due.", "-r", "--rate")
    arrivals: Arrivals = flag("constant", "Open loop: constant or poisson arrivals.")
    stages: Stages = flag((), "Open loop in stages, such as 100:30s,500:30s.")
    ramp: bool = flag(False, "Move linearly from stage to stage.")
    client: Literal["raw", "aiohttp", "grpc"] = flag("raw", "Client: raw, aiohttp or grpc.")
    processes: int | None = flag(None, "Number of worker processes [as the load needs].")
    max_connections: int | None = flag(None, "Open loop: largest number of connections.")
    allow_late: bool = flag(False, "Open loop: exit code 0 though connections were too few.")
    spin: bool = flag(False, "Open loop: wait by spinning; needs a spare core.")
    keepalive: bool = flag(True, "Reuse connections.", "--keepalive/--no-keepalive")
    timeout_s: TimeOut = flag(30.0, "Longest time of a request.", "--timeout")
    connect_timeout_s: TimeOut = flag(
        5.0, "Longest time to open a connection.", "--connect-timeout"
    )
    retries: int = flag(0, "Further attempts at a failed request.")
    honor_retry_after: bool = flag(False, "Wait before a retry as long as Retry-After says.")
    expect_body: Annotated[str | None, Opt("Body that every response must have", empty=True)] = None
    unix_socket: str | None = flag(None, "Connect to the socket at this path.")
    insecure: bool = flag(False, "Do not verify the certificate.", "-k", "--insecure")
    cacert: str | None = flag(None, "File of certificates to trust.")
    warmup: WarmUp | None = flag(None, "Shortest warm-up [0.5s, at most a quarter of --duration].")
    seed: int = flag(1, "Seed of random arrivals, bodies and paths.")
    profile: str | None = flag(None, "Repeat the load with py-spy on proxy, replica, controller.")
    format: str = format_flag(*COMPARED)

    def check_together(self) -> None:
        """Raise BadInput on flags that contradict each other: one of them would have no effect."""
        open_loop, counted = self.rate or self.stages, self.count is not None
        socket = "--profile: does not go with --unix-socket, on which no Serve listens"
        for wrong, line in (
            (self.allow_late and not open_loop, "--allow-late: give --rate or --stages"),
            (counted and self.duration, "--requests: give a number of requests or --duration"),
            (counted and self.stages, "--requests: give a number of requests or --stages"),
            (counted and self.warmup is not None, "--warmup: a load with --requests has none"),
            (self.duration and self.stages, "--duration: stages have durations of their own"),
            (self.arrivals == "poisson" and not open_loop, "--arrivals: give --rate or --stages"),
            (self.cacert and self.insecure, "--cacert: has no use with --insecure"),
            (self.cacert and not self.target.startswith("https:"), "--cacert: is for https://"),
            (self.load_on and self.profile, "--profile: does not go with --load-on"),
            (self.unix_socket and self.profile, socket),
        ):
            if wrong:
                raise BadInput(line)

    def choose_client(self, protocol: str) -> Client:
        """Return the client for a protocol. Raises BadInput where it does not speak it."""
        if protocol in HANDLES:
            calls = "calls an app that serve-bench launches: see run and micro"
            raise BadInput(f"--protocol: {protocol}: {calls}")
        if protocol not in GRPC:
            if self.client == "grpc":
                raise BadInput("--client: grpc goes with --protocol grpc or grpc-stream")
            return self.client
        if self.client == "aiohttp":
            raise BadInput(f"--client: {self.client} speaks no gRPC; leave it out")
        return "grpc"

    def make_timing(self, load: Load) -> Timing:
        """Return warm-up, windows and length of the load. Raises BadInput."""
        if load.count is not None:
            return Timing(0.0, 0.0, windows=1, window_s=LONGEST_COUNT_S)
        total_s = sum(stage.duration_s for stage in load.stages)
        if load.stages and total_s < SHORTEST_S:
            least = f"{1000 * SHORTEST_S:g}ms"
            raise BadInput(f"--stages: must last {least} or more, got {total_s:g}s")
        total_s = total_s or self.duration or DURATION_S
        usual_s = WARMUP_S if self.warmup is None else self.warmup
        # A short load has a warm-up of a quarter of its length.
        warmup_s = min(usual_s, total_s / 4) if self.warmup is None else usual_s
        windows = min(1000, max(10, round(total_s))) if total_s >= 0.1 else 1
        timing = Timing(warmup_s, LONGEST_WARMUP * usual_s, windows, total_s / windows)
        if self.duration is None:
            return timing.stretchable()
        return replace(timing, stretched_s=total_s)


load = Command(LoadOptions, "benchmarks.load.command:load")
