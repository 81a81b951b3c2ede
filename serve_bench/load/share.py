"""A worker's share of a load. Plain data, sent from the parent to the worker as JSON."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TypeVar

from serve_bench.core.load_spec import Load

# --------------------------------------------------------------------------------------------------
# How many worker processes a load needs, and how many cores there are for them.

RAW_RATE_PER_WORKER = 25_000.0
"""Requests/s of an open loop that one raw worker sends on time: above, the send lag grows
(measured: 54 % of a core at 10 k/s with timerfd, 60 k/s the most)."""

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def cgroup_quota() -> float | None:
    """The CPUs that the control group allows; None without a limit."""
    if CGROUP_V2.exists():
        quota, period = CGROUP_V2.read_text(encoding="ascii").split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    quota_file = CGROUP_V1 / "cpu.cfs_quota_us"
    if quota_file.exists():
        quota_us = int(quota_file.read_text(encoding="ascii"))
        period_us = int((CGROUP_V1 / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return quota_us / period_us if quota_us > 0 else None
    return None


def usable_cores() -> int:
    """Whole cores this process may use: by affinity and by quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cgroup_quota()
    return max(1, min(cores or 1, int(quota) if quota is not None else cores or 1))


def enough_processes(load: Load, cores: int) -> int:
    """How many workers a load gets when it does not say.

    raw: one is as fast as wrk, so one, or more for an open loop of a high rate. aiohttp: a worker
    for each connection. Both: never more than half the cores (the server needs the rest), nor
    more than there are connections, and at least one.
    """
    if load.processes is not None:
        return load.processes
    if load.client == "aiohttp":
        wanted = load.connections
    elif load.open_loop:
        wanted = math.ceil(max(stage.rate for stage in load.schedule) / RAW_RATE_PER_WORKER)
    else:
        wanted = 1
    return max(1, min(wanted, cores // 2, load.connections))


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """Worker `worker` of `workers`: its connections, how far they may grow, its part of a count.

    `each`: of each connection so many requests, and no more. `first`: the number of its first
    connection, when those of all workers are counted through from 0.
    """

    worker: int
    workers: int
    connections: int
    limit: int
    count: int | None
    each: int | None = None
    first: int = 0


def divide(total: int, workers: int) -> list[int]:
    """`total` in as equal parts as whole numbers allow; the first ones are the larger."""
    base, extra = divmod(total, workers)
    return [base + (1 if i < extra else 0) for i in range(workers)]


def shares(load: Load, workers: int) -> list[Share]:
    """The shares of all workers.

    A count is divided evenly. With `each`, a worker's count follows from its connections, which
    need not be as many as another's.
    """
    connections = divide(load.connections, workers)
    limits = divide(load.connection_limit, workers)
    counts: list[int | None] = [None] * workers
    if load.each is not None:
        counts = [load.each * mine for mine in connections]
    elif load.count is not None:
        counts = list(divide(load.count, workers))
    return [
        Share(i, workers, connections[i], limits[i], counts[i], load.each, sum(limits[:i]))
        for i in range(workers)
    ]


# --------------------------------------------------------------------------------------------------
# Which of a load's requests is sent next: in turn, or drawn. Both clients ask here.
#
# Rule: what follows depends on the load, its seed and the worker's number alone, so a load can be
# repeated. What the requests are is `Request.turns`.

_R = TypeVar("_R")


def next_turn(load: Load, share: Share, requests: Sequence[_R]) -> Callable[[], _R]:
    """A function that gives the next of `requests`, which stand for `load.request.turns`.

    Workers that cycle through paths or headers begin as far from one another as they can: one that
    follows close behind another would find in the server's caches what that one has just asked for.
    """
    if load.request.draw == "random":
        draw = random.Random(f"{load.seed}/body/{share.worker}").choice
        return lambda: draw(requests)
    apart = load.request.paths or load.request.header_sets
    first = len(requests) * share.worker // share.workers if apart else 0
    return cycle([*requests[first:], *requests[:first]]).__next__
