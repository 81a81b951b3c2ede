"""From readings of processes and the host to what they used in a span of time. Pure.

A reading is a running total at an instant (CPU time, time spent waiting for a CPU) or a level
(memory, threads). Rule: 100 % is one core; times are nanoseconds of one clock; a figure that the
readings do not carry is None, never 0. How readings are got: observing/sampler.py.
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from serve_bench.core.facts import HostUsage, OtherProgram, OthersUsage, ProcessUsage, TrialUsage
from serve_bench.core.histogram import SLOTS, Histogram, slot
from serve_bench.core.result import Metric

SHORTEST_NS: Final = 100_000_000
"""A CPU share over less than 0.1 s is noise: it neither counts as a maximum nor stands alone."""


@dataclass(frozen=True)
class Threads:
    """The threads of a process at an instant: running totals by thread id.

    `run_ns` on a CPU, `wait_ns` ready but waiting for one, `turns` times put on one (schedstat).
    """

    at_ns: int
    run_ns: Mapping[int, int]
    wait_ns: Mapping[int, int]
    turns: Mapping[int, int]


@dataclass
class Track:
    """All readings of one process, oldest first."""

    pid: int
    role: str
    title: str
    cpu_ns: list[tuple[int, int]] = field(default_factory=list)  # (at, total)
    rss_bytes: list[tuple[int, int]] = field(default_factory=list)  # (at, level)
    threads: list[Threads] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of threads that were once the busiest
    pss_bytes: int | None = None


@dataclass(frozen=True)
class HostReading:
    """The whole host at an instant: running totals of all its cores."""

    at_ns: int
    busy_ns: int
    steal_ns: int | None  # None where the system does not report it


def summary_of(track: Track, begin_ns: int, end_ns: int) -> ProcessUsage:
    """Summarize what a process used between two instants."""
    rss = [value for at_ns, value in track.rss_bytes if begin_ns <= at_ns <= end_ns]
    rss = rss or [value for _, value in track.rss_bytes[-1:]]
    share, seen_ns = cpu_percent(track.cpu_ns, begin_ns, end_ns)
    return ProcessUsage(
        pid=track.pid,
        role=track.role,
        title=track.title,
        cpu_percent=rounded(share),
        cpu_percent_max=rounded(cpu_percent_max(track.cpu_ns, begin_ns, end_ns)),
        seen_s=round(seen_ns / 1e9, 3),
        rss_mb=rounded(max(rss) / 1e6 if rss else None),
        pss_mb=rounded(None if track.pss_bytes is None else track.pss_bytes / 1e6),
        **_summarize_threads(track, begin_ns, end_ns),
    )


def cpu_percent(
    totals: Sequence[tuple[int, int]], begin_ns: int, end_ns: int
) -> tuple[float | None, int]:
    """Compute the CPU share between two instants, and the nanoseconds of them that are covered.

    The totals at the two instants are interpolated between the readings around them. A process that
    came later or ended earlier counts for the time it was seen."""
    if len(totals) < 2:
        return None, 0
    begin, end = max(begin_ns, totals[0][0]), min(end_ns, totals[-1][0])
    if end - begin < SHORTEST_NS:
        return None, max(0, end - begin)
    used = total_at(totals, end) - total_at(totals, begin)
    return 100.0 * used / (end - begin), end - begin


def cpu_percent_max(totals: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> float | None:
    """Return the highest share between two readings that follow each other."""
    shares = [
        100.0 * (after - before) / (later - earlier)
        for (earlier, before), (later, after) in pairwise(totals)
        if earlier >= begin_ns and later <= end_ns and later - earlier >= SHORTEST_NS
    ]
    return max(shares, default=None)


def total_at(totals: Sequence[tuple[int, int]], at_ns: int) -> float:
    """Interpolate a running total at an instant within the readings, at least one."""
    right = bisect_left(totals, at_ns, key=lambda reading: reading[0])
    if right == 0:
        return totals[0][1]
    if right == len(totals):
        return totals[-1][1]
    (before, low), (after, high) = totals[right - 1], totals[right]
    return low + (high - low) * (at_ns - before) / (after - before)


def host_summary(
    readings: Sequence[HostReading], begin_ns: int, end_ns: int, cores: int
) -> HostUsage:
    """Summarize CPU of all cores together (at most 100 x cores) and what a hypervisor took."""
    busy = [(reading.at_ns, reading.busy_ns) for reading in readings]
    steal = [(now.at_ns, now.steal_ns) for now in readings if now.steal_ns is not None]
    return HostUsage(
        cores=cores,
        cpu_percent=rounded(cpu_percent(busy, begin_ns, end_ns)[0]),
        cpu_percent_max=rounded(cpu_percent_max(busy, begin_ns, end_ns)),
        steal_percent=rounded(cpu_percent(steal, begin_ns, end_ns)[0]),
    )


@dataclass(frozen=True)
class OthersSpan:
    """CPU of other programs between two instants: nanoseconds by pid, of those that used much."""

    begin_ns: int
    end_ns: int
    used_ns: Mapping[int, int]


def others_summary(
    spans: Sequence[OthersSpan], names: Mapping[int, str], begin_ns: int, end_ns: int
) -> OthersUsage:
    """Summarize what other programs used between two instants, as means, the most first.

    Each has its busiest process. `names`: the programs by pid."""
    shares: list[float] = []
    programs: dict[str, Counter[int]] = {}
    for span in spans:
        overlap_ns = min(span.end_ns, end_ns) - max(span.begin_ns, begin_ns)
        part = max(0, overlap_ns) / (span.end_ns - span.begin_ns)
        used_ns = {pid: used for pid, used in span.used_ns.items() if part and pid in names}
        shares += [100.0 * sum(used_ns.values()) / (span.end_ns - span.begin_ns)] if part else []
        for pid, used in used_ns.items():
            programs.setdefault(names[pid], Counter())[pid] += round(used * part)
    listed = (
        OtherProgram(
            program=name,
            pid=by_pid.most_common(1)[0][0],
            processes=len(by_pid),
            cpu_percent=round(100.0 * by_pid.total() / (end_ns - begin_ns), 1),
        )
        for name, by_pid in sorted(programs.items(), key=lambda item: -item[1].total())
    )
    typical_percent = rounded(statistics.median(shares) if shares else None)
    return OthersUsage(typical_percent=typical_percent, programs=tuple(listed))


def rounded(value: float | None) -> float | None:
    """Round to one decimal: the readings carry no more."""
    return None if value is None else round(value, 1)


def _summarize_threads(track: Track, begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Count threads, waiting and turns between the readings nearest to the two instants."""
    nothing = {"threads": len(track.threads[-1].run_ns) if track.threads else None}
    if len(track.threads) < 2:
        return nothing
    first = min(track.threads, key=lambda reading: abs(reading.at_ns - begin_ns))
    last = min(track.threads, key=lambda reading: abs(reading.at_ns - end_ns))
    span_ns = last.at_ns - first.at_ns
    if span_ns < SHORTEST_NS:
        return nothing
    busiest = max(last.run_ns, key=lambda tid: last.run_ns[tid] - first.run_ns.get(tid, 0))
    run = last.run_ns[busiest] - first.run_ns.get(busiest, 0)
    waited = last.wait_ns.get(busiest, 0) - first.wait_ns.get(busiest, 0)
    wait = _add_growth(first.wait_ns, last.wait_ns)
    turns = _add_growth(first.turns, last.turns)
    return {
        "threads": len(last.run_ns),
        "busiest_thread": track.names.get(busiest),
        "busiest_thread_percent": rounded(100.0 * run / span_ns),
        "busiest_thread_wait_percent": rounded(100.0 * waited / span_ns),
        "run_queue_wait_percent": rounded(100.0 * wait / span_ns),
        "turns_per_s": rounded(1e9 * turns / span_ns),
    }


def _add_growth(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """Add up how much threads' totals grew, over those that are still there; new ones whole."""
    return sum(value - before.get(tid, 0) for tid, value in after.items())


ORDER: Final = (
    "load_worker agent observer haproxy haproxy_manager proxy fallback_proxy replica "
    "child_of_replica controller raylet gcs dashboard_agent serve_bench"
).split()
"""Roles in the order of a request's way; what else runs comes behind."""


@dataclass(frozen=True)
class RoleUse:
    """The processes of one role in a trial: CPU of all and of the busiest, % of a core; memory."""

    role: str
    processes: int
    cpu_percent: float
    busiest_percent: float
    memory_mb: float | None


def by_role(usage: TrialUsage) -> dict[str, RoleUse]:
    """Group the `usage` of a trial by role; several deployments apart, as "replica Ranker".

    Memory is proportional, None unless known of each process."""
    shares: dict[str, list[float]] = {}
    memory: dict[str, list[float | None]] = {}
    several = len({name for process in usage.processes if (name := deployment_of(process))}) > 1
    for process in usage.processes:
        if process.cpu_percent is not None:
            deployment = deployment_of(process) if several else None
            role = f"{process.role} {deployment}" if deployment else process.role
            shares.setdefault(role, []).append(process.cpu_percent)
            memory.setdefault(role, []).append(process.pss_mb)
    out = {}
    for role in sorted(shares, key=lambda name: (_rank_role(name), name)):
        sizes = [size for size in memory[role] if size is not None]
        count = len(shares[role])
        whole = sum(sizes) if len(sizes) == count else None
        out[role] = RoleUse(role, count, math.fsum(shares[role]), max(shares[role]), whole)
    return out


def deployment_of(process: ProcessUsage) -> str | None:
    """Return the deployment of a replica by its title; None for any other process."""
    return read_replica(process.title)[1] if process.role == "replica" else None


_REPLICA: Final = re.compile(r"ray::ServeReplica:([^:]*):([^.]*)")


def read_replica(title: str) -> tuple[str, str] | tuple[None, None]:
    """Return app and deployment in a replica's title; a running method follows after a dot."""
    match = _REPLICA.match(title)
    return (match[1], match[2].rstrip()) if match else (None, None)


MOST_PROGRAMS: Final = 3
"""Other programs that are named in a sentence."""


def others_words(usages: Sequence[TrialUsage]) -> str:
    """List the mean use of other programs in the `usage` of trials, the most first.

    `python x.py (pid 4711) used 56 % of a core, cc1 (3 processes) 12 %`; empty without one."""
    shares: dict[str, float] = defaultdict(float)
    latest: dict[str, OtherProgram] = {}
    others = [usage.others for usage in usages if usage.others is not None]
    for program in (program for other in others for program in other.programs):
        shares[program.program] += program.cpu_percent / len(usages)
        latest[program.program] = program
    texts: list[str] = []
    for name, share in sorted(shares.items(), key=lambda item: -item[1])[:MOST_PROGRAMS]:
        count = latest[name].processes
        which = f"pid {latest[name].pid}" if count == 1 else f"{count} processes"
        texts.append(f"{name} ({which}) {'' if texts else 'used '}{share:.0f} %")
        texts[0] += "" if texts[1:] else " of a core"
    return ", ".join(texts)


def _rank_role(role: str) -> int:
    role = role.partition(" ")[0]
    return ORDER.index(role) if role in ORDER else len(ORDER)


# What the replicas of an app count by themselves: requests taken, and batches by their size.
#
# A replica keeps its counts in a file named by its pid, in the folder of the launch: 8-byte
# numbers, the first the requests, then the batches of 1, of 2, of 3 ... A model's time stands in
# the same form in another folder: the first is the whole. They are running totals, exact at any
# moment, and to read them asks nothing of the replica. Rule: an app that keeps none has none, which
# is not 0. Pure: who counts is in apps/, who reads the files is serving/server.py.

FOLDER: Final = "SERVE_BENCH_COUNTS"
"""The variable that names the folder for a replica."""

FORWARD_SUFFIX: Final = "-forward-ns"
"""Beside that folder, with this ending: nanoseconds in the model, in all and by batch size."""

BATCH_SIZE: Final = "batch_size"
"""The metric of a trial that holds the sizes of all its batches."""

UNIT: Final = "requests"


@dataclass(frozen=True)
class ReplicaCounts:
    """Running totals of one replica: requests taken, and batches by their size."""

    requests: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)


def counts_of(content: bytes) -> ReplicaCounts:
    """Parse the numbers of a file, in the byte order of this machine; leave out a torn end."""
    numbers = memoryview(content[: len(content) // 8 * 8]).cast("Q")
    batches = {size: count for size, count in enumerate(numbers) if size and count}
    return ReplicaCounts(numbers[0], batches) if len(numbers) else ReplicaCounts()


@dataclass(frozen=True)
class ReplicaRequests:
    """What replicas took in a span: requests by pid, and batches of all of them by size."""

    requests: Mapping[int, int] = field(default_factory=dict)
    batches: Mapping[int, int] = field(default_factory=dict)
    forward_ns: Mapping[int, int] = field(default_factory=dict)  # in the model, by batch size

    @property
    def forward(self) -> dict[str, tuple[int, int]]:
        """By batch size, for the record: how many batches, and nanoseconds in the model."""
        ordered = sorted(self.forward_ns.items())
        return {str(size): (self.batches.get(size, 0), ns) for size, ns in ordered}

    @property
    def by_replica(self) -> dict[str, int]:
        """Requests by replica, for the record of a trial."""
        return {f"replica {pid}": count for pid, count in self.requests.items()}

    @property
    def batch_sizes(self) -> Metric | None:
        """The sizes as a histogram, exact below 2,048; None if no batch was formed."""
        if not self.batches:
            return None
        slots = [0] * SLOTS
        for size, count in self.batches.items():
            slots[slot(size)] += count
        histogram = Histogram(slots, max(self.batches), UNIT)
        return Metric(UNIT, "higher", histogram=histogram.encode())


def grown(
    before: Mapping[int, ReplicaCounts], after: Mapping[int, ReplicaCounts], replicas: Iterable[int]
) -> ReplicaRequests:
    """Count what grew in a span.

    `replicas`: those that are there now; one that has counts and took no request stands with 0, and
    one that took some and ended stands too."""
    now = set(replicas)
    requests: dict[int, int] = {}
    batches: Counter[int] = Counter()
    for pid, counts in sorted(after.items()):
        former = before.get(pid, ReplicaCounts())
        taken = counts.requests - former.requests
        if taken or pid in now:
            requests[pid] = taken
        for size, count in counts.batches.items():
            batches[size] += count - former.batches.get(size, 0)
    sizes = {size: count for size, count in sorted(batches.items()) if count}
    return ReplicaRequests(requests, sizes)


def mean_forward_ns(forwards: Iterable[Mapping[str, Sequence[int]]]) -> float | None:
    """Return the nanoseconds in the model per batch of these records; None without a batch."""
    pairs = [pair for forward in forwards for pair in forward.values()]
    batches = sum(count for count, _ in pairs)
    return sum(ns for _, ns in pairs) / batches if batches else None
