"""The parts of a page as HTML: prose, facts, tables, charts, pictures.

Rule: every text goes through `said` or `escape`; an attribute is quoted. A tone is a colour and a
sign, never a colour alone.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape as as_html
from itertools import groupby
from typing import Any, Final, TypeAlias

from serve_bench.core.document import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Facts,
    Finding,
    Folded,
    Number,
    Picture,
    Prose,
    Table,
    TableRow,
    Text,
    Tone,
    with_charts,
)
from serve_bench.core.errors import visible
from serve_bench.report.vega import vega

# --------------------------------------------------------------------------------------------------
# What of a run's folder is put into its page, and what is only linked.
#
# Rule: the page stays below LIMIT bytes: records come first, then pictures, each whole or not at
# all. Nothing is read here; whoever did says what is there.

LIMIT: Final = 3_000_000
"""Bytes of a page: it is to be mailed, and attached to issues."""

MEDIA: Final = {".svg": "image/svg+xml", ".png": "image/png"}
"""Kinds of pictures that a page can show, by the end of their name."""

_ALIVE: Final = re.compile(
    rb'<text class="(?:button|said)"[^>]*>[^<]*</text>\n?|<script><!\[CDATA\[.*?</script>\n?',
    re.DOTALL,
)
"""What a flamegraph has for a click: a browser runs nothing within an image, so that in a page it
would only stand there."""

OVERHEAD: Final = 600
"""Bytes that the markup around what is embedded takes, at most."""

Place: TypeAlias = tuple[int, str]
"""What may be embedded: the number of the sheet, from 0, and RECORDS or the path of a picture."""

RECORDS: Final = ""


@dataclass(frozen=True)
class Kept:
    """A file of a run: `href` leads to it from the page, as a URL; `size` in bytes, None where it
    is not there; `content` None where it is too large to be thought of, or no file of the run."""

    href: str
    size: int | None
    content: bytes | None = None


@dataclass(frozen=True)
class Folder:
    """What stands in the folder of a run: its records, and its pictures by their paths."""

    records: Kept | None = None
    pictures: Mapping[str, Kept] = field(default_factory=dict)


def embedded(folders: Sequence[Folder], bare: int) -> frozenset[Place]:
    """What finds room in a page that has `bare` bytes without any of it: first all records, then
    pictures, each that still fits."""
    room = LIMIT - bare
    chosen = set()
    for place, cost in (*_costs_of_records(folders), *_costs_of_pictures(folders)):
        if cost + OVERHEAD <= room:
            chosen.add(place)
            room -= cost + OVERHEAD
    return frozenset(chosen)


def records_text(content: bytes) -> str:
    """Records as they stand in a script block: the same JSON, without a `<`, which could end it.
    In JSON that sign occurs inside strings alone, where it may be written so."""
    return content.decode("utf-8", "replace").replace("<", "\\u003c")


def data_url(path: str, content: bytes) -> str | None:
    """A picture as a URL that holds it; None for what is no picture."""
    media = MEDIA.get(ending(path))
    if media is None:
        return None
    shown = _ALIVE.sub(b"", content) if ending(path) == ".svg" else content
    return f"data:{media};base64,{b64encode(shown).decode()}"


def ending(path: str) -> str:
    """How a name ends, in lower case: .svg."""
    return "." + path.rpartition(".")[2].lower()


def bytes_said(size: int) -> str:
    """A size in words: 218 kB, 3.4 MB."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def _costs_of_records(folders: Sequence[Folder]) -> list[tuple[Place, int]]:
    return [
        ((at, RECORDS), len(records_text(folder.records.content).encode()))
        for at, folder in enumerate(folders)
        if folder.records is not None and folder.records.content is not None
    ]


def _costs_of_pictures(folders: Sequence[Folder]) -> list[tuple[Place, int]]:
    return [
        ((at, path), len(url))
        for at, folder in enumerate(folders)
        for path, kept in folder.pictures.items()
        if kept.content is not None and (url := data_url(path, kept.content)) is not None
    ]


# --------------------------------------------------------------------------------------------------

SIGNS: Final[Mapping[Tone, tuple[str, str]]] = {
    "good": ("✓", "good"),
    "bad": ("✗", "bad"),
    "doubt": ("!", "in doubt"),
}
"""What a tone is without its colour: a sign, and the word that is read aloud."""

SHORT: Final = 28
SHORT_FIGURE: Final = 18
"""Characters of a cell, and of a figure, that stay on one line where there is room."""

UNBROKEN: Final = re.compile(
    r"(?<![^\s(])--[A-Za-z][\w-]*|-&gt;|[\d.,]*\d(?: %| ± [\d.,]*\d)(?!\w)"
)
"""A flag, an arrow, a share, or a figure with its spread in escaped words: no line may end within
it."""

PART: Final = re.compile(r"(?<=[/,:])(?=\w)")
PART_OF_NAME: Final = re.compile(r"(?<=[_./,:])(?=\w)")
LONG_WORD: Final = re.compile(r"\S{18,}")
"""Where a line may end in a word without a gap: a path, or in a narrow column a name."""

LONG: Final = 6000
MANY_LINES: Final = 40
"""Characters of HTML, and lines of text, from which what is folded stays so on paper."""

FEW_COLUMNS: Final = 4
LONG_CELL: Final = re.compile(r'<td class="[^"]*\blong\b')
"""So many columns, none of them with a long cell, need not be as wide as the page."""

SHORT_UNIT: Final = 14
"""Characters of a unit that stays on one line."""

BESIDE: Final = 3
"""So many charts in a row stand beside each other where there is room."""


@dataclass
class Pen:
    """Draws the blocks of one sheet. `level` is that of a section's heading; `prefix` begins every
    anchor; `picture` knows the files, and whether they are embedded. `charts` fills with the
    specifications of what was drawn, by their ids."""

    level: int
    prefix: str
    picture: Callable[[str], tuple[Kept | None, bool]]
    charts: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def section(self, title: str, blocks: Sequence[Block]) -> str:
        """The blocks of a section. The title of its only chart is left out where that of the
        section says as much."""
        blocks = [*with_charts(blocks)]
        charts = [one for one in blocks if isinstance(one, Chart)]
        if len(charts) == 1 and charts[0].title.casefold() in title.casefold():
            blocks = [replace(one, title="") if one is charts[0] else one for one in blocks]
        return self.blocks(blocks)

    def blocks(self, blocks: Iterable[Block]) -> str:
        """Blocks one after the other, several charts in a row beside each other."""
        out = []
        for alike, group in groupby(with_charts(blocks), key=lambda one: isinstance(one, Chart)):
            html = [self._block(block) for block in group]
            several = alike and len(html) >= BESIDE
            out += ['<div class="charts">', *html, "</div>"] if several else html
        return "\n".join(out)

    def _block(self, block: Block) -> str:
        if isinstance(block, Table):
            return table(block)
        if isinstance(block, Chart):
            return self._chart(block)
        if isinstance(block, Prose):
            return prose(block)
        if isinstance(block, Facts):
            return facts(block)
        if isinstance(block, Code):
            return f'<pre class="code" tabindex="0"><code>{escape(block.text)}</code></pre>'
        if isinstance(block, Picture):
            return self._picture(block)
        return self._folded(block) if isinstance(block, Folded) else ""

    def _heading(self, text: str) -> str:
        return f"<h{self.level + 1}>{escape(text)}</h{self.level + 1}>"

    def _chart(self, chart: Chart) -> str:
        name = f"{self.prefix}chart-{len(self.charts) + 1}"
        self.charts[name] = vega(chart)
        words = escape(chart.words)
        caption = f"<figcaption>{words_of(chart.caption)}</figcaption>" if chart.caption else ""
        return (
            f'<figure class="chart">{self._heading(chart.title) if chart.title else ""}'
            f'<div class="drawing" id="{escape(name)}" role="img" aria-label="{words}">'
            f'<p class="instead">{words}</p></div>{caption}</figure>'
        )

    def _picture(self, picture: Picture) -> str:
        kept, embed = self.picture(picture.path)
        head = self._heading(picture.title)
        if kept is None or kept.size is None:
            missing = f"{picture.path} is not in the folder of the run."
            return f'<div class="picture">{head}<p class="missing">{escape(missing)}</p></div>'
        link = f'<a href="{escape(kept.href)}">{escape(picture.path)}</a>'
        size = bytes_said(kept.size)
        url = data_url(picture.path, kept.content) if embed and kept.content is not None else None
        if url is None:
            return (
                f'<div class="picture">{head}<p>{escape(picture.words)}</p>'
                f'<p class="beside">Not in this page: {link}, {size}, in the folder of the run.</p>'
                "</div>"
            )
        return (
            f'<figure class="picture">{head}'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(picture.title)}">'
            f'<img src="{url}" alt="{escape(picture.words)}"></div>'
            f"<figcaption>{escape(_ended(picture.words))} To zoom and search, open it by itself, "
            f"in the folder of the run: {link}, {size}.</figcaption></figure>"
        )

    def _folded(self, folded: Folded) -> str:
        inside = self.blocks(folded.blocks)
        much = len(inside) > LONG or inside.count("\n") > MANY_LINES
        long = ' class="long"' if much else ""
        return (
            f"<details{long}><summary>{escape(folded.title)}</summary>"
            f'<div class="inside">{inside}</div></details>'
        )


def escape(text: str) -> str:
    """A text as it stands in the page, whatever it holds, on its own side of a line."""
    return as_html(visible(text))


def prose(block: Prose) -> str:
    """Paragraphs or a list."""
    tone = "" if block.tone == "plain" else f' class="{block.tone}"'
    if block.listed:
        items = "".join(f"<li{tone}>{_signed(one, block.tone)}</li>" for one in block.paragraphs)
        return f"<ul>{items}</ul>"
    return "".join(f"<p{tone}>{_signed(one, block.tone)}</p>" for one in block.paragraphs)


def facts(block: Facts) -> str:
    """A definition list."""
    pairs = "".join(
        f"<div><dt>{words_of(name)}</dt><dd>{words_of(text)}</dd></div>"
        for name, text in block.pairs
    )
    return f'<dl class="facts">{pairs}</dl>'


def doubts(findings: Iterable[Finding]) -> str:
    """Warnings as lines of their own."""
    return "".join(f'<p class="doubt">{_signed(one.line, "doubt")}</p>' for one in findings)


def table(block: Table) -> str:
    """A table in a box of its own, which scrolls where the page is narrower."""
    head = "".join(_head(column) for column in block.columns)
    bodies = "".join(
        _body(group, rows, block.columns, _of_words(block)) for group, rows in block.groups()
    )
    notes = "".join(f"<p>{words_of(note)}</p>" for note in block.notes)
    below = f'<div class="notes">{notes}</div>' if notes else ""
    label = escape(block.caption)
    short = len(block.columns) <= FEW_COLUMNS and not LONG_CELL.search(bodies)
    kinds = [*(["few"] if short else []), *(["words"] if _of_words(block) else [])]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return (
        f'<div class="table"><div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table{kind}><caption><span class="stay">{words_of(block.caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead>{bodies}</table></div>{below}</div>"
    )


def _head(column: Column) -> str:
    short = " short" if len(column.unit) <= SHORT_UNIT else ""
    unit = f' <span class="unit{short}">{escape(column.unit)}</span>' if column.unit else ""
    return f'<th scope="col"{_kind(column)}>{words_of(column.name, PART_OF_NAME)}{unit}</th>'


def _of_words(block: Table) -> bool:
    """Whether it has no figures: on a phone its cells stand below each other, with their names."""
    return not any(column.number for column in block.columns)


def _body(
    group: str,
    rows: Sequence[tuple[TableRow, tuple[Finding, ...]]],
    columns: tuple[Column, ...],
    named: bool,
) -> str:
    across = f' colspan="{len(columns)}"'
    out = ["<tbody>"]
    if group:
        name = f'<span class="stay">{words_of(group)}</span>'
        out.append(f'<tr class="group"><th scope="rowgroup"{across}>{name}</th></tr>')
    for row, below in rows:
        cells = zip(row.cells, columns, strict=True)
        line = "".join(
            _cell(cell, column, first=at == 0, named=named)
            for at, (cell, column) in enumerate(cells)
        )
        doubted = ' class="doubted"' if below else ""
        out.append(f"<tr{doubted}>{line}</tr>")
        if below:
            lines = f'<div class="stay">{doubts(below)}</div>'
            out.append(f'<tr class="doubts"><td{across}>{lines}</td></tr>')
    return "".join([*out, "</tbody>"])


def _cell(cell: Cell, column: Column, *, first: bool, named: bool) -> str:
    tag, scope = ("th", ' scope="row"') if first else ("td", "")
    about = Text(cell) if isinstance(cell, str) else cell
    value = f' data-value="{escape(as_json(about.value))}"' if isinstance(about, Number) else ""
    name = f' data-name="{escape(column.name)}"' if named else ""
    below = about.below if isinstance(about, Text) else ()
    long = max(map(len, (about.text, *below))) > (SHORT_FIGURE if column.number else SHORT)
    small = "".join(f'<span class="below">{words_of(line, PART_OF_NAME)}</span>' for line in below)
    return (
        f"<{tag}{scope}{_kind(column, about.tone, long=long)}{value}{name}>"
        f"{_signed(about.text, about.tone, PART_OF_NAME if first else PART)}{small}</{tag}>"
    )


def _kind(column: Column, tone: Tone = "plain", *, long: bool = False) -> str:
    names = [
        *(["number"] if column.number else []),
        *(["long"] if long else []),
        *([tone] if tone != "plain" else []),
    ]
    return f' class="{" ".join(names)}"' if names else ""


def _signed(text: str, tone: Tone, part: re.Pattern[str] = PART) -> str:
    """A text with the sign of its tone before it."""
    words = words_of(text, part)
    if tone not in SIGNS or not text:
        return words
    sign, word = SIGNS[tone]
    return (
        f'<span class="sign" aria-hidden="true">{sign}</span>'
        f'<span class="unseen">{word}: </span>{words}'
    )


def words_of(text: str, part: re.Pattern[str] = PART) -> str:
    """An escaped text whose lines end where a reader does not stumble: within nothing that is
    UNBROKEN, and in a long word where it has a `part`."""
    words = LONG_WORD.sub(lambda found: part.sub("<wbr>", found[0]), escape(text))
    return UNBROKEN.sub(r'<span class="flag">\g<0></span>', words)


def _ended(text: str) -> str:
    """A sentence with its capital and its full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def as_json(value: float | None) -> str:
    """A figure as `--format json` writes it; null where there is none, or no number."""
    return json.dumps(value if value is not None and math.isfinite(value) else None)
