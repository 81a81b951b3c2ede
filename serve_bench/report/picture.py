"""The charts of a document as one picture: PNG or SVG, drawn by vl-convert without a network.

Rule: it knows no kind of run: the document says which charts are in its picture. vl_convert
(extra `plot`) is imported where it is needed: it is large.
"""

from __future__ import annotations

import struct
import textwrap
import zlib
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from serve_bench.core.charts import Chart
from serve_bench.core.document import Document, Facts, with_charts
from serve_bench.core.errors import BadInput, visible
from serve_bench.report.theme import LIGHT, Looks, looks_of
from serve_bench.report.vega import siblings, vega

KINDS: Final = ("png", "svg")

COLUMNS: Final = {1: 1, 2: 1}
"""Columns of so many charts; of more there are two."""
WIDTHS: Final = {1: 760, 2: 470}
"""Pixels of a chart, by the number of columns."""

CHARACTERS: Final = 7.0
"""Pixels of a character of a title, at most in the mean."""

SCALE: Final = 1.5
"""Pixels of a PNG for a pixel of the drawing."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"


def charts_of(document: Document) -> list[Chart]:
    """The charts of a document's picture; none where there is nothing to draw."""
    blocks = () if document.picture is None else document.picture()
    return [one for one in with_charts(blocks) if isinstance(one, Chart)]


def picture(documents: Sequence[Document], kind: str, made_by: str = "") -> bytes:
    """The charts of the documents as the bytes of a file; `made_by` stands in it, where
    `is_made_by` finds it.

    Raises BadInput where vl-convert-python is missing, the kind is another, or there is no chart.
    """
    if kind not in KINDS:
        raise BadInput(f"plot: {kind!r} is not allowed; it takes {' or '.join(KINDS)}")
    charts = [chart for document in documents for chart in charts_of(document)]
    if not charts:
        raise BadInput("plot: there is no figure to draw")
    try:
        import vl_convert
    except ImportError:
        raise BadInput(
            "plot: vl-convert-python is missing; pip install vl-convert-python brings it"
        ) from None
    spec = _spec(documents, charts)
    if kind == "svg":
        return _marked_svg(vl_convert.vegalite_to_svg(spec, config=_CONFIG), made_by)
    png = vl_convert.vegalite_to_png(spec, scale=SCALE, config=_CONFIG)
    return _marked_png(png, made_by)


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
    """A chart with its title and, below it, its caption."""
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
    """The headline, the request and the machine."""
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


# ------------------------------------------------------------------------- who made a file


def is_made_by(content: bytes, made_by: str) -> bool:
    """Whether a file that begins so is a picture of `made_by`."""
    if content.startswith(_PNG):
        return f"tEXtSoftware\0{made_by}".encode() in content
    named = f">{escape(made_by)}</dc:title>".encode()
    return content.startswith((b"<svg", b"<?xml")) and named in content


def _marked_png(content: bytes, made_by: str) -> bytes:
    """The picture with a chunk of text behind its header, as the PNG specification has it."""
    if not made_by:
        return content
    end = len(_PNG) + 25  # length, name, 13 bytes and checksum of the header
    body = b"tEXtSoftware\0" + made_by.encode("latin-1")
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return content[:end] + chunk + content[end:]


def _marked_svg(text: str, made_by: str) -> bytes:
    if made_by:
        head, sign, rest = text.partition(">")
        name = escape(made_by)
        about = f'<dc:title xmlns:dc="http://purl.org/dc/elements/1.1/">{name}</dc:title>'
        text = f"{head}{sign}<metadata>{about}</metadata>{rest}"
    return text.encode("utf-8")
