"""Text that fits a terminal: running text in lines, and tables in columns, folded by rich.

Rule: only layout; texts come in as people read them. No figure is broken: a table of too many
figures is wider than its terminal."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, OverflowMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NARROWEST: Final = 20
"""Running text is never set narrower than this."""

MOST_OF_A_WORD: Final = 20
"""A column is as wide as its longest word, up to this many characters."""

WIDEST: Final = 1_000
"""A table of this width is not folded."""

_RULE: Final = "\ue000"
"""Drawn between the rows of a table, to separate their lines; no text of a report has it."""

_BOX: Final = Box("\n".join(4 * sign for sign in f"  {_RULE} {_RULE}   ") + "\n")


def wrapped(
    text: str, width: int, indent: int = 0, hang: int = 2, *, fold: bool = True
) -> list[str]:
    """Fold running text into lines; those after the first are indented by `hang` more.

    No text is no line. A word that is longer than a line is folded too, unless `fold` is false: a
    path or a command is there to be copied."""
    room = max(width, NARROWEST) - indent - hang
    overflow: OverflowMethod = "fold" if fold else "ignore"
    lines = Text(text).wrap(Console(width=room), room, overflow=overflow) if text else ()
    margins = (" " * (indent + (hang if number else 0)) for number in range(len(lines)))
    return [f"{margin}{line.plain.rstrip()}" for margin, line in zip(margins, lines, strict=True)]


def table_blocks(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int], width: int
) -> list[list[str]]:
    """Return the lines of a table: those of its heads, then those of each row.

    Columns in `words` are flush left, the others are figures, flush right."""
    columns = [[head, *(row[index] for row in rows)] for index, head in enumerate(heads)]
    full = sum(max(map(cell_len, "\n".join(cells).split("\n"))) for cells in columns)
    gaps = len(heads) - 1
    gap = 0 if full + gaps <= width < full + 2 * gaps else 1  # closer, before a line is folded
    padding = (0, gap, 0, 0)
    table = Table(box=_BOX, show_edge=False, show_lines=True, padding=padding, pad_edge=False)
    for whole in (True, False):  # is there room for "57.53 ± 4.00" in one line?
        least = []  # widths of columns, of their longest words, or lines, and their indents
        for index, texts in enumerate(columns):
            lines = whole and index not in words
            parts = chain.from_iterable(map(str.splitlines if lines else str.split, texts))
            indent = max(len(text) - len(text.lstrip(" ")) for text in texts)
            least.append(indent + min(max(map(cell_len, parts), default=1), MOST_OF_A_WORD))
        if sum(least) + (gap + 1) * gaps <= width:
            break
    for index, (head, room) in enumerate(zip(heads, least, strict=True)):
        side: JustifyMethod = "left" if index in words else "right"
        keep = whole and index not in words
        table.add_column(Text(head), justify=side, overflow="fold", min_width=room, no_wrap=keep)
    for row in rows:  # all lines of a cell are indented as its first
        indents = [len(cell) - len(cell.lstrip(" ")) for cell in row]
        cells = zip(row, indents, strict=True)
        table.add_row(*(Padding(Text(cell[n:]), (0, 0, 0, n)) for cell, n in cells))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table, crop=False)
    blocks: list[list[str]] = [[]]
    for line in out.getvalue().splitlines():
        if line.startswith(_RULE):
            blocks.append([])
        else:
            blocks[-1].append(line.rstrip())
    return blocks
