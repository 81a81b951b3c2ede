"""`serve-bench run`: the matrix over a Serve app of one's own; `trace`: where the time of its
requests goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, RUN, OwnAppOptions, RowOptions, StreamOptions
from serve_bench.cli.panels import USUAL_SHARE

if TYPE_CHECKING:
    from serve_bench.core.plan import Suite

#: Flags that say something of an app of one's own alone.
OF_OWN_APPS = (
    *("option", "arg", "app_name", "route", "paths", "method", "header", "headers", "draw"),
    *("body", "bodies", "openai", "expect_status", "grpc_servicer", "call"),
)


class OwnRunOptions(RowOptions, OwnAppOptions, StreamOptions):
    """The options of `run`."""

    command = "run"
    order = f"""target arguments option arg app_name {REQUEST} bodies openai model input_tokens
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
    from serve_bench.cli.rows import measure

    report = options.report_request()
    options.check_chat()
    return measure(options, report, lambda: _suite(options))


class TraceRunOptions(OwnRunOptions):
    """The options of `trace`: those of `run`, for one load."""

    command = "trace"
    order = f"""target arguments option arg app_name {REQUEST} bodies clients windows
        window_seconds quick variant env out resume trace {RUN} slo format trace_out"""

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
    from dataclasses import replace

    from serve_bench.cli.rows import measure, row_overrides, suite_of

    report = options.report_request()

    def suite() -> Suite:
        if options.target != "noop":
            return _suite(options)
        _check_noop(options)
        flags = replace(row_overrides(options), settings={"num_replicas": 1})
        return suite_of("noop", flags)

    return measure(options, report, suite)


def _check_noop(options: OwnRunOptions) -> None:
    from serve_bench.core.errors import BadInput

    wrong = [f"--{name.replace('_', '-')}" for name in OF_OWN_APPS if getattr(options, name)]
    wrong += options.arguments or ()
    if wrong:
        raise BadInput(f"{wrong[0]}: {options.target} measures an app that comes with the tool")


def _suite(options: OwnRunOptions) -> Suite:
    from serve_bench.benchmarks.own_app.flags import own_suite
    from serve_bench.cli.rows import row_overrides, suite_of
    from serve_bench.core.errors import BadInput

    target = options.target
    if target is None:
        raise BadInput("TARGET: name an app (module:app, path/file.py:app) or a suite file")
    flags = row_overrides(options)
    suite = own_suite(target, options, flags)
    if suite is not None:
        return suite
    _check_noop(options)
    return suite_of(target, flags)
