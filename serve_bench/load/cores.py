"""How many worker processes a load needs, and how many cores there are for them."""

from __future__ import annotations

import math
import os
from pathlib import Path

from serve_bench.core.load_spec import Load

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
