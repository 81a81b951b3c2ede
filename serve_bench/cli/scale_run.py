"""What `serve-bench scale` does once its flags are understood: plan, run, report, plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from serve_bench.benchmarks.scale.bench import ScalePlan
from serve_bench.benchmarks.scale.request import ScaleLaunch, ScaleSuite, expected_s, scale_plan
from serve_bench.cli.progress import make_observer
from serve_bench.cli.say import say
from serve_bench.cli.show import Shown, draw_plots
from serve_bench.cli.sitting import (
    again_of,
    check_same,
    code_of,
    must_name,
    next_launch,
    run_folder,
    run_mark,
    signals,
    tell_ignored,
    whole_suite,
    work_off,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.runner.runner import Runner
from serve_bench.store import check_new, read


def resumed(
    folder: Path, workload: str, asked: Sequence[str], anew: Callable[[], ScaleSuite]
) -> tuple[ScaleSuite, Result]:
    """The plan of a stored run, and what is measured of it. `asked`: flags of a plan that were
    given; `anew`: the plan that they ask for, where the record names what we would run or connect
    to. Raises BadInput."""
    earlier = read(folder)
    if earlier.run.command != "scale":
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
    if must_name(folder, earlier, asked):
        suite = anew()
        check_same(folder, earlier, suite.to_json())
    else:
        with whole_suite():
            suite = ScaleSuite.from_json(earlier.run.suite)
    if suite.workload != workload:
        raise BadInput(f"--resume: {folder} holds a run of scale {suite.workload}")
    return suite, earlier


def run(
    suite: ScaleSuite,
    out: Path | None,
    shown: Shown,
    *,
    earlier: Result | None = None,
    dry_run: bool = False,
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    doubted = {failure.key for failure in earlier.failures} if earlier else set()
    done = [one.key for one in earlier.trials if one.key not in doubted] if earlier else []
    launches = scale_plan(suite, done)
    if dry_run:
        check_new(None if earlier else out)
        print_plan(suite, launches)
        return 0
    with signals():
        folder, failed, interrupted = _measure(suite, launches, out, earlier)
        result = read(folder)
        shown.show(result, folder)
        draw_plots(folder, result, published=shown.published)
    again = again_of(f"scale {suite.workload}", folder, result)
    incomplete = failed or bool(result.missing)
    return code_of(again, interrupted=interrupted, incomplete=incomplete)


def _measure(
    suite: ScaleSuite, launches: tuple[ScaleLaunch, ...], out: Path | None, earlier: Result | None
) -> tuple[Path, bool, bool]:
    """The run's folder, whether anything failed, and whether it was interrupted."""
    if earlier is not None and not launches:
        assert out is not None, "a run that is gone on with has a folder"
        return out, False, False
    planned = [one for at in scale_plan(suite) for cell in at.cells for one in cell.rows]
    resumes = earlier is not None
    with (
        run_folder("scale", out, planned, suite.to_json(), resumes=resumes) as folder,
        run_mark() as run_id,
    ):
        if suite.address is None:
            tell_ignored()
        first = next_launch(folder.path)
        with make_observer() as observer:
            sizes = ScalePlan(suite, launches, folder.path, run_id)
            runner = Runner(sizes, folder, observer, first_launch=first)
            interrupted = work_off(runner)
    return folder.path, runner.failed, interrupted


def print_plan(suite: ScaleSuite, launches: tuple[ScaleLaunch, ...]) -> None:
    """The plan. Starts nothing."""
    for launch in launches:
        say(f"launch {launch.variant.name}, round {launch.round}")
        for cell in launch.cells:
            say("  " + ", ".join(f"{name}={value}" for name, value in cell.cell.items()))
            for planned in cell.rows:
                say(f"    {planned.row.label} ({planned.row.client})")
    if not launches:
        say("nothing is left to be measured")
        return
    where = f"the one at {suite.address}" if suite.address else "started for each launch"
    nodes = f", {suite.nodes} raylets on this machine" if suite.nodes > 1 else ""
    say(f"cluster: {where}{nodes}; at most {suite.warmup_s:g} s of warm-up before a row")
    minutes, seconds = divmod(round(expected_s(suite, launches)), 60)
    about = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    length = f"{suite.windows} windows of {suite.window_s:g} s"
    say(f"{length} for each row of throughput; about {about} in all")
