"""Vega-Lite made of charts: the same kinds for all runs, for a page and for a picture.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, figures), and at widths of 340 to 1,100 pixels. Series take their
colours from `Looks` (theme.py), words and rules from the styles of the configuration. Texts stand
in data, never in an expression: field names are our own; `text` is what a mark says under the
pointer. In a page `usermeta` says what its script adds: `legend`, which switches series, and
`zoom`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, TypeAlias

from serve_bench.core.figures import number, ratio_text
from serve_bench.report.theme import SHAPES, Looks, colours_of, keep_light, looks_of
from serve_bench.view.charts import Bars, Chart, Dots, HeatMap, Lines

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
"""Pixels of a line of a chart with a row for each thing: an interval, a bar, or words. So few rows
make a small chart and many a long one."""

GAP: Final = 5
"""Pixels between rows."""

FITS: Final = 28
"""Characters of a line of a label: they take half of a phone's width."""

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

SAID: Final = 0.12
"""A part that takes such a share of the longest bar has its figure in it; less has no room."""

HEAT: Final = ("#deebf7", "#084081")
"""The smallest and the largest figure of a heat map: on light and dark grounds and on paper alike,
since its figures stand on them, from WHITE_FROM on in white (contrast of 4.5 or more)."""
WHITE_FROM: Final = 0.67


def vega(chart: Chart, width: int | None = None, looks: Looks | None = None) -> Spec:
    """A chart as Vega-Lite: as wide as its place in a page, or so many pixels of a picture.
    `looks`: the names with a colour of the page or picture."""
    from serve_bench.report.vega_lines import lines

    looks = looks_of([chart.drawing]) if looks is None else looks
    match chart.drawing:
        case Dots() as dots:
            spec = _dots(dots, width, looks)
        case Bars() as bars:
            spec = _bars(bars, width, looks)
        case HeatMap() as matrix:
            spec = _heat_map(matrix)
        case Lines() as curves:
            spec = lines(curves, width, looks)
    whole: Spec = {"description": chart.words, "width": width or "container", **spec}
    if width is None:
        return whole | {"autosize": {"type": "fit-x", "contains": "padding"}}
    whole.pop("usermeta", None)
    return keep_light(whole)


def _dots(chart: Dots, width: int | None, looks: Looks) -> Spec:
    """Figures of rows by group, or ratios of A and B by verdict."""
    points, threshold = chart.points, chart.threshold
    ends = [finite(end) for point in points for end in (point.value, point.low, point.high)]
    known = [end for end in ends if end is not None]
    if threshold is not None:
        known = [1 - threshold, 1 + threshold, *(end for end in known if end > 0)]
    log = threshold is not None or wide(known)
    low, high = ends_of(known, log)
    labels = [point.label for point in points]
    turns = [labels[:place].count(label) for place, label in enumerate(labels)]
    rows = Rows(labels, 1 + max(turns))
    values: list[Spec] = []
    for turn, point in zip(turns, points, strict=True):
        shown, text = _figure(point.value, chart), ""
        if point.low is not None and point.high is not None:
            text = f" ({_figure(point.low, chart)} to {_figure(point.high, chart)})"
        values.append(
            {
                **{"line": rows.key(point.label), "turn": turn, "group": point.group},
                **{"label": point.label, "value": finite(point.value), "shown": shown},
                "low": None if point.low is None else max(point.low, low),
                "high": None if point.high is None else min(point.high, high),
                "text": f"{point.label}, {point.group}: {shown} {chart.unit}{text}",
            }
        )
    groups = ordered(point.group for point in points)
    if threshold is None:
        look = Look(groups, colours_of(groups, looks), SHAPES, width)
    else:
        groups = [word for word in VERDICTS if word in groups]
        colours, shapes = zip(*(VERDICTS[word] for word in groups), strict=True)
        look = Look(groups, colours, shapes, width, least=1)
    x = axis("value", chart.unit, (low, high), log)
    offsets = {"domain": list(range(1 + max(turns)))}
    place = {"y": rows.y, "yOffset": {"field": "turn", "type": "ordinal", "scale": offsets}}
    room = CHARACTER * max(len(datum["shown"]) for datum in values) + 10
    layers: list[Spec] = [
        *([] if threshold is None else band("x", x, (1 - threshold, 1 + threshold))),
        interval("x", x, place | look.encode("color")),
        layer(SHAPE | {"size": 75}, place | {"x": x} | look.encode("color", "shape") | TOOLTIP),
        layer(
            {"type": "text", "style": "value", "align": "right", "dx": room},
            place | {"x": {"value": "width"}, "text": {"field": "shown"}},
        ),
    ]
    return {"height": rows.height, "data": {"values": values}, "layer": layers, **look.meta}


def _figure(value: float, chart: Dots) -> str:
    """As the tables of a report write it: times with three digits, others with four."""
    if chart.threshold is not None:
        return f"{ratio_text(value)} x"
    return number(value, 3 if chart.unit in ("ms", "us", "s") else 4)


def _bars(chart: Bars, width: int | None, looks: Looks) -> Spec:
    """Bars made of parts, such as the CPU of each process."""
    parts = ordered(share.part for share in chart.shares)
    sums: dict[str, float] = {}
    for share in chart.shares:
        sums[share.label] = sums.get(share.label, 0.0) + share.value
    longest = max(sums.values()) or 1.0
    rows = Rows(sums, 1, {share.label: share.note for share in chart.shares if share.note})
    values = []
    for share in chart.shares:
        text = f"{share.label}: {share.part} {number(share.value, 3)} {chart.unit}"
        said = number(share.value, 3) if share.value >= SAID * longest else ""
        datum = {"line": rows.key(share.label), "group": share.part, "value": share.value}
        values.append(datum | {"order": parts.index(share.part), "said": said, "text": text})
    look = Look(parts, colours_of(parts, looks), ["square"], width)
    # Behind the longest bar there is room for its sum.
    x = axis("value", chart.unit, (0.0, 1.16 * longest), False) | {"stack": "zero"}
    stacked = {"y": rows.y, "x": x, "order": {"field": "order"}}
    middle = {"x": x | {"bandPosition": 0.5}, "detail": {"field": "group"}}
    total = {"aggregate": [{"op": "sum", "field": "value", "as": "total"}], "groupby": ["line"]}
    layers: list[Spec] = [
        # A pixel is left free at the end of each part: parts are told apart without colour.
        layer(
            {"type": "bar", "height": LINE - 4, "x2Offset": 1},
            stacked | look.encode("color") | TOOLTIP,
        ),
        layer({"type": "text", "style": "segment"}, stacked | middle | {"text": {"field": "said"}}),
        layer(
            {"type": "text", "style": "value", "align": "left", "dx": 5},
            {
                "y": rows.y,
                "x": x | {"field": "total", "stack": None},
                "text": {"field": "total", "type": "quantitative", "format": ",.3~r"},
            },
        )
        | {"transform": [total]},
    ]
    return {"height": rows.height, "data": {"values": values}, "layer": layers, **look.meta}


def _heat_map(chart: HeatMap) -> Spec:
    """A figure over two dimensions: each cell has it in words, on a colour of its size."""
    rows = Rows([cell.y for cell in chart.cells], 2)
    figures = [cell.value for cell in chart.cells]
    sizes = [math.log(value) for value in figures] if wide(figures) else figures
    span = (max(sizes) - min(sizes)) or 1.0
    values = []
    for cell, size in zip(chart.cells, sizes, strict=True):
        text = f"{chart.x_name} {cell.x}, {cell.y}: {cell.text} {chart.unit}"
        datum = {"line": rows.key(cell.y), "x": cell.x, "value": cell.value, "text": text}
        values.append(datum | {"shown": number(cell.value), "size": (size - min(sizes)) / span})
    across = {
        **{"field": "x", "type": "nominal", "title": chart.x_name},
        "scale": {"domain": ordered(cell.x for cell in chart.cells)},
        "axis": {"labelAngle": 0, "domain": False, "ticks": False},
    }
    place = {"y": rows.y, "x": across}
    scale = {"domain": [0, 1], "range": list(HEAT)}
    colour = {"field": "size", "type": "quantitative", "scale": scale, "legend": None}
    white = {"test": f"datum.size >= {WHITE_FROM}", "value": "#ffffff"}
    ink = {"condition": white, "value": "#000000"}
    rect = {"type": "rect", "width": {"band": 0.98}, "height": {"band": 0.95}}
    layers = [
        layer(rect, place | {"color": colour} | TOOLTIP),
        layer({"type": "text"}, place | {"color": ink, "text": {"field": "shown"}} | TOOLTIP),
    ]
    return {"height": rows.height, "data": {"values": values}, "layer": layers}


# What the charts share: axes, bands, intervals, rows, colours and shapes.

TOOLTIP: Final[Spec] = {"tooltip": {"field": "text"}}


def layer(mark: Spec, encoding: Spec) -> Spec:
    """A layer of a chart."""
    return {"mark": mark, "encoding": encoding}


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
        "field": field,
        "type": "quantitative",
        "title": f"{title} (log)" if log else title,
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


def band(channel: str, scale: Spec, ends: tuple[float, float]) -> list[Spec]:
    """A band of an axis with a rule at 1, behind all else."""
    data = {"values": [{"low": ends[0], "high": ends[1], "one": 1}]}
    between = {channel: {**scale, "field": "low"}, f"{channel}2": {"field": "high"}}
    return [
        {"data": data, **layer({"type": "rect", "style": "band"}, between)},
        {
            "data": data,
            **layer({"type": "rule", "style": "mark"}, {channel: scale | {"field": "one"}}),
        },
    ]


def interval(channel: str, scale: Spec, place: Spec) -> Spec:
    """Rules from `low` to `high`, where both are known."""
    between = {channel: {**scale, "field": "low"}, f"{channel}2": {"field": "high"}}
    known = {"filter": "isValid(datum.low) && isValid(datum.high)"}
    mark = {"type": "rule", "strokeWidth": 2, "opacity": 0.7}
    return {"transform": [known], **layer(mark, place | between)}


@dataclass(frozen=True)
class Look:
    """Colours, shapes and dashes by the field `group`, with a legend from `least` names on: below a
    picture (`width` pixels), in a page by its script, which switches series."""

    names: Sequence[str]
    colours: Sequence[str]
    shapes: Sequence[str]
    width: int | None
    least: int = 2
    dashes: Sequence[Sequence[int]] = ()

    def encode(self, *channels: str) -> Spec:
        """The encodings of these channels: colour, shape, strokeDash."""
        legend = None
        if self.width is not None and len(self.names) >= self.least:
            columns = max(1, self.width // (CHARACTER * max(map(len, self.names)) + 36))
            legend = {
                **{"title": None, "orient": "bottom", "direction": "horizontal", "offset": 6},
                **{"columns": columns, "labelLimit": self.width - 40},
                **{"symbolOpacity": 1, "symbolDash": [1, 0]},
            }
        looks = {"color": self.colours, "shape": self._shapes, "strokeDash": self.dashes}
        return {
            channel: {
                **{"field": "group", "type": "nominal"},
                "scale": {"domain": list(self.names), "range": list(looks[channel])},
                "legend": None if channel == "strokeDash" else legend,
            }
            for channel in channels
            if looks[channel]
        }

    @property
    def _shapes(self) -> list[str]:
        return [shape for shape, _ in zip(cycle(self.shapes), self.names)]

    @property
    def meta(self) -> Spec:
        """What the script of a page needs for the legend."""
        if len(self.names) < self.least:
            return {}
        entries: list[Spec] = [
            {"name": name, "colour": colour, "shape": shape}
            for name, colour, shape in zip(self.names, self.colours, self._shapes, strict=True)
        ]
        for entry, dash in zip(entries, self.dashes, strict=False):
            entry["dash"] = dash
        return {"usermeta": {"legend": {"field": "group", "entries": entries}}}


NO_NOTES: Final[Mapping[str, str]] = {}


class Rows:
    """The rows of a chart, a label to the left of each, with a note below it. All are as high as
    the longest label needs, and at least `lines` lines."""

    def __init__(
        self, labels: Iterable[str], lines: int, notes: Mapping[str, str] = NO_NOTES
    ) -> None:
        self._keys: dict[str, str] = {}
        for label in ordered(labels):
            words = textwrap.wrap(label.replace("|", "/"), FITS)
            words += [notes[label]] if label in notes else []
            self._keys[label] = "|".join((str(len(self._keys)), *words))
            lines = max(lines, len(words))
        self.height = len(self._keys) * (LINE * lines + GAP)

    def key(self, label: str) -> str:
        """What stands for the row in the field `line`: a number, and the lines of its label."""
        return self._keys[label]

    @property
    def y(self) -> Spec:
        """The place of a row."""
        about = {"labelExpr": "slice(split(datum.value, '|'), 1)", "labelLimit": 0, "title": None}
        return {
            **{"field": "line", "type": "ordinal"},
            "scale": {"domain": list(self._keys.values())},
            "axis": {**about, "labelOverlap": False, "ticks": False, "domain": False},
        }


def ordered(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))
