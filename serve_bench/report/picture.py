"""A document as one picture for a pull request: its sentence, its tiles and its main chart, or the
charts that are asked for; PNG or SVG, drawn by vl-convert without a network.

Rule: it knows no kind of run. vl_convert (extra `plot`) is imported where it is needed: it is
large.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from serve_bench.core.errors import BadInput, visible
from serve_bench.report.theme import LIGHT, Looks, looks_of
from serve_bench.report.vega import vega
from serve_bench.view.charts import Chart
from serve_bench.view.document import Document, Tile, unfolded, with_charts

KINDS: Final = (".svg", ".png")
"""The ends of the name of a picture."""

MOST_CHARTS: Final = 60
"""A picture of more would be beyond what programs open as a PNG."""

WIDTH: Final = 760
"""Pixels of a chart, and of the row of tiles."""

TILE: Final = (17, 12)
"""Font sizes of the figure of a tile, and of the words around it."""

TITLE: Final = 16
SMALL: Final = 10
"""Sizes of fonts: of the sentence, and of what is said about the run."""

CHARACTER: Final = 0.58
"""Width of a character, as a share of the size of its font, in the widest of the usual fonts."""

SCALE: Final = 1.5
"""Pixels of a PNG for a pixel of the drawing."""


def charts_of(documents: Iterable[Document], words: str | None = None) -> list[Chart]:
    """The main chart of each document, or all with `words` in their title. BadInput where there is
    none, or more than a picture holds."""
    charts: list[Chart] = []
    titles: dict[str, None] = {}
    for document in documents:
        blocks = (block for section in document.sections for block in section.blocks)
        found = [block for block in with_charts(unfolded(blocks)) if isinstance(block, Chart)]
        titles |= dict.fromkeys(chart.title for chart in found)
        named = [chart for chart in found if (words or "").casefold() in chart.title.casefold()]
        charts += found[:1] if words is None else named
    if titles and not charts:
        raise BadInput(
            f"--chart: no chart has {words!r} in its title; there are: {', '.join(titles)}"
        )
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


QUIET: Final = LIGHT["axis"]["labelColor"]
_CONFIG: Final[dict[str, Any]] = {**LIGHT, "background": "#ffffff", "padding": 16}


def _spec(documents: Sequence[Document], charts: Sequence[Chart]) -> dict[str, Any]:
    """The sentence of each run, its tiles, then the charts, one below the other."""
    looks = looks_of(chart.drawing for chart in charts)
    title = {
        "text": _wrapped([document.headline or document.title for document in documents], TITLE),
        "subtitle": _wrapped([line for document in documents for line in _about(document)], SMALL),
        "anchor": "start",
        "fontSize": TITLE,
        "subtitleFontSize": SMALL,
        "subtitlePadding": 6,
        "subtitleColor": QUIET,
        "offset": 14,
    }
    drawn = [_draw_tiles(document.tiles) for document in documents if document.tiles]
    drawn += [_child(chart, looks) for chart in charts]
    return {
        "title": title,
        "vconcat": drawn,
        "spacing": 24,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
    }


def _draw_tiles(tiles: Sequence[Tile]) -> dict[str, Any]:
    """Figures beside each other: the name above, the figure, what it is of below."""
    large, small = TILE
    width = WIDTH // len(tiles)

    def write(text: str, y: int, size: int, **look: Any) -> dict[str, Any]:
        mark = {"type": "text", "align": "left", "fontSize": size, "limit": width - 16, **look}
        place = {"x": {"value": 0}, "y": {"value": y}, "text": {"value": visible(text)}}
        return {"mark": mark, "encoding": place}

    cells = [
        {
            "width": width,
            "height": 56,
            "data": {"values": [{}]},
            "view": {"stroke": None},
            "layer": [
                write(tile.name, 6, small, color=QUIET),
                write(f"{tile.text} {tile.unit}".strip(), 28, large, fontWeight=600),
                write(tile.note, 50, small - 2, color=QUIET),
            ],
        }
        for tile in tiles
    ]
    return {"hconcat": cells, "spacing": 0}


def _child(chart: Chart, looks: Looks) -> dict[str, Any]:
    spec = vega(chart, WIDTH, looks)
    del spec["description"]
    spec["title"] = {
        "text": visible(chart.title),
        "subtitle": _wrapped([chart.caption] if chart.caption else [], SMALL),
        "anchor": "start",
        "fontSize": 13,
        "subtitleFontSize": SMALL,
        "subtitleColor": QUIET,
    }
    return spec


def _about(document: Document) -> list[str]:
    facts = [about.pairs for about in (document.run, document.machine) if about.pairs]
    return [document.title, *("; ".join(map(" ".join, pairs)) for pairs in facts)]


def _wrapped(texts: Sequence[str], size: int) -> list[str]:
    room = int(WIDTH / (CHARACTER * size))
    return [line for text in texts for line in textwrap.wrap(visible(text), room)]
