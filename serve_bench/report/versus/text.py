"""A comparison as text: the verdict in a sentence, the sides, a table by row, what doubts it.

Rule: the first line is what a person wants to know; doubts and what is inconclusive stand right
below the row that they are about. Running text is in words.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from serve_bench.analysis.comparing.parts import (
    Compared,
    ComparedRow,
    Comparing,
    ends,
    headline,
    ratio_text,
    variant_of,
)
from serve_bench.report.columns import Fitted, fitted, wrapped
from serve_bench.report.texts import cell_title
from serve_bench.report.versus.words import UNITS, closing, remarks, side_line, title, value_text

COLUMNS = ("", "A", "B", "B/A", "95 % interval", "verdict")
SPARE = ("A", "B")
"""Where there is no room: the verdict and its interval are what was asked for."""


def versus_text(comparing: Comparing, where: Sequence[str] = (), width: int = 80) -> str:
    """The comparison as text that ends with a newline. `where`: the folders of the records."""
    out = [*wrapped(headline(comparing), width), "", *wrapped(title(comparing), width)]
    for letter, side in zip("AB", comparing.sides, strict=True):
        out += wrapped(side_line(letter, side, comparing.kind), width)
    table = _table(comparing, width)
    names, *blocks = table.blocks
    lines = iter(blocks)
    for (_, variant), rows in groupby(comparing.rows, lambda row: (str(row.cell), variant_of(row))):
        every = list(rows)
        heading = cell_title(every[0].cell)
        out += ["", *wrapped(f"{variant}: {heading}" if variant else heading, width), *names]
        for row in every:
            out += wrapped(f"{row.row} ({row.client})", width)
            out += (line for _ in row.lines for line in next(lines))
            for text in remarks(row, comparing.paired):
                out += wrapped(text, width, indent=2)
    if not comparing.rows:
        out += ["", "nothing was planned"]
    out += ["", *table.said(width)]
    for text in closing(comparing):
        out += wrapped(text, width)
    out += [f"records: {one}" for one in where]
    return "\n".join(out) + "\n"


def _table(comparing: Comparing, width: int) -> Fitted:
    """The names of the columns, then the lines of every row, aligned over all."""
    texts = [_texts(row, line) for row in comparing.rows for line in row.lines]
    return fitted(COLUMNS, texts, (0, 5), width, SPARE)


def _texts(row: ComparedRow, line: Compared) -> tuple[str, ...]:
    return (
        f"  {UNITS[line.metric]}",
        value_text(line, line.a),
        value_text(line, line.b),
        ratio_text(line.ratio),
        ends(line.judged.interval),
        verdict_text(row, line),
    )


def verdict_text(row: ComparedRow, line: Compared) -> str:
    """The word, that of the row where it is worse by more than figures; a dash where nothing was
    measured."""
    if row.worse and line.gated:
        return row.word
    return "-" if line.a is None and line.b is None else line.judged.word
