"""The options of `serve-bench run` and `serve-bench trace`."""

from __future__ import annotations

from serve_bench.cli.command import Command, argument, flag
from serve_bench.cli.options import REQUEST, RUN, RUN_HERE, OwnAppOptions, RowOptions, StreamOptions
from serve_bench.spec.forms import TracedShare


class OwnRunOptions(RowOptions, OwnAppOptions, StreamOptions):
    """Measure your own Serve app, and find its limit.

    A cell for each combination of its options; each is loaded by every row of --clients.

    Example: serve-bench run examples/own_app/shop.py:app --route /best
    """

    command = "run"
    order = f"""target arguments option arg app_name {REQUEST} openai model input_tokens
        output_tokens protocol grpc_servicer call events event_timeout clients windows
        window_seconds launches quick variant env out resume profile trace {RUN} slo format
        perf_metrics trace_out"""

    target: str | None = argument(
        "App: module:app, path/file.py:app, config.yaml, or a suite (.toml).", None, "[TARGET]"
    )

    def of_file(self) -> bool:
        return str(self.target).endswith(".toml")


run = Command(OwnRunOptions, "benchmarks.own_app.command:run")


class TraceRunOptions(OwnRunOptions):
    """Show where the time of requests goes, hop by hop.

    One load of an app; the hops of a traced request add up to its latency.

    Example: serve-bench trace examples/own_app/shop.py:app --route /best
    """

    command = "trace"
    order = f"""target arguments option arg app_name {REQUEST} clients windows window_seconds quick
        variant env out resume trace {RUN_HERE} slo format trace_out"""

    target: str | None = argument(
        "App: noop, module:app, path/file.py:app, or config.yaml of Serve.", None, "[TARGET]"
    )
    clients: str | None = flag("raw:100", "Row: raw:N connections.", metavar="ROW[,ROW...]")
    trace: TracedShare | None = flag(0.01)


trace = Command(TraceRunOptions, "benchmarks.own_app.command:trace")
