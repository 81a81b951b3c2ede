"""Makers of charts: what each kind draws, in the order in which charts are mostly made.

The data types stand in view/charts.py; report/vega.py draws them. `words` describe a chart
for screen readers; without any, its figures are named. All raise ValueError for what has no place
in the chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from serve_bench.core.figures import LowerBound
from serve_bench.view.charts import BarPart as BarPart
from serve_bench.view.charts import Chart, Dots, Lines, Ratios, XScale
from serve_bench.view.charts import LinePoint as LinePoint
from serve_bench.view.charts import Mark as Mark
from serve_bench.view.charts import Point as Point
from serve_bench.view.charts import Ratio as Ratio
from serve_bench.view.texts import bounded_number, number

Pairs = Sequence[tuple[float, float]]
Parts = Mapping[str, tuple[str, str]]
"""Of series: the thing and which of it, as in view.charts.Lines."""

NO_PARTS: Final[Parts] = {}
AT_LEAST: Final = "Arrow: a lower bound, because some requests had no response."

MOST_NAMED: Final = 12
"""Points of one chart whose figures are all named; of more, the highest and the lowest."""


def intervals(
    title: str, points: Sequence[Point], unit: str, words: str = "", caption: str = ""
) -> Chart:
    if points and not words:
        ends = [pick(points, key=lambda one: one.value) for pick in (max, min)]
        shown = points if len(points) <= MOST_NAMED else ends
        some = "" if shown is points else ": the highest, the lowest"
        texts = (f"{one.label}, {one.group}: {number(one.value)} {unit}" for one in shown)
        words = f"{title} of {len(points)} rows{some}. {'; '.join(texts)}."
    return Chart(title, Dots(points, unit), words, caption)


def ratios(
    title: str, ratios: Sequence[Ratio], threshold: float, words: str, caption: str = ""
) -> Chart:
    """Ratios around 1, by verdict."""
    return Chart(title, Ratios(ratios, threshold), words, caption)


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
    steps = {name: [LinePoint(*one) for one in points] for name, points in series.items()}
    return Chart(title, Lines(steps, "seconds", unit, "time", None, parts=parts), words, caption)


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
    ends = [
        f"{name}: {bounded_number(steps[0].value)} at {steps[0].x:g}, "
        f"{bounded_number(steps[-1].value)} at {steps[-1].x:g}, at most "
        f"{bounded_number(top.value)} at {top.x:g}"
        for name, steps in series.items()
        if steps and not words
        for top in (max(steps, key=lambda one: one.value),)
    ]
    words = words or f"{title}, {unit} over {x_name}. {'; '.join(ends)}."
    scale: XScale = "log" if log_x else "linear"
    joined = joined and around is None
    lines = Lines(series, x_name, unit, scale, log_y, marks, around, joined, parts)
    bounds = any(isinstance(step.value, LowerBound) for line in series.values() for step in line)
    return Chart(title, lines, words, f"{caption} {AT_LEAST}".strip() if bounds else caption)
