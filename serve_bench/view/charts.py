"""Charts as data: what is drawn, by kind; report/vega.py makes Vega-Lite of it.

Rule: figures and their names alone, no look. What has no place in a chart (no points, a value of
zero on a log axis) raises ValueError where the chart is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from serve_bench.core.figures import LowerBound


@dataclass(frozen=True)
class Point:
    """A figure of a row: `label` names the row, `group` what is compared (variants, say). `low` and
    `high` are the ends of its interval, where there is one."""

    label: str
    group: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Dots:
    """A dot with its interval for each point, coloured by group, its figure to the right. From
    zero; on a log axis where the values differ by a factor of 100. `threshold`: the points are
    ratios and their groups verdicts; they stand on a log axis around 1 and a band of 1 ± this
    share. An end of an interval that is 0 or infinite is drawn to the end of the axis."""

    points: Sequence[Point]
    unit: str
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a chart without points")


@dataclass(frozen=True)
class BarPart:
    """A part of a bar. `label` names the bar, `part` what took so much (a process, a layer); `note`
    stands below the label, such as what limited the row."""

    label: str
    part: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """A bar for each label, made of its parts, from zero, its sum behind it."""

    shares: Sequence[BarPart]
    unit: str


@dataclass(frozen=True)
class HeatCell:
    """A figure where `x` and `y`, names of values of dimensions, meet; `text`: it in words."""

    x: str
    y: str
    value: float
    text: str


@dataclass(frozen=True)
class HeatMap:
    """A matrix: the figure written in each cell, which is the darker the larger it is; where the
    values differ by a factor of 100, by their logarithm. What was not measured stays empty."""

    cells: Sequence[HeatCell]
    x_name: str
    unit: str


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


Pairs: TypeAlias = Sequence[tuple[float, float]]
Parts: TypeAlias = Mapping[str, tuple[str, str]]
NO_PARTS: Final[Parts] = {}

XScale: TypeAlias = Literal["linear", "log", "time", "share"]
"""Of lines. `time`: seconds, from zero; `share`: shares of requests below 1, each further nine of
which takes the same room."""


@dataclass(frozen=True)
class Lines:
    """A line for each series, its points with their intervals; from zero unless `log_y` (None: as
    far as values differ by a factor of 100). Each mark is a rule with its words. Points that depend
    on nothing but their own launch are not `joined`. `parts`: of a series that is one of several of
    a thing (a variant, a service) the thing, and which of it (a row, a percentile)."""

    series: Mapping[str, Sequence[LinePoint]]
    x_name: str
    unit: str
    x_scale: XScale = "linear"
    log_y: bool | None = False
    marks: Sequence[Mark] = ()
    joined: bool = True
    parts: Parts = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = [point for line in self.series.values() for point in line]
        if not points:
            raise ValueError("a chart without points")
        places = [*(point.x for point in points), *(mark.x for mark in self.marks)]
        if self.x_scale == "share" and max(places) >= 1:
            raise ValueError("a share of 1 has no place on the axis of nines")
        if self.x_scale == "log" and min(places) <= 0:
            raise ValueError(f"{self.x_name} of 0 or less on a log axis")
        if self.log_y and min(point.value for point in points) <= 0:
            raise ValueError("a value of 0 or less on a log axis")


Drawing: TypeAlias = Dots | Bars | HeatMap | Lines


@dataclass(frozen=True)
class Chart:
    """A chart. `words`: what it shows, for readers who cannot see it; without, a form has the ends
    of its figures. `caption` stands under it."""

    title: str
    drawing: Drawing
    words: str = ""
    caption: str = ""


AT_LEAST: Final = "Arrow: a lower bound, because some requests had no response."


def ladder(
    title: str,
    series: Mapping[str, Sequence[LinePoint]],
    x_name: str,
    unit: str,
    marks: Sequence[Mark] = (),
    log_x: bool = True,
    log_y: bool = False,
    caption: str = "",
    parts: Parts = NO_PARTS,
    joined: bool = True,
) -> Chart:
    """A figure over a growing load; a LowerBound has an arrow, which the caption explains. Raises
    ValueError for what has no place in the chart."""
    scale: XScale = "log" if log_x else "linear"
    lines = Lines(series, x_name, unit, scale, log_y, marks, joined, parts)
    if any(isinstance(point.value, LowerBound) for points in series.values() for point in points):
        caption = f"{caption} {AT_LEAST}".strip()
    return Chart(title, lines, caption=caption)
