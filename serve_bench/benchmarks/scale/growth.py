"""How a quantity grows with the number of replicas: the exponent b of y = a n^b. Pure.

Rule: b is the slope of log(y) over log(n) by least squares, one point for each size (the mean over
its launches), and needs FEWEST sizes with positive values. Its 95 % interval is that of Student's t
with k - 2 degrees of freedom for k sizes; it takes the residuals as chance. Where a quantity bends
(flat at first, then growing), b is the middle of it and the interval says little: look at the plot.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.ratios import quantile

FEWEST: Final = 3
"""Sizes: two points are always on a line."""

WIDE: Final = 0.5
"""Above this half width the interval holds two of the named kinds of growth: it says nothing."""

NEAR: Final = 0.02
"""As near to a named exponent as this is that exponent in words, however narrow the interval."""

SLOW: Final = 0.25
"""Up to here sixteen times the replicas at most double it."""

NAMED: Final[Mapping[float, str]] = {
    -1.0: "falls like 1/n",
    -0.5: "falls like 1/sqrt(n)",
    0.0: "does not change with n",
    0.5: "grows like sqrt(n)",
    1.0: "grows like n",
    2.0: "grows like n^2",
}
"""n: replicas."""


@dataclass(frozen=True)
class Growth:
    """A fit y = factor * n^exponent, with the standard error of the exponent and its 95 % interval
    from `low` to `high`."""

    exponent: float
    std_error: float
    low: float
    high: float
    factor: float

    @property
    def words(self) -> str:
        """What it grows like: the nearest named kind that the interval holds, else between two."""
        b = self.exponent
        if self.high - b > WIDE:
            return "unknown: the points scatter, or are too few"
        fitting = [exponent for exponent in NAMED if self.low <= exponent <= self.high]
        if len(fitting) > 1:
            return "unknown: more than one kind of growth fits"
        nearest = min(NAMED, key=lambda exponent: abs(exponent - b))
        if fitting or abs(nearest - b) <= NEAR:
            return NAMED[nearest]
        verb, unit = ("grows", "n") if b > 0 else ("falls", "1/n")
        if abs(b) <= SLOW:
            return f"{verb} slowly"
        return f"{verb} {'more slowly' if abs(b) < 1 else 'faster'} than {unit}"


def fit_growth(points: Sequence[tuple[int, float]]) -> Growth | None:
    """Fits (replicas, value), a point a size; None where fewer than FEWEST sizes have a positive
    value."""
    usable = [(math.log(n), math.log(value)) for n, value in points if n > 0 and value > 0]
    if len({x for x, _ in usable}) < FEWEST:
        return None
    xs, ys = [x for x, _ in usable], [y for _, y in usable]
    slope, offset = statistics.linear_regression(xs, ys)
    residuals = sum((y - offset - slope * x) ** 2 for x, y in usable)
    degrees = len(usable) - 2
    error = math.sqrt(residuals / degrees / (statistics.pvariance(xs) * len(xs)))
    half = quantile(degrees, 0.975) * error
    return Growth(slope, error, slope - half, slope + half, math.exp(offset))
