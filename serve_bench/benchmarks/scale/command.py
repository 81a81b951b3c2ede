"""`serve-bench scale`: Ray's nightly Serve benchmarks, on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from serve_bench.benchmarks.scale.bench import ScaleBench
from serve_bench.benchmarks.scale.needs import check_needs
from serve_bench.benchmarks.scale.spec import WORKLOADS, ScaleSpec, read_scale, stored_scale
from serve_bench.cli.command import Command, flag
from serve_bench.cli.experiment import ListedExperiment
from serve_bench.cli.flag_values import names
from serve_bench.cli.options import WITH_RESUME, VariantOptions
from serve_bench.cli.panels import PanelCommand, PanelGroup
from serve_bench.cli.sitting import list_launches
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result
from serve_bench.core.variants import parse_env
from serve_bench.spec.content import Content
from serve_bench.store.files import read_toml, suite_file

scale = typer.Typer(
    cls=PanelGroup,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Run Ray's nightly Serve benchmarks, here or on a cluster.\n\n"
    "Example: serve-bench scale single --quick --published",
)


@scale.callback()
def _alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


class ScaleOptions(VariantOptions):
    """The options of all workloads beside those of their Spec."""

    command = "scale"
    with_resume = WITH_RESUME - {"no_sample"}
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


def _command(workload: str, kind: type[ScaleSpec]) -> Command[ScaleOptions]:
    class WorkloadOptions(ScaleOptions):
        spec = kind

        suite: str = flag(f"scale_{workload}", "Suite file, or the name of a shipped one.")

    def measure(options: ScaleOptions) -> int:
        return ScaleExperiment(options, workload).run()

    measure.__name__ = workload
    measure.__doc__ = f"{kind.__doc__}\n\nExample: {EXAMPLES[workload]}"
    return Command(WorkloadOptions, measure)


class ScaleExperiment(ListedExperiment[ScaleOptions, ScaleSpec]):
    """The sizes of a workload, on clusters of ours or on one that is there already."""

    bench = ScaleBench

    def __init__(self, options: ScaleOptions, workload: str) -> None:
        super().__init__(options)
        self._workload, self.again = workload, f"scale {workload}"

    def read(self) -> ScaleSpec:
        options, file = self.options, suite_file(self.options.suite)
        return read_scale(
            self._workload,
            Content(file.name, read_toml(file)),
            options.texts,
            quick=options.quick,
            variants=names(options.variant),
            env=parse_env(options.env or (), "--env"),
            address=options.address,
            sample=not options.no_sample,
            slo=options.slo_source,
        )

    def restore(self, stored: Mapping[str, Any]) -> ScaleSpec:
        return stored_scale(stored)

    def prepare(self, asked: ScaleSpec, earlier: Result | None) -> ScaleSpec:
        if asked.workload != self._workload:
            held = f"{self.options.resume} holds a run of scale {asked.workload}"
            raise BadInput(f"--resume: {held}")
        self.set_env = "use --env to set it" if asked.address is None else None
        return super().prepare(check_needs(asked), earlier)

    def plan_lines(self) -> Iterator[str]:
        spec = self.asked
        yield from list_launches(
            self.launches,
            lambda rows: [f"{planned.row.label} ({planned.row.client})" for planned in rows],
            dict,
        )
        if not self.launches:
            yield "nothing is left to be measured"
            return
        where = f"the one at {spec.address}" if spec.address else "started for each launch"
        nodes = f", {spec.nodes} raylets on this machine" if spec.nodes > 1 else ""
        yield f"cluster: {where}{nodes}; at most {spec.warmup:g} s of warm-up before a row"
        length = f"{spec.windows} windows of {spec.window_s:g} s"
        about = duration_text(spec.expected_s(self.launches))
        yield f"{length} for each row of throughput; about {about} in all"


for _name, _kind in WORKLOADS.items():
    scale.command(name=_name, cls=PanelCommand)(_command(_name, _kind))
