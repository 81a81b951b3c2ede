"""How a quantity grows with the number of replicas: the exponent b of y = a n^b. Pure.

Rule: b is the slope of log(y) over log(n) by least squares, one point for each size (the mean over
its launches), and needs FEWEST sizes with positive values:

    b = S_xy / S_xx, S_xy = sum (x - x_mean)(y - y_mean), S_xx = sum (x - x_mean)^2
    standard error = sqrt(sum of squared residuals / (k - 2) / S_xx) for k sizes
    95 % interval = b -+ t(0.975, k - 2) x standard error

with x = log(n), y = log(value). The interval takes the residuals as chance. Where a quantity bends
(flat at first, then growing), b is the middle of it and the interval says little: look at the plot.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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

#: Student's t, 97.5 %, by degrees of freedom from 1; beyond them the last, which is a little wide.
_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


@dataclass(frozen=True)
class Growth:
    """A fit y = factor * n^exponent over `sizes` sizes, with the standard error of the exponent and
    its 95 % interval from `low` to `high`."""

    exponent: float
    std_error: float
    low: float
    high: float
    factor: float
    sizes: int

    @property
    def unknown(self) -> str | None:
        """Why no kind of growth can be named; None where one can."""
        if self.high - self.exponent > WIDE:
            return "unknown: the points scatter, or are too few"
        if sum(self.low <= exponent <= self.high for exponent in NAMED) > 1:
            return "unknown: more than one kind of growth fits"
        return None

    @property
    def words(self) -> str:
        """What it grows like: the nearest named kind that the interval holds, else between two."""
        if self.unknown is not None:
            return self.unknown
        b = self.exponent
        named = min(NAMED, key=lambda exponent: abs(exponent - b))
        if self.low <= named <= self.high or abs(named - b) <= NEAR:
            return NAMED[named]
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
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    s_xx = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in usable) / s_xx
    residuals = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in usable)
    free = len(usable) - 2
    error = math.sqrt(residuals / free / s_xx)
    half = _T[min(free, len(_T)) - 1] * error
    return Growth(
        exponent=slope,
        std_error=error,
        low=slope - half,
        high=slope + half,
        factor=math.exp(y_mean - slope * x_mean),
        sizes=len(usable),
    )
