"""The options of `serve-bench run` and `serve-bench trace`."""

from __future__ import annotations

from dataclasses import dataclass

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import REQUEST, RUN, RUN_HERE, OwnAppOptions, RowOptions
from serve_bench.cli.panels import Command
from serve_bench.core.forms import TracedShare
from serve_bench.spec.request import RequestKeys, ServeKeys
from serve_bench.spec.suite_keys import DEFAULT_CLIENTS, SuiteKeys


@dataclass(frozen=True, kw_only=True)
class OwnRows(SuiteKeys):
    """The rows of an app of the user's, where nothing says them."""

    clients: tuple[str, ...] = DEFAULT_CLIENTS


class OwnRunOptions(RowOptions, OwnAppOptions):
    """Measure your own Serve app, and find its limit.

    A cell for each combination of its options; each is loaded by every row of --clients.

    Example: serve-bench run examples/own_app/shop.py:app --route /best
    """

    command = "run"
    specs = (RequestKeys, ServeKeys, OwnRows)
    order = f"""target arguments option arg app_name {REQUEST} openai model input_tokens
        output_tokens protocol grpc_servicer call events event_timeout_s timeout_s clients windows
        window_seconds launches quick variant env out resume profile trace {RUN} slo format
        perf_metrics trace_out"""

    target: str | None = argument(
        None,
        "App: module:app, path/file.py:app, config.yaml, or a suite (.toml).",
        metavar="[TARGET]",
    )


run = Command(OwnRunOptions, "benchmarks.own_app.command:OwnAppRun.measure")


class TraceRunOptions(OwnRunOptions):
    """Show where the time of requests goes, hop by hop.

    One load of an app; the hops of a traced request add up to its latency.

    Example: serve-bench trace examples/own_app/shop.py:app --route /best
    """

    command = "trace"
    order = f"""target arguments option arg app_name {REQUEST} timeout_s clients windows
        window_seconds quick variant env out resume trace {RUN_HERE} slo format trace_out"""

    target: str | None = argument(
        None,
        "App: noop, module:app, path/file.py:app, or config.yaml of Serve.",
        metavar="[TARGET]",
    )
    trace: TracedShare | None = flag(0.01)


trace = Command(TraceRunOptions, "benchmarks.own_app.command:TraceRun.measure")
