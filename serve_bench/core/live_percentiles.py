"""Percentiles of histograms that others are still writing, from the slots that are in use. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from serve_bench.core.histogram import slot, slot_middle

BLOCK: Final = 256
_EMPTY: Final = bytes(8 * BLOCK)


def percentiles_in_use(
    histograms: Sequence[memoryview[int]], qs: Sequence[float]
) -> list[int | None]:
    """Compute `Histogram.percentiles` of several in shared memory together.

    Each is its maximum (0 where nothing is recorded), then its slots. A slot is passed over, with
    its block, where the block is empty, and above the maximum."""
    used: dict[int, int] = {}
    for words in histograms:
        for start in range(0, slot(words[0]) + 1 if words[0] else 0, BLOCK):
            block = words[1 + start : 1 + start + BLOCK]
            if block.tobytes() != _EMPTY:
                used[start] = used.get(start, 0) + sum(block)
    starts = sorted(used)
    running = [*accumulate(used[start] for start in starts)]
    values: list[int | None] = []
    for q in qs if running else ():
        rank = max(1, math.ceil((q - 1e-9) * running[-1]))
        i = bisect_left(running, rank)
        begin = starts[i] + 1
        parts = (words[begin : begin + BLOCK] for words in histograms)
        inside = [*accumulate(map(sum, zip(*parts, strict=True)))]
        values.append(
            slot_middle(starts[i] + bisect_left(inside, rank - running[i] + used[starts[i]]))
        )
    return values or [None for _ in qs]
