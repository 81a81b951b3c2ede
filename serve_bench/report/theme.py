"""What drawings are made of: elements of SVG, colours, shapes, and which name has which of them.

Rule: a colour is a pair, `light-dark()` of CSS: the scheme of a page, or paper, takes its own; a
picture has the light ones. Colours of words and grounds of a page are in templates/style.css.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

from serve_bench.core.errors import visible
from serve_bench.view.charts import Chart

TEXT: Final = "light-dark(#1f2328, #e6e8eb)"
QUIET: Final = "light-dark(#57606a, #a3abb5)"
GRID: Final = "light-dark(#e8eaed, #2c3138)"
BAND: Final = "light-dark(#eceff3, #2a3038)"
GROUND: Final = "light-dark(#ffffff, #15171b)"

COLOURS: Final = (
    "light-dark(#0068a8, #56b4e9)",
    "light-dark(#c4510a, #f28e4b)",
    "light-dark(#007d5c, #2fc296)",
    "light-dark(#a8477f, #e08fc0)",
    "light-dark(#3576ad, #9ecbff)",
    "light-dark(#8a6400, #e6b422)",
    "light-dark(#6a3d9a, #b79be0)",
    "light-dark(#5f6b78, #aab4c0)",
)
"""After Okabe and Ito, with a contrast of 4.5 or more with the page (WCAG 1.4.3): lines are seen,
and words on bars can be read."""

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

SHAPES: Final = {
    "circle": "M-4 0a4 4 0 1 1 8 0a4 4 0 1 1 -8 0",
    "square": "M-4 -4h8v8h-8z",
    "triangle-up": "M0 -5L5 4H-5z",
    "cross": "M-2 -5H2V-2H5V2H2V5H-2V2H-5V-2H-2z",
    "diamond": "M0 -5.5L4.5 0L0 5.5L-4.5 0z",
    "triangle-right": "M-4 -5L5 0L-4 5z",
    "triangle-down": "M0 5L5 -4H-5z",
    "triangle-left": "M4 -5L-5 0L4 5z",
    "dot": "M-2 0a2 2 0 1 1 4 0a2 2 0 1 1 -4 0",
}
"""Of points: those of series in their order in a chart, and that of points of which there are
many."""

DASHES: Final = ("none", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
"""Of the lines of one thing, in their order."""

Place: TypeAlias = float | str
"""Pixels, or a share of the width in %; any other attribute too."""


def xml_text(words: str) -> str:
    """Escape words for XML, which has no place for control characters and two others."""
    return escape(visible(words).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}))


def element(tag: str, *inner: str, **looks: Place) -> str:
    """Render an element of SVG; `_` in the name of an attribute is a hyphen, at its end nothing."""
    attributes = ""
    for name, look in looks.items():
        text = xml_text(look) if isinstance(look, str) else f"{look:.6g}"
        attributes += f' {name.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{tag}{attributes}>{''.join(inner)}</{tag}>"


def write(words: str, x: Place, y: float, **looks: Place) -> str:
    """Render words as an element."""
    return element("text", xml_text(words), x=x, y=y, **looks)


def say(words: str) -> str:
    """Render what the element around it says under the pointer."""
    return element("title", xml_text(words))


def rule(x1: Place, y1: Place, x2: Place, y2: Place, stroke: str, **looks: Place) -> str:
    """Render a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **looks)


_PATHS: Final = (f'<path id="mark-{name}" d="{path}"></path>' for name, path in SHAPES.items())
DEFINED: Final = f"<defs>{''.join(_PATHS)}</defs>"
"""The shapes: they stand once in a page or picture."""


@dataclass(frozen=True)
class SeriesLook:
    """How a series looks."""

    name: str
    colour: str
    shape: str
    dash: str = ""  # of its line; empty where it has none

    @property
    def symbol(self) -> str:
        """The symbol in a legend: 26 pixels wide, 12 high."""
        line = rule(-13, 0, 13, 0, "currentColor", stroke_width=2, stroke_dasharray=self.dash)
        inner = (line if self.dash else "") + element("use", href=f"#mark-{self.shape}")
        size = {"width": "26", "height": "12", "viewBox": "-13 -6 26 12"}
        return element("svg", inner, color=self.colour, fill="currentColor", **size)


def list_series(chart: Chart, looks: Sequence[str]) -> list[SeriesLook]:
    """List how each series looks: a verdict as all of its kind, another by its thing.

    Lines of one thing have dashes. `looks`: the names with a colour; a heat map has none."""
    if chart.threshold is not None:
        return [SeriesLook(name, *VERDICTS[name]) for name in chart.series]
    if chart.kind == "heat map":
        return []
    things, (*shapes, _), series = list_things(chart), SHAPES, list[SeriesLook]()
    names = [*dict.fromkeys(things)]
    places = {looks.index(name) % len(COLOURS) for name in names if name in looks}
    order = looks if len(places) == len(names) else names  # no two of a chart share a colour
    for place, (name, thing) in enumerate(zip(chart.series, things, strict=True)):
        colour = COLOURS[order.index(thing) % len(COLOURS)]
        shape = "square" if chart.kind == "bars" else shapes[place % len(shapes)]
        dash = DASHES[things[:place].count(thing) % len(DASHES)]
        has_line = chart.kind == "lines" and chart.joined
        series.append(SeriesLook(name, colour, shape, dash if has_line else ""))
    return series


def list_things(chart: Chart) -> list[str]:
    """Return what gives each series its colour: its thing; of a chart of one thing its name."""
    things = [chart.things.get(name, name) for name in chart.series]
    return things if len(set(things)) > 1 else chart.series


def list_looks(charts: Iterable[Chart]) -> list[str]:
    """List the names with a colour, in its order: variants, services, sides, then parts of bars."""
    coloured = [chart for chart in charts if chart.kind != "heat map" and chart.threshold is None]
    coloured.sort(key=lambda chart: chart.kind == "bars")
    return list(dict.fromkeys(name for chart in coloured for name in list_things(chart)))
