"""A run of timeline in the form that `compare` and `history` read: what was answered within the
SLO. Pure.

Rule: a launch has one value for each cell, the answers of the seconds that were within the SLO, a
second of the whole load. The row names load, faults and SLO, so that others are other rows.
"""

from __future__ import annotations

from dataclasses import replace

from serve_bench.analysis.checks import FITTED
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.timeline.summary import TimelineCell, TimelineLaunch, cells_of
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial, trial_key


def condensed(result: Result) -> Result:
    """The run with a trial for each cell and launch. Raises FormatError for a damaged one."""
    cells = cells_of(result)
    label = _label(cells[0]) if cells else ""
    trials = [_trial(launch, label) for cell in cells for launch in cell.launches if launch.seconds]
    suite = {name: one for name, one in result.run.suite.items() if name != "timeline"}
    plan = tuple(_planned(one, label) for one in result.run.plan)
    return replace(
        result,
        run=replace(result.run, suite=suite, plan=plan),
        resumes=tuple(replace(one, plan=()) for one in result.resumes),
        trials=tuple(trials),
    )


def _label(cell: TimelineCell) -> str:
    timeline = cell.timeline
    faults = [one.source for one in timeline.faults]
    arrivals = [] if timeline.arrivals == "constant" else [f"{timeline.arrivals} arrivals"]
    slo = [one.text for one in cell.slo.objectives]
    about = ", ".join([timeline.source, *arrivals, *faults, *slo])
    return f"answered within the SLO, {about}"


def _planned(one: PlannedTrial, label: str) -> PlannedTrial:
    key = trial_key(one.variant, one.round, one.cell, label)
    return replace(one, key=key, row=replace(one.row, label=label))


def _trial(launch: TimelineLaunch, label: str) -> Trial:
    one, answered = launch.trial, launch.trial.course["answered"]
    within = sum(
        count for count, out in zip(answered, launch.transient.out, strict=True) if out is False
    )
    rate = within / launch.seconds
    key = trial_key(one.variant, one.round, one.cell, label)
    metrics = {**one.metrics, MAIN: Metric("requests/s", "higher", (rate,))}
    trial = replace(
        one, key=key, row=replace(one.row, label=label), metrics=metrics, course={}, slices={}
    )
    return trial.flagged(FITTED)
