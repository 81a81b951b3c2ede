"""`serve-bench rpc`: one agent and its observers, as in PyTorch's distributed RPC benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from serve_bench.benchmarks.rpc.backend import resolve_device
from serve_bench.benchmarks.rpc.bench import RpcBench
from serve_bench.benchmarks.rpc.lens import LENS, REPORT_FILE
from serve_bench.benchmarks.rpc.options import RpcOptions
from serve_bench.benchmarks.rpc.spec import MOST_EPISODES, RpcSpec, read_rpc
from serve_bench.cli import FAILED, print_note
from serve_bench.cli.experiment import ListedExperiment
from serve_bench.cli.rows import read_content
from serve_bench.cli.show import check_target
from serve_bench.cli.sitting import list_launches
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import duration_text, list_trials
from serve_bench.core.result import Result
from serve_bench.store.files import same_file, why, write_whole
from serve_bench.view.document import ReportOptions


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
        options, output = self.options, self.options.output_file_path
        return read_rpc(
            read_content(options.suite),
            options.given,
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
    """Write the published form into the run's folder, and where it was asked for; list failures."""
    run_folder = folder if folder.is_dir() else folder.parent
    text = LENS.look(result, ReportOptions(str(folder))).classic_text()
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
