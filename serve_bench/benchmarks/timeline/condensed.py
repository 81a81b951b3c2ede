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
from serve_bench.core.result import Metric, Result, Trial
from serve_bench.view.lens import plan_row, replace_rows


def condensed(result: Result) -> Result:
    """The run with a trial for each cell and launch. Raises FormatError for a damaged one."""
    timeline, slo = read_timeline(result)
    arrivals = [] if timeline.arrivals == "constant" else [f"{timeline.arrivals} arrivals"]
    faults = [fault.source for fault in timeline.faults]
    about = [timeline.source, *arrivals, *faults, *(goal.text for goal in slo.objectives)]
    label = f"answered within the SLO, {', '.join(about)}"
    plan = [plan_row(planned, replace(planned.row, label=label)) for planned in result.plan]

    def measure(trial: Trial) -> Trial:
        out, answered = read_transient(trial, timeline, slo).out, trial.course["answered"]
        within = sum(count for count, missed in zip(answered, out, strict=True) if missed is False)
        metrics = {**trial.metrics, MAIN: Metric("requests/s", "higher", (within / len(out),))}
        row = plan_row(trial, replace(trial.row, label=label))
        kept = replace(trial, key=row.key, row=row.row, metrics=metrics, course={}, slices={})
        return kept.flagged(FITTED)

    trials = [measure(trial) for trial in result.trials if trial.course.get("due")]
    return replace_rows(result, plan, trials, without="timeline")
