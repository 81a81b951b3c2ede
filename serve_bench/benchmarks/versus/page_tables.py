"""The tables of a comparison: verdicts, rounds, slices, the noise floor, what is open, both sides.

Rule: figures are those of json_form.py, each as it is there; words come from words.py and
analysis/comparing/parts.py. What a run does not have yields no block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.parts import (
    Compared,
    ComparedRow,
    Comparing,
    ends,
    ratio_text,
    row_title,
    variant_of,
)
from serve_bench.analysis.comparison import MOST_ROUNDS, Interval, Word
from serve_bench.benchmarks.parts.pieces import proofs
from serve_bench.benchmarks.parts.texts import cell_title
from serve_bench.benchmarks.versus.page_charts import DRAWN
from serve_bench.benchmarks.versus.words import (
    UNITS,
    floor_line,
    own_floor_line,
    percent,
    remarks,
    side_line,
    value_text,
)
from serve_bench.core.document import (
    Block,
    Cell,
    Column,
    Facts,
    Folded,
    Number,
    Prose,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.result import cell_slug

TONES: Final[Mapping[Word, Tone]] = {
    "regressed": "bad",
    "improved": "good",
    "same": "plain",
    "inconclusive": "doubt",
}


SHORT: Final = 16
"""Characters of a name that may stand over a column: a longer one would push the verdict off a
narrow screen."""


def verdicts(comparing: Comparing) -> Table:
    """Every metric of every row; remarks and doubts under the last of a row."""
    a, b = comparing.names
    columns = (
        Column("metric", number=False),
        *_sides(comparing),
        Column("B/A"),
        Column("low", "95 %"),
        Column("high", "95 %"),
        Column("verdict", number=False),
    )
    rows = []
    for row in comparing.rows:
        group = _group_of(comparing, row)
        doubts = tuple(remarks(row, comparing.paired))
        for line in row.lines:
            last = line is next((one for one in reversed(row.lines) if one.gated), row.lines[-1])
            rows.append(TableRow(_result(row, line), doubts if last else (), group))
    notes = (
        "A and B: geometric means over launches; the interval is that of B/A at 95 %. In the gate: "
        f"{', '.join(comparing.gate)}; the other metrics are shown and break no build.",
    )
    caption = f"{b} against {a}" if comparing.aa else f"{b} (B) against {a} (A)"
    if len(_cells(comparing)) == 1 and (cell := cell_title(comparing.rows[0].cell)):
        caption = f"{caption}: {cell}"
    return Table(caption, columns, tuple(rows), notes, whole_groups=True)


def _sides(comparing: Comparing) -> tuple[Column, Column]:
    """The columns of A and B, with their names where they are short: the caption has them too."""
    short = max(map(len, comparing.names)) <= SHORT
    a, b = comparing.names if short else ("", "")
    return Column("A", a, spare=True), Column("B", b, spare=True)


def _cells(comparing: Comparing) -> set[str]:
    """The cells of all rows: where there is one, the caption has it."""
    return {cell_slug(row.cell) for row in comparing.rows}


def _group_of(comparing: Comparing, row: ComparedRow) -> str:
    variant = variant_of(row)
    head = f"{row.row} ({row.client})"
    cell = f": {cell_title(row.cell)}" if len(_cells(comparing)) > 1 else ""
    return f"{variant}, {head}{cell}" if variant else f"{head}{cell}"


def _result(row: ComparedRow, line: Compared) -> tuple[Cell, ...]:
    judged = line.judged
    low, high = _ends(judged.interval)
    measured = line.a is not None or line.b is not None
    word = Text(judged.word, TONES[judged.word]) if measured else Text("-", "quiet")
    if row.worse and line.gated:
        word = Text(row.word, TONES[row.word])
    return (
        UNITS[line.metric],
        Number(value_text(line, line.a), line.a),
        Number(value_text(line, line.b), line.b),
        Number(ratio_text(line.ratio), line.ratio, TONES[judged.word] if measured else "plain"),
        low,
        high,
        word,
    )


def _ends(interval: Interval | None) -> tuple[Number, Number]:
    """Of an interval, as the JSON has them: an end beyond all numbers is none."""
    if interval is None:
        return Number("-", None), Number("-", None)
    high = interval.high if math.isfinite(interval.high) else None
    return Number(ratio_text(interval.low), interval.low), Number(ratio_text(interval.high), high)


def round_table(comparing: Comparing) -> Iterator[Block]:
    """The figures of each round (launch, of two stored runs) of what is in the gate."""
    rows = [
        TableRow(cells, group=f"{row_title(comparing, row)}, {UNITS[line.metric]}")
        for row in comparing.rows
        for line in row.lines
        if line.gated
        for cells in _round_cells(line, comparing.paired)
    ]
    if rows:
        of = "round" if comparing.paired else "launch"
        columns = (Column(of, number=False), *_sides(comparing), Column("B/A"))
        table = Table(f"Each {of}", columns if comparing.paired else columns[:3], tuple(rows))
        yield Folded(f"Figures of each {of}", (table,))


def _round_cells(line: Compared, pairs: bool) -> Iterator[tuple[Cell, ...]]:
    for round_ in sorted({*line.a_values, *line.b_values}):
        a, b = line.a_values.get(round_), line.b_values.get(round_)
        cells: tuple[Cell, ...] = (
            str(round_),
            Number(value_text(line, a), a),
            Number(value_text(line, b), b),
        )
        if pairs:
            ratio = b / a if a and b else None
            cells = (*cells, Number(ratio_text(ratio), ratio))
        yield cells


# ------------------------------------------------------------------ slices, floor, rounds


def slice_table(comparing: Comparing) -> Iterator[Block]:
    """How the load alternated, and the rate in slices to that of a steady load."""
    rows = []
    for row in comparing.rows:
        if row.slicing is None:
            continue
        of = row.slicing
        effects: dict[str, tuple[Cell, ...]] = {}
        for one in row.effects:
            text = ratio_text(one.ratio)
            said = f"{text} ({ends(one.interval)})" if one.interval else text
            effects[one.side] = (Number(said, one.ratio),)
        drains = [Number("-" if one is None else f"{1e3 * one:.3g}", one) for one in of.drain_s]
        cells: tuple[Cell, ...] = (
            row_title(comparing, row),
            Text(of.method, below=(of.why,) if of.why else ()),
            Number(f"{1e3 * of.slice_s:.3g}", of.slice_s),
            Number(f"{of.slices:,}", of.slices),
            *drains,
            Number("-" if of.connections is None else str(of.connections), of.connections),
            *(effects.get("A") or (Number("-", None),)),
            *(effects.get("B") or (Number("-", None),)),
        )
        short = f"slices shorter than five drains in {of.short} rounds"
        rows.append(TableRow(cells, sentences((short,) if of.short else (), "doubt")))
    if not rows:
        return
    columns = (
        Column("row", number=False),
        Column("in", number=False),
        Column("length", "ms"),
        Column("slices", "a side"),
        Column("drain of A", "ms"),
        Column("drain of B", "ms"),
        Column("connections"),
        Column("A", "slices / steady"),
        Column("B", "slices / steady"),
    )
    notes = (
        "The load alternates between the sides in slices, in drawn order; a drain is the time from "
        "the end of a slice to its last response. The last two columns are requests/s in slices to "
        "those of a steady load of the same side, with a 95 % interval over rounds: where they "
        "differ, the ratio is that of a load in slices.",
    )
    if any(row.slicing is not None and row.slicing.method == "duet" for row in comparing.rows):
        notes = (
            "A duet loads both sides at once, each and its client on cores of its own, which are "
            "swapped after each window: another machine than the whole one.",
        )
    yield Table("Slices of each row", columns, tuple(rows), notes)


def noise(comparing: Comparing) -> Iterator[Block]:
    """The floor that this run is, or the one that it was held against."""
    floors = dict(comparing.floors)
    told = floor_line(comparing)
    if comparing.aa:
        try:
            floors = floors_of(comparing)
        except BadInput:
            yield Prose((own_floor_line(comparing) or "",))
    if floors:
        rows = [
            TableRow((DRAWN[name][0], Number(percent(value), value)))
            for name, value in floors.items()
        ]
        columns = (Column("metric", number=False), Column("floor"))
        own = f"This run measured it; a gate takes it: --noise {comparing.sides[0].run.id}"
        notes = (own,) if comparing.aa else ((told,) if told else ())
        yield Table("How far from 1 A against itself reaches", columns, tuple(rows), notes)


def open_table(comparing: Comparing) -> Iterator[Block]:
    """What is inconclusive, why, and the rounds that would about settle it."""
    rows = []
    for row in comparing.rows:
        for line in row.lines:
            judged = line.judged
            if judged.word != "inconclusive" or judged.why == "not measured":
                continue
            needed = judged.rounds_needed
            cells: tuple[Cell, ...] = (
                row_title(comparing, row),
                Text(DRAWN[line.metric][0], below=() if line.gated else ("not in the gate",)),
                judged.why,
                str(min(len(line.a_values), len(line.b_values))),
                Number(_needed(line), needed),
            )
            rows.append(TableRow(cells))
    if not rows:
        return
    things = "rounds" if comparing.paired else "launches a side"
    columns = (
        Column("row", number=False),
        Column("metric", number=False),
        Column("why it is open", number=False),
        Column("now", things),
        Column("in all", things),
    )
    notes = (
        f"in all: {things} with which it would about be settled, with the spread that was seen; "
        "with exactly so many the chance is near one half",
    )
    yield Table("What is inconclusive", columns, tuple(rows), notes)


def _needed(line: Compared) -> str:
    """`about 18`, `3 or more`, `more than 200`; a dash where more would not settle it."""
    if line.judged.rounds_needed is not None and line.judged.p is None:
        return f"{line.judged.rounds_needed} or more"  # nothing was tested: more cannot be said
    if line.judged.rounds_needed is not None:
        return f"about {line.judged.rounds_needed}"
    untested = line.judged.weighed or line.judged.interval is None or line.judged.p is None
    return "-" if untested else f"more than {MOST_ROUNDS}"


# ----------------------------------------------------------------------------------- sides


def sides(comparing: Comparing) -> Iterator[Block]:
    """Which side is what, as the launches prove it."""
    both = tuple(zip("AB", comparing.sides, strict=True))
    yield Facts(
        tuple(
            (
                f"{letter}: {side.name}",
                side_line(letter, side, comparing.kind).partition(": ")[2],
            )
            for letter, side in both
        )
    )


def side_proofs(comparing: Comparing) -> Iterator[Block]:
    """What the launches of each side prove."""
    for letter, side in zip("AB", comparing.sides, strict=True):
        if side.launches:
            table = proofs(side.launches)
            yield replace(table, caption=f"{letter}: what its launches prove")
