"""Levels of a series of runs: where it steps from one to the next, and which run is an outlier.

Pure. Rule: a run is one value whatever its launches, since what changes from night to night is in
no launch; all is done on logarithms, with the bounds, the t intervals and Holm's correction of
analysis/ratios.py. Formulas, sources and how often it errs are in docs/history.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.ratios import CONFIDENCE, THRESHOLD, Interval, judge

# --------------------------------------------------------------------------------------------------
# How a series is divided: places where it may change, with their p, and what a division leaves.
#
# Pure. Rule: all is done on logarithms, and every p is adjusted for the places that were looked at.
# Formulas, sources and how often it errs are in docs/history.md.

LASTING: Final = 2
"""Runs that make a level: one run alone is an outlier, and no step."""

FEWEST_LIKE: Final = 3
"""Runs of a level that a single run is held against, at least."""

FEWEST_RUNS: Final = 4
"""Runs of a series below which nothing is judged: two levels of two runs, or three and one."""

Kind: TypeAlias = Literal["step", "last", "apart"]

SHARES: Final[dict[Kind, float]] = {"step": 0.5, "last": 0.25, "apart": 0.25}
"""Of the chance of a false mark, by what is asked: does the level change for good (as many places
as runs between), is the last run an outlier (one place, and what a nightly run asks), does a run or
a stretch of runs stand apart and the old level come back (places as the square of the runs)."""


TOGETHER: Final = 8
RUNS_EACH: Final = 4
"""Changes that are tried at once, when none shows by itself: so many at most, and one for so many
runs, or little would be left to tell the spread from."""


@dataclass(frozen=True)
class Split:
    """Where a segment may change: its runs `first` to `last` (behind it) are not as the others.
    `beyond`: how far the difference lies beyond the threshold, in standard errors; `count`: places
    of that kind; `p`: adjusted for them."""

    kind: Kind
    segment: int
    first: int
    last: int
    beyond: float
    center: float
    count: int = 1
    p: float = 1.0

    @property
    def rank(self) -> tuple[float, float]:
        """The larger the better."""
        return self.beyond, abs(self.center)


@dataclass(frozen=True)
class Division:
    """A series as far as it is divided. `logs` by position; `segments` hold positions, outliers in
    none; `marks`: kind and p of each step and outlier by position."""

    logs: Mapping[int, float]
    segments: tuple[tuple[int, ...], ...]
    marks: Mapping[int, tuple[Kind, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Division:
        """All runs in one segment. Raises ValueError on a value that is not above 0."""
        for value in values:
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"levels are made of values above 0, got {value}")
        logs = {at: math.log(one) for at, one in enumerate(values) if one is not None}
        return cls(logs, (tuple(logs),) if logs else ())

    @property
    def count(self) -> int:
        """Runs in levels."""
        return sum(map(len, self.segments))

    @property
    def outliers(self) -> list[int]:
        """Positions in no segment."""
        return sorted(set(self.logs) - {at for own in self.segments for at in own})

    def within(self) -> float:
        """The sum of squares around the means of the segments."""
        centers = (self.center(own) for own in self.segments)
        return sum(
            (self.logs[at] - center) ** 2
            for own, center in zip(self.segments, centers, strict=True)
            for at in own
        )

    def center(self, own: Sequence[int]) -> float:
        """The mean logarithm of these runs."""
        return statistics.fmean(self.logs[at] for at in own)

    def further(self, threshold: float) -> Iterator[tuple[Division, float]]:
        """What a next division could be, each with its p: one change, the most distant first; then
        several at once, since what hides a step are others beside it: of them the largest p."""
        places = sorted(self.places(threshold), key=lambda one: one.rank, reverse=True)
        for place in places:
            yield self.taken(place), place.p
        counts = {place.kind: place.count for place in places}
        trial = self
        for depth in range(min(TOGETHER, (self.count - 2) // RUNS_EACH)):
            if depth:
                places = trial.places(threshold)
            best = max(places, key=lambda one: one.rank, default=None)
            if best is None or best.beyond <= 0:
                return
            trial = trial.taken(best)
            if depth:
                new = [at for at, mark in trial.marks.items() if self.marks.get(at) != mark]
                tested = {at: trial.by_itself(at, threshold, counts) for at in new}
                marks = {at: (trial.marks[at][0], p) for at, p in tested.items()}
                yield replace(trial, marks={**self.marks, **marks}), max(tested.values())

    def places(self, threshold: float) -> list[Split]:
        """The best place of each kind: most standard errors beyond the threshold."""
        df = self.count - len(self.segments) - 1
        if df < LASTING or (len(self.segments) == 1 and self.count < FEWEST_RUNS):
            return []
        squares, outliers = self.within(), self.outliers
        ended = bool(outliers) and outliers[-1] == max(self.logs)
        best: dict[Kind, Split] = {}
        counts: dict[Kind, int] = {}
        for segment, own in enumerate(self.segments):
            newest = segment == len(self.segments) - 1 and not ended
            logs = [self.logs[at] for at in own]
            for kind, first, last, center, each in _candidates(logs, newest):
                counts[kind] = counts.get(kind, 0) + 1
                spread = math.sqrt(max(squares - center**2 / each, 0.0) / df)
                beyond = _beyond(center, spread * math.sqrt(each), threshold)
                if kind not in best or (beyond, abs(center)) > best[kind].rank:
                    best[kind] = Split(kind, segment, first, last, beyond, center)
        return [
            replace(one, count=counts[kind], p=_adjusted(one.beyond, df, counts[kind], kind))
            for kind, one in best.items()
        ]

    def taken(self, place: Split) -> Division:
        """Divided at a place."""
        own = self.segments[place.segment]
        parts = [own[: place.first], own[place.first : place.last], own[place.last :]]
        new, marks = [part[0] for part in parts[1:] if part], dict(self.marks)
        if place.last - place.first == 1:  # steps and stretches are longer
            new, parts = [own[place.first]], [parts[0] + parts[2]]
            if own[0] in marks and not place.first:  # the step to this level is at its next run
                marks[own[1]] = marks[own[0]]
        at = place.segment
        segments = (*self.segments[:at], *filter(None, parts), *self.segments[at + 1 :])
        return Division(self.logs, segments, marks | {one: (place.kind, place.p) for one in new})

    def by_itself(self, at: int, threshold: float, counts: Mapping[Kind, int]) -> float:
        """The p of one mark with all others as they are, adjusted for the places of its kind."""
        df = self.count - len(self.segments)
        before, after = self.beside(at)
        center = self.center(after) - self.center(before)
        each = 1 / len(before) + 1 / len(after)
        beyond = _beyond(center, math.sqrt(self.within() / df * each), threshold)
        kind = self.marks[at][0]
        return _adjusted(beyond, df, counts.get(kind, 1), kind)

    def beside(self, at: int) -> tuple[Sequence[int], Sequence[int]]:
        """Of a mark the runs before it and those after: two levels, or a level and an outlier."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after[0] == at:
                return before, after
        own = next((one for one in reversed(self.segments) if one[0] < at), self.segments[0])
        return own, (at,)

    def joined(self, threshold: float) -> Division:
        """Without the steps whose levels turn out to lie within the threshold of each other, once
        those beside them are known."""
        for at, (before, after) in enumerate(zip(self.segments, self.segments[1:], strict=False)):
            if _beyond(self.center(after) - self.center(before), 1.0, threshold) <= 0:
                segments = (*self.segments[:at], before + after, *self.segments[at + 2 :])
                marks = {key: mark for key, mark in self.marks.items() if key != after[0]}
                return Division(self.logs, segments, marks).joined(threshold)
        return self

    def shared(self, rest: int) -> Division:
        """With p of marks adjusted for so many rows."""
        marks = {at: (kind, min(1.0, rest * p)) for at, (kind, p) in self.marks.items()}
        return replace(self, marks=marks)


def _candidates(
    logs: Sequence[float], newest: bool
) -> Iterator[tuple[Kind, int, int, float, float]]:
    """Kind, first run and the one behind the last, their mean less that of the others, and the sum
    of 1/n of both. `newest`: the segment ends with the newest run of the series."""
    count = len(logs)
    sums = [0.0, *accumulate(logs)]

    def difference(first: int, last: int) -> tuple[float, float]:
        inside, runs = sums[last] - sums[first], last - first
        others = count - runs
        return inside / runs - (sums[count] - inside) / others, 1 / runs + 1 / others

    for first in range(LASTING, count - LASTING + 1):
        yield "step", first, count, *difference(first, count)
    if count > FEWEST_LIKE:
        for first in range(count):
            kind: Kind = "last" if newest and first == count - 1 else "apart"
            yield kind, first, first + 1, *difference(first, first + 1)
    for first in range(LASTING, count - 2 * LASTING + 1):
        for last in range(first + LASTING, count - LASTING + 1):
            yield "apart", first, last, *difference(first, last)


def _beyond(center: float, se: float, threshold: float) -> float:
    """How many standard errors a log ratio lies beyond the bound on its side; negative within."""
    bound = math.log(1 + threshold) if center > 0 else -math.log(1 - threshold)
    distance = abs(center) - bound
    return distance / se if se > 0 else math.copysign(math.inf, distance)


def _adjusted(beyond: float, df: int, count: int, kind: Kind) -> float:
    """Two-sided p as an alarm of versus has it, times the places of a kind over its share."""
    if beyond <= 0:
        return 1.0
    if math.isinf(beyond):
        return 0.0
    # That distance is all that p depends on: it is the one beyond no threshold, with an error of 1.
    p = judge((Interval(beyond, 1.0, df, 2, 2),), "higher", 0.0, fewest=2)[0].p
    return min(1.0, (1.0 if p is None else p) * count / SHARES[kind])


# --------------------------------------------------------------------------------------------------


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
class LevelMark:
    """A step or an outlier. `at`: position of the run, of a step the first of its new level;
    `interval`: of the new level to the one before, of an outlier to its level; `p`: adjusted for
    all places and rows, a mark up to 1 - CONFIDENCE."""

    at: int
    interval: Interval
    p: float


@dataclass(frozen=True)
class Levels:
    """The levels of a series. `spread`: standard deviation of logarithms within levels, with
    `df` degrees of freedom, None below one; `p`: adjusted, that nothing changed at all, None where
    there are too few runs to judge."""

    levels: tuple[Level, ...]
    steps: tuple[LevelMark, ...] = ()
    outliers: tuple[LevelMark, ...] = ()
    spread: float | None = None
    df: int = 0
    p: float | None = None

    def level_of(self, at: int) -> int | None:
        """The level that a run belongs to, from 0; None for an outlier and what has no value."""
        return next((n for n, level in enumerate(self.levels) if at in level.runs), None)

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
        further = division.further(threshold)
        taken = next((one for one, p in further if rest * p <= 1 - CONFIDENCE), None)
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
        marks.append(LevelMark(at, interval, division.marks[at][1]))
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
