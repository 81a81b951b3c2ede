"""A document as text for a terminal: its tables, and with `verbose` all that has words or figures.

Rule: it knows no kind of run. Findings stand first, then doubts of the whole run, the tables with
the doubts of a row below that row, the request and the machine last. Texts and tables fold to the
width of the terminal. Colour only repeats what words and signs say.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from serve_bench.core.errors import visible
from serve_bench.report.columns import table_blocks, wrapped
from serve_bench.view.document import (
    Block,
    Code,
    Document,
    Facts,
    Finding,
    Flamegraph,
    Folded,
    Prose,
    Section,
    Table,
    TableRow,
    Tone,
    as_text,
)

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
"""Of a section's details, those without --verbose; the first has no heading."""

HEAD: Final = 5
LEAST_DOUBTS: Final = 2
"""Of findings and doubts of the whole run without --verbose; so many of the latter in any case: the
first, and how many more there are."""

MORE: Final = "report --verbose shows all figures."

INDENT: Final = "  "
"""Of rows below the heading of their group."""


def terminal(file: TextIO) -> tuple[int, bool]:
    """Width and whether to use colour for what is printed to `file`.

    Colour only on a terminal, and not with NO_COLOR; the width of a pipe is COLUMNS, else 80.
    """
    from rich.console import Console

    console = Console(file=file)
    plain = console.no_color or console.is_dumb_terminal or not console.is_terminal
    return console.width or 80, not plain  # a terminal that says 0 does not know


def terminal_text(
    document: Document, width: int = 80, color: bool = False, verbose: bool = False
) -> str:
    """The document as text that ends with a newline. `width`: characters of a line."""
    lines = terminal_lines(document, width, verbose)
    if not color:
        return "".join(f"{visible(line)}\n" for line, _ in lines)
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False
    )
    for line, tone in lines:
        console.print(Text(visible(line), style=STYLES[tone]), soft_wrap=True, highlight=False)
    return out.getvalue()


def terminal_lines(document: Document, width: int, verbose: bool = False) -> Iterator[Line]:
    for at, finding in enumerate(document.findings):
        yield from _wrapped(finding.line, width, tone=finding.tone if at else None)
    doubts = sorted(document.doubts, key=lambda one: one.tone != "bad")  # failures first
    room = len(doubts) if verbose else max(LEAST_DOUBTS, HEAD - len(document.findings))
    some = doubts if len(doubts) <= room else doubts[: room - 1]
    for doubt in some:
        yield from _finding(doubt, width)
    if rest := len(doubts) - len(some):
        yield f"{SIGNS['doubt']}{rest} more of the whole run (report --verbose)", "doubt"
    shown = [one for one in document.sections if verbose or one.detail in SHOWN]
    for section in shown:
        yield from _section(section, width, verbose)
    if not shown:
        yield MORE, "quiet"
        return
    yield "", "plain"
    for facts in (document.run, document.machine):
        if facts.pairs:
            line = "; ".join(f"{name} {text}" for name, text in facts.pairs)
            yield from _wrapped(line, width, tone="quiet")
    yield from ((f"records: {folder}", "plain") for folder in document.records)


def _section(section: Section, width: int, verbose: bool) -> Iterator[Line]:
    # Folded blocks of the method hold whole records: the page has them.
    unfold = verbose and section.detail != "method"
    lines = [line for block in section.blocks for line in _block(block, width, verbose, unfold)]
    if lines:
        yield "", "plain"
        if section.detail != "headline":
            yield section.title, None
        yield from lines


def _block(block: Block, width: int, verbose: bool, unfold: bool) -> Iterator[Line]:
    """A block; a chart has no lines, since its figures stand in a table beside."""
    match block:
        case Table():
            yield from _table(block, width, verbose)
        case Prose():
            for text in block.paragraphs:
                yield from _wrapped(SIGNS.get(block.tone, "") + text, width, tone=block.tone)
        case Facts():
            for name, text in block.pairs:
                yield from _wrapped(f"{name}: {text}", width, tone="plain")
        case Code():
            yield from ((line, "plain") for line in block.text.splitlines())
        case Flamegraph():
            yield f"{block.title}: {block.stacks}", "quiet"
        case Folded() if unfold:
            yield from _wrapped(block.title, width, tone=None)
            for inner in block.blocks:
                yield from _block(inner, width, verbose, unfold)


def _table(table: Table, width: int, verbose: bool) -> Iterator[Line]:
    yield from _wrapped(table.caption, width, tone=None)
    if not table.rows:
        return
    indent = INDENT if any(row.group for row in table.rows) else ""
    shown = [at for at, column in enumerate(table.columns) if verbose or not column.detail]
    columns = [table.columns[at] for at in shown]
    heads = [f"{column.name}\n{column.unit}".rstrip() for column in columns]
    words = [at for at, column in enumerate(columns) if not column.number] or [0]
    rows = [_texts(row, shown, indent) for row in table.rows]
    head, *blocks = table_blocks(heads, rows, words, width)
    yield from ((line, "quiet") for line in head)
    lines = iter(blocks)
    for group, some in table.groups():
        if group:
            yield from _wrapped(group, width, tone="plain")
        for row, doubts in some:
            yield from ((line, _tone(row)) for line in next(lines))
            for text in as_text(row.cells[0]).below:
                yield from _wrapped(text, width, indent=len(indent) + 2, tone="quiet")
            for doubt in doubts:
                yield from _finding(doubt, width, len(indent) + 2)
    if hidden := [column.full_name for column in table.columns if column not in columns]:
        yield from _wrapped(f"report --verbose: {', '.join(hidden)}", width, tone="quiet")
    for note in table.notes:
        yield from _wrapped(note, width, tone="quiet")


def _texts(row: TableRow, shown: Sequence[int], indent: str) -> list[str]:
    """Its cells; what stands below a cell is a line of its own within the column, but for the
    first, whose lines go across the table."""
    first, *others = (as_text(row.cells[at]) for at in shown)
    return [indent + first.text, *("\n".join((one.text, *one.below)) for one in others)]


def _finding(finding: Finding, width: int, indent: int = 0) -> Iterator[Line]:
    sign = SIGNS.get(finding.tone, "")
    return _wrapped(f"{sign}{finding.line}", width, indent=indent, tone=finding.tone)


def _tone(row: TableRow) -> Tone:
    """Red where a figure of the row is a verdict against it, plain else: words say the rest."""
    return "bad" if any(as_text(cell).tone == "bad" for cell in row.cells) else "plain"


def _wrapped(text: str, width: int, *, indent: int = 0, tone: Tone | None) -> Iterator[Line]:
    return ((line, tone) for line in wrapped(text, width, indent))
