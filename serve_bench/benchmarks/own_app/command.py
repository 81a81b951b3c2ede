"""`serve-bench run`: the matrix over a Serve app of one's own; `trace`: where the time of its
requests goes."""

from __future__ import annotations

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, RUN, RUN_HERE, OwnAppOptions, RowOptions, StreamOptions
from serve_bench.cli.panels import USUAL_SHARE


class OwnRunOptions(RowOptions, OwnAppOptions, StreamOptions):
    """The options of `run`."""

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


@command(OwnRunOptions)
def run(options: OwnRunOptions) -> int:
    """Measure your own Serve app, and find its limit.

    A cell for each combination of its options; each is loaded by every row of --clients.

    Example: serve-bench run examples/own_app/shop.py:app --route /best
    """
    from serve_bench.cli.experiment import measure
    from serve_bench.cli.targets import target_suite

    return measure(options, lambda: target_suite(options))


class TraceRunOptions(OwnRunOptions):
    """The options of `trace`: those of `run`, for one load."""

    command = "trace"
    order = f"""target arguments option arg app_name {REQUEST} clients windows window_seconds quick
        variant env out resume trace {RUN_HERE} slo format trace_out"""

    target: str | None = argument(
        "App: noop, module:app, path/file.py:app, or config.yaml of Serve.", None, "[TARGET]"
    )
    clients: str | None = flag("raw:100", "Row: raw:N connections.", metavar="ROW[,ROW...]")
    trace: str | None = flag(USUAL_SHARE)


@command(TraceRunOptions)
def trace(options: TraceRunOptions) -> int:
    """Show where the time of requests goes, hop by hop.

    One load of an app; the hops of a traced request add up to its latency.

    Example: serve-bench trace examples/own_app/shop.py:app --route /best
    """
    from serve_bench.cli.experiment import measure
    from serve_bench.cli.targets import target_suite

    return measure(options, lambda: target_suite(options, alone=True))
