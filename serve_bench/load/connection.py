"""One connection of the raw client: its socket, its framer, and the request that it carries.

Rule: a connection acts when it is told to and decides nothing; when to connect, send or give up
is the engine's affair (`raw.py`). All sockets are non-blocking.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING, Protocol

from serve_bench.load import http1
from serve_bench.load.connect import Address, new_socket

if TYPE_CHECKING:
    import ssl
from collections.abc import Sequence

# --------------------------------------------------------------------------------------------------
# Waiting for sockets: epoll where there is one, else `selectors`, behind the same four methods.
#
# Rule: masks are epoll's numbers on every system, so that the clients know one set of names.

READ, WRITE, ERROR = 0x001, 0x004, 0x018
"""EPOLLIN, EPOLLOUT, and EPOLLERR with EPOLLHUP."""


class Poller(Protocol):
    """What the clients need; `select.epoll` has exactly this."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class SelectorsPoller:
    """The fallback. Slower, and it reports errors as readiness to read and write."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    @staticmethod
    def _events(mask: int) -> int:
        read = selectors.EVENT_READ if mask & READ else 0
        return read | (selectors.EVENT_WRITE if mask & WRITE else 0)

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch a descriptor."""
        self._selector.register(fd, self._events(eventmask))

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Watch it for something else."""
        self._selector.modify(fd, self._events(eventmask))

    def unregister(self, fd: int, /) -> None:
        """Watch it no longer."""
        self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Wait at most `timeout` seconds; returns (descriptor, mask) of at most `maxevents`."""
        ready = self._selector.select(timeout)[:maxevents]
        return [
            (
                key.fd,
                (READ if events & selectors.EVENT_READ else 0)
                | (WRITE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in ready
        ]

    def close(self) -> None:
        """Release the system's poller."""
        self._selector.close()


def make_poller() -> Poller:
    """epoll where the system has it."""
    if hasattr(select, "epoll"):
        poller: Poller = select.epoll()
        return poller
    return SelectorsPoller()


# --------------------------------------------------------------------------------------------------

CLOSED, CONNECTING, HANDSHAKE, PAUSED, IDLE, FAST, BUSY = range(7)
"""States. The first four have no usable socket. FAST and BUSY wait for a response; FAST means that
the plain request of a closed loop was sent and nothing unusual has happened since."""

READ_SIZE = 65536

_timespec = struct.Struct("qq")


class Connection:
    """A connection that is opened again and again.

    `due`, `sent_at`: of the request in flight (perf_counter_ns). `since`: when the attempt to
    connect began, or when a pause ends. `waiting`: a request is assigned and not sent yet.
    `number`: among those of all workers. `left`: how many requests it may still be given.
    `ended_well`: how many were completed on it, kept where the rates of connections are asked for.
    """

    __slots__ = (
        "address",
        "attempts",
        "due",
        "ended_well",
        "fd",
        "framer",
        "left",
        "number",
        "pending",
        "poller",
        "request",
        "sent_at",
        "since",
        "sock",
        "state",
        "timestamps",
        "tls",
        "tls_name",
        "waiting",
    )

    sock: socket.socket | None

    def __init__(
        self,
        address: Address,
        framer: http1.ResponseFramer,
        poller: Poller,
        timestamps: bool,
        tls: ssl.SSLContext | None = None,
        tls_name: str = "",
        *,
        number: int,
        left: int,
    ) -> None:
        self.address = address
        self.framer = framer
        self.poller = poller
        self.timestamps = timestamps
        self.tls = tls
        self.tls_name = tls_name
        self.number = number
        self.left = left
        self.sock = None
        self.fd = -1
        self.state = CLOSED
        self.request = b""
        self.pending: memoryview | None = None
        self.waiting = False
        self.attempts = self.due = self.sent_at = self.since = self.ended_well = 0

    @property
    def in_flight(self) -> bool:
        """Whether a request is begun and not ended."""
        return self.waiting or self.state >= FAST

    def open(self, now: int) -> None:
        """Begin to connect; the poller says when it is done. Raises OSError."""
        sock = new_socket(self.address, self.timestamps)
        self.sock = sock
        self.fd = sock.fileno()
        self.since = now
        self.state = CONNECTING
        self.pending = None
        self.framer.start()
        self.poller.register(self.fd, WRITE)
        code = sock.connect_ex(self.address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))

    def established(self) -> bool:
        """Take the next step of connecting. True when requests may be sent. Raises OSError."""
        assert self.sock is not None
        if self.state == CONNECTING:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            if self.tls is not None:
                self.sock = self.tls.wrap_socket(
                    self.sock, server_hostname=self.tls_name, do_handshake_on_connect=False
                )
                self.state = HANDSHAKE
        if self.state == HANDSHAKE and not self._shake():
            return False
        self.state = IDLE
        self.poller.modify(self.fd, READ)
        return True

    def _shake(self) -> bool:
        import ssl

        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.poller.modify(self.fd, READ)
            return False
        except ssl.SSLWantWriteError:
            self.poller.modify(self.fd, WRITE)
            return False
        return True

    def transmit(self) -> None:
        """Send the request, or what is left of it. Raises OSError."""
        assert self.sock is not None
        data: bytes | memoryview = self.request if self.pending is None else self.pending
        try:
            n = self.sock.send(data)
        except OSError as error:
            if not would_block(error):
                raise
            n = 0
        if n < len(data):
            if self.pending is None:
                self.poller.modify(self.fd, READ | WRITE)
            self.pending = memoryview(data)[n:]
        elif self.pending is not None:
            self.pending = None
            self.poller.modify(self.fd, READ)

    def receive(self) -> bytes | None:
        """What has come; b"" at the end, None when nothing is there. Raises OSError."""
        assert self.sock is not None
        try:
            data = self.sock.recv(READ_SIZE)
            if self.tls is not None and data:
                data += self._buffered()
        except OSError as error:
            if would_block(error):
                return None
            if self.tls is not None and is_tls_eof(error):
                return b""
            raise
        return data

    def _buffered(self) -> bytes:
        """What TLS has decrypted already: the poller cannot see it."""
        import ssl

        assert isinstance(self.sock, ssl.SSLSocket)
        more = b""
        while left := self.sock.pending():
            more += self.sock.recv(left)
        return more

    def receive_stamped(self) -> tuple[bytes, int | None]:
        """What has come, and how long ago (ns) the kernel received it. Raises OSError."""
        assert self.sock is not None
        data, ancillary, _, _ = self.sock.recvmsg(READ_SIZE, 64)
        if not ancillary or len(ancillary[0][2]) != _timespec.size:
            return data, None
        seconds, ns = _timespec.unpack(ancillary[0][2])
        return data, max(0, time.time_ns() - (seconds * 1_000_000_000 + ns))

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self.sock is not None:
            self.poller.unregister(self.fd)
            self.sock.close()
        self.sock = None
        self.fd = -1
        self.state = CLOSED
        self.pending = None


def would_block(error: OSError) -> bool:
    """Whether a non-blocking call found nothing to do. TLS has exceptions of its own for it."""
    if isinstance(error, BlockingIOError):
        return True
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def is_tls_eof(error: OSError) -> bool:
    """Whether the other side ended a TLS connection, with or without saying so."""
    return type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError")


# --------------------------------------------------------------------------------------------------
# The rate of single connections: how many requests one completed in an interval of 100 ms.
#
# wrk tells such rates of its threads ("Thread Stats, Req/Sec"), and published benchmarks of Serve
# are tables of them. Rule: time is passed in, and the counts are the connections' own
# (`ended_well`, which both paths of the raw client keep up while rates are asked for).

INTERVAL_NS = 100_000_000
"""As long as wrk's. A look that comes late makes its interval longer, and the rate counts that."""


class ConnectionRates:
    """The highest rate of one connection in one interval of the measured part.

    `highest`: requests/s; None until an interval has ended.
    """

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._counts: list[int] = []
        self._since = 0
        self._due = 0
        self.highest: float | None = None

    def begin(self, now: int) -> None:
        """The measured part begins."""
        self._counts = [conn.ended_well for conn in self._connections]
        self._since = now
        self._due = now + INTERVAL_NS

    def look(self, now: int) -> None:
        """End the interval, if it is over. Costs nothing before it is."""
        if not self._due or now < self._due:
            return
        counts = [conn.ended_well for conn in self._connections]
        most = max(after - before for before, after in zip(self._counts, counts, strict=True))
        rate = most * 1e9 / (now - self._since)
        self.highest = rate if self.highest is None else max(rate, self.highest)
        self._counts, self._since = counts, now
        while self._due <= now + INTERVAL_NS // 2:
            self._due += INTERVAL_NS

    def end(self) -> None:
        """The measured part is over: what has begun of an interval is left out."""
        self._due = 0
