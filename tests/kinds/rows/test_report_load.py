"""What a single load says: the request, every figure, every request; from easy numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Result,
    Row,
    Run,
    Trial,
    result_of,
)
from serve_bench.view.document import Document, Facts, Table, as_text
from tests.records import AT
from tests.sheet_parts import as_lines, every, load_sheet, names, part

MS = 1_000_000
LATENCY = Histogram.of([1 * MS] * 90 + [2 * MS] * 9 + [50 * MS])


def trial(**changes: Any) -> Trial:
    made = Trial(
        key="k",
        launch="",
        round=1,
        variant="url",
        cell={"url": "http://127.0.0.1:1/x"},
        row=Row("10 connections", "raw", 10),
        started_at=AT,
        window_s=1.0,
        warmup=Warmup(0.5, True, 25),
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(40.0, 60.0)),
            "latency": Metric("ns", "lower", histogram=LATENCY.encode()),
        },
        counts=Counts(sent=103, completed=100, failed={"timeout": 2, "reset": 1}, in_flight=0),
        client={
            "bytes_received": 2_000_000,
            "status_codes": {"200": 100},
            "workers": [{"connections": 10}],
            "verdict": {
                "client_bound": False,
                "reasons": [],
                "non_idle": 0.12,
                "pickup_p50_ns": 15_000,
            },
        },
    )
    return replace(made, **changes)


def result(*trials: Trial, failures: tuple[Failure, ...] = ()) -> Result:
    first = trials[0] if trials else trial()
    planned = PlannedTrial(first.key, 1, "url", first.cell, first.row)
    run = Run("id", ("load", "http://127.0.0.1:1/x"), "load", AT, "0", plan=(planned,))
    return result_of([run, *trials, *failures])


def sheet(*trials: Trial, failures: tuple[Failure, ...] = ()) -> Document:
    return load_sheet(result(*trials, failures=failures))


def results(of: Document) -> Table:
    return every(part(of, "results"), Table)[0]


def by_name(table: Table) -> dict[str, dict[str, Any]]:
    """The cells of each row by the names of the columns."""
    heads = [column.name for column in table.columns]
    return {
        as_text(row.cells[0]).text: dict(zip(heads, row.cells, strict=True)) for row in table.rows
    }


def facts(one: Trial) -> dict[str, str]:
    """What is said of requests and client."""
    blocks = [block for name in ("results", "requests") for block in part(sheet(one), name)]
    return {name: text for block in every(blocks, Facts) for name, text in block.pairs}


def test_the_times_of_a_load_that_was_never_answered_are_lower_bounds() -> None:
    hung = trial(
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(0.0, 0.0)),
            "latency": Metric("ns", "lower", histogram=Histogram().encode()),
            "censored": Metric("ns", "lower", histogram=Histogram.of([3000 * MS] * 10).encode()),
        },
        counts=Counts(10, 0, {"timeout": 10}, 0),
    )
    p99 = by_name(results(sheet(hung)))["latency"]["p99"]
    assert p99.text.startswith("> ") and p99.value == pytest.approx(3000, rel=1e-3)


def test_every_request_is_accounted_for() -> None:
    shown = facts(trial())
    assert shown["requests"] == "103 sent = 100 completed + 3 failed + 0 unanswered"
    assert (shown["errors"], shown["status"]) == ("2 timed out, 1 reset", "200: 100")
    assert "not sent" not in shown
    within = {"sent": 102, "completed": 100, "failed": {}, "in_flight": 2, "unsent": 1}
    counts = Counts(104, 100, {"timeout": 2, "reset": 1}, 1, unsent=7)
    shown = facts(trial(counts=counts, client={"in_windows": within}))
    assert shown["requests"] == "104 sent = 100 completed + 3 failed + 1 unanswered"
    assert shown["in flight"].startswith("3 when the last window ended; followed to their end")
    assert shown["not sent"].startswith("7 were due")
    carried = facts(trial(counts=replace(trial().counts, carried_in=10)))
    assert carried["requests"].startswith("10 carried in + 103 sent = ")


def test_nothing_answered_is_no_crash() -> None:
    empty = trial(
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(0.0,)),
            "latency": Metric("ns", "lower", histogram=Histogram().encode()),
        },
        counts=Counts(5, 0, {"connect": 5}, 0),
    )
    failure = Failure("trial", "no request succeeded", AT, key="k")
    of = sheet(empty, failures=(failure,))
    assert as_lines(of.findings)[0] == "Something failed: no request succeeded."
    assert facts(empty)["errors"] == "5 without a connection"
    assert "latency" not in names(of)
