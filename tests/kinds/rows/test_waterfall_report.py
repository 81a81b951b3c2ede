"""What a run says of its traced requests: a table of hops, sentences, and the same in JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from serve_bench.core.result import Result, Row, result_of
from serve_bench.view.document import Table, cell_text
from tests.records import launch, planned, run, trial
from tests.rendering import render
from tests.sheet_parts import every, part, sheet

MS = 1_000_000


def figures(mean: float, p50: float, tail: float) -> dict[str, int]:
    return {
        "mean": round(mean * MS),
        "p50": round(p50 * MS),
        "p99": round(tail * MS),
        "tail": round(tail * MS),
    }


def request(total: float, router: float, second: int) -> dict[str, Any]:
    spans = [["router", 0, round(router * MS)]]
    spans += [["user code", round(router * MS), round((total - router) * MS)]]
    return {
        "trace": f"{second:032x}",
        "due_unix_ns": second * 1000 * MS,
        "deployment": "Front",
        "total_ns": round(total * MS),
        "spans": spans,
        "calls": [],
    }


def fall(**more: Any) -> dict[str, Any]:
    return {
        "traced": 60,
        "unseen": 0,
        "failed": {},
        "lost_marks": 0,
        "cut": 0,
        "total": figures(20.0, 18.0, 90.0),
        "hops": {
            "client to proxy": figures(1.0, 1.0, 1.0),
            "router": figures(3.0, 1.0, 73.0),
            "user code": figures(6.0, 6.0, 6.0),
            "downstream": figures(10.0, 10.0, 10.0),
            "Down: batch wait": figures(9.5, 9.5, 9.5),
        },
        "timers": {},
        "requests": [request(90.0, 73.0, 7), request(20.0, 3.0, 5)],
        **more,
    }


def traced(*falls: dict[str, Any]) -> Result:
    row = Row("8 connections", "raw", 8)
    every = [planned(row=row, round_=at) for at, _ in enumerate(falls, 1)]
    trials = [
        replace(trial(one), waterfall=content) for one, content in zip(every, falls, strict=True)
    ]
    launches = [launch(round_=one.round) for one in trials]
    return result_of([run(*every), *launches, *trials])


def told(result: Result, **how: Any) -> str:
    return " ".join(render(result, width=120, **how).split())


def test_what_the_slowest_waited_for_is_a_finding() -> None:
    text = told(traced(fall()))
    assert "the slowest 6 of 60 traced requests take 90.0 ms, 73.0 of them router; at p50 " in text
    even = fall(hops={"user code": figures(20.0, 18.0, 19.0)}, total=figures(20.0, 18.0, 19.0))
    assert "traced requests take" not in told(traced(even))


def test_a_hop_that_is_most_of_the_time_of_all_is_a_finding_unless_it_is_the_app() -> None:
    back = {"user code": figures(5.0, 5.0, 5.0), "answer back": figures(15.0, 13.0, 13.0)}
    text = told(traced(fall(hops=back)))
    assert "of the mean latency of 20.0 ms, 15.0 are answer back: from the end of user" in text
    assert "of the mean latency" not in told(traced(fall(hops=back, timers={"answer back": 10.0})))
    own = {"user code": figures(15.0, 13.0, 13.0), "answer back": figures(5.0, 5.0, 5.0)}
    assert "of the mean latency" not in told(traced(fall(hops=own)))
    assert "of the mean latency" not in told(traced(fall()))


def test_a_timer_and_what_is_missing_are_said() -> None:
    partly = traced(fall(unseen=2, failed={"user code": 3}, lost_marks=9, cut=1))
    text = told(partly, verbose=True)
    for said in ("55 traced requests", "2 more lack", "3 more failed", "9 marks were written"):
        assert said in text
    legend = "router: choosing a replica, and waiting for one that has room"
    assert legend in text and legend not in told(partly)
    timer = traced(fall(timers={"batch wait": 50.0}))
    assert "just above 50 ms in batch wait: a timer" in told(timer)
    none = fall(total={}, hops={}, unseen=60)
    assert "8 connections: no traced request left marks" in told(traced(none))


def test_variants_stand_beside_each_other() -> None:
    plan = [planned(variant, Row("8 connections", "raw", 8)) for variant in ("a", "b")]
    falls = (fall(), fall(hops={"client to HAProxy": figures(2.0, 2.0, 2.0)}))
    trials = [replace(trial(of), waterfall=seen) for of, seen in zip(plan, falls, strict=True)]
    (table,) = every(part(sheet(result_of([run(*plan), *trials])), "waterfall"), Table)
    heads = "hop|a mean ms|a share %|a p99 ms|b mean ms|b share %|b p99 ms"
    assert "|".join(column.full_name for column in table.columns) == heads
    rows = ["|".join(map(cell_text, row.cells)) for row in table.rows]
    assert rows[1] == "client to HAProxy|-|-|-|2.00|10|2.00"
    assert rows[-1] == "  Down: batch wait|9.50|48|9.50|-|-|-"


def test_json_has_it_by_launch_and_only_where_it_is() -> None:
    (row,) = json.loads(render(traced(fall()), "json"))["rows"]
    assert row["trials"]["default-1"]["waterfall"] == fall()
    (row,) = json.loads(render(traced({}), "json"))["rows"]
    assert "waterfall" not in row["trials"]["default-1"] and "Where the time goes" not in told(
        traced({})
    )
