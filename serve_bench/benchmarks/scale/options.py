"""The options of `serve-bench scale`, by workload."""

from __future__ import annotations

from typing import ClassVar, Final

from serve_bench.benchmarks.scale.spec import WORKLOADS, ScaleSpec
from serve_bench.cli.command import Options, flag
from serve_bench.cli.options import RunOptions
from serve_bench.cli.panels import Command, CommandGroup


class ScaleGroupOptions(Options):
    """Run Ray's nightly Serve benchmarks, here or on a cluster.

    Example: serve-bench scale single --quick --published
    """


class ScaleOptions(RunOptions):
    """The options of all workloads, without those of their Spec."""

    command = "scale"
    workload: ClassVar[str]
    order = """address variant env quick suite out resume no_sample strict_host dry_run live slo
        format published perf_metrics"""

    address: str | None = flag(None, "Ray cluster to measure on, which is left as it was.")
    quick: bool = flag(False, "Use sizes for a small machine.")


EXAMPLES: Final = {
    "single": "serve-bench scale single --replicas 8 --duration 30s",
    "multi": "serve-bench scale multi --deployments 4 --replicas 2 --duration 30s",
    "ensemble": "serve-bench scale ensemble --fanout 10",
    "chain": "serve-bench scale chain --length 10",
    "curve": "serve-bench scale curve --replicas 1,2,4,8,16,32",
}


def _command(name: str, kind: type[ScaleSpec]) -> Command:
    class WorkloadOptions(ScaleOptions):
        __doc__ = f"{kind.__doc__}\n\nExample: {EXAMPLES[name]}"
        spec = kind
        workload = name

        suite: str = flag(f"scale_{name}", "Suite file, or the name of a shipped one.")

    return Command(WorkloadOptions, "benchmarks.scale.command:ScaleExperiment.measure")


scale = CommandGroup(
    ScaleGroupOptions, commands={name: _command(name, kind) for name, kind in WORKLOADS.items()}
)
