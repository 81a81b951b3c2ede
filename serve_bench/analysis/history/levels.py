"""Levels of a series of runs: where it steps from one to the next, and which run is an outlier.

Pure. Rule: a run is one value whatever its launches, since what changes from night to night is in
no launch; all is done on logarithms, with the bounds, the t intervals and Holm's correction of
comparison.py. Formulas, sources and how often it errs are in docs/history.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serve_bench.analysis.comparison import CONFIDENCE, THRESHOLD, Interval
from serve_bench.analysis.history.division import Division


@dataclass(frozen=True)
class Level:
    """Runs in a row that are alike but for their spread. `runs`: their positions in the series,
    outliers left out; `center`: their mean logarithm."""

    runs: tuple[int, ...]
    center: float

    @property
    def value(self) -> float:
        """The geometric mean."""
        return math.exp(self.center)


@dataclass(frozen=True)
class Mark:
    """A step or an outlier. `at`: position of the run, of a step the first of its new level;
    `interval`: of the new level to the one before, of an outlier to its level; `p`: adjusted for
    all places and rows, a mark up to 1 - CONFIDENCE."""

    at: int
    interval: Interval
    p: float


@dataclass(frozen=True)
class Levels:
    """What a series was found to be. `spread`: standard deviation of logarithms within levels, with
    `df` degrees of freedom, None below one; `p`: adjusted, that nothing changed at all, None where
    there are too few runs to judge."""

    levels: tuple[Level, ...]
    steps: tuple[Mark, ...] = ()
    outliers: tuple[Mark, ...] = ()
    spread: float | None = None
    df: int = 0
    p: float | None = None

    @property
    def expected(self) -> Interval | None:
        """Where one more run of the newest level would lie, at 95 %; its ends are values."""
        if self.spread is None or not self.levels:
            return None
        last = self.levels[-1]
        return _interval(last.center, self.spread, self.df, len(last.runs), 1)


def levels_of(
    series: Sequence[Sequence[float | None]], threshold: float = THRESHOLD
) -> tuple[Levels, ...]:
    """The levels of each series: values above 0 of its runs in order of time, None where one has
    none. All series are judged together (Holm), so that of those that did not change any is marked
    in at most 1 - CONFIDENCE of all histories.

    Raises ValueError on a value that is not above 0.
    """
    whole = [Division.of(values) for values in series]
    tested = ((_p_of(one, threshold, len(whole)), at) for at, one in enumerate(whole))
    ranked = sorted((p, at) for p, at in tested if p is not None)
    adjusted: dict[int, float] = {}
    alarms, largest = True, 0.0
    for rank, (p, at) in enumerate(ranked):
        rest = len(ranked) - rank
        largest = max(largest, min(1.0, rest * p))
        adjusted[at] = largest
        alarms = alarms and rest * p <= 1 - CONFIDENCE
        if alarms:
            whole[at] = _divided(whole[at], threshold, rest)
    return tuple(_found(one, adjusted.get(at)) for at, one in enumerate(whole))


# ------------------------------------------------------------------------------ the search


def _p_of(division: Division, threshold: float, rows: int) -> float | None:
    """The smallest p of a first division; None with too few runs. One that is an alarm whatever
    the other rows have ends the search."""
    least = None
    for _, p in division.further(threshold):
        least = p if least is None else min(least, p)
        if rows * least <= 1 - CONFIDENCE:
            break
    return least


def _divided(division: Division, threshold: float, rest: int) -> Division:
    """Divided until nothing more is found; `rest`: rows that the level of p is shared with."""
    while True:
        found = division.further(threshold)
        taken = next((one for one, p in found if rest * p <= 1 - CONFIDENCE), None)
        if taken is None:
            return division.joined(threshold).shared(rest)
        division = taken


def _found(division: Division, p: float | None) -> Levels:
    """What came out of a series; `p`: that nothing changed in it."""
    levels = tuple(Level(own, division.center(own)) for own in division.segments)
    df = division.count - len(division.segments)
    if df < 1:
        return Levels(levels, p=p)
    spread = math.sqrt(division.within() / df)
    marks = []
    for at in sorted(division.marks):
        before, after = division.beside(at)
        center = division.center(after) - division.center(before)
        interval = _interval(center, spread, df, len(before), len(after))
        marks.append(Mark(at, interval, division.marks[at][1]))
    outliers = set(division.outliers)
    return Levels(
        levels,
        tuple(one for one in marks if one.at not in outliers),
        tuple(one for one in marks if one.at in outliers),
        *(spread, df, p),
    )


def _interval(center: float, spread: float, df: int, others: int, runs: int) -> Interval:
    """Of so many runs to so many others, with a spread that is common to all."""
    se = spread * math.sqrt(1 / others + 1 / runs)
    return Interval(center, se, df, others, runs, pairs=False)
