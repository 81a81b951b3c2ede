"""Two-level factorial designs in rounds of two launches, and the effects that their ratios show.

Pure. A point is a launch: the level of each factor, `0110`. A round compares two points, so what
happens to both cancels out, and its log ratio is the sum of the effects in which they differ.
Levels count as -1 and 1 (Yates 1937); intervals are those of least squares. Method: docs/flags.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, TypeAlias

from serve_bench.analysis.ratios import CONFIDENCE, ONE_SIDE, Interval

Point: TypeAlias = str
Term: TypeAlias = tuple[int, ...]
"""The factors of an effect, by place: one, or two that work together."""

Round: TypeAlias = tuple[Point, Point]

MOST_POINTS: Final = 256
"""Of more combinations so many are drawn."""

ODD_MADS: Final = 5.0
ODD_BY: Final = 0.1
ODD_SHARE: Final = 0.2
"""Of the rounds; at most so many are left out as odd."""

SPARE: Final = 12
"""Rounds beyond the number of terms: degrees of freedom that tell the spread of rounds."""

_RIDGE: Final = 1e-3
_STEPS: Final = 50


def points_of(factors: int, seed: int) -> tuple[Point, ...]:
    """All combinations of levels; of many, those drawn, with none and all of them on."""
    if 2**factors <= MOST_POINTS:
        return tuple(f"{one:0{factors}b}" for one in range(2**factors))
    draw = random.Random(f"{seed}/points")
    some = {draw.randrange(2**factors) for _ in range(MOST_POINTS)}
    return tuple(f"{one:0{factors}b}" for one in sorted(some | {0, 2**factors - 1}))


def terms_of(points: Sequence[Point], pairs: bool) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The effects that these points can tell apart, single factors first; and those that they
    cannot: where one factor never goes without another one, say."""
    import numpy as np

    count = len(points[0])
    every: list[Term] = [(at,) for at in range(count)]
    every += combinations(range(count), 2) if pairs else ()
    kept, columns = list[Term](), [np.ones(len(points))]
    for term in every:
        column = np.array([_coded(point, term) for point in points])
        if np.linalg.matrix_rank(np.column_stack([*columns, column])) > len(columns):
            kept.append(term)
            columns.append(column)
    return tuple(kept), tuple(term for term in every if term not in kept)


def rounds_for(terms: Sequence[Term]) -> int:
    """The rounds that a plan takes unless told otherwise."""
    return len(terms) + SPARE


def design(
    points: Sequence[Point],
    terms: Sequence[Term],
    rounds: int,
    seed: int,
    begun: Sequence[Round] = (),
) -> tuple[Round, ...]:
    """So many rounds, `begun` first, else all factors off against all on. Each further one tells
    most of what the ones before leave open (it raises the determinant of the information most,
    Wald 1943), so a plan can be gone on with; ties and the order in a round are drawn."""
    import numpy as np

    matrix = _columns(points, terms)
    firsts, seconds = (np.array(one) for one in zip(*combinations(range(len(points)), 2)))  # noqa: B905
    differences = matrix[seconds] - matrix[firsts]
    known = {point: matrix[at] for at, point in enumerate(points)}
    ends = (points[0], points[-1])
    chosen = list(begun or [ends])[:rounds]
    information = _RIDGE * np.eye(len(terms))
    for first, second in chosen:
        step = known[second] - known[first]
        information += np.outer(step, step)
    while len(chosen) < rounds:
        draw = random.Random(f"{seed}/round {len(chosen)}")
        gain = np.einsum(
            "ij,jk,ik->i", differences, np.linalg.inv(information), differences, optimize=True
        )
        best = np.flatnonzero(gain >= gain.max() * (1 - 1e-9))
        at = int(best[draw.randrange(len(best))])
        pair = points[firsts[at]], points[seconds[at]]
        chosen.append(pair if draw.random() < 0.5 else pair[::-1])
        information += np.outer(differences[at], differences[at])
    return tuple(chosen)


@dataclass(frozen=True)
class Estimate:
    """What a term does. `interval`: of a factor the ratio on/off, over the levels of the others; of
    two the ratio by which the effect of one grows with the other. None: the rounds cannot tell."""

    term: Term
    interval: Interval | None


@dataclass(frozen=True)
class Fit:
    """The effects, and `whole`: all factors on to all off, as they say. `odd`: rounds that were
    left out, by their place, with the ratio by which they are off."""

    effects: tuple[Estimate, ...]
    whole: Interval | None
    odd: Mapping[int, float]
    rounds: int


def fit(rounds: Sequence[Round], logs: Sequence[float], terms: Sequence[Term]) -> Fit:
    """The effects that log ratios (second to first point of each round) show."""
    odd = _odd(rounds, logs, [one for one in terms if len(one) == 1])
    left = [at for at in range(len(rounds)) if at not in odd]
    solved = _Solved.of([rounds[at] for at in left], [logs[at] for at in left], terms)
    effects = tuple(
        Estimate(term, solved.interval([2.0 * len(term) * (one == term) for one in terms]))
        for term in terms
    )
    whole = solved.interval([2.0 * (len(one) == 1) for one in terms])
    return Fit(effects, whole, odd, len(left))


def sees(rounds: Sequence[Round], terms: Sequence[Term], sd: float) -> float | None:
    """The smallest effect of a factor (a logarithm) that so many rounds prove in 8 of 10 runs,
    where a round's log ratio has this standard deviation; None: they prove none."""
    solved = _Solved.of(rounds, [0.0] * len(rounds), terms)
    single = [at for at, term in enumerate(terms) if len(term) == 1]
    if solved.df < 1:
        return None
    worst = max(single, key=lambda at: solved.inverse[at][at])
    se = 2 * sd * float(solved.inverse[worst][worst]) ** 0.5
    whole = Interval(0.0, se, solved.df, len(rounds), len(rounds))
    proven = whole.at(1 - (1 - CONFIDENCE) / len(single)).half
    return float(proven + ONE_SIDE * se)


# ------------------------------------------------------------------------------ least squares


@dataclass(frozen=True)
class _Solved:
    """Least squares of log ratios on the differences of both points of each round."""

    matrix: Any
    logs: Any
    inverse: Any  # of X'X (Moore and Penrose)
    rank: int

    @classmethod
    def of(cls, rounds: Sequence[Round], logs: Sequence[float], terms: Sequence[Term]) -> _Solved:
        import numpy as np

        matrix = np.zeros((len(rounds), len(terms)))
        if rounds:
            first, second = (_columns([one[at] for one in rounds], terms) for at in (0, 1))
            matrix = second - first
        inverse = np.linalg.pinv(matrix.T @ matrix, hermitian=True)
        rank = int(np.linalg.matrix_rank(matrix)) if rounds else 0
        return cls(matrix, np.array(logs, dtype=float), inverse, rank)

    @property
    def df(self) -> int:
        """Degrees of freedom that are left for the spread."""
        return len(self.logs) - self.rank

    @property
    def coefficients(self) -> Any:
        """Half the effect of a factor, a quarter of that of two."""
        return self.inverse @ self.matrix.T @ self.logs

    @property
    def variance(self) -> float:
        """Of a round's log ratio about what the effects say."""
        rest = self.logs - self.matrix @ self.coefficients
        return float(rest @ rest) / self.df if self.df else 0.0

    def interval(self, weights: Sequence[float]) -> Interval | None:
        """Of a sum of coefficients; None where the rounds do not tell it."""
        import numpy as np

        wanted = np.array(weights, dtype=float)
        projected = self.inverse @ (self.matrix.T @ (self.matrix @ wanted))
        if self.df < 1 or not np.allclose(projected, wanted, atol=1e-6):
            return None
        se = float(wanted @ self.inverse @ wanted * self.variance) ** 0.5
        n = len(self.logs)
        return Interval(_same(float(wanted @ self.coefficients)), _same(se), self.df, n, n)


def _odd(rounds: Sequence[Round], logs: Sequence[float], terms: Sequence[Term]) -> dict[int, float]:
    """Rounds unlike the others, with the ratio by which they are off: farther from the least
    absolute deviations of `terms` (Boscovich 1757) than ODD_MADS normal deviations and ODD_BY."""
    import numpy as np

    if len(rounds) < 2 * len(terms):
        return {}
    matrix, values = _Solved.of(rounds, logs, terms).matrix, np.array(logs, dtype=float)
    weights = np.ones(len(values))
    for _ in range(_STEPS):  # least squares with weights that make them absolute deviations
        rooted = np.sqrt(weights)
        solution = np.linalg.lstsq(matrix * rooted[:, None], values * rooted, rcond=None)[0]
        rest = values - matrix @ solution
        weights = 1 / np.maximum(np.abs(rest), 1e-6)
    far = max(ODD_MADS * 1.4826 * float(np.median(np.abs(rest))), math.log(1 + ODD_BY))
    ranked = sorted(range(len(logs)), key=lambda at: -abs(rest[at]))
    some = [at for at in ranked if abs(rest[at]) > far][: int(ODD_SHARE * len(logs))]
    return {at: math.exp(_same(float(rest[at]))) for at in sorted(some)}


def _same(value: float) -> float:
    """To nine digits: sums of BLAS differ in the last of sixteen from one kind of CPU to the next,
    and what a run says must not."""
    return float(f"{value:.9g}")


def _columns(points: Sequence[Point], terms: Sequence[Term]) -> Any:
    import numpy as np

    return np.array([[_coded(point, term) for term in terms] for point in points])


def _coded(point: Point, term: Term) -> float:
    """1 or -1: the product of the levels of the term's factors."""
    off = sum(point[at] == "0" for at in term)
    return -1.0 if off % 2 else 1.0
