"""Opening connections: addresses, sockets, TLS.

Rule: makes sockets and nothing else; who reads and writes them is the client's affair.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serve_bench.core.request_spec import Request
from serve_bench.load.failures import LoadError, reason_of

if TYPE_CHECKING:
    import ssl

SO_TIMESTAMPNS = 35
"""Linux's option for kernel receive timestamps (asm-generic/socket.h), unnamed in Python."""

SPARE_FDS = 32
"""Descriptors a worker needs beside its connections."""


@dataclass(frozen=True)
class Address:
    """Where to connect: an address family and what `socket.connect` takes."""

    family: int
    sockaddr: Any


def resolve(request: Request) -> list[Address]:
    """The addresses of a request's host, in the resolver's order. Raises LoadError."""
    if request.unix_socket is not None:
        return [Address(socket.AF_UNIX, request.unix_socket)]
    try:
        found = socket.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LoadError("connect", request.host, request.port, reason_of(error)) from None
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


def choose_address(request: Request, timeout_s: float) -> Address:
    """The first address that takes a connection; that connection is closed again at once.

    Raises LoadError with the last reason when none does.
    """
    reason = "no address"
    for address in resolve(request):
        with socket.socket(address.family, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            try:
                probe.connect(address.sockaddr)
            except OSError as error:
                reason = reason_of(error)
                continue
            return address
    where = request.unix_socket or request.host
    raise LoadError("connect", where, 0 if request.unix_socket else request.port, reason)


def new_socket(address: Address, timestamps: bool) -> socket.socket:
    """A socket that does not block, sends small requests at once, and may stamp what it gets."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    sock.setblocking(False)
    if address.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if timestamps:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


def can_timestamp(address: Address) -> bool:
    """Whether the kernel can stamp what this kind of socket receives."""
    return sys.platform == "linux" and address.family != socket.AF_UNIX


def tls_context(request: Request) -> ssl.SSLContext:
    """The TLS settings of an https request. Raises LoadError for a bad CA file."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=request.ca_file)
    except OSError as error:
        reason = f"CA file {request.ca_file}: {reason_of(error)}"
        raise LoadError("connect", request.host, request.port, reason) from None
    if not request.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def lacking_descriptors(connections: int) -> str | None:
    """One line that names the hard limit of open files when it is too low, else None."""
    need = connections + SPARE_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard) or max(soft, hard) >= need:
        return None
    return (
        f"{connections} connections need {need} open files, and the hard limit is {hard}: "
        f"raise it (ulimit -Hn {need}), or use fewer connections or more processes"
    )


EPHEMERAL_PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
"""Linux's range of ports for outgoing connections, of IPv6 too."""


def ephemeral_ports() -> tuple[int, int] | None:
    """The first and the last port that the system gives to outgoing connections; None where it
    does not tell (not Linux)."""
    if not os.path.exists(EPHEMERAL_PORTS):
        return None
    with open(EPHEMERAL_PORTS, encoding="ascii") as file:
        first, last = file.read().split()
    return int(first), int(last)


def lacking_ports(connections: int) -> str | None:
    """One line when this system has fewer ports than so many connections to one address need.

    Each needs a port of its own (not on a unix socket). None too where the ports are not known.
    """
    ports = ephemeral_ports()
    return None if ports is None else ports_short_of(connections, *ports)


def ports_short_of(connections: int, first: int, last: int) -> str | None:
    """One line when the ports `first` to `last` are fewer than the connections, else None."""
    if connections <= last - first + 1:
        return None
    return (
        f"{connections:,} connections to one address need a local port each, and there are "
        f"{last - first + 1:,} ({first} to {last}): widen the range "
        "(sysctl net.ipv4.ip_local_port_range), or use fewer connections"
    )


def allow_descriptors(connections: int) -> str | None:
    """Raise the soft limit of open files when it is too low for so many connections.

    Returns one line that names the limit when the hard one is too low as well, else None.
    """
    lacking = lacking_descriptors(connections)
    need = connections + SPARE_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if lacking is None and soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return lacking
