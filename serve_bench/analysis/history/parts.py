"""The words of a history: a run in it, a series of runs, a group of runs that are alike.

Pure; plain, frozen content. Rule: what has no value has its place too: a run in which a row was not
measured, a figure that is invalid, a run that was passed over. Groups are made in the package
itself, levels in levels.py; the reports draw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.comparing.doubts import Doubt
from serve_bench.analysis.comparing.values import Measure
from serve_bench.analysis.comparison import Interval
from serve_bench.analysis.history.levels import Levels, Mark
from serve_bench.core.result import JsonObject, Result, Run

FEWEST_ALIKE: Final = 2
"""Runs that make a history; how many a step takes, levels.py says."""

Word: TypeAlias = Literal["regressed", "improved"]


@dataclass(frozen=True)
class Stored:
    """A run that was found, and where."""

    where: str
    result: Result


@dataclass(frozen=True)
class PassedOver:
    """What was found and is in no series, with the reason in one line.

    `started_at`: of the run, of a file that cannot be read when it was last written; empty where it
    does not matter. `late`: it is newer than the runs of the history where it would stand, so that
    the newest of those is not the last that was measured.
    """

    where: str
    why: str
    started_at: str = ""
    late: bool = False


@dataclass(frozen=True)
class Chosen:
    """What a person wants to see alone; None: all. `cell` as in the names of trials, such as
    bs1-mcq1-rep1; `last`: so many runs of each group, the newest."""

    variant: str | None = None
    cell: str | None = None
    row: str | None = None
    last: int | None = None


@dataclass(frozen=True)
class Night:
    """A run of a history. `changed`: what is not as in the run before, `ray 2.59.0 -> 2.60.0`;
    `doubts`: about the run as a whole."""

    where: str
    run: Run
    versions: Mapping[str, str]
    changed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A run in a series. `value`: geometric mean over its launches, None where it was not measured;
    `interval`: of that mean at 95 %, its ends as values, None below three launches; `invalid`: more
    than 1 % of the requests failed, so that the value is in no level."""

    value: float | None = None
    by_launch: Mapping[int, float] = field(default_factory=dict)
    interval: Interval | None = None
    invalid: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def judged(self) -> float | None:
        """The value, where it may enter a level."""
        return None if self.invalid else self.value


@dataclass(frozen=True)
class Series:
    """A metric of a row over the runs of its history; `points` has one for each run. `news`: the
    marks that are there with the newest run and were not without it; `gap`: why the newest run
    cannot be judged, where the one before could or requests failed; else empty."""

    variant: str
    cell: JsonObject
    row: str
    client: str
    measure: Measure
    points: tuple[Point, ...]
    found: Levels
    news: tuple[Mark, ...] = ()
    gap: str = ""

    @property
    def metric(self) -> str:
        """Its name."""
        return self.measure.name

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Steps and outliers in order of time."""
        return tuple(sorted((*self.found.steps, *self.found.outliers), key=lambda one: one.at))

    def word(self, mark: Mark) -> Word:
        """Whether a mark is for the worse or the better."""
        up = mark.interval.center > 0
        return "improved" if up == (self.measure.better == "higher") else "regressed"

    def is_step(self, mark: Mark) -> bool:
        """A step, not an outlier."""
        return mark in self.found.steps


@dataclass(frozen=True)
class Group:
    """The runs of one suite on one host, in order of time, and the series of all their rows."""

    nights: tuple[Night, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Run:
        """Its oldest run."""
        return self.nights[0].run

    @property
    def newest(self) -> Run:
        """Its newest run."""
        return self.nights[-1].run


@dataclass(frozen=True)
class History:
    """All groups of two runs and more, the largest first, and what was passed over."""

    groups: tuple[Group, ...]
    passed: tuple[PassedOver, ...]
    found: int
    threshold: float
    metrics: tuple[str, ...]
    forced: bool = False
