"""Further loads: before a row to let the service settle, after it to see what requests wait in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import structs

from serve_bench.analysis.statistics import answered, latency_figures, read_rate
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import ReplicaWaits, SettledFacts, WaitsFacts
from serve_bench.core.histogram import bounded
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import settled_of
from serve_bench.core.result import Trial
from serve_bench.core.schema import built
from serve_bench.load.driver import Drive, drive_load
from serve_bench.load.failures import LoadError
from serve_bench.observing.inside import count_for_nobody
from serve_bench.serving.server import LaunchFailed, Serving

# Before rows of a fixed number of requests, which have no warm-up: one client, until it is served
# steadily.
#
# Rule: nothing here enters a figure. A row that was cut off leaves requests behind that the service
# still answers. The next row waits until one client is served about as fast as at first; if that
# takes too long, its trial is flagged.

#: One client until its rate is steady, and how long at most.
SETTLING: Final = Timing(warmup_min_s=1.0, warmup_max_s=10.0, windows=1, window_s=0.5)

#: One client is served about as fast as at first when its median latency is at most this multiple
#: of the first one: on a busy host two looks at the same service differ by a half.
AS_AT_FIRST: Final = 2.0

#: How long a service may take to come back.
RECOVERY_S: Final = 60.0


@dataclass
class Settling:
    """Loads a service with one client until it is served steadily."""

    load: Load  # has one connection
    mark: Mapping[str, str]
    on_progress: Callable[[Progress], None] | None = None
    usual_ns: float | None = field(default=None, init=False)  # median of the first look

    def first(self) -> SettledFacts:
        """Return the state before the first row, for the record; `error` if nothing answered."""
        state = self._look()
        self.usual_ns = state.p50_ns
        return state

    def recovered(self) -> bool:
        """Wait until the service is as fast as at first; False if not within RECOVERY_S."""
        deadline = time.monotonic() + RECOVERY_S
        while not self._as_at_first(self._look()):
            if time.monotonic() > deadline:
                return False
        return True

    def _look(self) -> SettledFacts:
        try:
            result = self._drive(self.load, SETTLING)
            state = settled_of(result)
            if state.p50_ns is None and result.warmup.completed and not result.measured.sent:
                # A request takes longer than the window, so none began in it: measure one alone.
                timing = Timing(0.0, 0.0, windows=1, window_s=self.load.timeout_s)
                solo = self._drive(replace(self.load, count=1), timing)
                state = structs.replace(state, p50_ns=solo.latency.percentile(0.5))
        except LoadError as error:  # the row that follows fails in its own words
            time.sleep(1.0)
            return SettledFacts(error=str(error))
        return state

    def _drive(self, load: Load, timing: Timing) -> LoadResult:
        return drive_load(load, timing, on_progress=self.on_progress, mark=self.mark)

    def _as_at_first(self, state: SettledFacts) -> bool:
        if state.p50_ns is None or not state.settled:
            return False
        return self.usual_ns is None or state.p50_ns <= AS_AT_FIRST * self.usual_ns


# A further load after a row that no full CPU or queue explains, observed inside the replicas.
#
# The result is `waits` in the record of the trial. It enters no figure: the trial is over before.
# First one request after another measures what a request takes alone. Then the load of the row runs
# once more for a moment, while threads in the replicas record what requests wait in
# (serving/cluster/look.py). Rule: a failure has no consequence but its reason in the record.
# analysis/verdict decides when the load is worth its time.

ALONE_REQUESTS: Final = 8
ALONE_MOST_S: Final = 2.0
"""The median of these requests, one by one, or of as many as end in this time."""

SILENT_MOST_S: Final = 2.0
"""The time-out of requests to a service that answers none any more."""

LEAST_S: Final = 0.8
MOST_S: Final = 5.0
"""Bounds of the length of the second load: three latencies of the row."""


def look(
    serving: Serving,
    trial: Trial,
    load: Load,
    drive: Drive,
    mark: Mapping[str, str],
    quick: bool = False,
) -> WaitsFacts:
    """Observe what requests of this row wait in; `why_not` says why that failed.

    `quick`: the second load lasts no longer than it must, and awaits answers for half of that.
    """
    most_s, drain_s = (LEAST_S, LEAST_S / 2) if quick else (MOST_S, None)
    p50_ns = latency_figures([trial], (0.5,))[0] or 0.0
    seconds = min(most_s, max(LEAST_S, 3 * p50_ns / 1e9))
    solo = load.one_by_one(ALONE_REQUESTS)
    most = replace(load, count=None, each=None)
    alone = None
    try:
        if read_rate(trial).silent_from is None and answered(trial):
            timing = Timing(0.0, 0.0, windows=1, window_s=ALONE_MOST_S, drain_s=drain_s)
            alone = drive(solo, timing, mark=mark)
        else:  # nobody waits long for answers that do not come
            timeout_s = min(SILENT_MOST_S, load.timeout_s)
            most = replace(solo, count=None, connections=load.connections, timeout_s=timeout_s)
        serving.begin_look()
        try:
            result = drive(most, Timing(0.3, 0.3, 1, seconds, drain_s), mark=mark)
        except BaseException:  # Ctrl-C too: replicas would go on looking
            with suppress(LaunchFailed):  # the cluster is gone, and the look with it
                serving.end_look(0, 0)
            raise
        until_ns = result.started_at_ns + int(result.duration_s * 1e9)
        seen = serving.end_look(result.started_at_ns, until_ns)
        for_nobody = count_for_nobody(seen, result) if most.timeout_s == load.timeout_s else None
        replicas = built(tuple[ReplicaWaits, ...], _rounded(seen), "look")
    except (LoadError, LaunchFailed, FormatError) as error:
        return WaitsFacts(why_not=str(error))
    return WaitsFacts(
        seconds=round(result.duration_s, 3),
        rate=result.rate,
        p50_ms=_p50_ms(result),
        alone_p50_ms=None if alone is None else _p50_ms(alone),
        for_nobody=for_nobody,
        replicas=replicas,
    )


def _p50_ms(result: LoadResult) -> float | None:
    """Return the median, ms; None where it is a lower bound: two bounds give no ratio."""
    ((value, at_least),) = bounded(result.latency, result.censored, (0.5,))
    return None if value is None or at_least else round(value / 1e6, 3)


def _rounded(content: Any) -> Any:
    """Round numbers to three decimals: they are means over about twenty looks."""
    if isinstance(content, float):
        return round(content, 3)
    if isinstance(content, Mapping):
        return {name: _rounded(value) for name, value in content.items()}
    return [_rounded(part) for part in content] if isinstance(content, list) else content
