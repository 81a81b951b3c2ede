"""What the raw client makes of events on its sockets, and of time passing.

Rule: an event is turned into what it means for a request (answered, broken, timed out) and handed
to `Exchanges`; the plain answers of a closed loop do not come here (`RawEngine._loop`).
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade

from serve_bench.load.connection import (
    BUSY,
    CLOSED,
    CONNECTING,
    FAST,
    HANDSHAKE,
    PAUSED,
    Connection,
    would_block,
)
from serve_bench.load.exchanges import Exchanges, perf
from serve_bench.load.failures import connection_class
from serve_bench.load.poller import READ, WRITE


class Reactions(Exchanges):
    """Exchanges that react to events."""

    def _handle(
        self,
        conn: Connection | None,
        fd: int,
        mask: int,
        data: bytes | None,
        error: Exception | None,
        now: int,
    ) -> None:
        """An event that the short path does not end: nothing read yet, read and fed, or raised."""
        if data is not None:
            self.tally.bytes += len(data)
        if conn is None or (data is None and error is None):
            self._dispatch(fd, mask)
        elif error is not None:
            self._trouble(conn, error, now)
        elif data is not None:
            self._fed(conn, data, now)

    def _dispatch(self, fd: int, mask: int) -> None:
        """Something happened on a descriptor that the loop does not handle itself."""
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
            data = conn.receive() if mask & ~WRITE else None
            if data is None:
                return
            self.tally.bytes += len(data)
            if conn.state >= FAST:
                conn.framer.parser.feed_data(data)
        except (OSError, HttpParserError, HttpParserUpgrade) as error:
            self._trouble(conn, error, perf())
        else:
            self._fed(conn, data, perf())

    def _trouble(self, conn: Connection, error: Exception, now: int) -> None:
        """Reading or parsing raised."""
        switched = conn.framer.done and conn.framer.status == 101  # without naming a protocol
        if isinstance(error, HttpParserUpgrade) or switched:
            conn.framer.upgraded()
            self._complete(conn, now)
        elif isinstance(error, OSError):
            if not would_block(error):
                self._lost(conn, connection_class(error), now)
        else:
            self._lost(conn, "malformed", now)

    def _fed(self, conn: Connection, data: bytes, now: int) -> None:
        """The framer has taken these bytes (none: the connection ended)."""
        framer = conn.framer
        if conn.state < FAST:
            self._lost(conn, "reset", now)  # nothing was asked: its end, or bytes nobody wants
        elif framer.done or (not data and framer.eof()):
            self._complete(conn, now)
        elif not data:
            self._broken(conn, "truncated" if framer.started else "reset", now)
        else:
            framer.keep(data)
            if conn.state == FAST:
                conn.sent_at = conn.due
                conn.state = BUSY

    def _stamped(self, conn: Connection) -> bytes:
        """Read once with the kernel's time of receipt."""
        data, pickup_ns = conn.receive_stamped()
        if pickup_ns is not None:
            self.tally.record("pickup", pickup_ns)
        return data

    def _unsent(self, conn: Connection, error: OSError, now: int) -> int:
        """The short path could not send at all; returns what counts as sent (bytes)."""
        if would_block(error):
            return 0
        self._broken(conn, connection_class(error), now)
        return len(self.requests[0])  # nothing is left to send: the connection is another one

    def _sent_partly(self, conn: Connection, sent: int) -> None:
        """The short path could not send the whole request: the poller says when to go on."""
        conn.sent_at = conn.due
        conn.state = BUSY
        conn.pending = memoryview(conn.request)[sent:]
        self.poller.modify(conn.fd, READ | WRITE)

    def _lost(self, conn: Connection, failure: str, now: int) -> None:
        """A connection broke; the request on it, if there is one, failed."""
        if conn.state >= FAST:
            self._broken(conn, failure, now)
            return
        if conn in self._free:
            self._free.remove(conn)
        conn.state = CLOSED
        self._renew(conn, now)

    def _scan(self, now: int) -> None:
        """Look for time-outs and for pauses that are over.

        Never while a batch of events is being handled: a connection opened here may be given the
        number of a descriptor that the batch still names.
        """
        self._next_scan = now + self._scan_ns
        for conn in self.connections:
            state = conn.state
            if state == FAST:
                if now - conn.due > self._timeout_ns:
                    self._broken(conn, "timeout", now)
            elif state == BUSY:
                if now - conn.sent_at > self._timeout_ns:
                    self._broken(conn, "timeout", now)
            elif state == PAUSED:
                if now >= conn.since:
                    self._resume(conn, now)
            elif state in (CONNECTING, HANDSHAKE) and now - conn.since > self._connect_timeout_ns:
                self._connect_failed(conn, TimeoutError(), now)
