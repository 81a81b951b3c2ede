"""Makers of the charts that several modules draw. The data types stand in view/charts.py;
report/vega.py draws them. All raise ValueError for what has no place in the chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from serve_bench.core.figures import LowerBound
from serve_bench.view.charts import (
    Chart,
    Dots,
    HeatCell,
    HeatMap,
    LinePoint,
    Lines,
    Mark,
    Point,
    XScale,
)

Pairs = Sequence[tuple[float, float]]
Parts = Mapping[str, tuple[str, str]]
"""Of series: the thing and which of it, as in view.charts.Lines."""

NO_PARTS: Final[Parts] = {}
AT_LEAST: Final = "Arrow: a lower bound, because some requests had no response."


def intervals(title: str, points: Sequence[Point], unit: str, caption: str = "") -> Chart:
    """Figures of rows with their intervals."""
    return Chart(title, Dots(points, unit), caption=caption)


def heat_map(
    title: str, cells: Sequence[HeatCell], x_name: str, unit: str, caption: str = ""
) -> Chart:
    """A figure over two dimensions, or more of which some share an axis."""
    return Chart(title, HeatMap(cells, x_name, unit), caption=caption)


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
    """A figure over a growing load; a LowerBound has an arrow, which the caption explains."""
    scale: XScale = "log" if log_x else "linear"
    lines = Lines(series, x_name, unit, scale, log_y, marks, joined, parts)
    if any(isinstance(point.value, LowerBound) for points in series.values() for point in points):
        caption = f"{caption} {AT_LEAST}".strip()
    return Chart(title, lines, caption=caption)
