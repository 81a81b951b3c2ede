"""Levels of a series of runs: where it steps from one to the next, which run is an outlier, and
whether it drifts.

Pure. Rule: a run is one value whatever its launches, since what changes from night to night is in
no launch; all is done on logarithms. A change is tested against no change; how large it is says
whether it matters. Formulas, sources and how often it errs are in docs/history.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.ratios import CONFIDENCE, ROUNDING, Interval, p_beyond

# --------------------------------------------------------------------------------------------------
# How a series is divided: places where it may change, with their p, and what a division leaves.
#
# Pure. Rule: all is done on logarithms; every p is adjusted for all that is looked at in a year.
# Formulas, sources and how often it errs are in docs/history.md.

LASTING: Final = 2
"""Runs that make a level: one run alone is an outlier, and no step."""

FEWEST_LIKE: Final = 3
"""Runs of a level that a single run is held against, at least."""

FEWEST_RUNS: Final = 4
"""Runs of a series below which nothing is judged: two levels of two runs, or three and one."""

Kind: TypeAlias = Literal["step", "outlier", "drift"]

YEARLY: Final = 0.0022
SPENT_AS: Final = 1.25
"""The level of a single test in a history of n runs is YEARLY / n^SPENT_AS: about as much of the
error in each doubling of the runs. A year of nightly looks at every place then marks a row that did
not change in at most 5 % of all cases, counted by simulation (docs/history.md)."""

TOGETHER: Final = 8
RUNS_EACH: Final = 4
WORTH_A_LOOK: Final = 1.0
"""Changes that are tried at once, when none shows by itself: so many at most, and one for so many
runs, or little would be left to tell the spread from; and only where the best of them is so many
standard errors."""

CORRELATED_FROM: Final = 8
"""Runs from which on their correlation from one to the next is estimated."""

CHANCE_SDS: Final = 1.645
"""Standard errors (1/sqrt(n)) from which on a correlation is more than chance: 5 %, one-sided."""


def level_of_test(runs: int) -> float:
    """The level of a single test in a history of so many runs."""
    return YEARLY / math.pow(runs, SPENT_AS)


@dataclass(frozen=True)
class Split:
    """Where a segment may change: its runs `first` to `last` (behind it) are not as the others.
    `beyond`: how far they differ, in standard errors; `p`: adjusted for a year of looks."""

    kind: Kind
    segment: int
    first: int
    last: int
    beyond: float
    center: float
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

    @property
    def residuals(self) -> list[float]:
        """What is left of each run in a level, in order of time."""
        each = ((own, self.center(own)) for own in self.segments)
        rest = {at: self.logs[at] - center for own, center in each for at in own}
        return [rest[at] for at in sorted(rest)]

    def further(self) -> Iterator[tuple[Division, float]]:
        """What a next division could be, each with its p: one change, the most distant first; then
        several at once, since what hides a step are others beside it: of them the largest p."""
        places = sorted(self.places(), key=lambda one: one.rank, reverse=True)
        for place in places:
            yield self.taken(place), place.p
        yield from self._together(("step",))  # as a level and back, which no outlier is to hide
        yield from self._together(("step", "outlier"))

    def _together(self, kinds: Sequence[Kind]) -> Iterator[tuple[Division, float]]:
        """Changes of these kinds, the most distant one after the other, from two on."""
        trial = self
        for depth in range(min(TOGETHER, (self.count - 2) // RUNS_EACH)):
            places = [one for one in trial.places() if one.kind in kinds]
            best = max(places, key=lambda one: one.rank, default=None)
            if best is None or best.beyond < WORTH_A_LOOK:
                return
            trial = trial.taken(best)
            if depth:
                new = [at for at, mark in trial.marks.items() if self.marks.get(at) != mark]
                tested = {at: trial.by_itself(at) for at in new}
                marks = {at: (trial.marks[at][0], p) for at, p in tested.items()}
                yield replace(trial, marks={**self.marks, **marks}), max(tested.values())

    def places(self) -> list[Split]:
        """The best place of each kind: most standard errors, with runs that depend on each other
        regarded."""
        df = self.count - len(self.segments) - 1
        if df < LASTING or (len(self.segments) == 1 and self.count < FEWEST_RUNS):
            return []
        squares = self.within()
        best: dict[Kind, Split] = {}
        for segment, own in enumerate(self.segments):
            for kind, first, last, center, each in _candidates([self.logs[at] for at in own]):
                spread = math.sqrt(max(squares - center**2 / each, 0.0) / df)
                beyond = _beyond(center, spread * math.sqrt(each))
                if kind not in best or (beyond, abs(center)) > best[kind].rank:
                    best[kind] = Split(kind, segment, first, last, beyond, center)
        return [replace(one, p=self._p(one, df)) for one in best.values()]

    def _p(self, place: Split, df: int) -> float:
        taken = self.taken(place)
        alike = inflation(taken.residuals, len(taken.segments))
        return adjusted(place.beyond, alike, df, len(self.logs))

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

    def by_itself(self, at: int) -> float:
        """The p of one mark with all others as they are, adjusted."""
        df = self.count - len(self.segments)
        before, after = self.beside(at)
        center = self.center(after) - self.center(before)
        se = math.sqrt(self.within() / df * (1 / len(before) + 1 / len(after)))
        alike = inflation(self.residuals, len(self.segments))
        return adjusted(_beyond(center, se), alike, df, len(self.logs))

    def beside(self, at: int) -> tuple[Sequence[int], Sequence[int]]:
        """Of a mark the runs before it and those after: two levels, or a level and an outlier."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after[0] == at:
                return before, after
        own = next((one for one in reversed(self.segments) if one[0] < at), self.segments[0])
        return own, (at,)

    def shared(self, rest: int) -> Division:
        """With p of marks adjusted for so many rows."""
        marks = {at: (kind, min(1.0, rest * p)) for at, (kind, p) in self.marks.items()}
        return replace(self, marks=marks)


def _candidates(logs: Sequence[float]) -> Iterator[tuple[Kind, int, int, float, float]]:
    """Kind, first run and the one behind the last, their mean less that of the others, and the sum
    of 1/n of both."""
    count = len(logs)
    sums = [0.0, *accumulate(logs)]
    for first in range(LASTING, count - LASTING + 1):
        behind = count - first
        center = (sums[count] - sums[first]) / behind - sums[first] / first
        yield "step", first, count, center, 1 / behind + 1 / first
    if count > FEWEST_LIKE:
        for first, log in enumerate(logs):
            center = log - (sums[count] - log) / (count - 1)
            yield "outlier", first, first + 1, center, 1 + 1 / (count - 1)


def _beyond(center: float, se: float) -> float:
    """How many standard errors a difference is; 0 where there is none but by rounding."""
    if abs(center) <= ROUNDING:
        return 0.0
    return abs(center) / se if se > 0 else math.inf


def adjusted(beyond: float, alike: float, df: int, runs: int) -> float:
    """Two-sided p of a difference of so many standard errors, such that up to 0.05 it is at the
    level of a test in a history of so many runs. `alike`: the inflation of errors."""
    if math.isinf(beyond):
        return 0.0
    p = p_beyond(Interval(beyond / alike, 1.0, df, 2, 2), 0.0)
    return min(1.0, (1 - CONFIDENCE) * p / level_of_test(runs))


def correlation(residuals: Sequence[float], means: int) -> float:
    """From one run to the next, of what `means` levels left, where it is more than chance, up to
    0.8; corrected for what fitting them takes away (about 1/n each). Else 0, and below
    CORRELATED_FROM runs."""
    count = len(residuals)
    squares = sum(one**2 for one in residuals)
    if count < CORRELATED_FROM or squares <= 0:
        return 0.0
    raw = sum(one * other for one, other in pairwise(residuals)) / squares
    r = min(0.8, raw + means / count)
    return r if r > CHANCE_SDS / math.sqrt(count) else 0.0


def inflation(residuals: Sequence[float], means: int) -> float:
    """By how much runs that depend on each other make the error of a mean larger: the square root
    of (1 + r) / (1 - r), that of many runs of an autoregressive series of order one."""
    r = correlation(residuals, means)
    return math.sqrt((1 + r) / (1 - r))


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
class Drift:
    """A series that moves all the time: `slope` of its logarithm a run, with its error `se` and
    `df`; `center` at the run `middle` (a position, not whole); `p`: adjusted."""

    slope: float
    se: float
    df: int
    center: float
    middle: float
    p: float

    @property
    def interval(self) -> Interval:
        """Of the ratio of one run to the one before."""
        return Interval(self.slope, self.se, self.df, self.df + 2, self.df + 2, pairs=False)

    def at(self, run: float) -> float:
        """The logarithm of the line at a run."""
        return self.center + self.slope * (run - self.middle)


@dataclass(frozen=True)
class Levels:
    """The levels of a series. `spread`: standard deviation of logarithms within levels, or around
    the line of a `drift`, with `df` degrees of freedom, None below one; `p`: adjusted, that nothing
    changed at all, None where there are too few runs to judge; `correlation`: from one run to the
    next, where it is more than chance."""

    levels: tuple[Level, ...]
    steps: tuple[LevelMark, ...] = ()
    outliers: tuple[LevelMark, ...] = ()
    spread: float | None = None
    df: int = 0
    p: float | None = None
    drift: Drift | None = None
    correlation: float = 0.0

    def level_of(self, at: int) -> int | None:
        """The level that a run belongs to, from 0; None for an outlier and what has no value."""
        return next((n for n, level in enumerate(self.levels) if at in level.runs), None)

    @property
    def expected(self) -> Interval | None:
        """Where one more run of the newest level, or of the drift, would lie, at 95 %; its ends are
        values."""
        if self.spread is None or not self.levels:
            return None
        last = self.levels[-1]
        if self.drift is None:
            return _interval(last.center, self.spread, self.df, len(last.runs), 1)
        run = max(last.runs) + 1
        se = math.hypot(
            self.spread * math.sqrt(1 + 1 / len(last.runs)),
            self.drift.se * (run - self.drift.middle),
        )
        return Interval(self.drift.at(run), se, self.df, len(last.runs), 1, pairs=False)


def levels_of(series: Sequence[Sequence[float | None]]) -> tuple[Levels, ...]:
    """The levels of each series: values above 0 of its runs in order of time, None where one has
    none. All series are judged together (Holm): of those that did not change any is marked at any
    night of a year in at most 1 - CONFIDENCE of all cases.

    Raises ValueError on a value that is not above 0.
    """
    whole = [Division.of(values) for values in series]
    tested = ((_p_of(one, len(whole)), at) for at, one in enumerate(whole))
    ranked = sorted((p, at) for p, at in tested if p is not None)
    fits = [_fit(one, None) for one in whole]
    alarms, largest = True, 0.0
    for rank, (p, at) in enumerate(ranked):
        rest = len(ranked) - rank
        largest = max(largest, min(1.0, rest * p))
        alarms = alarms and rest * p <= 1 - CONFIDENCE
        division = _divided(whole[at], rest) if alarms else whole[at]
        fits[at] = _fit(division, largest, rest if alarms else 0)
    return tuple(fits)


# ------------------------------------------------------------------------------ the search


def _p_of(division: Division, rows: int) -> float | None:
    """The smallest p of a first division, or of a drift; None with too few runs. One that is an
    alarm whatever the other rows have ends the search."""
    line = _line(division)
    least = None if line is None else line.p
    for _, p in division.further():
        least = p if least is None else min(least, p)
        if rows * least <= 1 - CONFIDENCE:
            break
    return least


def _divided(division: Division, rest: int) -> Division:
    """Divided until nothing more is found; `rest`: rows that the level of p is shared with."""
    while True:
        taken = next((one for one, p in division.further() if rest * p <= 1 - CONFIDENCE), None)
        if taken is None:
            return division.shared(rest)
        division = taken


def _line(division: Division) -> Drift | None:
    """The straight line through all runs but outliers; None with too few."""
    runs = sorted(at for own in division.segments for at in own)
    count = len(runs)
    if count <= FEWEST_RUNS:
        return None
    middle, center = statistics.fmean(runs), division.center(runs)
    width = sum((at - middle) ** 2 for at in runs)
    slope = sum((at - middle) * division.logs[at] for at in runs) / width
    rest = [division.logs[at] - center - slope * (at - middle) for at in runs]
    se, alike = math.sqrt(sum(one**2 for one in rest) / (count - 2) / width), inflation(rest, 2)
    p = adjusted(_beyond(slope, se), alike, count - 2, count)
    return Drift(slope, alike * se, count - 2, center, middle, p)


def _related(residuals: Sequence[float]) -> float:
    """The squares that an autoregressive series of order one leaves of residuals around a mean."""
    if len(residuals) < CORRELATED_FROM:
        return math.inf
    before = sum(one**2 for one in residuals[:-1])
    r = sum(one * other for one, other in pairwise(residuals)) / before if before else 0.0
    rest = sum((other - r * one) ** 2 for one, other in pairwise(residuals))
    return rest * len(residuals) / (len(residuals) - 1)


def _information(squares: float, count: int, parameters: int) -> float:
    """Schwarz's criterion (1978): the smaller the better."""
    if not count or math.isinf(squares):
        return math.inf
    return count * math.log(max(squares / count, 1e-24)) + parameters * math.log(count)


def _fit(division: Division, p: float | None, rest: int = 0) -> Levels:
    """What came out of a series: a drift where a line tells it better than its steps do; no step
    where runs that depend on each other tell it better. `p`: that nothing changed in it; `rest`:
    rows that share the level of a mark, 0: it has none."""
    count, line = division.count, _line(division)
    runs = tuple(sorted(at for own in division.segments for at in own))
    flat = replace(division, segments=(runs,) if runs else ())
    of_steps = _information(division.within(), count, 2 * len(division.segments) - 1)
    of_flat = _information(_related(flat.residuals), count, 2)
    if line is not None and rest and rest * line.p <= 1 - CONFIDENCE:
        rests = [division.logs[at] - line.at(at) for at in runs]
        squares = sum(one**2 for one in rests)
        if _information(squares, count, 2) < min(of_steps, of_flat):
            line = replace(line, p=min(1.0, rest * line.p))
            spread = math.sqrt(squares / line.df)
            marks = _marks(flat, flat.outliers, spread, line.df)
            related = correlation(rests, 2)
            level = Level(runs, line.center)
            return Levels((level,), (), marks, spread, line.df, p, line, related)
    if len(division.segments) > 1 and of_flat < of_steps:
        division = flat  # what looks like steps is told better by runs that depend on each other
    levels = tuple(Level(own, division.center(own)) for own in division.segments)
    df = count - len(division.segments)
    if df < 1:
        return Levels(levels, p=p)
    spread = math.sqrt(division.within() / df)
    outliers = division.outliers
    steps_at = [at for at in division.marks if at not in outliers]
    return Levels(
        levels,
        _marks(division, steps_at, spread, df),
        _marks(division, outliers, spread, df),
        *(spread, df, p),
        correlation=correlation(division.residuals, len(levels)),
    )


def _marks(
    division: Division, places: Sequence[int], spread: float, df: int
) -> tuple[LevelMark, ...]:
    """The steps or outliers at these runs, in order of time."""
    marks = []
    for at in sorted(set(places) & set(division.marks)):
        before, after = division.beside(at)
        center = division.center(after) - division.center(before)
        interval = _interval(center, spread, df, len(before), len(after))
        marks.append(LevelMark(at, interval, division.marks[at][1]))
    return tuple(marks)


def _interval(center: float, spread: float, df: int, others: int, runs: int) -> Interval:
    """Of so many runs to so many others, with a spread that is common to all."""
    se = spread * math.sqrt(1 / others + 1 / runs)
    return Interval(center, se, df, others, runs, pairs=False)
