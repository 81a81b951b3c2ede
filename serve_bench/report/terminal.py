"""A document as text for a terminal: its tables, and with `verbose` all that has words or figures.

Rule: it knows no kind of run. Findings stand first, then doubts of the whole run, then the tables,
in which a warning is a code (a number where that has no room), explained once below; with `verbose`
also definitions, the request and the machine. Texts and tables fold to the width of the terminal.
Colour only repeats what words and signs say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from serve_bench.core.errors import visible
from serve_bench.report import Layout
from serve_bench.report.columns import WIDEST, table_blocks, wrapped
from serve_bench.view.document import (
    Block,
    Code,
    Column,
    Document,
    Facts,
    Finding,
    Flamegraph,
    Folded,
    Later,
    Prose,
    Table,
    Tone,
    explain,
)

Line = tuple[str, Tone | None]
"""A line and its tone; None is a heading."""

SIGNS: Final[dict[Tone, str]] = {"bad": "x ", "doubt": "! ", "good": "+ "}
"""What a tone is without its colour, before a paragraph."""

STYLES: Final[dict[Tone | None, Style]] = {
    None: Style(bold=True),
    "plain": Style(),
    "good": Style(color="green"),
    "bad": Style(color="red"),
    "doubt": Style(color="yellow"),
    "quiet": Style(dim=True),
}
SHOWN: Final = ("headline", "table")
"""Of a section's details, those without --verbose; the first has no heading."""

MOST_DOUBTS: Final = 4
"""Lines of the doubts of the whole run without --verbose; the last says how many more there are."""

SCREEN: Final = 40
"""Lines below the headline after which it is out of sight, and is repeated."""


def terminal(file: TextIO) -> tuple[int, bool]:
    """Return width and whether to use colour for what is printed to `file`.

    Colour only on a terminal, and not with NO_COLOR; the width of a pipe is COLUMNS, else 80."""
    console = Console(file=file)
    plain = console.no_color or console.is_dumb_terminal or not console.is_terminal
    return console.width or 80, not plain  # a terminal that says 0 does not know


def terminal_text(document: Document, layout: Layout) -> str:
    """Render the document as text that ends with a newline."""
    if layout.fitted:
        layout = Layout(*terminal(sys.stdout), layout.verbose, layout.wide)
    system = ColorSystem.STANDARD if layout.color else None
    return "".join(
        f"{STYLES[tone].render(visible(line), color_system=system)}\n"
        for line, tone in _Writer(**vars(layout)).write(document)
    )


@dataclass(frozen=True)
class _Writer(Layout):
    """Writes a document in lines; warnings of rows are codes, explained once, unless `verbose`."""

    explained: set[str] = field(default_factory=set)

    def write(self, document: Document) -> list[Line]:
        """Return the lines of a document with their tones, findings first."""
        shown = [part for part in document.sections if self.verbose or part.detail in SHOWN]
        lines: list[Line] = []
        for number, finding in enumerate(document.findings):
            lines += self._wrap(finding.line, finding.tone if number else None)
        doubts = sorted(document.doubts, key=lambda doubt: doubt.tone != "bad")  # failures first
        few = self.verbose or len(doubts) <= MOST_DOUBTS
        listed = doubts if few else doubts[: MOST_DOUBTS - 1]
        for doubt in listed:
            lines += self._finding(doubt)
        if rest := len(doubts) - len(listed):
            lines.append((f"{SIGNS['doubt']}{rest} more (report --verbose)", "doubt"))
        for number, section in enumerate(shown):
            tables = [block for block in section.blocks if isinstance(block, Table)]
            bare = not self.verbose and len(tables) == 1
            body = [line for block in section.blocks for line in self._block(block, bare)]
            is_titled = body and (number > 0 or section.detail != "headline")
            lines += [("", "plain")] if body else []
            lines += [(section.title, None), *body] if is_titled else body
        if len(lines) > SCREEN and (headline := [*self._wrap(document.headline, None)]):
            lines += [("", "plain"), *headline] if len(lines) - len(headline) > SCREEN else []
        if self.verbose:
            lines.append(("", "plain"))
            for facts in document.about():
                line = "; ".join(f"{name} {text}" for name, text in facts.pairs)
                lines += self._wrap(line, "quiet")
        else:
            lines.append(("report --verbose: all figures, the machine, the method", "quiet"))
        return lines + [(f"records: {folder}", "plain") for folder in document.records]

    def _block(self, block: Block, bare: bool) -> Iterator[Line]:
        """Yield the lines of a block; a chart has none, since its figures are in a table."""
        match block:
            case Table():
                yield from self._table(block, bare)
            case Prose():
                for text in block.paragraphs:
                    yield from self._wrap(SIGNS.get(block.tone, "") + text, block.tone)
            case Facts():
                for name, text in block.pairs:
                    yield from self._wrap(f"{name}: {text}", "plain")
            case Code():
                yield from ((line, "plain") for line in block.text.splitlines())
            case Flamegraph():
                yield f"{block.title}: {block.stacks}", "quiet"
            case Later() if self.verbose:
                for inner in block.blocks:
                    yield from self._block(inner, bare)
            case Folded() if self.verbose:
                yield from self._wrap(block.title, None)
                for inner in block.blocks:
                    yield from self._block(inner, bare)

    def _table(self, table: Table, bare: bool) -> Iterator[Line]:
        """Yield the lines of a table; its columns of detail where there is room.

        `bare`: the section's heading stands for its caption, and nothing else of it is
        explained."""
        if not bare:
            yield from self._wrap(table.caption, None)
        if not table.rows:
            return
        is_marked = not self.verbose and any(row.doubts for row in table.rows)
        codes = list_codes([row.doubts for row in table.rows]) if is_marked else []
        named = {code: code for code in codes}
        numbered = {code: str(number) for number, code in enumerate(codes, 1)}
        kept = [column for column in table.columns if self.verbose or not column.detail]
        tries = (
            (table.columns, named, WIDEST),
            (kept, named, WIDEST),
            (kept, numbered, self.width),
        )
        for columns, marks, width in tries:
            drawn = _draw(table, columns, marks, width)
            if self.wide or all(cell_len(line) <= self.width for part in drawn for line in part):
                break
        head, *blocks = drawn
        yield from ((line, "quiet") for line in head if any(map(str.strip, head)))
        group = ""
        for row, lines in zip(table.rows, blocks, strict=True):
            if row.group not in ("", group):
                yield from self._wrap(row.group, "plain")
            group = row.group
            # Red where a figure of the row is a verdict against it: words say the rest.
            against = any(cell.tone == "bad" for cell in row.cells)
            yield from ((line, "bad" if against else "plain") for line in lines)
            if self.verbose:
                indent = 4 if group else 2
                for text in row.cells[0].below:
                    yield from self._wrap(text, "quiet", indent)
                for finding in row.doubts:
                    yield from self._finding(finding, indent)
        if self.verbose:
            for note in table.notes:
                yield from self._wrap(note, "quiet")
            return
        for code, finding in explain(table) if is_marked else ():
            if finding.line not in self.explained:
                self.explained.add(finding.line)
                mark = marks.get(code, code)
                yield from self._finding(finding, 0, "" if mark == code else f"[{mark}] ")

    def _finding(self, finding: Finding, indent: int = 0, mark: str = "") -> Iterator[Line]:
        sign = SIGNS.get(finding.tone, "")
        return self._wrap(f"{sign}{mark}{finding.line}", finding.tone, indent)

    def _wrap(self, text: str, tone: Tone | None, indent: int = 0) -> Iterator[Line]:
        return ((line, tone) for line in wrapped(text, self.width, indent))


def list_codes(doubts: Sequence[Sequence[Finding]]) -> list[str]:
    """List the codes of warnings, in their order, without those that all of several rows have."""
    rows = [{finding.code for finding in findings} for findings in doubts]
    everywhere = set.intersection(*rows) if len(rows) > 1 else set()
    codes = dict.fromkeys(finding.code for findings in doubts for finding in findings)
    return [code for code in codes if code and code not in everywhere]


def _draw(
    table: Table, columns: Sequence[Column], marks: Mapping[str, str], width: int
) -> list[list[str]]:
    """Return the lines of the heads, then of each row, with the marks of its warnings.

    What stands below a cell has its own line within the column, but for the first."""
    heads = [f"{column.name}\n{column.unit}".rstrip() for column in columns]
    between = ", " if marks.keys() == {*marks.values()} else ","  # numbers are to be narrow
    words = [index for index, column in enumerate(columns) if not column.number] or [0]
    indent = "  " if any(row.group for row in table.rows) else ""  # below its heading
    rows = []
    for row in table.rows:
        pairs = zip(table.columns, row.cells, strict=True)
        first, *others = (cell for column, cell in pairs if column in columns)
        texts = ("\n".join((cell.text, *cell.below)) for cell in others)
        seen = {finding.code for finding in row.doubts}
        warned = between.join(mark for code, mark in marks.items() if code in seen)
        rows.append([f"{indent}{first.text}", *texts, *([warned] if marks else [])])
    if marks:
        heads, words = [*heads, "!"], [*words, len(heads)]
    return table_blocks(heads, rows, words, width)
