"""A load with a count, run by an engine here: quick. test_drive.py has workers and warm-up."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, pairwise
from typing import Any, Final

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load.connection import choose_address
from serve_bench.load.merge import add_times, close_account, judged
from serve_bench.load.pacing import Assignment, Engine
from serve_bench.load.request_log import RequestLog
from serve_bench.load.tally import MEASURE, Shared, Tally
from serve_bench.load.worker import make_engine
from serve_bench.load.workers import shares
from tests.servers import FAILURES, KnownServer, Script

TIMING = Timing(windows=1, window_s=3600.0)

#: Of loads that are timed, one after the other; the rest of tests/load has both in `make test` too.
CLIENTS: Final = ("raw", pytest.param("aiohttp", marks=pytest.mark.long))


class Ends:
    """Notes (due, now) of each success of an engine, as the engine tells its tally (ns)."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def note(self, engine: Any) -> None:
        tell = engine.tally.success

        def success(due: int, sent: int, now: int, status: int) -> None:
            self.seen.append((due, now))
            tell(due, sent, now, status)

        engine.tally.success = success


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(at)]


def mixed(nth: int) -> Script:
    """Every so many requests one misbehaves, each time in another way."""
    kinds = cycle(sorted(FAILURES))
    return lambda number: next(kinds) if number % nth == nth - 1 else "ok"


def injected_failures(server: KnownServer) -> Counter[str]:
    """How often a server misbehaved, by the class of failure that this is."""
    expected: Counter[str] = Counter()
    for action, count in server.actions.items():
        if action != "ok":
            expected[FAILURES[action]] += count
    return expected


def run_here(load: Load, change: Callable[[Any], None] = lambda engine: None) -> LoadResult:
    """Run the load's own engine until its count is reached. `change` may alter the engine first."""
    assert load.total is not None
    with engine_here(load, 1, TIMING.window_s) as (engine, shared):
        change(engine)
        assert engine.connect() == load.connections or not load.keepalive
        start = time.perf_counter_ns()
        shared.words[MEASURE] = start
        engine.run(start, int(2e9))
        result = close_account(load, engine.tally, TIMING.window_s)
        return judged(add_times(load, result, shared, 0))


def check_log(log: RequestLog, result: LoadResult) -> None:
    """Compare the rows with the account of the measured part, to the nanosecond."""
    rows, measured = list(log.rows()), result.measured
    classes = Counter(row.error for row in rows)
    assert classes.pop(None, 0) == measured.completed
    assert classes.pop("cut", 0) == measured.in_flight
    assert classes.pop("unsent", 0) == measured.unsent
    assert classes == measured.failed
    assert len(rows) == measured.carried_in + measured.sent + measured.unsent
    sent = [row.sent_ns for row in rows if row.error is None]
    assert None not in sent, "what was answered was sent"
    assert all((row.sent_ns or 0) >= row.start_ns for row in rows if row.sent_ns is not None)
    codes = {code: n for code, n in result.status_codes.items() if code}  # 0: a call that succeeded
    assert Counter(row.status for row in rows if row.status) == codes
    completed, failed, first = Histogram(), Histogram(), Histogram()
    for row in rows:
        if row.latency_ns is not None:
            (failed if row.error else completed).record(row.latency_ns)
        if row.stream is not None and row.stream.first_ns is not None:
            first.record(row.stream.first_ns)
    assert completed == result.latency and failed == result.failed_latency
    assert first == result.ttft
    assert sum(row.stream.gaps for row in rows if row.stream is not None) == result.itl.count
    ends = [row.start_ns + row.latency_ns for row in rows if row.latency_ns is not None]
    assert ends == sorted(ends) and all(row.start_ns >= 0 for row in rows)
    within = result.in_windows  # what was due there and had to wait may be sent in the drain
    assert sum(end > result.duration_s * 1e9 for end in ends) <= within.in_flight + within.unsent


@contextmanager
def timed_here(
    load: Load, windows: int, window_s: float, after_ns: int
) -> Iterator[tuple[Counts, Tally, Shared]]:
    """Drive an engine here that measures `after_ns` after it began; return its requests' ends."""
    with engine_here(load, windows, window_s) as (engine, shared):
        engine.connect()
        start = time.perf_counter_ns()
        shared.words[MEASURE] = start + after_ns
        engine.run(start, 500_000_000)
        yield engine.tally.close(), engine.tally, shared


@contextmanager
def engine_here(load: Load, windows: int, window_s: float) -> Iterator[tuple[Engine, Shared]]:
    (share,) = shares(load, 1)
    shared = Shared.create(1)
    engine = make_engine(Assignment(load, choose_address(load), share))
    window_ns = int(window_s * 1e9)
    engine.tally = Tally(
        shared, 0, windows, window_ns, share.count, engine.open_requests, engine.open_streams
    )
    try:
        yield engine, shared
    finally:
        engine.close()
        shared.close()
