"""The live view of a load: what the parent reads from shared memory and tells its caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import add

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Phase, Progress
from serve_bench.core.load_spec import Timing
from serve_bench.load.shared import COMPLETED, FAILED, LEFT, Shared

INTERVAL_NS = 250_000_000
"""Four times a second. Reading the histograms costs the parent 0.6 ms with one worker."""

perf = time.perf_counter_ns


class Watch:
    """Calls `on_progress` when it is time to, and not at all when there is none."""

    def __init__(
        self, shared: Shared, timing: Timing, on_progress: Callable[[Progress], None] | None
    ) -> None:
        self._shared = shared
        self._timing = timing
        self._call = on_progress
        self._begun = self._last = perf()
        self._last_completed = 0
        self._end = 0
        self._drained = 0
        self._base = (0, 0)
        self._measure = 0

    def measure_from(self, measure: int, end: int, drained: int = 0) -> None:
        """The first window's start and the last one's end are known now, and the latest end of the
        drain."""
        self._measure = measure
        self._end = end
        self._drained = drained

    def look(self, phase: Phase) -> None:
        """Tell the caller how the load stands, if a quarter of a second has passed."""
        now = perf()
        if self._call is None or now - self._last < INTERVAL_NS:
            return
        completed, failed = self._shared.total(COMPLETED), self._shared.total(FAILED)
        rate = (completed - self._last_completed) / ((now - self._last) / 1e9)
        self._last, self._last_completed = now, completed
        if phase == "warmup" or now < self._measure:
            self._base = (completed, failed)
            phase = "warmup" if phase != "connect" else phase
        latency = self._latency("measured" if phase in ("measure", "drain") else "rest")
        p50, p99 = latency.percentiles((0.5, 0.99))
        base = self._base if phase in ("measure", "drain") else (0, 0)
        self._call(
            Progress(
                phase=phase,
                elapsed_s=(now - self._begun) / 1e9,
                remaining_s=self._remaining_s(now, phase),
                left=self._shared.total(LEFT) if phase == "drain" else 0,
                rate=rate,
                completed=completed - base[0],
                failed=failed - base[1],
                p50_ns=p50,
                p99_ns=p99,
            )
        )

    def _remaining_s(self, now: int, phase: Phase) -> float:
        if self._end:
            until = self._drained if phase == "drain" else self._end
            return max(0.0, (until - now) / 1e9)
        warmup_left = max(0.0, self._timing.warmup_min_s - (now - self._begun) / 1e9)
        return warmup_left + self._timing.measured_s

    def _latency(self, part: str) -> Histogram:
        counts: list[int] | None = None
        for board in range(self._shared.boards):
            for kind in ("equal", "latency"):
                words = self._shared.histogram(board, part, kind)
                if kind == "latency" and not words[0]:
                    continue  # nothing recorded: its maximum is written with the first value
                slots = words[1:].tolist()
                counts = slots if counts is None else list(map(add, counts, slots))
        return Histogram(counts)
