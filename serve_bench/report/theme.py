"""The colours of charts: configurations of Vega-Lite for a light and for a dark ground.

Rule: data only, the same fields in both. A chart names a style (heading, label, note, value,
segment, band, mark) or takes the colour of a name from `Looks`; this module says what that is. The
colours of words and grounds of a page are in templates/style.css, a file of TEMPLATES.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serve_bench.view.charts import Bars, Dots, Drawing, Lines

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"


def file_text(name: str) -> str:
    """A file of `templates`, such as a style."""
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def _config(
    text: str, quiet: str, grid: str, line: str, band: str, inside: str, series: tuple[str, ...]
) -> dict[str, Any]:
    """`inside`: words on the colours of `series`."""
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 2,
        "view": {"stroke": None},
        "axis": {
            "labelColor": quiet,
            "titleColor": quiet,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 6,
            "gridColor": grid,
            "domainColor": line,
            "tickColor": line,
            "tickSize": 4,
            "labelPadding": 4,
        },
        "axisX": {"domain": True},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": text,
            "labelFontSize": 12,
            "symbolSize": 80,
            "symbolStrokeWidth": 2,
            "rowPadding": 4,
            "columnPadding": 14,
            "padding": 0,
            "layout": {"top": {"anchor": "start", "bounds": "full"}},
        },
        "range": {"category": list(series)},
        "text": {"color": text, "fontSize": 12},
        "style": {
            "heading": {"color": text, "fontSize": 12, "fontWeight": 600},
            "label": {"color": text, "fontSize": 12},
            "note": {"color": quiet, "fontSize": 12},
            "value": {"color": text, "fontSize": 12},
            "segment": {"color": inside, "fontSize": 12},
            "band": {"color": band},
            "mark": {"color": quiet, "strokeWidth": 1},
        },
    }


LIGHT: Final = _config(
    text="#1f2328",
    quiet="#57606a",
    grid="#e8eaed",
    line="#b6bcc4",
    band="#eceff3",
    inside="#ffffff",
    series=(
        *("#0068a8", "#c4510a", "#007d5c", "#a8477f"),
        *("#3576ad", "#8a6400", "#6a3d9a", "#5f6b78"),
    ),
)
"""For a light page, a picture, and paper. Colours after Okabe and Ito, darkened to a contrast of
4.5 or more with white (WCAG 1.4.3): lines are seen, and white words on bars can be read."""

DARK: Final = _config(
    text="#e6e8eb",
    quiet="#a3abb5",
    grid="#2c3138",
    line="#525a64",
    band="#2a3038",
    inside="#101418",
    series=(
        *("#56b4e9", "#f28e4b", "#2fc296", "#e08fc0"),
        *("#9ecbff", "#e6b422", "#b79be0", "#aab4c0"),
    ),
)
"""For a dark page: the same hues, lighter, with dark words on them."""


def light_dark(light: Any, dark: Any) -> Any:
    """Two configurations of the same keys as one. Where they differ, it has both colours as
    `light-dark()` of CSS: the scheme of the page, or paper, takes its own."""
    if isinstance(light, Mapping):
        return {name: light_dark(light[name], dark[name]) for name in light}
    if isinstance(light, (list, tuple)):
        return [light_dark(one, other) for one, other in zip(light, dark, strict=True)]
    return light if light == dark else f"light-dark({light}, {dark})"


# Which name has which colour: the same throughout a page.

SHAPES: Final = (
    *("circle", "square", "triangle-up", "cross", "diamond"),
    *("triangle-right", "triangle-down", "triangle-left"),
)
"""Shapes of the points of series, in their order in a chart; names of Vega."""

DASHES: Final = ([1, 0], [6, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2])
"""Dashes of the lines of one thing, in their order: pixels drawn and left free."""


@dataclass(frozen=True)
class Looks:
    """The colours of names. `things`: variants, services, sides; where there is but one, its rows
    or percentiles. `parts`: processes and other parts of bars, which take colours from the other
    end, so that few of both never share one. `light_alone`: of a picture, which has no dark form.
    """

    things: Sequence[str]
    parts: Sequence[str]
    several: bool
    light_alone: bool = False

    def thing(self, series: str, parts: Mapping[str, tuple[str, str]]) -> str:
        """What gives a series its colour: its thing, or of a page with but one its part."""
        thing, part = parts.get(series, (series, ""))
        return thing if self.several or not part else part

    def of_things(self, names: Sequence[str]) -> list[str]:
        """The colours of the things of a chart, one for each name."""
        return self._colours([self.things.index(name) for name in names])

    def of_parts(self, names: Sequence[str]) -> list[str]:
        """The colours of the parts of bars of a chart."""
        return self._colours([-1 - self.parts.index(name) for name in names])

    def _colours(self, places: Sequence[int]) -> list[str]:
        """By place. Where two places of a chart would share a colour, for a page has more names
        than there are colours, by their order in the chart."""
        light, dark = (config["range"]["category"] for config in (LIGHT, DARK))
        apart = list(dict.fromkeys(places))
        if len({at % len(light) for at in apart}) < len(apart):
            places = [apart.index(at) for at in places]
        every = light if self.light_alone else light_dark(light, dark)
        return [str(every[at % len(light)]) for at in places]


def looks_of(drawings: Iterable[Drawing], *, light_alone: bool = False) -> Looks:
    """The colours of all names of these drawings, in the order in which they come."""
    every = list(drawings)
    lines = [
        one.parts.get(name, (name, ""))
        for one in every
        if isinstance(one, Lines)
        for name in one.series
    ]
    groups = [point.group for one in every if isinstance(one, Dots) for point in one.points]
    several = len({*groups, *(thing for thing, _ in lines)}) > 1
    names = [thing if several or not part else part for thing, part in lines]
    parts = [share.part for one in every if isinstance(one, Bars) for share in one.shares]
    return Looks(
        list(dict.fromkeys([*groups, *names])), list(dict.fromkeys(parts)), several, light_alone
    )
