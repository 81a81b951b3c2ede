"""Charts of lines as Vega-Lite: percentile curves, figures over time, over a growing load.

Rule: every point was measured and is drawn; lines only join those that belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from serve_bench.core.figures import LowerBound, number
from serve_bench.report.theme import DASHES, SHAPES, Looks, colours_of, things_of
from serve_bench.report.vega import (
    SHAPE,
    TOOLTIP,
    Look,
    Spec,
    axis,
    band,
    ends_of,
    finite,
    interval,
    layer,
    wide,
)
from serve_bench.view.charts import Lines, Mark

HEIGHT: Final = 260
"""Pixels of a chart of lines, without its legend."""

FEW: Final = 30
"""Points of a line that are drawn large; more are small, so that they do not hide the line."""

MARK_LINE: Final = 14
"""Pixels of a line of the words of a mark."""

SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""Where the axis of percentiles has its ticks."""

ARROW: Final[Spec] = SHAPE | {"shape": "triangle-up", "filled": False, "size": 50, "yOffset": -9}
"""Over a figure that is only a lower bound."""


def lines(chart: Lines, width: int | None, looks: Looks) -> Spec:
    """The height, the data and the layers of a chart of lines."""
    values = list(_values(chart))
    ends = [end for datum in values for end in (datum["value"], datum["low"], datum["high"])]
    known = [end for end in (*ends, *(chart.band or ())) if end is not None]
    log = wide(known) if chart.log_y is None else chart.log_y
    y = axis("value", chart.unit, ends_of([end for end in known if end > 0 or not log], log), log)
    x, time = _x_axis(chart), chart.x_scale == "time"
    layers: list[Spec] = [] if chart.band is None else [*band("y", y, chart.band)]
    things = things_of(chart)
    turns = [things[:place].count(thing) for place, thing in enumerate(things)]
    dashes = [DASHES[turn % len(DASHES)] for turn in turns] if any(turns) else ()
    look = Look(list(chart.series), colours_of(things, looks), SHAPES, width, dashes=dashes)
    layers += _layers(chart, values, x, y, look)
    layers += _marks(chart.marks, x, HEIGHT, inside=time)
    spec: Spec = {"height": HEIGHT, "data": {"values": values}, "layer": layers, **look.meta}
    if time:  # a part of the time may be shown alone: what lies beyond is cut
        spec["usermeta"] = {**spec.get("usermeta", {}), "zoom": True}
        for drawn in layers:
            drawn["mark"] = {**drawn["mark"], "clip": True}
    return spec


def _values(chart: Lines) -> Iterator[Spec]:
    """The points of all lines; of a load in its order."""
    share = chart.x_scale == "share"
    for name, points in chart.series.items():
        if chart.x_scale in ("linear", "log"):
            points = sorted(points, key=lambda point: point.x)
        for point in points:
            where = f"{100 * point.x:.7g} %" if share else f"{chart.x_name} {point.x:,.4g}"
            text = f"{name}, {where}: {number(point.value)} {chart.unit}"
            figures = {key: finite(figure) for key, figure in asdict(point).items()}
            datum = {"group": name, "text": text, **figures}
            if share:
                datum |= {"x": _nines(point.x), "share": point.x}
            if isinstance(point.value, LowerBound):
                datum["least"] = True
            yield datum


def _nines(share: float) -> float:
    """Where a share stands: each further nine takes the same room on a log axis."""
    return float(f"{1 / (1 - share):.9g}")


def _x_axis(chart: Lines) -> Spec:
    points = {point.x for line in chart.series.values() for point in line}
    places = sorted([*points, *(mark.x for mark in chart.marks)])
    first, last, log = places[0], places[-1], chart.x_scale in ("log", "share")
    if chart.x_scale == "time":
        return axis("x", chart.x_name, (0.0, max(1.01 * last, 1.0)), False)
    if chart.x_scale == "share":
        first, last = _nines(first), _nines(last)
    if log:
        beyond = (last / first) ** 0.03 if last > first else 2.0
        x = axis("x", chart.x_name, (first / beyond, last * beyond), True)
    else:
        beyond = 0.04 * (last - first) or 1.0
        x = axis("x", chart.x_name, (first - beyond, last + beyond), False)
    if chart.x_scale == "share":
        ticks = [tick for tick in map(_nines, SHARES) if tick <= last]
        percent = "format(100 - 100 / datum.value, '.9~g') + ' %'"
        x |= {"title": chart.x_name, "axis": x["axis"] | {"values": ticks, "labelExpr": percent}}
    elif len(points) <= FEW and all(point == round(point) for point in points):
        x["axis"]["values"] = sorted(points)  # of a load that was chosen
    return x


def _layers(chart: Lines, values: Sequence[Spec], x: Spec, y: Spec, look: Look) -> Iterator[Spec]:
    """Lines, the intervals of their points, the points, arrows over mere lower bounds."""
    place = {"x": x, "y": y, **look.encode("color")}
    if chart.joined:
        yield layer({"type": "line", "strokeWidth": 2}, place | look.encode("strokeDash"))
    if any(datum["low"] is not None for datum in values):
        yield interval("y", y, {"x": x, **look.encode("color")})
    size = 50 if max(map(len, chart.series.values())) <= FEW else 15
    yield layer(SHAPE | {"size": size}, place | look.encode("shape") | TOOLTIP)
    if any("least" in datum for datum in values):
        yield {"transform": [{"filter": "datum.least"}], **layer(ARROW, place)}


def _marks(marks: Sequence[Mark], x: Spec, height: int, inside: bool) -> Iterator[Spec]:
    """Rules with their words, over the plot, or at its top where it may be cut. All words stand on
    that side of their rules where there is room, and the farther from that side's end a rule is,
    the higher: so no rule goes through other words."""
    first, last = x["scale"]["domain"]
    middle = (first * last) ** 0.5 if x["scale"]["type"] == "log" else (first + last) / 2
    left = any(mark.x > middle for mark in marks)
    side = {"align": "right", "dx": -4} if left else {"align": "left", "dx": 4}
    for turn, mark in enumerate(sorted(marks, key=lambda mark: mark.x if left else -mark.x)):
        data = {"values": [asdict(mark)]}
        up = 8 + MARK_LINE * (len(marks) - 1 - turn) if inside else -8 - MARK_LINE * turn
        rule = {"x": x, "y": {"value": up - 5}, "y2": {"value": height}}
        dashed = {"type": "rule", "style": "mark", "strokeDash": [4, 3]}
        yield {"data": data, **layer(dashed, rule)}
        words = {"x": x, "y": {"value": up}, "text": {"field": "words"}}
        yield {"data": data, **layer({"type": "text", "style": "note", **side}, words)}
