"""Open loop against servers that stall or are slow: the truth is in the server's log."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from serve_bench.load import drive_load
from serve_bench.load_result import LoadResult
from serve_bench.load_spec import Load, Request, Stage, Timing
from tests.servers import KnownServer, serving

CLIENTS = ("raw", "aiohttp")
NOW = {"warmup_min_s": 0.0, "warmup_max_s": 0.0}
PERIOD_S, STALL_S = 0.5, 0.1


def periodic(since: float) -> float:
    """The server sleeps through the last fifth of every period."""
    phase = since % PERIOD_S
    return PERIOD_S - phase if phase > PERIOD_S - STALL_S else 0.0


def true_latencies(result: LoadResult, server: KnownServer, rate: float) -> list[float]:
    """Due time to answer (ns) of each measured request, by the server's own log.

    Requests reach the server in the order in which they are due. The load has a count, so the first
    one is due when measuring begins.
    """
    begin = time.perf_counter_ns() - (time.time_ns() - result.started_at_ns)
    return sorted(e.sent_ns - (begin + k * 1e9 / rate) for k, e in enumerate(server.log))


def at(values: list[float], q: float) -> float:
    return values[max(1, math.ceil(q * len(values) - 1e-9)) - 1]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("most", [60, 4])
def test_a_stall_is_seen_by_everything_due_in_it(client: str, most: int) -> None:
    rate = 200.0
    with serving(stall=periodic) as server:
        load = Load(
            Request(server.url, expect_body=b"ok"),
            client=client,  # type: ignore[arg-type]
            connections=4,
            max_connections=most,
            rate=rate,
            count=int(rate * 2 * PERIOD_S),
            pickup_every=1,
        )
        result = drive_load(load, Timing(windows=1, window_s=30.0))
    assert result.measured.failed == {}
    truth = true_latencies(result, server, rate)
    # The log ends where the server writes. What comes after it is the client's: the time until it
    # reads, which the raw client measures (pickup) and aiohttp cannot tell (a fifth of the stall
    # then; a closed loop would be off by half of it).
    late = result.pickup.max if client == "raw" else STALL_S / 5 * 1e9
    assert late is not None
    for q in (0.5, 0.9, 0.99):
        got = result.latency.percentile(q)
        assert got is not None
        assert got == pytest.approx(at(truth, q), rel=0.02, abs=1e6 + late), f"p{q * 100:g}"
    # A fifth of the time is stalled, so the top fifth of latencies is spread evenly up to the
    # length of a stall, and p90 is half of it (more, where the server itself was held up).
    assert at(truth, 0.9) > STALL_S * 0.35e9
    if most == 4:
        assert result.waited > 0
        lag = result.send_lag.percentile(0.9)
        assert lag is not None and lag > STALL_S / 10 * 1e9
        assert not any("sent late" in reason for reason in result.verdict.reasons)


def test_a_closed_loop_misses_the_stall() -> None:
    with serving(stall=periodic) as server:
        load = Load(Request(server.url), connections=1)
        result = drive_load(load, Timing(windows=2, window_s=PERIOD_S, **NOW))
    p90, longest = result.latency.percentile(0.9), result.latency.max
    assert p90 is not None and longest is not None
    assert longest > STALL_S * 0.8e9
    assert p90 < STALL_S * 0.2e9  # the open loop says half of the stall


@pytest.mark.parametrize("client", CLIENTS)
def test_what_cannot_be_sent_is_counted(client: str) -> None:
    rate = 400.0
    with serving(delay_s=0.02) as server:
        request = Request(server.url)
        load = Load(request, client=client, connections=1, rate=rate)  # type: ignore[arg-type]
        result = drive_load(load, Timing(windows=1, window_s=0.5, drain_s=0.5, **NOW))
    due = rate * (result.warmup.seconds + 0.5)
    assert result.total.sent + result.total.unsent == pytest.approx(due, abs=2)
    assert result.total.unsent > due / 2
    assert result.total.sent == len(server.log)
    assert result.measured.balanced and result.total.balanced
    # Each waited for the one before it: latency grows, service time does not.
    assert result.latency.mean is not None and result.service_time.mean is not None
    assert result.latency.mean > 3 * result.service_time.mean


@pytest.mark.parametrize("client", CLIENTS)
def test_connections_grow_with_the_need(client: str) -> None:
    with serving(delay_s=0.1) as server:
        load = Load(
            Request(server.url),
            client=client,  # type: ignore[arg-type]
            connections=1,
            max_connections=60,
            rate=100.0,
        )
        result = drive_load(load, Timing(windows=1, window_s=0.5, **NOW))
    assert result.waited == 0 == result.total.unsent
    assert 9 <= server.connections <= 61
    assert result.measured.failed == {}


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
def test_stages_begin_with_the_first_window(arrivals: Any) -> None:
    stages = (Stage(100.0, 0.3), Stage(400.0, 0.3))
    with serving() as server:
        load = Load(Request(server.url), connections=8, stages=stages, arrivals=arrivals)
        result = drive_load(load, Timing(windows=2, window_s=0.3, **NOW))
    first, second = result.windows
    if arrivals == "constant":
        assert first == pytest.approx(30, abs=3)
        assert second == pytest.approx(120, abs=6)
    else:
        assert first == pytest.approx(30, abs=25)
        assert second == pytest.approx(120, abs=50)
    assert arrivals == "poisson" or result.measured.sent == 150


@pytest.mark.parametrize("client", CLIENTS)
def test_a_count_is_kept_by_several_workers(client: str) -> None:
    with serving() as server:
        load = Load(
            Request(server.url),
            client=client,  # type: ignore[arg-type]
            connections=4,
            processes=2,
            rate=300.0,
            count=61,
        )
        result = drive_load(load, Timing(windows=1, window_s=30.0))
    assert result.total.sent == 61 == len(server.log)
    assert result.duration_s == pytest.approx(60 / 300, rel=0.5)


def test_spinning_sends_on_time_and_says_so() -> None:
    with serving() as server:
        load = Load(Request(server.url), connections=4, rate=200.0, spin=True)
        result = drive_load(load, Timing(windows=1, window_s=0.3, **NOW))
    (worker,) = result.workers
    assert worker.timer == "spin"
    assert worker.non_idle is None or worker.non_idle > 0.5
    assert result.send_lag.count == result.measured.sent
