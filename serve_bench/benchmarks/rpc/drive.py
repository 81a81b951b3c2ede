"""What `serve-bench rpc` does once its flags are understood: plan, run, report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from serve_bench.benchmarks.rpc.bench import RpcBench
from serve_bench.benchmarks.rpc.command import RpcOptions
from serve_bench.benchmarks.rpc.lens import LENS, REPORT_FILE
from serve_bench.benchmarks.rpc.request import MOST_EPISODES, RpcSuite, rpc_plan
from serve_bench.cli import FAILED, print_note
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Sitting, done, launch_lines, print_plan, sit
from serve_bench.core.figures import counted
from serve_bench.core.plan import LaunchPlan, duration_text, list_trials
from serve_bench.core.result import Result
from serve_bench.runner.agenda import plan_listed
from serve_bench.store.files import why, write_whole
from serve_bench.view.document import ReportOptions
from serve_bench.view.lens import look


def run(
    suite: RpcSuite, options: RpcOptions, report: ReportRequest, earlier: Result | None = None
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    launches = rpc_plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(plan_lines(suite, launches), None if earlier else options.out)

    def show(result: Result, folder: Path) -> int:
        troubles = _write_reports(suite, result, folder)
        for trouble in troubles:  # the figures are shown all the same
            print_note(f"serve-bench: {trouble}")
        return report.close(result, folder) or (FAILED if troubles else 0)

    sitting = Sitting(
        suite.to_json(),
        list_trials(rpc_plan(suite)),
        lambda place: plan_listed(
            launches, partial(RpcBench, suite, place.folder, place.run_id), suite.expected_s
        ),
        earlier,
        left=bool(launches),
        again="rpc",
        set_env=None,
    )
    return sit(sitting, options, show)


def plan_lines(suite: RpcSuite, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    """The plan of a dry run."""
    for launch in launches:
        cells = ((cell, ()) for cell, _ in launch.cells)
        yield from launch_lines(launch.variant.name, launch.round, cells)
    ends = counted(suite.episodes, "episode")
    if suite.seconds is not None:
        ends = f"{suite.seconds:g} s" + ("" if suite.episodes == MOST_EPISODES else f", {ends},")
    yield (
        f"{counted(len(list_trials(launches)), 'world')}, {ends} of {suite.steps} steps each; "
        f"about {duration_text(suite.expected_s(launches))} in all"
    )


def _write_reports(suite: RpcSuite, result: Result, folder: Path) -> list[str]:
    """Writes the report in its published form: in the run's folder, and where it was asked for. The
    latter is a new file, or the one that an earlier sitting of this run wrote. Returns what could
    not be written."""
    run_folder = folder if folder.is_dir() else folder.parent
    text = look(result, ReportOptions(str(folder)), LENS).classic_text()
    places = [run_folder / REPORT_FILE]
    if suite.output_file_path is not None:
        place = Path(suite.output_file_path)
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
