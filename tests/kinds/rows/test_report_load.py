"""What a single load says: the request, every figure, every request; from easy numbers."""

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Failure, Metric, PlannedTrial, Run, Trial, result_of
from serve_bench.core.traffic import Row
from serve_bench.view.document import Document, Facts, Number, Table
from tests.records import AT, changed, trial, worker
from tests.sheet_parts import as_lines, at, make_sheet, names, part, select

MS = 1_000_000
URL = "http://127.0.0.1:1/x"
PLANNED = PlannedTrial("k", 1, "url", {"url": URL}, Row("10 connections", "raw", 10))
CLIENT = {"bytes_received": 2_000_000, "status_codes": {"200": 100}}


def load(*windows: float, waits: Histogram | None = None, **changes: Any) -> Trial:
    """A load whose latencies are easy; of `waits` no request was ever answered."""
    given_up = waits is not None
    answered = Histogram() if given_up else Histogram.of([1 * MS] * 90 + [2 * MS] * 9 + [50 * MS])
    made = trial(PLANNED, *windows, latency=answered.encode(), client=CLIENT)
    if waits is not None:
        censored = Metric("ns", "lower", histogram=waits.encode())
        made = replace(made, metrics={**made.metrics, "censored": censored})
    return changed(made, **changes)


def sheet(*trials: Trial, failures: tuple[Failure, ...] = ()) -> Document:
    run = Run("id", ("load", URL), "load", AT, "0", plan=(PLANNED,))
    return make_sheet(result_of([run, *trials, *failures]))


def facts(*windows: float, **changes: Any) -> dict[str, str]:
    of = sheet(load(*windows, **changes))
    blocks = [block for name in ("results", "requests") for block in part(of, name)]
    return {name: text for block in select(blocks, Facts) for name, text in block.pairs}


COUNTS = Counts(sent=103, completed=100, failed={"timeout": 2, "reset": 1}, in_flight=0)


def test_the_times_of_a_load_that_was_never_answered_are_lower_bounds() -> None:
    hung = load(0.0, 0.0, waits=Histogram.of([3000 * MS] * 10), counts=Counts(10, 0, {}, 10))
    (table, *_) = select(part(sheet(hung), "results"), Table)
    p99 = table.rows[0].cells[at(table, "p99")]
    assert isinstance(p99, Number) and p99.text.startswith("> ")
    assert p99.value == pytest.approx(3000, rel=1e-3)


def test_every_request_is_accounted_for() -> None:
    shown = facts(40.0, 60.0, counts=COUNTS)
    assert shown["requests"] == "103 sent = 100 completed + 3 failed + 0 unanswered"
    assert shown["errors"] == "2 timed out, 1 reset"
    assert not {"not sent", "status"} & shown.keys(), "all that came was 200"
    codes = facts(40.0, 60.0, client={**CLIENT, "status_codes": {"200": 99, "503": 1}})
    assert codes["status"] == "200: 99, 503: 1"
    counts = replace(COUNTS, sent=104, in_flight=1, unsent=7)
    shown = facts(40.0, 60.0, counts=counts)
    assert shown["requests"] == "104 sent = 100 completed + 3 failed + 1 unanswered"
    assert shown["not sent"].startswith("7 were due")
    carried = facts(40.0, 60.0, counts=replace(COUNTS, carried_in=10))
    assert carried["requests"].startswith("10 carried in + 103 sent = ")


def test_an_open_loop_that_grew_has_the_connections_that_it_came_to() -> None:
    row = replace(PLANNED.row, loop="open", rate_per_s=100.0)
    grown = {**CLIENT, "workers": [worker(70), worker(60)]}
    run = Run("id", ("load", URL), "load", AT, "0", plan=(replace(PLANNED, row=row),))
    of = make_sheet(result_of([run, load(40.0, 60.0, row=row, client=grown)]))
    assert as_lines(of.findings)[0].startswith("10 connections, grown to 130 (raw): 50.00 ")


def test_nothing_answered_is_no_crash() -> None:
    empty = load(0.0, waits=Histogram(), counts=Counts(5, 0, {"connect": 5}, 0))
    of = sheet(empty, failures=(Failure("trial", "no request succeeded", AT, key="k"),))
    assert as_lines(of.findings)[0] == "Something failed: no request succeeded."
    assert facts(0.0, counts=empty.counts)["errors"] == "5 without a connection"
    assert "latency" not in names(of)
