"""`serve-bench scale`: Ray's nightly Serve benchmarks, on this machine or on a Ray cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from serve_bench.benchmarks.scale import KEYS
from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.benchmarks.scale.request import ScaleSuite

scale = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Ray's nightly Serve benchmarks, on this machine or on a Ray cluster.\n\n"
    "Example: serve-bench scale single --quick --published",
)


@scale.callback()
def _alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Text = str | None


def _flag(text: str, *spelt: str) -> Any:
    return Annotated[Text, typer.Option(*spelt, help=text)]


#: A size, and what it says; a workload has those that benchmarks/scale/__init__.py names.
SIZES: Final[dict[str, Any]] = {
    "fanout": _flag("Nodes of the ensemble, each a deployment."),
    "length": _flag("Nodes of the chain, each a deployment."),
    "replicas": _flag("Replicas of each deployment (curve: several, with commas)."),
    "deployments": _flag("Deployments, each an application with an endpoint."),
    "hops": _flag("Nested calls of a request."),
    "max_batch_size": _flag("Most requests in a batch of serve.batch."),
    "batch_wait_timeout_s": options.BatchWait,
    "max_concurrent_queries": _flag(
        "Requests that one replica takes at once.",
        "--max-concurrent-queries",
        "--max-ongoing-requests",
    ),
    "connections": _flag("Connections of the load from each node.", "-c", "--connections"),
    "clients": _flag("Clients beside each other, of the handle and of HTTP."),
    "requests": _flag("Requests of each client for the latency, one after the other."),
    "duration": _flag("Measured, such as 20s or 10m.", "-d", "--duration"),
    "warmup": _flag("Longest warm-up; it ends once the rate is steady."),
    "timeout": _flag("How long a request may take."),
    "client": _flag("raw, or wrk where it is installed on each node."),
    "nodes": _flag("Raylets to start on this machine [1]."),
    "launches": _flag("Fresh clusters of each variant, each the whole plan."),
    "seed": _flag("Seed of everything that is drawn."),
}

COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "address": (
        Annotated[Text, typer.Option(help="HOST:PORT of a Ray cluster, which is left as it was.")],
        None,
    ),
    "variant": (options.Variants, None),
    "env": (options.Env, None),
    "quick": (Annotated[bool, typer.Option("--quick", help="Sizes for a small machine.")], False),
    "suite": (options.Suite, ""),
    "out": (options.Out, None),
    "resume": (options.ResumeFrom, None),
    "no_sample": (options.NoSample, False),
    "dry_run": (options.DryRun, False),
    "format": (options.Format, "table"),
    "published": (options.Published, False),
    "perf_metrics": (options.PerfMetrics, None),
}

#: Flags that go with --resume.
LATER_TOO: Final = ("resume", "format", "published", "perf_metrics", "dry_run")

HELP: Final = {
    "single": "One deployment of many replicas, loaded from every node through its own proxy.",
    "multi": "Several deployments; each request hops to one drawn at random, again and again.",
    "ensemble": "A wide graph: the nodes are asked beside each other, and their answers added up.",
    "chain": "A long graph: each node adds 1 and passes on.",
    "curve": "How cost grows with the number of replicas: time, memory, CPU, requests/s.",
}
EXAMPLES: Final = {
    "single": "serve-bench scale single --replicas 8 --duration 30s",
    "multi": "serve-bench scale multi --deployments 4 --replicas 2 --duration 30s",
    "ensemble": "serve-bench scale ensemble --fanout 10",
    "chain": "serve-bench scale chain --length 10",
    "curve": "serve-bench scale curve --replicas 1,2,4,8,16,32",
}


def _command(workload: str, keys: tuple[str, ...]) -> Callable[..., int]:
    """The command of a workload, with the flags that it has: a function whose signature is made
    here, since five written out would say the same twenty flags."""

    def command(**given: Any) -> int:
        return _run(workload, keys, given)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in [
            *((name, SIZES[name], None) for name in SIZES if name in keys),
            *((name, kind, default) for name, (kind, default) in COMMON.items()),
        ]
    ]
    parameters = [
        one.replace(default=f"scale_{workload}") if one.name == "suite" else one
        for one in parameters
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__ = workload
    command.__doc__ = f"{HELP[workload]}\n\nExample: {EXAMPLES[workload]}"
    return command


def _run(workload: Any, keys: tuple[str, ...], given: dict[str, Any]) -> int:
    from serve_bench.benchmarks.scale.needs import checked
    from serve_bench.benchmarks.scale.suite import read_scale
    from serve_bench.cli.flags import asked, names
    from serve_bench.cli.show import Shown
    from serve_bench.core.axes import parse_env
    from serve_bench.store.files import read_toml, suite_file

    shown = Shown(given["format"], given["published"], given["perf_metrics"])
    shown.check()

    def planned() -> ScaleSuite:
        file = suite_file(given["suite"])
        suite = read_scale(
            workload,
            read_toml(file),
            file.name,
            {name: str(given[name]) for name in keys if given[name] is not None},
            quick=given["quick"],
            variants=names(given["variant"]),
            env=parse_env(given["env"] or (), "--env"),
            address=given["address"],
            sample=not given["no_sample"],
        )
        return checked(suite)

    folder: Path | None = given["resume"]
    if folder is not None:
        from serve_bench.cli.scale_run import resumed, run

        flags = asked(given, f"scale_{workload}", but=LATER_TOO)
        suite, earlier = resumed(folder, workload, flags, planned)
        dry_run = bool(given["dry_run"])
        return run(checked(suite), folder, shown, earlier=earlier, dry_run=dry_run)
    suite = planned()
    from serve_bench.cli.scale_run import run  # what drives loads is loaded once all is well

    return run(suite, given["out"], shown, dry_run=given["dry_run"])


for _name, _takes in KEYS.items():
    scale.command(name=_name)(_command(_name, _takes))
