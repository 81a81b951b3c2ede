"""A run of capacity in the form that `compare` and `history` read: one row, the capacity. Pure.

Rule: a launch has one value for each cell, the capacity that its search ended with. The row names
the SLO and the arrivals, so capacities at other ones are other rows. A launch that is only bounded
has no value, and a failure that says its bounds: where no probe met the SLO it counts as not
measured, so B is worse; where too little is known as broken, which is held against nobody.
"""

from __future__ import annotations

import math
from dataclasses import replace

from serve_bench.analysis.capacity.launch import LaunchSearch, meets
from serve_bench.analysis.capacity.model import LaunchEstimate
from serve_bench.analysis.checks import FITTED
from serve_bench.analysis.statistics import MAIN, measured_s
from serve_bench.benchmarks.capacity.lens import describe_ends, read_searches
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Failure, Metric, Result, Row, Traffic, Trial
from serve_bench.view.lens import plan_row, replace_rows


def condensed(result: Result) -> Result:
    """The run with a trial for each cell and launch that was searched to its end. Raises
    FormatError for a damaged suite."""
    searches = read_searches(result)
    traffic = result.plan[0].row.traffic if result.plan else Traffic()
    # Alike for an SLO however it was written; how many connections its probes had, and how it was
    # searched, is no setting.
    goals = sorted(searches.slo.objectives, key=lambda goal: (goal.kind == "errors", goal.name))
    arrivals = searches.asked.arrivals
    others = [] if arrivals == "poisson" else [f"{arrivals} arrivals"]
    label = f"capacity at {', '.join([*(goal.text for goal in goals), *others])}{traffic.suffix}"
    row = Row(label, traffic.client, 1, loop="open", **vars(traffic))
    last = max([searches.asked.launches, *(trial.round for trial in result.trials)])
    plan = [plan_row(trial, row) for trial in result.plan if trial.round <= last]
    ended = [search for place in searches.places for search in searches.ended(place)]
    launches = [(search, search.estimate()) for search in ended if search.finished]
    trials = [_measure(search, estimate, row) for search, estimate in launches]
    bounded = [
        _explain_bounds(trial, estimate)
        for trial, (_, estimate) in zip(trials, launches, strict=True)
        if estimate.rate is None
    ]
    return replace_rows(result, plan, trials, bounded, without="capacity")


def _measure(search: LaunchSearch, estimate: LaunchEstimate, row: Row) -> Trial:
    """The capacity of a launch in the place of a throughput. Its CPU is that of the probe nearest
    to it. The SLO fixes its latency and judges its failed requests, so it has neither."""
    rate = estimate.rate or estimate.low or estimate.high or 1.0
    served = [trial for trial in search.trials if trial.completed_in_windows] or search.trials
    near = min(served, key=lambda trial: abs(math.log((trial.row.rate_per_s or 1.0) / rate)))
    met = any(meets(probe, search.bounds) for probe in search.probes if probe.whole)
    completed = near.completed_in_windows if met or estimate.ceiling != "floor" else 0
    trial = plan_row(near, row).measured(
        near.launch,
        near.started_at,
        measured_s(near),
        Warmup(0.0, True, 0, True),
        {MAIN: Metric("requests/s", "higher", (rate,))},
        Counts(completed, completed, {}, 0),
        seconds={},
        flags={FITTED: True},
    )
    return replace(trial, usage=near.usage)


def _explain_bounds(trial: Trial, estimate: LaunchEstimate) -> Failure:
    """That a launch has bounds alone. As its failure, so that its rate enters no comparison."""
    floor = "higher ones met the SLO" if trial.counts.completed else "no rate met the SLO"
    why = {"client": "the client could send no more", "floor": floor}
    reason = why.get(estimate.ceiling or "") or "; ".join(estimate.doubts)
    message = f"only bounded: {describe_ends(estimate, 'at least')} ({reason})"
    place = (trial.key, trial.launch or None, trial.variant, trial.round, trial.cell, trial.row)
    return Failure("trial", message, trial.started_at, *place)
