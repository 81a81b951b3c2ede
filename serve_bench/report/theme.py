"""The colours of charts: configurations of Vega-Lite for a light and for a dark ground.

Rule: data only, the same fields in both. A chart names a style (heading, label, note, value,
segment, band, mark) or takes the next colour of `category`; this module says what that is. The
colours of words and grounds of a page are in templates/style.css.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
