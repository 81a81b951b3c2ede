"""Before rows of so many requests, which have no warm-up: one client, until it is served steadily.

Rule: nothing here enters a figure. A row that was cut off leaves requests behind that the service
still answers; the next row waits until one client is served about as fast as at first, and says so
when that did not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.result import JsonObject
from serve_bench.core.trial import settled_of
from serve_bench.load import LoadError, drive_load

#: One client until its rate is steady, and how long at most.
SETTLING: Final = Timing(warmup_min_s=1.0, warmup_max_s=10.0, windows=1, window_s=0.5)

#: One client is served about as fast as at first when its median latency is at most so many times
#: that one: on a busy host two looks at the same service differ by a half.
AS_AT_FIRST: Final = 2.0

#: How long a service may take to come back.
RECOVERY_S: Final = 60.0


@dataclass
class Settling:
    """Looks at a service with one client. `load` has one connection; `usual_ns` is its median
    latency at first, once that is known."""

    load: Load
    mark: Mapping[str, str]
    on_progress: Callable[[Progress], None] | None = None
    usual_ns: float | None = field(default=None, init=False)

    def first(self) -> JsonObject:
        """What was found before the first row, for the records; `error` where nothing answered."""
        found = self._look()
        p50_ns = found.get("p50_ns")
        self.usual_ns = None if p50_ns is None else float(p50_ns)
        return found

    def recovered(self) -> bool:
        """Waits until the service is as at first; False when it is not after RECOVERY_S."""
        deadline = time.monotonic() + RECOVERY_S
        while not self._as_at_first(self._look()):
            if time.monotonic() > deadline:
                return False
        return True

    def _look(self) -> JsonObject:
        try:
            result = self._drive(self.load, SETTLING)
            found = settled_of(result)
            if found["p50_ns"] is None and result.warmup.completed and not result.measured.sent:
                # It takes longer than the window, so that none was begun in it: one tells how long.
                timing = Timing(0.0, 0.0, windows=1, window_s=self.load.timeout_s)
                one = self._drive(replace(self.load, count=1), timing)
                found["p50_ns"] = one.latency.percentile(0.5)
        except LoadError as error:  # the row that follows fails in its own words
            time.sleep(1.0)
            return {"error": str(error)}
        return found

    def _drive(self, load: Load, timing: Timing) -> LoadResult:
        return drive_load(load, timing, on_progress=self.on_progress, mark=self.mark)

    def _as_at_first(self, found: JsonObject) -> bool:
        p50_ns = found.get("p50_ns")
        if p50_ns is None or not is_settled(found):
            return False
        return self.usual_ns is None or float(p50_ns) <= AS_AT_FIRST * self.usual_ns


def is_settled(found: JsonObject) -> bool:
    """Whether one client was served steadily, or was served and too slowly for that to be told."""
    if found.get("judged") is False:
        return found.get("p50_ns") is not None
    return bool(found.get("steady"))
