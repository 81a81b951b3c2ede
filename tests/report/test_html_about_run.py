"""What the pages of all kinds of run have: what was asked, the machine, the method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from serve_bench.analysis.statistics import summarize
from serve_bench.benchmarks.parts.about_run import (
    method,
)
from serve_bench.core.document import Cell, Number, Section, Table, Text
from serve_bench.core.result import Result, result_of
from serve_bench.store import read
from tests import places
from tests.records import ROWS, launch, planned, run, trial
from tests.sheet_parts import as_lines

GOLDEN = places.GOLDEN / "records.jsonl"
SUITE = {"windows": 3, "window_s": 1.0, "warmup_min_s": 0.5, "warmup_max_s": 3.0}


def text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def tables(section: Section) -> dict[str, Table]:
    return {one.caption: one for one in section.blocks if isinstance(one, Table)}


def executed(result: Result) -> Table:
    return tables(method(result))["Plan and execution"]


def column(table: Table, name: str) -> list[Cell]:
    at = [one.name for one in table.columns].index(name)
    return [row.cells[at] for row in table.rows]


def measured(*rates: float, **about: Any) -> Result:
    """A run of one row that was measured."""
    at = planned(row=ROWS[2])
    record = replace(run(at), suite=SUITE)
    return result_of([record, launch(), trial(at, *rates, **about)])


def words(part: Any) -> Iterator[str]:
    """All texts of a section."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple | list):
        for one in part:
            yield from words(one)
    elif hasattr(part, "__dataclass_fields__"):
        for name in part.__dataclass_fields__:
            yield from words(getattr(part, name))


# ------------------------------------------------------------------------------ rows as executed


def test_a_row_stands_beside_what_was_asked_of_it() -> None:
    workers = [{"connections": 60}, {"connections": 40}]
    table = executed(measured(100.0, 110.0, 90.0, client={"workers": workers}))
    (row,) = table.rows
    assert [text(one) for one in row.cells] == (
        "100 connections|100|100|2|3 x 1 s|3 x 1 s|1.00|yes|300|0".split("|")
    )
    assert as_lines(row.doubts) == () and row.group == "default"
    assert table.notes[:2] == (
        "client: raw, closed loop",
        "every cell: max_batch_size 1, max_ongoing_requests 1, num_replicas 1",
    )
    assert table.notes[2].startswith("warm-up: 0.5 to 3 s, until the rate is steady")


def test_figures_are_those_of_the_statistics() -> None:
    result = read(GOLDEN)
    lines = summarize(result)
    done = column(executed(result), "completed")
    failed = column(executed(result), "failed")
    figures = [one.value if isinstance(one, Number) else text(one) for one in (*done, *failed)]
    counts = [line.completed if line.trials else None for line in lines]
    errors = [line.errors if line.trials else None for line in lines]
    assert figures == [*counts, *errors]
    assert any(counts) and None in counts  # the run has a row that was not measured


def test_what_differs_from_what_was_asked_is_marked_and_said() -> None:
    why = "43 connections instead of 100: slices would be too long"
    client = {"workers": [{"connections": 43}], "slices": {"why": why}, "notes": ["no epoll"]}
    table = executed(measured(client=client, steady=False, failed={"reset": 2}))
    assert as_lines(table.rows[0].doubts) == (why, "no epoll")
    assert column(table, "used") == [Number("43", 43, "doubt")]
    assert column(table, "steady") == [Text("no", "doubt")]
    assert column(table, "failed") == [Number("2", 2, "bad")]


# ----------------------------------------------------------------------------------- formulas


def test_texts_are_left_as_they_are() -> None:
    hostile = "<script>alert(1)</script>&amp;"
    at = replace(planned(variant=hostile), cell={"note": hostile})
    result = result_of([run(at), launch(hostile), trial(at)])
    said = list(words(method(result)))
    assert hostile in said
    assert not any("&lt;" in one for one in said)
