"""The options of `serve-bench rpc`, and how its command line may be spelt."""

from __future__ import annotations

import re
from typing import Any

from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.cli.command import FilePath, flag
from serve_bench.cli.options import RunOptions
from serve_bench.cli.panels import Command

_SPELT = re.compile(r"-{1,2}(?P<name>[a-z]+(?:[_-][a-z]+)*)(?P<rest>=.*)?", re.DOTALL)


class PublishedSpelling(Command):
    """Takes the flags as PyTorch's launcher spells them too: -world_size="10,50"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the flags, each spelt as --world-size."""
        known = {name for param in self.params for name in param.opts if name.startswith("--")}
        return super().parse_args(ctx, [_respell(text, known) for text in args])


def _respell(text: str, known: set[str]) -> str:
    parts = _SPELT.fullmatch(text)
    if parts is None:
        return text
    flag = f"--{parts['name'].replace('_', '-')}"
    return f"{flag}{parts['rest'] or ''}" if flag in known else text


class RpcOptions(RunOptions):
    """Measure torch RPC against Ray actors and a Serve handle.

    An agent calls its observers over each of them.

    One of --world-size, --batch, --state-size, --nlayers, --out-features, --device and --threads
    may be a list with commas: it is the x axis. Flags may be spelt as in PyTorch's launcher.

    Example: serve-bench rpc --world-size 10,20 --batch True --backend torch,ray,serve
    """

    command = "rpc"
    spec = RpcSpec
    order = """output_file_path suite out resume no_sample strict_host dry_run live format published
        perf_metrics"""

    suite: str = flag("rpc")
    output_file_path: FilePath | None = flag(
        None, "New file for the report as JSON [in the run's folder]."
    )


rpc = PublishedSpelling(RpcOptions, "benchmarks.rpc.command:RpcExperiment.measure")
