"""What `serve-bench scale` does once its flags are understood: plan, run, report, plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serve_bench.benchmarks.scale.bench import plan_of
from serve_bench.benchmarks.scale.request import ScaleLaunch, ScaleSuite, expected_s, scale_plan
from serve_bench.cli.say import say
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Sitting, done, sit
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result
from serve_bench.store import check_new

if TYPE_CHECKING:
    from serve_bench.benchmarks.scale.command import ScaleOptions


def run(
    suite: ScaleSuite, options: ScaleOptions, report: ReportRequest, earlier: Result | None = None
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    launches = scale_plan(suite, done(earlier))
    if options.dry_run:
        check_new(None if earlier else options.out)
        print_plan(suite, launches)
        return 0

    sitting = Sitting(
        "scale",
        suite.to_json(),
        [one for at in scale_plan(suite) for cell in at.cells for one in cell.rows],
        lambda place: plan_of(suite, launches, place.folder, place.run_id),
        options.resume or options.out,
        earlier,
        left=bool(launches),
        again=f"scale {suite.workload}",
        set_env="use --env to set it" if suite.address is None else None,
    )
    return sit(sitting, report.finish)


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
    length = f"{suite.windows} windows of {suite.window_s:g} s"
    about = duration_text(expected_s(suite, launches))
    say(f"{length} for each row of throughput; about {about} in all")
