"""The best cell of a matrix: the row with the highest throughput, and those like it.

Rule: pure. A row with failed requests is never the best one while another has none, and one of a
broken cluster (Result.broken) never is. Launches differ more than windows do, so only several of
them can tell two cells apart well; cells within LIKE of the best, or within two standard errors,
are named beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.statistics import MAIN, Line, Spread

LIKE: Final = 0.05
"""Two launches of the same cell differ by 2 to 10 % on a host with 2 cores (SD of the ratio of two
identical clusters, measured with a prototype: docs/ab.md). Cells this close are not called
different."""

FEWEST: Final = 3
"""Launches by which a spread over launches can be told at all."""


@dataclass(frozen=True)
class Best:
    """The row with the highest throughput; `like` those that are not clearly slower."""

    line: Line
    like: tuple[Line, ...]

    @property
    def alone(self) -> bool:
        """Whether every other row is clearly slower."""
        return not self.like


def best(lines: Iterable[Line]) -> Best | None:
    """The best of these rows; None where fewer than two were measured."""
    known = (one for one in lines if MAIN in one.spreads)
    measured = [one for one in known if one.status != "profiled" and not one.broken]
    if len(measured) < 2:
        return None
    sound = [one for one in measured if not one.errors] or measured
    first = max(sound, key=rate)
    like = [one for one in sound if one is not first and _like(first, one)]
    return Best(first, tuple(sorted(like, key=rate, reverse=True)))


def rate(line: Line) -> float:
    """Its mean throughput, requests/s."""
    return line.spreads[MAIN].mean


def _like(first: Line, other: Line) -> bool:
    """Whether the difference is within LIKE, or within two standard errors: of launches where there
    are enough, else of windows, which tell less than what launches differ by."""
    a, b = first.spreads[MAIN], other.spreads[MAIN]
    within = a.mean <= (1 + LIKE) * b.mean
    return within or a.mean - b.mean < 2 * math.hypot(_error(a), _error(b))


def _error(of: Spread) -> float:
    if of.launch_std is not None and of.launches >= FEWEST:
        return of.launch_std / math.sqrt(of.launches)
    return of.std / math.sqrt(of.windows)
