"""A run of capacity in the form that `compare` and `history` read: one row, the capacity. Pure.

Rule: a launch has one value for each cell, the capacity that its search ended with. The row names
the SLO and the arrivals, so capacities at other ones are other rows. A launch that is only bounded
has no value, and a failure that says its bounds: where no probe met the SLO it counts as not
measured, so B is worse; where too little is known as broken, which is held against nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from serve_bench.analysis.capacity.launch import LaunchSearch, meets
from serve_bench.analysis.capacity.model import LaunchEstimate
from serve_bench.analysis.checks import FITTED
from serve_bench.analysis.statistics import MAIN, measured_s
from serve_bench.benchmarks.capacity.summary import rate_text, searches_of
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Result,
    Row,
    Traffic,
    Trial,
    trial_key,
)
from serve_bench.core.slo import Slo


def condensed(result: Result) -> Result:
    """The run with a trial for each cell and launch that was searched to its end. Raises
    FormatError for a damaged suite."""
    searches = searches_of(result)
    label = row_label(searches.asked, searches.slo)
    last = max([searches.asked.launches, *(one.round for one in result.trials)])
    planned = (_planned(one, label) for one in result.plan if one.round <= last)
    plan = {one.key: one for one in planned}
    trials: list[Trial] = []
    failures: list[Failure] = []
    for place in searches.places:
        for search, estimate in zip(searches.ended(place), searches.estimates(place), strict=True):
            if search.finished:
                trials.append(trial := _trial(search, estimate, label))
                failures += _bounded(trial, estimate)
    # How it was searched is no setting of the load.
    suite = {name: value for name, value in result.run.suite.items() if name != "capacity"}
    return replace(
        result,
        run=replace(result.run, suite=suite, plan=tuple(plan.values())),
        resumes=tuple(replace(one, plan=()) for one in result.resumes),
        trials=tuple(trials),
        failures=(*result.failures, *failures),
    )


def row_label(asked: CapacitySearch, slo: Slo) -> str:
    """`capacity at p99 <= 50 ms, errors <= 1 %`: alike for an SLO however it was written, and with
    arrivals other than those of Poisson."""
    objectives = sorted(slo.objectives, key=lambda one: (one.kind == "errors", one.name))
    arrivals = [] if asked.arrivals == "poisson" else [f"{asked.arrivals} arrivals"]
    return f"capacity at {', '.join([*(one.text for one in objectives), *arrivals])}"


def _row(label: str, traffic: Traffic) -> Row:
    """How many connections its probes had is a matter of the search."""
    return Row(label + traffic.suffix, traffic.client, 1, loop="open", **vars(traffic))


def _planned(one: PlannedTrial, label: str) -> PlannedTrial:
    row = _row(label, one.row.traffic)
    key = trial_key(one.variant, one.round, one.cell, row.label)
    return replace(one, key=key, row=row)


def _trial(search: LaunchSearch, estimate: LaunchEstimate, label: str) -> Trial:
    """The capacity of a launch in the place of a throughput. Its CPU is that of the probe nearest
    to it. The SLO fixes its latency and judges its failed requests, so it has neither."""
    rate = estimate.rate or estimate.low or estimate.high or 1.0
    served = [one for one in search.trials if one.completed_in_windows]
    near = min(
        served or search.trials, key=lambda one: abs(math.log((one.row.rate_per_s or 1.0) / rate))
    )
    met = any(meets(one, search.bounds) for one in search.probes if one.whole)
    completed = near.completed_in_windows if met or estimate.ceiling != "floor" else 0
    row = _row(label, search.traffic or Traffic())
    return Trial(
        trial_key(search.variant, search.round, search.cell, row.label),
        near.launch,
        search.round,
        search.variant,
        search.cell,
        row,
        near.started_at,
        measured_s(near),
        Warmup(0.0, True, 0, True),
        {MAIN: Metric("requests/s", "higher", (rate,))},
        Counts(completed, completed, {}, 0),
        flags={FITTED: True},
        usage=near.usage,
    )


def _bounded(trial: Trial, estimate: LaunchEstimate) -> Iterator[Failure]:
    """That a launch has bounds alone. As its failure, so that its rate enters no comparison."""
    if estimate.rate is not None:
        return
    ends = [] if estimate.low is None else [f"at least {rate_text(estimate.low)} req/s"]
    ends += [] if estimate.high is None else [f"below {rate_text(estimate.high)} req/s"]
    floor = "higher ones met the SLO" if trial.counts.completed else "no rate met the SLO"
    why = {"client": "the client could send no more", "floor": floor}
    reason = why.get(estimate.ceiling or "") or "; ".join(estimate.doubts)
    message = f"only bounded: {' and '.join(ends) or 'no bound known'} ({reason})"
    yield Failure(
        "trial",
        message,
        trial.started_at,
        key=trial.key,
        launch=trial.launch or None,
        variant=trial.variant,
        round=trial.round,
        cell=trial.cell,
        row=trial.row,
    )
