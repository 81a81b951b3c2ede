"""`serve-bench run`: the matrix over your own Serve app; `trace`: where its requests spend time."""

from __future__ import annotations

from serve_bench.benchmarks.own_app.options import OwnRunOptions
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.targets import target_suite
from serve_bench.core.plan import Suite
from serve_bench.spec.suite_keys import DEFAULT_CLIENTS


class OwnAppRun(SuiteExperiment[OwnRunOptions]):
    """The rows of each cell of an app."""

    def suite(self) -> Suite:
        return target_suite(self.options)


class TraceRun(SuiteExperiment[OwnRunOptions]):
    """One load of an app."""

    def suite(self) -> Suite:
        return target_suite(self.options, alone=True, clients=DEFAULT_CLIENTS)
