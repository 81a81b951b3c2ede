"""What `serve-bench scale` does once its flags are understood: plan, run, report, plot."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import typer

from serve_bench import __version__
from serve_bench.cli.measure import FAILED, INTERRUPTED, run_mark, signals
from serve_bench.cli.plots import draw_plots
from serve_bench.cli.progress import make_observer
from serve_bench.cli.run_record import recorded, run_record
from serve_bench.cli.show import Shown
from serve_bench.clock import now_iso
from serve_bench.errors import BadInput
from serve_bench.host import fingerprint
from serve_bench.launch_spec import ignored_environment
from serve_bench.result import Result, Resume
from serve_bench.scale_request import ScaleLaunch, ScaleSuite, expected_s, scale_plan
from serve_bench.scale_runner import ScaleRunner
from serve_bench.store import RunFolder, StoreError, read


def resumed(folder: Path, workload: str) -> tuple[ScaleSuite, Result]:
    """The plan of a stored run, and what is measured of it. Raises BadInput."""
    earlier = read(folder)
    if earlier.run.command != "scale":
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
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
        print_plan(suite, launches)
        return 0
    with signals():
        folder, failed, interrupted = _measure(suite, launches, out, earlier)
        result = read(folder)
        shown.show(result, folder)
        draw_plots(folder, result, published=shown.published)
    again = f"serve-bench scale {suite.workload} --resume {folder}"
    if interrupted:
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        return INTERRUPTED
    if failed or result.missing:
        print(f"incomplete; go on with: {again}", file=sys.stderr)
        return FAILED
    return 0


def _measure(
    suite: ScaleSuite, launches: tuple[ScaleLaunch, ...], out: Path | None, earlier: Result | None
) -> tuple[Path, bool, bool]:
    """The run's folder, whether anything failed, and whether it was interrupted."""
    if earlier is not None and not launches:
        assert out is not None, "a run that is gone on with has a folder"
        return out, False, False
    if earlier is not None and out is not None:
        folder, _ = RunFolder.resume(out)
        folder.append(Resume(recorded(sys.argv[1:]), now_iso(), __version__, fingerprint()))
    else:
        folder = RunFolder.create(out, now=datetime.now(UTC))
        planned = tuple(one for at in scale_plan(suite) for cell in at.cells for one in cell.rows)
        folder.append(run_record(folder, "scale", planned, suite.to_json()))
    interrupted = False
    with folder, run_mark() as run_id:
        for name in ignored_environment() if suite.address is None else ():
            print(f"note: {name} of the shell is left out; use --env to set it", file=sys.stderr)
        logs = [int(log.stem.removeprefix("launch-")) for log in folder.path.glob("logs/launch-*")]
        first = max(logs, default=0) + 1
        with make_observer() as observer:
            runner = ScaleRunner(suite, launches, folder, run_id, observer, first_launch=first)
            try:
                runner.run()
            except KeyboardInterrupt:
                interrupted = True
            except StoreError as error:  # a full disk: what is there is reported all the same
                print(f"serve-bench: {error}", file=sys.stderr)
                runner.failed = True
    return folder.path, runner.failed, interrupted


def print_plan(suite: ScaleSuite, launches: tuple[ScaleLaunch, ...]) -> None:
    """The plan. Starts nothing."""
    for launch in launches:
        typer.echo(f"launch {launch.variant.name}, round {launch.round}")
        for cell in launch.cells:
            typer.echo("  " + ", ".join(f"{name}={value}" for name, value in cell.cell.items()))
            for planned in cell.rows:
                typer.echo(f"    {planned.row.label} ({planned.row.client})")
    if not launches:
        typer.echo("nothing is left to be measured")
        return
    where = f"the one at {suite.address}" if suite.address else "started for each launch"
    nodes = f", {suite.nodes} raylets on this machine" if suite.nodes > 1 else ""
    typer.echo(f"cluster: {where}{nodes}; at most {suite.warmup_s:g} s of warm-up before a row")
    minutes, seconds = divmod(round(expected_s(suite, launches)), 60)
    about = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    length = f"{suite.windows} windows of {suite.window_s:g} s"
    typer.echo(f"{length} for each row of throughput; about {about} in all")
