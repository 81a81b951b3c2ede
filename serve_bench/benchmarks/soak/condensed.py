"""A run of soak as rows: the blocks of a variant as one trial whose windows are the blocks. Pure.

So it is read by `compare`, `history`, the SLO and the checks. Broken blocks are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from serve_bench.analysis.statistics import MAIN, merged
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial
from serve_bench.core.schema import plain
from serve_bench.core.soak import soak_row
from serve_bench.view.figures import mean_of
from serve_bench.view.lens import plan_row, replace_rows


def condensed(result: Result) -> Result:
    """The run with a trial for each variant. Raises FormatError for damaged records."""
    blocks: dict[str, list[Trial]] = {}
    for block in whole_blocks(result):
        blocks.setdefault(block.variant, []).append(block)
    plan = [*map(_plan_variant, result.plan), *map(_plan_variant, result.trials)]
    return replace_rows(result, plan, map(_join_blocks, blocks.values()))


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
    return plan_row(block, soak_row(block.row.connections, block.row.rate_per_s, block.row.traffic))


def _join_blocks(blocks: Sequence[Trial]) -> Trial:
    """Blocks (at least one) as one trial. Raises FormatError."""
    planned = _plan_variant(blocks[0])
    within = [counts for block in blocks if (counts := block.in_windows) is not None]
    verdicts = [block.client.get("verdict") or {} for block in blocks]
    bound = [verdict for verdict in verdicts if verdict.get("client_bound")]
    names = dict.fromkeys(name for block in blocks for name in block.metrics)
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
        seconds={
            name: sum(block.seconds.get(name, 0.0) for block in blocks)
            for name in ("total", "measured")
        },
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
