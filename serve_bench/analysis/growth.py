"""How a quantity grows with a size: a power of it, by least squares of logarithms. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from serve_bench.analysis.ratios import quantile

FEWEST: Final = 3
"""Sizes below which no exponent is fitted: two parameters and one residual."""


class PowerFit(NamedTuple):
    """y = factor n^exponent, with the 95 % interval of the exponent and its standard error."""

    exponent: float
    low: float
    high: float
    std_error: float
    factor: float


def fit_power(points: Sequence[tuple[int, float]]) -> PowerFit | None:
    """Fits (n, y), a point a size; None where fewer than FEWEST sizes have a positive value. The
    interval is that of Student's t and takes the residuals as chance: where a quantity bends, it
    says little."""
    usable = [(math.log(n), math.log(value)) for n, value in points if n > 0 and value > 0]
    xs, ys = [x for x, _ in usable], [y for _, y in usable]
    if len({*xs}) < FEWEST:
        return None
    slope, offset = statistics.linear_regression(xs, ys)
    residuals = sum((y - offset - slope * x) ** 2 for x, y in usable)
    degrees = len(usable) - 2
    error = math.sqrt(residuals / degrees / (statistics.pvariance(xs) * len(xs)))
    half = quantile(degrees, 0.975) * error
    return PowerFit(slope, slope - half, slope + half, error, math.exp(offset))
