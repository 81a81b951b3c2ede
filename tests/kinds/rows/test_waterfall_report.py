"""What a run says of its traced requests: hops, sentences, JSON, and a file for other tools."""

import json
from pathlib import Path
from typing import Any

from serve_bench.cli.show import ReportRequest
from serve_bench.core.result import Result, result_of
from serve_bench.core.traffic import Row
from serve_bench.view.document import Table, cell_text
from serve_bench.view.waterfall import trace_text
from tests.cases import Capture
from tests.records import changed, launch, planned, run, trial
from tests.rendering import render
from tests.sheet_parts import make_sheet, part, select

MS = 1_000_000
ROW = Row("8 connections", "raw", 8)
DUE = 1_795_755_426_948_329_121
DOWN = {
    "deployment": "Down",
    "total_ns": 300,
    "spans": [["router", 200, 50], ["user code", 250, 250]],
    "calls": [],
}
FRONT: dict[str, Any] = {
    "trace": "79be3a0772165daa000000000000000f",
    "due_unix_ns": DUE,
    "deployment": "Front",
    "total_ns": 600,
    "spans": [["proxy", 0, 200], ["downstream", 200, 300], ["answer back", 500, 100]],
    "calls": [DOWN],
}


def figures(mean: float, p50: float, tail: float) -> dict[str, int]:
    times = {"mean": mean, "p50": p50, "p99": tail, "tail": tail}
    return {name: round(ms * MS) for name, ms in times.items()}


def fall(**more: Any) -> dict[str, Any]:
    return {
        **{"traced": 60, "unseen": 0, "failed": {}, "lost_marks": 0, "cut": 0, "timers": {}},
        "total": figures(20.0, 18.0, 90.0),
        "hops": {
            "client to proxy": figures(1.0, 1.0, 1.0),
            "router": figures(3.0, 1.0, 73.0),
            "user code": figures(6.0, 6.0, 6.0),
            "downstream": figures(10.0, 10.0, 10.0),
            "Down: batch wait": figures(9.5, 9.5, 9.5),
        },
        "requests": [FRONT],
        **more,
    }


def traced(**falls: dict[str, Any]) -> Result:
    """Make a row in a launch of each variant."""
    plan = [planned(variant, ROW) for variant in falls]
    trials = [changed(trial(at), waterfall=falls[at.variant]) for at in plan]
    return result_of([run(*plan), *map(launch, falls), *trials])


def text_of(result: Result, **how: Any) -> str:
    return " ".join(render(result, width=120, **how).split())


def said(**more: Any) -> str:
    return text_of(traced(a=fall(**more)))


def test_what_the_slowest_waited_for_is_a_finding() -> None:
    assert "the slowest 6 of 60 traced requests take 90.0 ms, 73.0 of them router; at p5" in said()
    even = {"hops": {"user code": figures(20.0, 18.0, 19.0)}, "total": figures(20.0, 18.0, 19.0)}
    assert "traced requests take" not in said(**even)


def test_a_hop_that_is_most_of_the_time_of_all_is_a_finding_unless_it_is_the_app() -> None:
    back = {"user code": figures(5.0, 5.0, 5.0), "answer back": figures(15.0, 13.0, 13.0)}
    sentence = "of the mean latency of 20.0 ms, 15.0 are answer back"
    assert sentence in said(hops=back)
    swapped = {"user code": back["answer back"], "answer back": back["user code"]}
    for more in ({"hops": back, "timers": {"answer back": 10.0}}, {"hops": swapped}, {}):
        assert "of the mean latency" not in said(**more)


def test_a_timer_and_what_is_missing_are_said() -> None:
    partly = traced(a=fall(unseen=2, failed={"user code": 3}, lost_marks=9, cut=1))
    text = text_of(partly, verbose=True)
    for words in ("55 traced requests", "2 lack marks", "3 failed in user", "9 marks were written"):
        assert words in text
    assert "just above 50 ms in batch wait: a timer" in said(timers={"batch wait": 50.0})
    assert "8 connections: no traced request left marks" in said(total={}, hops={}, unseen=60)


def test_hops_stand_in_the_order_of_the_way_and_calls_behind_downstream() -> None:
    result = traced(a=fall(), b=fall(hops={"client to HAProxy": figures(2.0, 2.0, 4.0)}))
    (table,) = select(part(make_sheet(result), "waterfall"), Table)
    heads = "hop|mean a ms|mean b ms|p99 a ms|p99 b ms|share a %|share b %|p50 a ms"
    assert "|".join(column.full_name for column in table.columns).startswith(heads)
    rows = ["|".join(map(cell_text, row.cells[:7])) for row in table.rows]
    assert rows[1] == "client to HAProxy|-|2.00|-|4.00|-|10"
    assert rows[6] == "  Down: batch wait|9.50|-|9.50|-|48|-"


def test_events_of_chrome_have_a_track_for_each_request_and_call() -> None:
    later = {**FRONT, "trace": "a" * 32, "due_unix_ns": DUE + 5000}
    made = json.loads(trace_text(traced(a={"requests": [later, FRONT]})))
    events = made["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["Front", "  Down"] * 2
    spans = [event for event in events if event["ph"] == "X"]
    assert [(span["name"], span["ts"], span["dur"]) for span in spans if span["tid"] == 1] == [
        ("request", 0.0, 0.6),
        ("proxy", 0.0, 0.2),
        ("downstream", 0.2, 0.3),
        ("answer back", 0.5, 0.1),
    ]
    assert next(span["ts"] for span in spans if span["tid"] == 3) == 5.0
    assert made["otherData"]["begin_unix_ns"] == DUE


def test_without_traced_requests_no_file_is_written(tmp_path: Path, capsys: Capture) -> None:
    request = ReportRequest(trace_out=tmp_path / "t.json")
    request.write_beside(traced(a={"requests": []}))
    assert not (tmp_path / "t.json").exists()
    assert "--trace-out: the records have no traced request" in capsys.readouterr().err
    request.write_beside(traced(a={"requests": [FRONT]}))
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == 9
