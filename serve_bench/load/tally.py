"""A worker's account of one target, in memory that it shares with the parent.

Rule: each word of the memory has one writer. The parent writes the control words; a worker writes
its own boards. A board is the account of one target in one worker. The file behind the memory has
no name (memfd, else an unlinked temporary file), so nothing is left when the processes have ended.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import add
from typing import Final

from serve_bench.core.histogram import SLOTS, Histogram, slot
from serve_bench.core.load_result import (
    ANSWERED,
    EMPTY,
    ERROR_CLASSES,
    GIVEN_UP,
    HISTOGRAMS,
    Counts,
)
from serve_bench.load.failures import BrokenAccount

START, MEASURE, ABORT, WINDOWS, WINDOW_NS = range(5)
"""Control words: the instant of the first request, that of the first window (perf_counter_ns,
one clock for all processes on Linux; 0 means not known yet), 1 to end at once, and the number of
windows and their length, set before that of the first (0: as they were ordered)."""

CONTROL_WORDS = 8

SENT, COMPLETED, FAILED, LEFT, WITHIN, WHOLE = range(6)
"""Counters of a board, the first four brought up to date every few milliseconds. LEFT: in the
drain, the requests that have not ended. Of requests in flight at an edge of a window (ns): WITHIN,
their time within the windows; WHOLE, all their time, if it is in a histogram of the windows."""

LIVE_WORDS = 8

SUMMED: Final = ("bytes_received", "retried", "reconnects", "early", "bare", "events", "merged")
"""Counts of the windows, which have the same names in a tally and in a result."""

KINDS = ("equal", "late", *HISTOGRAMS)
"""Histograms of a board, named as in a `LoadResult`. `equal` has values that are both latency and
service time, so that a closed loop records one value per request; `read_times` adds it to both."""

PARTS: tuple[str, ...] = ("rest", "measured")
"""Each histogram exists twice: for the requests of the windows, and for all others."""

HISTOGRAM_WORDS = 1 + SLOTS
"""The exact maximum, then the slots."""

BOARD_WORDS = LIVE_WORDS + len(PARTS) * len(KINDS) * HISTOGRAM_WORDS


class Shared:
    """The memory as 64-bit words, by a descriptor that is new (`create`) or the parent's."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.words = memoryview(mmap.mmap(fd, 0)).cast("Q")
        self.boards = range(len(self.words) // BOARD_WORDS)  # their numbers

    @classmethod
    def create(cls, boards: int) -> Shared:
        """Create memory, all zero, with room for these boards."""
        fd = make_anonymous_file()
        os.ftruncate(fd, 8 * (CONTROL_WORDS + boards * BOARD_WORDS))
        return cls(fd)

    def live(self, board: int) -> memoryview[int]:
        """Return the counters of a board."""
        base = CONTROL_WORDS + board * BOARD_WORDS
        return self.words[base : base + LIVE_WORDS]

    def histogram(self, board: int, part: str, kind: str) -> memoryview[int]:
        """Return the words of one histogram: its maximum, then its slots."""
        which = PARTS.index(part) * len(KINDS) + KINDS.index(kind)
        base = CONTROL_WORDS + board * BOARD_WORDS + LIVE_WORDS + which * HISTOGRAM_WORDS
        return self.words[base : base + HISTOGRAM_WORDS]

    def read(self, board: int, part: str, kind: str) -> Histogram:
        """Return a copy of one histogram, or EMPTY: most are, and a copy takes 256 KiB."""
        words = self.histogram(board, part, kind)
        if not words.tobytes().strip(b"\0"):
            return EMPTY
        return Histogram(words[1:].tolist(), words[0])

    def read_times(self, board: int) -> dict[str, Histogram]:
        """Read the histograms of the windows, by their names in a `LoadResult`."""
        times = {kind: self.read(board, MEASURED, kind) for kind in KINDS}
        equal = times.pop("equal")
        return times | {name: times[name].joined(equal) for name in ("latency", "service_time")}

    def total(self, counter: int) -> int:
        """Sum a live counter over all boards."""
        return sum(self.live(board)[counter] for board in self.boards)

    def close(self) -> None:
        """Close the file. The memory itself goes when its last view does."""
        os.close(self.fd)


def make_anonymous_file() -> int:
    """Make an empty file that has no name; return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("load", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


# The account: what was sent, how it ended, when, and in which window.
#
# Rule: time is passed in, and every event is preceded by `advance(now)` when `now >= edge`, so that
# an event is counted in the window in which it happened, to the nanosecond. Throughput is by that
# time. Latencies, failures and statuses are of the cohort: the requests due within the windows, or
# sent then in a closed loop, whenever they end. So no request is left out for taking too long. All
# clients count with this class; only the raw client's inner loop has its own counters, and adds
# them here (`add_plain`) before each `advance`.
#
# A response that takes a good part of a window falls into two or more. Besides the whole number of
# answers, each window therefore has `shares`: of each response the part of its time that lies in
# the window. Almost all lie in one; only those that were in flight when a window began are shared
# out when they end (`_share`).

TICK_NS = 10_000_000
"""Interval at which live counters are updated and the control words are read."""

SEEN_NS = 10 * TICK_NS
"""A shorter load has too few samples for a mean of requests in flight."""

REST, MEASURED = PARTS

NEVER = 1 << 62
"""An instant that never comes."""

LATE_NS = 250_000_000
"""A drain lasts this long beyond the time-out: time-outs are checked every 0.1 s, and a request
that is sent at the very end must reach its own."""

PUBLISH_AHEAD_NS = 50_000_000
"""The parent sets the first window's start at least this long ahead. It must exceed TICK_NS: then
every worker has read it before it counts any event at or after it."""


@dataclass(frozen=True)
class Snapshot:
    """The counters at an instant. `tokens`: of how many requests, of their prompts and answers."""

    counts: Counts
    tokens: tuple[int, int, int]
    sums: Mapping[str, int]  # by the names of SUMMED


MOST_KINDS = 16
"""Statuses with their own histogram: a server may make up hundreds."""


class Cohort:
    """The ends of the requests that were due, or sent in a closed loop, within the windows."""

    __slots__ = ("codes", "completed", "failed", "sent", "times", "waited")

    def __init__(self) -> None:
        self.sent = self.completed = self.waited = 0
        self.failed: dict[str, int] = dict.fromkeys(ERROR_CLASSES, 0)
        self.codes: dict[int, int] = {}
        # How long failed requests took, by the answer's status (the first MOST_KINDS) or by class.
        self.times: dict[str, Histogram] = {}


class Tally:
    """Counters, histograms and windows of one board.

    `edge`: the next instant at which `advance` must be called. `refill`: new requests may still
    fall due. `finished`: only the drain is left. `open_requests` returns the due times of the
    requests in flight, and of those that are due and not sent yet. Each of `on_measure` is called
    with `begin` and `end` when measuring begins and ends, with `window` when one follows another;
    what is in flight then must end by `success` or `failure`. `open_streams` returns, of the
    requests in flight whose responses are streams, when they were due and when their latest event
    came (0: none); None for other responses.
    """

    def __init__(
        self,
        shared: Shared,
        board: int,
        windows: int,
        window_ns: int,
        count: int | None,
        open_requests: Callable[[], tuple[list[int], list[int]]],
        open_streams: Callable[[], list[tuple[int, int]] | None] = lambda: None,
    ) -> None:
        self._control = shared.words
        self._live = shared.live(board)
        self._open_requests = open_requests
        self._open_streams = open_streams
        self._window_ns = window_ns
        self._windows_wanted = windows
        self._count = count
        self._parts = {
            part: {kind: shared.histogram(board, part, kind) for kind in KINDS} for part in PARTS
        }
        self._slots = {part: self._parts[part]["equal"][1:] for part in PARTS}
        self._use(REST)
        self.sent = self.completed = self.bytes_received = self.events = self.merged = 0
        self.retried = self.reconnects = self.early = self.bare = 0
        self.examples: dict[str, str] = {}  # of failures, see `LoadResult`
        self.counted = self.prompt_tokens = self.answer_tokens = 0
        self.failed: dict[str, int] = dict.fromkeys(ERROR_CLASSES, 0)
        self.cohort = Cohort()
        self._cohort_from = NEVER
        self.edge = self.measure_ns = self.end_ns = self.last_ns = self._now = 0
        self.refill = True
        self.aborted = self.finished = False
        self._window_end = self._window_base = self._events_base = 0
        self._hold_at = NEVER
        self.windows: list[int] = []
        self.event_windows: list[int] = []
        self.snapshots: dict[str, Snapshot] = {}
        self.on_measure: list[Callable[[str], None]] = []
        self._flown_ns = 0  # requests in flight times ns, over the windows so far
        self._flown_until = NEVER
        self._window_from = 0  # start of the window; the end of the last one after it
        self._moved: list[float] = []  # to each window, from those in which its responses ended
        self.connection_rate_max: float | None = None  # the raw client sets it on request

    def advance(self, now: int) -> None:
        """Do all that is due by `now`: begin measuring, close windows, publish counters."""
        if now < self.edge:
            return
        if self._control[ABORT] and not self.aborted:
            self._abort(now)
        if not self.measure_ns:
            measure = self._control[MEASURE]
            if measure and now >= measure:
                self._begin(measure)
        self._now = now
        if self._flown_until < now and not self.finished:
            self._flown_ns += (self.sent - self._ended) * (now - self._flown_until)
            self._flown_until = now
        while self.measure_ns and not self.finished and now >= self._window_end:
            self._close_window()
        if now >= self._hold_at:
            self.refill = False
        self._publish()
        self.edge = min(now + TICK_NS, self._hold_at) if self.refill else now + TICK_NS
        if not self.measure_ns:
            self.edge = min(self.edge, self._control[MEASURE] or self.edge)
        elif not self.finished:
            self.edge = min(self.edge, self._window_end)

    def _abort(self, now: int) -> None:
        """End the load early, without a drain: the parent keeps what was measured so far."""
        self.aborted = True
        if self.measure_ns and not self.finished:
            self.end_ns = now
            self._finish()
        self.refill = False
        self.finished = True

    def _begin(self, measure: int) -> None:
        self.measure_ns = self._cohort_from = self._flown_until = self._window_from = measure
        self._windows_wanted = int(self._control[WINDOWS]) or self._windows_wanted
        self._window_ns = int(self._control[WINDOW_NS]) or self._window_ns
        self._moved = [0.0] * self._windows_wanted
        # Requests that began between that instant and this call belong to the windows: an event may
        # have a later time than the last check of the edge (TLS), and the parent may set the
        # instant late. Those of them that have ended already were counted in the warm-up.
        in_flight, _ = self._open_requests()
        self.cohort.sent = sum(due >= measure for due in in_flight)
        self._window_end = measure + self._window_ns
        self._window_base, self._events_base = self.completed, self.events
        self.snapshots["begin"] = self.snapshot()
        self._use(MEASURED)
        for call in self.on_measure:
            call("begin")

    def open_slice(self, now: int, length_ns: int) -> None:
        """Allow new requests for `length_ns`; then none until the next slice."""
        self._hold_at = now + length_ns
        self.refill = not self.aborted
        self.edge = now

    def begin_slices(self, now: int) -> None:
        """Begin measuring, in slices instead of windows."""
        self._begin(now)
        self._window_end = NEVER
        self._window_from = 0

    def end_slices(self, now: int) -> None:
        """End measuring: the last slice has drained."""
        self.end_ns = now
        self._finish()

    def _close_window(self) -> None:
        self.windows.append(self.completed - self._window_base)
        self.event_windows.append(self.events - self._events_base)
        self._window_base, self._events_base = self.completed, self.events
        self._window_from = self._window_end
        self._window_end += self._window_ns
        if len(self.windows) == self._windows_wanted:
            self.end_ns = self._window_from
            self._finish()
        else:
            for call in self.on_measure:
                call("window")

    @property
    def measure_known(self) -> int:
        """The first window's start as set by the parent; 0 before."""
        return int(self._control[MEASURE])

    def end_by_count(self) -> None:
        """Close the only window: the last request of the count has ended."""
        if not self.finished and self.measure_ns:
            begin = self.snapshots["begin"]
            self.windows = [self.completed - begin.counts.completed]
            self.event_windows = [self.events - begin.sums["events"]]
            self.end_ns = self.last_ns
            self._finish()

    def _finish(self) -> None:
        self.snapshots["end"] = self.snapshot()
        for call in self.on_measure:
            call("end")
        self.refill = False
        self.finished = True
        self._use(REST)

    def _use(self, part: str) -> None:
        """Record into this part's histograms from now on. The inner loop uses `slots`."""
        self.hist = self._parts[part]
        self.slots = self._slots[part]

    def _publish(self) -> None:
        live = self._live
        live[SENT] = self.sent
        live[COMPLETED] = self.completed
        live[FAILED] = sum(self.failed.values())
        live[LEFT] = sum(map(len, self._open_requests())) if self.finished else 0

    @property
    def _ended(self) -> int:
        return self.completed + sum(self.failed.values())

    def may_send(self) -> bool:
        """Return whether one more request may be begun now."""
        return self.refill and (self._count is None or self.sent < self._count)

    @property
    def left_to_send(self) -> int | None:
        """How many requests a load with a count may still begin; None without a count."""
        return None if self._count is None else self._count - self.sent

    @property
    def count_done(self) -> bool:
        """Whether every request of a load with a count has ended."""
        return self._count is not None and self._ended >= self._count

    def begun(self, due: int) -> None:
        """Count a request as in flight from now on."""
        self.sent += 1
        if due >= self._cohort_from:
            self.cohort.sent += 1

    def in_cohort(self, due: int) -> bool:
        """Return whether a request that was due then belongs to the windows."""
        return due >= self._cohort_from

    def had_waited(self, due: int) -> None:
        """Count a request that gets the connection it waited for (open loop)."""
        if due >= self._cohort_from:
            self.cohort.waited += 1

    def record(self, kind: str, value: int) -> None:
        """Count a value (ns) in a histogram of the current part."""
        _count(self.hist[kind], value)

    def record_of(self, due: int, kind: str, value: int) -> None:
        """Count a value (ns) of the request that was due then."""
        _count(self._parts[MEASURED if due >= self._cohort_from else REST][kind], value)

    def success(self, due: int, sent: int, now: int, status: int) -> None:
        """Count a request that ended well."""
        self.completed += 1
        self.last_ns = now
        if due < self._window_from:
            self._share(due, now)
        part = self._parts[REST]
        if due >= self._cohort_from:
            part, cohort = self._parts[MEASURED], self.cohort
            cohort.completed += 1
            cohort.codes[status] = cohort.codes.get(status, 0) + 1
        if due == sent:
            _count(part["equal"], now - due)
        else:
            _count(part["latency"], now - due)
            _count(part["service_time"], now - sent)

    def failure(self, error_class: str, due: int, now: int, status: int | None = None) -> None:
        """Count a request that failed for good. `status`: of a whole response.

        One that was given up takes at least that long: it is censored.
        """
        self.failed[error_class] += 1
        self.last_ns = now
        if due < self._window_from:
            self._overlap(due, now, recorded=due >= self._cohort_from)
        self.record_of(due, "failed_latency", now - due)
        if error_class in GIVEN_UP:
            self.record_of(due, "censored", now - due)
        if due >= self._cohort_from:
            cohort = self.cohort
            cohort.failed[error_class] += 1
            kind = str(status) if error_class in ANSWERED and status else error_class
            if len(cohort.times) >= MOST_KINDS and kind not in cohort.times:
                kind = error_class
            cohort.times.setdefault(kind, Histogram()).record(now - due)
            if status is not None:
                cohort.codes[status] = cohort.codes.get(status, 0) + 1

    def _share(self, due: int, now: int) -> None:
        """Give each window its share of a response that was in flight at a window's edge."""
        first = max(0, due - self.measure_ns) // self._window_ns
        last = len(self.windows) - self.finished
        for window in range(first, last + 1):
            begin = self.measure_ns + window * self._window_ns
            within = min(now, begin + self._window_ns) - max(due, begin)
            self._moved[window] += within / (now - due)
        in_cohort = due >= self._cohort_from
        if not self.finished:
            self._moved[last] -= 1  # it is counted as a whole where it ends
        elif in_cohort:
            self.record_of(due, "late", now - due)
        self._overlap(due, now, recorded=in_cohort)

    def _overlap(self, due: int, until: int, recorded: bool) -> None:
        """Count the time of a request within the windows, and its whole time if `recorded`."""
        self._live[WITHIN] += max(0, min(until, self.end_ns or until) - max(due, self.measure_ns))
        self._live[WHOLE] += until - due if recorded else 0

    def streamed(self, due: int, last: int, now: int, count: int) -> None:
        """Count the events of one read. `last`: when the event before them came, 0 without one."""
        part = self._parts[MEASURED if due >= self._cohort_from else REST]
        if last:
            _count(part["itl"], now - last)
        else:
            _count(part["ttft"], now - due)
        self.events += count
        if count > 1:  # all but the first come 0 ns after the one before
            part["itl"][1] += count - 1
            self.merged += count - 1

    def stream_ended(self, tokens: tuple[int, int] | None, bare: bool) -> None:
        """Count a whole stream and the tokens that its service reports; `bare`: a bare DONE."""
        self.bare += bare
        if tokens is not None:
            self.counted += 1
            self.prompt_tokens += tokens[0]
            self.answer_tokens += tokens[1]

    def no_event(self, due: int, last: int, now: int) -> None:
        """Record how long the first or next event of a stream was waited for in vain."""
        self.record_of(due, "itl_censored" if last else "ttft_censored", now - (last or due))

    def add_plain(self, n: int, size: int, longest: int) -> None:
        """Add `n` requests, sent and completed with status 200, whose latencies are recorded."""
        self.sent += n
        self.completed += n
        self.bytes_received += size
        if n and self.measure_ns:  # of the cohort, once measuring has begun
            cohort = self.cohort
            cohort.sent += n
            cohort.completed += n
            cohort.codes[200] = cohort.codes.get(200, 0) + n
        words = self.hist["equal"]
        if longest > words[0]:
            words[0] = longest

    def snapshot(self) -> Snapshot:
        """Return all counters, with the requests in flight and those that wait to be sent."""
        in_flight, unsent = self._open_requests()
        return Snapshot(
            _count_ends(self, in_flight, unsent),
            (self.counted, self.prompt_tokens, self.answer_tokens),
            {name: getattr(self, name) for name in SUMMED},
        )

    def _close_cohort(self) -> Counts:
        """Record that requests without an end take at least until now; return the counts."""
        cohort = self.cohort
        in_flight, unsent = (
            [due for due in dues if due >= self._cohort_from] for dues in self._open_requests()
        )
        for due in (*in_flight, *unsent):
            self.record_of(due, "censored", max(0, self._now - due))
        for due in self._open_requests()[0] if self.finished else ():
            self._overlap(due, max(due, self._now), recorded=False)
        if (streams := self._open_streams()) is not None:
            for due, last in (*streams, *((due, 0) for due in unsent)):
                if due >= self._cohort_from:
                    self.no_event(due, last, max(due, last, self._now))
        return _count_ends(cohort, in_flight, unsent)

    def close(self) -> Counts:
        """End the account; return the counts of the cohort. Raises BrokenAccount if unbalanced."""
        self.snapshots["final"] = self.snapshot()
        cohort = self._close_cohort()
        for counts in (*(snapshot.counts for snapshot in self.snapshots.values()), cohort):
            if not counts.balanced:
                raise BrokenAccount(f"sent {counts.sent} is not the sum of its ends: {counts}")
        recorded = sum(
            sum(part["equal"][1:]) + sum(part["latency"][1:]) for part in self._parts.values()
        )
        if recorded != self.completed:
            raise BrokenAccount(f"{recorded} latencies for {self.completed} completed requests")
        return cohort

    @property
    def shares(self) -> tuple[float, ...]:
        """Responses of each window, each with the part that lies in it; else whole responses."""
        if self._open_requests()[0]:  # the share of a request without an end is unknown
            return tuple(self.windows)
        return tuple(map(add, self.windows, self._moved))

    @property
    def mean_in_flight(self) -> float | None:
        """Mean of the requests in flight over the windows; None of slices or a short load."""
        # A sample is taken every 10 ms; one at the start or the end has nothing in flight.
        lasted = self._flown_until - self.measure_ns
        in_slices = self._window_end == NEVER
        return None if in_slices or lasted < SEEN_NS else self._flown_ns / lasted


def _count_ends(part: Tally | Cohort, in_flight: list[int], unsent: list[int]) -> Counts:
    failed = {kind: count for kind, count in part.failed.items() if count}
    return Counts(part.sent, part.completed, failed, len(in_flight), unsent=len(unsent))


def _count(words: memoryview[int], value: int) -> None:
    """Count a value (ns) in a histogram."""
    words[1 + slot(value)] += 1
    if value > words[0]:
        words[0] = value
