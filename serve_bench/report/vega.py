"""Vega-Lite made of charts: the same kinds for all runs, for a page and for a picture.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, figures), and at widths of 340 to 1,100 pixels. Series take their
colours from `Looks` (theme.py), words and rules from the styles of the configuration. Texts stand
in data, never in an expression: field names are our own; `text` is what a mark says under the
pointer. Every point was measured and is drawn; lines only join those that belong together. The
script of a page adds legends, which switch series, and zooms where `usermeta` says so.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from serve_bench.core.figures import LowerBound, bounded_number, number, ratio_text
from serve_bench.report.theme import (
    DASHES,
    SHAPES,
    VERDICTS,
    Looks,
    colours_of,
    keep_light,
    looks_of,
    things_of,
)
from serve_bench.view.charts import Chart, Point, nines

Spec: TypeAlias = dict[str, Any]
Layers: TypeAlias = tuple[int, list[Spec]]
"""The height of a chart, and its layers."""

MOST_SAID: Final = 8
"""Figures that a description says all; of more the largest and the smallest."""

PLAIN: Final = "format(datum.value, ',~r')"
"""Numbers of an axis: thousands apart, no powers of ten, no digits that say nothing."""

WIDE: Final = 100.0
"""Values that differ by such a factor are drawn on a log axis: on a linear one all but the largest
would lie on its zero."""

MOST_DECADES: Final = 3
"""Of a log axis with ticks between the powers of ten."""

CHARACTER: Final = 6.7
"""Pixels of a character in about the mean, at the size of labels (12 pixels)."""

LINE, GAP, MARK_LINE = 18, 5, 14
"""Pixels: of a line of a chart with a row for each thing (an interval, a bar), between such rows,
and of the words of a mark. So few rows make a small chart and many a long one."""

FITS: Final = 28
"""Characters of a line of a label: they take half of a phone's width."""

HEIGHT: Final = 260
"""Pixels of a chart of lines, without its legend."""

FEW: Final = 30
"""Points of a line that are drawn large; more are small, so that they do not hide the line."""

SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""Where the axis of percentiles has its ticks."""
PERCENT: Final = "format(100 - 100 / datum.value, '.9~g') + ' %'"

SHAPE: Final = {"type": "point", "filled": True, "opacity": 1}
ARROW: Final = SHAPE | {"shape": "triangle-up", "filled": False, "size": 50, "yOffset": -9}
"""Over a figure that is only a lower bound."""

SAID: Final = 0.12
"""A part that takes such a share of the longest bar has its figure in it; less has no room."""

HEAT: Final = ("#deebf7", "#084081")
"""The smallest and the largest figure of a heat map: on light and dark grounds and on paper alike,
since its figures stand on them, from WHITE_FROM on in white (contrast of 4.5 or more)."""
WHITE_FROM: Final = 0.67

TOOLTIP: Final[Spec] = {"tooltip": {"field": "text"}}


def vega(chart: Chart, width: int | None = None, looks: Looks | None = None) -> Spec:
    """A chart as Vega-Lite: as wide as its place in a page, or so many pixels of a picture.
    `looks`: the names with a colour of the page or picture."""
    drawers = {"dots": _draw_dots, "bars": _draw_bars, "heat map": _draw_map, "lines": _draw_lines}
    values = [_datum(chart, point) for point in chart.points]
    look = look_of(chart, width, looks_of([chart]) if looks is None else looks)
    height, layers = drawers[chart.kind](chart, values, look)
    ranked = sorted(values, key=lambda datum: -datum["value"])
    few = values if len(values) <= MOST_SAID else [ranked[0], ranked[-1]]
    name = f"{chart.title}, " if chart.title else ""
    spec: Spec = {
        "description": f"{name}{len(values)} figures: {'; '.join(datum['text'] for datum in few)}.",
        **{"width": width or "container", "height": height},
        **{"data": {"values": values}, "layer": layers},
    }
    if width is not None:
        return keep_light(spec)
    zoom = {"zoom": chart.x_scale == "time"}
    return spec | {"autosize": {"type": "fit-x", "contains": "padding"}, "usermeta": zoom}


def _datum(chart: Chart, point: Point) -> Spec:
    """A figure as it is drawn, and in words. JSON has no word for an end that is not finite."""
    where = point.x if isinstance(point.x, str) else f"{point.x:,.4g}"
    where = f"{chart.x_name} {where}".strip()
    if chart.x_scale == "share" and not isinstance(point.x, str):
        where = f"{100 - 100 / point.x:.7g} %"
    ends = {"value": point.value, "low": point.low, "high": point.high}
    shown, low, high = (_figure(end, chart) for end in ends.values())
    interval = "" if None in ends.values() else f" ({low} to {high})"
    text = f"{point.series}, {where}: {shown} {chart.unit}{interval}"
    datum = {"group": point.series, "x": point.x, "shown": shown, "text": text}
    datum |= {"least": True} if isinstance(point.value, LowerBound) else {}
    known = {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}
    return datum | known


def _figure(value: float | None, chart: Chart) -> str:
    """As the tables of a report write it: times with three digits, others with four."""
    if chart.threshold is not None:
        return ratio_text(value)
    return bounded_number(value, 3 if chart.unit in ("ms", "us", "s") else 4)


def _draw_dots(chart: Chart, values: list[Spec], look: Spec) -> Layers:
    """Figures of rows by group, or ratios of A and B by verdict."""
    threshold, known = chart.threshold, known_ends(values)
    log = threshold is not None or wide(known)
    if threshold is not None:
        known = [1 - threshold, 1 + threshold, *(end for end in known if end > 0)]
    low, high = ends_of(known, log)
    for datum, point in zip(values, chart.points, strict=True):
        if point.low is not None and point.high is not None:
            datum |= {"low": max(point.low, low), "high": min(point.high, high)}
    x = axis("value", chart.unit, (low, high), log)
    y, height = rows_of(values, "x", len(chart.series) if threshold is None else 1)
    offset = {"field": "group", "type": "nominal", "scale": {"domain": chart.series}}
    place = {"y": y, "yOffset": offset} if threshold is None else {"y": y}
    room = CHARACTER * max(len(datum["shown"]) for datum in values) + 10
    said = {"type": "text", "align": "right", "dx": room}
    layers = [
        *([] if threshold is None else band(x, 1 - threshold, 1 + threshold)),
        interval("x", x, place | {"color": look["color"]}),
        layer(SHAPE | {"size": 75}, place | {"x": x} | look | TOOLTIP),
        layer(said, place | {"x": {"value": "width"}, "text": {"field": "shown"}}),
    ]
    return height, layers


def _draw_bars(chart: Chart, values: list[Spec], look: Spec) -> Layers:
    """Bars made of parts, such as the CPU of each process; a pixel is left free at the end of each
    part, which tells them apart without colour, and behind the longest bar there is room for its
    sum."""
    bars = {point.x: [of.value for of in chart.points if of.x == point.x] for point in chart.points}
    longest = max(map(sum, bars.values())) or 1.0
    for datum in values:
        datum["order"] = chart.series.index(datum["group"])
        datum["said"] = number(datum["value"], 3) if datum["value"] >= SAID * longest else ""
    y, height = rows_of(values, "x", 1)
    x = axis("value", chart.unit, (0.0, 1.16 * longest), False) | {"stack": "zero"}
    stacked = {"y": y, "x": x, "order": {"field": "order"}}
    middle = {"x": x | {"bandPosition": 0.5}, "detail": {"field": "group"}}
    total = {"aggregate": [{"op": "sum", "field": "value", "as": "total"}], "groupby": ["line"]}
    sum_text = {"field": "total", "type": "quantitative", "format": ",.3~r"}
    behind = {"y": y, "x": x | {"field": "total", "stack": None}, "text": sum_text}
    bar = {"type": "bar", "height": LINE - 4, "x2Offset": 1}
    layers = [
        layer(bar, stacked | {"color": look["color"]} | TOOLTIP),
        layer({"type": "text", "style": "segment"}, stacked | middle | {"text": {"field": "said"}}),
        layer({"type": "text", "align": "left", "dx": 5}, behind, total),
    ]
    return height, layers


def _draw_map(chart: Chart, values: list[Spec], look: Spec) -> Layers:
    """A figure over two dimensions: each cell has it in words, on a colour of its size."""
    figures = [datum["value"] for datum in values]
    sizes = [math.log(value) for value in figures] if wide(figures) else figures
    span = (max(sizes) - min(sizes)) or 1.0
    for datum, size in zip(values, sizes, strict=True):
        datum["size"] = (size - min(sizes)) / span
    y, height = rows_of(values, "group", 2)
    across = {
        **{"field": "x", "type": "nominal", "title": chart.x_name},
        "scale": {"domain": list(dict.fromkeys(datum["x"] for datum in values))},
        "axis": {"labelAngle": 0, "domain": False, "ticks": False},
    }
    place = {"y": y, "x": across} | TOOLTIP
    scale = {"domain": [0, 1], "range": list(HEAT)}
    colour = {"field": "size", "type": "quantitative", "scale": scale, "legend": None}
    white = {"test": f"datum.size >= {WHITE_FROM}", "value": "#ffffff"}
    ink = {"condition": white, "value": "#000000"}
    rect = {"type": "rect", "width": {"band": 0.98}, "height": {"band": 0.95}}
    layers = [
        layer(rect, place | {"color": colour}),
        layer({"type": "text"}, place | {"color": ink, "text": {"field": "shown"}}),
    ]
    return height, layers


def _draw_lines(chart: Chart, values: list[Spec], look: Spec) -> Layers:
    """Lines, the intervals of their points, the points, arrows over mere lower bounds, marks."""
    known, zoom, x = known_ends(values), chart.x_scale == "time", _x_axis(chart)
    log = wide(known) if chart.log_y is None else chart.log_y
    y = axis("value", chart.unit, ends_of([end for end in known if end > 0 or not log], log), log)
    dashed = {name: looks for name, looks in look.items() if name != "shape"}
    place = {"x": x, "y": y, "color": look["color"]}
    size = 50 if len(values) <= FEW * len(chart.series) else 15
    layers = [
        *([layer({"type": "line", "strokeWidth": 2}, place | dashed)] if chart.joined else []),
        interval("y", y, {"x": x, "color": look["color"]}),
        layer(SHAPE | {"size": size}, place | {"shape": look["shape"]} | TOOLTIP),
        layer(ARROW, place, {"filter": "isValid(datum.least)"}),
        *_draw_marks(chart.marks, x, inside=zoom),
    ]
    if zoom:  # a part of the time may be shown alone: what lies beyond is cut
        layers = [drawn | {"mark": drawn["mark"] | {"clip": True}} for drawn in layers]
    return HEIGHT, layers


def _x_axis(chart: Chart) -> Spec:
    """The axis of lines: from zero, or from the first point of a logarithmic one."""
    x = axis("x", chart.x_name, ends_of(chart.places, chart.log_x), chart.log_x)
    points = sorted({point.x for point in chart.points if not isinstance(point.x, str)})
    if chart.x_scale == "share":
        ticks = {"values": [nines(share) for share in SHARES], "labelExpr": PERCENT}
        x |= {"title": chart.x_name, "axis": x["axis"] | ticks}
    elif len(points) <= FEW and all(point == round(point) for point in points):
        x["axis"]["values"] = points  # of a load that was chosen
    return x


def _draw_marks(marks: Sequence[tuple[float, str]], x: Spec, inside: bool) -> Iterator[Spec]:
    """Rules with their words, over the plot, or at its top where it may be cut. All words stand on
    that side of their rules where there is room, and the farther from that side's end a rule is,
    the higher: so no rule goes through other words."""
    first, last = x["scale"]["domain"]
    middle = (first * last) ** 0.5 if x["scale"]["type"] == "log" else (first + last) / 2
    left = any(place > middle for place, _ in marks)
    side = {"align": "right", "dx": -4} if left else {"align": "left", "dx": 4}
    for turn, (place, words) in enumerate(sorted(marks, reverse=not left)):
        data = {"data": {"values": [{"x": place, "words": words}]}}
        up = 8 + MARK_LINE * (len(marks) - 1 - turn) if inside else -8 - MARK_LINE * turn
        rule = {"x": x, "y": {"value": up - 5}, "y2": {"value": HEIGHT}}
        yield data | layer({"type": "rule", "style": "mark", "strokeDash": [4, 3]}, rule)
        above = {"x": x, "y": {"value": up}, "text": {"field": "words"}}
        yield data | layer({"type": "text", "style": "note", **side}, above)


# What the charts share: axes, bands, intervals, rows, colours and shapes.


def layer(mark: Spec, encoding: Spec, *transforms: Spec) -> Spec:
    """A layer of a chart."""
    return {"mark": mark, "encoding": encoding, "transform": list(transforms)}


def known_ends(values: Sequence[Spec]) -> list[float]:
    """The figures of a chart, and the ends of their intervals."""
    return [datum[end] for datum in values for end in ("value", "low", "high") if end in datum]


def wide(values: Sequence[float]) -> bool:
    """Whether the values need a log axis; zero and less have no place on one."""
    return min(values) > 0 and max(values) / min(values) >= WIDE


def axis(field: str, title: str, ends: tuple[float, float], log: bool) -> Spec:
    """A figure on an axis from end to end, with round numbers. A log axis whose ends are near each
    other has the ticks of a linear one."""
    about: Spec = {"tickCount": 5}
    if log:
        powers = range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])))
        digits = (1, 2, 5) if len(powers) <= MOST_DECADES else (1,)
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
        about = {"values": ticks} if len(ticks) > 2 else about
    return {
        **{"field": field, "type": "quantitative", "title": f"{title} (log)" if log else title},
        "scale": {"type": "log" if log else "linear", "domain": list(ends), "nice": False},
        "axis": {**about, "labelExpr": PLAIN, "labelOverlap": "greedy"},
    }


def ends_of(values: Sequence[float], log: bool) -> tuple[float, float]:
    """The ends of an axis: from zero, or on a log one from the smallest, with room beyond."""
    low, high = min(values), max(values)
    if log:
        beyond = max((high / low) ** 0.06, 1.1)
        return low / beyond, high * beyond
    low, high = min(low, 0.0), max(high, 0.0)
    beyond = 0.06 * (high - low) or 1.0
    return low - beyond if low < 0 else 0.0, high + beyond if high > 0 else 0.0


def band(x: Spec, low: float, high: float) -> list[Spec]:
    """A band of an axis with a rule at 1, behind all else."""
    data = {"data": {"values": [{"low": low, "high": high, "one": 1}]}}
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    rule = layer({"type": "rule", "style": "mark"}, {"x": x | {"field": "one"}})
    return [data | layer({"type": "rect", "style": "band"}, ends), data | rule]


def interval(channel: str, scale: Spec, place: Spec) -> Spec:
    """Rules from `low` to `high`, where both are known."""
    known = {"filter": "isValid(datum.low) && isValid(datum.high)"}
    ends = {channel: scale | {"field": "low"}, f"{channel}2": {"field": "high"}}
    return layer({"type": "rule", "strokeWidth": 2, "opacity": 0.7}, place | ends, known)


def look_of(chart: Chart, width: int | None, looks: Looks) -> Spec:
    """Colours and shapes, and dashes where series share a colour, by the field `group` and their
    channels; in a picture (`width` pixels) with a legend below."""
    names, things = chart.series, things_of(chart)
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    ranges: dict[str, Sequence[Any]] = {"color": colours_of(things, looks), "shape": shapes}
    turns = [things[:place].count(thing) for place, thing in enumerate(things)]
    if any(turns):
        ranges["strokeDash"] = [DASHES[turn % len(DASHES)] for turn in turns]
    if chart.threshold is not None:
        verdicts = zip(*(VERDICTS[name] for name in names), strict=True)
        ranges = dict(zip(("color", "shape"), verdicts, strict=True))
    legend: Spec | None = None
    if width is not None:
        columns = max(1, width // (CHARACTER * max(map(len, names)) + 36))
        legend = {"title": None, "orient": "bottom", "offset": 6, "columns": columns}
        legend |= {"labelLimit": width - 40, "symbolOpacity": 1, "symbolDash": [1, 0]}
    return {
        channel: {
            **{"field": "group", "type": "nominal"},
            "scale": {"domain": names, "range": list(looks)},
            "legend": None if channel == "strokeDash" else legend,
        }
        for channel, looks in ranges.items()
    }


def rows_of(values: Sequence[Spec], name: str, lines: int) -> tuple[Spec, int]:
    """The rows of a chart, with their labels, those of a field, to the left: their place by the
    field `line`, which is set to the lines of the label, and the height of all in pixels. All are
    as high as the longest label needs, and at least `lines` lines."""
    for datum in values:
        datum["line"] = "\n".join(textwrap.wrap(datum[name], FITS))
    labels = list(dict.fromkeys(datum["line"] for datum in values))
    lines = max(lines, *(label.count("\n") + 1 for label in labels))
    about = {"labelExpr": "split(datum.value, '\\n')", "labelLimit": 0, "title": None}
    y = {
        **{"field": "line", "type": "ordinal", "scale": {"domain": labels}},
        "axis": {**about, "labelOverlap": False, "ticks": False, "domain": False},
    }
    return y, len(labels) * (LINE * lines + GAP)
