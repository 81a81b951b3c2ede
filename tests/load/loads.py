"""A load with a count, run by an engine in this process: quick, since no worker is started.

What it leaves out (workers, driver, warm-up) has tests of its own in test_drive.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from serve_bench.core.load_result import LoadResult, Warmup
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load.connection import choose_address
from serve_bench.load.merge import judged, result_of
from serve_bench.load.pacing import Engine
from serve_bench.load.tally import MEASURE, Shared, Tally
from serve_bench.load.worker import make_engine
from serve_bench.load.workers import shares

TIMING = Timing(windows=1, window_s=3600.0)

#: Of loads that are timed, one after the other; the rest of tests/load has both in `make test` too.
CLIENTS: Final = ("raw", pytest.param("aiohttp", marks=pytest.mark.long))


class Ends:
    """Notes (due, now) of each success of an engine, as the engine tells its tally (ns)."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def note(self, engine: Any) -> None:
        """Given to `run_here` as its `change`."""
        tell = engine.tally.success

        def success(due: int, sent: int, now: int, status: int) -> None:
            self.seen.append((due, now))
            tell(due, sent, now, status)

        engine.tally.success = success


def run_here(load: Load, change: Callable[[Any], None] = lambda engine: None) -> LoadResult:
    """Run the load's own engine until its count is reached. `change` may alter the engine first."""
    assert load.total is not None
    with engine_here(load, 1, TIMING.window_s) as (engine, shared):
        change(engine)
        assert engine.connect() == load.connections or not load.keepalive
        start = time.perf_counter_ns()
        shared.words[MEASURE] = start
        engine.run(start, int(2e9))
        report, histograms = engine.tally.report(), shared.measured(0)
    return judged(result_of(load, TIMING, Warmup(0.0, False, 0), report, histograms))


@contextmanager
def engine_here(load: Load, windows: int, window_s: float) -> Iterator[tuple[Engine, Shared]]:
    """The load's own engine with its tally, in this process."""
    (share,) = shares(load, 1)
    shared = Shared.create(1)
    engine = make_engine(load, choose_address(load.request, load.connect_timeout_s), share)
    window_ns = int(window_s * 1e9)
    engine.tally = Tally(
        shared, 0, windows, window_ns, share.count, engine.open_requests, engine.open_streams
    )
    try:
        yield engine, shared
    finally:
        engine.close()
        shared.close()
