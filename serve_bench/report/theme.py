"""The colours of charts: a configuration of Vega-Lite for a page, and for a picture.

Rule: data only. A colour of a page is a pair, `light-dark()` of CSS: the scheme of the page, or
paper, takes its own; a picture has the light ones. A chart names a style (note, segment, band,
mark) or takes the colours of names from `Looks`; this module says what that is. The colours
of words and grounds of a page are in templates/style.css, a file of TEMPLATES.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from serve_bench.view.charts import Chart

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"


def file_text(name: str) -> str:
    """A file of `templates`, such as a style."""
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


TEXT: Final = "light-dark(#1f2328, #e6e8eb)"
QUIET: Final = "light-dark(#57606a, #a3abb5)"
RULE: Final = "light-dark(#b6bcc4, #525a64)"

SERIES: Final = (
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

PAGE: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "padding": 2,
    "view": {"stroke": None},
    "axis": {
        "labelColor": QUIET,
        "titleColor": QUIET,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "light-dark(#e8eaed, #2c3138)",
        "domainColor": RULE,
        "tickColor": RULE,
        "tickSize": 4,
        "labelLineHeight": 16,
    },
    "axisY": {"domain": False, "ticks": False},
    "legend": {"labelColor": TEXT, "labelFontSize": 12, "symbolSize": 80, "symbolStrokeWidth": 2},
    "text": {"color": TEXT, "fontSize": 12},
    "style": {
        "note": {"color": QUIET},
        "segment": {"color": "light-dark(#ffffff, #101418)"},
        "band": {"color": "light-dark(#eceff3, #2a3038)"},
        "mark": {"color": QUIET, "strokeWidth": 1},
    },
}


def keep_light(spec: dict[str, Any]) -> dict[str, Any]:
    """The same with the light colour of each pair alone."""
    text = re.sub(r"light-dark\((#\w+), #\w+\)", r"\1", json.dumps(spec))
    light: dict[str, Any] = json.loads(text)
    return light


LIGHT: Final = keep_light(PAGE)

# Which name has which colour: the same throughout a page.

SHAPES: Final = (
    *("circle", "square", "triangle-up", "cross", "diamond"),
    *("triangle-right", "triangle-down", "triangle-left"),
)
"""Shapes of the points of series, in their order in a chart; names of Vega."""

DASHES: Final = ([1, 0], [6, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2])
"""Dashes of the lines of one thing, in their order: pixels drawn and left free."""

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

Looks: TypeAlias = Sequence[str]
"""The names that have a colour, in the order of the colours: variants, services, sides, then the
parts of bars."""


def things_of(chart: Chart) -> list[str]:
    """What gives each series its colour: its thing; in a chart of a single thing its name."""
    things = [chart.things.get(name, name) for name in chart.series]
    return things if len(set(things)) > 1 else chart.series


def looks_of(charts: Iterable[Chart]) -> Looks:
    """All names of these charts that have a colour, in the order in which they come."""
    coloured = [chart for chart in charts if chart.kind != "heat map" and chart.threshold is None]
    coloured.sort(key=lambda chart: chart.kind == "bars")
    return list(dict.fromkeys(name for chart in coloured for name in things_of(chart)))


def colours_of(names: Sequence[str], looks: Looks) -> list[str]:
    """A colour for each name. A page may have more names than there are colours: where two names
    of a chart would share one, colours go by their order in the chart."""
    here = list(dict.fromkeys(names))
    places = {looks.index(name) % len(SERIES) for name in here if name in looks}
    order = looks if len(places) == len(here) else here
    return [SERIES[order.index(name) % len(SERIES)] for name in names]
