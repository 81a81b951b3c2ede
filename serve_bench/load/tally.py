"""A worker's account of one target: what was sent, how it ended, when, and in which window.

Rule: time is passed in, and every event is preceded by `advance(now)` when `now >= edge`, so that
an event is counted in the window in which it happened, to the nanosecond. Both clients count
through this class; only the raw client's inner loop keeps counters of its own, and brings
them here (`add_plain`) before each `advance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serve_bench.histogram import slot
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.shared import (
    ABORT,
    COMPLETED,
    FAILED,
    KINDS,
    MEASURE,
    MEASURING,
    PARTS,
    SENT,
    START,
    Shared,
)
from serve_bench.load_result import ERROR_CLASSES

TICK_NS = 10_000_000
"""How often live counters are brought up to date and the control words are read."""

NEVER = 1 << 62
"""An instant that does not come."""

PUBLISH_AHEAD_NS = 50_000_000
"""The parent names the first window's start at least so long before it. It must exceed TICK_NS:
then every worker has read it before any event at or after it is counted."""


class Tally:
    """Counters, histograms and windows of one board.

    `edge` is the next instant at which `advance` must be called. `refill` says whether new
    requests may still be sent. `finished` is set when only the drain is left.
    """

    def __init__(
        self,
        shared: Shared,
        board: int,
        windows: int,
        window_ns: int,
        count: int | None,
        in_flight: Callable[[], tuple[int, int]],
    ) -> None:
        self._control = shared.words
        self._live = shared.live(board)
        self._in_flight = in_flight
        self._window_ns = window_ns
        self._windows_wanted = windows
        self._count = count
        self._parts = {
            part: {kind: shared.histogram(board, part, kind) for kind in KINDS} for part in PARTS
        }
        self._slots = {part: self._parts[part]["equal"][1:] for part in PARTS}
        self._use("rest")
        self.sent = self.completed = self.bytes = 0
        self.retried = self.reconnects = self.waited = 0
        self.failed: dict[str, int] = dict.fromkeys(ERROR_CLASSES, 0)
        self.codes: dict[int, int] = {}
        self.edge = 0
        self.refill = True
        self.aborted = False
        self.finished = False
        self.measure_ns = 0
        self.end_ns = 0
        self._window_end = 0
        self._window_base = 0
        self._hold_at = NEVER
        self.windows: list[int] = []
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.on_measure: list[Callable[[str], None]] = []
        self.last_ns = 0
        self.connection_rate_max: float | None = None  # the raw client sets it, where it is asked

    # -- time ---------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Do all that was due by `now`: begin measuring, close windows, publish counters."""
        if now < self.edge:
            return
        if self._control[ABORT] and not self.aborted:
            self._abort(now)
        if not self.measure_ns:
            measure = self._control[MEASURE]
            if measure and now >= measure:
                self._begin(measure)
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
        """The parent calls the load off: what was measured so far stands, without a drain."""
        self.aborted = True
        if self.measure_ns and not self.finished:
            self.end_ns = now
            self._finish()
        self.refill = False
        self.finished = True

    def _begin(self, measure: int) -> None:
        self.measure_ns = measure
        self._window_end = measure + self._window_ns
        self._window_base = self.completed
        self.snapshots["begin"] = self.snapshot()
        self._use("measured")
        self._tell("begin")

    def open_slice(self, now: int, length_ns: int) -> None:
        """New requests may be sent for so long; then the tally holds until the next slice."""
        self._hold_at = now + length_ns
        self.refill = not self.aborted
        self.edge = now

    def begin_slices(self, now: int) -> None:
        """What comes now is measured, in slices instead of windows."""
        self._begin(now)
        self._window_end = NEVER

    def end_slices(self, now: int) -> None:
        """The last slice has drained."""
        self.end_ns = now
        self._finish()

    def _close_window(self) -> None:
        self.windows.append(self.completed - self._window_base)
        self._window_base = self.completed
        self._window_end += self._window_ns
        if len(self.windows) == self._windows_wanted:
            self.end_ns = self.measure_ns + self._windows_wanted * self._window_ns
            self._finish()

    @property
    def measure_known(self) -> int:
        """The first window's start as the parent has named it; 0 before."""
        return int(self._control[MEASURE])

    def end_by_count(self) -> None:
        """The wanted number of requests has ended: that closes the one window there is."""
        if not self.finished and self.measure_ns:
            self.windows = [self.completed - self.snapshots["begin"]["completed"]]
            self.end_ns = self.last_ns
            self._finish()

    def _finish(self) -> None:
        self.snapshots["end"] = self.snapshot()
        self._tell("end")
        self.refill = False
        self.finished = True
        self._use("rest")

    def _tell(self, which: str) -> None:
        """Measuring began or ended (`begin`, `end`): the snapshot of that instant is made."""
        for call in self.on_measure:
            call(which)

    def _use(self, part: str) -> None:
        """Record into this part's histograms from now on. `slots` is for the inner loop."""
        self.hist = self._parts[part]
        self.slots = self._slots[part]

    def _publish(self) -> None:
        live = self._live
        live[SENT] = self.sent
        live[COMPLETED] = self.completed
        live[FAILED] = sum(self.failed.values())
        live[MEASURING] = 1 if self.measure_ns else 0

    # -- events -------------------------------------------------------------------------------

    def may_send(self) -> bool:
        """Whether one more request may be begun now."""
        return self.refill and (self._count is None or self.sent < self._count)

    @property
    def left_to_send(self) -> int | None:
        """How many requests a load with a count may still begin; None without a count."""
        return None if self._count is None else self._count - self.sent

    @property
    def count_done(self) -> bool:
        """Whether a load with a count has seen the end of every request."""
        ended = self.completed + sum(self.failed.values())
        return self._count is not None and ended >= self._count

    def record(self, kind: str, value: int) -> None:
        """Count a value (ns) in a histogram of the current part."""
        words = self.hist[kind]
        words[1 + slot(value)] += 1
        if value > words[0]:
            words[0] = value

    def success(self, due: int, sent: int, now: int, status: int) -> None:
        """A request ended well."""
        self.completed += 1
        self.last_ns = now
        self.codes[status] = self.codes.get(status, 0) + 1
        if due == sent:
            self.record("equal", now - due)
        else:
            self.record("latency", now - due)
            self.record("service_time", now - sent)

    def failure(self, error_class: str, due: int, now: int, status: int | None = None) -> None:
        """A request failed, for good. `status` is given when a whole response came."""
        self.failed[error_class] += 1
        self.last_ns = now
        if status is not None:
            self.codes[status] = self.codes.get(status, 0) + 1
        self.record("failed_latency", now - due)

    def add_plain(self, n: int, size: int, longest: int) -> None:
        """Bring in `n` requests sent and `n` completed with status 200, recorded elsewhere."""
        self.sent += n
        self.completed += n
        self.bytes += size
        if n:
            self.codes[200] = self.codes.get(200, 0) + n
        words = self.hist["equal"]
        if longest > words[0]:
            words[0] = longest

    # -- report -------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All counters as they are, with what is in flight and what waits to be sent."""
        in_flight, unsent = self._in_flight()
        return {
            "sent": self.sent,
            "completed": self.completed,
            "failed": dict(self.failed),
            "codes": {str(code): n for code, n in self.codes.items()},
            "bytes": self.bytes,
            "retried": self.retried,
            "reconnects": self.reconnects,
            "waited": self.waited,
            "in_flight": in_flight,
            "unsent": unsent,
        }

    def report(self) -> dict[str, Any]:
        """The account for the parent. Raises BrokenAccount when it does not add up."""
        self.snapshots["final"] = self.snapshot()
        for name, at in self.snapshots.items():
            ended = at["completed"] + sum(at["failed"].values())
            if at["sent"] != ended + at["in_flight"]:
                raise BrokenAccount(f"{name}: sent {at['sent']} is not the sum of its ends: {at}")
        recorded = sum(
            sum(part["equal"][1:]) + sum(part["latency"][1:]) for part in self._parts.values()
        )
        if recorded != self.completed:
            raise BrokenAccount(f"{recorded} latencies for {self.completed} completed requests")
        return {
            "snapshots": self.snapshots,
            "windows": self.windows,
            "measure_ns": self.measure_ns,
            "end_ns": self.end_ns,
            "aborted": self.aborted,
            "connection_rate_max": self.connection_rate_max,
        }


def started_at(shared: Shared) -> int:
    """The common instant of the first request; 0 while the parent has not named it."""
    return int(shared.words[START])
