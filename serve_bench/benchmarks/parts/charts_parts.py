"""What the charts share: their data, how figures are written on them, axes, legends, the frame.

Rule: a chart is Vega-Lite data and no look: series take their colours from the range `category` of
the page's configuration, words and rules from its styles (frame.py has both). Texts stand in
data, never in an expression: field names are our own.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from serve_bench.benchmarks.parts.texts import number
from serve_bench.core.document import Chart

Spec: TypeAlias = dict[str, Any]

PLAIN: Final = "format(datum.value, ',~r')"
"""Numbers of an axis: thousands apart, no powers of ten, no digits that say nothing."""

WIDE: Final = 100.0
"""Values that differ by such a factor are drawn on a log axis: on a linear one all but the largest
would lie on its zero."""

PHONE: Final = 340
"""Pixels of the width of a chart on a phone."""

NAME_LIMIT: Final = 280
"""Pixels of a name in a legend; the rest of a longer one is in the tooltips."""

CHARACTER: Final = 6.7
"""Pixels of a character in about the mean, at the size of labels (12 pixels)."""


@dataclass(frozen=True)
class Point:
    """A figure of a row: `label` names the row, `group` what is held against each other (variants,
    say). `low` and `high` are the ends of its interval, where there is one."""

    label: str
    group: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Share:
    """A part of a bar. `label` names the bar, `part` what took so much (a process, a layer); `note`
    stands under the bar, such as what limited the row: of one part of the bar, or of all."""

    label: str
    part: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Step:
    """A step of a ladder: `x` clients (replicas, bytes), a figure and the ends of its interval."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mark:
    """A place on the x axis of a ladder that has a name: a knee, a collapse."""

    x: float
    words: str


@dataclass(frozen=True)
class Ratio:
    """B/A of a metric of a row, with its interval and its verdict: regressed, improved, same or
    inconclusive. `high` may be infinite."""

    label: str
    metric: str
    ratio: float
    low: float
    high: float
    word: str


def chart(title: str, spec: Spec, words: str, caption: str, height: int) -> Chart:
    """The part of the page: as wide as its place, so many pixels high, described by `words`."""
    whole = {
        "description": words,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **spec,
    }
    return Chart(title=title, spec=whole, words=words, caption=caption)


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
    found = list(values)
    return min(found) > 0 and max(found) / min(found) >= WIDE


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
        found = [
            place
            for power in range(first, last + 1)
            for digit in digits
            if low <= (place := round_to(digit * 10.0**power)) <= high
        ]
        if len(found) <= most:
            break
    found = found[:: math.ceil(len(found) / most)] if found else found
    return found if len(found) > 2 else _even_ticks(low, high, most)


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


def by_group(
    groups: Sequence[str],
    channels: Sequence[str] = ("color", "shape"),
    *,
    beside: float = 0.0,
    above: int = 0,
) -> Spec:
    """Colour and shape by the field `group`, in the order given; one group needs no legend.
    `beside` and `above`: as in legend_of."""
    scale = {"domain": list(groups)}
    legend = legend_of(groups, beside, above) if len(groups) > 1 else None
    return {
        channel: {"field": "group", "type": "nominal", "scale": scale, "legend": legend}
        for channel in channels
    }


def legend_of(names: Sequence[str], beside: float = 0.0, above: int = 0) -> Spec:
    """A legend over the plot, in as many columns as its place has room for.

    `beside`: pixels of what stands to the left of the plot, `above`: between it and the legend. A
    place that is not known (a chart outside a page) counts as a phone.
    """
    longest = min(NAME_LIMIT, CHARACTER * max(len(name) for name in names)) + 36
    room = f"(containerSize()[0] || {PHONE}) - {beside:.0f}"
    return {
        "title": None,
        "orient": "top",
        "direction": "horizontal",
        "columns": {"expr": f"max(1, floor(({room}) / {longest:.0f}))"},
        "labelLimit": NAME_LIMIT,
        "symbolOpacity": 1,
        "offset": 10 + above,
    }


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """What is said of a mark under the pointer: (field, name of it)."""
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


# --------------------------------------------------------------------------------------------------
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


class Rows:
    """The lines of the items of a chart, each with its label and what is said beside it.

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
                "encoding": {
                    "y": self.y,
                    "x": {"value": self._left},
                    "text": {"field": "words"},
                },
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


def figures_column(texts: Sequence[str], y: Spec) -> Spec:
    """The layer of the figures (field `shown`) in a column to the right of the plot."""
    room = CHARACTER * max(map(len, texts)) + 10
    return {
        "mark": {"type": "text", "style": "value", "align": "right", "dx": room},
        "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "shown"}},
    }


def interval_rule(x: Spec, low: str, high: str, colour: Spec, y: Spec) -> Spec:
    """The layer of the intervals, where both ends are known."""
    return {
        "transform": [{"filter": f"isValid(datum['{low}']) && isValid(datum['{high}'])"}],
        "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.75},
        "encoding": {"y": y, "x": {**x, "field": low}, "x2": {"field": high}, "color": colour},
    }
