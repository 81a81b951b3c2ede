"""The use of processes, host and GPUs in a trial, as the verdict reads it from `usage`.

Rule: shares of one core (1.0), for one process at a time; a figure that was not sampled is None,
never 0. The title that Ray sets names the deployment of a replica.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from serve_bench.analysis.verdict.limits import FEWEST_LOOKS, GIL_CEILING, ITS_THREAD, RESTING
from serve_bench.core.facts import ReplicaWaits, TrialUsage, WaitsFacts
from serve_bench.core.figures import figure as figure
from serve_bench.core.usage import others_words, read_replica

SERVER: Final = ("haproxy", "proxy", "fallback_proxy", "replica")
"""Roles on the way of a request."""


@dataclass(frozen=True)
class ProcessUse:
    """The use of a process, in cores.

    `level`: the share of one core in use: of the busiest thread in a program with several native
    ones, of all threads of a Python process, which take turns. `held_up`: the most that waiting for
    a CPU cost it: no more than it was not running, since several threads may wait for a core that
    only one could use. `awake`: the share of time that its busiest thread ran or waited for a CPU,
    or all its threads ran; None if the wait of that thread is not known. `not_idle`: the same; by
    the waits of all threads together where no other is known. The sum of threads that wait in turn
    looks like one that is never idle."""

    pid: int
    role: str
    deployment: str | None  # "app:Name", of a replica
    cpu: float
    thread: float | None  # of the busiest
    wait: float | None  # all its threads ready but waiting for a CPU
    level: float
    held_up: float | None
    awake: float | None
    not_idle: float | None


@dataclass(frozen=True)
class HostUse:
    """All cores together."""

    cores: int
    cpu: float
    steal: float
    level: float  # the share of all cores in use or taken by the hypervisor
    others: float  # the use of processes that were not sampled
    programs: str  # those of them that are known by name, in words


def short_name(deployment: str | None) -> str:
    """Return the name of a deployment without its app."""
    return (deployment or "").rpartition(":")[2]


def is_named(deployment: str | None, name: str | None) -> bool:
    """Return whether a deployment ("app:Name") has this name, with its app or without."""
    return name is not None and name in (deployment, short_name(deployment))


def read_usage(usage: TrialUsage) -> tuple[tuple[ProcessUse, ...], HostUse | None]:
    """Return the processes with a known CPU use, and the host; None if that was not sampled."""
    uses: list[ProcessUse] = []
    for process in usage.processes:
        if process.cpu_percent is None:
            continue
        (app, name), role = read_replica(process.title), process.role
        where = f"{app}:{name}" if name else ""
        cpu = process.cpu_percent / 100.0
        thread, wait, thread_wait = (
            None if percent is None else percent / 100.0
            for percent in (
                process.busiest_thread_percent,
                process.run_queue_wait_percent,
                process.busiest_thread_wait_percent,
            )
        )
        native = role == "haproxy" or cpu > GIL_CEILING
        level = min(cpu, 1.0) if thread is None else thread if native else max(cpu, thread)
        held_up = None if wait is None else min(wait, max(0.0, 1.0 - level))
        not_idle = awake = None
        if thread is not None and thread_wait is not None:
            not_idle = awake = max(level, min(1.0, thread + thread_wait))
        # A busiest thread with little of the CPU of a process that computes says nothing of it.
        elsewhere = cpu >= RESTING and thread is not None and thread < ITS_THREAD * cpu
        if held_up is not None and (awake is None or elsewhere):
            not_idle = level + held_up
        deployment = where if role == "replica" else None
        known = (process.pid, role, deployment, cpu, thread, wait)
        uses.append(ProcessUse(*known, level, held_up, awake, not_idle))
    host = usage.host
    if host.cpu_percent is None or not host.cores:
        return tuple(uses), None
    cpu, steal = host.cpu_percent / 100.0, (host.steal_percent or 0.0) / 100.0
    level, others = (cpu + steal) / host.cores, cpu - math.fsum(use.cpu for use in uses)
    return tuple(uses), HostUse(host.cores, cpu, steal, level, others, others_words([usage]))


# Observations inside the replicas: the `waits` of the record of a trial, typed.
#
# Rule: figures only. serving/cluster/look.py collects them, waits.py judges them.


class WaitPlace(NamedTuple):
    """Where requests wait: deployment ("app:Name"), what they await, the app's line, function."""

    deployment: str
    awaited: str
    line: str
    function: str


def count_places(
    replicas: Iterable[ReplicaWaits], kind: Literal["places", "own", "threads"] = "places"
) -> dict[WaitPlace, float]:
    """Add up what replicas have at each place; `own`: tasks of the app that are no request."""
    counts: dict[WaitPlace, float] = defaultdict(float)
    for replica in replicas:
        for *place, count in getattr(replica, kind):
            counts[WaitPlace(replica.name, *place)] += count
    return counts


@dataclass(frozen=True)
class SlotUse:
    """The slots of a deployment during a look."""

    slots: int
    held: float  # the mean number of requests in them
    rate: float  # requests/s that left them
    most: float | None  # requests/s if they were never idle

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
    """All replicas, and the time of a request alone and under the load."""

    replicas: tuple[ReplicaWaits, ...]
    p50_ms: float | None  # under the load
    alone_ms: float | None
    longer: float | None  # the time under the load over that alone
    seconds: float | None
    of: Mapping[str, tuple[ReplicaWaits, ...]]  # the replicas of each deployment

    def slot_use(self, deployment: str | None) -> SlotUse | None:
        """Return how the slots of a deployment were used; None if no request left them.

        Looks miss short requests, so slots were held at least for the times of those that left."""
        named = (looks for name, looks in self.of.items() if is_named(name, deployment))
        replicas = [replica for looks in named for replica in looks if replica.max_ongoing]
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
    """Return the `waits` of a record, without replicas with too few looks."""
    seen = tuple(replica for replica in record.replicas if replica.looks >= FEWEST_LOOKS)
    names = dict.fromkeys(replica.name for replica in seen)
    of = {name: tuple(replica for replica in seen if replica.name == name) for name in names}
    p50_ms, alone_ms = record.p50_ms, record.alone_p50_ms
    longer = p50_ms / alone_ms if p50_ms and alone_ms else None
    return Waits(seen, p50_ms, alone_ms, longer, record.seconds, of)
