"""The options of `serve-bench micro` and `serve-bench noop`."""

from __future__ import annotations

from serve_bench.cli.command import flag
from serve_bench.cli.options import MATRIX, MODEL, RUN, RowOptions, SloOptions
from serve_bench.cli.panels import Command


class MicroOptions(RowOptions):
    """Measure an app over batch size, concurrency and replicas.

    The axes are max_batch_size, max_ongoing_requests and num_replicas.

    Without axes: the six published cells. Every row says its client.

    Example: serve-bench micro --variant default,optimized --quick
    """

    command = "micro"
    order = f"""app {MATRIX} {MODEL} body_type intermediate_handle data_size timeout_s clients
        windows window_seconds launches quick variant env suite out resume profile trace {RUN} slo
        format published perf_metrics trace_out"""

    suite: str = flag("micro")
    app: str | None = flag(None, "App: noop, ranker (a DLRM) or recsys [noop].")


micro = Command(MicroOptions, "benchmarks.micro.command:MicroRun.measure")


class NoopOptions(SloOptions):
    """Deploy the no-op app, and print how to load it.

    It is served at /noop. The warm-up queries are sent, and their latency is printed.

    Example: serve-bench noop --blocking --num-replicas 8 --variant optimized
    """

    command = "noop"
    order = """blocking num_replicas num_queries max_ongoing_requests max_batch_size
        batch_wait_timeout_s body_type intermediate_handle host port variant env profile trace
        no_sample serve_metrics load_on load_nodes out slo"""

    blocking: bool = flag(False, "Stay up until Ctrl-C or SIGTERM.")
    num_queries: int = flag(500, "Sequential warm-up queries.", takes=(1, 10_000_000))
    host: str = flag("127.0.0.1", "Address to listen on.")
    port: int = flag(8000, "HTTP port; 0 for any free one.")
    env: list[str] | None = flag(None, "Variable of the environment of the variant; repeatable.")
    profile: str | None = flag(None, "Repeat the warm-up with py-spy: proxy, replica, controller.")
    trace: bool = flag(False, "Mark the requests that load --trace chooses.")


noop = Command(NoopOptions, "benchmarks.micro.command:noop")
