"""What the pages of all kinds of run have: what was asked, the machine, the method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from serve_bench.analysis.statistics import summarize
from serve_bench.benchmarks.parts.about_run import (
    method,
)
from serve_bench.core.document import Number, Table, Text
from serve_bench.core.result import Result, result_of
from serve_bench.store import read
from tests import places
from tests.records import ROWS, launch, planned, run, trial
from tests.sheet_parts import as_lines, at, column, every

CAPTION = "Plan and execution"
GOLDEN = places.GOLDEN / "records.jsonl"
SUITE = {"windows": 3, "window_s": 1.0, "warmup_min_s": 0.5, "warmup_max_s": 3.0}


def executed(result: Result) -> Table:
    return next(one for one in every(method(result).blocks, Table) if one.caption == CAPTION)


def measured(*rates: float, **about: Any) -> Result:
    """A run of one row that was measured."""
    at = planned(row=ROWS[2])
    record = replace(run(at), suite=SUITE)
    return result_of([record, launch(), trial(at, *rates, **about)])


def test_a_row_stands_beside_what_was_asked_of_it() -> None:
    workers = [{"connections": 60}, {"connections": 40}]
    table = executed(measured(100.0, 110.0, 90.0, client={"workers": workers}))
    assert (column(table, "completed"), column(table, "failed")) == ([300], [0])
    assert as_lines(table.rows[0].doubts) == () and table.rows[0].group == "default"


def test_figures_are_those_of_the_statistics() -> None:
    result = read(GOLDEN)
    lines = summarize(result)
    figures = [*column(executed(result), "completed"), *column(executed(result), "failed")]
    counts = [line.completed if line.trials else None for line in lines]
    errors = [line.errors if line.trials else None for line in lines]
    assert figures == [*counts, *errors]
    assert any(counts) and None in counts  # the run has a row that was not measured


def test_what_differs_from_what_was_asked_is_marked_and_said() -> None:
    why = "43 connections instead of 100: slices would be too long"
    client = {"workers": [{"connections": 43}], "slices": {"why": why}, "notes": ["no epoll"]}
    table = executed(measured(client=client, steady=False, failed={"reset": 2}))
    assert as_lines(table.rows[0].doubts) == (why, "no epoll")
    assert table.rows[0].cells[at(table, "used")] == Number("43", 43, "doubt")
    assert table.rows[0].cells[at(table, "steady")] == Text("no", "doubt")
    assert table.rows[0].cells[at(table, "failed")] == Number("2", 2, "bad")
