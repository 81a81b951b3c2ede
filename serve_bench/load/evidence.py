"""Is the client the bottleneck? What a worker's thread cost the machine, and the verdict on it.

Rule: all thresholds stand here, with their reasons; nothing else in the engine judges.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import ClientVerdict, WorkerReport

NON_IDLE_LIMIT = 0.85
"""A thread that ran or waited for a CPU for more of the time had no slack left. CPU time alone
misses it: with two hogs on its core a saturated client shows 0.33 of a core (measured)."""

ADDED_SHARE = 0.10
"""The client adds to the latency what responses lie in the kernel before it reads them, and what it
sends late. It is a limit when that is more than this share of the whole latency: of the sums over
all requests, so that a tail that the server made weighs as much as it took. With one connection
there is nothing to wait behind in the kernel, so that does not count there."""

ADDED_P50_NS = 200_000
ADDED_P99_SHARE = 0.01
"""What is added is no limit while its median is less than the first and its p99 less than this
share of the latency's p99, however short the latency: a timer is late by 50 us on an idle host."""

RUN_QUEUE_LIMIT = 0.05
"""For a spinning client, which is never idle: waiting for a CPU so much of the time delays its
sends; its non-idle share says nothing."""

SCHEDSTAT = "/proc/thread-self/schedstat"


@dataclass(frozen=True)
class Usage:
    """What the calling thread and process had used at an instant (ns)."""

    wall_ns: int
    cpu_ns: int
    run_ns: int | None
    wait_ns: int | None


def usage_now() -> Usage:
    """Read the clocks of this thread. The last two are None where there is no schedstat."""
    run_ns = wait_ns = None
    if os.path.exists(SCHEDSTAT):
        with open(SCHEDSTAT, encoding="ascii") as file:
            run_ns, wait_ns = (int(field) for field in file.read().split()[:2])
    return Usage(time.perf_counter_ns(), time.process_time_ns(), run_ns, wait_ns)


def max_rss_mb() -> float:
    """The highest resident memory of this process so far, in MB (10^6 bytes).

    Not ru_maxrss where /proc has it: that one is at least the parent's, whose memory the child has
    for a moment before exec.
    """
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def shares_between(begin: Usage, end: Usage) -> tuple[float | None, float | None]:
    """(non-idle, run-queue wait) as shares of the wall time between two readings."""
    wall = end.wall_ns - begin.wall_ns
    if wall <= 0 or None in (begin.run_ns, begin.wait_ns, end.run_ns, end.wait_ns):
        return None, None
    assert begin.run_ns is not None and end.run_ns is not None
    assert begin.wait_ns is not None and end.wait_ns is not None
    wait = end.wait_ns - begin.wait_ns
    return (end.run_ns - begin.run_ns + wait) / wall, wait / wall


def added_share(added: Histogram, latency: Histogram) -> float | None:
    """Which share of the latency the client added, in the mean; None where that is no limit."""
    (p50, p99), whole = added.percentiles((0.5, 0.99)), latency.percentile(0.99)
    if p50 is None or p99 is None or not whole or not latency.mean:
        return None
    if p50 < ADDED_P50_NS and p99 < ADDED_P99_SHARE * whole:
        return None
    share = (added.mean or 0.0) / latency.mean
    return share if share > ADDED_SHARE else None


def client_verdict(
    workers: Sequence[WorkerReport], pickup: Histogram, latency: Histogram, lag: Histogram
) -> ClientVerdict:
    """Whether the client set the figures, and why.

    `latency`: of all requests, each without an answer as long as it was waited for: what the client
    adds is no limit beside a server that answers no more. `lag`: how late requests were sent,
    without those that had to wait for a free connection, which is the server's doing.
    """
    reasons = []
    spinning = any(worker.timer == "spin" for worker in workers)
    non_idle = max((w.non_idle for w in workers if w.non_idle is not None), default=None)
    wait = max((w.run_queue_wait for w in workers if w.run_queue_wait is not None), default=None)
    if not spinning and non_idle is not None and non_idle > NON_IDLE_LIMIT:
        reasons.append(
            f"a load worker ran or waited for a CPU {100 * non_idle:.0f} % of the time "
            f"(limit {100 * NON_IDLE_LIMIT:.0f} %)"
        )
    if spinning and wait is not None and wait > RUN_QUEUE_LIMIT:
        reasons.append(f"a spinning load worker waited for a CPU {100 * wait:.0f} % of the time")
    several = sum(worker.connections for worker in workers) > 1
    if several and (share := added_share(pickup, latency)) is not None:
        reasons.append(f"responses waited in the client for {100 * share:.0f} % of their latency")
    if (share := added_share(lag, latency)) is not None:
        reasons.append(f"requests were sent late by {100 * share:.0f} % of their latency")
    return ClientVerdict(
        client_bound=bool(reasons),
        reasons=tuple(reasons),
        non_idle=non_idle,
        run_queue_wait=wait,
        pickup_p50_ns=pickup.percentile(0.5),
        latency_p50_ns=latency.percentile(0.5),
    )
