"""The raw client: one epoll loop over all connections of a worker, for closed and open loops.

Rule: `_loop` has the steps of every request of a plain closed loop inline, as short as possible;
`Exchanges` has everything else. Only a connection in state FAST takes the short path.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade

from serve_bench.load import http1
from serve_bench.load.connection import (
    BUSY,
    CONNECTING,
    FAST,
    HANDSHAKE,
    IDLE,
    READ,
    READ_SIZE,
    RECORD,
    Connection,
)
from serve_bench.load.exchanges import Exchanges
from serve_bench.load.pacing import IDLE_S, Assignment
from serve_bench.load.tally import NEVER

CONNECT_BATCH = 256
"""Connections being opened at one time before the start: above, listen queues overflow."""

COUNT_MARGIN = 20_000
"""With a count, the short path checks each request once fewer than this are left: no Python client
sends 20,000 between two calls of `advance` (10 ms). The other paths always check."""

MAX_EVENTS = 64
"""Events taken from the kernel at once. Their connections are touched twice, by the kernel and by
the handler: those of 64 events are still in the cache then (2-3 % less CPU at c=1000 than with
512; no difference at c=100)."""

MOST_AT_ONCE = 1000
"""Requests begun before the sockets are looked at again, when an open loop is behind."""

perf = time.perf_counter_ns


class RawEngine(Exchanges):
    """The engine of the raw client."""

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        self._margin = COUNT_MARGIN if self._hot else 1
        if self.timer.fd >= 0 and self.load.open_loop:
            self.watch(self.timer.fd, self.timer.clear)

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        self._watched[fd] = call
        self.poller.register(fd, READ)

    def connect(self) -> int:
        self.tally.on_measure.append(self._measuring)
        begun = perf()
        deadline = begun + self._connect_timeout_ns
        wanted = self.share.connections
        while True:
            now = perf()
            opening = sum(1 for c in self.connections if c.state in (CONNECTING, HANDSHAKE))
            while len(self.connections) < wanted and opening < CONNECT_BATCH:
                self._add_connection(now)
                opening += 1
            if not opening or now > deadline:
                break
            for fd, mask in self.poller.poll(IDLE_S, MAX_EVENTS):
                self._dispatch(fd, mask)
        self.connecting = (begun, perf())
        for conn in self.connections:
            if conn.state in (CONNECTING, HANDSHAKE):
                self._connect_failed(conn, TimeoutError(), perf())
        return sum(1 for conn in self.connections if conn.state == IDLE)

    def run(self, start: int, drain_ns: int) -> None:
        self._running = True
        self._drain_ns = drain_ns
        self._set_clock(start)
        self.tally.advance(perf())
        self._fill()
        self._loop()
        self._note_cut()
        for conn in self._in_flight():
            if conn.trace:  # a traced request that has no end
                self._traced(conn, NEVER, 0)

    def run_slice(self, length_ns: int, drain_ns: int) -> int:
        """Load for a slice as in `Engine`; requests that outlast the drain end in a later one."""
        begun = perf()
        self._running = True
        self._over = False
        self._drain_ns, self._drain_until = drain_ns, NEVER
        self.tally.open_slice(begun, length_ns)
        self._fill()
        self._loop()
        return begun

    def _fill(self) -> None:
        for conn in self.connections:
            if conn.state == IDLE:
                self._next(conn, perf())

    def close(self) -> None:
        for conn in self.connections:
            conn.close()
        self.timer.close()
        self.poller.close()

    def _turn(self, now: int) -> int:
        """Do what is due by the clock; return when to call again; 0: at every event."""
        tally = self.tally
        if self._rates is not None:
            self._rates.look(now)
            tally.connection_rate_max = self._rates.highest
        self._over = self._advance(now)
        if self.traces is not None and tally.measure_known and not self.load.open_loop:
            self._choose(self.traces, now)
        may_send = tally.left_to_send
        if not tally.refill or (may_send is not None and may_send < self._margin):
            return 0
        return tally.edge

    def _launch_due(self, now: int) -> None:
        self._pump(NEVER)

    def _busy(self) -> bool:
        return self._flying > 0

    def _pump(self, most: int = MOST_AT_ONCE) -> float:
        """Begin what is due, at most `most`; return how long the poller may sleep (s)."""
        clock, tally = self._clock, self.tally
        assert clock is not None
        if not tally.refill:
            return IDLE_S
        now = perf()
        for _ in range(most):
            if clock.due > now:
                return self.timer.sleep_s(clock.due, now)
            if clock.due >= tally.edge:
                return 0.0  # due in the part after the edge: `_turn` comes first
            left = tally.left_to_send
            if left is not None and left <= len(self._backlog):
                return IDLE_S
            self._launch(clock.due, now)
            clock.step()
            now = perf()
        return 0.0  # more is due; first look at the sockets

    def _send_due(self) -> None:
        """Pump before the next event if a request is due and a connection is free.

        Without a free one it waits: an event of this batch may free one.
        """
        clock = self._clock
        if self._free and clock is not None and clock.due <= perf() and clock.due < self.tally.edge:
            self._pump()

    def _launch(self, due: int, now: int) -> None:
        if self._free:
            conn = self._free.pop()
            self._assign(conn, due)
            self._send(conn, perf())
        elif len(self.connections) < self.share.limit:
            self._add_connection(now, due)
        else:
            self._backlog.append(due)

    def _loop(self) -> None:  # noqa: C901 - a call for each event would cost a microsecond
        """Handle events until the load is over.

        It is long, and has locals for attributes, since each call and each attribute costs every
        request 30 to 100 ns of about 5 us. Requests are sent after each quarter of the answers that
        one look has found: one by one costs 8 % more CPU at 100 connections, and all at the end
        leaves the server idle at 8 (13 % fewer requests/s; evidence/load-clients.md).
        """
        tally, by_fd, poll = self.tally, self._by_fd, self.poller.poll
        turn, pump, stamped, send_plain = self._turn, self._pump, self._stamped, self._send_plain
        interval = countdown = self._every
        paced, tls = self._clock is not None, self._tls is not None
        plain, rated = http1.PLAIN, self._rates is not None
        sleep = IDLE_S
        n = nbytes = longest = edge = 0
        slots = tally.slots
        answered: list[Connection] = []  # the next request is not sent yet
        now = 0
        while not self._over:
            if paced:
                sleep = pump()
            events = poll(sleep, MAX_EVENTS)
            if paced:
                self._send_due()
            if paced or not events or not edge:
                now = perf()
                if now >= edge:
                    tally.add_plain(n, nbytes, longest)
                    n = nbytes = longest = 0
                    edge = turn(now)
                    slots = tally.slots
            if now >= self._next_scan:
                self._scan(now)
            held = max(1, len(events) >> 2)
            for fd, mask in events:
                conn = by_fd.get(fd)
                data = error = None
                if (
                    conn is not None
                    and mask == READ
                    and ((state := conn.state) == FAST or (state == BUSY and not tls))
                ):
                    try:
                        countdown -= 1
                        if countdown:
                            sock = conn.sock
                            data = sock.read(RECORD) if tls else sock.recv(READ_SIZE)  # type: ignore[union-attr]
                        else:
                            countdown = interval
                            data = stamped(conn)
                        framer = conn.framer
                        framer.parser.feed_data(data)
                    except (OSError, HttpParserError, HttpParserUpgrade) as caught:
                        error = caught
                    else:
                        now = perf()
                        if framer.done == plain and now < edge and state == FAST:
                            value = now - conn.due
                            e = value.bit_length() - 11
                            if e > 0:
                                slots[(e << 10) + (value >> e)] += 1
                            else:
                                slots[value] += 1
                            if value > longest:
                                longest = value
                            n += 1
                            if rated:
                                conn.ended_well += 1
                            nbytes += len(data)
                            framer.done = 0
                            answered.append(conn)
                            if len(answered) >= held:
                                send_plain(answered)
                            continue
                if answered:
                    send_plain(answered)
                now = perf()
                if now >= edge:
                    tally.add_plain(n, nbytes, longest)
                    n = nbytes = longest = 0
                    edge = turn(now)
                    slots = tally.slots
                self._handle(conn, fd, mask, data, error, now)
                if paced:
                    self._send_due()
            if answered:
                send_plain(answered)
        tally.add_plain(n, nbytes, longest)
