"""Two runs side by side: the figures of the rows that both have, and their ratios.

Rule: no verdict. `serve-bench compare` says whether a difference is more than chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.comparing.match import differences_of, doubtful
from serve_bench.analysis.statistics import MAIN, LowerBound
from serve_bench.core.figures import counted, number
from serve_bench.view.about_run import command_line
from serve_bench.view.document import (
    Cell,
    Column,
    Document,
    Facts,
    Number,
    Section,
    Table,
    TableRow,
    sentences,
)
from serve_bench.view.figures import FIGURES, Value, scale
from serve_bench.view.frame import ViewRow
from serve_bench.view.lens import RunLook

SHOWN: Final = (MAIN, "latency_p50", "latency_p99")
"""The figures that stand side by side."""


def set_side_by_side(a: RunLook, b: RunLook) -> Document:
    """The rows of two runs, A and B, that have the same place in both."""
    of_b = _places(b)
    pairs = [(row, of_b[place]) for place, row in _places(a).items() if place in of_b]
    figures = [name for name in SHOWN if any(name in row.values for row, _ in pairs)]
    names = [row.name for row, _ in pairs]
    if len(set(names)) < len(names):
        names = [f"{row.name}, {row.dims['variant']}" for row, _ in pairs]
    columns = [Column("row", number=False)]
    for name in figures:
        title, unit = FIGURES[name].title, FIGURES[name].shown
        columns += [Column(f"{title} A", unit), Column(f"{title} B", unit), Column("B/A")]
    rows = tuple(
        TableRow(
            (name, *(cell for figure in figures for cell in _cells(row, other, figure))),
            tuple(
                replace(seen, code=f"{side} {seen.code}".strip())
                for side, of in (("A", row), ("B", other))
                for seen in of.warnings
            ),
        )
        for name, (row, other) in zip(names, pairs, strict=True)
    )
    table = Table(f"{counted(len(pairs), 'row')} that both runs have", tuple(columns), rows)
    sides = (("A", a), ("B", b))
    return Document(
        title=f"runs {a.result.run.id} and {b.result.run.id} side by side",
        command="report",
        run=Facts(tuple((side, command_line(run.result.run)) for side, run in sides)),
        machine=Facts(()),
        findings=sentences(_find(pairs)),
        doubts=sentences(
            [
                *(f"A and B are unlike: {found}" for found in differences_of(a.result, b.result)),
                *doubtful(a.result, b.result, ({}, {})),
            ],
            "doubt",
        ),
        sections=(Section("rows", "Side by side", (table,), "headline"),),
        records=tuple(run.options.where or "" for _, run in sides),
    )


def _places(run: RunLook) -> dict[str, ViewRow]:
    """The measured rows by what tells them from the others of their run."""
    variants = len(run.page.variants) > 1
    places = {}
    for row in run.view.rows:
        if MAIN in row.values and row.entry is not None and row.dims["status"] == "measured":
            line = row.entry.line
            place = (line.variant if variants else "", line.cell, line.row.label)
            places[json.dumps(place, sort_keys=True)] = row
    return places


def _ratio(row: ViewRow, other: ViewRow, name: str) -> float | None:
    """B/A; None where one is not known, or is a lower bound alone."""
    before, after = row.value(name), other.value(name)
    bound = isinstance(before, LowerBound) or isinstance(after, LowerBound)
    return after / before if before and after is not None and not bound else None


def _cells(row: ViewRow, other: ViewRow, name: str) -> Iterator[Cell]:
    factor = scale(FIGURES[name].unit, FIGURES[name].shown)
    for side in (row, other):
        value = side.value(name)
        text = "-" if value is None else FIGURES[name].show(Value(value))
        yield Number(text, None if value is None else value * factor)
    ratio = _ratio(row, other, name)
    yield Number(number(ratio, 3), ratio)


def _find(pairs: Sequence[tuple[ViewRow, ViewRow]]) -> Iterator[str]:
    ratios = [ratio for row, other in pairs if (ratio := _ratio(row, other, MAIN)) is not None]
    if not ratios:
        yield "The runs have no measured row in common."
        return
    low, high = number(min(ratios), 3), number(max(ratios), 3)
    times = low if low == high else f"{low} to {high}"
    rows = "the row" if len(ratios) == 1 else f"the {len(ratios)} rows"
    yield f"B has {times} times the requests/s of A, in {rows} that both have."
    yield "Whether that is more than chance: serve-bench compare A B."
