"""Loads of a fixed number of requests, one after the other: a round's time is what varies.

Rule: a round is timed from its first request to its last response. What comes around that (worker
processes, connections) is told to a clock, which leaves it out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from serve_bench.core.errors import RunFailed
from serve_bench.core.failed_requests import failures
from serve_bench.core.load_result import LoadResult, Warmup
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load import LoadError, drive_load

#: The warm-up is a load of its own, which needs a window; nothing of it is kept.
_AFTER_WARMUP_S: Final = 0.05

_WARMUP_MIN_S: Final = 0.5


class LoadClock:
    """A clock that advances as perf_counter does, but for what `leave_out` takes away."""

    def __init__(self) -> None:
        self._left_out_s = 0.0

    def load_time(self) -> float:
        """Seconds, from no fixed beginning. Two readings with a round between them differ by what
        the load took."""
        return time.perf_counter() - self._left_out_s

    def leave_out(self, seconds: float) -> None:
        """Takes these seconds, which have passed since the last reading, out of the time."""
        self._left_out_s += seconds


@dataclass
class CountedRounds:
    """Rounds of one load, which must have a count. `longest_s` cuts a round off that does not end.

    `results` holds every round that was whole, in order.
    """

    load: Load
    clock: LoadClock
    mark: Mapping[str, str] = field(default_factory=dict)
    longest_s: float = 120.0
    errors_allowed: bool = False
    results: list[LoadResult] = field(default_factory=list, init=False)
    warmup: Warmup | None = field(default=None, init=False)

    def warm_up(self, longest_s: float) -> None:
        """Loads until the rate is steady, at most so long. Raises RunFailed when it cannot."""
        timing = Timing(
            warmup_min_s=min(_WARMUP_MIN_S, longest_s),
            warmup_max_s=longest_s,
            windows=1,
            window_s=_AFTER_WARMUP_S,
        )
        self.warmup = self._drive(replace(self.load, count=None), timing).warmup

    def round(self) -> LoadResult:
        """One round. Raises RunFailed when it was not whole or requests of it failed."""
        began = time.perf_counter()
        result = self._drive(self.load, Timing(0.0, 0.0, windows=1, window_s=self.longest_s))
        self._check(result)
        self.results.append(result)
        self.clock.leave_out(time.perf_counter() - began - result.duration_s)
        return result

    def _drive(self, load: Load, timing: Timing) -> LoadResult:
        try:
            return drive_load(load, timing, mark=self.mark)
        except LoadError as error:
            raise RunFailed(f"the load could not be run: {error}") from None

    def _check(self, result: LoadResult) -> None:
        number, count = len(self.results) + 1, self.load.count or 0
        for lost in result.failures:
            raise RunFailed(f"round {number}: {lost.who} failed: {lost.reason}")
        failed = {name: n for name, n in result.measured.failed.items() if n}
        ended = result.ended_in_windows  # what came in the drain is in no figure of the round
        if ended < count:
            raise RunFailed(
                f"round {number} was cut off after {self.longest_s:g} s: {ended:,} of {count:,} "
                "requests had ended; ask for fewer, or give round_timeout_s"
            )
        if failed and not self.errors_allowed:
            raise RunFailed(
                f"round {number}: {sum(failed.values()):,} of {count:,} requests failed: "
                f"{failures(failed, result.status_codes)}"
            )
