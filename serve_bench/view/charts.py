"""Charts as data: what is drawn, by kind; report/vega.py makes Vega-Lite of it.

Rule: figures and their names alone, no look. What has no place in a chart (no points, a value of
zero on a log axis) raises ValueError where the chart is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Point:
    """A figure of a row: `label` names the row, `group` what is held against each other (variants,
    say). `low` and `high` are the ends of its interval, where there is one."""

    label: str
    group: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Dots:
    """A dot with its interval for each point, coloured by group, its figure to the right. From
    zero; on a log axis where the values differ by a factor of 100."""

    points: Sequence[Point]
    unit: str

    def __post_init__(self) -> None:
        _some(self.points, "points")


@dataclass(frozen=True)
class Ratio:
    """B/A of a metric of a row, with its interval and its verdict, a word of
    analysis/ratios.py. `high` may be infinite."""

    label: str
    metric: str
    ratio: float
    low: float
    high: float
    word: str


@dataclass(frozen=True)
class Ratios:
    """B/A of each metric with its interval on one log axis, around 1 and a band of 1 ± `threshold`
    (a share); verdicts by colour and shape. An end of an interval that is 0 or infinite is drawn to
    the end of the axis."""

    ratios: Sequence[Ratio]
    threshold: float

    def __post_init__(self) -> None:
        _some(self.ratios, "ratios")


@dataclass(frozen=True)
class BarPart:
    """A part of a bar. `label` names the bar, `part` what took so much (a process, a layer); `note`
    stands under the bar, such as what limited the row: of one part of the bar, or of all."""

    label: str
    part: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """A bar for each label, made of its parts, from zero, its sum behind it."""

    shares: Sequence[BarPart]
    unit: str

    def __post_init__(self) -> None:
        _some(self.shares, "shares")
        if any(one.value < 0 for one in self.shares):
            raise ValueError("a share below zero")


@dataclass(frozen=True)
class LinePoint:
    """A point of a line: `x` clients (replicas, bytes, seconds), a figure and the ends of its
    interval."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mark:
    """A place on the x axis of a chart of lines that has a name: a knee, a collapse."""

    x: float
    words: str


XScale: TypeAlias = Literal["linear", "log", "time", "share"]
"""Of lines. `time`: seconds, from zero; `share`: shares of requests below 1, each further nine of
which takes the same room."""


@dataclass(frozen=True)
class Lane:
    """What lanes of one time share: `seconds` of its axis, and `shades`, spans that are marked (the
    SLO is missed, say). The values of a `stepped` one hold until the next."""

    seconds: float
    shades: Sequence[tuple[float, float]] = ()
    stepped: bool = False


@dataclass(frozen=True)
class Happening:
    """Something at a moment: `kind` is its line, `who` what it is about."""

    x: float
    kind: str
    who: str = ""


@dataclass(frozen=True)
class Happenings:
    """What happened over time: a line for each kind, a point for each happening."""

    points: Sequence[Happening]
    lane: Lane
    unit: str = ""

    def __post_init__(self) -> None:
        _some(self.points, "points")


@dataclass(frozen=True)
class Lines:
    """A line for each series, its points with their intervals; from zero unless `log_y` (None: as
    far as values differ by a factor of 100). Each mark is a rule with its words over the plot.
    `band`: the ends of a band behind the lines, with a rule at 1. Points that depend on nothing but
    their own launch, such as rounds, are not `joined`. `parts`: of a series that is one of several
    of a thing (a variant, a service) the thing, which is its colour, and which of it (a row, a
    percentile), which is its dash. `lane`: it stands under and over others of the same time."""

    series: Mapping[str, Sequence[LinePoint]]
    x_name: str
    unit: str
    x_scale: XScale = "linear"
    log_y: bool | None = False
    marks: Sequence[Mark] = ()
    band: tuple[float, float] | None = None
    joined: bool = True
    parts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    lane: Lane | None = None

    def __post_init__(self) -> None:
        steps = [step for line in self.series.values() for step in line]
        _some(steps, "points")
        places = [*(one.x for one in steps), *(one.x for one in self.marks)]
        if self.x_scale == "log" and min(places) <= 0:
            raise ValueError(f"{self.x_name} of 0 or less on a log axis")
        if self.log_y and min(one.value for one in steps) <= 0:
            raise ValueError("a value of 0 or less on a log axis")


Drawing: TypeAlias = Dots | Ratios | Bars | Lines | Happenings


@dataclass(frozen=True)
class Chart:
    """A chart. `words`: what it shows, for readers who cannot see it; `caption` stands under it."""

    title: str
    drawing: Drawing
    words: str
    caption: str = ""

    @property
    def in_lanes(self) -> bool:
        """Whether it stands under and over others of the same time."""
        drawing = self.drawing
        return isinstance(drawing, Happenings) or (
            isinstance(drawing, Lines) and drawing.lane is not None
        )


def _some(items: Sequence[object], name: str) -> None:
    if not items:
        raise ValueError(f"a chart without {name}")
