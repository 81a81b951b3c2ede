"""Loads two targets in turn, in windows: for loads that cannot be sliced.

An open loop has no slices, and a slice of requests that take seconds would be as long as a window.
Each window is a load of its own, with its own connections and a short warm-up, so that only one
target is ever loaded. The result has the form of that of `slices.py`, a window in place of a slice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from serve_bench.core.load_result import LoadResult, Progress, Slice, SlicedResult
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.load.combine import combine
from serve_bench.load.driver import drive_load


def drive_windows(
    loads: tuple[Load, Load],
    plan: Slices,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    mark: Mapping[str, str] | None = None,
) -> SlicedResult:
    """Load the two targets in turn, in windows of `plan.slice_s`; the warm-up of the plan comes
    before each. Raises LoadError as `drive_load` does; a KeyboardInterrupt leaves nothing."""
    draw = random.Random(f"{plan.seed}/slices")
    timing = Timing(plan.warmup_s, plan.warmup_s, 1, plan.slice_s, plan.drain_s)
    results: tuple[list[LoadResult], list[LoadResult]] = ([], [])
    slices: list[Slice] = []
    began_ns = 0
    for pair in range(plan.pairs):
        order = [0, 1]
        draw.shuffle(order)
        for side in order:
            result = drive_load(loads[side], timing, on_progress=on_progress, mark=mark)
            began_ns = began_ns or result.started_at_ns
            results[side].append(result)
            slices.append(as_slice(result, side, pair, began_ns))
    return SlicedResult((joined(loads[0], results[0]), joined(loads[1], results[1])), tuple(slices))


def as_slice(result: LoadResult, side: int, pair: int, began_ns: int) -> Slice:
    """A load of one window in the form of a slice."""
    return Slice(
        side=side,
        pair=pair,
        begun_s=(result.started_at_ns - began_ns) / 1e9,
        length_s=result.duration_s,
        completed=result.completed_in_windows,
        failed=result.measured.failed_total,
        cpu_s=result.cpu_s,
    )


def joined(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    """The results of one load that was driven several times, as one that lasted as long as all."""
    return replace(
        combine(load, results),
        warmup=results[0].warmup,  # each window has one of its own, all alike
        windows=tuple(count for one in results for count in one.windows),
        duration_s=sum(one.duration_s for one in results),
        mean_in_flight=None,  # the sum over windows that came one after the other is none
    )
