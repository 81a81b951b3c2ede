"""The Serve processes of this machine, of any Ray cluster.

They are recognized by the title that Ray sets, and by a raylet among their parents. Rule: only
process tables are read, so no address, no token and no ray is needed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import psutil

from serve_bench.core.proof import CHILD_OF_REPLICA, role_of
from serve_bench.core.usage import read_replica
from serve_bench.observing.host import cpu_ns, rss_bytes
from serve_bench.serving.launch_spec import port_owner
from serve_bench.serving.server import Process, with_fallback

SERVE_ROLES = (
    *("proxy", "fallback_proxy", "haproxy", "haproxy_manager", "replica", CHILD_OF_REPLICA),
    "controller",
)

#: The values of `--target` and `--profile`, with their roles.
TARGETS = {
    "proxy": ("proxy", "fallback_proxy", "haproxy_manager"),
    "replica": ("replica",),
    "controller": ("controller",),
    "all": ("proxy", "fallback_proxy", "haproxy_manager", "replica", "controller"),
}

_SESSION = re.compile(r"session_[0-9_-]+")


@dataclass(frozen=True)
class ServeProcess(Process):
    """A process of Serve. `cluster` is the name of its Ray session, `app` only of a replica."""

    cluster: str
    app: str | None = None
    deployment: str | None = None


def serve_processes() -> list[ServeProcess]:
    """List all Serve processes here, by cluster, role and pid."""
    out = []
    for process in psutil.process_iter():
        try:
            # The title of Ray replaces the command line, padded with blanks.
            title = " ".join(process.cmdline()).strip()
            role = role_of(title or process.name())
            if role not in SERVE_ROLES:
                continue
            above = process.parent() if role == "replica" else None
            if above is not None:  # of a fork, it is the replica
                role = role_of(title, role_of(" ".join(above.cmdline())))
            cluster = _name_cluster(process)
        except psutil.Error:
            continue  # ended meanwhile
        if cluster is not None:
            out.append(ServeProcess(process.pid, role, title, cluster, *read_replica(title)))
    found = with_fallback(out)
    return sorted(found, key=lambda it: (it.cluster, SERVE_ROLES.index(it.role), it.pid))


def behind(url: str, unix_socket: str | None = None) -> list[ServeProcess]:
    """List processes and raylets of the Serve behind the URL; empty if it is none, or not here."""
    if unix_socket is not None:  # Serve listens on none
        return []
    parts = urlsplit(url)
    owner = port_owner(parts.port or {"https": 443}.get(parts.scheme, 80))
    if owner is None or not is_here(parts.hostname or ""):
        return []
    processes = serve_processes()
    clusters = {process.cluster for process in processes if process.pid == owner.pid}
    serve = [process for process in processes if process.cluster in clusters]
    return [*serve, *_find_raylets(serve)]


def _find_raylets(processes: Iterable[ServeProcess]) -> list[ServeProcess]:
    raylets = {}
    for process in processes:
        try:
            raylet = _raylet_above(psutil.Process(process.pid))
        except psutil.Error:
            continue  # ended meanwhile
        if raylet is not None:
            raylets[raylet.pid] = ServeProcess(raylet.pid, "raylet", "raylet", process.cluster)
    return list(raylets.values())


def is_here(host: str) -> bool:
    """Return whether a name is an address of this machine. So is 0.0.0.0, to a client."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    our_ips = {ip.address for many in psutil.net_if_addrs().values() for ip in many}
    others = [ip_address(address) for address in addresses - our_ips]
    return bool(addresses) and all(ip.is_loopback or ip.is_unspecified for ip in others)


def chosen(
    processes: Iterable[ServeProcess],
    target: str,
    app: str | None = None,
    deployment: str | None = None,
) -> list[ServeProcess]:
    """Select the processes of a target; `app` and `deployment` select replicas."""
    return [
        process
        for process in processes
        if process.role in TARGETS[target]
        and (process.role != "replica" or app in (None, process.app))
        and (process.role != "replica" or deployment in (None, process.deployment))
    ]


@dataclass(frozen=True)
class InUse:
    """A process with its present use. `cpu`: % of a core."""

    process: ServeProcess
    cpu: float
    rss_bytes: int


def in_use(processes: Iterable[ServeProcess], seconds: float = 0.5) -> list[InUse]:
    """Measure the use of each process over `seconds`; leave out those that end meanwhile."""
    watched = list(processes)
    before, began = {serve.pid: cpu_ns(serve.pid) for serve in watched}, time.perf_counter_ns()
    time.sleep(seconds if watched else 0.0)
    out = []
    for serve in watched:
        then, now, rss = before[serve.pid], cpu_ns(serve.pid), rss_bytes(serve.pid)
        if then is not None and now is not None and rss is not None:
            share = 100.0 * (now - then) / (time.perf_counter_ns() - began)
            out.append(InUse(serve, share, rss))
    return out


def _name_cluster(process: psutil.Process) -> str | None:
    """Return the session name of the raylet above the process; None without one."""
    if (raylet := _raylet_above(process)) is None:
        return None
    match = _SESSION.search(" ".join(raylet.cmdline()))
    return match.group() if match else f"raylet {raylet.pid}"


def _raylet_above(process: psutil.Process) -> psutil.Process | None:
    parents = process.parents()
    return next((p for p in parents if role_of(" ".join(p.cmdline())) == "raylet"), None)
