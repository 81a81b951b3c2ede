"""The Serve processes of this machine, whichever Ray cluster they belong to.

They are known by what they are: the title that Ray gives them, and a raylet above them. Rule: it
reads process tables and asks nobody; so it needs no address, no token and no ray.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

import psutil

from serve_bench.core.proof import role_of
from serve_bench.observing.host import cpu_ns, rss_bytes
from serve_bench.serving.ports import port_owner

SERVE_ROLES = ("proxy", "fallback_proxy", "haproxy", "haproxy_manager", "replica", "controller")

#: What `--target` and `--profile` take, and the roles that each means. `haproxy` is C.
TARGETS = {
    "proxy": ("proxy", "fallback_proxy", "haproxy_manager"),
    "replica": ("replica",),
    "controller": ("controller",),
    "haproxy": ("haproxy",),
    "all": ("proxy", "fallback_proxy", "haproxy_manager", "replica", "controller"),
}

_REPLICA = re.compile(r"ray::ServeReplica:(?P<app>[^:]*):(?P<deployment>[^.]*)")
_SESSION = re.compile(r"session_[0-9_-]+")


@dataclass(frozen=True)
class ServeProcess:
    """A process of Serve. `cluster` is the name of its Ray session, `app` only of a replica."""

    pid: int
    role: str
    title: str
    cluster: str
    app: str | None = None
    deployment: str | None = None


def serve_processes() -> list[ServeProcess]:
    """All Serve processes here, by cluster, role and pid."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            # A title that Ray sets takes the place of the command line, padded with blanks.
            title = " ".join(line).strip()
            role = role_of(title or process.name())
            if role not in SERVE_ROLES:
                continue
            cluster = _cluster_of(process)
        except psutil.Error:
            continue  # ended meanwhile
        if cluster is not None:
            found.append(ServeProcess(process.pid, role, title, cluster, *app_of(title)))
    found = _with_fallback(found)
    return sorted(found, key=lambda one: (one.cluster, SERVE_ROLES.index(one.role), one.pid))


def behind(url: str, unix_socket: str | None = None) -> list[ServeProcess]:
    """All processes of the Serve of this machine that answers the URL, its raylets with them; empty
    where another machine or another program does. Serve listens on no Unix socket."""
    if unix_socket is not None:
        return []
    parts = urlsplit(url)
    owner = port_owner(parts.port or {"https": 443}.get(parts.scheme, 80))
    if owner is None or not _is_here(parts.hostname or ""):
        return []
    every = serve_processes()
    clusters = {one.cluster for one in every if one.pid == owner.pid}
    found = [one for one in every if one.cluster in clusters]
    return [*found, *_raylets_of(found)]


def _raylets_of(processes: Iterable[ServeProcess]) -> list[ServeProcess]:
    found = {}
    for one in processes:
        try:
            raylet = _raylet_above(psutil.Process(one.pid))
        except psutil.Error:
            continue  # ended meanwhile
        if raylet is not None:
            found[raylet.pid] = ServeProcess(raylet.pid, "raylet", "raylet", one.cluster)
    return list(found.values())


def _is_here(host: str) -> bool:
    """Whether a name stands for an address of this machine. To connect to 0.0.0.0 is to connect to
    it, too."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    own = {one.address for many in psutil.net_if_addrs().values() for one in many}
    return bool(found) and all(at in own or _is_always_here(at) for at in found)


def _is_always_here(address: str) -> bool:
    at = ip_address(address)
    return at.is_loopback or at.is_unspecified


def app_of(title: str) -> tuple[str | None, str | None]:
    """App and deployment in the title of a replica; a method that runs stands behind a dot."""
    found = _REPLICA.match(title)
    return (found["app"], found["deployment"]) if found else (None, None)


def chosen(
    processes: Iterable[ServeProcess],
    target: str,
    app: str | None = None,
    deployment: str | None = None,
) -> list[ServeProcess]:
    """Those that `target` means; `app` and `deployment` narrow replicas down."""
    return [
        one
        for one in processes
        if one.role in TARGETS[target]
        and (one.role != "replica" or app in (None, one.app))
        and (one.role != "replica" or deployment in (None, one.deployment))
    ]


@dataclass(frozen=True)
class InUse:
    """A process, and what it used lately. `cpu`: % of a core."""

    process: ServeProcess
    cpu: float
    rss_bytes: int


def in_use(processes: Iterable[ServeProcess], seconds: float = 0.5) -> list[InUse]:
    """What each uses, looked at for so many seconds; those that end meanwhile are left out."""
    found = list(processes)
    before, began = {one.pid: cpu_ns(one.pid) for one in found}, time.perf_counter_ns()
    time.sleep(seconds if found else 0.0)
    out = []
    for one in found:
        then, now, rss = before[one.pid], cpu_ns(one.pid), rss_bytes(one.pid)
        if then is not None and now is not None and rss is not None:
            share = 100.0 * (now - then) / (time.perf_counter_ns() - began)
            out.append(InUse(one, share, rss))
    return out


def _cluster_of(process: psutil.Process) -> str | None:
    """The session name of the raylet above the process; None without one."""
    raylet = _raylet_above(process)
    if raylet is None:
        return None
    found = _SESSION.search(" ".join(raylet.cmdline()))
    return found.group() if found else f"raylet {raylet.pid}"


def _raylet_above(process: psutil.Process) -> psutil.Process | None:
    return next(
        (one for one in process.parents() if role_of(" ".join(one.cmdline())) == "raylet"), None
    )


def _with_fallback(processes: list[ServeProcess]) -> list[ServeProcess]:
    """Where HAProxy serves a cluster, the ProxyActor beside it is the fallback."""
    behind = {one.cluster for one in processes if one.role == "haproxy_manager"}
    return [
        replace(one, role="fallback_proxy")
        if one.role == "proxy" and one.cluster in behind
        else one
        for one in processes
    ]
