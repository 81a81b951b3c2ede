"""What the pages of all kinds of run have: what was asked, the machine, the method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from serve_bench.benchmarks.parts.about_run import method
from serve_bench.core.document import Number, Table, Text
from serve_bench.core.result import Result, result_of
from tests.records import ROWS, launch, planned, run, trial
from tests.sheet_parts import as_lines, at, every

CAPTION = "Plan and execution"
SUITE = {"windows": 3, "window_s": 1.0, "warmup_min_s": 0.5, "warmup_max_s": 3.0}


def executed(result: Result) -> Table:
    return next(one for one in every(method(result).blocks, Table) if one.caption == CAPTION)


def measured(*rates: float, **about: Any) -> Result:
    """A run of one row that was measured."""
    at = planned(row=ROWS[2])
    record = replace(run(at), suite=SUITE)
    return result_of([record, launch(), trial(at, *rates, **about)])


def test_what_differs_from_what_was_asked_is_marked_and_said() -> None:
    why = "43 connections instead of 100: slices would be too long"
    client = {"workers": [{"connections": 43}], "slices": {"why": why}, "notes": ["no epoll"]}
    table = executed(measured(client=client, steady=False, failed={"reset": 2}))
    assert as_lines(table.rows[0].doubts) == (why, "no epoll")
    assert table.rows[0].cells[at(table, "used")] == Number("43", 43, "doubt")
    assert table.rows[0].cells[at(table, "steady")] == Text("no", "doubt")
    assert table.rows[0].cells[at(table, "failed")] == Number("2", 2, "bad")
