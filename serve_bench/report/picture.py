"""A document as one picture for a pull request: its sentence, its tiles and its main chart, or the
charts that are asked for; PNG or SVG, drawn by vl-convert without a network.

Rule: it knows no kind of run. vl_convert (extra `plot`) is imported where it is needed: it is
large.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final

from serve_bench.core.errors import BadInput, visible
from serve_bench.report.theme import LIGHT, looks_of
from serve_bench.report.vega import Spec, vega
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

TITLE, SUBTITLE, SMALL = 16, 13, 10
"""Sizes of fonts: of the sentence, the title of a chart, and what is said about the run."""

CHARACTER: Final = 0.58
"""Width of a character, as a share of the size of its font, in the widest of the usual fonts."""

SCALE: Final = 1.5
"""Pixels of a PNG for a pixel of the drawing."""


def charts_of(documents: Iterable[Document], words: str | None = None) -> list[Chart]:
    """The main chart of each document, or all with `words` in their title. BadInput where there is
    none, or more than a picture holds."""
    charts: list[Chart] = []
    titles: list[str] = []
    for document in documents:
        blocks = (block for section in document.sections for block in section.blocks)
        found = [block for block in with_charts(unfolded(blocks)) if isinstance(block, Chart)]
        titles += [chart.title for chart in found]
        named = [chart for chart in found if (words or "").casefold() in chart.title.casefold()]
        charts += found[:1] if words is None else named
    if titles and not charts:
        names = ", ".join(dict.fromkeys(titles))
        raise BadInput(f"--chart: no chart has {words!r} in its title; there are: {names}")
    if not charts:
        raise BadInput("--plot: there is no figure to draw")
    if len(charts) > MOST_CHARTS:
        most = f"a picture holds up to {MOST_CHARTS}: choose some"
        raise BadInput(f"--plot: {len(charts)} charts; {most}")
    return charts


def load_library(flag: str) -> ModuleType:
    """vl_convert, which draws charts. BadInput, which names the flag, where it is missing."""
    try:
        import vl_convert
    except ImportError:
        why = "vl-convert-python is missing; pip install vl-convert-python brings it"
        raise BadInput(f"{flag}: {why}") from None
    return vl_convert


def picture(documents: Sequence[Document], charts: Sequence[Chart], kind: str) -> bytes:
    """These charts of the documents as the bytes of a file of one of KINDS. BadInput where
    vl-convert-python is missing."""
    library, spec = load_library("--plot"), _spec(documents, charts)
    if kind == ".svg":
        svg: str = library.vegalite_to_svg(spec, config=_CONFIG)
        return svg.encode("utf-8")
    png: bytes = library.vegalite_to_png(spec, scale=SCALE, config=_CONFIG)
    return png


QUIET: Final = LIGHT["axis"]["labelColor"]
_CONFIG: Final[Spec] = {**LIGHT, "background": "#ffffff", "padding": 16}


def _spec(documents: Sequence[Document], charts: Sequence[Chart]) -> Spec:
    """The sentence of each run and what is said about it, its tiles, then the charts, one below the
    other."""
    looks = looks_of(charts)
    sentences = [document.headline or document.title for document in documents]
    drawn = [_draw_tiles(document.tiles) for document in documents if document.tiles]
    about = []
    for document in documents:
        facts = (facts for facts in (document.run, document.machine) if facts.pairs)
        about += [document.title, *("; ".join(map(" ".join, part.pairs)) for part in facts)]
    for chart in charts:
        spec = vega(chart, WIDTH, looks)
        drawn.append(spec | {"title": _title([chart.title], SUBTITLE, [chart.caption])})
    return {
        "title": _title(sentences, TITLE, about) | {"offset": 14},
        "vconcat": drawn,
        "spacing": 24,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
    }


def _draw_tiles(tiles: Sequence[Tile]) -> Spec:
    """Figures beside each other: the name above, the figure, what it is of below."""
    large, small = TILE
    width = WIDTH // len(tiles)
    cell = {"width": width, "height": 56, "data": {"values": [{}]}}

    def write(text: str, y: int, size: int, **look: Any) -> Spec:
        mark = {"type": "text", "align": "left", "fontSize": size, "limit": width - 16, **look}
        place = {"x": {"value": 0}, "y": {"value": y}, "text": {"value": visible(text)}}
        return {"mark": mark, "encoding": place}

    cells = []
    for tile in tiles:
        name, note = (
            write(tile.name, 6, small, color=QUIET),
            write(tile.note, 50, SMALL, color=QUIET),
        )
        figure = write(f"{tile.text} {tile.unit}".strip(), 28, large, fontWeight=600)
        cells.append(cell | {"layer": [name, figure, note]})
    return {"hconcat": cells, "spacing": 0}


def _title(texts: Sequence[str], size: int, below: Sequence[str]) -> Spec:
    look = {"anchor": "start", "fontSize": size, "subtitleFontSize": SMALL, "subtitlePadding": 6}
    lines = {"text": _wrapped(texts, size), "subtitle": _wrapped(below, SMALL)}
    return {**lines, **look, "subtitleColor": QUIET}


def _wrapped(texts: Sequence[str], size: int) -> list[str]:
    room = int(WIDTH / (CHARACTER * size))
    return [line for text in texts for line in textwrap.wrap(visible(text), room)]
