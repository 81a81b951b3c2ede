"""`serve-bench rpc`: one agent and its observers, as in PyTorch's distributed RPC benchmark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.benchmarks.rpc.request import RpcSuite

#: Flags that go with --resume.
LATER_TOO = ("resume", "format", "published", "perf_metrics", "dry_run", "no_sample")
MOST_SECONDS = 86_400.0

_SPELT = re.compile(r"-{1,2}(?P<name>[a-z]+(?:[_-][a-z]+)*)(?P<rest>=.*)?", re.DOTALL)


class PublishedSpelling(TyperGroup):
    """Takes the flags as PyTorch's launcher spells them too: -world_size="10,50"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The same with --world-size."""
        known = {name for one in self.params for name in one.opts if name.startswith("--")}
        return super().parse_args(ctx, [_respelt(text, known) for text in args])


def _respelt(text: str, known: set[str]) -> str:
    found = _SPELT.fullmatch(text)
    if found is None:
        return text
    flag = f"--{found['name'].replace('_', '-')}"
    return f"{flag}{found['rest'] or ''}" if flag in known else text


rpc = typer.Typer(invoke_without_command=True, rich_markup_mode=None, cls=PublishedSpelling)


@rpc.callback()
def measure(
    context: typer.Context,
    world_size: Annotated[
        str | None, typer.Option(help="Processes: one agent, the others observers [10].")
    ] = None,
    master_addr: Annotated[
        str | None, typer.Option(help="Address of torch's store [127.0.0.1].")
    ] = None,
    master_port: Annotated[
        str | None, typer.Option(help="Its port; 0: a free one [29501].")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="True: the agent waits for all observers; False [True].")
    ] = None,
    state_size: Annotated[str | None, typer.Option(help="Shape of a state [10-20-10].")] = None,
    nlayers: Annotated[str | None, typer.Option(help="Linear layers of the policy [5].")] = None,
    out_features: Annotated[str | None, typer.Option(help="Actions [10].")] = None,
    output_file_path: Annotated[
        Path | None, typer.Option(help="A new file for the report as JSON [in the run's folder].")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="torch, ray, serve; several with commas [torch].")
    ] = None,
    episodes: Annotated[str | None, typer.Option(help="Episodes that are measured [10].")] = None,
    steps: Annotated[
        str | None, typer.Option(help="Calls of each observer in an episode [100].")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option(help="As many episodes as begin within so long.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of the agent: cpu, cuda, auto [cpu].")] = None,
    threads: Annotated[
        str | None, typer.Option(help="Of torch's operators in the agent [1].")
    ] = None,
    launches: Annotated[
        str | None, typer.Option(help="Fresh starts of each backend, each the whole plan [1].")
    ] = None,
    warmup_s: Annotated[
        str | None, typer.Option(help="Of warm-up, at most, until it is steady [3].")
    ] = None,
    timeout_s: Annotated[str | None, typer.Option(help="Of a call, seconds [60].")] = None,
    policy_ms: Annotated[
        str | None, typer.Option(help="A policy of fixed time, to check the benchmark with.")
    ] = None,
    suite: options.Suite = "rpc",
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    no_sample: options.NoSample = False,
    dry_run: options.DryRun = False,
    format: options.Format = "table",
    published: options.Published = False,
    perf_metrics: options.PerfMetrics = None,
) -> int | None:
    """Measure an agent and its observers over torch RPC, Ray actors and a Serve handle.

    One of --world-size, --batch, --state-size, --nlayers, --out-features, --device and --threads
    may be a list with commas: it is the x axis. Flags may be spelt as in PyTorch's launcher.

    Example: serve-bench rpc --world-size 10,20 --batch True --backend torch,ray,serve
    """
    given = {name: value for name, value in locals().items() if name != "context"}
    from serve_bench.cli.flags import asked

    if context.invoked_subcommand is not None:
        check_alone(asked(given, "rpc", but=("format",)), context.invoked_subcommand)
        return None
    from serve_bench.benchmarks.rpc.backend import checked
    from serve_bench.cli.rpc_run import resumed, run
    from serve_bench.cli.show import Shown, check_target
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import same_file

    shown = Shown(format, published, perf_metrics)
    shown.check()
    if resume is not None:
        flags = asked(given, "rpc", but=LATER_TOO)
        asked_for, earlier = resumed(resume, flags, lambda: _suite(given))
        return run(checked(asked_for), resume, shown, earlier=earlier, dry_run=dry_run)
    if output_file_path is not None:
        check_target(output_file_path, "--output-file-path")
        if perf_metrics is not None and same_file(output_file_path, perf_metrics):
            raise BadInput(f"--output-file-path and --perf-metrics: both are {perf_metrics}")
    return run(checked(_suite(given)), out, shown, dry_run=dry_run)


def check_alone(wrong: list[str], command: str) -> None:
    """BadInput when flags stand in front of a command that has its own."""
    from serve_bench.core.errors import BadInput

    if wrong:
        raise BadInput(f"{', '.join(wrong)}: does not go with rpc {command}")


@rpc.command()
def plot(
    file: Annotated[Path, typer.Argument(help="A report: of rpc, or of PyTorch's launcher.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="x.png or x.svg [both beside the report].")
    ] = None,
    published: options.Published = False,
) -> int:
    """Draw the four metrics over the x axis from a report made earlier.

    Example: serve-bench rpc plot benchmark_report.json
    """
    from serve_bench.cli.rpc_run import plot_file

    return plot_file(file, out, published)


def _suite(given: dict[str, Any]) -> RpcSuite:
    """What the flags ask for, the suite file behind them. BadInput names the flag, or the key."""
    from serve_bench.benchmarks.rpc.request import (
        KEYS,
        MOST_EPISODES,
        RpcSuite,
        read_backends,
        read_number,
        read_worlds,
        texts_of,
    )
    from serve_bench.store.files import read_toml, suite_file

    file = suite_file(str(given["suite"]))
    texts = texts_of(read_toml(file), file.name)
    where = {name: f"{file.name}: rpc.{name}" for name in KEYS}
    for name in KEYS:
        if given.get(name) is not None:
            texts[name], where[name] = str(given[name]), f"--{name.replace('_', '-')}"

    def number(name: str, least: float, most: float, whole: bool = True) -> Any:
        if name not in texts:
            return None
        return read_number(texts[name].strip(), where[name], least, most, whole)

    worlds, x_axis = read_worlds(texts, where)
    seconds = number("seconds", 0.1, MOST_SECONDS, whole=False)
    only_seconds = given["seconds"] is not None and given["episodes"] is None
    output = given["output_file_path"]
    return RpcSuite(
        backends=read_backends(texts["backend"], where["backend"]),
        worlds=worlds,
        x_axis=x_axis,
        master_addr=texts["master_addr"],
        master_port=number("master_port", 0, 65535),
        episodes=MOST_EPISODES if only_seconds else number("episodes", 1, MOST_EPISODES),
        steps=number("steps", 1, MOST_EPISODES),
        seconds=seconds,
        launches=number("launches", 1, 1000),
        warmup_s=number("warmup_s", 0.0, MOST_SECONDS, whole=False),
        timeout_s=number("timeout_s", 0.1, MOST_SECONDS, whole=False),
        policy_ms=number("policy_ms", 0.0, 60_000.0, whole=False),
        seed=number("seed", 0, 2**31),
        output_file_path=None if output is None else str(output),
        sample=not given["no_sample"],
    )
