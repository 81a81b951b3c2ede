"""The summary of a load: what it says, in which words, from records with easy numbers."""

from __future__ import annotations

from dataclasses import replace

from serve_bench.histogram import Histogram
from serve_bench.load_result import Counts, Warmup
from serve_bench.report import render
from serve_bench.result import Metric, PlannedTrial, Result, Row, Run, Trial

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


def text(one: Trial) -> str:
    planned = PlannedTrial(one.key, 1, "url", one.cell, one.row)
    run = Run("id", ("load",), "load", one.started_at, "0", plan=(planned,))
    return render(Result(run, trials=(one,)), "table", where="here")


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
    assert "errors       timeout 2, reset 1" in shown
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
    usage = {
        "host": {"cores": 2, "cpu_percent": 150.4},
        "processes": [{"role": "load_worker", "cpu_percent": 40.0}, {"cpu_percent": 2.0}],
    }
    line = "CPU          the load 42 % of a core; all that runs on the host 150 % of 200 %"
    assert line in text(trial(usage=usage))
    assert "CPU          the load" not in text(trial())


def test_no_line_is_wider_than_80() -> None:
    assert max(len(line) for line in text(trial()).splitlines()) <= 80


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
    assert "errors       connect 5" in text(empty)
