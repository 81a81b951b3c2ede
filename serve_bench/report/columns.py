"""Columns of text, for reports of several tables: aligned, with headings between the rows.

Rule: layout alone; texts come in as they are to be read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

Texts = Sequence[str]
"""One text for each column; a single text is a heading across all of them."""


def columns(
    names: Texts, rows: Sequence[Texts], left: Collection[int] = (0,), width: int | None = None
) -> Iterator[str]:
    """The names of the columns, then the rows; those in `left` are flush left, others right.

    Columns stand two spaces apart, and one where that alone fits in `width`.
    """
    full = [row for row in (names, *rows) if len(row) == len(names)]
    widths = [max(len(row[at]) for row in full) for at in range(len(names))]
    wide_gap = width is None or sum(widths) + 2 * (len(widths) - 1) <= width
    gap = "  " if wide_gap else " "
    for row in (names, *rows):
        if len(row) != len(names):
            yield " ".join(row)
            continue
        cells = [
            text.ljust(wide) if at in left else text.rjust(wide)
            for at, (text, wide) in enumerate(zip(row, widths, strict=True))
        ]
        yield gap.join(cells).rstrip()


def wrapped(text: str, width: int, indent: int = 0, hang: int = 2) -> list[str]:
    """Running text in lines; those after the first are indented by `hang` more."""
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )


def inline(text: str) -> str:
    """One line of Markdown in which no text is taken for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


def markdown_table(names: Texts, rows: Sequence[Texts], left: Collection[int] = ()) -> list[str]:
    """The same as a table of Markdown; columns in `left` are flush left, others right."""
    marks = [":--" if at in left else "--:" for at in range(len(names))]
    lines = [[inline(text).replace("|", "\\|") for text in row] for row in (names, marks, *rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
