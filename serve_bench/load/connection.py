"""A connection of the raw client, and the addresses, TLS, descriptors and ports that it needs.

Rule: a connection decides nothing. The engine (`raw.py`) decides when to connect, send or give up.
All sockets of a load are non-blocking.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.load.failures import LoadError, describe_error

if TYPE_CHECKING:
    import ssl

    from serve_bench.load import http1
    from serve_bench.load.request_log import Events

SO_TIMESTAMPNS = 35
"""Linux's option for kernel receive timestamps (asm-generic/socket.h), unnamed in Python."""

SPARE_FDS = 32
"""Descriptors that a worker needs besides its connections."""


@dataclass(frozen=True)
class Address:
    """Where to connect: an address family and the argument of `socket.connect`."""

    family: int
    sockaddr: str | tuple[Any, ...]


def resolve(request: Request) -> list[Address]:
    """Return the addresses of a request's host, in the resolver's order. Raises LoadError."""
    if request.unix_socket is not None:
        return [Address(socket.AF_UNIX, request.unix_socket)]
    try:
        infos = socket.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LoadError("connect", request.host, request.port, describe_error(error)) from None
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in infos]


def choose_address(load: Load) -> Address:
    """Return the first address that takes a connection, which is closed again at once.

    Raises LoadError with the last reason when none does.
    """
    request, reason = load.request, "no address"
    for address in resolve(request):
        with socket.socket(address.family, socket.SOCK_STREAM) as probe:
            probe.settimeout(load.connect_timeout_s)
            try:
                probe.connect(address.sockaddr)
            except OSError as error:
                reason = describe_error(error)
                continue
            return address
    where = request.unix_socket or request.host
    raise LoadError("connect", where, 0 if request.unix_socket else request.port, reason)


def tls_context(request: Request) -> ssl.SSLContext:
    """Make the TLS settings of an https request. Raises LoadError for a bad CA file."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=request.ca_file)
    except OSError as error:
        reason = f"CA file {request.ca_file}: {describe_error(error)}"
        raise LoadError("connect", request.host, request.port, reason) from None
    if not request.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def lacking_descriptors(connections: int) -> str | None:
    """Return one line about the hard limit of open files if that is too low, else None."""
    need = connections + SPARE_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard) or max(soft, hard) >= need:
        return None
    needs = f"{connections} connections need {need} open files, and the hard limit is {hard}"
    return f"{needs}: raise it (ulimit -Hn {need}), or use fewer connections or more processes"


EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Linux's range of ports for outgoing connections, of IPv6 too."""


def lacking_ports(connections: int) -> str | None:
    """Return one line if this system has too few local ports for connections to one address.

    Each needs a port (not on a unix socket). None if there are enough, or their number is unknown.
    """
    if not EPHEMERAL_PORTS.exists():
        return None
    first, last = map(int, EPHEMERAL_PORTS.read_text(encoding="ascii").split())
    if connections <= last - first + 1:
        return None
    return (
        f"{connections:,} connections to one address need a local port each, and there are "
        f"{last - first + 1:,} ({first} to {last}): widen the range "
        "(sysctl net.ipv4.ip_local_port_range), or use fewer connections"
    )


def allow_descriptors(connections: int) -> None:
    """Raise the soft limit of open files as needed. Raises LoadError above the hard limit."""
    lacking = lacking_descriptors(connections)
    if lacking is not None:
        raise LoadError("connect", "this machine", 0, lacking)
    need = connections + SPARE_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


READ, WRITE = 0x001, 0x004
"""EPOLLIN and EPOLLOUT."""

CLOSED, CONNECTING, HANDSHAKE, PAUSED, IDLE, FAST, BUSY = range(7)
"""States. The first four have no usable socket. FAST and BUSY wait for a response. FAST: the plain
request of a closed loop was sent, and nothing unusual has happened since."""

READ_SIZE = 1 << 15
"""The most bytes of a read. With bodies of 1 MB, reads of 128 kB reach 0.8 of the requests/s
(evidence/load-clients.md)."""

RECORD = 1 << 14
"""The most bytes of a TLS record (RFC 8446, 5.1). OpenSSL reads one record at a time, so a read of
this size leaves no decrypted bytes behind, of which the poller would not know."""

_timespec = struct.Struct("qq")


@dataclass(slots=True, eq=False)
class Connection:
    """A connection that is opened again and again, and its request. Times are perf_counter_ns."""

    address: Address
    framer: http1.ResponseFramer
    poller: select.epoll
    timestamps: bool
    tls: ssl.SSLContext | None
    tls_name: str
    number: int  # among the connections of all workers
    left: int  # how many requests it may still begin
    events: Events | None = None  # of the request in flight, only in a log of streams
    sock: socket.socket | None = None
    fd: int = -1
    state: int = CLOSED
    request: bytes = b""
    pending: memoryview | None = None
    waiting: bool = False  # a request is assigned and not sent yet
    attempts: int = 0
    due: int = 0  # of the request in flight
    sent_at: int = 0  # of the request in flight; not set on the short path
    since: int = 0  # when the attempt to connect began, or when a pause ends
    ended_well: int = 0  # completed requests; those of the short path only for `connection_rates`
    trace: int = 0  # the number of the request in flight if it is traced, else 0
    first_at: int = 0  # when the first byte of a traced request's answer came

    @property
    def in_flight(self) -> bool:
        return self.waiting or self.state >= FAST

    @property
    def last(self) -> int:
        last: int = getattr(self.framer, "last", 0)  # of a framer of streams
        return last

    def open(self, now: int) -> None:
        """Begin to connect; the poller reports the end. Raises OSError."""
        sock = self.sock = socket.socket(self.address.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if self.address.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small requests at once
        if self.timestamps:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
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
        """Take the next step of connecting; return whether it is done. Raises OSError."""
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
        if self.state == HANDSHAKE:
            shaken: Any = self.sock
            try:
                shaken.do_handshake()
            except OSError as error:
                if not would_block(error):
                    raise
                reads = type(error).__name__ == "SSLWantReadError"
                self.poller.modify(self.fd, READ if reads else WRITE)
                return False
        self.state = IDLE
        self.poller.modify(self.fd, READ)
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
        """Read what has arrived, of TLS one record; b"" at the end, else None. Raises OSError."""
        assert self.sock is not None
        try:
            return self.sock.recv(READ_SIZE if self.tls is None else RECORD)
        except OSError as error:
            if would_block(error):
                return None
            if type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError"):
                return b""  # the other side ended it, with or without a close message
            raise

    def close(self) -> None:
        if self.sock is not None:
            self.poller.unregister(self.fd)
            self.sock.close()
        self.sock = None
        self.fd = -1
        self.state = CLOSED
        self.pending = None


def receive_stamped(sock: socket.socket, size: int) -> tuple[bytes, int | None]:
    """Read what has arrived, and its age (ns) in the kernel, None if unknown. Raises OSError."""
    data, ancillary, _, _ = sock.recvmsg(size, 64)
    if not ancillary or len(ancillary[0][2]) != _timespec.size:
        return data, None
    seconds, ns = _timespec.unpack(ancillary[0][2])
    return data, max(0, time.time_ns() - (seconds * 1_000_000_000 + ns))


def would_block(error: OSError) -> bool:
    """Return whether a non-blocking call would have to wait; TLS has its own exceptions."""
    if isinstance(error, BlockingIOError):
        return True
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


# The rate of single connections: how many requests one completed in an interval of 100 ms.
#
# wrk prints such rates of its threads ("Thread Stats, Req/Sec"), and published benchmarks of Serve
# are tables of them. Rule: time is passed in, and the counts are `Connection.ended_well`.

INTERVAL_NS = 100_000_000
"""As long as wrk's. A late call of `look` makes its interval longer, and the rate uses that."""


class ConnectionRates:
    """The highest rate of one connection in one interval of the measured part."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._counts: list[int] = []
        self._since = 0
        self._due = 0
        self.highest: float | None = None  # requests/s; None until an interval has ended

    def begin(self, now: int) -> None:
        """Begin the measured part, and its first interval."""
        self._counts = [conn.ended_well for conn in self._connections]
        self._since = now
        self._due = now + INTERVAL_NS

    def look(self, now: int) -> None:
        """Close the interval, if it is over."""
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
        """End the measured part: an unfinished interval does not count."""
        self._due = 0
