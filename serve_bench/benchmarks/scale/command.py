"""`serve-bench scale`: Ray's nightly Serve benchmarks, on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import typer

from serve_bench.benchmarks.scale import KEYS, Workload
from serve_bench.cli.command import Command, Parameter, flag
from serve_bench.cli.options import WITH_RESUME, VariantOptions
from serve_bench.cli.panels import PanelCommand, PanelGroup
from serve_bench.core.axes import axis_flags
from serve_bench.core.errors import BadInput
from serve_bench.store.files import read_toml, suite_file

if TYPE_CHECKING:
    from serve_bench.benchmarks.scale.request import ScaleSuite

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


#: A size, and what it says, in the order of the help; a workload has those that
#: benchmarks/scale/__init__.py names. Those of axes stand in core/axes.py.
SIZES: Final[dict[str, Parameter]] = {
    "fanout": Parameter(None, "Nodes of the ensemble, each a deployment."),
    "length": Parameter(None, "Nodes of the chain, each a deployment."),
    "replicas": Parameter(None, "Replicas of each deployment; curve takes several."),
    "deployments": Parameter(None, "Number of applications, each with a deployment."),
    "hops": Parameter(None, "Nested calls of a request."),
    **{
        name: Parameter.of_axis(axis_flags("scale")[name])
        for name in ("max_batch_size", "batch_wait_timeout_s", "max_ongoing_requests")
    },
    "connections": Parameter(
        None, "Connections of the load from each node.", ("-c", "--connections")
    ),
    "clients": Parameter(None, "Clients at once, of the handle and of HTTP."),
    "requests": Parameter(None, "Requests of each client for the latency, in turn."),
    "duration": Parameter(None, "Measured time, such as 20s or 10m.", ("-d", "--duration")),
    "warmup": Parameter(None, "Longest warm-up; it ends once the rate is steady."),
    "timeout": Parameter(None, "Longest time of a request."),
    "nodes": Parameter(None, "Raylets to start on this machine [1]."),
    "launches": Parameter(None, "Launches: fresh clusters of each variant."),
    "seed": Parameter(None, "Seed of everything that is drawn."),
}


class ScaleOptions(VariantOptions):
    """The options of all workloads; `texts` has the sizes that were given."""

    command = "scale"
    with_resume = WITH_RESUME - {"no_sample"}

    address: str | None = flag(None, "Ray cluster to measure on, which is left as it was.")
    quick: bool = flag(False, "Use sizes for a small machine.")


HELP: Final = {
    "single": "One deployment of many replicas, loaded from every node.",
    "multi": "Several deployments; each request hops between them.",
    "ensemble": "A wide graph: all nodes at once, their answers added up.",
    "chain": "A long graph: each node adds 1 and passes on.",
    "curve": "How cost and requests/s grow with the number of replicas.",
}
EXAMPLES: Final = {
    "single": "serve-bench scale single --replicas 8 --duration 30s",
    "multi": "serve-bench scale multi --deployments 4 --replicas 2 --duration 30s",
    "ensemble": "serve-bench scale ensemble --fanout 10",
    "chain": "serve-bench scale chain --length 10",
    "curve": "serve-bench scale curve --replicas 1,2,4,8,16,32",
}


def _command(workload: Workload) -> Command[ScaleOptions]:
    sizes = [name for name in SIZES if name in KEYS[workload]]

    class WorkloadOptions(ScaleOptions):
        order = f"""{" ".join(sizes)} address variant env quick suite out resume no_sample
            strict_host dry_run live slo format published perf_metrics"""

        suite: str = flag(f"scale_{workload}", "Suite file, or the name of a shipped one.")

        @classmethod
        def text_flags(cls) -> Mapping[str, Parameter]:
            return {name: SIZES[name] for name in sizes}

    def measure(options: ScaleOptions) -> int:
        return _run(workload, options)

    measure.__name__ = workload
    measure.__doc__ = f"{HELP[workload]}\n\nExample: {EXAMPLES[workload]}"
    return Command(WorkloadOptions, measure)


def _run(workload: Workload, options: ScaleOptions) -> int:
    from serve_bench.benchmarks.scale.needs import checked
    from serve_bench.benchmarks.scale.request import ScaleSuite, read_scale
    from serve_bench.cli.flag_values import names
    from serve_bench.cli.sitting import request_of
    from serve_bench.core.variants import parse_env

    report = options.report_request()

    def planned() -> ScaleSuite:
        file = suite_file(options.suite)
        suite = read_scale(
            workload,
            read_toml(file),
            file.name,
            options.texts,
            quick=options.quick,
            variants=names(options.variant),
            env=parse_env(options.env or (), "--env"),
            address=options.address,
            sample=not options.no_sample,
            slo=options.slo_source,
        )
        return checked(suite)

    suite, earlier = request_of(options, from_flags=planned, from_record=ScaleSuite.from_json)
    if earlier is not None:
        if suite.workload != workload:
            raise BadInput(f"--resume: {options.resume} holds a run of scale {suite.workload}")
        suite = checked(suite)
    from serve_bench.benchmarks.scale.drive import run

    return run(suite, options, report, earlier)


for _name in KEYS:
    scale.command(name=_name, cls=PanelCommand)(_command(_name))
