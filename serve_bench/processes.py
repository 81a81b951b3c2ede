"""The Serve processes of this machine, whichever Ray cluster they belong to.

They are known by what they are: the title that Ray gives them, and a raylet above them. Rule: it
reads process tables and asks nobody; so it needs no address, no token and no ray.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import psutil

from serve_bench.proof import role_of
from serve_bench.readings import cpu_ns, rss_bytes

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
    for parent in process.parents():
        line = " ".join(parent.cmdline())
        if role_of(line) == "raylet":
            found = _SESSION.search(line)
            return found.group() if found else f"raylet {parent.pid}"
    return None


def _with_fallback(processes: list[ServeProcess]) -> list[ServeProcess]:
    """Where HAProxy serves a cluster, the ProxyActor beside it is the fallback."""
    behind = {one.cluster for one in processes if one.role == "haproxy_manager"}
    return [
        replace(one, role="fallback_proxy")
        if one.role == "proxy" and one.cluster in behind
        else one
        for one in processes
    ]
