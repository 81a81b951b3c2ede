"""`serve-bench run`: the matrix over a Serve app of one's own; `trace`: where the time of its
requests goes."""

from __future__ import annotations

from serve_bench.benchmarks.own_app.options import OwnRunOptions, TraceRunOptions
from serve_bench.cli.experiment import measure
from serve_bench.cli.targets import target_suite
from serve_bench.spec.suite_keys import DEFAULT_CLIENTS


def run(options: OwnRunOptions) -> int:
    """Measures the rows of each cell of an app. Returns the exit code."""
    return measure(options, lambda: target_suite(options))


def trace(options: TraceRunOptions) -> int:
    """Measures one load of an app. Returns the exit code."""
    return measure(options, lambda: target_suite(options, alone=True, clients=DEFAULT_CLIENTS))
