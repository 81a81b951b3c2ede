"""A run of soak as rows: the blocks of a variant as one trial whose windows are the blocks. Pure.

So it is read by `compare`, `history`, the SLO and the checks. Broken blocks are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from serve_bench.analysis.statistics import MAIN, merged
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, PlannedTrial, Result, Row, Trial, trial_key
from serve_bench.core.schema import built, plain
from serve_bench.core.soak import soak_row


def condensed(result: Result) -> Result:
    """The run with a trial for each variant. Raises FormatError for damaged records."""
    groups: dict[str, list[Trial]] = {}
    for one in whole_blocks(result):
        groups.setdefault(_place(one).key, []).append(one)
    every: tuple[PlannedTrial | Trial, ...] = (*result.plan, *result.trials)
    plan = {place.key: place for place in map(_place, every)}
    trials = tuple(block_sum(key, plan[key].row, blocks) for key, blocks in groups.items())
    return replace(
        result,
        run=replace(result.run, plan=tuple(plan.values())),
        resumes=tuple(replace(one, plan=()) for one in result.resumes),
        trials=trials,
    )


def whole_blocks(result: Result) -> list[Trial]:
    """The blocks with figures: measured to the end, of a whole cluster, with an answer."""
    return [
        one
        for one in result.trials
        if one.key not in result.broken and MAIN in one.metrics and one.counts.completed
    ]


def _place(one: PlannedTrial | Trial) -> PlannedTrial:
    row = soak_row(one.row.connections, one.row.rate_per_s, one.row.traffic)
    key = trial_key(one.variant, 1, one.cell, row.label)
    return PlannedTrial(key, 1, one.variant, one.cell, row)


def block_sum(key: str, row: Row, blocks: Sequence[Trial]) -> Trial:
    """Blocks (at least one) as one trial. Raises FormatError."""
    first, metrics = blocks[0], {}
    for name, one in first.metrics.items():
        if one.windows is not None:
            every = [block.metrics[name].windows for block in blocks if name in block.metrics]
            values = tuple(value for windows in every for value in windows or ())
            metrics[name] = replace(one, windows=values)
    for name in dict.fromkeys(name for block in blocks for name in block.metrics):
        if name not in metrics:
            histogram = merged(blocks, name)
            metrics[name] = Metric(histogram.unit, "lower", histogram=histogram.encode())
    client: dict[str, Any] = {}
    for name in ("total", "in_windows"):
        parts = [block.client[name] for block in blocks if block.client.get(name)]
        if parts:
            client[name] = plain(summed([built(Counts, one, f"client.{name}") for one in parts]))
    bound = [block.client.get("verdict") or {} for block in blocks]
    bound = [one for one in bound if one.get("client_bound")]
    if 2 * len(bound) > len(blocks):
        client["verdict"] = dict(bound[0])
    flights = [block.client.get("mean_in_flight") for block in blocks]
    known = [float(one) for one in flights if one is not None]
    if len(known) == len(blocks):
        client["mean_in_flight"] = statistics.fmean(known)
    return replace(
        first,
        key=key,
        row=row,
        warmup=Warmup(0.0, True, 0, True),
        metrics=metrics,
        counts=summed([block.counts for block in blocks]),
        client=client,
        seconds=_seconds([block.seconds for block in blocks]),
        usage={},
    )


def summed(every: Iterable[Counts]) -> Counts:
    """The counts of several loads together."""
    total = Counts(0, 0, {}, 0)
    for one in every:
        failed = dict(total.failed)
        for name, count in one.failed.items():
            failed[name] = failed.get(name, 0) + count
        total = Counts(
            total.sent + one.sent,
            total.completed + one.completed,
            failed,
            total.in_flight + one.in_flight,
            total.carried_in + one.carried_in,
            total.unsent + one.unsent,
        )
    return total


def _seconds(every: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one.get(name, 0.0) for one in every) for name in ("total", "measured")}
