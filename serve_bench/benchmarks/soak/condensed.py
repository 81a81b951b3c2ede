"""A run of soak as rows: the blocks of a variant as one trial whose windows are the blocks. Pure.

So it is read by `compare`, `history`, the SLO and the checks. Broken blocks are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from serve_bench.analysis.statistics import MAIN, merged
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial, trial_key
from serve_bench.core.schema import plain
from serve_bench.core.soak import soak_row
from serve_bench.view.figures import mean_of


def condensed(result: Result) -> Result:
    """The run with a trial for each variant. Raises FormatError for damaged records."""
    blocks: dict[str, list[Trial]] = {}
    for block in whole_blocks(result):
        blocks.setdefault(_plan_variant(block).key, []).append(block)
    every: tuple[PlannedTrial | Trial, ...] = (*result.plan, *result.trials)
    plan = {row.key: row for row in map(_plan_variant, every)}
    return replace(
        result,
        run=replace(result.run, plan=tuple(plan.values())),
        resumes=tuple(replace(resume, plan=()) for resume in result.resumes),
        trials=tuple(_join_blocks(plan[key], blocks[key]) for key in blocks),
    )


def whole_blocks(result: Result) -> list[Trial]:
    """The blocks with figures: measured to the end, of a whole cluster, with an answer."""
    broken = result.broken
    return [
        block
        for block in result.trials
        if block.key not in broken and MAIN in block.metrics and block.counts.completed
    ]


def _plan_variant(block: PlannedTrial | Trial) -> PlannedTrial:
    """The trial that all blocks of the variant of this one become."""
    row = soak_row(block.row.connections, block.row.rate_per_s, block.row.traffic)
    key = trial_key(block.variant, 1, block.cell, row.label)
    return PlannedTrial(key, 1, block.variant, block.cell, row)


def _join_blocks(planned: PlannedTrial, blocks: Sequence[Trial]) -> Trial:
    """Blocks (at least one) as one trial. Raises FormatError."""
    within = [counts for block in blocks if (counts := block.in_windows) is not None]
    verdicts = [block.client.get("verdict") or {} for block in blocks]
    bound = [verdict for verdict in verdicts if verdict.get("client_bound")]
    names = dict.fromkeys(name for block in blocks for name in block.metrics)
    seconds = {
        name: sum(block.seconds.get(name, 0.0) for block in blocks)
        for name in ("total", "measured")
    }
    return replace(
        blocks[0],
        key=planned.key,
        row=planned.row,
        warmup=Warmup(0.0, True, 0, True),
        metrics={name: _join_metric(blocks, name) for name in names},
        counts=_sum_counts([block.counts for block in blocks]),
        client={
            "in_windows": plain(_sum_counts(within)) if within else None,
            "mean_in_flight": mean_of(block.client.get("mean_in_flight") for block in blocks),
            "verdict": bound[0] if 2 * len(bound) > len(blocks) else {},
        },
        seconds=seconds,
        usage={},
    )


def _join_metric(blocks: Sequence[Trial], name: str) -> Metric:
    metrics = [block.metrics[name] for block in blocks if name in block.metrics]
    windows = tuple(value for metric in metrics for value in metric.windows or ())
    histogram = None if windows else merged(blocks, name).encode()
    return replace(metrics[0], windows=windows or None, histogram=histogram)


def _sum_counts(parts: Sequence[Counts]) -> Counts:
    """The counts of several loads together."""
    failed: Counter[str] = Counter()
    for part in parts:
        failed.update(part.failed)
    names = ("sent", "completed", "in_flight", "carried_in", "unsent")
    numbers = {name: sum(getattr(part, name) for part in parts) for name in names}
    return Counts(failed=dict(failed), **numbers)
