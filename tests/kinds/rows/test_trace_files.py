"""Traced requests as files for other tools: spans that stand where the records have them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.cli.show import ReportRequest
from serve_bench.core.result import Result, Row, result_of
from serve_bench.view.trace_files import trace_text
from tests.records import launch, planned, run, trial

DUE = 1_795_755_426_948_329_121

DOWN = {
    "deployment": "Down",
    "total_ns": 300,
    "spans": [["router", 200, 50], ["user code", 250, 250]],
    "calls": [],
}
FRONT = {
    "trace": "79be3a0772165daa000000000000000f",
    "due_unix_ns": DUE,
    "deployment": "Front",
    "total_ns": 600,
    "spans": [["proxy", 0, 200], ["downstream", 200, 300], ["answer back", 500, 100]],
    "calls": [DOWN],
}


def traced(*requests: dict[str, Any]) -> Result:
    row = planned(row=Row("8 connections", "raw", 8))
    fall = {"requests": list(requests)}
    return result_of([run(row), launch(), replace(trial(row), waterfall=fall)])


def test_events_of_chrome_have_a_track_for_each_request_and_call() -> None:
    later = {**FRONT, "trace": "a" * 32, "due_unix_ns": DUE + 5000}
    made = json.loads(trace_text(traced(later, FRONT)))
    names = [one["args"]["name"] for one in made["traceEvents"] if one["name"] == "thread_name"]
    assert names == ["Front", "  Down"] * 2
    spans = [one for one in made["traceEvents"] if one["ph"] == "X"]
    first = [(one["name"], one["ts"], one["dur"]) for one in spans if one["tid"] == 1]
    assert first == [
        ("request", 0.0, 0.6),
        ("proxy", 0.0, 0.2),
        ("downstream", 0.2, 0.3),
        ("answer back", 0.5, 0.1),
    ]
    assert next(one["ts"] for one in spans if one["tid"] == 3) == 5.0
    assert made["otherData"]["begin_unix_ns"] == DUE


def test_a_run_without_traced_requests_writes_no_file_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.json"
    ReportRequest(trace_out=out).write_beside(traced())
    assert not out.exists()
    assert "--trace-out: the records have no traced request" in capsys.readouterr().err
    ReportRequest(trace_out=out).write_beside(traced(FRONT))
    assert len(json.loads(out.read_text())["traceEvents"]) == 9
