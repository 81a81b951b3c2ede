"""Launches of the same code that come in two groups: the difference is between launches. Pure.

Rule: it is reported where both sides show the same two groups. Noise alone does so in less than one
of 200 comparisons (normal and t values with a spread up to 10 %, 8 to 20 launches on a side)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Final

from serve_bench.analysis.comparing.values import share_text

FEWEST: Final = 8
"""Launches of a side: of fewer, noise has gaps as large."""

CLEAR: Final = 5.0
"""Standard deviations (within the groups) by which groups are apart, and LEAST_APART at least."""

LEAST_APART: Final = math.log(1.05)

ALIKE: Final = 1.5
"""The most by which the distances of both sides differ, as a factor: else the groups differ."""


def describe_groups(a: Mapping[int, float], b: Mapping[int, float], letter: str) -> str:
    """Say what two groups of launches mean for B/A; empty where a side has none.

    `a`, `b`: values by launch; `letter`: of the side that is compared with A."""
    if (of_a := _split(a)) is None or (of_b := _split(b)) is None:
        return ""
    apart, other = sorted(fmean(high) - fmean(low) for low, high in (of_a, of_b))
    if other > ALIKE * apart:
        return ""
    low, high = (math.exp(fmean(of_b[group]) - fmean(of_a[group])) for group in (0, 1))
    counts = ((letter, of_b), ("A", of_a))
    words = " and ".join(f"{len(x)} of {len(x) + len(y)} of {name}" for name, (x, y) in counts)
    share = share_text(math.expm1((apart + other) / 2))
    return (
        f"launches come in two groups, {share} apart, on both sides ({words} in the lower one): "
        f"that is between launches; within the groups B/A is {low:.3f} and {high:.3f}"
    )


def _split(values: Mapping[int, float]) -> tuple[list[float], list[float]] | None:
    """Split the logarithms at their widest gap; None where it is no gap between groups.

    A group has two values or more."""
    logs = sorted(map(math.log, values.values()))
    if len(logs) < FEWEST:
        return None
    gaps = [after - before for before, after in pairwise(logs)][1:-1]
    place = 2 + gaps.index(max(gaps))
    low, high = logs[:place], logs[place:]
    squares = len(low) * pvariance(low) + len(high) * pvariance(high)
    least = max(LEAST_APART, CLEAR * math.sqrt(squares / (len(logs) - 2)))
    return (low, high) if fmean(high) - fmean(low) >= least else None
