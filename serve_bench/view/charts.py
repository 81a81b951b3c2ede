"""Charts as data: figures by place and series; report/drawing.py draws them.

Rule: figures and their names alone, no look. A chart has points, and none of them at zero on a log
axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from serve_bench.core.figures import LowerBound

Kind: TypeAlias = Literal["dots", "bars", "heat map", "lines"]
"""`dots`: a row for each `x`, a dot with its interval for each series; on a log axis where figures
differ by a factor of 100. `bars`: a bar for each `x`, made of a part for each series. `heat map`:
`x` across, series down, the figure in each cell. `lines`: a line for each series over `x`."""

XScale: TypeAlias = Literal["linear", "log", "time", "share"]
"""Of lines. `time`: seconds, a part of which can be shown; `share`: of requests, as `nines`."""


@dataclass(frozen=True)
class Point:
    """A figure; `low` and `high` are the ends of its interval."""

    x: float | str  # the name of its row or column, or a number
    value: float
    series: str  # what is compared, in a colour each
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart of figures.

    `threshold`: the points are ratios and their series verdicts, on a log axis with a band of 1 ±
    this share; an end of an interval that is 0 or infinite is drawn to the end of the axis.
    `log_y`, `marks`, `joined`: of lines."""

    title: str
    kind: Kind
    points: Sequence[Point]
    unit: str  # of its figures
    x_name: str = ""  # what `x` is
    caption: str = ""  # under the chart
    threshold: float | None = None
    x_scale: XScale = "linear"
    log_y: bool | None = False  # None: where figures differ by a factor of 100, else from zero
    marks: Sequence[tuple[float, str]] = ()  # places on the x axis with their names
    joined: bool = True  # whether points are
    # A series that is one of several of a thing (a variant) has the colour of that.
    things: Mapping[str, str] = field(default_factory=dict)

    @property
    def series(self) -> list[str]:
        """The names of its series, in their order."""
        return list(dict.fromkeys(point.series for point in self.points))


AT_LEAST: Final = "Arrow: a lower bound, because some requests had no response."

MOST_LINES: Final = 8
"""Of one chart: more colours than that cannot be distinguished."""


def nines(share: float) -> float:
    """Return the place of a share below 1 on an axis of nines: 0.99 of requests are 99 of 100."""
    return float(f"{1 / (1 - share):.9g}")


def split_lines(chart: Chart) -> Iterator[Chart]:
    """Yield the lines in charts of at most MOST_LINES; captions explain a LowerBound's arrow."""
    names = chart.series
    parts = [names[start : start + MOST_LINES] for start in range(0, len(names), MOST_LINES)]
    for number, shown in enumerate(parts, 1):
        points = [point for point in chart.points if point.series in shown]
        bounded = any(isinstance(point.value, LowerBound) for point in points)
        caption = f"{chart.caption} {AT_LEAST}".strip() if bounded else chart.caption
        part = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        yield replace(chart, title=f"{chart.title}{part}", points=points, caption=caption)


def stack_bars(title: str, bars: Mapping[str, Mapping[str, float]], unit: str) -> Iterator[Chart]:
    """Yield a chart of bars: the largest parts in a colour each, the others as one."""
    most = Counter[str]()
    for parts in bars.values():
        most |= Counter(parts)
    large = [name for name, _ in most.most_common(MOST_LINES - 1)]
    points = []
    for bar, parts in bars.items():
        small = sum(value for name, value in parts.items() if name not in large)
        shown = {**{name: parts[name] for name in parts if name in large}, "the rest": small}
        points += [Point(bar, value, name) for name, value in shown.items() if value > 0]
    if points:
        yield Chart(title, "bars", points, unit)
