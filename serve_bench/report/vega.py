"""Vega-Lite made of charts: the same kinds for all runs, for a page and for a picture.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, figures), and at widths of 340 to 1,100 pixels. Series take their
colours from `Looks` (theme.py), words and rules from the styles of the configuration. Texts stand
in data, never in an expression: field names are our own; `text` is what a mark says under the
pointer. Every point was measured and is drawn; lines only join those that belong together. In a
page `usermeta` says what its script adds: `legend`, which switches series, and `zoom`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import singledispatch
from itertools import cycle, islice
from typing import Any, Final, TypeAlias

from serve_bench.core.figures import LowerBound, number, ratio_text
from serve_bench.report.theme import (
    DASHES,
    SHAPES,
    Looks,
    colours_of,
    keep_light,
    looks_of,
    things_of,
)
from serve_bench.view.charts import Bars, Chart, Dots, HeatMap, Lines, Mark
from serve_bench.view.texts import bounded_number

Spec: TypeAlias = dict[str, Any]

PLAIN: Final = "format(datum.value, ',~r')"
"""Numbers of an axis: thousands apart, no powers of ten, no digits that say nothing."""

WIDE: Final = 100.0
"""Values that differ by such a factor are drawn on a log axis: on a linear one all but the largest
would lie on its zero."""

MOST_TICKS: Final = 9
"""Of a log axis."""

CHARACTER: Final = 6.7
"""Pixels of a character in about the mean, at the size of labels (12 pixels)."""

LINE: Final = 18
GAP: Final = 5
"""Pixels of a line of a chart with a row for each thing (an interval, a bar, or words), and between
rows. So few rows make a small chart and many a long one."""

FITS: Final = 28
"""Characters of a line of a label: they take half of a phone's width."""

HEIGHT: Final = 260
"""Pixels of a chart of lines, without its legend."""

FEW: Final = 30
"""Points of a line that are drawn large; more are small, so that they do not hide the line."""

MARK_LINE: Final = 14
"""Pixels of a line of the words of a mark."""

SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""Where the axis of percentiles has its ticks."""

VERDICTS: Final = {
    "regressed": ("#d6303a", "triangle-down"),
    "slower": ("#b8860b", "triangle-left"),
    "improved": ("#0c8f6e", "triangle-up"),
    "faster": ("#5a9e2f", "triangle-right"),
    "same": ("#3a82c0", "circle"),
    "inconclusive": ("#858c96", "diamond"),
}
"""Colour and shape of each verdict; each has a contrast of 3 or more with a white and with a dark
page (WCAG 1.4.11)."""

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
    `looks`: the names with a colour of the page or picture. Its description has the ends of its
    figures where the chart has no words."""
    looks = looks_of([chart.drawing]) if looks is None else looks
    spec = _draw(chart.drawing, width, looks)
    known = [datum for datum in spec["data"]["values"] if datum["value"] is not None]
    by_value = sorted(known, key=lambda datum: datum["value"])
    ends = dict.fromkeys(datum["text"] for datum in [*by_value[-1:], *by_value[:1]])
    named = f"{chart.title}, " if chart.title else ""
    words = chart.words or f"{named}{len(known)} figures: {'; '.join(ends)}."
    whole: Spec = {"description": words, "width": width or "container", **spec}
    if width is None:
        return whole | {"autosize": {"type": "fit-x", "contains": "padding"}}
    del whole["usermeta"]
    return keep_light(whole)


@singledispatch
def _draw(drawing: object, width: int | None, looks: Looks) -> Spec:
    """The height, the data, the layers, and what the script of a page needs."""
    raise TypeError(drawing)


@_draw.register
def _draw_dots(chart: Dots, width: int | None, looks: Looks) -> Spec:
    """Figures of rows by group, or ratios of A and B by verdict."""
    points, threshold = chart.points, chart.threshold
    ends = (finite(end) for point in points for end in (point.value, point.low, point.high))
    known = [end for end in ends if end is not None]
    if threshold is not None:
        known = [1 - threshold, 1 + threshold, *(end for end in known if end > 0)]
    log = threshold is not None or wide(known)
    low, high = ends_of(known, log)
    labels = [point.label for point in points]
    turns = [labels[:place].count(label) for place, label in enumerate(labels)]
    keys, y, height = rows_of(labels, 1 + max(turns))
    values: list[Spec] = []
    for turn, point in zip(turns, points, strict=True):
        shown, text = _figure(point.value, chart), ""
        if point.low is not None and point.high is not None:
            text = f" ({_figure(point.low, chart)} to {_figure(point.high, chart)})"
        values.append(
            {
                **{"line": keys[point.label], "turn": turn, "group": point.group},
                **{"label": point.label, "value": finite(point.value), "shown": shown},
                "low": None if point.low is None else max(point.low, low),
                "high": None if point.high is None else min(point.high, high),
                "text": f"{point.label}, {point.group}: {shown} {chart.unit}{text}",
            }
        )
    groups = list(dict.fromkeys(point.group for point in points))
    if threshold is None:
        look, meta = look_of(groups, width, colours_of(groups, looks), SHAPES)
    else:
        groups = [word for word in VERDICTS if word in groups]
        colours, shapes = zip(*(VERDICTS[word] for word in groups), strict=True)
        look, meta = look_of(groups, width, colours, shapes, least=1)
    x = axis("value", chart.unit, (low, high), log)
    offsets = {"domain": list(range(1 + max(turns)))}
    place = {"y": y, "yOffset": {"field": "turn", "type": "ordinal", "scale": offsets}}
    room = CHARACTER * max(len(datum["shown"]) for datum in values) + 10
    said = {"type": "text", "align": "right", "dx": room}
    layers: list[Spec] = [
        *([] if threshold is None else band("x", x, (1 - threshold, 1 + threshold))),
        interval("x", x, place | {"color": look["color"]}),
        layer(SHAPE | {"size": 75}, place | {"x": x} | look | TOOLTIP),
        layer(said, place | {"x": {"value": "width"}, "text": {"field": "shown"}}),
    ]
    return {"height": height, "data": {"values": values}, "layer": layers, "usermeta": meta}


def _figure(value: float, chart: Dots) -> str:
    """As the tables of a report write it: times with three digits, others with four."""
    if chart.threshold is not None:
        return f"{ratio_text(value)} x"
    return number(value, 3 if chart.unit in ("ms", "us", "s") else 4)


@_draw.register
def _draw_bars(chart: Bars, width: int | None, looks: Looks) -> Spec:
    """Bars made of parts, such as the CPU of each process; a pixel is left free at the end of each
    part, which tells them apart without colour, and behind the longest bar there is room for its
    sum."""
    parts = list(dict.fromkeys(share.part for share in chart.shares))
    sums: dict[str, float] = {}
    for share in chart.shares:
        sums[share.label] = sums.get(share.label, 0.0) + share.value
    longest = max(sums.values()) or 1.0
    notes = {share.label: share.note for share in chart.shares if share.note}
    keys, y, height = rows_of(sums, 1, notes)
    values = []
    for share in chart.shares:
        text = f"{share.label}: {share.part} {number(share.value, 3)} {chart.unit}"
        said = number(share.value, 3) if share.value >= SAID * longest else ""
        datum = {"line": keys[share.label], "group": share.part, "value": share.value}
        values.append(datum | {"order": parts.index(share.part), "said": said, "text": text})
    look, meta = look_of(parts, width, colours_of(parts, looks), ["square"])
    x = axis("value", chart.unit, (0.0, 1.16 * longest), False) | {"stack": "zero"}
    stacked = {"y": y, "x": x, "order": {"field": "order"}}
    middle = {"x": x | {"bandPosition": 0.5}, "detail": {"field": "group"}}
    total = {"aggregate": [{"op": "sum", "field": "value", "as": "total"}], "groupby": ["line"]}
    sum_text = {"field": "total", "type": "quantitative", "format": ",.3~r"}
    behind = {"y": y, "x": x | {"field": "total", "stack": None}, "text": sum_text}
    bar = {"type": "bar", "height": LINE - 4, "x2Offset": 1}
    layers: list[Spec] = [
        layer(bar, stacked | {"color": look["color"]} | TOOLTIP),
        layer({"type": "text", "style": "segment"}, stacked | middle | {"text": {"field": "said"}}),
        layer({"type": "text", "align": "left", "dx": 5}, behind, total),
    ]
    return {"height": height, "data": {"values": values}, "layer": layers, "usermeta": meta}


@_draw.register
def _draw_heat_map(chart: HeatMap, width: int | None, looks: Looks) -> Spec:
    """A figure over two dimensions: each cell has it in words, on a colour of its size."""
    keys, y, height = rows_of([cell.y for cell in chart.cells], 2)
    figures = [cell.value for cell in chart.cells]
    sizes = [math.log(value) for value in figures] if wide(figures) else figures
    span = (max(sizes) - min(sizes)) or 1.0
    values = []
    for cell, size in zip(chart.cells, sizes, strict=True):
        text = f"{chart.x_name} {cell.x}, {cell.y}: {cell.text} {chart.unit}"
        datum = {"line": keys[cell.y], "x": cell.x, "value": cell.value, "text": text}
        values.append(datum | {"shown": number(cell.value), "size": (size - min(sizes)) / span})
    across = {
        **{"field": "x", "type": "nominal", "title": chart.x_name},
        "scale": {"domain": list(dict.fromkeys(cell.x for cell in chart.cells))},
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
    return {"height": height, "data": {"values": values}, "layer": layers, "usermeta": {}}


@_draw.register
def _draw_lines(chart: Lines, width: int | None, looks: Looks) -> Spec:
    """Lines, the intervals of their points, the points, arrows over mere lower bounds, marks."""
    values = list(_line_values(chart))
    ends = (datum[end] for datum in values for end in ("value", "low", "high"))
    known = [end for end in ends if end is not None]
    log = wide(known) if chart.log_y is None else chart.log_y
    x = _x_axis(chart)
    y = axis("value", chart.unit, ends_of([end for end in known if end > 0 or not log], log), log)
    things, zoom = things_of(chart), chart.x_scale == "time"
    turns = [things[:place].count(thing) for place, thing in enumerate(things)]
    dashes = [DASHES[turn % len(DASHES)] for turn in turns] if any(turns) else []
    look, meta = look_of(list(chart.series), width, colours_of(things, looks), SHAPES, dashes)
    colour = {"color": look["color"]}
    place = {"x": x, "y": y, **colour}
    layers: list[Spec] = []
    if chart.joined:
        dashed = {"strokeDash": look["strokeDash"]} if dashes else {}
        layers.append(layer({"type": "line", "strokeWidth": 2}, place | dashed))
    if any(datum["low"] is not None for datum in values):
        layers.append(interval("y", y, {"x": x, **colour}))
    size = 50 if max(map(len, chart.series.values())) <= FEW else 15
    layers.append(layer(SHAPE | {"size": size}, place | {"shape": look["shape"]} | TOOLTIP))
    if any("least" in datum for datum in values):
        layers.append(layer(ARROW, place, {"filter": "datum.least"}))
    layers += _draw_marks(chart.marks, x, inside=zoom)
    if zoom:  # a part of the time may be shown alone: what lies beyond is cut
        meta["zoom"] = True
        layers = [drawn | {"mark": drawn["mark"] | {"clip": True}} for drawn in layers]
    return {"height": HEIGHT, "data": {"values": values}, "layer": layers, "usermeta": meta}


def _line_values(chart: Lines) -> Iterator[Spec]:
    """The points of all lines; of a load in its order."""
    share = chart.x_scale == "share"
    for name, points in chart.series.items():
        if chart.x_scale in ("linear", "log"):
            points = sorted(points, key=lambda point: point.x)
        for point in points:
            where = f"{100 * point.x:.7g} %" if share else f"{chart.x_name} {point.x:,.4g}"
            text = f"{name}, {where}: {bounded_number(point.value)} {chart.unit}"
            datum = {key: finite(figure) for key, figure in asdict(point).items()}
            datum |= {"x": _nines(point.x), "share": point.x} if share else {}
            datum |= {"least": True} if isinstance(point.value, LowerBound) else {}
            yield {"group": name, "text": text, **datum}


def _nines(share: float) -> float:
    """Where a share stands: each further nine takes the same room on a log axis."""
    return float(f"{1 / (1 - share):.9g}")


def _x_axis(chart: Lines) -> Spec:
    points = {point.x for line in chart.series.values() for point in line}
    places = sorted([*points, *(mark.x for mark in chart.marks)])
    first, last = places[0], places[-1]
    if chart.x_scale == "time":
        return axis("x", chart.x_name, (0.0, max(1.01 * last, 1.0)), False)
    if chart.x_scale == "share":
        first, last = _nines(first), _nines(last)
    if chart.x_scale == "linear":
        beyond = 0.04 * (last - first) or 1.0
        x = axis("x", chart.x_name, (first - beyond, last + beyond), False)
    else:
        beyond = (last / first) ** 0.03 if last > first else 2.0
        x = axis("x", chart.x_name, (first / beyond, last * beyond), True)
    if chart.x_scale == "share":
        ticks = [tick for tick in map(_nines, SHARES) if tick <= last]
        percent = "format(100 - 100 / datum.value, '.9~g') + ' %'"
        x |= {"title": chart.x_name, "axis": x["axis"] | {"values": ticks, "labelExpr": percent}}
    elif len(points) <= FEW and all(point == round(point) for point in points):
        x["axis"]["values"] = sorted(points)  # of a load that was chosen
    return x


def _draw_marks(marks: Sequence[Mark], x: Spec, inside: bool) -> Iterator[Spec]:
    """Rules with their words, over the plot, or at its top where it may be cut. All words stand on
    that side of their rules where there is room, and the farther from that side's end a rule is,
    the higher: so no rule goes through other words."""
    first, last = x["scale"]["domain"]
    middle = (first * last) ** 0.5 if x["scale"]["type"] == "log" else (first + last) / 2
    left = any(mark.x > middle for mark in marks)
    side = {"align": "right", "dx": -4} if left else {"align": "left", "dx": 4}
    for turn, mark in enumerate(sorted(marks, key=lambda mark: mark.x if left else -mark.x)):
        data = {"data": {"values": [asdict(mark)]}}
        up = 8 + MARK_LINE * (len(marks) - 1 - turn) if inside else -8 - MARK_LINE * turn
        rule = {"x": x, "y": {"value": up - 5}, "y2": {"value": HEIGHT}}
        yield data | layer({"type": "rule", "style": "mark", "strokeDash": [4, 3]}, rule)
        words = {"x": x, "y": {"value": up}, "text": {"field": "words"}}
        yield data | layer({"type": "text", "style": "note", **side}, words)


# What the charts share: axes, bands, intervals, rows, colours and shapes.


def layer(mark: Spec, encoding: Spec, *transforms: Spec) -> Spec:
    """A layer of a chart."""
    drawn: Spec = {"mark": mark, "encoding": encoding}
    return drawn | {"transform": list(transforms)} if transforms else drawn


def finite(value: float | None) -> float | None:
    """A figure of a datum; JSON has no word for what is not finite."""
    return value if value is not None and math.isfinite(value) else None


def wide(values: Sequence[float]) -> bool:
    """Whether the values need a log axis; zero and less have no place on one."""
    return min(values) > 0 and max(values) / min(values) >= WIDE


def axis(field: str, title: str, ends: tuple[float, float], log: bool) -> Spec:
    """A figure on an axis from end to end, with round numbers."""
    ticks = log_ticks(*ends) if log else []
    about = {"values": ticks} if ticks else {"tickCount": 5}
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


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between the ends of a log axis; none where they are so near each other that
    those of a linear one are as good."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        every = (float(f"{digit}e{power}") for power in powers for digit in digits)
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    return ticks if len(ticks) > 2 else []


def _between(channel: str, scale: Spec) -> Spec:
    return {channel: scale | {"field": "low"}, f"{channel}2": {"field": "high"}}


def band(channel: str, scale: Spec, ends: tuple[float, float]) -> list[Spec]:
    """A band of an axis with a rule at 1, behind all else."""
    data = {"data": {"values": [{"low": ends[0], "high": ends[1], "one": 1}]}}
    rule = layer({"type": "rule", "style": "mark"}, {channel: scale | {"field": "one"}})
    return [data | layer({"type": "rect", "style": "band"}, _between(channel, scale)), data | rule]


def interval(channel: str, scale: Spec, place: Spec) -> Spec:
    """Rules from `low` to `high`, where both are known."""
    known = {"filter": "isValid(datum.low) && isValid(datum.high)"}
    mark = {"type": "rule", "strokeWidth": 2, "opacity": 0.7}
    return layer(mark, place | _between(channel, scale), known)


def look_of(
    names: Sequence[str],
    width: int | None,
    colours: Sequence[str],
    shapes: Sequence[str],
    dashes: Sequence[Sequence[int]] = (),
    least: int = 2,
) -> tuple[Spec, Spec]:
    """Colours, shapes and dashes by the field `group`, by their channels, and what the script of a
    page needs for the legend, which switches series. There is a legend from `least` names on, in a
    picture (`width` pixels) below it."""
    legend: Spec | None = None
    meta: Spec = {}
    ranges: dict[str, Sequence[Any]] = {"color": colours}
    ranges["shape"] = list(islice(cycle(shapes), len(names)))
    ranges |= {"strokeDash": dashes} if dashes else {}
    if len(names) >= least:
        entries = [
            {"name": name, **{channel: looks[place] for channel, looks in ranges.items()}}
            for place, name in enumerate(names)
        ]
        meta = {"legend": {"field": "group", "entries": entries}}
        if width is not None:
            columns = max(1, width // (CHARACTER * max(map(len, names)) + 36))
            legend = {
                **{"title": None, "orient": "bottom", "direction": "horizontal", "offset": 6},
                **{"columns": columns, "labelLimit": width - 40},
                **{"symbolOpacity": 1, "symbolDash": [1, 0]},
            }
    encodings = {
        channel: {
            **{"field": "group", "type": "nominal"},
            "scale": {"domain": list(names), "range": list(looks)},
            "legend": None if channel == "strokeDash" else legend,
        }
        for channel, looks in ranges.items()
    }
    return encodings, meta


NO_NOTES: Final[Mapping[str, str]] = {}


def rows_of(
    labels: Iterable[str], lines: int, notes: Mapping[str, str] = NO_NOTES
) -> tuple[dict[str, str], Spec, int]:
    """The rows of a chart, a label to the left of each, with a note below it: what stands for each
    in the field `line` (a number, and the lines of its label), their place, and the height of all
    in pixels. All are as high as the longest label needs, and at least `lines` lines."""
    keys: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        words = textwrap.wrap(label.replace("|", "/"), FITS)
        words += [notes[label]] if label in notes else []
        keys[label] = "|".join((str(len(keys)), *words))
        lines = max(lines, len(words))
    about = {"labelExpr": "slice(split(datum.value, '|'), 1)", "labelLimit": 0, "title": None}
    y = {
        **{"field": "line", "type": "ordinal"},
        "scale": {"domain": list(keys.values())},
        "axis": {**about, "labelOverlap": False, "ticks": False, "domain": False},
    }
    return keys, y, len(keys) * (LINE * lines + GAP)
