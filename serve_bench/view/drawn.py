"""Makers of charts: what each kind draws, in the order in which charts are mostly made.

The data types stand in view/charts.py; report/vega.py draws them. `words` describe a chart for
screen readers; without any, its ends are named. All raise ValueError for what has no place in the
chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from serve_bench.core.figures import LowerBound
from serve_bench.view.charts import BarPart as BarPart
from serve_bench.view.charts import Chart, Dots, HeatCell, HeatMap, Lines, XScale
from serve_bench.view.charts import LinePoint as LinePoint
from serve_bench.view.charts import Mark as Mark
from serve_bench.view.charts import Point as Point
from serve_bench.view.texts import bounded_number

Pairs = Sequence[tuple[float, float]]
Parts = Mapping[str, tuple[str, str]]
"""Of series: the thing and which of it, as in view.charts.Lines."""

NO_PARTS: Final[Parts] = {}
AT_LEAST: Final = "Arrow: a lower bound, because some requests had no response."


def describe(title: str, unit: str, figures: Mapping[str, float]) -> str:
    """The highest and the lowest of some figures by name, as a description of their chart."""
    high, low = (pick(figures, key=lambda name: figures[name]) for pick in (max, min))
    ends = (f"{name}: {bounded_number(figures[name])}" for name in dict.fromkeys((high, low)))
    return f"{title}, {unit}, {len(figures)} figures; {'; '.join(ends)}."


def intervals(
    title: str, points: Sequence[Point], unit: str, words: str = "", caption: str = ""
) -> Chart:
    """Figures of rows with their intervals."""
    drawing = Dots(points, unit)
    named = {f"{point.label}, {point.group}": point.value for point in points}
    return Chart(title, drawing, words or describe(title, unit, named), caption)


def heat_map(
    title: str, cells: Sequence[HeatCell], x_name: str, unit: str, caption: str = ""
) -> Chart:
    """A figure over two dimensions, or more of which some share an axis."""
    drawing = HeatMap(cells, x_name, unit)
    named = {f"{x_name} {cell.x}, {cell.y}": cell.value for cell in cells}
    return Chart(title, drawing, describe(title, unit, named), caption)


def percentile_curves(
    title: str, curves: Mapping[str, Pairs], words: str, caption: str = "", parts: Parts = NO_PARTS
) -> Chart:
    """Latency in ms (log) over the share of requests that were no slower, (share, ms). A share of
    1, the maximum, has no place on the axis and is left out."""
    series = {
        name: [LinePoint(share, value) for share, value in points if share < 1]
        for name, points in curves.items()
    }
    x_name = "share of requests that were no slower"
    lines = Lines(series, x_name, "latency, ms", "share", True, parts=parts)
    return Chart(title, lines, words, caption)


def over_time(
    title: str,
    series: Mapping[str, Pairs],
    unit: str,
    words: str,
    caption: str = "",
    parts: Parts = NO_PARTS,
) -> Chart:
    """A figure over time, (seconds, value)."""
    points = {name: [LinePoint(*pair) for pair in pairs] for name, pairs in series.items()}
    return Chart(title, Lines(points, "seconds", unit, "time", None, parts=parts), words, caption)


def ladder(
    title: str,
    series: Mapping[str, Sequence[LinePoint]],
    x_name: str,
    unit: str,
    words: str = "",
    marks: Sequence[Mark] = (),
    log_x: bool = True,
    log_y: bool = False,
    caption: str = "",
    around: tuple[float, float] | None = None,
    parts: Parts = NO_PARTS,
    joined: bool = True,
) -> Chart:
    """A figure over a growing load; a LowerBound has an arrow, which the caption explains.
    `around`: the ends of a band behind rounds, which no line joins."""
    scale: XScale = "log" if log_x else "linear"
    joined = joined and around is None
    lines = Lines(series, x_name, unit, scale, log_y, marks, around, joined, parts)
    named = {
        f"{name} at {x_name} {point.x:g}": point.value
        for name, points in series.items()
        for point in points
    }
    if any(isinstance(value, LowerBound) for value in named.values()):
        caption = f"{caption} {AT_LEAST}".strip()
    return Chart(title, lines, words or describe(title, unit, named), caption)
