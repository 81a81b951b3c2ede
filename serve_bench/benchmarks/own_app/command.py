"""`serve-bench run`: the matrix over a Serve app of one's own; `trace`: where the time of its
requests goes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST, RUN, OwnAppOptions, RowOptions, StreamOptions
from serve_bench.cli.panels import USUAL_SHARE

if TYPE_CHECKING:
    from serve_bench.core.plan import Suite

#: Flags that say something of an app of one's own alone.
OF_OWN_APPS = f"arg app_name {REQUEST} openai grpc_servicer call".split()


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
    from serve_bench.benchmarks.own_app.flags import target_suite
    from serve_bench.cli.experiment import measure
    from serve_bench.cli.rows import add_row_flags

    options.check_chat()
    return measure(options, lambda: target_suite(options, partial(add_row_flags, options=options)))


class TraceRunOptions(OwnRunOptions):
    """The options of `trace`: those of `run`, for one load."""

    command = "trace"
    order = f"""target arguments option arg app_name {REQUEST} clients windows window_seconds quick
        variant env out resume trace {RUN} slo format trace_out"""

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
    from serve_bench.benchmarks.own_app.flags import target_suite
    from serve_bench.cli.experiment import measure
    from serve_bench.cli.rows import add_row_flags

    def suite() -> Suite:
        return target_suite(options, partial(add_row_flags, options=options), alone=True)

    return measure(options, suite)


def check_built_in(options: OwnAppOptions, target: str) -> None:
    """BadInput on flags that go with an app of one's own alone: `target` is none."""
    from serve_bench.core.errors import BadInput

    wrong = [f"--{name.replace('_', '-')}" for name in OF_OWN_APPS if getattr(options, name)]
    wrong += options.arguments or ()
    if wrong:
        raise BadInput(f"{wrong[0]}: {target} measures an app that comes with the tool")
