"""A document as text for a terminal, down to its tables.

Rule: it knows no kind of run. What was found stands first, then what doubts the whole run, the
tables with what doubts a row below that row, what was asked for and the machine last. No line is
wider than the terminal, but for the place of the records; a table that is too wide gives up columns
that can be spared, and says which. Colour only repeats what words and signs say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from serve_bench.core.document import (
    Block,
    Code,
    Document,
    Facts,
    Folded,
    Picture,
    Prose,
    Row,
    Section,
    Table,
    Tone,
    cell_text,
)
from serve_bench.core.errors import visible
from serve_bench.report.columns import fitted
from serve_bench.report.widths import wrapped

Line = tuple[str, Tone | None]
"""A line and its tone; None is a heading."""

SIGNS: Final[dict[Tone, str]] = {"bad": "x ", "doubt": "! ", "good": "+ "}
"""What a tone is without its colour, before a paragraph."""

STYLES: Final[dict[Tone | None, str]] = {
    None: "bold",
    "plain": "",
    "good": "green",
    "bad": "red",
    "doubt": "yellow",
    "quiet": "dim",
}
SHOWN: Final = ("headline", "table")
"""Of a section's details, the first the terminal shows without a heading."""


def terminal_text(document: Document, width: int = 80, color: bool = False) -> str:
    """The document as text that ends with a newline. `width`: characters of a line."""
    return drawn(terminal_lines(document, width), width, color)


def terminal_lines(document: Document, width: int) -> Iterator[Line]:
    """The lines of a document, each with its tone."""
    for at, finding in enumerate(document.findings):
        yield from _wrapped(finding, width, tone="plain" if at else None)
    for doubt in document.doubts:
        yield from _wrapped(f"! {doubt}", width, tone="doubt")
    for section in document.sections:
        if section.detail in SHOWN:
            yield from _section(section, width)
    yield "", "plain"
    for facts in (document.run, document.machine):
        if facts.pairs:
            told = "; ".join(f"{name} {text}" for name, text in facts.pairs)
            yield from _wrapped(told, width, tone="quiet")
    yield from ((f"records: {folder}", "plain") for folder in document.records)


def _section(section: Section, width: int) -> Iterator[Line]:
    lines = [line for block in section.blocks for line in _block(block, width)]
    if lines:
        yield "", "plain"
        if section.detail != "headline":
            yield section.title, None
        yield from lines


def _block(block: Block, width: int) -> Iterator[Line]:
    match block:
        case Table():
            yield from _table(block, width)
        case Prose():
            for text in block.paragraphs:
                said = SIGNS.get(block.tone, "") + text
                yield from _wrapped(said, width, tone=block.tone)
        case Facts():
            for name, text in block.pairs:
                yield from _wrapped(f"{name}: {text}", width, tone="plain")
        case Code():
            yield from ((line, "plain") for line in block.text.splitlines())
        case Picture():
            yield f"{block.title}: {block.path}", "quiet"
        case Folded():  # what few readers want; the page has it
            return
        case _:  # a chart: its figures stand in a table beside
            return


def _table(table: Table, width: int) -> Iterator[Line]:
    """Its caption, names, units, rows in their groups, and notes."""
    yield from _wrapped(table.caption, width, tone=None)
    names = [column.name for column in table.columns]
    units = [column.unit for column in table.columns]
    texts = [tuple(map(cell_text, row.cells)) for row in table.rows]
    left = [at for at, column in enumerate(table.columns) if not column.number] or [0]
    spare = [at for at, column in enumerate(table.columns) if column.spare]
    whole = [" ".join(pair).strip() for pair in zip(names, units, strict=True)]
    layout = fitted(names, [units, *texts], left, width, spare, whole=whole)
    heads, unit_lines, *blocks = layout.blocks
    yield from ((line, "quiet") for line in heads)
    if any(units):
        yield from ((line, "quiet") for line in unit_lines)
    rows = iter(blocks)
    for group, some in groupby(table.rows, key=lambda row: row.group):
        if group:
            yield from _wrapped(group, width, tone="plain")
        for row in some:
            yield from ((line, _tone(row)) for line in next(rows))
            for doubt in row.doubts:
                yield from _wrapped(f"! {doubt}", width, indent=2, tone="doubt")
    yield from ((line, "quiet") for line in layout.said(width))
    for note in table.notes:
        yield from _wrapped(note, width, tone="quiet")


def _tone(row: Row) -> Tone:
    """Red where a figure of the row is a verdict against it, plain else: words say the rest."""
    tones = {cell.tone for cell in row.cells if not isinstance(cell, str)}
    return "bad" if "bad" in tones else "plain"


def _wrapped(text: str, width: int, *, indent: int = 0, tone: Tone | None) -> Iterator[Line]:
    return ((line, tone) for line in wrapped(text, width, indent))


def drawn(lines: Iterable[Line], width: int, color: bool) -> str:
    """The lines as text, with control characters written out."""
    if not color:
        return "".join(f"{visible(line)}\n" for line, _ in lines)
    from serve_bench.report.table import styled  # rich, needed here alone

    return styled([(line, STYLES[tone]) for line, tone in lines], width)
