"""A document as one picture for a pull request: its sentence, tiles, and main or chosen charts.

Rule: it knows no kind of run. SVG, or PNG by vl-convert, which is large and imported late."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from serve_bench.core.errors import BadInput, visible
from serve_bench.report.drawing import draw
from serve_bench.report.theme import (
    DEFINED,
    GROUND,
    QUIET,
    TEXT,
    SeriesLook,
    element,
    list_looks,
    list_series,
    write,
)
from serve_bench.view.charts import Chart
from serve_bench.view.document import Document, unfold

KINDS: Final = (".svg", ".png")
"""The ends of the name of a picture."""

MOST_CHARTS: Final = 60
"""A picture of more would be beyond what programs open as a PNG."""

WIDTH, EDGE = 900, 24
ROOM: Final = WIDTH - 2 * EDGE
"""Pixels of a picture, of what is left free at its edges, and between these."""

CHARACTER: Final = 0.58
"""Width of a character, as a share of the size of its font, in the widest of the usual fonts."""

FONTS: Final = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"

SCALE: Final = 1.5
"""Pixels of a PNG for a pixel of the drawing."""


def charts_of(documents: Iterable[Document], words: str | None = None) -> list[Chart]:
    """Return the main chart of each document, or all with `words` in their title.

    Raises BadInput where there is none, or more than a picture holds."""
    charts: list[Chart] = []
    titles: list[str] = []
    for document in documents:
        blocks = (block for section in document.sections for block in section.blocks)
        found = [block for block in unfold(blocks) if isinstance(block, Chart)]
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


def picture(documents: Sequence[Document], charts: Sequence[Chart], kind: str) -> bytes:
    """Return these charts of the documents as the bytes of a file of one of KINDS.

    Raises BadInput where vl-convert-python is missing."""
    svg = draw_picture(documents, charts)
    if kind == ".svg":
        return svg.encode("utf-8")
    try:
        import vl_convert
    except ImportError:
        why = "vl-convert-python is missing; pip install vl-convert-python brings it"
        raise BadInput(f"--plot: {why}") from None
    png: bytes = vl_convert.svg_to_png(svg, scale=SCALE)
    return png


def draw_picture(documents: Sequence[Document], charts: Sequence[Chart]) -> str:
    """Draw the sentence of each run, its title and tiles, then the charts, one below the other."""
    sheet, looks = _Sheet(), list_looks(charts)
    for document in documents:
        sheet.write(document.headline or document.title, 16, font_weight="bold")
        sheet.write(document.title, 10, fill=QUIET)
        tiles = document.tiles()
        pairs = (zip(tiles.columns, row.cells, strict=True) for row in tiles.rows)
        figures = [*chain.from_iterable(pairs)]
        for place, (column, cell) in enumerate(figures):
            x = EDGE + place * ROOM / len(figures)
            figure = write(cell.text, x, sheet.y + 46, font_size=15, font_weight="bold")
            name = write(f"{column.name} {column.unit}", x, sheet.y + 26, fill=QUIET)
            sheet.parts += [name, figure]
        sheet.y += 50 if figures else 0
    for chart in charts:
        sheet.y += EDGE
        sheet.write(chart.title, 13, font_weight="bold")
        sheet.write(chart.caption, 10, fill=QUIET)
        sheet.draw(chart, list_series(chart, looks))
    ground = element("rect", width="100%", height="100%", fill=GROUND)
    size = {"width": f"{WIDTH}", "height": f"{sheet.y + EDGE:.0f}"}
    about = {"xmlns": "http://www.w3.org/2000/svg", "font_family": FONTS, "fill": TEXT}
    svg = element("svg", ground, DEFINED, *sheet.parts, font_size=12, **size, **about)
    return re.sub(r"light-dark\((#\w+), #\w+\)", r"\1", svg)


class _Sheet:
    """What is drawn so far, down to `y`."""

    def __init__(self) -> None:
        self.y = float(EDGE)
        self.parts: list[str] = []

    def write(self, words: str, size: int, **looks: str) -> None:
        """Write running text, in lines."""
        for line in textwrap.wrap(visible(words), int(ROOM / (CHARACTER * size))):
            self.y += 1.35 * size
            self.parts.append(write(line, EDGE, self.y, font_size=size, **looks))

    def draw(self, chart: Chart, series: Sequence[SeriesLook]) -> None:
        """Draw a chart, and its legend below."""
        plot, height, (top, right, bottom, left), _ = draw(chart, series)
        place = {"x": EDGE + left, "y": self.y + top + 12, "width": ROOM - left - right}
        self.parts.append(element("svg", plot, overflow="visible", height=height, **place))
        self.y += top + 12 + height + bottom
        longest = max((len(look.name) for look in series), default=0)
        columns = max(1, int(ROOM / (12 * CHARACTER * longest + 48)))
        for turn, look in enumerate(series):
            x = EDGE + turn % columns * ROOM / columns
            self.y += 0 if turn % columns else 18
            symbol = element("g", look.symbol, transform=f"translate({x:g} {self.y - 10:g})")
            self.parts += [symbol, write(look.name, x + 32, self.y)]
