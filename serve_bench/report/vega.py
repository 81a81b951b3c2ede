"""Vega-Lite made of charts: the same kinds for all runs, for a page and for a picture.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, gaps), and at widths of 340 to 1,100 pixels. Series take their colours
from `Looks` (theme.py), words and rules from the styles of the configuration. Texts stand in data,
never in an expression: field names are our own. In a page `usermeta` says what its script adds:
`legend`, which switches series, and `zoom`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

from serve_bench.core.figures import number, ratio_text
from serve_bench.report.theme import SHAPES, Looks, looks_of
from serve_bench.view.charts import (
    BarPart,
    Bars,
    Chart,
    Dots,
    Drawing,
    Happenings,
    Lines,
    Point,
    Ratio,
    Ratios,
)

Spec: TypeAlias = dict[str, Any]

PLAIN: Final = "format(datum.value, ',~r')"
"""Numbers of an axis: thousands apart, no powers of ten, no digits that say nothing."""

WIDE: Final = 100.0
"""Values that differ by such a factor are drawn on a log axis: on a linear one all but the largest
would lie on its zero."""

NEAR: Final = 4.0
"""Charts beside each other have one scale where their largest values differ by less: it leaves no
chart empty for more than three quarters."""

CHARACTER: Final = 6.7
"""Pixels of a character in about the mean, at the size of labels (12 pixels)."""

VERDICTS: Final = {
    "regressed": ("#d1570c", "triangle-down"),
    "slower": ("#b8860b", "triangle-left"),
    "improved": ("#0c8f6e", "triangle-up"),
    "faster": ("#5a9e2f", "triangle-right"),
    "same": ("#3a82c0", "circle"),
    "inconclusive": ("#858c96", "diamond"),
}
"""Colour and shape of each verdict. The hues are those of Okabe and Ito, told apart by people of
any colour vision; each has a contrast of 3 or more with a white and with a dark page (WCAG
1.4.11)."""

DOT: Final = {"type": "point", "filled": True, "size": 75, "opacity": 1}

SAID: Final = 0.12
"""A part that takes such a share of the longest bar has its figure in it; less has no room."""


def vega(
    chart: Chart, width: int | None = None, looks: Looks | None = None, beside: Sequence[Chart] = ()
) -> Spec:
    """A chart as Vega-Lite: as wide as its place in a page, or so many pixels of a picture.

    `looks`: the colours of the page or picture; `beside`: the charts that share its scale
    (`siblings`).
    """
    looks = looks or looks_of([chart.drawing], light_alone=width is not None)
    others = [one.drawing for one in beside]
    match chart.drawing:
        case Dots() as dots:
            every = [dots, *(one for one in others if isinstance(one, Dots))]
            spec = _dots(dots, width, looks, every)
        case Ratios():
            spec = _ratios(chart.drawing, width)
        case Bars() as bars:
            same = [bars, *(one for one in others if isinstance(one, Bars))]
            spec = _bars(bars, width, looks, same)
        case Lines() as own:
            from serve_bench.report.vega_lines import lines

            spec = lines(own, width, looks, [one for one in others if isinstance(one, Lines)])
        case Happenings() as events:
            from serve_bench.report.vega_lines import happenings

            spec = happenings(events)
    whole: Spec = {"description": chart.words, "width": width or "container", **spec}
    if width is None:
        whole["autosize"] = {"type": "fit-x", "contains": "padding"}
    else:
        whole.pop("usermeta", None)
    return whole


def siblings(charts: Sequence[Chart]) -> list[list[Chart]]:
    """For each of the charts beside each other those that share its scale: of the same figure,
    where no value of theirs would be lost on it."""
    kinds: dict[object, list[Chart]] = {}
    for one in charts:
        kinds.setdefault(_kind(one.drawing), []).append(one)
    shared = {kind: alike if _are_near(alike) else [] for kind, alike in kinds.items()}
    return [[other for other in shared[_kind(one.drawing)] if other is not one] for one in charts]


def _are_near(charts: Sequence[Chart]) -> bool:
    """Whether none of the charts would be lost on the scale of all, and none change to a log axis
    for the others' sake."""
    each = [_figures(one) for one in charts]
    tops, ends = [max(some) for some in each], [min(some) for some in each]
    if not 0 < max(tops) < NEAR * min(tops):
        return False
    logs = {wide(some) for some in (*each, [*chain(*each)])}
    return len(logs) == 1 and (True not in logs or max(ends) < NEAR * min(ends))


def _kind(drawing: Drawing) -> tuple[object, ...]:
    match drawing:
        case Lines():
            return Lines, drawing.unit, drawing.x_name, drawing.x_scale, drawing.log_y
        case Ratios() | Happenings():
            return type(drawing), id(drawing)
    return type(drawing), drawing.unit


def _figures(chart: Chart) -> list[float]:
    """The values of a chart; of bars the longest."""
    match chart.drawing:
        case Dots() as one:
            return [point.value for point in one.points]
        case Bars() as one:
            return [_longest([one])]
        case Lines() as one:
            return [float(step.value) for step in chain(*one.series.values())]
    return [0.0]


def _longest(charts: Iterable[Bars]) -> float:
    sums: dict[tuple[int, str], float] = {}
    for at, chart in enumerate(charts):
        for one in chart.shares:
            sums[at, one.label] = sums.get((at, one.label), 0.0) + one.value
    return max(sums.values())


# Dots with their intervals: figures of rows by group, and ratios of A and B by verdict.


def _dots(chart: Dots, width: int | None, looks: Looks, scale: Sequence[Dots]) -> Spec:
    points, unit = chart.points, chart.unit
    rows = LabelledRows([(one.label, "") for one in points])
    every = [one for other in scale for one in other.points]
    ends = [end for one in every for end in (one.value, one.low, one.high) if end is not None]
    log = wide(ends)
    values = [
        finite(
            {
                "line": rows.keys[at],
                **asdict(points[at]),
                "shown": shown(points[at].value, unit),
                "between": _between(points[at], unit),
            }
        )
        for at in rows.order
    ]
    x = axis("value", unit, ends_of(ends, log), log)
    groups = ordered(one.group for one in points)
    look = Look("group", groups, looks.of_things(groups), SHAPES, width)
    fields = (("label", "row"), ("group", "group"), ("shown", unit), ("between", "interval"))
    return _intervals(rows, values, x, ("low", "high"), look, fields)


def _between(point: Point, unit: str) -> str:
    if point.low is None or point.high is None:
        return "-"
    return f"{shown(point.low, unit)} to {shown(point.high, unit)}"


def _intervals(
    rows: LabelledRows,
    values: Sequence[Spec],
    x: Spec,
    ends: tuple[str, str],
    look: Look,
    fields: Iterable[tuple[str, str]],
    behind: Iterable[Spec] = (),
) -> Spec:
    """The height, the data and the layers of dots with their intervals, where both `ends` (fields)
    are known; the figures stand in a column to the right of the plot."""
    low, high = ends
    known = f"isValid(datum['{low}']) && isValid(datum['{high}'])"
    room = CHARACTER * max(len(one["shown"]) for one in values) + 10
    layers: list[Spec] = [
        *behind,
        *rows.words(),
        {
            "transform": [{"filter": known}],
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.75},
            "encoding": {
                "y": rows.y,
                "x": {**x, "field": low},
                "x2": {"field": high},
                "color": look.colour,
            },
        },
        {"mark": DOT, "encoding": {"y": rows.y, "x": x, **look.both, "tooltip": tooltip(*fields)}},
        {
            "mark": {"type": "text", "style": "value", "align": "right", "dx": room},
            "encoding": {"y": rows.y, "x": {"value": "width"}, "text": {"field": "shown"}},
        },
    ]
    return {"height": rows.height, "data": {"values": values}, "layer": layers, **look.meta}


def _ratios(chart: Ratios, width: int | None) -> Spec:
    ratios, threshold = chart.ratios, chart.threshold
    rows = LabelledRows([(one.label, one.metric) for one in ratios])
    ends = [end for one in ratios for end in (one.ratio, one.low, one.high) if 0 < end < math.inf]
    low, high = min(*ends, 1 - threshold), max(*ends, 1 + threshold)
    beyond = (high / low) ** 0.04
    low, high = low / beyond, high * beyond
    values = [_ratio(ratios[at], rows.keys[at], low, high) for at in rows.order]
    x = axis("ratio", "B/A", (low, high), True)
    x["axis"]["labelExpr"] = f"{PLAIN} + ' x'"
    used = [word for word in VERDICTS if any(one.word == word for one in ratios)]
    colours, shapes = ([VERDICTS[word][at] for word in used] for at in (0, 1))
    look = Look("word", used, colours, shapes, width, least=1)
    fields = [("label", "row"), ("metric", "metric"), ("shown", "B/A")]
    fields += [("between", "interval"), ("word", "verdict")]
    behind = _around_one(rows, x, threshold)
    return _intervals(rows, values, x, ("from", "to"), look, fields, behind)


def _ratio(one: Ratio, line: str, low: float, high: float) -> Spec:
    return finite(
        {
            "line": line,
            **asdict(one),
            "from": max(one.low, low),
            "to": min(one.high, high),
            "shown": f"{ratio_text(one.ratio)} x",
            "between": f"{ratio_text(one.low)} to {ratio_text(one.high)}",
        }
    )


def _around_one(rows: LabelledRows, x: Spec, threshold: float) -> list[Spec]:
    """The band and the rule of 1, line by line, so that neither goes through the words between."""
    band = [
        {"line": key, "from": 1 - threshold, "to": 1 + threshold, "one": 1} for key in rows.keys
    ]
    return [
        {
            "data": {"values": band},
            "mark": {"type": "rect", "style": "band"},
            "encoding": {"y": rows.y, "x": {**x, "field": "from"}, "x2": {"field": "to"}},
        },
        {
            "data": {"values": band},
            "mark": {"type": "tick", "style": "mark", "thickness": 1, "bandSize": LINE},
            "encoding": {"y": rows.y, "x": {**x, "field": "one"}},
        },
    ]


# Bars made of parts, such as the CPU of each process.


def _bars(chart: Bars, width: int | None, looks: Looks, scale: Sequence[Bars]) -> Spec:
    shares, unit = chart.shares, chart.unit
    parts = ordered(one.part for one in shares)
    labels = ordered(one.label for one in shares)
    bars = [[one for one in shares if one.label == label] for label in labels]
    notes = [" ".join(ordered(one.note for one in bar if one.note)) for bar in bars]
    rows = LabelledRows([(label, "") for label in labels], notes)
    sums = [sum(one.value for one in bar) for bar in bars]
    longest = _longest(scale) or 1.0
    # Behind the longest bar there is room for its sum.
    x = axis("start", unit, (0.0, 1.16 * longest), False)
    values = [
        datum
        for key, bar in zip(rows.keys, bars, strict=True)
        for datum in _bar(key, sorted(bar, key=lambda one: parts.index(one.part)), unit)
    ]
    totals = [
        {"line": key, "total": total, "shown": shown(total, unit)}
        for key, total in zip(rows.keys, sums, strict=True)
    ]
    place = {"y": rows.y, "x": x, "x2": {"field": "end"}}
    # What is switched off would leave a gap in its bar: this legend only names.
    look = Look("group", parts, looks.of_parts(parts), ["square"] * len(parts), width, fixed=True)
    fields = tooltip(("label", "row"), ("part", "part"), ("shown", unit))
    figure = {"y": rows.y, "text": {"field": "shown"}}
    layers: list[Spec] = [
        *rows.words(),
        {
            # A pixel is left free at the end of each part: parts are told apart without colour.
            "mark": {"type": "bar", "height": LINE - 4, "x2Offset": -1},
            "encoding": {**place, "color": look.colour, "tooltip": fields},
        },
        {
            "transform": [{"filter": f"datum.value >= {SAID * longest!r}"}],
            "mark": {"type": "text", "style": "segment", "tooltip": None},
            "encoding": {**figure, "x": {**x, "field": "middle"}},
        },
        {
            "data": {"values": totals},
            "mark": {"type": "text", "style": "value", "align": "left", "dx": 5},
            "encoding": {**figure, "x": {**x, "field": "total"}},
        },
    ]
    return {"height": rows.height, "data": {"values": values}, "layer": layers, **look.meta}


def _bar(key: str, bar: Sequence[BarPart], unit: str) -> Iterator[Spec]:
    at = 0.0
    for one in bar:
        yield {
            "line": key,
            "group": one.part,
            **asdict(one),
            "shown": shown(one.value, unit),
            "start": at,
            "middle": at + one.value / 2,
            "end": at + one.value,
        }
        at += one.value


# What the charts share: how figures are written on them, axes, colours and shapes.


def shown(value: float, unit: str) -> str:
    """A figure as the tables of a report write it: shares without decimals from 10 on, times with
    three digits, all else with four."""
    if value == 0:
        return "0"
    if unit.startswith("%"):
        return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}"
    return number(value, 3 if unit in ("ms", "us", "s") else 4)


def wide(values: Iterable[float]) -> bool:
    """Whether the values need a log axis; zero and less have no place on one."""
    every = list(values)
    return min(every) > 0 and max(every) / min(every) >= WIDE


def axis(field: str, title: str, ends: tuple[float, float], log: bool, most: int = 6) -> Spec:
    """A figure on an axis from end to end, with round numbers."""
    ticks = {"values": log_ticks(*ends, most)} if log else {"tickCount": most - 1}
    return {
        "field": field,
        "type": "quantitative",
        "title": f"{title} (log)" if log else title,
        "scale": {"type": "log" if log else "linear", "domain": list(ends), "nice": False},
        "axis": {**ticks, "labelExpr": PLAIN, "grid": True, "labelOverlap": "greedy"},
    }


def ends_of(values: Sequence[float], log: bool, room: float = 0.06) -> tuple[float, float]:
    """The ends of an axis: from zero, or on a log one from the smallest, with room beyond."""
    low, high = min(values), max(values)
    if log:
        beyond = max((high / low) ** room, 1.1)
        return low / beyond, high * beyond
    low, high = min(low, 0.0), max(high, 0.0)
    beyond = room * (high - low) or 1.0
    return low - beyond if low < 0 else 0.0, high + beyond if high > 0 else 0.0


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many round numbers between the ends of a log axis, as many as there may be."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [
            place
            for power in range(first, last + 1)
            for digit in digits
            if low <= (place := round_to(digit * 10.0**power)) <= high
        ]
        if len(ticks) <= most:
            break
    ticks = ticks[:: math.ceil(len(ticks) / most)] if ticks else ticks
    return ticks if len(ticks) > 2 else _even_ticks(low, high, most)


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of a round step, for ends that are near each other."""
    least = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20):
        step = factor * least
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < most:
            break
    return [round_to(at * step) for at in range(first, last + 1)]


def round_to(value: float) -> float:
    """Nine significant digits: what floating point adds behind them is gone."""
    return float(f"{value:.9g}")


@dataclass(frozen=True)
class Look:
    """Colour and shape by a field, with a legend from `least` names on: over the plot of a picture
    (`width` pixels; `above`: those of what stands between), in a page by its script, which switches
    the series of a legend that is not `fixed`. `dashes`: of lines, by name."""

    field: str
    names: Sequence[str]
    colours: Sequence[str]
    shapes: Sequence[str]
    width: int | None
    above: int = 0
    least: int = 2
    fixed: bool = False
    dashes: Sequence[Sequence[int]] = ()

    @property
    def colour(self) -> Spec:
        """The encoding of the colour."""
        return self._encoding(self.colours)

    @property
    def both(self) -> Spec:
        """The encodings of colour and shape."""
        shapes = [self.shapes[at % len(self.shapes)] for at in range(len(self.names))]
        return {"color": self.colour, "shape": self._encoding(shapes)}

    @property
    def dash(self) -> Spec:
        """The encoding of dashes; none where all lines are whole."""
        return (
            {"strokeDash": {**self._encoding(self.dashes), "legend": None}} if self.dashes else {}
        )

    @property
    def meta(self) -> Spec:
        """What the script of a page needs for the legend."""
        if len(self.names) < self.least:
            return {}
        entries = [
            {
                "name": name,
                "colour": self.colours[at],
                "shape": self.shapes[at % len(self.shapes)],
                **({"dash": self.dashes[at]} if self.dashes else {}),
            }
            for at, name in enumerate(self.names)
        ]
        legend = {"field": self.field, "fixed": self.fixed, "entries": entries}
        return {"usermeta": {"legend": legend}}

    def _encoding(self, looks: Sequence[Any]) -> Spec:
        return {
            "field": self.field,
            "type": "nominal",
            "scale": {"domain": list(self.names), "range": list(looks)},
            "legend": self._legend(self.width),
        }

    def _legend(self, width: int | None) -> Spec | None:
        if width is None or len(self.names) < self.least:
            return None
        whole = CHARACTER * max(len(name) for name in self.names) + 36
        return {
            "title": None,
            "orient": "top",
            "direction": "horizontal",
            "columns": max(1, math.floor(width / whole)),
            "labelLimit": width - 40,
            "symbolOpacity": 1,
            "offset": 10 + self.above,
        }


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """What a mark shows under the pointer: fields with their names."""
    return [{"field": field, "type": "nominal", "title": harmless(name)} for field, name in fields]


def harmless(name: str) -> str:
    """A name in a tooltip, without what ends a string: Vega-Lite puts it into an expression."""
    return "".join(one for one in name if one.isprintable() and one not in '"\\')


def ordered(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def finite(fields: Mapping[str, Any]) -> Spec:
    """The fields of a datum; what is not finite is None, since JSON has no word for it."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


# The lines of a chart with a row for each thing: what stands above, beside and below them.
#
# Rule: each line has one height, so that few rows make a small chart and many a long one. Short
# labels stand beside their line, others above it, where a narrow screen has room for them.

LINE: Final = 18
"""Pixels of a line: an interval, a bar, or words."""

BESIDE: Final = 23
"""Characters of a label that may stand beside its line: they take 45 % of a phone's width."""

FITS: Final = 50
"""Characters that fit a phone's width; longer words go on in the next line."""


class LabelledRows:
    """The lines of the items of a chart, each with its label and the words beside it.

    `order` holds the items' places in the order in which they are drawn: those of one label
    together. `keys` has the key of each item's line; a key is a number and the words beside it.
    `beside`: about so many pixels stand to the left of the plot.
    """

    def __init__(
        self, items: Sequence[tuple[str, str]], notes: Sequence[str] | None = None
    ) -> None:
        labels = [label for label, _ in items]
        single = len(set(labels)) == len(labels)
        beside = single and max(map(len, labels)) <= BESIDE and not any(name for _, name in items)
        self.keys: list[str] = [""] * len(items)
        self.order: list[int] = []
        self._lines: list[str] = []
        self._above: list[Spec] = []
        self._below: list[Spec] = []
        self._style = "label" if single and not any(name for _, name in items) else "heading"
        longest = max(len(label if beside else name) for label, name in items)
        room = max(FITS - longest, FITS // 2)  # notes begin where the plot does
        for label in ordered(labels):
            if not beside:
                self._say(self._above, broken(label))
            for at in (at for at, one in enumerate(labels) if one == label):
                self.order.append(at)
                self.keys[at] = self._line(label if beside else items[at][1])
                if notes and any(notes):  # a line for each, so that all rows are equally far apart
                    self._say(self._below, textwrap.wrap(notes[at], room) or [""])
        self.beside = CHARACTER * longest + 4 if longest else 0.0
        self._left = 0.0 if beside else -self.beside
        self._down = 0 if longest else 2  # nearer to its line, but for the words beside that

    def _line(self, beside: str = "") -> str:
        self._lines.append(f"{len(self._lines)}|{beside}")
        return self._lines[-1]

    def _say(self, texts: list[Spec], lines: Sequence[str]) -> None:
        texts += [{"line": self._line(), "words": words} for words in lines]

    @property
    def height(self) -> int:
        """Of all lines, in pixels."""
        return LINE * len(self._lines)

    @property
    def y(self) -> Spec:
        """The place of a line, by the field `line`."""
        named = any(not line.endswith("|") for line in self._lines)
        beside = {
            "labelExpr": "slice(datum.value, indexof(datum.value, '|') + 1)",
            "title": None,
            "ticks": False,
            "domain": False,
            "grid": False,
            "labelLimit": 170,
            "labelOverlap": False,
        }
        return {
            "field": "line",
            "type": "ordinal",
            "scale": {"domain": self._lines},
            "axis": beside if named else None,
        }

    def words(self) -> list[Spec]:
        """Layers of the words above and below lines."""
        return [
            {
                "data": {"values": texts},
                "mark": {"type": "text", "style": style, "align": "left", "dy": down},
                "encoding": {"y": self.y, "x": {"value": self._left}, "text": {"field": "words"}},
            }
            for texts, style, down in (
                (self._above, self._style, self._down),
                (self._below, "note", -1),
            )
            if texts
        ]


def broken(words: str) -> list[str]:
    """The lines of a long label, broken behind commas where that will do."""
    lines: list[str] = []
    for part in words.split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= FITS:
            lines[-1] += f", {part}"
        else:
            if lines:
                lines[-1] += ","
            lines += textwrap.wrap(part, FITS, break_on_hyphens=False)
    return lines
