"""The base of all clients: which request is next, when it is due, and when the load is over."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import random
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol, TypeVar

from serve_bench.core.load_result import GIVEN_UP
from serve_bench.core.load_spec import Arrivals, Load, Stage
from serve_bench.load.connection import Address, tls_context
from serve_bench.load.failures import describe_seen
from serve_bench.load.request_log import CUT, UNSENT, Events, Notes
from serve_bench.load.tally import NEVER, Tally
from serve_bench.load.traces import Traces

# A worker's share of a load, and which of the load's requests it sends next: in turn, or drawn.
#
# Rule: the order depends on the load, its seed and the worker's number alone, so a load can be
# repeated. `Request.turns` has the requests.


@dataclass(frozen=True)
class WorkerShare:
    """Worker `worker` of `workers`: its connections, their limit, its part of a count."""

    worker: int
    workers: int
    connections: int
    limit: int
    count: int | None
    requests: int | None = None  # of each connection
    first: int = 0  # the number of its first connection among those of all workers, from 0


_R = TypeVar("_R")


def next_turn(load: Load, share: WorkerShare, requests: Sequence[_R]) -> Callable[[], _R]:
    """Make a function that returns the next of `requests`, one for each of `request.turns`.

    A cycle begins at the request of the seed, the first with seed 1. Workers that cycle through
    paths or headers begin far apart: one close behind another would hit the server's caches.
    """
    if load.request.draw == "random":
        draw = random.Random(f"{load.seed}/body/{share.worker}").choice
        return lambda: draw(requests)
    apart = share.worker if load.request.paths or load.request.header_sets else 0
    first = (load.seed - 1 + len(requests) * apart // share.workers) % len(requests)
    return cycle([*requests[first:], *requests[:first]]).__next__


# When the next request of an open loop is due. Pure: numbers in, numbers out.
#
# Rule: due times count from the start of the load and depend on no event of it. That avoids
# coordinated omission: a stalled server does not make requests due later.
#
# Both kinds of arrivals have one formula. Let N(t) be the expected number of requests up to time t,
# the integral of the rate. A constant pace sends at N(t) = 0, 1, 2 ...; a Poisson process of
# that (changing) rate sends at N(t) = sums of exponential steps of mean 1.


@dataclass(frozen=True)
class Segment:
    """A stretch of time in which the rate changes linearly."""

    begin: float  # s
    duration: float  # s
    rate: float  # at its begin, requests/s
    slope: float  # requests/s per second
    expected: float  # N at its begin

    @property
    def gain(self) -> float:
        """Requests that are expected within it."""
        return self.duration * (self.rate + self.slope * self.duration / 2)

    def when(self, n: float) -> float:
        """Return the time (s) at which N reaches `n`: slope/2 t^2 + rate t = n - expected.

        Written so that nothing cancels when the slope is near 0 (Numerical Recipes, 5.6).
        """
        more = n - self.expected
        root = math.sqrt(max(0.0, self.rate * self.rate + 2 * self.slope * more))
        return self.begin + (2 * more / (self.rate + root) if more > 0 else 0.0)


def segments(stages: Sequence[Stage], ramp: bool = False) -> list[Segment]:
    """Return the course of the rate, which with `ramp` moves linearly from stage to stage.

    The first stage holds its rate; each later one begins at the former rate and ends at its own.
    """
    out: list[Segment] = []
    begin = expected = 0.0
    before = stages[0].rate
    for stage in stages:
        first = before if ramp else stage.rate
        slope = (stage.rate - first) / stage.duration_s
        out.append(Segment(begin, stage.duration_s, first, slope, expected))
        begin += stage.duration_s
        expected += out[-1].gain
        before = stage.rate
    return out


def _generate_steps(arrivals: Arrivals, seed: int, worker: int, workers: int) -> Iterator[float]:
    """Yield the values of N at which one of several workers sends, without end."""
    if arrivals == "constant":
        n = float(worker)
        while True:
            yield n
            n += workers
    draw = random.Random(f"{seed}/{worker}").expovariate
    total = 0.0
    while True:
        total += draw(1.0) * workers
        yield total


def due_times(
    stages: Sequence[Stage],
    arrivals: Arrivals = "constant",
    ramp: bool = False,
    seed: int = 1,
    worker: int = 0,
    workers: int = 1,
) -> Iterator[int]:
    """Yield when this worker's requests are due, in ns since the start, to the last stage's end.

    The workers share the rate: constant arrivals go to them in turn, and a Poisson process is the
    sum of independent ones of a smaller rate. The same seed gives the same times.
    """
    steps = _generate_steps(arrivals, seed, worker, workers)
    n = next(steps)
    for segment in segments(stages, ramp):
        limit = segment.expected + segment.gain
        if segment.gain <= 0:
            continue  # a stage without requests
        if segment.slope == 0:
            # The usual case, and cheap: it runs once for each request.
            begin, expected, ns = segment.begin * 1e9, segment.expected, 1e9 / segment.rate
            while n < limit:
                yield int(begin + (n - expected) * ns)
                n = next(steps)
        else:
            while n < limit:
                yield int(segment.when(n) * 1e9)
                n = next(steps)


# The due times of one worker's open loop on the clock: first of the warm-up, then of the windows.
#
# Rule: the schedule starts anew at the first window's start, so stages are stages of the measured
# part; the warm-up runs at the first stage's rate. No due time is skipped, however late.


class ArrivalClock:
    """`due`: the next due time (perf_counter_ns), NEVER after the last one."""

    def __init__(self, load: Load, start: int, share: WorkerShare, measure: int = 0) -> None:
        self._load = load
        self._share = share
        self._measure = measure
        self._base = start
        self._times = self._schedule((Stage(load.schedule[0].rate, 1e9),), load.seed)
        self._warm = True
        self.due = start + next(self._times)
        self._settle()

    def _schedule(self, stages: tuple[Stage, ...], seed: int) -> Iterator[int]:
        load, share = self._load, self._share
        return due_times(stages, load.arrivals, load.ramp, seed, share.worker, share.workers)

    def measure_from(self, measure: int) -> None:
        """Start the first window, and the schedule with it, at `measure`."""
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
            # Not the seed of the warm-up: else the same draws would come twice.
            self._times = self._schedule(self._load.schedule, self._load.seed + 1)
            self.due = self._base + next(self._times)


# How an open loop waits for the next due time: timerfd, spinning, or the poller's own timeout.
#
# Rule: a timer limits the sleep of the poller, and wakes it by a descriptor if it has one.
# Measured send lag at 10 k/s, p50/p99: timerfd 27/42 us, spinning 0.6/0.8 us; epoll's timeout
# alone has steps of a millisecond, so it is only the fallback (and the result names it).

IDLE_S = 0.01
"""The longest sleep: counters are published and time-outs looked for at least so often."""

TFD_NONBLOCK = 0o4000
TFD_TIMER_ABSTIME = 1
CLOCK_MONOTONIC = 1
PR_SET_TIMERSLACK = 29


class Timer:
    """The poller's own timeout, rounded down by its step so that it is never late."""

    name = "poll"
    fd = -1

    def sleep_s(self, due: int, now: int) -> float:
        """Return how long the poller may sleep (s) when the next request is due at `due` (ns)."""
        return min(IDLE_S, max(0.0, (due - now) / 1e9 - 0.001))

    def clear(self) -> None:
        """Read the descriptor, which was readable."""

    def close(self) -> None:
        """Release the descriptor."""


class SpinTimer(Timer):
    """Never sleeps: the shortest lag, at the cost of a whole core."""

    name = "spin"

    def sleep_s(self, due: int, now: int) -> float:
        return 0.0


class TimerFd(Timer):
    """Linux's timer as a descriptor, armed with absolute times on CLOCK_MONOTONIC.

    Python has `os.timerfd_create` only from 3.13 on, so libc is called. Timer slack, 50 us by
    default for a thread, is set to 1 ns.
    """

    name = "timerfd"

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        self.fd = libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        self._set = libc.timerfd_settime
        self._set.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._spec = (ctypes.c_int64 * 4)()  # struct itimerspec: interval, then value
        self._armed = 0

    def sleep_s(self, due: int, now: int) -> float:
        if due != self._armed and due < NEVER:
            self._spec[2], self._spec[3] = divmod(due, 1_000_000_000)
            self._set(self.fd, TFD_TIMER_ABSTIME, self._spec, None)
            self._armed = due
        return IDLE_S

    def clear(self) -> None:
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return  # armed again since the poller reported it

    def close(self) -> None:
        os.close(self.fd)


def make_timer(spin: bool) -> Timer:
    """Make the most precise timer of this platform; `spin`: one that never sleeps."""
    if spin:
        return SpinTimer()
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:
        return TimerFd()
    return Timer()


class Sender(Protocol):
    """A connection as the log sees it, with when its request was due and sent (ns)."""

    number: int  # among the connections of all workers
    due: int
    sent_at: int
    events: Events | None  # of the request; None where they are not logged

    @property
    def last(self) -> int:
        """When the latest event of its stream came (ns); 0: none yet."""


@dataclass(frozen=True)
class Assignment:
    """What an engine is made for. `notes`: a log of the requests of the windows; None: none."""

    load: Load
    address: Address
    share: WorkerShare
    notes: Notes | None = None


class Engine(ABC):
    """A client of one worker: `connect`, then `run` or any number of `run_slice`, then `close`.

    Set `tally` before `connect`. `connecting`: when `connect` began the first connection and
    finished the last (perf_counter_ns). `traces`: set before `run`, which requests are traced; only
    the raw client has any.
    """

    tally: Tally
    makes_cycles = False
    """Whether requests make reference cycles, so that garbage has to be collected."""
    has_threads = False
    """Whether further threads of Python work for the requests: all share one interpreter."""

    def __init__(self, work: Assignment) -> None:
        load = self.load = work.load
        self.address, self.share, self._notes = work.address, work.share, work.notes
        self.timer = make_timer(load.spin)
        self.connect_error: str | None = None
        self.connecting = (0, 0)
        self._tls = tls_context(load.request) if load.request.scheme == "https" else None
        self._streaming = load.streaming
        gap_s = None if load.streaming is None else load.streaming.event_timeout_s
        self._gap_ns = NEVER if gap_s is None else int(gap_s * 1e9)
        self._clock: ArrivalClock | None = None
        self._backlog: deque[int] = deque()
        self._drain_ns = 0
        self._drain_until = NEVER
        self.traces: Traces | None = None

    def see(self, failure: str, seen: str | bytes, status: int | None = None) -> None:
        """Keep what was seen of a failed try, the first of its class, or with its status."""
        gc.enable()  # unlike a response, an error with its traceback is a cycle
        kind = str(status) if failure == "status" else failure
        if kind not in self.tally.examples:
            self.tally.examples[kind] = describe_seen(seen, self.load.request)

    @abstractmethod
    def watch(self, fd: int, call: Callable[[], None]) -> None:
        """Call `call` whenever the descriptor is readable."""

    @property
    @abstractmethod
    def opened(self) -> int:
        """Connections so far, with those by which an open loop grew."""

    @abstractmethod
    def _in_flight(self) -> Sequence[Sender]:
        """Return the connections with a request in flight."""

    def open_requests(self) -> tuple[list[int], list[int]]:
        """Return the due times of requests in flight, and of those not sent yet."""
        return [sender.due for sender in self._in_flight()], list(self._backlog)

    def open_streams(self) -> list[tuple[int, int]] | None:
        """Return what `Tally` needs of streams in flight; None without streams."""
        if self._streaming is None:
            return None
        return [(sender.due, sender.last) for sender in self._in_flight()]

    def _count_failure(self, of: Sender, failure: str, now: int, status: int | None) -> None:
        """Count a request that failed for good. `status`: of a whole response."""
        self.tally.failure(failure, of.due, now, status)
        if self._streaming is not None and failure in GIVEN_UP:
            self.tally.no_event(of.due, of.last, now)

    @abstractmethod
    def connect(self) -> int:
        """Open all connections; return how many are open after the connect time-out."""

    @abstractmethod
    def run(self, start: int, drain_ns: int) -> None:
        """Load the target from `start` (perf_counter_ns) to the tally's end, then drain."""

    @abstractmethod
    def run_slice(self, length_ns: int, drain_ns: int) -> int:
        """Load for a slice of time, drain, and keep the connections; return when it began.

        Closed loop only. `tally.last_ns` is then the time of the last response.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def _launch_due(self, now: int) -> None:
        """Begin what is due by `now`, but not at or after the tally's edge."""

    @abstractmethod
    def _busy(self) -> bool:
        """Return whether a request is in flight."""

    def _note(self, of: Sender, notes: Notes, now: int, status: int, failure: str | None) -> None:
        """Log a request that has ended, if it is one of the windows."""
        events = None if of.events is None else of.events.take()
        if self.tally.in_cohort(of.due):
            sent = of.sent_at
            if sent < of.due:  # the short path leaves it out; of an open loop it never was sent
                sent = NEVER if self.load.open_loop else of.due
            notes.add(of.number, of.due, sent, now, status, failure)
            if events is not None:
                notes.add_events(events)

    def _note_cut(self) -> None:
        """Log the requests of the windows that never ended, or were never sent."""
        if self._notes is None:
            return
        for sender in self._in_flight():
            self._note(sender, self._notes, NEVER, 0, CUT)
        without = self._notes.events()
        for due in self._backlog:
            if self.tally.in_cohort(due):
                self._notes.add(0, due, NEVER, NEVER, 0, UNSENT)
                if without is not None:
                    self._notes.add_events(without.take())

    def _set_clock(self, start: int) -> None:
        if self.load.open_loop:
            self._clock = ArrivalClock(self.load, start, self.share, self.tally.measure_known)

    def _advance(self, now: int) -> bool:
        """Do what is due by the clock; return whether the load and its drain are over."""
        tally, clock = self.tally, self._clock
        # Requests due before an edge count before it, however late: one edge at a time.
        while clock is not None and 0 < tally.edge <= now:
            if tally.measure_known:
                clock.measure_from(tally.measure_known)
            self._launch_due(now)
            tally.advance(tally.edge)
        tally.advance(now)
        if clock is not None and tally.measure_known:
            clock.measure_from(tally.measure_known)
        if tally.count_done:
            tally.end_by_count()
        if tally.refill:
            return False
        if tally.aborted or self._drain_until == NEVER:
            self._drain_until = now if tally.aborted else now + self._drain_ns
        return now >= self._drain_until or not (self._backlog or self._busy())
