"""Open loop against servers that stall or are slow: the truth is in the server's log."""

import math
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load.driver import drive_load
from serve_bench.load.merge import added_share
from serve_bench.load.tally import PARTS
from tests.cases import cases, sure
from tests.load.loads import CLIENTS, Ends, run_here, timed_here
from tests.servers import KnownServer, serving

pytestmark = pytest.mark.alone

NOW = {"warmup_min_s": 0.0, "warmup_max_s": 0.0}
RATE = 200.0
PERIOD_S, STALL_S = 0.5, 0.1
ONCE_FROM_S, ONCE_TO_S = 0.25, 0.45

LATE_NS = 500_000
"""A response read later than this after the server wrote it is the client's delay, not theory's."""


def periodic(since: float) -> float:
    """Let the server sleep through the last fifth of every period."""
    phase = since % PERIOD_S
    return PERIOD_S - phase if phase > PERIOD_S - STALL_S else 0.0


def once(since: float) -> float:
    """Let the server sleep for 0.2 s, and never again."""
    return ONCE_TO_S - since if ONCE_FROM_S < since < ONCE_TO_S else 0.0


STALLS: dict[str, Callable[[float], float]] = {"once": once, "periodic": periodic}


def numbered(server: KnownServer, client: Client, count: int, **pace: Any) -> Load:
    """Each request carries its number, so that the server's log tells which one it was."""
    bodies = tuple(b"%d" % k for k in range(count))
    request = Request(server.url, method="POST", bodies=bodies, expect_body=b"ok")
    return Load(request, client=client, count=count, **pace)


def at(values: list[float], q: float) -> float:
    return values[max(1, math.ceil(q * len(values) - 1e-9)) - 1]


def check_against(
    latency: Histogram, truth: list[float], late: list[float], shares: tuple[float, ...]
) -> None:
    """Check that percentiles are the truth's within 2 % or 1 ms, with what the client adds.

    `truth`: from due to written by the server; `late`: from written to read (ns). If a share e of
    the responses was late by more than LATE_NS, the percentile at q lies between the truth's at q
    and its at q + e (or within the longest delay above the highest). On an idle machine e is 0 for
    the raw client; aiohttp reads a burst of 20 responses within about 2 ms.
    """
    truth = sorted(truth)
    tardy = sum(1 for value in late if value > LATE_NS) / len(late)
    for q in shares:
        got = sure(latency.percentile(q))
        low = at(truth, q)
        high = at(truth, min(1.0, q + tardy)) + (max(late) if q + tardy > 1 else LATE_NS)
        assert got >= low - max(0.02 * low, 1e6), f"p{q * 100:g}"
        assert got <= high + max(0.02 * high, 1e6), f"p{q * 100:g}, late: {tardy:.0%}"


def times_of(
    server: KnownServer, ends: Ends, rate: float | None
) -> tuple[list[float], list[float]]:
    """(due to written by the server, written to read by the client) of each request, in ns.

    Written is when the server is about to: the client may have read before it is noted as done.
    """
    begin = min(due for due, _ in ends.seen)
    written = {int(e.body): e.answered_ns for e in server.log}
    if rate is not None:
        dues = {round((due - begin) * rate / 1e9): (due, now) for due, now in ends.seen}
        assert sorted(dues) == sorted(written) == list(range(len(ends.seen)))
        for k, (due, _) in dues.items():
            assert due - begin == pytest.approx(k * 1e9 / rate, abs=2)
    else:
        dues = dict(enumerate(ends.seen))
    truth = [float(written[k] - due) for k, (due, _) in dues.items()]
    return truth, [float(now - written[k]) for k, (_, now) in dues.items()]


@pytest.mark.parametrize("client", CLIENTS)
@cases("most", 60, 4)
@pytest.mark.parametrize("stall", STALLS)
def test_a_stall_is_seen_by_everything_due_in_it(client: Client, most: int, stall: str) -> None:
    count, ends = int(RATE * 2 * PERIOD_S), Ends()
    with serving(stall=STALLS[stall]) as server:
        pace = {"connections": 4, "max_connections": most, "rate": RATE}
        result = run_here(numbered(server, client, count, **pace), ends.note)
    assert result.measured.failed == {}
    truth, late = times_of(server, ends, RATE)
    check_against(result.latency, truth, late, (0.5, 0.9, 0.99))
    # A fifth of the requests is due in a stall (0.2 s once, or 0.1 s twice), and their latencies
    # are spread evenly up to its length: p90 is half of it (more, where the server was held up).
    length_s = STALL_S if stall == "periodic" else ONCE_TO_S - ONCE_FROM_S
    assert sure(result.latency.percentile(0.9)) > 0.35e9 * length_s
    if most == 4:
        assert result.waited > 0
        assert sure(result.send_lag.percentile(0.9)) > STALL_S / 10 * 1e9
        # What waited for a connection was not sent late by the client: the rest is, on a busy host.
        unqueued = result.send_lag.without_highest(result.waited)
        assert unqueued.count == result.send_lag.count - result.waited
        waits = added_share(result.send_lag, result.latency)
        assert waits is not None  # with the waits for a connection it would be a limit, and said so
        blamed = f"requests were sent late by {100 * waits:.0f} % of their latency"
        assert blamed not in result.verdict.reasons


@pytest.mark.parametrize("client", CLIENTS)
@cases("loop", "closed", "open")
@cases("slow", "delay", "accept")
def test_latency_is_the_servers_time(client: Client, loop: str, slow: str) -> None:
    count, ends = 40, Ends()
    pace: dict[str, Any] = {"rate": 100.0, "max_connections": 20} if loop == "open" else {}
    how: dict[str, Any] = {"delay_s": 0.02} if slow == "delay" else {"accept_delay_s": 0.1}
    with serving(**how) as server:
        result = run_here(numbered(server, client, count, connections=1, **pace), ends.note)
    truth, late = times_of(server, ends, pace.get("rate"))
    assert min(late) >= 0
    check_against(result.latency, truth, late, (0.5, 0.9, 1.0))
    slowest = result.latency.percentile(0.5 if slow == "delay" else 1.0)
    assert slowest is not None and slowest > (20e6 if slow == "delay" else 50e6)


@pytest.mark.parametrize("client", CLIENTS)
def test_connections_grow_with_the_need(client: Client) -> None:
    with serving(delay_s=0.1) as server:
        load = Load(Request(server.url), client=client, connections=1, max_connections=60, rate=1e2)
        result = drive_load(load, Timing(windows=1, window_s=0.5, **NOW))
    assert result.waited == 0 == result.total.unsent
    assert 9 <= server.connections <= 61
    opened = server.connections - 1  # which was to try it
    assert sum(worker.connections for worker in result.workers) == opened
    assert result.measured.failed == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_due_is_begun_by_a_client_that_slept(client: Client) -> None:
    with serving() as server:
        load = Load(Request(server.url), client=client, connections=8, rate=200.0)
        former = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3))
        signal.setitimer(signal.ITIMER_REAL, 0.3)  # until 0.6 s; the window ends at 0.46 s
        try:
            with timed_here(load, 1, 0.4, 60_000_000) as (counts, _, shared):
                # aiohttp's are sent by tasks that run after the window was closed: in either part.
                late = [shared.read(0, part, "send_lag").percentile(1.0) or 0 for part in PARTS]
        finally:
            signal.signal(signal.SIGALRM, former)
    assert counts.sent == counts.completed == 80  # 0.4 s at 200 a second
    assert max(late) > 0.1e9  # and their lateness is on record


def test_spinning_sends_on_time_and_says_so() -> None:
    with serving() as server:
        load = Load(Request(server.url), connections=4, rate=200.0, spin=True)
        result = drive_load(load, Timing(windows=1, window_s=0.3, **NOW))
    (worker,) = result.workers
    assert worker.timer == "spin"
    assert worker.non_idle is None or worker.non_idle > 0.5
    assert result.send_lag.count == result.measured.sent
