"""TCP ports of this machine: is one free, who owns it, which are open to the network."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
from collections.abc import Mapping
from typing import Any, Final

import psutil

from serve_bench.core.errors import BadInput, RunFailed

#: Ports of a launch are drawn from here: below the ephemeral range, which begins at 32768 on Linux.
#: A free ephemeral port is not free for long, because Ray's own processes take such ports while
#: they start.
BLOCKS = range(20000, 32000)

#: How many ports at the beginning of a block are tried.
_TRIED_OF_A_BLOCK = 16

CONNECT_S: Final = 5.0
"""How long a cluster may take to answer at its address."""


def port_owner(port: int) -> psutil.Process | None:
    """The process that listens on a TCP port, or None where it cannot be known."""
    for connection in _listening():
        if connection.laddr.port == port and connection.pid:
            try:
                return psutil.Process(connection.pid)
            except psutil.NoSuchProcess:
                continue
    return None


def check_port(host: str, port: int, flags: tuple[str, str] = ("--host", "--port")) -> None:
    """BadInput when host and port cannot be bound; names the owner where it is known. `flags`: by
    which the two were given."""
    host_flag, port_flag = flags
    if not 0 <= port <= 65535:
        raise BadInput(
            f"{port_flag}: {port} is not allowed; it takes 1 to 65535, or 0 for any free one"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"{host_flag}: {host!r} cannot be resolved: {error.strerror}") from None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise BadInput(f"{host_flag}: {host} is no address of this machine") from None
            owner = port_owner(port)
            whose = f"; taken by pid {owner.pid} ({owner.name()})" if owner else ""
            reason = (error.strerror or "error").lower()
            raise BadInput(
                f"{port_flag}: {port} on {host} cannot be used: {reason}{whose}; "
                "choose another, or 0 for any free one"
            ) from None


def free_block(width: int, apart_from: range = range(0)) -> range:
    """Ports in a row of which the first ones are free; drawn, so that two clusters differ. None of
    `apart_from`, which a cluster holds that is to be up at the same time: it takes some of them
    only later, and they look free until then."""
    for _ in range(100):
        first = random.randrange(BLOCKS.start, BLOCKS.stop - width)
        if first < apart_from.stop and apart_from.start < first + width:
            continue
        try:
            for port in range(first, first + min(width, _TRIED_OF_A_BLOCK)):
                with socket.socket() as probe:
                    probe.bind(("", port))  # all interfaces, as HAProxy binds some of them
        except OSError:
            continue
        return range(first, first + width)
    raise RunFailed(f"no {width} ports in a row are free between 20000 and 32000")


def open_to_network(roles: Mapping[int, str]) -> list[dict[str, Any]]:
    """Listening ports of these processes (pid to role) that are bound to more than loopback."""
    listening = [
        {"port": c.laddr.port, "address": c.laddr.ip, "role": roles[c.pid]}
        for c in _listening()
        if c.pid in roles and not is_loopback(c.laddr.ip)
    ]
    return sorted(listening, key=lambda entry: int(entry["port"]))


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address; gRPC binds loopback as `::ffff:127.0.0.1`."""
    return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback


def _listening() -> list[Any]:
    try:
        every = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS without root
        return []
    return [c for c in every if c.status == psutil.CONN_LISTEN]


def reachable(address: str, flag: str = "--address") -> str:
    """HOST:PORT of a cluster that takes connections. BadInput that names the flag otherwise."""
    host, colon, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    if not colon or not host or "/" in address or not 1 <= number <= 65535:
        raise BadInput(
            f"{flag}: {address!r} is not allowed; it takes HOST:PORT of the cluster's head, as "
            "`ray start --head` prints it (its port is 6379 unless told otherwise)"
        )
    try:
        with socket.create_connection((host.strip("[]"), number), CONNECT_S):
            return address
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"{flag}: no Ray cluster at {address}: {reason}") from None
