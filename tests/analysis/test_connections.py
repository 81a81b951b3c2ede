"""The wait of an open loop for its own connections: when it is said, and what it is blamed for."""

from dataclasses import asdict, replace
from typing import Any

from serve_bench.analysis.checks import TRIAL_CHECKS, Warning
from serve_bench.analysis.connections import connection_wait
from serve_bench.analysis.verdict import limited_by
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Trial
from tests.cases import cases
from tests.verdict_trials import IDLE, expect, measured, process, usage, with_metric

MS = 1_000_000


def waiting(
    rate: int, sent: int, connections: int, lags_ms: dict[int, int], seen: Any = IDLE
) -> Trial:
    """An open loop of 10 s at `rate`/s, of which `sent`/s were sent in it, over connections on
    which a request takes 190 ms. `lags_ms`: how many requests were sent so late; those above 1 ms
    waited for a connection."""
    due, within = 10 * rate, 10 * sent
    done = Counts(within, within, {}, 0, unsent=due - within)
    lags = [ms * MS for ms, count in lags_ms.items() for _ in range(count)]
    assert len(lags) == due
    client = {
        "waited": sum(lag > MS for lag in lags),
        "workers": [{"connections": connections}],
        "in_windows": asdict(done),
    }
    trial = measured(connections, sent, seen, loop="open", client=client)
    for name, times in (
        ("send_lag", lags),
        ("service_time", [190 * MS] * due),
        ("latency", [lag + 190 * MS for lag in lags]),
    ):
        trial = with_metric(trial, name, "ns", *times)
    return replace(trial, counts=Counts(due, due, {}, 0))


def warnings(trial: Trial) -> dict[str, Warning]:
    return {warning.code: warning for check in TRIAL_CHECKS for warning in check(trial)}


def test_a_rate_that_is_missed_for_connections_names_how_many_it_takes() -> None:
    trial = waiting(40, 21, 4, {0: 4, 5500: 396})
    wait = connection_wait(trial)
    assert wait is not None and wait.missed
    assert wait.text == (
        "21 of 40 requests/s could be sent: all 4 connections were busy; 5.45 of 5.63 s are the "
        "wait for them, the service took 190 ms; 40/s need 8 connections or more"
    )
    assert warnings(trial)["connections"].message == wait.text
    words = "4 connections of the load: 5.45 of 5.63 s are the wait for them ("
    expect(trial, "connections", "high", words)
    # A full part of the server comes first.
    full = usage(process(1, "proxy", 97, wait=1), process(2, "replica", 40, wait=1), host=140)
    trial = waiting(40, 21, 4, {0: 4, 5500: 396}, full)
    assert limited_by(trial).cause == "proxy CPU"
    assert "connections" in warnings(trial)
    # A rate that is kept has the wait where it is much of the latency.
    trial = waiting(20, 20, 1, {0: 150, 200: 50})
    wait = connection_wait(trial)
    assert wait is not None and not wait.missed
    assert wait.text.startswith("the only connection was busy at times: 50 of 240 ms are the wait")
    assert limited_by(trial).cause == "offered load"
    assert connection_wait(waiting(20, 20, 5, {0: 195, 200: 5})) is None  # 2.5 % of the latency


@cases("known", "waited", "in_windows")
def test_what_is_not_recorded_is_not_known(known: str) -> None:
    trial = waiting(40, 21, 4, {0: 4, 5500: 396})
    rest = {name: value for name, value in trial.client.items() if name != known}
    assert connection_wait(replace(trial, client=rest)) is None


def test_failures_have_their_latency_beside_that_of_the_others() -> None:
    trial = measured(10, 100, IDLE, latency_ms=50, failed=5)
    trial = with_metric(trial, "failed_latency.503", "ns", *[2_000 * MS] * 3)
    trial = with_metric(trial, "failed_latency.timeout", "ns", *[30_000 * MS] * 2)
    message = warnings(trial)["errors"].message
    assert message.endswith("median latency 2 s (503), 30 s (timeout), 50 ms (completed)")
