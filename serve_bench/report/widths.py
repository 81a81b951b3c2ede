"""How wide text is on a terminal, and how it is folded to fit.

Rule: columns of the terminal count, not characters: a wide one (East Asian, most emoji) takes two,
a combining one none. What to fold, and what stays whole, is for the callers.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Final

NARROWEST: Final = 20
"""Running text is never set narrower than this."""

_WORDS: Final = re.compile(r"([\t\n\v\f\r ]*)([^\t\n\v\f\r ]+)")
_BREAKS: Final = frozenset("/._-,:;=&?@|+")
"""A word that is too long is broken behind one of these, if it has one in the right place."""


def width_of(text: str) -> int:
    """Columns of a terminal that a line of text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


@functools.cache
def _width(one: str) -> int:
    if unicodedata.category(one) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


def padded(text: str, width: int, left: bool = False) -> str:
    """The text flush right in so many columns, or flush left."""
    space = " " * (width - width_of(text))
    return text + space if left else space + text


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
        if begun and width_of(joined) > width:
            lines.append(line)
            joined = next_line + word
        while fold and width_of(joined) > width:
            head, rest = _split(joined, width)
            lines.append(head)
            joined = next_line + rest
        line, begun = joined, True
    return [*lines, line] if begun else []


def _split(line: str, width: int) -> tuple[str, str]:
    """A line that is too long in two: behind a sign that leaves it at least half full, else where
    it is full."""
    used, behind = 0, 0
    for at, one in enumerate(line):
        used += _width(one)
        if used > width:
            return line[: behind or at], line[behind or at :]
        if one in _BREAKS and 2 * used >= width:
            behind = at + 1
    return line, ""
