"""Text that fits a terminal: running text in lines, and tables in columns.

Rule: layout alone; texts come in as they are to be read. Widths count columns of the terminal, not
characters: a wide one (East Asian, most emoji) takes two, a combining one none. A table that is too
wide gives up the second space between its columns, then columns that its report can spare, and
names them; then columns of words are folded. Figures never are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from rich.cells import cell_len

NARROWEST: Final = 20
"""Running text is never set narrower than this."""

_WORDS: Final = re.compile(r"([\t\n\v\f\r ]*)([^\t\n\v\f\r ]+)")
_BREAKS: Final = frozenset("/._-,:;=&?@|+")
"""A word that is too long is broken behind one of these, if it has one in the right place."""


def wrapped(
    text: str, width: int, indent: int = 0, hang: int = 2, *, fold: bool = True
) -> list[str]:
    """Running text in lines; those after the first are indented by `hang` more.

    A word that is longer than a line is folded too, unless `fold` is false: a path or a command is
    there to be copied.
    """
    return folded(text, max(width, NARROWEST), indent, hang, fold=fold)


def folded(
    text: str, width: int, indent: int = 0, hang: int = 0, *, fold: bool = True
) -> list[str]:
    """The same for what may be narrow, such as the cell of a table. No text is no line."""
    next_line = " " * (indent + hang)
    width = max(width, len(next_line) + 2)  # room for a character that takes two columns
    lines: list[str] = []
    line, begun = " " * indent, False
    for gap, word in _WORDS.findall(text):
        joined = f"{line}{' ' * len(gap)}{word}"
        if begun and cell_len(joined) > width:
            lines.append(line)
            joined = next_line + word
        while fold and cell_len(joined) > width:
            head, rest = _split(joined, width)
            lines.append(head)
            joined = next_line + rest
        line, begun = joined, True
    return [*lines, line] if begun else []


def _split(line: str, width: int) -> tuple[str, str]:
    """A line that is too long in two: behind a sign that leaves it at least half full, else where
    it is full."""
    behind = 0
    for at, one in enumerate(line):
        used = cell_len(line[: at + 1])
        if used > width:
            return line[: behind or at], line[behind or at :]
        if one in _BREAKS and 2 * used >= width:
            behind = at + 1
    return line, ""


# --------------------------------------------------------------------------------------- tables

Texts = Sequence[str]
"""One text for each column; a single text is a heading across all of them."""

NARROWEST_COLUMN: Final = 10
"""Columns of words are not folded to less."""


@dataclass(frozen=True)
class Fitted:
    """A table as it fits: the lines of the names, then those of each row; columns left out."""

    blocks: tuple[list[str], ...]
    gone: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """All lines of the table."""
        return list(chain.from_iterable(self.blocks))

    def left_out(self, width: int, indent: int = 0) -> list[str]:
        """A line that names what was left out, if anything was."""
        text = f"left out at {width} columns: {', '.join(self.gone)}"
        return wrapped(text, width, indent) if self.gone else []


def fitted(
    names: Texts,
    rows: Sequence[Texts],
    left: Collection[int] = (0,),
    width: int | None = None,
    spare: Sequence[str | int] = (),
    fold: Collection[int] | None = None,
    whole: Texts = (),
    heads: int = 0,
) -> Fitted:
    """The lines of a table: the names of its columns, then the rows; columns in `left` are flush
    left, others right, headings are folded.

    `spare`: columns that may go, by name or place, the first first; one that is not there, or that
    stands in front, is passed over. `fold`: the columns that may be folded, if not those in `left`.
    `whole`: what columns that are left out are called, if not by their names. `heads`: lines on top
    (names, units) that may be folded over figures too.
    """
    kept = list(range(len(names)))
    may_go = [at for one in spare for at in kept[1:] if one in (at, names[at])]
    narrowest = _narrowest([names, *rows], left if fold is None else fold, heads)
    gone: list[str] = []
    while width is not None and may_go and _least(names, rows, kept, narrowest) > width:
        at = may_go.pop(0)
        kept.remove(at)
        gone.append((whole or names)[at])
    here = [_only(row, kept, len(names)) for row in (names, *rows)]
    lefts = {new for new, old in enumerate(kept) if old in left}
    floors = {new: narrowest[old] for new, old in enumerate(kept) if old in narrowest}
    return Fitted(tuple(_laid(here, lefts, floors, width)), tuple(gone))


def _only(row: Texts, kept: Sequence[int], count: int) -> Texts:
    return [row[at] for at in kept] if len(row) == count else row


def _narrowest(rows: Sequence[Texts], fold: Collection[int], heads: int) -> dict[int, int]:
    """How narrow each column that may be folded can be: those in `fold`, and of the others, below
    `heads` lines of names, as narrow as their figures are."""
    out = dict.fromkeys(fold, NARROWEST_COLUMN)
    if 0 < heads < len(rows):
        figures = _widths([row for row in rows[heads:] if len(row) == len(rows[0])] or rows[:1])
        others = (at for at in range(len(rows[0])) if at not in out)
        out |= {at: max(NARROWEST_COLUMN, figures[at]) for at in others}
    return out


def _widths(rows: Sequence[Texts]) -> list[int]:
    """Of the rows that are no headings, the first of which has the names."""
    full = [row for row in rows if len(row) == len(rows[0])]
    return [
        max(cell_len(line) for row in full for line in row[at].split("\n"))
        for at in range(len(rows[0]))
    ]


def _least(
    names: Texts, rows: Sequence[Texts], kept: Sequence[int], narrowest: Mapping[int, int]
) -> int:
    """How narrow the table can be: words folded to twice the narrowest that they may be at all, so
    that a column which can be spared goes before they get hard to read."""
    widths = _widths([names, *(row for row in rows if len(row) == len(names))])
    most = {at: max(2 * NARROWEST_COLUMN, floor) for at, floor in narrowest.items()}
    least = [min(widths[at], most.get(at, widths[at])) for at in kept]
    return sum(least) + len(kept) - 1


def _laid(
    rows: Sequence[Texts], left: set[int], floors: Mapping[int, int], width: int | None
) -> Iterator[list[str]]:
    """The lines of each row; the first has the names."""
    widths = _widths(rows)
    gaps = len(widths) - 1
    gap = "  " if width is None or sum(widths) + 2 * gaps <= width else " "
    if width is not None:
        widths = _narrowed(widths, floors, width - len(gap) * gaps)
    for row in rows:
        if len(row) != len(widths):
            text = " ".join(row)
            indent = len(text) - len(text.lstrip())
            yield [text] if width is None else folded(text.lstrip(), width, indent, 2) or [""]
            continue
        cells = [_cell(text, wide) for text, wide in zip(row, widths, strict=True)]
        lines = []
        for number in range(max(map(len, cells))):
            parts = []
            for at, (cell, wide) in enumerate(zip(cells, widths, strict=True)):
                part = cell[number] if number < len(cell) else ""
                space = " " * (wide - cell_len(part))
                parts.append(part + space if at in left else space + part)
            lines.append(gap.join(parts).rstrip())
        yield lines


def _cell(text: str, width: int) -> list[str]:
    """A text in lines of its column; one that fits stays as it is, spaces and all."""
    if "\n" in text:
        return [line for part in text.split("\n") for line in _cell(part, width)]
    if cell_len(text) <= width:
        return [text]
    bare = text.lstrip()
    return folded(bare, width, len(text) - len(bare), 2)


def _narrowed(widths: Sequence[int], floors: Mapping[int, int], room: int) -> list[int]:
    """The widest columns that may be folded give way until all fit, or none can any more."""
    out = list(widths)
    while sum(out) > room:
        wider = [at for at, floor in floors.items() if out[at] > floor]
        if not wider:
            break
        out[max(wider, key=lambda at: out[at])] -= 1
    return out
