"""The raw client's connections and what becomes of the requests on them.

Rule: this is the course of a request, but for the short path of the plain closed loop: assigned to
a connection, sent, answered or failed, tried again, followed by the next. The functions at the end
react to events on sockets; `raw.RawEngine` waits for the events.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade

from serve_bench.load import http1
from serve_bench.load.connection import (
    BUSY,
    CLOSED,
    CONNECTING,
    FAST,
    HANDSHAKE,
    IDLE,
    PAUSED,
    READ,
    READ_SIZE,
    RECORD,
    WRITE,
    Connection,
    ConnectionRates,
    receive_stamped,
    would_block,
)
from serve_bench.load.failures import classify_error, describe_error
from serve_bench.load.pacing import Assignment, Engine, next_turn
from serve_bench.load.streams import MAX_EVENT, StreamFramer, stream_framer
from serve_bench.load.tally import NEVER
from serve_bench.load.traces import Traces

PAUSE_NS = 50_000_000
"""Wait after a failed connect, so that a server that is down does not make the client spin."""

_RETRY_AFTER = re.compile(rb"\nretry-after: *(\d{1,6})\r?\n", re.IGNORECASE)

SCAN_NS = 100_000_000
"""How often time-outs are looked for: a tenth of the time-out where that is shorter."""

RECORDS_AT_ONCE = 8
"""TLS records read from a connection before others are looked at. A full one is followed by another
in most cases: to wait for each by the poller costs 20 % of the CPU of a body of 1 MB."""

MOST_HELD = 2 * MAX_EVENT
"""Bytes that are kept of unfinished events in all, before those above 1 MiB are given up."""

perf = time.perf_counter_ns


class Exchanges(Engine):
    """All connections of one worker to one target, and the requests on them."""

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        load = work.load
        self.poller = select.epoll()
        self.requests = http1.request_bytes(load.request, load.keepalive)
        self._draw = next_turn(load, work.share, self.requests)
        stamped = work.address.family != socket.AF_UNIX and not self._tls
        self.timestamps = stamped and load.pickup_every > 0
        self._every = load.pickup_every if self.timestamps else NEVER
        self.connections: list[Connection] = []
        self._by_fd: dict[int, Connection] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        self._free: list[Connection] = []
        self._flying = 0
        self._running = False
        self._over = False
        self._timeout_ns = int(load.timeout_s * 1e9)
        self._connect_timeout_ns = int(load.connect_timeout_s * 1e9)
        self._scan_ns = min(SCAN_NS, self._timeout_ns // 10, self._connect_timeout_ns // 10)
        self._next_scan = 0
        self._hot = (
            not load.open_loop
            and load.keepalive
            and len(self.requests) == 1
            and http1.status_allowed(200, load.request)
            and work.share.requests is None
            and work.notes is None
        )
        if load.streaming is not None:
            self._hot = False
            self._scan_ns = min(self._scan_ns, self._gap_ns // 10)
        self._rates = ConnectionRates(self.connections) if load.connection_rates else None
        self._chosen = 0

    @property
    def opened(self) -> int:
        return len(self.connections)

    def _in_flight(self) -> list[Connection]:
        return [conn for conn in self.connections if conn.in_flight]

    def _measuring(self, which: str) -> None:
        """Take the requests in flight off the short path when measuring or a window begins."""
        # They belong to no window, or to two; the short path counts every end for one window.
        if which != "end":
            for conn in self.connections:
                if conn.state == FAST:
                    conn.sent_at = conn.due
                    conn.state = BUSY
        if self._rates is not None:
            if which == "begin":
                self._rates.begin(self.tally.measure_ns)
            elif which == "end":
                self._rates.end()

    def _add_connection(self, now: int, due: int | None = None) -> None:
        """Open one more connection, for the request due at `due` if there is one."""
        framer = stream_framer(self._streaming) if self._streaming is not None else None
        conn = Connection(
            self.address,
            framer or http1.make_framer(self.load.request),
            self.poller,
            self.timestamps,
            self._tls,
            self.load.request.host,
            number=self.share.first + len(self.connections),
            left=NEVER if self.share.requests is None else self.share.requests,
            events=None if self._notes is None else self._notes.events(),
        )
        self.connections.append(conn)
        if due is not None:
            self._assign(conn, due)
        self._open(conn, now)

    def _open(self, conn: Connection, now: int) -> None:
        if conn.sock is not None:
            self._by_fd.pop(conn.fd, None)
            conn.close()
        try:
            conn.open(now)
        except OSError as error:
            self._by_fd[conn.fd] = conn
            self._connect_failed(conn, error, now)
        else:
            self._by_fd[conn.fd] = conn

    def _reopen(self, conn: Connection, now: int) -> None:
        self.tally.reconnects += 1
        self._open(conn, now)

    def _connecting(self, conn: Connection, now: int) -> None:
        try:
            if not conn.established():
                return
        except OSError as error:
            self._connect_failed(conn, error, now)
            return
        if conn.waiting:
            self._send(conn, now)
        elif self._running:
            self._next(conn, now)

    def _connect_failed(self, conn: Connection, error: OSError, now: int) -> None:
        self.connect_error = describe_error(error)
        self._pause(conn, now + PAUSE_NS)
        if not conn.waiting:
            return
        if conn.attempts < self.load.retries:
            conn.attempts += 1
            self.tally.retried += 1
            return
        conn.waiting = False
        self.see("connect", self.connect_error)
        self._given_up(conn, "connect", now, None)

    def _pause(self, conn: Connection, until: int) -> None:
        self._by_fd.pop(conn.fd, None)
        conn.close()
        conn.state = PAUSED
        conn.since = until
        self._next_scan = min(self._next_scan, until)

    def _resume(self, conn: Connection, now: int) -> None:
        """Connect again after a pause, for the waiting request or a new one."""
        if not conn.waiting:
            if self._backlog:
                self._assign_oldest(conn)
            elif not self.tally.refill or not conn.left:
                return
            elif not self.load.open_loop and self.tally.may_send():
                self._assign(conn, now)
        self._reopen(conn, now)

    def _assign(self, conn: Connection, due: int) -> None:
        """Begin a request on this connection, which may not be open yet."""
        conn.due, conn.sent_at = due, 0
        conn.attempts = 0
        conn.waiting = True
        conn.left -= 1
        conn.request = self._draw()
        if self.traces is not None and self.tally.in_cohort(due):
            if self.load.open_loop:
                self.traces.earn_by(due)
            if self.traces.due >= 1.0:
                conn.request, conn.trace = self.traces.traced(conn.request)
                conn.first_at = 0
        self._flying += 1
        self.tally.begun(due)

    def _assign_oldest(self, conn: Connection) -> None:
        """Begin the request that has waited longest for a connection, in the drain too."""
        due = self._backlog.popleft()
        self._assign(conn, due)
        self.tally.had_waited(due)

    def _send(self, conn: Connection, now: int) -> None:
        conn.waiting = False
        conn.sent_at = now
        conn.state = FAST if self._hot and conn.due == now and not conn.trace else BUSY
        if self.load.open_loop and not conn.attempts:
            self.tally.record_of(conn.due, "send_lag", now - conn.due)
        try:
            conn.transmit()
        except OSError as error:
            self._failed(conn, classify_error(error), now, describe_error(error))
            return
        if conn.pending is not None:
            conn.state = BUSY  # the short path would send the next request behind half of this one

    def _next(self, conn: Connection, now: int) -> None:
        """Assign the next request to an open connection that is free."""
        conn.state = IDLE
        if self._backlog:
            self._assign_oldest(conn)
            self._send(conn, perf())
        elif self.load.open_loop:
            self._free.append(conn)
        elif conn.left and self.tally.may_send():
            if self.traces is not None:
                now = perf()  # what was done for the former request is no part of a traced one
            self._assign(conn, now)
            self._send(conn, now)

    def _renew(self, conn: Connection, now: int) -> None:
        """Open another connection in the place of a spent one, if one is needed."""
        if not self.load.open_loop and conn.left and self.tally.may_send():
            self._assign(conn, now)
        elif self._backlog:
            self._assign_oldest(conn)
        elif self._over or self.tally.finished or not conn.left:
            self._by_fd.pop(conn.fd, None)
            conn.close()
            return
        self._reopen(conn, now)

    def _complete(self, conn: Connection, now: int, data: bytes = b"") -> None:
        """End the request that a whole response answers, well or not. `data`: its last bytes."""
        framer = conn.framer
        failure = http1.judge(framer, self.load.request)
        status = framer.status
        reusable = framer.keep_alive and self.load.keepalive and conn.pending is None
        reusable = reusable and framer.done != http1.SURPLUS
        if conn.state == FAST:
            conn.sent_at = conn.due
        reader = framer.reader if isinstance(framer, StreamFramer) else None
        stream = None if reader is None else (reader.tokens, reader.bare)
        seen = b"" if failure is None else framer.seen(data)
        framer.reset()
        if failure is not None:
            self._failed(conn, failure, now, seen, status, reusable)
            return
        self._flying -= 1
        conn.ended_well += 1
        if conn.pending is not None:
            self.tally.early += 1
        self.tally.success(conn.due, conn.sent_at, now, status)
        if stream is not None:
            self.tally.stream_ended(*stream)
        if self._notes is not None:
            self._note(conn, self._notes, now, status, None)
        if conn.trace:
            self._traced(conn, now, status)
        self._go_on(conn, now, reusable)

    def _go_on(self, conn: Connection, now: int, reusable: bool) -> None:
        """Begin the next request, on this connection or on its replacement."""
        if reusable:
            self._next(conn, now)
        else:
            conn.state = CLOSED
            self._renew(conn, now)

    def _failed(
        self,
        conn: Connection,
        failure: str,
        now: int,
        seen: str | bytes,
        status: int | None = None,
        reusable: bool = False,
    ) -> None:
        """Retry a failed request or give it up; its connection is lost unless `reusable`."""
        self.see(failure, seen, status)
        if conn.attempts < self.load.retries and not self._over:
            conn.attempts += 1
            self.tally.retried += 1
            conn.waiting = True
            after_s = _RETRY_AFTER.search(seen) if isinstance(seen, bytes) else None
            if self.load.honor_retry_after and after_s is not None:
                self._pause(conn, now + int(after_s[1]) * 10**9)
            elif reusable:
                self._send(conn, now)
            else:
                self._reopen(conn, now)
            return
        self._given_up(conn, failure, now, status)
        self._go_on(conn, now, reusable)

    def _given_up(self, conn: Connection, failure: str, now: int, status: int | None) -> None:
        self._flying -= 1
        self._count_failure(conn, failure, now, status)
        if self._notes is not None:
            self._note(conn, self._notes, now, status or 0, failure)
        if conn.trace:
            self._traced(conn, now, 0)

    def _traced(self, conn: Connection, now: int, status: int) -> None:
        """Keep the times of a traced request that has ended. `status` 0: it failed."""
        assert self.traces is not None
        self.traces.add(conn.trace, conn.due, conn.sent_at, conn.first_at, now, status)
        conn.trace = 0

    def _choose(self, traces: Traces, now: int) -> None:
        """Take connections off the short path (every 10 ms): their next requests are traced."""
        traces.earn(now, self.tally.completed)
        wanted = int(traces.due)
        for _ in range(min(wanted, len(self.connections))):
            self._chosen = (self._chosen + 1) % len(self.connections)
            conn = self.connections[self._chosen]
            if conn.state == FAST:
                conn.sent_at = conn.due
                conn.state = BUSY

    # Events: what they mean for a request (answered, broken, timed out). `RawEngine._loop` deals
    # with the plain answers of a closed loop itself.

    def _handle(
        self,
        conn: Connection | None,
        fd: int,
        mask: int,
        data: bytes | None,
        error: Exception | None,
        now: int,
    ) -> None:
        """Handle an event off the short path: nothing read yet, read and parsed, or an error."""
        if data is not None:
            self.tally.bytes_received += len(data)
        if conn is None or (data is None and error is None):
            self._dispatch(fd, mask)
        elif error is not None:
            self._trouble(conn, error, now, data or b"")
        elif data is not None:
            self._fed(conn, data, now)

    def _dispatch(self, fd: int, mask: int) -> None:
        """Handle an event on a descriptor from which the loop has read nothing."""
        conn = self._by_fd.get(fd)
        if conn is None:
            if fd in self._watched:
                self._watched[fd]()
            return
        if conn.state in (CONNECTING, HANDSHAKE):
            self._connecting(conn, perf())
            return
        try:
            if mask & WRITE and conn.pending is not None:
                conn.transmit()
        except OSError as error:
            if conn.tls is not None:
                self._trouble(conn, error, perf())
                return
            mask |= READ  # it may have answered before it broke off; else reading says what broke
        if mask & ~WRITE:
            for _ in range(RECORDS_AT_ONCE):
                if not self._read(conn):
                    return

    def _read(self, conn: Connection) -> bool:
        """Read once; return whether the next TLS record of a response may be there already."""
        data: bytes | None = None
        try:
            data = conn.receive()
            if data is None:
                return False
            self.tally.bytes_received += len(data)
            if conn.state >= FAST:
                conn.framer.parser.feed_data(data)
        except (OSError, HttpParserError, HttpParserUpgrade) as error:
            self._trouble(conn, error, perf(), data or b"")
            return False
        self._fed(conn, data, perf())
        return conn.tls is not None and len(data) == RECORD and conn.framer.started

    def _trouble(self, conn: Connection, error: Exception, now: int, data: bytes = b"") -> None:
        switched = conn.framer.done and conn.framer.status == 101  # without naming a protocol
        if isinstance(error, HttpParserUpgrade) or switched:
            conn.framer.upgraded()
            self._complete(conn, now)
        elif isinstance(error, OSError):
            if not would_block(error):
                self._lost(conn, classify_error(error), now, describe_error(error))
        else:
            if isinstance(conn.framer, StreamFramer) and conn.state >= FAST:
                self._take_events(conn, conn.framer, now)  # those before what cannot be read
            self._lost(conn, "malformed", now, conn.framer.seen(data))

    def _fed(self, conn: Connection, data: bytes, now: int) -> None:
        """Act on what the framer has made of these bytes (none: the connection ended)."""
        framer = conn.framer
        if conn.trace and not conn.first_at:
            conn.first_at = now
        if self._streaming is not None and conn.state >= FAST:
            assert isinstance(framer, StreamFramer)
            if not data:
                framer.eof()  # which may complete the last event
            self._take_events(conn, framer, now)
        if conn.state < FAST:
            self._lost(conn, "reset", now)  # idle: the end, or bytes without a request
        elif framer.done or (not data and framer.eof()):
            self._complete(conn, now, data)
        elif not data:
            within = framer.started
            seen = f"the connection ended {'within the' if within else 'before an'} answer"
            self._failed(conn, "truncated" if within else "reset", now, framer.seen() or seen)
        elif not framer.keep(data) or self._crowded(framer):
            self._failed(conn, "too-large", now, framer.seen())
        else:
            if conn.state == FAST:
                conn.sent_at = conn.due
                conn.state = BUSY

    def _crowded(self, framer: http1.ResponseFramer) -> bool:
        """Return whether its event is large, and those of all connections exceed MOST_HELD."""
        if not isinstance(framer, StreamFramer) or framer.reader.held <= http1.MAX_HEAD:
            return False
        framers = (conn.framer for conn in self.connections)
        held = sum(other.reader.held for other in framers if isinstance(other, StreamFramer))
        return held > MOST_HELD

    def _take_events(self, conn: Connection, framer: StreamFramer, now: int) -> None:
        if not framer.first:
            framer.first = now
        if framer.streams and framer.first != NEVER:  # of other responses it is no time of a stream
            self.tally.record_of(conn.due, "ttfb", framer.first - conn.due)
            framer.first = NEVER
        if count := framer.reader.fresh:
            framer.reader.fresh = 0
            self.tally.streamed(conn.due, framer.last, now, count)
            framer.last = now
            if conn.events is not None:
                conn.events.add(now, count)

    def _stamped(self, conn: Connection) -> bytes:
        assert conn.sock is not None
        data, pickup_ns = receive_stamped(conn.sock, READ_SIZE)
        if pickup_ns is not None:
            self.tally.record("pickup", pickup_ns)
        return data

    def _send_plain(self, answered: list[Connection]) -> None:
        """Send the plain request again on connections that were answered, and empty the list."""
        request = self.requests[0]
        size, tls = len(request), self._tls is not None
        for conn in answered:
            sock = conn.sock
            conn.due = now = perf()
            try:
                sent = sock.write(request) if tls else sock.send(request)  # type: ignore[union-attr]
            except OSError as error:
                if not would_block(error):
                    self._lost(conn, classify_error(error), now, describe_error(error))
                    continue
                sent = 0
            if sent != size:
                self._sent_partly(conn, sent)
        answered.clear()

    def _sent_partly(self, conn: Connection, sent: int) -> None:
        """Leave the rest of a plain request to the poller, which reports when to send it."""
        conn.sent_at = conn.due
        conn.state = BUSY
        conn.pending = memoryview(conn.request)[sent:]
        self.poller.modify(conn.fd, READ | WRITE)

    def _lost(self, conn: Connection, failure: str, now: int, seen: str | bytes = "") -> None:
        """Fail the request on a broken connection, or else replace the connection."""
        if conn.state >= FAST:
            self._failed(conn, failure, now, seen)
            return
        if conn in self._free:
            self._free.remove(conn)
        conn.state = CLOSED
        self._renew(conn, now)

    def _silent(self, conn: Connection, failure: str, now: int) -> None:
        """Fail a request to which nothing came in time, or too little."""
        seen = "the answer had begun" if conn.framer.started else "no byte of an answer"
        self._failed(conn, failure, now, conn.framer.seen() or seen)

    def _scan(self, now: int) -> None:
        """Look for time-outs and for pauses that are over.

        Not while a batch of events is handled: a connection opened here may get the number of a
        descriptor that the batch still has.
        """
        self._next_scan = now + self._scan_ns
        for conn in self.connections:
            state = conn.state
            if state == FAST:
                if now - conn.due > self._timeout_ns:
                    self._silent(conn, "timeout", now)
            elif state == BUSY:
                if now - conn.sent_at > self._timeout_ns:
                    self._silent(conn, "timeout", now)
                elif self._streaming is not None and 0 < conn.last < now - self._gap_ns:
                    self._silent(conn, "stalled", now)
            elif state == PAUSED:
                if now >= conn.since:
                    self._resume(conn, now)
            elif state in (CONNECTING, HANDSHAKE) and now - conn.since > self._connect_timeout_ns:
                self._connect_failed(conn, TimeoutError(), now)
