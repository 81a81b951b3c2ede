"""Is the machine fit to measure with (cores, quota, governor, load, steal, clock)? Is there room
(memory, swap, shared memory, disk, open files, ports for connections)?

Rule: a check either reads (with a Machine) or judges (numbers in, a Check out); thresholds stand
before the checks with their reasons. Nothing is changed.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

from serve_bench.analysis.checks import BUSY_SHARE, Check, CheckStatus
from serve_bench.benchmarks.scale.needs import BASE_BYTES, REPLICA_BYTES
from serve_bench.doctor.machine import GIB, Machine, doubt, plural, size
from serve_bench.load.connection import SPARE_FDS
from serve_bench.load.workers import cgroup_files, cpu_quota_cores
from serve_bench.observing import host
from serve_bench.serving.launch_spec import BLOCKS, lacking_open_files

# --------------------------------------------------------------------------------------------------
# The CPU and the clock.

FEW_CORES: Final = 4
"""Proxy, replica and load worker use up to a core each, Ray's other processes some of a fourth: on
2 cores the host was at 168 to 181 of 200 % in the README's own example, and was the limit."""

STEAL_LIMIT: Final = 0.02
"""Share of CPU time that the hypervisor gave to others. The noise of an A/B in slices is about 2 %
(docs/ab.md): steal above it is no longer small beside what is to be told apart. 0.5 s on 2 cores
are 100 ticks, so one tick is 1 %."""

THROTTLED_LIMIT: Final = 0.01
"""Share of a quota's periods (mostly 0.1 s) in which it stopped the processes: one in a hundred is
where p99 shows nothing else."""

READING_LIMIT_NS: Final = 500.0
"""A reading of the clock takes about 45 ns by TSC. The raw client needs 7 to 9 us of CPU per
request and reads the clock for each: half a microsecond would be over 5 % of that."""

STEP_LIMIT_NS: Final = 1_000
"""The shortest median latency of Serve seen is 0.28 ms; steps above 1 us would be 0.4 % of it."""

SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""Clock sources that Linux cannot read without entering the kernel (its vDSO has no code for them:
arch/x86/include/asm/vdso/clocksource.h lists TSC, KVM and Hyper-V), or that are coarse."""

FAST_CLOCKS: Final = frozenset({"tsc", "arch_sys_counter", "kvm-clock"})
CLOCK: Final = "sys/devices/system/clocksource/clocksource0/"


@dataclass(frozen=True)
class Ticks:
    """Running totals of /proc/stat and /proc/vmstat; None where the kernel does not tell."""

    stolen: int | None
    all: int
    swapped_pages: int | None


def ticks(machine: Machine) -> Ticks | None:
    """The totals now; None without /proc."""
    stat = machine.text("proc/stat")
    if not stat:
        return None
    # user nice system idle iowait irq softirq steal; what comes after is counted in these
    fields = [int(field) for field in stat.splitlines()[0].split()[1:9]]
    lines = (machine.text("proc/vmstat") or "").splitlines()
    swapped = [int(n) for name, n in (line.split() for line in lines) if name in _SWAPPED]
    stolen = fields[7] if len(fields) == 8 else None
    return Ticks(stolen, sum(fields), sum(swapped) if swapped else None)


_SWAPPED: Final = ("pswpin", "pswpout")


def read_cores(machine: Machine) -> Check:
    """The cores that this process may use."""
    logical = psutil.cpu_count(logical=True) or os.cpu_count() or 0
    process = psutil.Process()
    usable = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else logical
    return cores(usable, logical, host.cpu_model(machine.root))


def cores(usable: int, logical: int, model: str | None) -> Check:
    """Enough for server and client?"""
    value = f"{usable} usable of {logical}" + (f", {model}" if model else "")
    detail = {"usable": usable, "logical": logical, "model": model}
    if not usable:
        return Check("cores", "unknown", "not reported by the system", detail=detail)
    advice = ""
    if usable < FEW_CORES:
        advice = (
            "proxy, replica and load worker want a core each, and Ray one more: rows are often "
            "limited by the host here, not by Serve; load from another machine helps (--load-on)"
        )
        if usable < logical <= FEW_CORES or usable < FEW_CORES <= logical:
            advice = (
                f"this shell may use only {plural(usable, 'core')} (taskset, cpuset): allow it more"
            )
    return doubt("cores", value, advice, detail)


def read_quota(machine: Machine) -> Check:
    """The CPU quota of the cgroup, of either version, and how often it stopped this one."""
    if not (machine.root / "sys/fs/cgroup").is_dir():
        return Check("CPU quota", "unknown", "no cgroups here (/sys/fs/cgroup is missing)")
    seen = ("sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu.max")
    if not any((machine.root / name).exists() for name in seen):
        return Check("CPU quota", "unknown", "/sys/fs/cgroup shows no CPU controller")
    quota = cpu_quota_cores(machine.root)
    stats = cgroup_files(machine.root, "", "cpu.stat") if quota is not None else []
    stats += cgroup_files(machine.root, "cpu", "cpu.stat") if quota is not None else []
    return quota_of(quota, [_throttled(text) for text in stats], os.cpu_count() or 1)


def _throttled(stat: str) -> tuple[int, int]:
    """Periods of a cpu.stat, and those in which the quota was used up."""
    fields = dict(line.split()[:2] for line in stat.splitlines() if len(line.split()) >= 2)
    return int(fields.get("nr_periods", 0)), int(fields.get("nr_throttled", 0))


def quota_of(quota: float | None, stats: Sequence[tuple[int, int]], logical: int) -> Check:
    """Does a quota stop what is measured? `stats`: periods and throttled ones, by cgroup."""
    periods, throttled = max(stats, key=lambda pair: pair[1], default=(0, 0))
    share = throttled / periods if periods else 0.0
    detail = {"cores": quota, "periods": periods, "throttled": throttled}
    if quota is None:
        return Check("CPU quota", "ok", "none set by a cgroup", detail=detail)
    value = f"{quota:g} of {logical} cores (cgroup)"
    if periods:
        value += f", used up in {100 * share:.1f} % of its periods so far"
    advice = (
        "a quota that is used up stops all processes for the rest of a period, which shows as "
        "high percentiles: take it away (docker --cpus, Kubernetes limits.cpu), or use docker "
        "--cpuset-cpus instead"
    )
    harmless = quota >= logical and share <= THROTTLED_LIMIT
    return doubt("CPU quota", value, "" if harmless else advice, detail)


def read_governor(machine: Machine) -> Check:
    """The frequency governors of all cores."""
    files = sorted((machine.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    names = [machine.text(f"{file.relative_to(machine.root)}/scaling_governor") for file in files]
    return governor([name for name in names if name])


def governor(names: Sequence[str]) -> Check:
    """Is the frequency held up? `performance` is what benchmark tools ask for (Google Benchmark,
    docs/reducing_variance.md; Node.js, writing-and-running-benchmarks.md)."""
    counts = Counter(names)
    if not names:
        why = "no cpufreq in /sys: mostly a virtual machine, whose host sets the frequency"
        return Check("CPU governor", "unknown", why)
    value = ", ".join(f"{name} on {n} of {len(names)} cores" for name, n in counts.most_common())
    advice = (
        "the frequency follows the load, so low rates look slower than they are: "
        "sudo cpupower frequency-set --governor performance"
    )
    steady = set(names) == {"performance"}
    return doubt("CPU governor", value, "" if steady else advice, dict(counts))


def read_load(machine: Machine) -> Check:
    """The load averages of the host, which are of all its cores, in a container too."""
    try:
        averages = os.getloadavg()
    except OSError:
        return Check("load", "unknown", "the system tells no load average")
    return load(averages, os.cpu_count() or 1, host.busy_cores())


def load(averages: Sequence[float], logical: int, busy: float | None = None) -> Check:
    """Is the machine used by others? `busy`: cores in use now. The same threshold as the check
    `busy-host` of a report, which looks at what runs just before."""
    value = "" if busy is None else f"{busy:.2f} cores in use now, load average "
    value += f"{averages[0]:.2f} in the last minute on {logical} cores"
    if len(averages) == 3:
        value += f" ({averages[1]:.2f} in 5, {averages[2]:.2f} in 15)"
    detail = {"averages": list(averages), "cores": logical, "busy": busy}
    quiet = (averages[0] if busy is None else busy) <= BUSY_SHARE * logical
    advice = "other work takes the cores: `top` names it; wait for it to end"
    check = doubt("load", value, "" if quiet else advice, detail)
    return replace(check, passing=not quiet)


def steal(before: Ticks | None, after: Ticks | None, watched_s: float) -> Check:
    """What the hypervisor gave to others, while watched and since the start."""
    if before is None or after is None:
        return Check("steal", "unknown", "no /proc/stat here: not Linux")
    if before.stolen is None or after.stolen is None:
        return Check("steal", "unknown", "this kernel does not tell it")
    passed = after.all - before.all
    since_boot = after.stolen / after.all if after.all else 0.0
    now = (after.stolen - before.stolen) / passed if passed > 0 else 0.0
    short = f"{100 * now:.0f} % in {watched_s:g} s just now, " if passed > 0 else ""
    value = f"the hypervisor took {short}{100 * since_boot:.2f} % of CPU time since the start"
    detail = {"now": round(now, 4), "since_boot": round(since_boot, 6)}
    advice = "the hypervisor gives cores to other machines: use dedicated ones, or more launches"
    return doubt("steal", value, advice if max(now, since_boot) > STEAL_LIMIT else "", detail)


def read_clock(machine: Machine) -> Check:
    """The clock source of the kernel, what a reading costs, and the smallest step."""
    source = machine.text(CLOCK + "current_clocksource")
    others = (machine.text(CLOCK + "available_clocksource") or "").split()
    return clock(source, others, *clock_cost(time.perf_counter_ns))


def clock_cost(now: Callable[[], int]) -> tuple[float, int]:
    """Nanoseconds of a reading (the best of five rows of 500), and the smallest step seen."""
    costs: list[float] = []
    steps: set[int] = set()
    for _ in range(5):
        read = [now() for _ in range(500)]
        costs.append((read[-1] - read[0]) / (len(read) - 1))
        steps |= {b - a for a, b in itertools.pairwise(read) if b > a}
    return min(costs), min(steps, default=0)


def clock(source: str | None, others: Sequence[str], cost_ns: float, step_ns: int) -> Check:
    """Is it cheap and fine enough? Both are measured, so a name alone makes nothing ok."""
    value = f"{source or 'source unknown'}, a reading takes {cost_ns:.0f} ns"
    value += f", smallest step {step_ns} ns" if step_ns else ", no step was seen"
    detail = {"source": source, "reading_ns": round(cost_ns, 1), "step_ns": step_ns}
    slow = source in SLOW_CLOCKS or cost_ns > READING_LIMIT_NS
    if not slow and 0 < step_ns <= STEP_LIMIT_NS:
        return Check("clock", "ok", value, detail=detail)
    better = [name for name in others if name in FAST_CLOCKS and name != source]
    advice = "each reading of time costs the clients and Ray too much, or is too coarse: "
    if better:
        advice += f"echo {better[0]} | sudo tee /{CLOCK}current_clocksource"
    else:
        advice += "another machine, or see why the kernel gave up TSC: sudo dmesg | grep -i tsc"
    return Check("clock", "warning", value, advice, detail)


# --------------------------------------------------------------------------------------------------
# Room.

MICRO_REPLICAS: Final = 8
"""The most that the micro matrix deploys."""

RAY_KEEPS_FREE: Final = 0.05
"""Ray's memory monitor kills workers once 95 % of the memory are used (docs.ray.io, "Out-Of-Memory
Prevention", RAY_memory_usage_threshold)."""

STORE_SHARE: Final = 0.3
STORE_MOST: Final = 200 * 10**9
STORE_CAP_LEAST: Final = 10**10
SHM_SHARE: Final = 0.95
"""Ray's object store takes 30 % of the memory, 200 GB at most, and 95 % of /dev/shm at most where
that is above 10 GB; if it does not fit into /dev/shm, it goes to the disk and Ray warns
(ray/_private: ray_constants.py, utils.resolve_object_store_memory and
services.determine_plasma_store_config, Ray 2.60)."""

ROOM_LEAST: Final = 100 << 20
ROOM_FEW: Final = GIB
"""A launch's own files (sessions, sockets, logs) are some MiB, a run with samples and profiles
tens; many launches and logs of level DEBUG are hundreds. Below the first no start is sure."""

DISK_FULL: Final = 0.95
"""From here on Ray keeps no more objects on the disk and warns every 10 s (docs.ray.io, "Object
Spilling", local_fs_capacity_threshold)."""

FEW_INODES: Final = 1_000

MOST_CLIENTS: Final = 3_000
"""The most connections at once of a shipped suite (press). Each takes an open file of the client,
two of HAProxy (serving/cluster/start.py), and on one machine two ports: to HAProxy, and from it
to a replica."""

TIME_WAIT: Final = "06"
"""Of /proc/net/tcp. It lasts 60 s in Linux (TCP_TIMEWAIT_LEN in include/net/tcp.h)."""


def read_memory(machine: Machine) -> Check:
    """What is available, to the system and within each cgroup."""
    memory = psutil.virtual_memory()
    return memory_of(int(memory.total), int(memory.available), cgroup_room(machine))


@dataclass(frozen=True)
class Room:
    """Memory of a cgroup that has a limit: the limit, and what is left of it."""

    limit: int
    free: int


def cgroup_room(machine: Machine) -> Room | None:
    """The cgroup with the least left, of either version; None without a limit. Pages of files that
    were not used lately are free when asked for."""
    rooms = []
    for controller, limit_file, used_file, idle in _MEMORY_FILES:
        limits, used, stats = (
            cgroup_files(machine.root, controller, name)
            for name in (limit_file, used_file, "memory.stat")
        )
        for limit, use, stat in zip(limits, used, stats, strict=False):
            if limit.isdigit() and use.isdigit() and int(limit) < 1 << 60:
                lines = (line.split() for line in stat.splitlines())
                cached = [int(n) for name, n in lines if name == idle]
                rooms.append(Room(int(limit), int(limit) - int(use) + sum(cached)))
    return min(rooms, key=lambda room: room.free, default=None)


_MEMORY_FILES: Final = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_of(total: int, available: int, room: Room | None) -> Check:
    """Enough for Ray and the micro matrix, without Ray's memory monitor?"""
    value, all_of_it, free = f"{size(available)} free of {size(total)}", total, available
    if room is not None and room.limit < total:
        all_of_it, free = room.limit, min(room.free, available)
        value = f"{size(free)} free of {size(room.limit)} (limit of the cgroup)"
    detail = {
        "total_bytes": total,
        "available_bytes": available,
        "limit_bytes": None if room is None else room.limit,
        "limit_free_bytes": None if room is None else room.free,
    }
    kept = int(RAY_KEEPS_FREE * all_of_it)
    matrix = BASE_BYTES + MICRO_REPLICAS * REPLICA_BYTES
    if free < BASE_BYTES + kept:
        advice = f"Ray and Serve take about {size(BASE_BYTES)}, and Ray kills workers when less "
        advice += f"than {size(kept)} is left: end other programs, or raise the container's limit"
        return Check("memory", "failure", value, advice, detail)
    if free < matrix + kept:
        advice = f"{MICRO_REPLICAS} replicas need about {size(matrix + kept)} with all that Ray "
        advice += "keeps free: use fewer, end other programs, or raise the container's limit"
        return Check("memory", "warning", value, advice, detail)
    return Check("memory", "ok", value, detail=detail)


def read_swap(machine: Machine, before: Ticks | None, after: Ticks | None) -> Check:
    """How much swap is in use, and whether pages moved while it was watched."""
    memory = psutil.swap_memory()
    pages: int | None = None
    if before and after and before.swapped_pages is not None and after.swapped_pages is not None:
        pages = after.swapped_pages - before.swapped_pages
    return swap(int(memory.total), int(memory.used), pages, machine.pause_s)


def swap(total: int, used: int, pages: int | None, watched_s: float) -> Check:
    """Pages that move are what hurts: what lies in swap and stays there costs nothing."""
    detail = {"total_bytes": total, "used_bytes": used, "pages_moved": pages}
    if not total:
        return Check("swap", "ok", "none", detail=detail)
    value = f"{size(used)} used of {size(total)}"
    if pages is None:
        return Check("swap", "unknown", f"{value}; whether pages move is unknown", detail=detail)
    value += f", {plural(pages, 'page') if pages else 'no page'} moved in {watched_s:g} s"
    advice = "the machine is swapping, which takes milliseconds: end other programs"
    return doubt("swap", value, advice if pages else "", detail)


def read_shared_memory(machine: Machine) -> Check:
    """Room in /dev/shm, where Ray keeps its objects on Linux."""
    if not machine.is_linux:
        value = "not Linux: Ray keeps its objects in its temporary folder"
        return Check("shared memory", "unknown", value)
    memory, room = psutil.virtual_memory(), cgroup_room(machine)
    available = int(memory.available) if room is None else min(int(memory.available), room.free)
    try:
        disk = os.statvfs(machine.root / "dev/shm")
    except OSError:
        return shared_memory(None, None, available)
    block = disk.f_frsize
    return shared_memory(block * disk.f_blocks, block * disk.f_bavail, available)


def shared_memory(total: int | None, free: int | None, available: int) -> Check:
    """Does Ray's object store fit? `available`: memory that Ray finds, about."""
    if total is None or free is None:
        advice = "Ray opens it when it starts, and fails without: mount a tmpfs there"
        return Check("shared memory", "failure", "/dev/shm cannot be opened", advice)
    cap = max(STORE_CAP_LEAST, int(SHM_SHARE * free))
    store = min(int(STORE_SHARE * available), STORE_MOST, cap)
    value = f"/dev/shm {size(free)} free of {size(total)}; Ray takes up to about {size(store)}"
    detail = {"total_bytes": total, "free_bytes": free, "object_store_bytes": store}
    advice = (
        "Ray would keep its objects on the disk, which is slow: make /dev/shm larger (docker "
        f"--shm-size={-(-store * 11 // (10 * GIB))}g), or delete what fills it"
    )
    return doubt("shared memory", value, advice if free < store else "", detail)


def read_disk(name: str, folder: Path, flag: str, *, needed: bool) -> Check:
    """Room where files will be written; the folder need not exist. `needed`: nothing starts
    without it. `flag`: how another one is chosen."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    try:
        usage, inodes = shutil.disk_usage(there), os.statvfs(there)
    except OSError as error:
        return Check(name, "unknown", f"{folder}: {(error.strerror or 'error').lower()}")
    few = inodes.f_files > 0 and inodes.f_favail < FEW_INODES
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    full = usage.used / (usage.used + usage.free) if usage.used + usage.free else 1.0
    return disk(
        name, str(folder), usage.free, full, writable=writable, few=few, flag=flag, needed=needed
    )


def disk(
    name: str,
    folder: str,
    free: int,
    full: float,
    *,
    writable: bool,
    few: bool,
    flag: str,
    needed: bool,
) -> Check:
    """Enough for a run? `full`: share in use, as df counts it. `few`: inodes run out."""
    value = f"{folder}: {size(free)} free, {100 * full:.0f} % full"
    detail = {"folder": folder, "free_bytes": free, "full": round(full, 4), "writable": writable}
    worst: CheckStatus = "failure" if needed else "warning"
    if not writable:
        return Check(name, worst, f"{folder} cannot be written to", flag, detail)
    if free < ROOM_LEAST:
        return Check(name, worst, value, f"a run does not fit: {flag}, or delete files", detail)
    if few:
        advice = f"almost no free inodes (df -i): {flag}, or delete files"
        return Check(name, "warning", value, advice, detail)
    if free < ROOM_FEW or (needed and full >= DISK_FULL):
        advice = f"long runs may fill it, and Ray warns above {100 * DISK_FULL:.0f} %: {flag}, "
        return Check(name, "warning", value, advice + "or delete files", detail)
    return Check(name, "ok", value, detail=detail)


def read_open_files(machine: Machine) -> Check:
    """The limits of this shell; what it starts inherits them."""
    return open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def open_files(soft: int, hard: int) -> Check:
    """Enough for the largest shipped load? Launches and clients raise the soft limit themselves."""
    endless = hard == resource.RLIM_INFINITY
    above = "no hard limit" if endless else f"hard limit {hard:,}"
    below = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    value = f"{above}, soft {below} (raised to the hard one where needed)"
    detail = {"soft": soft, "hard": None if endless else hard}
    lacking = lacking_open_files(hard)
    if lacking is not None:
        advice = f"no cluster starts: {lacking.partition(', and ')[2]}"
        return Check("open files", "failure", value, advice, detail)
    needed = 2 * MOST_CLIENTS + SPARE_FDS
    advice = (
        f"{MOST_CLIENTS:,} connections (press) take {needed:,} in HAProxy: as root ulimit -Hn "
        f"{needed}, nofile in /etc/security/limits.conf, or docker --ulimit; fewer clients do too"
    )
    return doubt("open files", value, "" if endless or hard >= needed else advice, detail)


def read_ports(machine: Machine) -> Check:
    """The range of ports for outgoing connections, and how many of them are taken."""
    words = (machine.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    if len(words) != 2:
        return Check("ephemeral ports", "unknown", "range unknown: no /proc/sys/net")
    tables = [machine.text(f"proc/net/{name}") for name in ("tcp", "tcp6")]
    if not any(tables):
        return Check("ephemeral ports", "unknown", "/proc/net/tcp cannot be read")
    first, last = int(words[0]), int(words[1])
    taken = [one for table in tables if table for one in _local_ports(table)]
    reserved = machine.text("proc/sys/net/ipv4/ip_local_reserved_ports") or ""
    return ports(range(first, last + 1), taken, _covered(reserved, BLOCKS))


def _local_ports(table: str) -> Iterator[tuple[int, str]]:
    """Local port and state of each connection of a /proc/net/tcp."""
    for line in table.splitlines()[1:]:
        words = line.split()
        yield int(words[1].rpartition(":")[2], 16), words[3]


def _covered(reserved: str, block: range) -> bool:
    """Whether `10-20,30` holds all of a block."""
    kept: set[int] = set()
    for part in filter(None, reserved.split(",")):
        first, _, last = part.partition("-")
        kept.update(range(int(first), int(last or first) + 1))
    return kept.issuperset(block)


def ports(span: range, taken: Sequence[tuple[int, str]], reserved: bool) -> Check:
    """Enough left, and apart from the ports that launches draw? `reserved`: the kernel gives out
    none of those."""
    inside = {port for port, _ in taken if port in span}
    waiting = {port for port, state in taken if port in span and state == TIME_WAIT}
    free = len(span) - len(inside)
    value = (
        f"{span.start} to {span.stop - 1}: {free:,} free, {len(inside - waiting):,} in use, "
        f"{len(waiting):,} in TIME_WAIT"
    )
    detail = {
        "first": span.start,
        "last": span.stop - 1,
        "in_use": len(inside - waiting),
        "time_wait": len(waiting),
    }
    advice = []
    if free < 2 * MOST_CLIENTS:
        advice.append(
            f"{MOST_CLIENTS:,} connections (press) behind HAProxy take {2 * MOST_CLIENTS:,}: wait "
            "60 s for TIME_WAIT to end, or widen the range"
        )
    if not reserved and span.start < BLOCKS.stop and span.stop > BLOCKS.start:
        advice.append(
            f"launches take their ports from {BLOCKS.start} to {BLOCKS.stop - 1}, which the kernel "
            "may give to others meanwhile"
        )
    if advice:
        advice.append('sudo sysctl net.ipv4.ip_local_port_range="32768 60999"')
    return doubt("ephemeral ports", value, "; ".join(advice), detail)
