"""What processes, host and GPUs used in a trial, as the verdict reads it from `usage`.

Rule: shares of one core (1.0), of one process at a time; a figure that was not sampled is None,
never 0. Where a replica belongs is told by the title that Ray gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serve_bench.analysis.verdict.limits import FEWEST_LOOKS, GIL_CEILING

SERVER: Final = ("haproxy", "proxy", "fallback_proxy", "replica")
"""Roles on the way of a request."""

_REPLICA: Final = re.compile(r"ray::ServeReplica:(?P<app>[^:]*):(?P<deployment>[^.\s]*)")


@dataclass(frozen=True)
class ProcessUse:
    """What a process used, in cores. `wait`: ready but waiting for a CPU, all its threads;
    `thread_wait`: its busiest."""

    pid: int
    role: str
    deployment: str | None  # "app:Name", of a replica
    cpu: float
    thread: float | None = None  # the busiest
    wait: float | None = None
    thread_wait: float | None = None

    @property
    def not_idle(self) -> float | None:
        """The share of the time that it ran or waited for a CPU: its busiest thread, where the wait
        of that is known. Threads that wait in turn look in their sum as if one never rested."""
        if self.thread is not None and self.thread_wait is not None:
            return max(self.level, min(1.0, self.thread + self.thread_wait))
        return None if self.held_up is None else self.level + self.held_up

    @property
    def level(self) -> float:
        """The share of one core in use, by what can run at one time: the busiest thread of a
        program with several native ones, all of a Python process, whose threads take turns."""
        native = self.role == "haproxy" or self.cpu > GIL_CEILING
        if self.thread is None:
            return min(self.cpu, 1.0)
        return self.thread if native else max(self.cpu, self.thread)

    @property
    def held_up(self) -> float | None:
        """What waiting for a CPU can have cost it, in cores: no more than it was not running.
        Threads of Python that take turns wait together for what only one of them could use."""
        return None if self.wait is None else min(self.wait, max(0.0, 1.0 - self.level))

    @property
    def starved(self) -> float | None:
        """The share of its demand for CPU that it was held up."""
        if self.held_up is None or self.level + self.held_up <= 0:
            return None
        return self.held_up / (self.level + self.held_up)


@dataclass(frozen=True)
class HostUse:
    """All cores together; `others` is what processes used that were not sampled."""

    cores: int
    cpu: float
    steal: float
    others: float

    @property
    def level(self) -> float:
        """The share of all cores that was in use or taken by the hypervisor."""
        return (self.cpu + self.steal) / self.cores


def short_name(deployment: str | None) -> str:
    """The name of a deployment without its app."""
    return (deployment or "").rpartition(":")[2]


def is_named(deployment: str | None, name: str | None) -> bool:
    """Whether a deployment ("app:Name") is the one of this name, told with its app or without."""
    return name is not None and name in (deployment, short_name(deployment))


def uses_of(usage: Mapping[str, Any]) -> Iterator[ProcessUse]:
    """The processes whose CPU is known."""
    for one in usage.get("processes", ()):
        cpu = _percent(one.get("cpu_percent"))
        if cpu is not None:
            named = _REPLICA.match(str(one.get("title", "")))
            where = f"{named['app']}:{named['deployment']}" if named else ""
            yield ProcessUse(
                pid=int(one["pid"]),
                role=str(one["role"]),
                deployment=where if one["role"] == "replica" else None,
                cpu=cpu,
                thread=_percent(one.get("busiest_thread_percent")),
                wait=_percent(one.get("run_queue_wait_percent")),
                thread_wait=_percent(one.get("busiest_thread_wait_percent")),
            )


def host_use(usage: Mapping[str, Any], uses: tuple[ProcessUse, ...]) -> HostUse | None:
    """The host as a whole; None where it was not sampled."""
    host = usage.get("host", {})
    cpu = _percent(host.get("cpu_percent"))
    if cpu is None or not host.get("cores"):
        return None
    watched = sum(use.cpu for use in uses)
    steal = _percent(host.get("steal_percent")) or 0.0
    return HostUse(int(host["cores"]), cpu, steal, cpu - watched)


def gpus(usage: Mapping[str, Any]) -> dict[int, float]:
    """The share of the time that each GPU ran something, by its number."""
    shares = {}
    for one in usage.get("gpus", ()):
        used = _percent(one.get("use_percent"))
        if used is not None:
            shares[int(one["device"])] = used
    return shares


def number(value: object) -> float | None:
    """A figure of a record; None for what is none."""
    return float(value) if isinstance(value, int | float) else None


def _percent(value: object) -> float | None:
    percent = number(value)
    return None if percent is None else percent / 100.0


def figure(value: float) -> str:
    """A figure in words with three digits: 0.535, 52.6, 4,878."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# --------------------------------------------------------------------------------------------------
# What was seen inside the replicas, as the record of a trial holds it (`waits`), in typed form.
#
# Rule: figures only; what follows from them is in waits.py, how they were got in
# serving/cluster/look.py.


@dataclass(frozen=True)
class WaitPlace:
    """Where requests wait: in which deployment ("app:Name"), what they await, the app's line and
    function."""

    deployment: str
    awaited: str
    line: str
    function: str


@dataclass(frozen=True)
class ReplicaLook:
    """One replica as it was seen; its deployment as "app:Name", numbers are means over the looks,
    shares are of the looks."""

    pid: int
    deployment: str
    looks: int
    most: int | None  # requests that it takes at once
    ongoing: float
    served: int
    mean_ms: float | None
    places: Mapping[WaitPlace, float]
    own: Mapping[WaitPlace, float]  # tasks of the app that are no request
    loop: Mapping[str, float]  # line of the app in which its loop is, and how often
    threads: Mapping[WaitPlace, float]
    pools: Mapping[str, Mapping[str, float]]
    batches: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Waits:
    """All replicas, and what a request takes alone and under the load (ms)."""

    replicas: tuple[ReplicaLook, ...] = ()
    p50_ms: float | None = None
    alone_ms: float | None = None
    seconds: float | None = None
    of: Mapping[str, tuple[ReplicaLook, ...]] = field(default_factory=dict)

    @property
    def longer(self) -> float | None:
        """How many times as long as alone a request takes under the load."""
        return self.p50_ms / self.alone_ms if self.p50_ms and self.alone_ms else None


def waits_of(record: Mapping[str, Any]) -> Waits:
    """The record's `waits`; empty where nothing was looked at. Replicas that were seen too few
    times are left out."""
    every = tuple(_replica(one) for one in record.get("replicas", ()))
    seen = tuple(one for one in every if one.looks >= FEWEST_LOOKS)
    of: dict[str, tuple[ReplicaLook, ...]] = {}
    for one in seen:
        of[one.deployment] = (*of.get(one.deployment, ()), one)
    return Waits(
        seen,
        number(record.get("p50_ms")),
        number(record.get("alone_p50_ms")),
        number(record.get("seconds")),
        of,
    )


def deployment_of(record: Mapping[str, Any]) -> str:
    """The deployment of a replica in the record, as its process is titled: "app:Name"."""
    return f"{record['app']}:{record['deployment']}"


def _replica(record: Mapping[str, Any]) -> ReplicaLook:
    name = deployment_of(record)

    def places(key: str) -> dict[WaitPlace, float]:
        return {WaitPlace(name, *map(str, one[:3])): float(one[3]) for one in record.get(key, ())}

    return ReplicaLook(
        pid=int(record.get("pid", 0)),
        deployment=name,
        looks=int(record["looks"]),
        most=record.get("max_ongoing"),
        ongoing=float(record.get("ongoing") or 0.0),
        served=int(record.get("served", 0)),
        mean_ms=number(record.get("mean_ms")),
        places=places("places"),
        own=places("own"),
        loop={str(line): float(share) for line, share in record.get("loop", ())},
        threads=places("threads"),
        pools=record.get("pools", {}),
        batches=record.get("batches", {}),
    )
