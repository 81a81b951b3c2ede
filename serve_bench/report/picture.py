"""Charts of documents as one picture: PNG or SVG, drawn by vl-convert without a network.

Rule: it knows no kind of run. vl_convert (extra `plot`) is imported where it is needed: it is
large.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from serve_bench.core.errors import BadInput, visible
from serve_bench.report.theme import LIGHT, Looks, looks_of
from serve_bench.report.vega import siblings, vega
from serve_bench.view.charts import Chart
from serve_bench.view.document import Document, Facts, unfolded, with_charts

KINDS: Final = (".svg", ".png")
"""The ends of the name of a picture."""

MOST_CHARTS: Final = 60
"""A picture of more would be beyond what programs open as a PNG."""

COLUMNS: Final = {1: 1, 2: 1}
"""Columns of so many charts; of more there are two."""
WIDTHS: Final = {1: 760, 2: 470}
"""Pixels of a chart, by the number of columns."""

CHARACTERS: Final = 7.0
"""Pixels of a character of a title, at most in the mean."""

SCALE: Final = 1.5
"""Pixels of a PNG for a pixel of the drawing."""


def charts_of(documents: Iterable[Document], words: str | None = None) -> list[Chart]:
    """The charts of documents, of several or of those with `words` in their title. BadInput where
    there is none, or more than a picture holds."""
    blocks = (block for one in documents for section in one.sections for block in section.blocks)
    every = [block for block in with_charts(unfolded(blocks)) if isinstance(block, Chart)]
    charts = [one for one in every if words is None or words.casefold() in one.title.casefold()]
    if every and not charts:
        titles = ", ".join(dict.fromkeys(one.title for one in every))
        raise BadInput(f"--chart: no chart has {words!r} in its title; there are: {titles}")
    if not charts:
        raise BadInput("--plot: there is no figure to draw")
    if len(charts) > MOST_CHARTS:
        raise BadInput(
            f"--plot: {len(charts)} charts; a picture holds up to {MOST_CHARTS}: choose some"
        )
    return charts


def picture(documents: Sequence[Document], charts: Sequence[Chart], kind: str) -> bytes:
    """These charts of the documents as the bytes of a file of one of KINDS. BadInput where
    vl-convert-python is missing."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput(
            "--plot: vl-convert-python is missing; pip install vl-convert-python brings it"
        ) from None
    spec = _spec(documents, charts)
    if kind == ".svg":
        return vl_convert.vegalite_to_svg(spec, config=_CONFIG).encode("utf-8")
    return vl_convert.vegalite_to_png(spec, scale=SCALE, config=_CONFIG)


_CONFIG: Final[dict[str, Any]] = {**LIGHT, "background": "#ffffff", "padding": 16}


def _spec(documents: Sequence[Document], charts: Sequence[Chart]) -> dict[str, Any]:
    columns = 1 if any(one.in_lanes for one in charts) else COLUMNS.get(len(charts), 2)
    width = WIDTHS[columns]
    lines = _wrapped(_about(documents), columns * width)
    looks = looks_of((chart.drawing for chart in charts), light_alone=True)
    title = {
        "text": [visible(one.title) for one in documents],
        "subtitle": lines,
        "anchor": "start",
        "fontSize": 16,
        "subtitlePadding": 6,
        "subtitleColor": LIGHT["axis"]["labelColor"],
        "offset": 14,
    }
    return {
        "title": title,
        "concat": [
            _child(chart, width, looks, beside)
            for chart, beside in zip(charts, siblings(charts), strict=True)
        ],
        "columns": columns,
        "spacing": 28,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
    }


def _child(chart: Chart, width: int, looks: Looks, beside: Sequence[Chart]) -> dict[str, Any]:
    spec = vega(chart, width, looks, beside)
    del spec["description"]
    spec["title"] = {
        "text": visible(chart.title),
        "subtitle": _wrapped([chart.caption] if chart.caption else [], width),
        "anchor": "start",
        "fontSize": 13,
        "subtitleFontSize": 10,
        "subtitleColor": LIGHT["axis"]["labelColor"],
    }
    return spec


def _about(documents: Sequence[Document]) -> list[str]:
    lines = []
    for document in documents:
        lines += [one.line for one in document.findings[:1]]
        lines += [_facts(facts) for facts in (document.run, document.machine) if facts.pairs]
    return lines


def _facts(facts: Facts) -> str:
    return "; ".join(f"{name} {text}" for name, text in facts.pairs)


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    room = int(width / CHARACTERS) + 10
    return [line for text in texts for line in textwrap.wrap(visible(text), room)]
