"""`serve-bench rpc`: one agent and its observers, as in PyTorch's distributed RPC benchmark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from serve_bench.benchmarks.rpc.backend import resolve_device
from serve_bench.benchmarks.rpc.bench import RpcBench
from serve_bench.benchmarks.rpc.lens import LENS, REPORT_FILE
from serve_bench.benchmarks.rpc.spec import MOST_EPISODES, RpcSpec, read_rpc
from serve_bench.cli import FAILED, print_note
from serve_bench.cli.command import command, flag
from serve_bench.cli.experiment import ListedExperiment
from serve_bench.cli.options import RunOptions
from serve_bench.cli.panels import PanelCommand
from serve_bench.cli.show import check_target
from serve_bench.cli.sitting import list_launches
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import duration_text, list_trials
from serve_bench.core.result import Result
from serve_bench.spec.content import Content
from serve_bench.store.files import read_toml, same_file, suite_file, why, write_whole
from serve_bench.view.document import ReportOptions
from serve_bench.view.lens import look

_SPELT = re.compile(r"-{1,2}(?P<name>[a-z]+(?:[_-][a-z]+)*)(?P<rest>=.*)?", re.DOTALL)


class PublishedSpelling(PanelCommand):
    """Takes the flags as PyTorch's launcher spells them too: -world_size="10,50"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The same with --world-size."""
        known = {name for param in self.params for name in param.opts if name.startswith("--")}
        return super().parse_args(ctx, [_respell(text, known) for text in args])


def _respell(text: str, known: set[str]) -> str:
    parts = _SPELT.fullmatch(text)
    if parts is None:
        return text
    flag = f"--{parts['name'].replace('_', '-')}"
    return f"{flag}{parts['rest'] or ''}" if flag in known else text


class RpcOptions(RunOptions):
    command = "rpc"
    spec = RpcSpec
    order = """output_file_path suite out resume no_sample strict_host dry_run live format published
        perf_metrics"""

    suite: str = flag("rpc")
    output_file_path: Path | None = flag(
        None, "New file for the report as JSON [in the run's folder]."
    )


@command(RpcOptions, PublishedSpelling)
def rpc(options: RpcOptions) -> int:
    """Measure torch RPC against Ray actors and a Serve handle.

    An agent calls its observers over each of them.

    One of --world-size, --batch, --state-size, --nlayers, --out-features, --device and --threads
    may be a list with commas: it is the x axis. Flags may be spelt as in PyTorch's launcher.

    Example: serve-bench rpc --world-size 10,20 --batch True --backend torch,ray,serve
    """
    return RpcExperiment(options).run()


class RpcExperiment(ListedExperiment[RpcOptions, RpcSpec]):
    """Worlds on each backend; the report is written in its published form too."""

    bench = RpcBench
    again = "rpc"

    def __init__(self, options: RpcOptions) -> None:
        super().__init__(options)
        output = options.output_file_path
        if options.resume is None and output is not None:
            check_target(output, "--output-file-path")
            if options.perf_metrics is not None and same_file(output, options.perf_metrics):
                raise BadInput(
                    f"--output-file-path and --perf-metrics: both are {options.perf_metrics}"
                )

    def read(self) -> RpcSpec:
        options, file = self.options, suite_file(self.options.suite)
        output = options.output_file_path
        return read_rpc(
            Content(file.name, read_toml(file)),
            options.texts,
            output_file_path=None if output is None else str(output),
            sample=not options.no_sample,
        )

    def restore(self, stored: Mapping[str, Any]) -> RpcSpec:
        return RpcSpec.stored(stored)

    def content(self, asked: RpcSpec, earlier: Result) -> Mapping[str, Any]:
        return {**asked.to_json(), "sample": earlier.run.suite.get("sample")}

    def prepare(self, asked: RpcSpec, earlier: Result | None) -> RpcSpec:
        return super().prepare(resolve_device(asked), earlier)

    def plan_lines(self) -> Iterator[str]:
        spec = self.asked
        yield from list_launches(self.launches, lambda _: (), dict)
        ends = counted(spec.episodes, "episode")
        if spec.seconds is not None:
            ends = f"{spec.seconds:g} s" + ("" if spec.episodes == MOST_EPISODES else f", {ends},")
        yield (
            f"{counted(len(list_trials(self.launches)), 'world')}, {ends} of {spec.steps} steps "
            f"each; about {duration_text(spec.expected_s(self.launches))} in all"
        )

    def show(self, result: Result, folder: Path) -> int:
        troubles = _write_reports(self.asked, result, folder)
        for trouble in troubles:  # the figures are shown all the same
            print_note(f"serve-bench: {trouble}")
        return super().show(result, folder) or (FAILED if troubles else 0)


def _write_reports(spec: RpcSpec, result: Result, folder: Path) -> list[str]:
    """Writes the report in its published form: in the run's folder, and where it was asked for. The
    latter is a new file, or the one that an earlier sitting of this run wrote. Returns what could
    not be written."""
    run_folder = folder if folder.is_dir() else folder.parent
    text = look(result, ReportOptions(str(folder)), LENS).classic_text()
    places = [run_folder / REPORT_FILE]
    if spec.output_file_path is not None:
        place = Path(spec.output_file_path)
        if place.exists() and not place.is_char_device() and not _of_run(place, result.run.id):
            print_note(f"serve-bench: {place} is of another run: left as it is")
        else:
            places.append(place)
    troubles = []
    for place in places:
        try:
            if place.is_char_device():
                place.write_text(text, encoding="utf-8")
            else:
                write_whole(place, text)
        except OSError as error:
            troubles.append(f"{place}: cannot be written: {why(error)}")
    return troubles


def _of_run(place: Path, run_id: str) -> bool:
    try:
        report = json.loads(place.read_text(encoding="utf-8"))
        return bool(report["serve_bench"]["run"]["id"] == run_id)
    except (OSError, ValueError, KeyError, TypeError):
        return False
