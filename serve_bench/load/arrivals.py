"""The due times of one worker's open loop on the clock: the warm-up's, then the measured ones.

Rule: the pace is `pacing`'s; here it is only placed on the clock. The schedule starts anew at the
first window's start, so stages are stages of the measured part; the warm-up runs at the
first stage's rate. No due time is skipped, however late it is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator

from serve_bench.core.load_spec import Load, Stage
from serve_bench.load.pacing import due_times
from serve_bench.load.tally import NEVER


class ArrivalClock:
    """`due` is the next due time (perf_counter_ns), NEVER after the last one."""

    def __init__(self, load: Load, start: int, worker: int, workers: int, measure: int = 0) -> None:
        self._load = load
        self._worker = worker
        self._workers = workers
        self._measure = measure
        self._base = start
        first = Stage(load.schedule[0].rate, 1e9)
        self._times = self._schedule((first,), load.seed)
        self._warm = True
        self.due = start + next(self._times)
        self._settle()

    def _schedule(self, stages: tuple[Stage, ...], seed: int) -> Iterator[int]:
        load = self._load
        return due_times(stages, load.arrivals, load.ramp, seed, self._worker, self._workers)

    def measure_from(self, measure: int) -> None:
        """The first window starts at `measure`; from then on the schedule says what is due."""
        if not self._measure:
            self._measure = measure
            self._settle()

    def step(self) -> None:
        """Go on to the next due time."""
        self.due = self._base + offset if (offset := next(self._times, None)) is not None else NEVER
        if self._warm:
            self._settle()

    def _settle(self) -> None:
        if self._measure and self.due >= self._measure:
            self._warm = False
            self._base = self._measure
            # Another seed than the warm-up's: the same draws twice would be an odd coincidence.
            self._times = self._schedule(self._load.schedule, self._load.seed + 1)
            self.due = self._base + next(self._times)
