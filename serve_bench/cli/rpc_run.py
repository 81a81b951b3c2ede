"""What `serve-bench rpc` does once its flags are understood: plan, run, report, plot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from serve_bench.benchmarks.rpc.bench import RpcPlan
from serve_bench.benchmarks.rpc.forms import REPORT_FILE, json_text
from serve_bench.benchmarks.rpc.plot import plot_rpc
from serve_bench.benchmarks.rpc.request import (
    MOST_EPISODES,
    RpcLaunch,
    RpcSuite,
    expected_s,
    rpc_plan,
)
from serve_bench.cli.progress import make_observer
from serve_bench.cli.say import say
from serve_bench.cli.show import Shown, check_target, draw_plots
from serve_bench.cli.sitting import (
    FAILED,
    again_of,
    check_same,
    code_of,
    must_name,
    next_launch,
    run_folder,
    run_mark,
    signals,
    whole_suite,
    work_off,
)
from serve_bench.core.document import ReportOptions
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.result import Result
from serve_bench.runner.runner import Runner
from serve_bench.store import check_new, read
from serve_bench.store.files import why, write_whole

LARGEST_REPORT = 64 * 1024 * 1024


def resumed(
    folder: Path, asked: Sequence[str], anew: Callable[[], RpcSuite]
) -> tuple[RpcSuite, Result]:
    """The plan of a stored run, and what is measured of it. `asked`: flags of a plan that were
    given; `anew`: the plan that they ask for, where the record names what we would write to or
    listen on. Raises BadInput."""
    earlier = read(folder)
    if earlier.run.command != "rpc":
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
    if must_name(folder, earlier, asked):
        suite = anew()
        check_same(folder, earlier, {**suite.to_json(), "sample": earlier.run.suite.get("sample")})
        return suite, earlier
    with whole_suite():
        return RpcSuite.from_json(earlier.run.suite), earlier


def run(
    suite: RpcSuite,
    out: Path | None,
    shown: Shown,
    *,
    earlier: Result | None = None,
    dry_run: bool = False,
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    doubted = {failure.key for failure in earlier.failures} if earlier else set()
    done = [one.key for one in earlier.trials if one.key not in doubted] if earlier else []
    launches = rpc_plan(suite, done)
    if dry_run:
        check_new(None if earlier else out)
        print_plan(suite, launches)
        return 0
    with signals():
        folder, failed, interrupted = _measure(suite, launches, out, earlier)
        result = read(folder)
        troubles = _write_reports(suite, result, folder)
        for trouble in troubles:  # the figures are shown all the same
            print(f"serve-bench: {trouble}", file=sys.stderr)
        shown.show(result, folder)
        draw_plots(folder, result, published=shown.published)
    again = again_of("rpc", folder, result)
    incomplete = failed or bool(result.missing)
    code = code_of(again, interrupted=interrupted, incomplete=incomplete)
    return code or (FAILED if troubles else 0)


def _measure(
    suite: RpcSuite, launches: tuple[RpcLaunch, ...], out: Path | None, earlier: Result | None
) -> tuple[Path, bool, bool]:
    """The run's folder, whether anything failed, and whether it was interrupted."""
    if earlier is not None and not launches:
        assert out is not None, "a run that is gone on with has a folder"
        return out, False, False
    planned = [at for one in rpc_plan(suite) for _, at in one.worlds]
    resumes = earlier is not None
    with (
        run_folder("rpc", out, planned, suite.to_json(), resumes=resumes) as folder,
        run_mark() as run_id,
        make_observer() as observer,
    ):
        first = next_launch(folder.path)
        worlds = RpcPlan(suite, launches, folder.path, run_id)
        runner = Runner(worlds, folder, observer, first_launch=first)
        interrupted = work_off(runner)
    return folder.path, runner.failed, interrupted


def print_plan(suite: RpcSuite, launches: tuple[RpcLaunch, ...]) -> None:
    """The plan. Starts nothing."""
    for launch in launches:
        say(f"launch {launch.backend}, round {launch.round}")
        for _, planned in launch.worlds:
            say("  " + ", ".join(f"{name}={value}" for name, value in planned.cell.items()))
    count = sum(len(launch.worlds) for launch in launches)
    each = f"{suite.episodes:,} episode{'' if suite.episodes == 1 else 's'}"
    if suite.seconds is not None:
        each = f"{suite.seconds:g} s" + ("" if suite.episodes == MOST_EPISODES else f", {each},")
    minutes, seconds = divmod(round(expected_s(suite, launches)), 60)
    about = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    say(
        f"{count} world{'' if count == 1 else 's'}, {each} of {suite.steps} steps each; "
        f"about {about} in all"
    )


def _write_reports(suite: RpcSuite, result: Result, folder: Path) -> list[str]:
    """The report as JSON: in the run's folder, and where it was asked for. The latter is a new
    file, or the one that an earlier sitting of this run wrote. Returns what could not be written.
    """
    run_folder = folder if folder.is_dir() else folder.parent
    text = json_text(result, ReportOptions(str(folder)))
    places = [run_folder / REPORT_FILE]
    if suite.output_file_path is not None:
        place = Path(suite.output_file_path)
        if place.exists() and not place.is_char_device() and not _of_run(place, result.run.id):
            print(f"serve-bench: {place} is of another run: left as it is", file=sys.stderr)
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
        told = json.loads(place.read_text(encoding="utf-8"))
        return bool(told["serve_bench"]["run"]["id"] == run_id)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def plot_file(file: Path, out: Path | None, published: bool) -> int:
    """Draws a report. Raises BadInput when it is none, or the target cannot be."""
    report = _read_report(file)
    places = [file.with_suffix(".png"), file.with_suffix(".svg")] if out is None else [out]
    for place in places:
        if place.suffix not in (".png", ".svg"):
            raise BadInput(f"--out: {place} is not allowed; it takes a name ending in .png or .svg")
        check_target(place, "plot" if out is None else "--out")
    for place in places:
        drawn = plot_rpc(report, place.suffix[1:], published=published, name=str(file))
        try:
            write_whole(place, drawn)
        except OSError as error:
            raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
    print(f"plots: {', '.join(str(place) for place in places)}", file=sys.stderr)
    return 0


def _read_report(file: Path) -> Any:
    try:
        if file.is_dir():
            raise BadInput(f"{file}: is a folder; it takes the report of rpc, a JSON file")
        with file.open("rb") as opened:  # a device may never end
            content = opened.read(LARGEST_REPORT + 1)
        if len(content) > LARGEST_REPORT:
            raise BadInput(f"{file}: is no report of rpc: too large")
        return json.loads(content)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {why(error)}") from None
    except RecursionError:
        raise BadInput(f"{file}: is no report of rpc: too deeply nested") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{file}: is no JSON: {error}") from None
