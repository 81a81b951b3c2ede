"""A run of the ranker alone as a comment: a row for each ranker at each batch size.

Rule: figures are those of the text; the terms of the floor stand under the fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.benchmarks.micro.comment import Column, about, closing, struck, table_of, told
from serve_bench.benchmarks.micro.page_panels import names_of
from serve_bench.benchmarks.parts.page import Entry, Page, page_of
from serve_bench.benchmarks.parts.texts import mean_and_std
from serve_bench.benchmarks.ranker import document as of_ranker
from serve_bench.benchmarks.ranker.summary import LEVEL, RankerLine, ranker_lines
from serve_bench.benchmarks.ranker.text import (
    FLOORS,
    NOTES,
    TIMES,
    floor_texts,
    model_words,
    times_texts,
)
from serve_bench.core.result import Result
from serve_bench.report.columns import Texts, markdown_table
from serve_bench.report.comment import bullets, comment, doubts, folded, formulas, remarks, split

FEW = "few-rounds"


def ranker_comment(result: Result, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page, lines = page_of(result, where=where), ranker_lines(result)
    found = split(result, of_ranker.found(result, lines), page.warnings)
    floors = markdown_table(FLOORS, [floor_texts(line) for line in lines], (1,)) if lines else ()
    return comment(
        found.first,
        _table(page, lines),
        (
            *about(page, found),
            bullets([model_words(result)] if lines else []),
            bullets(struck(page)),
            remarks(_remarks(page, lines)),
            bullets(NOTES if lines else ()),
            *closing(replace(page, notes=_own_notes(page))),
            folded("Floor of one forward", floors),
            folded("Rounds", table_of(_ROUNDS, page.entries) if lines else ()),
            formulas(of_ranker.FORMULAS),
        ),
        where,
    )


def _table(page: Page, lines: Sequence[RankerLine]) -> list[str]:
    """Every row that was planned, measured or not."""
    if not page.entries:
        return []
    names = [*TIMES, "doubts"]
    known = {(line.rows, line.kind): line for line in lines}
    rows: list[Texts] = []
    for entry in sorted(page.entries, key=_size):
        line = known.get((_size(entry), entry.line.variant))
        if line is None:
            head = (f"{_size(entry):,}", entry.line.variant, entry.gap or "not measured")
            rows.append((*head, *["-"] * (len(TIMES) - 3), _codes(entry, None)))
        else:
            rows.append((*times_texts(line), _codes(entry, line)))
    return markdown_table(names, rows, (1, len(names) - 1))


def _size(entry: Entry) -> int:
    return int(entry.line.cell["rows"])


def _codes(entry: Entry, line: RankerLine | None) -> str:
    codes = [one.code for one in entry.warnings]
    return doubts([*codes, *([FEW] if line and _few(line) else [])], None, entry.failures)


def _few(line: RankerLine) -> bool:
    return min(line.forward.level, line.call.level) < LEVEL


def _remarks(page: Page, lines: Sequence[RankerLine]) -> Iterator[tuple[str, str]]:
    yield from told(page, names_of(page))
    for line in lines:
        if _few(line):
            level = min(line.forward.level, line.call.level)
            yield (
                f"rows {line.rows}, {line.kind}",
                f"{FEW}: {line.forward.count} rounds: intervals hold {level:.0%}",
            )


def _own_notes(page: Page) -> tuple[str, ...]:
    """Those of every run but for what they say of requests, which there are none of here."""
    return tuple(one for one in page.notes if not one.startswith(("requests/s:", "ratio:")))


_ROUNDS: Final = (
    Column("rows", lambda one: f"{_size(one):,}"),
    Column("ranker", lambda one: one.line.variant, left=True),
    Column("rounds", lambda one: "-" if one.rate is None else str(one.rate.windows)),
    Column("rows/s, mean ± std over rounds", lambda one: mean_and_std(one.rate)),
)
