"""Drives a load from the parent's side: workers, phases, progress, and the merged result.

Rule: the parent sends no request. It names two instants on the common clock (the first request,
the first window), looks at shared counters, and adds up what the workers report.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import add

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import REQUESTS_EACH, Counts, LoadResult, Phase, Progress, Warmup
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import SpecError
from serve_bench.load.connect import choose_address
from serve_bench.load.failures import BrokenAccount, LoadInterrupted
from serve_bench.load.merge import losses, merge
from serve_bench.load.request_log import RequestLog
from serve_bench.load.share import enough_processes, shares, usable_cores
from serve_bench.load.shared import ABORT, COMPLETED, FAILED, LEFT, MEASURE, SENT, START, Shared
from serve_bench.load.tally import PUBLISH_AHEAD_NS
from serve_bench.load.workers import STUCK_S, Crew, await_ready, connecting_s, orders_for

# --------------------------------------------------------------------------------------------------
# When a warm-up may end. Pure: counts in, yes or no out.

SAMPLE_S = 0.05
"""The parent notes the count of completed requests so often during the warm-up."""

HALF_SAMPLES = 4
"""Fewest samples in each of the two halves that are compared."""

TOLERANCE = 0.05
"""Two halves whose rates differ by no more than this share of their mean are alike."""


def enough_to_judge(completed: int, connections: float) -> bool:
    """Whether so many completed requests tell how fast `connections` of them at once are served."""
    return completed >= REQUESTS_EACH * max(1.0, connections)


def is_steady(completed: Sequence[int]) -> bool:
    """Whether the rate has settled, from counts taken every SAMPLE_S seconds.

    The later half of the warm-up so far (at least 8 samples) is cut into two equal parts. The
    rate is steady when the parts' mean rates differ by no more than 5 %, or by no more than
    two standard errors of that difference, estimated from the scatter of the samples within the
    parts. So a noisy server is not warmed up for ever, while a rate that still climbs is
    caught: on a straight ramp the parts differ by more than twice their standard error.
    A load in which nothing completes is not steady.
    """
    rates = [after - before for before, after in pairwise(completed)]
    half = max(HALF_SAMPLES, len(rates) // 4)
    if len(rates) < 2 * half:
        return False
    first, second = rates[-2 * half : -half], rates[-half:]
    mean = (sum(first) + sum(second)) / (2 * half)
    if sum(second) == 0:
        return False
    error = math.sqrt((statistics.variance(first) + statistics.variance(second)) / half)
    difference = abs(sum(second) - sum(first)) / half
    return difference <= max(TOLERANCE * mean, 2 * error)


# --------------------------------------------------------------------------------------------------
# The live view of a load: what the parent reads from shared memory and tells its caller.

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


# --------------------------------------------------------------------------------------------------

START_AHEAD_NS = 5_000_000
"""The first request is named so long before it, so that every worker can be there."""

CALL_OFF_S = 1.0
"""How long an interrupted load waits for what its workers have measured. A drain ends at once."""

OnProgress = Callable[[Progress], None]


def drive_load(
    load: Load,
    timing: Timing,
    *,
    on_progress: OnProgress | None = None,
    mark: Mapping[str, str] | None = None,
    log: RequestLog | None = None,
    may_measure: Callable[[], bool] | None = None,
) -> LoadResult:
    """Run a load and return what it measured.

    `on_progress` is called about four times a second. `mark` is put into the environment of every
    worker. `log` takes in each request (client raw; SpecError for another), also when interrupted.
    A load of so many requests (`count`, `each`) has no warm-up; its window ends with the last
    response, or by time when that is over first: what was not done then was cut.
    `may_measure`: asked about 20 times a second once the warm-up is done (with a count: once all
    connections are open); while it says no, the warm-up goes on, beyond its maximum too. So loads
    on several hosts begin to measure together, whatever their clocks say.
    A KeyboardInterrupt that `on_progress` or `may_measure` raises counts as Ctrl-C. May be called
    in any thread.
    Raises LoadError when the target cannot be reached at all or no worker is left, and
    LoadInterrupted, with the result so far, on Ctrl-C while measuring. A worker that dies is
    in `LoadResult.failures`. Whatever is raised, all workers have ended before it leaves here.
    """
    if load.client in ("wrk", "ab"):
        raise SpecError(f"client {load.client} is an external program: use load.external")
    if log is not None and load.client != "raw":
        raise SpecError(f"a log of the requests needs the client raw, not {load.client}")
    if load.total is not None:
        timing = replace(timing, warmup_min_s=0.0, warmup_max_s=0.0)
    address = choose_address(load.request, load.connect_timeout_s)
    processes = enough_processes(load, usable_cores())
    shared = Shared.create(processes)
    try:
        sides = [{"load": load.to_json(), "address": [int(address.family), address.sockaddr]}]
        files = log.open(processes) if log is not None else [None] * processes
        orders = [
            orders_for(share, sides, timing, shared, log_fd=fd)
            for share, fd in zip(shares(load, processes), files, strict=True)
        ]
        with Crew(orders, mark or {}) as crew:
            return _Drive(load, timing, shared, crew, on_progress, log, may_measure).run()
    finally:
        shared.close()
        if log is not None:
            log.close()


class _Drive:
    """One load in progress."""

    def __init__(
        self,
        load: Load,
        timing: Timing,
        shared: Shared,
        crew: Crew,
        on_progress: OnProgress | None,
        log: RequestLog | None,
        may_measure: Callable[[], bool] | None = None,
    ) -> None:
        self.load = load
        self.timing = timing
        self.shared = shared
        self.crew = crew
        self.log = log
        self.may_measure = may_measure or (lambda: True)
        self.watch = Watch(shared, timing, on_progress)
        self.begun = perf()

    def run(self) -> LoadResult:
        """Connect, warm up, measure, drain, merge."""
        notes = await_ready(self.crew, [self.load], lambda: self.watch.look("connect"))
        connected_s = (perf() - self.begun) / 1e9
        if self.load.total is not None:
            self._wait_at_gate()
        start = perf() + START_AHEAD_NS
        if self.load.total is not None:
            self.shared.words[MEASURE] = start
            warmup, measure = Warmup(0.0, False, 0), start
        self.shared.words[START] = start
        if self.load.total is None:
            warmup, measure = self._warm_up(start)
        started_at_ns = time.time_ns() + (measure - perf())
        interrupt: KeyboardInterrupt | None = None
        try:
            self._measure(measure)
        except KeyboardInterrupt as pressed:
            if not self._called_off():
                raise
            interrupt = pressed
        result = replace(
            merge(self.load, self.timing, self.shared, self.crew.workers, warmup),
            started_at_ns=started_at_ns,
            time_to_connect_s=connected_s,
            connecting_s=connecting_s(self.crew),
        )
        result = replace(result, notes=notes + losses(result.failures))
        if self.log is not None:
            self._take_log(self.log, result.measured, measure)
        if interrupt is not None:
            raise LoadInterrupted(result) from interrupt
        return result

    def _take_log(self, log: RequestLog, measured: Counts, measure: int) -> None:
        """The log of all workers that reported. Raises BrokenAccount when it lacks a request."""
        done = [worker for worker in self.crew.workers if "done" in worker.said]
        log.take({worker.index: worker.said["done"]["logged"] for worker in done}, measure)
        if len(log) != measured.completed + measured.failed_total + measured.in_flight:
            raise BrokenAccount(f"{len(log)} requests in the log of {measured}")

    def _called_off(self) -> bool:
        """Ask the workers for what they have; whether all had begun to measure, and answered."""
        self.shared.words[ABORT] = 1
        deadline = perf() + int(CALL_OFF_S * 1e9)
        while any("done" not in w.said for w in self.crew.alive) and perf() < deadline:
            self.crew.listen(0.05)
        reports = [
            r for w in self.crew.workers if "done" in w.said for r in w.said["done"]["reports"]
        ]
        return bool(reports) and all("end" in report["snapshots"] for report in reports)

    def _wait_at_gate(self) -> None:
        """A load without a warm-up: its connections are open, and its start waits."""
        while self.crew.alive and not self.may_measure():
            self.crew.listen(SAMPLE_S)
            self.watch.look("warmup")

    def _warm_up(self, start: int) -> tuple[Warmup, int]:
        """Wait until the rate is steady and `may_measure` says yes; returns the warm-up and the
        first window's start."""
        counts, warm, steady, judged = [0], False, False, False
        sample = int(SAMPLE_S * 1e9)
        due = start
        earliest = start + int(self.timing.warmup_min_s * 1e9) - PUBLISH_AHEAD_NS
        latest = start + int(self.timing.warmup_max_s * 1e9) - PUBLISH_AHEAD_NS
        while True:
            due += sample
            while (left := due - perf()) > 0 and self.crew.alive:
                self.crew.listen(left / 1e9)
            now = perf()
            counts.append(self.shared.total(COMPLETED))
            self.watch.look("warmup")
            if not warm:
                judged = enough_to_judge(counts[-1], self._at_once())
                steady = judged and is_steady(counts)
                warm = now >= latest or (now >= earliest and steady)
            if not self.crew.alive or (warm and self.may_measure()):
                break
        measure = max(perf() + PUBLISH_AHEAD_NS, earliest + PUBLISH_AHEAD_NS)
        self.shared.words[MEASURE] = measure
        return Warmup((measure - start) / 1e9, steady, 0, judged), measure

    def _at_once(self) -> float:
        """Requests that are served at one time: of an open loop those in flight."""
        if not self.load.open_loop:
            return self.load.connections
        shared = self.shared
        return shared.total(SENT) - shared.total(COMPLETED) - shared.total(FAILED)

    def _measure(self, measure: int) -> None:
        """Wait for the workers' reports; kills one that is silent long after its end."""
        end = measure + int(self.timing.measured_s * 1e9)
        drained = end + int(self.timing.drain_at_most_s(self.load) * 1e9)
        self.watch.measure_from(measure, end, drained)
        deadline = drained + int(STUCK_S * 1e9)
        while pending := [w for w in self.crew.alive if "done" not in w.said]:
            self.crew.listen(0.25)
            self.watch.look("measure" if perf() < end else "drain")
            if perf() > deadline:
                for worker in pending:
                    worker.give_up()
                deadline += int(STUCK_S * 1e9)
