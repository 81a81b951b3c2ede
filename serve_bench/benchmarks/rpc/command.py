"""`serve-bench rpc`: one agent and its observers, as in PyTorch's distributed RPC benchmark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve_bench.cli.command import Parameter, command, flag
from serve_bench.cli.options import RunOptions
from serve_bench.cli.panels import PanelCommand
from serve_bench.core.errors import BadInput
from serve_bench.store.files import read_toml, same_file, suite_file

if TYPE_CHECKING:
    from serve_bench.benchmarks.rpc.request import RpcSuite

_SPELT = re.compile(r"-{1,2}(?P<name>[a-z]+(?:[_-][a-z]+)*)(?P<rest>=.*)?", re.DOTALL)


class PublishedSpelling(PanelCommand):
    """Takes the flags as PyTorch's launcher spells them too: -world_size="10,50"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The same with --world-size."""
        known = {name for one in self.params for name in one.opts if name.startswith("--")}
        return super().parse_args(ctx, [_respelt(text, known) for text in args])


def _respelt(text: str, known: set[str]) -> str:
    parts = _SPELT.fullmatch(text)
    if parts is None:
        return text
    flag = f"--{parts['name'].replace('_', '-')}"
    return f"{flag}{parts['rest'] or ''}" if flag in known else text


#: The arguments of the benchmark, which a suite file has too (benchmarks/rpc/request.py).
ARGUMENTS = {
    "world_size": "Processes: one agent, the others observers [10].",
    "master_addr": "Address of torch's store [127.0.0.1].",
    "master_port": "Port of torch's store; 0: a free one [29501].",
    "batch": "True: the agent waits for all observers; False [True].",
    "state_size": "Shape of a state [10-20-10].",
    "nlayers": "Linear layers of the policy [5].",
    "out_features": "Number of actions [10].",
    "backend": "Backends: torch, ray, serve [torch].",
    "episodes": "Episodes that are measured [10].",
    "steps": "Calls of each observer in an episode [100].",
    "seconds": "Time in which episodes begin, instead of their number.",
    "device": "Device of the agent: cpu, cuda, auto [cpu].",
    "threads": "Threads of torch's operators in the agent [1].",
    "launches": "Launches: fresh starts of each backend [1].",
    "warmup_s": "Longest warm-up; it ends once the rate is steady [3].",
    "timeout_s": "Longest time of a call [60].",
    "policy_ms": "Use a policy of fixed time, to check the benchmark.",
}


class RpcOptions(RunOptions):
    command = "rpc"
    order = """world_size master_addr master_port batch state_size nlayers out_features
        output_file_path backend episodes steps seconds device threads launches warmup_s
        timeout_s policy_ms suite out resume no_sample strict_host dry_run live format published
        perf_metrics"""

    suite: str = flag("rpc")
    output_file_path: Path | None = flag(
        None, "New file for the report as JSON [in the run's folder]."
    )

    @classmethod
    def text_flags(cls) -> Mapping[str, Parameter]:
        """The arguments, which are read beside the suite file."""
        return {name: Parameter(None, help) for name, help in ARGUMENTS.items()}


@command(RpcOptions, PublishedSpelling)
def rpc(options: RpcOptions) -> int:
    """Measure torch RPC against Ray actors and a Serve handle.

    An agent calls its observers over each of them.

    One of --world-size, --batch, --state-size, --nlayers, --out-features, --device and --threads
    may be a list with commas: it is the x axis. Flags may be spelt as in PyTorch's launcher.

    Example: serve-bench rpc --world-size 10,20 --batch True --backend torch,ray,serve
    """
    from serve_bench.benchmarks.rpc.backend import checked
    from serve_bench.benchmarks.rpc.drive import run
    from serve_bench.benchmarks.rpc.request import RpcSuite
    from serve_bench.cli.show import check_target
    from serve_bench.cli.sitting import request_of

    report, output = options.report_request(), options.output_file_path
    if options.resume is None and output is not None:
        check_target(output, "--output-file-path")
        if options.perf_metrics is not None and same_file(output, options.perf_metrics):
            raise BadInput(
                f"--output-file-path and --perf-metrics: both are {options.perf_metrics}"
            )
    suite, earlier = request_of(
        options,
        from_flags=lambda: _suite(options),
        from_record=RpcSuite.from_json,
        content=lambda suite, earlier: {
            **suite.to_json(),
            "sample": earlier.run.suite.get("sample"),
        },
    )
    return run(checked(suite), options, report, earlier)


def _suite(options: RpcOptions) -> RpcSuite:
    """What the flags ask for, the suite file behind them. BadInput names the flag, or the key."""
    from serve_bench.benchmarks.rpc.request import read_rpc

    file, output = suite_file(options.suite), options.output_file_path
    suite = read_rpc(read_toml(file), file.name, options.texts)
    return replace(
        suite,
        output_file_path=None if output is None else str(output),
        sample=not options.no_sample,
    )
