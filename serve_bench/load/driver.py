"""Drives a load from the parent's side: workers, phases, progress, and the merged result.

Rule: the parent sends no request. It sets two instants on the common clock (the first request, the
first window), reads shared counters, and adds up the reports of the workers.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

from msgspec import structs

from serve_bench.core.facts import SliceMethod, SlicesFacts
from serve_bench.core.figures import counted
from serve_bench.core.live_percentiles import percentiles_in_use
from serve_bench.core.load_result import REQUESTS_EACH, LoadResult, Phase, Progress, Slice, Warmup
from serve_bench.core.load_spec import (
    FEWEST_WINDOWS,
    LONGEST_RESPONSE_S,
    QUICK_WARMUP_S,
    Load,
    Slices,
    Timing,
)
from serve_bench.core.request_spec import SpecError
from serve_bench.load.connection import choose_address
from serve_bench.load.failures import BrokenAccount, LoadInterrupted, TargetEnded
from serve_bench.load.merge import add_times, combine, judged, losses, merge
from serve_bench.load.messages import Done, Orders
from serve_bench.load.request_log import RequestLog
from serve_bench.load.tally import (
    ABORT,
    COMPLETED,
    FAILED,
    LEFT,
    MEASURE,
    PARTS,
    PUBLISH_AHEAD_NS,
    SENT,
    START,
    WINDOW_NS,
    WINDOWS,
    Shared,
)
from serve_bench.load.traces import TraceLog
from serve_bench.load.workers import Crew, enough_processes, shares, usable_cores, yield_to_workers

OnProgress = Callable[[Progress], None]

Drive = Callable[..., LoadResult]
"""What runs one load as `drive_load` does, perhaps with observers during it."""

perf = time.perf_counter_ns

# When a warm-up may end. Pure: counts in, yes or no out.

SAMPLE_S = 0.05
"""Interval at which the parent samples the completed requests during the warm-up; down to half of
it where the warm-up may end before there are ten."""

HALF_SAMPLES = 4
"""Fewest samples in each of the two halves that are compared."""

TOLERANCE = 0.05
"""Two halves are alike if their rates differ by no more than this share of their mean."""


def is_steady(completed: Sequence[int]) -> bool:
    """Whether the rate has settled, from counts taken at one interval.

    The later half so far (at least 8 samples) is cut into two equal parts. The rate is steady when
    their mean rates differ by at most 5 %, or by at most two standard errors of that difference,
    from the scatter within the parts: so the warm-up of a noisy server ends, and a rate that climbs
    is detected. A load in which nothing completes is not steady.
    """
    rates = [after - before for before, after in pairwise(completed)]
    half = max(HALF_SAMPLES, len(rates) // 4)
    if len(rates) < 2 * half:
        return False
    first, second = rates[-2 * half : -half], rates[-half:]
    if sum(second) == 0:
        return False
    mean = (sum(first) + sum(second)) / (2 * half)
    error = math.sqrt((statistics.variance(first) + statistics.variance(second)) / half)
    difference = abs(sum(second) - sum(first)) / half
    return difference <= max(TOLERANCE * mean, 2 * error)


SETTLING_RESPONSES = 2
"""A slow service is warmed up for as many responses: those in flight are then of all ages, as they
stay, and not all as old as the load."""


def response_s(
    ended: Sequence[int], connections: int | None, sample_s: float = SAMPLE_S
) -> float | None:
    """Estimate how long a response takes (s); None while no request has ended.

    `ended`: counts of ended requests, taken every `sample_s`. By Little's law a response takes
    connections / rate, the rate to the latest end: of requests that queue, the first answers come
    long before the others. `connections` None: of an open loop, whose requests in flight may grow;
    then it is the time of the first answer.
    """
    ends = [part for part, (before, now) in enumerate(pairwise(ended), 1) if now > before]
    if not ends:
        return None
    if connections is None:
        return sample_s * ends[0]
    return sample_s * ends[-1] * connections / ended[-1]


def settling_s(timing: Timing, response_s: float | None, steady: bool = False) -> float:
    """Return how long the warm-up must last (s) for responses that take `response_s`.

    None: until they are known to be too slow for the windows, at least LONGEST_RESPONSE_S if a
    drain awaits all. If not (--quick): at most its maximum, or QUICK_WARMUP_S at a steady rate."""
    if timing.stretched_s is None or not timing.warmup_max_s:
        return 0.0
    quick, fits_s = timing.drain_s is not None, timing.stretched_s / timing.responses
    longest_s = fits_s if quick else max(LONGEST_RESPONSE_S, fits_s / FEWEST_WINDOWS)
    if response_s is None:
        return longest_s
    settled_s = SETTLING_RESPONSES * min(response_s, longest_s)
    return min(settled_s, QUICK_WARMUP_S if steady else timing.warmup_max_s) if quick else settled_s


def stretch_note(planned: Timing, fitted: Timing, response_s: float) -> str:
    """Say what was stretched, and what it costs; empty where nothing was."""
    if fitted == planned:
        return ""
    windows = f"{counted(fitted.windows, 'window')} of {fitted.window_s:g} s in place of"
    whole = f"{fitted.measured_s:g} s in place of {planned.measured_s:g} s"
    took = f"a response took {response_s:.2g} s in the warm-up: {windows}"
    return f"{took} {planned.windows} of {planned.window_s:g} s, {whole}"


INTERVAL_NS = 250_000_000
LATENCY_NS = 1_000_000_000  # more often than once a second, it delays requests of the same core


@dataclass
class Watch:
    """Calls `on_progress`, if there is one, four times a second."""

    shared: Shared
    warmup_s: float  # the shortest
    measured_s: float
    on_progress: OnProgress | None
    measure_ns: int = 0  # start of the first window (perf_counter_ns), 0 until known
    end_ns: int = 0  # end of the last window, 0 until known
    drained_ns: int = 0  # latest end of the drain, 0 until known
    _begun: int = field(default_factory=perf)
    _last: int = field(default_factory=perf)
    _last_completed: int = 0
    _base: tuple[int, int] = (0, 0)
    #: The percentiles, of which part of the requests, and when they were looked up.
    _latency: tuple[tuple[int | None, int | None], str, int] = ((None, None), "", 0)
    #: Responses of any kind so far, and when the last was counted.
    _heard: tuple[int, int] = field(default_factory=lambda: (0, perf()))

    def look(self, phase: Phase) -> None:
        """Report the state of the load if a quarter of a second has passed."""
        now = perf()
        if self.on_progress is None or now - self._last < INTERVAL_NS:
            return
        completed, failed = self.shared.total(COMPLETED), self.shared.total(FAILED)
        rate = (completed - self._last_completed) / ((now - self._last) / 1e9)
        self._last, self._last_completed = now, completed
        heard = completed + failed
        if heard != self._heard[0] or self.shared.total(SENT) <= heard:
            self._heard = heard, now
        if phase == "warmup" or now < self.measure_ns:
            self._base = (completed, failed)
            phase = "warmup" if phase != "connect" else phase
        measuring = phase in ("measure", "drain")
        (p50, p99), part, read_ns = self._latency
        if part != PARTS[measuring] or p50 is None or now - read_ns >= LATENCY_NS:
            part, boards, kinds = PARTS[measuring], self.shared.boards, ("equal", "latency")
            words = [self.shared.histogram(board, part, kind) for board in boards for kind in kinds]
            p50, p99 = percentiles_in_use(words, (0.5, 0.99))
            self._latency = (p50, p99), part, now
        base = self._base if measuring else (0, 0)
        left_s = ((self.drained_ns if phase == "drain" else self.end_ns) - now) / 1e9
        if not self.end_ns:
            left_s = max(0.0, self.warmup_s - (now - self._begun) / 1e9) + self.measured_s
        self.on_progress(
            Progress(
                phase=phase,
                elapsed_s=(now - self._begun) / 1e9,
                remaining_s=max(0.0, left_s),
                left=self.shared.total(LEFT) if phase == "drain" else 0,
                rate=rate,
                completed=completed - base[0],
                failed=failed - base[1],
                p50_ns=p50,
                p99_ns=p99,
                silent_s=(now - self._heard[1]) / 1e9,
            )
        )


ALIVE_EVERY_S = 1.0
"""How often it is looked whether the target lives: if not, requests wait for their time-out."""


def give_up_without(
    targets: Sequence[tuple[Load, Callable[[], object]]], on_progress: OnProgress
) -> OnProgress:
    """Wrap `on_progress` to raise TargetEnded once a target's function returns true."""
    due_s = time.monotonic() + ALIVE_EVERY_S

    def progress(now: Progress) -> None:
        nonlocal due_s
        on_progress(now)
        if time.monotonic() < due_s:
            return
        due_s = time.monotonic() + ALIVE_EVERY_S
        for load, ended in targets:
            if ended():
                raise TargetEnded(load.request.host, load.request.port)

    return progress


START_AHEAD_NS = 5_000_000
"""The parent sets the start this long ahead, so that every worker is ready for it."""

CALL_OFF_S = 3.0
"""How long an interrupted load waits for the reports of its workers. It has no drain."""


def drive_load(
    load: Load,
    timing: Timing,
    *,
    on_progress: OnProgress | None = None,
    mark: Mapping[str, str] | None = None,
    log: RequestLog | None = None,
    traces: TraceLog | None = None,
    may_measure: Callable[[], bool] | None = None,
    on_measure: Callable[[int], None] | None = None,
    keeps: bool = False,
) -> LoadResult:
    """Run a load and return what it measured.

    `on_progress` is called about four times a second. `mark` goes into the environment of every
    worker. `log` gets each request, also when interrupted.
    A load with a number of requests (`count`, `each`) has no warm-up. Its window ends with the last
    response, or at its full time: then the rest of the requests is cut.
    `may_measure` is called about 20 times a second once the warm-up is done (with a count: once all
    connections are open). While it returns False the warm-up goes on, beyond its maximum too. So
    loads on several hosts begin to measure together without a common clock.
    `on_measure` is called once with the start of the first window (perf_counter_ns), a moment
    before it.
    A KeyboardInterrupt from `on_progress` or `may_measure` counts as Ctrl-C. May be called in any
    thread.
    Raises LoadError when the target cannot be reached or no worker is left, and LoadInterrupted,
    with the result so far, on Ctrl-C while measuring. A worker that dies is in
    `LoadResult.failures`. All workers have ended before it returns or raises, but for those that
    it `keeps` (workers.py) of a load that ended well.
    """
    if load.total is not None:
        timing = replace(timing, warmup_min_s=0.0, warmup_max_s=0.0)
    processes = enough_processes(load, usable_cores())
    shared = Shared.create(processes)
    result: LoadResult | None = None
    try:
        logs = log.open(processes, load.streaming is not None) if log is not None else ()
        traced = traces.open(processes) if traces is not None else ()
        side = load, choose_address(load)
        orders = [
            Orders((side,), timing, share, shared.fd, log=log_order, traces=trace_order)
            for share, log_order, trace_order in zip_longest(shares(load, processes), logs, traced)
        ]
        with Crew(orders, mark, keeps) as crew:
            watch = Watch(shared, timing.warmup_min_s, timing.measured_s, on_progress)
            may_measure = may_measure or (lambda: True)
            drive = _Drive(load, timing, shared, crew, watch, log, traces, may_measure, on_measure)
            yield_to_workers(True)
            result = drive.run()
        return result
    except KeyboardInterrupt as pressed:
        if result is None:
            raise
        crew.stop()  # Ctrl-C came while the workers were ended: a driver of Ray takes its time
        raise LoadInterrupted(result) from pressed
    finally:
        yield_to_workers(False)
        shared.close()
        for kept in (log, traces):
            if kept is not None:
                kept.close()


@dataclass
class _Drive:
    """One load in progress."""

    load: Load
    timing: Timing
    shared: Shared
    crew: Crew
    watch: Watch
    log: RequestLog | None
    traces: TraceLog | None
    may_measure: Callable[[], bool]
    on_measure: Callable[[int], None] | None
    begun: int = field(default_factory=perf)
    stretched: str = ""

    def run(self) -> LoadResult:
        """Connect, warm up, measure, drain, merge."""
        notes = self.crew.connect(lambda: self.watch.look("connect"))
        connected_s = (perf() - self.begun) / 1e9
        if self.load.total is None:
            self.shared.words[START] = start = perf() + START_AHEAD_NS
            warmup, measure = self._warm_up(start)
        else:  # no warm-up: the connections wait for the start
            while self.crew.alive and not self.may_measure():
                self.crew.listen(SAMPLE_S)
                self.watch.look("warmup")
            warmup, measure = Warmup(0.0, False, 0), perf() + START_AHEAD_NS
            self.shared.words[MEASURE] = self.shared.words[START] = measure
        if self.on_measure is not None:
            self.on_measure(measure)
        started_at_ns = time.time_ns() + (measure - perf())
        interrupt: KeyboardInterrupt | None = None
        try:
            self._measure(measure)
        except KeyboardInterrupt as pressed:
            if not self._called_off():
                raise
            interrupt = pressed
        reports = self._reports()
        lost = (worker for worker in self.crew.workers if worker.index not in reports)
        load, shared = self.load, self.shared
        failures = tuple(worker.failure(shared.live(worker.index)[COMPLETED]) for worker in lost)
        if not reports:
            raise self.crew.all_lost(failures)
        results = [
            add_times(load, done.results[0], shared, board) for board, done in reports.items()
        ]
        result = structs.replace(
            merge(load, self.timing, warmup, results, bool(shared.words[ABORT])),
            failures=failures,
            notes=notes + losses(failures),
            stretched=self.stretched,
            started_at_ns=started_at_ns,
            time_to_connect_s=connected_s,
            connecting_s=self.crew.connecting_s,
        )
        if self.traces is not None:
            self.traces.take({index: done.traced for index, done in reports.items()})
        if self.log is not None:
            self.log.take({index: done.logged for index, done in reports.items()}, measure)
            counts = result.measured
            ended = counts.completed + counts.failed_total
            if len(self.log) != ended + counts.in_flight + counts.unsent:
                raise BrokenAccount(f"{len(self.log)} requests in the log of {counts}")
        if interrupt is not None:
            raise LoadInterrupted(result) from interrupt
        return result

    def _reports(self) -> dict[int, Done]:
        done = ((worker.index, worker.said.done) for worker in self.crew.workers)
        return {index: report for index, report in done if report is not None}

    def _called_off(self) -> bool:
        """Request the reports so far; return whether workers had begun to measure, and reported."""
        self.shared.words[ABORT] = 1
        deadline = perf() + int(CALL_OFF_S * 1e9)
        while any(worker.said.done is None for worker in self.crew.alive) and perf() < deadline:
            self.crew.listen(0.05)
        reports = self._reports().values()
        return bool(reports) and all(done.results for done in reports)

    def _warm_up(self, start: int) -> tuple[Warmup, int]:
        """Wait for a steady rate and `may_measure`; return the warm-up, and when windows start."""
        counts, ended, warm, steady, enough = [0], [0], False, False, False
        connections = None if self.load.open_loop else self.load.connections
        # A row whose drain is bounded is short: its warm-up lasts no longer than it must.
        enough_each = REQUESTS_EACH if self.timing.drain_s is None else SETTLING_RESPONSES
        sample_s = max(SAMPLE_S / 2, min(SAMPLE_S, self.timing.warmup_min_s / 10))
        sample, due = int(sample_s * 1e9), start
        earliest = start + int(self.timing.warmup_min_s * 1e9) - PUBLISH_AHEAD_NS
        latest = start + int(self.timing.warmup_max_s * 1e9) - PUBLISH_AHEAD_NS
        while True:
            due += sample
            while (left := due - perf()) > 0 and self.crew.alive:
                self.crew.listen(left / 1e9)
            now = perf()
            counts.append(self.shared.total(COMPLETED))
            ended.append(counts[-1] + self.shared.total(FAILED))
            self.watch.look("warmup")
            if not warm:
                at_once = connections or self.shared.total(SENT) - ended[-1]
                enough = counts[-1] >= enough_each * max(1, at_once)
                steady = enough and is_steady(counts)
                warm = now >= latest or (now >= earliest and steady)
                lasts_s = response_s(ended, connections, sample_s)
                settled_s = settling_s(self.timing, lasts_s, steady)
                warm = warm and now - start >= int(1e9 * settled_s)
            if not self.crew.alive or (warm and self.may_measure()):
                break
        lasts_s = response_s(ended, connections, sample_s)
        if connections is not None and lasts_s is not None:
            # Windows long enough for these responses. Workers read them with the first one's start.
            planned, self.timing = self.timing, self.timing.fitted(lasts_s)
            self.stretched = stretch_note(planned, self.timing, lasts_s)
            self.watch.measured_s = self.timing.measured_s
            self.shared.words[WINDOWS] = self.timing.windows
            self.shared.words[WINDOW_NS] = int(1e9 * self.timing.window_s)
        measure = max(perf() + PUBLISH_AHEAD_NS, earliest + PUBLISH_AHEAD_NS)
        self.shared.words[MEASURE] = measure
        return Warmup((measure - start) / 1e9, steady, 0, enough), measure

    def _measure(self, measure: int) -> None:
        """Wait for the workers' reports; kill a worker that is silent long after its end."""
        watch = self.watch
        end = measure + int(self.timing.measured_s * 1e9)
        drained = end + int(self.timing.drain_at_most_s(self.load) * 1e9)
        watch.measure_ns, watch.end_ns, watch.drained_ns = measure, end, drained
        look = lambda: watch.look("measure" if perf() < end else "drain")  # noqa: E731
        self.crew.wait_for("done", (drained - perf()) / 1e9, look)


# Targets in turn, in slices of time: the least noisy way to compare them.
#
# Rule: one worker holds the connections of all, so that all are treated alike. The order within
# each turn is random. The rates are compared in analysis/ratios.py.


def drive_slices(
    loads: tuple[Load, ...],
    plan: Slices,
    *,
    on_progress: OnProgress | None = None,
    mark: Mapping[str, str] | None = None,
) -> tuple[LoadResult, ...]:
    """Load the targets in turn and return their results, each with its slices.

    The loads must be closed loops of one client with the same number of connections, without a
    count; SpecError says which is not. Raises LoadError as `drive_load` does.
    """
    first, *others = loads
    for load in loads:
        if load.open_loop or load.total is not None or load.client == "handle":
            raise SpecError("slices need a closed loop, without a count and a handle")
    if any((first.client, first.connections) != (load.client, load.connections) for load in others):
        raise SpecError("slices need the same client and number of connections on both sides")
    # Slices take the place of windows. The timing has only what a worker needs to know.
    timing = Timing(warmup_min_s=0.0, warmup_max_s=0.0, windows=1, drain_s=plan.drain_s)
    shared = Shared.create(len(loads))
    try:
        sides = tuple((load, choose_address(load)) for load in loads)
        order = Orders(sides, timing, shares(first, 1)[0], shared.fd, plan)
        with Crew([order], mark) as crew:
            seconds = plan.warmup_s + len(loads) * plan.pairs * plan.slice_s
            watch = Watch(shared, 0.0, max(0.01, seconds), on_progress)
            notes = crew.connect(lambda: watch.look("connect"))
            start = perf() + START_AHEAD_NS
            started_at_ns = time.time_ns() + START_AHEAD_NS + int(plan.warmup_s * 1e9)
            shared.words[START] = start
            watch.measure_ns = start + int(plan.warmup_s * 1e9)
            watch.end_ns = start + int(seconds * 1e9)
            _await_slices(loads, seconds, shared, crew, watch)
            done = crew.workers[0].said.done
            if done is None:
                raise crew.all_lost([crew.workers[0].failure(0)])
    finally:
        shared.close()
    results = []
    for number, result in enumerate(done.results):
        slices = [piece for piece in done.slices if piece.side == number]
        side = structs.replace(
            add_times(loads[number], result, shared, number),
            windows=tuple(piece.completed for piece in slices),
            warmup=replace(result.warmup, seconds=plan.warmup_s),
            duration_s=sum(piece.length_s for piece in slices),
            started_at_ns=started_at_ns,
            connecting_s=crew.connecting_s,
            notes=notes,
            slices=slices_facts("slices", first, plan, slices, result.total.completed),
        )
        results.append(judged(side))
    return tuple(results)


def _await_slices(
    loads: Sequence[Load], seconds: float, shared: Shared, crew: Crew, watch: Watch
) -> None:
    """Wait for the worker's report as long as requests complete: drains come on top of slices."""
    longest_s = max(load.timeout_s for load in loads)  # of a request
    completed = 0

    def look() -> float | None:
        nonlocal completed
        watch.look("measure")
        before, completed = completed, shared.total(COMPLETED)
        return longest_s if completed != before else None

    crew.wait_for("done", 2 * seconds + longest_s, look)


# Targets in turn, in windows: for loads that cannot be sliced.
#
# An open loop has no slices, and a slice of requests that take seconds is as long as a window. Each
# window is a whole load, with its own connections and a short warm-up, so that only one target
# is ever loaded. The result has the form of slices, with a window for a slice.


def drive_windows(
    loads: tuple[Load, ...],
    plan: Slices,
    *,
    on_progress: OnProgress | None = None,
    mark: Mapping[str, str] | None = None,
    drives: Sequence[Drive | None] = (),
) -> tuple[LoadResult, ...]:
    """Load the targets in turn, in windows of `plan.slice_s` that follow the plan's warm-up.

    Requests that differ begin at the same one on all targets, drawn for each turn. `drives`: what
    runs a window of each; None: `drive_load`. Raises LoadError; KeyboardInterrupt leaves nothing.
    """
    by = [drive or drive_load for drive in drives or [None] * len(loads)]
    timing = Timing(plan.warmup_s, plan.warmup_s, 1, plan.slice_s, plan.drain_s)
    results: list[list[LoadResult]] = [[] for _ in loads]
    slices: list[list[Slice]] = [[] for _ in loads]
    began_ns = 0
    for pair in range(plan.pairs):
        draw = random.Random(f"{plan.seed}/{pair}")
        seed = draw.getrandbits(31)
        for side in draw.sample(range(len(loads)), len(loads)):
            load = replace(loads[side], seed=seed)
            result = by[side](load, timing, on_progress=on_progress, mark=mark)
            began_ns = began_ns or result.started_at_ns
            results[side].append(result)
            begun_s, failed = (result.started_at_ns - began_ns) / 1e9, result.measured.failed_total
            counts = result.completed_in_windows, failed
            slices[side].append(Slice(side, begun_s, result.duration_s, *counts))
    sides = []
    for load, parts, result in zip(loads, slices, map(joined, loads, results), strict=True):
        facts = slices_facts("windows", load, plan, parts, result.total.completed)
        sides.append(structs.replace(result, slices=facts))
    return tuple(sides)


def slices_facts(
    method: SliceMethod, load: Load, plan: Slices, parts: Sequence[Slice], requests: int
) -> SlicesFacts:
    """Return the record of a target that was loaded in these parts, however they were chosen.

    `requests`: all that were completed, those in the warm-up of windows too."""
    drains = [max(0.0, part.length_s - plan.slice_s) for part in parts]  # beyond its length
    return SlicesFacts(
        method=method,
        slice_s=plan.slice_s,
        connections=load.connections,
        chosen_drain_s=0.0,
        why="",
        drain_s=round(statistics.median(drains or [0.0]), 6) if method == "slices" else 0.0,
        seed=plan.seed,
        begun_s=tuple(round(part.begun_s, 6) for part in parts),
        length_s=tuple(round(part.length_s, 9) for part in parts),
        completed=tuple(part.completed for part in parts),
        failed=tuple(part.failed for part in parts),
        requests=requests,
    )


def joined(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    """Merge the results of a load that ran several times into one of their total duration."""
    return structs.replace(
        combine(load, results),
        warmup=results[0].warmup,  # each window has one, all alike
        windows=tuple(count for result in results for count in result.windows),
        shares=tuple(share for result in results for share in result.shares),
        event_windows=tuple(count for result in results for count in result.event_windows),
        duration_s=sum(result.duration_s for result in results),
        mean_in_flight=None,  # the windows came one after the other: their sum is no mean
    )
