"""The Universal Scalability Law: throughput over users or replicas, its peak, what is beyond. Pure.

    X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))

lambda: the rate at N = 1; sigma: contention, what is done one at a time; kappa: coherency, what
each pair costs. The peak is at N* = sqrt((1 - sigma) / kappa). Sources: N. J. Gunther, "A simple
capacity model of massively parallel transaction systems", CMG 1993; "Guerrilla Capacity Planning",
Springer 2007, ch. 4 to 6.

Rule: N/X = a + b N + c N (N - 1) with a, b, c >= 0 is the same law (lambda = 1 / (a + b), sigma =
b / (a + b), kappa = c / (a + b)) with sigma and kappa not below 0 and sigma not above 1. Weighted
least squares finds it without iteration: the best of the sets of terms that gives no negative one.
Intervals: parametric bootstrap with a fixed seed. A fit that does not hold predicts nothing.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE

FEWEST: Final = 4
"""Different N: a curve of three parameters goes through any three points."""

RANGE: Final = 4.0
"""The least ratio of the largest to the smallest N: on a shorter one contention and coherency look
alike."""

FLOOR: Final = 0.02
"""The least relative error of a point: steps of one launch follow each other, and a host is not the
same for minutes."""

TIMES: Final = 3.0
"""A residual of this multiple of the error of its point is no chance: of 15 normal ones a larger
one is in 4 % of fits."""

LEAST_MISFIT: Final = 0.05
"""And a smaller one than 5 % is of no use to know."""

REACH: Final = 2.0
"""Predicted up to this multiple of the largest N: beyond, another resource than those measured may
be the limit."""

DRAWS: Final = 1000
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class UslPoint:
    """A measured rate at N. `error`: its relative standard error, 0 where it is not known; `df`:
    the degrees of freedom that this is known from."""

    n: float
    rate: float
    error: float = 0.0
    df: int = 0


@dataclass(frozen=True)
class Range:
    """A value with its 95 % interval; infinite where there is no end."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class UslCurve:
    """The law with numbers: a, b and c of N/X."""

    a: float
    b: float
    c: float

    @property
    def one(self) -> float:
        """lambda: the rate at N = 1."""
        return 1 / (self.a + self.b)

    @property
    def sigma(self) -> float:
        """Contention, 0 to 1."""
        return self.b * self.one

    @property
    def kappa(self) -> float:
        """Coherency."""
        return self.c * self.one

    @property
    def peak(self) -> float:
        """N*: where the rate is highest; infinite where it always grows."""
        return max(1.0, math.sqrt(self.a / self.c)) if self.c else math.inf

    @property
    def peak_rate(self) -> float:
        """The highest rate: at the peak, else what it grows towards."""
        if self.c:
            return self.at(self.peak)
        return 1 / self.b if self.b else math.inf

    def at(self, n: float) -> float:
        """The rate at N."""
        return n / (self.a + self.b * n + self.c * n * (n - 1))


@dataclass(frozen=True)
class UslFit:
    """A fit through points. `noun`: what N counts, "users". `why_not`: why it predicts nothing,
    else empty; `curve` is None where the points are too few for a fit. `farthest`: the N at which
    the curve is farthest off, and that, of 1 (above 0: above the measured rate). `draws`: curves of
    the bootstrap."""

    points: tuple[UslPoint, ...]
    noun: str
    curve: UslCurve | None = None
    why_not: str = ""
    farthest: tuple[float, float] | None = None
    draws: tuple[UslCurve, ...] = field(default=(), repr=False)

    @property
    def holds(self) -> bool:
        """Whether the model holds, so that it may predict."""
        return self.curve is not None and not self.why_not

    @property
    def reach(self) -> float:
        """The largest N that is predicted."""
        return REACH * max((one.n for one in self.points), default=0.0)

    @cached_property
    def sigma(self) -> Range:
        """Contention."""
        return self._range(lambda curve: curve.sigma)

    @cached_property
    def kappa(self) -> Range:
        """Coherency."""
        return self._range(lambda curve: curve.kappa)

    @cached_property
    def one(self) -> Range:
        """lambda."""
        return self._range(lambda curve: curve.one)

    @cached_property
    def peak(self) -> Range:
        """N*."""
        return self._range(lambda curve: curve.peak)

    @cached_property
    def peak_rate(self) -> Range:
        """The rate at the peak."""
        return self._range(lambda curve: curve.peak_rate)

    def at(self, n: float) -> Range:
        """The rate at N."""
        return self._range(lambda curve: curve.at(n))

    @property
    def text(self) -> str:
        """`prediction (USL): at most 1,480 requests/s at 60 users (95 %: 1,430 to 1,530, at 45 to
        80 users)`; without a peak within its reach the rate there; or why it predicts nothing."""
        if not self.holds:
            return f"no prediction (USL): {self.why_not}"
        if self.peak.value > self.reach:
            there, noun = self.at(self.reach), self.noun
            return (
                f"prediction (USL): {_about(there.value)} requests/s at {self.reach:,g} {noun} "
                f"(95 %: {_about(there.low)} to {_about(there.high)}); no peak up to there"
            )
        rate, peak = self.peak_rate, self.peak
        most = f"prediction (USL): at most {_about(rate.value)} requests/s"
        ends = f"95 %: {_about(rate.low)} to {_about(rate.high)}"
        if peak.high <= self.reach:
            place = f"{peak.low:,.0f} to {peak.high:,.0f} {self.noun}"
            return f"{most} at {peak.value:,.0f} {self.noun} ({ends}, at {place})"
        if peak.low > self.points[0].n:
            return f"{most} ({ends}), at {peak.low:,.0f} {self.noun} or more"
        return f"{most} ({ends}); with how many {self.noun} is not known"

    def _range(self, of: Callable[[UslCurve], float]) -> Range:
        if self.curve is None:
            raise ValueError(f"no fit: {self.why_not}")
        values = sorted(of(one) for one in self.draws)
        out = round((1 - CONFIDENCE) / 2 * len(values))
        value = of(self.curve)
        return Range(value, min(value, values[out]), max(value, values[-1 - out]))


def _many(n: float, noun: str) -> str:
    return f"{n:,g} {noun.removesuffix('s') if n == 1 else noun}"


def _about(rate: float) -> str:
    """Three digits: a prediction has no more."""
    return number(float(f"{rate:.3g}"), 3)


def fit_usl(points: Sequence[UslPoint], noun: str, seed: int = 1) -> UslFit:
    """The fit through points with a rate above 0, one for each N. `noun`: what N counts."""
    known = tuple(sorted((one for one in points if one.rate > 0), key=lambda one: one.n))
    if len({one.n for one in known}) < FEWEST:
        few = counted(len(known), f"number of {noun}", f"numbers of {noun}")
        return UslFit(known, noun, why_not=f"{few}, {FEWEST} are needed")
    first, last = known[0].n, known[-1].n
    if last < RANGE * first:
        short = f"from {first:,g} to {last:,g} {noun}, {RANGE:g} times as many are needed"
        return UslFit(known, noun, why_not=short)
    errors = _errors(known)
    ratios = expected = [one.n / one.rate for one in known]
    for _ in range(3):  # weights by the curve in the end: those by the points favour high rates
        pairs = zip(expected, errors, strict=True)
        solver = _Solver([one.n for one in known], [(y * error) ** -2 for y, error in pairs])
        curve = solver.solve(ratios)
        expected = [one.n / curve.at(one.n) for one in known]
    off = [y / there - 1 for y, there in zip(ratios, expected, strict=True)]
    farthest = max(range(len(known)), key=lambda at: abs(off[at]))
    draws = _draws(known, errors, off, expected, solver, random.Random(seed))
    return UslFit(
        known,
        noun,
        curve,
        _misfit(known, errors, off, noun),
        (known[farthest].n, off[farthest]),
        tuple(draws),
    )


def _errors(points: Sequence[UslPoint]) -> list[float]:
    """The error of each point, at least the mean one: of few launches a small one is luck."""
    told = [one.error**2 for one in points if one.error > 0]
    least = max(FLOOR, math.sqrt(statistics.fmean(told)) if told else 0.0)
    return [max(one.error, least) for one in points]


def _misfit(
    points: Sequence[UslPoint], errors: Sequence[float], off: Sequence[float], noun: str
) -> str:
    """Why the model does not hold; empty where it does."""
    most = 0.0
    for before, after in pairwise(points):
        most = max(most, before.rate)
        # Behind its peak the law falls as 1 / (N - 1) at most.
        steepest = before.rate * max(1.0, before.n - 1) / max(1.0, after.n - 1)
        if after.rate < COLLAPSE * min(most, steepest):
            return f"the model does not hold: the rate collapses at {_many(after.n, noun)}"
    far = [
        (abs(share), one.n)
        for one, error, share in zip(points, errors, off, strict=True)
        if abs(share) > max(TIMES * error, LEAST_MISFIT)
    ]
    if not far:
        return ""
    share, n = max(far)
    return f"the model does not hold: at {_many(n, noun)} it is {100 * share:.0f} % off"


def _draws(
    points: Sequence[UslPoint],
    errors: Sequence[float],
    off: Sequence[float],
    expected: Sequence[float],
    solver: _Solver,
    chance: random.Random,
) -> Iterator[UslCurve]:
    """Fits through the curve with errors drawn anew. Their scale is that of residuals and known
    errors together, at least that of the errors; that it is itself uncertain makes the intervals
    those of Student's t."""
    known = sum(one.df for one in points)
    df = known + len(points) - 3
    squares = sum((share / error) ** 2 for share, error in zip(off, errors, strict=True))
    scale = max(1.0, math.sqrt((known + squares) / df))
    for _ in range(DRAWS):
        size = scale * math.sqrt(df / (2 * chance.gammavariate(df / 2, 1)))
        drawn = (chance.gauss(0, size * error) for error in errors)
        yield solver.solve(
            [y * math.exp(max(-20.0, min(20.0, e))) for y, e in zip(expected, drawn, strict=True)]
        )


# --------------------------------------------------------------------------------------------------
# Least squares over the three terms 1, N and N (N - 1), none of them negative.


class _Solver:
    """The normal equations for fixed N and weights. The sum of squares is convex: the least one
    without negative terms is among the minima over each set of terms."""

    def __init__(self, numbers: Sequence[float], weights: Sequence[float]) -> None:
        # Terms are divided by their largest, so that the equations are well conditioned.
        last = max(numbers)
        self._sizes = (1.0, last, last * (last - 1))
        self._rows = [(1.0, n / last, n * (n - 1) / self._sizes[2]) for n in numbers]
        self._weights = list(weights)
        pairs = list(zip(weights, self._rows, strict=True))
        whole = [[sum(w * row[i] * row[j] for w, row in pairs) for j in range(3)] for i in range(3)]
        # With the last term alone the rate at N = 1 would be infinite.
        self._sets = [
            (kept, _inverse([[whole[i][j] for j in kept] for i in kept]))
            for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,))
        ]

    def solve(self, ratios: Sequence[float]) -> UslCurve:
        """The curve through these N/X."""
        right = [0.0, 0.0, 0.0]
        for weight, row, y in zip(self._weights, self._rows, ratios, strict=True):
            for at in range(3):
                right[at] += weight * row[at] * y
        best, gain = [0.0, 0.0, 0.0], -math.inf
        for kept, inverse in self._sets:
            values = [
                sum(share * right[at] for share, at in zip(row, kept, strict=True))
                for row in inverse
            ]
            gained = sum(value * right[at] for value, at in zip(values, kept, strict=True))
            if min(values) >= 0 and max(values[:2]) > 0 and gained > gain:
                gain, found = gained, dict(zip(kept, values, strict=True))
                best = [found.get(at, 0.0) for at in range(3)]
            if len(kept) == 3 and gain > -math.inf:
                break  # no term is negative without a constraint
        least = 1e-12 * max(best)  # less is an error of rounding
        terms = zip(best, self._sizes, strict=True)
        a, b, c = (value / size if value > least else 0.0 for value, size in terms)
        return UslCurve(a, b, c)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """By Gauss and Jordan with pivots; at most 3 x 3."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        head = rows[at][at]
        rows[at] = [value / head for value in rows[at]]
        for other in range(size):
            if other != at:
                factor = rows[other][at]
                rows[other] = [
                    value - factor * own for value, own in zip(rows[other], rows[at], strict=True)
                ]
    return [row[size:] for row in rows]
