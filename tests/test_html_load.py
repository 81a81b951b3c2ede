"""The HTML page of a single load: what was asked, every figure, every request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.cli.show import render
from serve_bench.core.document import Chart, Document, Number, Table, Text
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Failure, Metric, PlannedTrial, Result, Run, Trial, result_of
from tests.records import AT
from tests.sheet_parts import load_sheet
from tests.test_html_page import every, names, section, texts
from tests.test_load_text import MS
from tests.test_load_text import trial as summed_up


def trial(**changes: Any) -> Trial:
    """The load of the tests of the summary, its worker with the connections that it had."""
    made = summed_up(**changes)
    workers = [{"connections": 10} for _ in made.client.get("workers", ())]
    return replace(made, client={**made.client, "workers": workers})


def result(*trials: Trial, failures: tuple[Failure, ...] = ()) -> Result:
    first = trials[0] if trials else trial()
    planned = PlannedTrial(first.key, 1, "url", first.cell, first.row)
    run = Run("id", ("load", "http://127.0.0.1:1/x"), "load", AT, "0", plan=(planned,))
    return result_of([run, *trials, *failures])


def open_loop(**changes: Any) -> Trial:
    base = trial()
    service = Histogram.of([1 * MS] * 95 + [3 * MS] * 5)
    lag = Histogram.of([0] * 10 + [20_000] * 80 + [47 * MS] * 10)
    metrics = {
        **base.metrics,
        "service_time": Metric("ns", "lower", histogram=service.encode()),
        "send_lag": Metric("ns", "lower", histogram=lag.encode()),
    }
    row = replace(base.row, loop="open", rate_per_s=50.0)
    return replace(base, row=row, metrics=metrics, **changes)


def in_json(of: Result) -> dict[str, Any]:
    page = json.loads(render(of, "json"))
    row: dict[str, Any] = page["variants"][0]["cells"][0]["rows"][0]
    return row


def main_table(sheet: Document) -> Table:
    return every(section(sheet, "results").blocks, Table)[0]


def by_name(table: Table) -> dict[str, dict[str, Any]]:
    """The cells of each row by the names of the columns."""
    heads = [column.name for column in table.columns]
    return {
        row.cells[0].text: dict(zip(heads, row.cells, strict=True))
        for row in table.rows
        if isinstance(row.cells[0], Text)
    }


@pytest.mark.parametrize("made", [trial(), open_loop()], ids=["closed", "open"])
def test_figures_are_those_of_the_json(made: Trial) -> None:
    of = result(made)
    known, shown = in_json(of), by_name(main_table(load_sheet(of, "here")))
    rate = shown.pop("throughput")
    assert rate["mean"].value == known["spreads"]["throughput"]["mean"]
    assert rate["std"].value == known["spreads"]["throughput"]["std"]
    assert (rate["max"], rate["within one std"]) == ("60.00", "100.0 %")
    wanted = ["latency", *(["service time", "send lag"] if made.row.loop == "open" else [])]
    assert list(shown) == wanted
    for name, cells in shown.items():
        figures = {key: one.value for key, one in cells.items() if isinstance(one, Number)}
        stored = known["distributions"][name.replace(" ", "_")]
        keys = ("mean", "std", "p50", "p75", "p90", "p99", "p99.9", "max")
        assert figures == {key: stored[key.replace(".", "_")] for key in keys}
    assert shown["latency"]["p75"].text == "1.00" and shown["latency"]["p99.9"].text == "50.0"


def test_an_open_loop_draws_its_three_times_beside_each_other() -> None:
    sheet = load_sheet(result(open_loop()), None)
    (chart,) = every(section(sheet, "latency").blocks, Chart)
    groups = {one["group"] for one in chart.spec["data"]["values"]}
    assert groups == {"latency", "service time", "send lag"}
    assert all(one["value"] > 0 for one in chart.spec["data"]["values"])
    (closed,) = every(section(load_sheet(result(trial()), None), "latency").blocks, Chart)
    assert {one["group"] for one in closed.spec["data"]["values"]} == {"latency"}


def test_what_was_asked_stands_before_the_figures() -> None:
    pairs = dict(load_sheet(result(trial()), None).run.pairs)
    assert pairs["URL"] == "http://127.0.0.1:1/x"
    assert pairs["client"] == "raw, 10 connections, 1 process"
    assert pairs["loop"] == "closed"
    assert pairs["measured"] == "2 windows of 1 s, after 0.5 s of warm-up, steady at its end"
    assert pairs["command"] == "serve-bench load http://127.0.0.1:1/x"
    unjudged = trial(warmup=Warmup(0.5, False, 25, judged=False))
    pairs = dict(load_sheet(result(unjudged), None).run.pairs)
    told = "2 windows of 1 s, after 0.5 s of warm-up, not judged: 25 requests"
    assert pairs["measured"] == told
    asked = {"arrivals": "poisson", "max_connections": 50}
    pairs = dict(load_sheet(result(open_loop(client={"asked": asked})), None).run.pairs)
    assert pairs["loop"] == "open, 50 requests/s due (poisson)"
    assert pairs["client"] == "raw, 10 connections, up to 50 in need"


def test_every_request_is_accounted_for() -> None:
    of = result(trial(counts=Counts(104, 100, {"timeout": 2, "reset": 1}, 1, unsent=7)))
    table = every(section(load_sheet(of, None), "requests").blocks, Table)[0]
    shown = {row.cells[0]: row.cells[1] for row in table.rows}
    texts_of = {name: one.text if isinstance(one, Number) else one for name, one in shown.items()}
    assert texts_of == {
        "carried in": "0",
        "sent": "104",
        "completed": "100",
        "failed: timeout": "2",
        "failed: reset": "1",
        "in flight at the end": "1",
        "due, and still waiting for a free connection": "7",
    }
    known = in_json(of)
    completed, timeouts = shown["completed"], shown["failed: timeout"]
    assert isinstance(completed, Number) and completed.value == known["completed"]
    assert isinstance(timeouts, Number) and timeouts.value == known["failed"]["timeout"]


def test_what_it_found_in_sentences() -> None:
    verdict = {"client_bound": True, "reasons": ["a worker never idle"], "non_idle": 0.97}
    sheet = load_sheet(result(trial(client={"verdict": verdict})), None)
    assert sheet.findings[:2] == (
        "10 connections of the raw client: 50.00 ± 10.00 requests/s, p50 1.00 ms, p99 2.00 ms.",
        "Limited by client 97 % not idle (likely).",
    )
    assert "3 of 103 requests failed: 2 timed out, 1 reset" in sheet.findings[2]
    told = list(texts(section(sheet, "requests")))
    assert any(text.startswith("The client was the limit: a worker never idle") for text in told)
    hint = next(text for text in texts(section(sheet, "cpu")) if "hint: " in text)
    assert "the raw client, more load processes" in hint


def test_cpu_of_the_load_and_of_the_host_is_said() -> None:
    worker = {"pid": 1, "role": "load_worker", "title": "load worker", "cpu_percent": 40.0}
    usage = {"host": {"cores": 2, "cpu_percent": 150.4}, "processes": [worker]}
    sheet = load_sheet(result(trial(usage=usage)), None)
    line = "the load 40 % of a core; all that runs on the host 150 % of 200 %"
    assert line in list(texts(section(sheet, "requests")))
    (chart,) = every(section(sheet, "cpu").blocks, Chart)
    assert [one["value"] for one in chart.spec["data"]["values"]] == [40.0]
    assert "unclear" in " ".join(texts(section(sheet, "cpu")))
    assert "cpu" not in names(load_sheet(result(trial()), None))
    proxy = {"pid": 2, "role": "proxy", "title": "proxy", "cpu_percent": 70.0}
    sheet = load_sheet(result(trial(usage={**usage, "processes": [worker, proxy]})), None)
    said = " ".join(texts(section(sheet, "requests")))
    assert "the load 40 % of a core, the Serve 70 %; all that runs" in said


def test_a_load_that_failed_says_so_first() -> None:
    failure = Failure("trial", "connection refused", AT, key="k", detail=("a line",))
    sheet = load_sheet(result(failures=(failure,)), None)
    assert sheet.findings == (
        "The load was not measured in full; something failed: connection refused.",
    )
    assert names(sheet) == ["results", "method"]
    assert "failed: connection refused" in list(texts(section(sheet, "results")))


def test_of_another_program_its_own_percentiles_are_shown() -> None:
    base = trial()
    told = replace(
        base,
        row=replace(base.row, client="wrk"),
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(120.0,)),
            "latency_p50": Metric("ns", "lower", windows=(2_000_000.0,)),
            "latency_p99": Metric("ns", "lower", windows=(7_000_000.0,)),
        },
        client={"external": {"program": "wrk"}, "bytes_received": 10},
    )
    sheet = load_sheet(result(told), None)
    shown = by_name(main_table(sheet))
    assert shown["latency"]["p50"] == Number("2.00", 2_000_000.0)
    assert shown["latency"]["p99"].value == in_json(result(told))["spreads"]["latency_p99"]["mean"]
    (account,) = in_json(result(told))["requests"].values()  # wrk does not tell these
    assert [account[name] for name in ("sent", "in_flight", "not_sent", "unanswered")] == [None] * 4
    assert shown["throughput"]["std"].value is None
    assert "latency" not in names(sheet) and "windows" not in names(sheet)
    assert any("not diagnosed" in text for text in texts(section(sheet, "requests")))


def test_the_times_of_a_load_that_was_never_answered_are_lower_bounds() -> None:
    base = trial()
    given_up = Histogram.of([3000 * MS] * 10)
    hung = replace(
        base,
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(0.0, 0.0)),
            "latency": Metric("ns", "lower", histogram=Histogram().encode()),
            "censored": Metric("ns", "lower", histogram=given_up.encode()),
        },
        counts=Counts(10, 0, {"timeout": 10}, 0),
    )
    shown = by_name(main_table(load_sheet(result(hung), None)))
    assert shown["latency"]["p99"].text.startswith("> ")
    assert shown["latency"]["p99"].value == pytest.approx(3000 * MS, rel=1e-3)


def test_nothing_answered_is_no_crash_and_names_stay_as_they_are() -> None:
    base = trial()
    evil = "http://x/<script>alert(1)</script>"
    empty = replace(
        base,
        cell={"url": evil},
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(0.0,)),
            "latency": Metric("ns", "lower", histogram=Histogram().encode()),
        },
        counts=Counts(5, 0, {"connect": 5}, 0),
    )
    failure = Failure("trial", "no request succeeded", AT, key=base.key)
    sheet = load_sheet(result(empty, failures=(failure,)), None)
    assert sheet.findings[0] == "Something failed: no request succeeded."
    assert dict(sheet.run.pairs)["URL"] == evil
    assert "latency" not in names(sheet)
