"""The lines of a chart with a row for each thing: what stands above, beside and below them.

Rule: each line has one height, so that few rows make a small chart and many a long one. Short
labels stand beside their line, others above it, where a narrow screen has room for them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from serve_bench.report.html.charts_parts import CHARACTER, Spec, ordered

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
