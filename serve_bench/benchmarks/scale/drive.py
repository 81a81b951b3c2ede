"""What `serve-bench scale` does once its flags are understood: plan, run, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from serve_bench.benchmarks.scale.bench import ScaleBench
from serve_bench.benchmarks.scale.command import ScaleOptions
from serve_bench.benchmarks.scale.request import ScaleSuite, scale_plan
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Sitting, done, launch_lines, print_plan, sit
from serve_bench.core.plan import LaunchPlan, duration_text, list_trials
from serve_bench.core.result import Result
from serve_bench.runner.agenda import plan_listed


def run(
    suite: ScaleSuite, options: ScaleOptions, report: ReportRequest, earlier: Result | None = None
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    launches = scale_plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(plan_lines(suite, launches), None if earlier else options.out, suite.slo)

    sitting = Sitting(
        suite.to_json(),
        list_trials(scale_plan(suite)),
        lambda place: plan_listed(
            launches, partial(ScaleBench, suite, place.folder, place.run_id), suite.expected_s
        ),
        earlier,
        left=bool(launches),
        again=f"scale {suite.workload}",
        set_env="use --env to set it" if suite.address is None else None,
    )
    return sit(sitting, options, report.close)


def plan_lines(suite: ScaleSuite, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    """The plan of a dry run."""
    for launch in launches:
        cells = (
            (cell, [f"{planned.row.label} ({planned.row.client})" for planned in rows])
            for cell, rows in launch.cells
        )
        yield from launch_lines(launch.variant.name, launch.round, cells)
    if not launches:
        yield "nothing is left to be measured"
        return
    where = f"the one at {suite.address}" if suite.address else "started for each launch"
    nodes = f", {suite.nodes} raylets on this machine" if suite.nodes > 1 else ""
    yield f"cluster: {where}{nodes}; at most {suite.warmup_s:g} s of warm-up before a row"
    length = f"{suite.windows} windows of {suite.window_s:g} s"
    about = duration_text(suite.expected_s(launches))
    yield f"{length} for each row of throughput; about {about} in all"
