"""A run of timeline in the form that `compare` and `history` read: what was answered within the
SLO. Pure.

Rule: a launch has one value for each cell, the answers of the seconds that were within the SLO, a
second of the whole load. The row names load, faults and SLO, so that others are other rows.
"""

from __future__ import annotations

from dataclasses import replace

from serve_bench.analysis.checks import FITTED
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.timeline.lens import read_timeline, read_transient
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial, trial_key
from serve_bench.core.slo import Slo
from serve_bench.core.timeline import Timeline


def condensed(result: Result) -> Result:
    """The run with a trial for each cell and launch. Raises FormatError for a damaged one."""
    timeline, slo = read_timeline(result)
    label = _label(timeline, slo)
    suite = {name: value for name, value in result.run.suite.items() if name != "timeline"}
    plan = tuple(_rename(planned, label) for planned in result.run.plan)
    return replace(
        result,
        run=replace(result.run, suite=suite, plan=plan),
        resumes=tuple(replace(resume, plan=()) for resume in result.resumes),
        trials=tuple(
            _condense(trial, label, timeline, slo)
            for trial in result.trials
            if trial.course.get("due")
        ),
    )


def _label(timeline: Timeline, slo: Slo) -> str:
    faults = [fault.source for fault in timeline.faults]
    arrivals = [] if timeline.arrivals == "constant" else [f"{timeline.arrivals} arrivals"]
    about = [timeline.source, *arrivals, *faults, *(goal.text for goal in slo.objectives)]
    return f"answered within the SLO, {', '.join(about)}"


def _rename(planned: PlannedTrial, label: str) -> PlannedTrial:
    key = trial_key(planned.variant, planned.round, planned.cell, label)
    return replace(planned, key=key, row=replace(planned.row, label=label))


def _condense(trial: Trial, label: str, timeline: Timeline, slo: Slo) -> Trial:
    out, answered = read_transient(trial, timeline, slo).out, trial.course["answered"]
    within = sum(count for count, missed in zip(answered, out, strict=True) if missed is False)
    key = trial_key(trial.variant, trial.round, trial.cell, label)
    metrics = {**trial.metrics, MAIN: Metric("requests/s", "higher", (within / len(out),))}
    row = replace(trial.row, label=label)
    return replace(trial, key=key, row=row, metrics=metrics, course={}, slices={}).flagged(FITTED)
