"""The use of processes, host and GPUs in a trial, as the verdict reads it from `usage`.

Rule: shares of one core (1.0), for one process at a time; a figure that was not sampled is None,
never 0. The title that Ray sets names the deployment of a replica.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from serve_bench.analysis.verdict.limits import FEWEST_LOOKS, GIL_CEILING, ITS_THREAD, RESTING
from serve_bench.core.facts import ReplicaWaits, TrialUsage, WaitsFacts
from serve_bench.core.figures import figure as figure
from serve_bench.core.usage import others_words

SERVER: Final = ("haproxy", "proxy", "fallback_proxy", "replica")
"""Roles on the way of a request."""

_REPLICA: Final = re.compile(r"ray::ServeReplica:(?P<app>[^:]*):(?P<deployment>[^.\s]*)")


@dataclass(frozen=True)
class ProcessUse:
    """The use of a process, in cores. `wait`: all its threads ready but waiting for a CPU;
    `thread_wait`: the busiest one."""

    pid: int
    role: str
    deployment: str | None  # "app:Name", of a replica
    cpu: float
    thread: float | None = None  # the busiest
    wait: float | None = None
    thread_wait: float | None = None

    @property
    def awake(self) -> float | None:
        """The share of time that its busiest thread ran or waited for a CPU, or all its threads
        ran, which take turns; None if the wait of that thread is not known."""
        if self.thread is None or self.thread_wait is None:
            return None
        return max(self.level, min(1.0, self.thread + self.thread_wait))

    @property
    def not_idle(self) -> float | None:
        """The same; by the waits of all threads together where no other is known. The sum of
        threads that wait in turn looks like one that is never idle. A busiest thread that has
        little of the CPU of a process that computes says nothing of it."""
        least = ITS_THREAD * self.cpu
        elsewhere = self.cpu >= RESTING and self.thread is not None and self.thread < least
        if self.held_up is None or (self.awake is not None and not elsewhere):
            return self.awake
        return self.level + self.held_up

    @property
    def level(self) -> float:
        """The share of one core in use: of the busiest thread in a program with several native
        ones, of all threads of a Python process, which take turns."""
        native = self.role == "haproxy" or self.cpu > GIL_CEILING
        if self.thread is None:
            return min(self.cpu, 1.0)
        return self.thread if native else max(self.cpu, self.thread)

    @property
    def held_up(self) -> float | None:
        """The most that waiting for a CPU cost it, in cores: no more than it was not running.
        Python threads take turns, so several wait for a core that only one could use."""
        return None if self.wait is None else min(self.wait, max(0.0, 1.0 - self.level))

    @property
    def starved(self) -> float | None:
        """The share of its demand for CPU that it waited."""
        demand = self.level + (self.held_up or 0.0)
        return None if self.held_up is None or demand <= 0 else self.held_up / demand


@dataclass(frozen=True)
class HostUse:
    """All cores together. `others`: the use of processes that were not sampled; `programs`: those
    that are known by name, in words."""

    cores: int
    cpu: float
    steal: float
    others: float
    programs: str = ""

    @property
    def level(self) -> float:
        """The share of all cores in use or taken by the hypervisor."""
        return (self.cpu + self.steal) / self.cores


def short_name(deployment: str | None) -> str:
    """The name of a deployment without its app."""
    return (deployment or "").rpartition(":")[2]


def is_named(deployment: str | None, name: str | None) -> bool:
    """Whether a deployment ("app:Name") has this name, with its app or without."""
    return name is not None and name in (deployment, short_name(deployment))


def uses_of(usage: TrialUsage) -> Iterator[ProcessUse]:
    """The processes with a known CPU use."""
    for process in usage.processes:
        if process.cpu_percent is not None:
            named = _REPLICA.match(process.title)
            where = f"{named['app']}:{named['deployment']}" if named else ""
            yield ProcessUse(
                pid=process.pid,
                role=process.role,
                deployment=where if process.role == "replica" else None,
                cpu=process.cpu_percent / 100.0,
                thread=_share(process.busiest_thread_percent),
                wait=_share(process.run_queue_wait_percent),
                thread_wait=_share(process.busiest_thread_wait_percent),
            )


def host_use(usage: TrialUsage, uses: tuple[ProcessUse, ...]) -> HostUse | None:
    """The use of the host; None if it was not sampled."""
    host = usage.host
    cpu = _share(host.cpu_percent)
    if cpu is None or not host.cores:
        return None
    watched = sum(use.cpu for use in uses)
    steal = _share(host.steal_percent) or 0.0
    return HostUse(host.cores, cpu, steal, cpu - watched, others_words([usage]))


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


# Observations inside the replicas: the `waits` of the record of a trial, typed.
#
# Rule: figures only. serving/cluster/look.py collects them, waits.py judges them.


class WaitPlace(NamedTuple):
    """Where requests wait: the deployment ("app:Name"), what they await, the app's line and
    function."""

    deployment: str
    awaited: str
    line: str
    function: str


def count_places(
    replicas: Iterable[ReplicaWaits], kind: Literal["places", "own", "threads"] = "places"
) -> dict[WaitPlace, float]:
    """What was seen in some replicas, added up. `own`: tasks of the app that are no request."""
    counts: dict[WaitPlace, float] = defaultdict(float)
    for replica in replicas:
        for *place, count in getattr(replica, kind):
            counts[WaitPlace(replica.name, *place)] += count
    return counts


@dataclass(frozen=True)
class SlotUse:
    """The slots of a deployment during a look. `held`: the mean number of requests in them;
    `rate`: requests/s that left them; `most`: requests/s if they were never idle."""

    slots: int
    held: float
    rate: float
    most: float | None

    @property
    def share(self) -> float:
        """The share of time that a slot held a request."""
        return self.held / self.slots

    @property
    def gap_s(self) -> float:
        """Seconds that a slot is idle between two requests."""
        return (self.slots - self.held) / self.rate


@dataclass(frozen=True)
class Waits:
    """All replicas, and the time of a request alone and under the load (ms)."""

    replicas: tuple[ReplicaWaits, ...] = ()
    p50_ms: float | None = None
    alone_ms: float | None = None
    seconds: float | None = None
    of: Mapping[str, tuple[ReplicaWaits, ...]] = field(default_factory=dict)

    @property
    def longer(self) -> float | None:
        """The time of a request under the load over that alone."""
        return self.p50_ms / self.alone_ms if self.p50_ms and self.alone_ms else None

    def slot_use(self, deployment: str | None) -> SlotUse | None:
        """How the slots of a deployment were used; None if no request was seen to leave them. Looks
        miss short requests, so slots were held at least for the times of those that left."""
        named = (every for name, every in self.of.items() if is_named(name, deployment))
        replicas = [replica for every in named for replica in every if replica.max_ongoing]
        slots = sum(replica.max_ongoing or 0 for replica in replicas)
        served = sum(replica.served for replica in replicas)
        if not served or not self.seconds:
            return None
        inside_ms = sum(replica.served * (replica.mean_ms or 0.0) for replica in replicas)
        at_looks = sum(min(replica.ongoing, replica.max_ongoing or 0) for replica in replicas)
        held = max(at_looks, min(slots, inside_ms / 1e3 / self.seconds))
        most = 1e3 * slots * served / inside_ms if inside_ms else None
        return SlotUse(slots, held, served / self.seconds, most)


def waits_of(record: WaitsFacts) -> Waits:
    """The `waits` of a record; empty without observations. Replicas with too few looks are left
    out."""
    seen = tuple(replica for replica in record.replicas if replica.looks >= FEWEST_LOOKS)
    of: dict[str, tuple[ReplicaWaits, ...]] = {}
    for replica in seen:
        of[replica.name] = (*of.get(replica.name, ()), replica)
    return Waits(seen, record.p50_ms, record.alone_p50_ms, record.seconds, of)
