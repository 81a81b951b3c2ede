"""`serve-bench load URL`: drives any HTTP server; the engine that `micro` uses, by itself."""

from __future__ import annotations

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import ChatOptions, LoadOnOptions, StreamOptions, TraceOptions
from serve_bench.core.load_spec import ARRIVALS


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

    return run(options, watch)
