"""The summary of a load: what it says, in which words, from records with easy numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.load.text import _time
from serve_bench.cli.show import render
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, PlannedTrial, Result, Row, Run, Trial

MS = 1_000_000


def trial(**changes: object) -> Trial:
    latency = Histogram.of([1 * MS] * 90 + [2 * MS] * 9 + [50 * MS])
    made = Trial(
        key="k",
        launch="",
        round=1,
        variant="url",
        cell={"url": "http://127.0.0.1:1/x"},
        row=Row("10 connections", "raw", 10),
        started_at="2026-01-02T03:04:05+00:00",
        window_s=1.0,
        warmup=Warmup(0.5, True, 25),
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(40.0, 60.0)),
            "latency": Metric("ns", "lower", histogram=latency.encode()),
        },
        counts=Counts(sent=103, completed=100, failed={"timeout": 2, "reset": 1}, in_flight=0),
        client={
            "bytes_received": 2_000_000,
            "status_codes": {"200": 100},
            "workers": [{}],
            "verdict": {
                "client_bound": False,
                "reasons": [],
                "non_idle": 0.12,
                "pickup_p50_ns": 15_000,
            },
        },
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def text(one: Trial, width: int = 80) -> str:
    planned = PlannedTrial(one.key, 1, "url", one.cell, one.row)
    run = Run("id", ("load",), "load", one.started_at, "0", plan=(planned,))
    return render(Result(run, trials=(one,)), "table", where="here", width=width)


def test_it_says_what_was_asked_before_any_figure() -> None:
    lines = text(trial()).splitlines()
    assert lines[:3] == [
        "http://127.0.0.1:1/x",
        "client raw, closed loop, 10 connections, 1 process",
        "2 windows of 1 s after a warm-up of 0.5 s, steady at its end",
    ]
    assert lines[-1] == "records: here"


def test_the_figures_are_those_of_the_records() -> None:
    shown = text(trial())
    assert "100 requests in 2.00 s, 2.00 MB read, 50.0 requests/s, 1.00 MB/s" in shown
    rates = next(line for line in shown.splitlines() if line.startswith("requests/s")).split()
    assert rates[1:4] == ["50.0", "10.0", "60.0"]
    percentiles = next(line for line in shown.splitlines() if line.startswith("latency  "))
    assert "1.58 ms" in percentiles  # (90 x 1 + 9 x 2 + 50) / 100
    row = [line for line in shown.splitlines() if line.startswith("latency  ")][1].split()
    assert row[1::2] == ["1.00", "1.00", "1.00", "2.00", "50.0"]


def test_every_request_is_accounted_for() -> None:
    shown = text(trial())
    assert "errors       2 timed out, 1 reset" in shown
    assert "accounting   103 sent = 100 completed + 3 failed + 0 in flight" in shown
    assert "status       200: 100" in shown


def test_a_client_that_was_the_limit_is_said_loudly_with_its_figures() -> None:
    verdict = {"client_bound": True, "reasons": ["a worker never idle"], "non_idle": 0.97}
    shown = " ".join(text(trial(client={"verdict": verdict})).split())
    assert "THE CLIENT WAS THE LIMIT: a worker never idle (busy or waiting for a CPU 97 %" in shown
    assert "client not the limit (busy or waiting for a CPU 12 % of the time; responses picked" in (
        " ".join(text(trial()).split())
    )


def test_an_open_loop_shows_service_time_lag_and_what_was_not_sent() -> None:
    histogram = Metric("ns", "lower", histogram=Histogram.of([3 * MS] * 10).encode())
    base = trial()
    shown = text(
        trial(
            row=replace(base.row, loop="open", rate_per_s=50.0),
            metrics={**base.metrics, "service_time": histogram, "send_lag": histogram},
            counts=replace(base.counts, unsent=7),
        )
    )
    assert "open loop at 50 requests/s (constant)" in shown
    assert any(
        line.startswith("service time ") and "3.00 ms" in line for line in shown.splitlines()
    )
    assert any(line.startswith("send lag ") for line in shown.splitlines())
    assert "not sent     7 were due" in shown


def test_cpu_of_the_load_and_of_the_host_are_said() -> None:
    usage: dict[str, Any] = {
        "host": {"cores": 2, "cpu_percent": 150.4},
        "processes": [
            {"pid": 1, "role": "load_worker", "cpu_percent": 40.0},
            {"pid": 2, "role": "serve_bench", "cpu_percent": 2.0},
        ],
    }
    line = "CPU          the load 42 % of a core; all that runs on the host 150 % of 200 %"
    assert line in text(trial(usage=usage))
    serve = [{"pid": 3, "role": "proxy", "cpu_percent": 70.0}, {"pid": 4, "role": "replica"}]
    beside = {**usage, "processes": [*usage["processes"], *serve]}
    assert "CPU          the load 42 % of a core, the Serve 70 %; all" in text(trial(usage=beside))
    assert "CPU          the load" not in text(trial())


def limits(one: Trial) -> str:
    """From `limited by` to the end of its line, however many it takes."""
    words = " ".join(text(one, 200).split("latency histogram")[0].split())
    return words.partition("limited by: ")[2]


def used(host: float, load: float = 40.0) -> dict[str, object]:
    """What is sampled beside a load: the host and the load worker, and nothing of the server."""
    worker = {"pid": 1, "role": "load_worker", "title": "load worker", "cpu_percent": load}
    return {"host": {"cores": 2, "cpu_percent": host}, "processes": [worker]}


def test_a_client_at_its_limit_is_what_limited_the_load() -> None:
    verdict = {"client_bound": True, "reasons": ["never idle"], "non_idle": 0.97}
    assert limits(trial(client={"verdict": verdict}, usage=used(150, 97))) == (
        "client 97 % not idle (likely; then host 150 of 200 %) hint the raw client, more load "
        "processes, or the client on another machine"
    )
    assert limits(trial(client={"verdict": verdict})).startswith("client 97 % not idle (likely)")


def test_a_full_host_is_what_limited_the_load() -> None:
    assert limits(trial(usage=used(199))).startswith(
        "host CPU 199 of 200 %, 159 % not by the load (likely; then client 12 % not idle) hint "
    )


def test_of_a_server_that_is_not_visible_only_client_and_host_are_told() -> None:
    assert limits(trial(usage=used(150))) == (
        "unclear: no process of the server was sampled; client 12 % not idle; host 150 of 200 %"
    )
    assert limits(trial()) == ""  # nothing was sampled, and the client says "not the limit" above


def test_an_open_loop_that_was_answered_in_time_was_limited_by_its_rate() -> None:
    row = replace(trial().row, loop="open", rate_per_s=50.0)
    counts = Counts(sent=100, completed=100, failed={}, in_flight=0)
    assert limits(trial(row=row, counts=counts, usage=used(60))).startswith(
        "offered load 50 requests/s, all answered in time (likely; then "
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    histogram = Metric("ns", "lower", histogram=Histogram.of([3 * MS, 123_456_789]).encode())
    base = trial()
    verdict = {"client_bound": True, "reasons": ["busy", "late " * 9], "non_idle": 0.97}
    wide = trial(
        row=replace(base.row, loop="open", rate_per_s=50_000.0),
        metrics={**base.metrics, "service_time": histogram, "send_lag": histogram},
        counts=Counts(10**9, 10**9 - 3, {"connect": 1, "truncated": 2}, 0, carried_in=0, unsent=9),
        client={
            "verdict": verdict,
            "notes": ["a worker was lost " * 5],
            "asked": {"arrivals": "poisson", "max_connections": 500},
            "bytes_received": 10**12,
            "retried": 5,
            "reconnects": 7,
        },
        usage={"host": {"cores": 2, "cpu_percent": 150.4}, "processes": []},
    )
    lines = text(wide, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert any("50,000 requests/s (poisson)" in line for line in lines)


def test_a_load_that_was_broken_off_is_counted_to_its_end() -> None:
    """Two whole windows of 1 s and a part of a third: the figures cover 2.5 s."""
    shown = text(trial(seconds={"measured": 2.5}))
    assert "100 requests in 2.50 s, 2.00 MB read, 40.0 requests/s, 800.00 kB/s" in shown


def test_what_was_odd_is_said() -> None:
    notes = ["600 of 1000 connections were open at the start"]
    shown = text(trial(client={"notes": notes, "reconnects": 1234}))
    assert "NOTE         600 of 1000 connections were open at the start" in shown
    assert "connections  1,234 opened again" in shown


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (999.7, "1.00 us"),
        (9_999, "10.0 us"),
        (999_499, "999 us"),
        (999_600, "1.00 ms"),
        (59_960_000_000, "60.0 s"),
        (1_234_000_000_000, "1230 s"),
    ],
)
def test_times_have_three_digits(ns: float | None, shown: str) -> None:
    assert _time(ns) == shown


def test_nothing_measured_is_no_crash() -> None:
    base = trial()
    empty = replace(
        base,
        metrics={
            "throughput": Metric("requests/s", "higher", windows=(0.0,)),
            "latency": Metric("ns", "lower", histogram=Histogram().encode()),
        },
        counts=Counts(5, 0, {"connect": 5}, 0),
    )
    assert "errors       5 without a connection" in text(empty)
