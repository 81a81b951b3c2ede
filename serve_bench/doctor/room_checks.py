"""Is there room: memory, swap, shared memory, disk, open files, ports for connections.

Rule: as in cpu_checks.py: a check reads (with a Place) or judges (numbers in, Finding out).
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from serve_bench.analysis.checks import Finding, Status
from serve_bench.benchmarks.scale.needs import BASE_BYTES, REPLICA_BYTES
from serve_bench.doctor.cpu_checks import Ticks
from serve_bench.doctor.place import GIB, Place, plural, size
from serve_bench.load.connection import SPARE_FDS
from serve_bench.observing import host
from serve_bench.serving.launch_spec import lacking_open_files
from serve_bench.serving.ports import BLOCKS

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
two of HAProxy (serving/cluster/starting.py), and on one machine two ports: to HAProxy, and from it
to a replica."""

TIME_WAIT: Final = "06"
"""Of /proc/net/tcp. It lasts 60 s in Linux (TCP_TIMEWAIT_LEN in include/net/tcp.h)."""


def read_memory(place: Place) -> Finding:
    """What is available, to the system and within each cgroup."""
    memory = psutil.virtual_memory()
    return memory_of(int(memory.total), int(memory.available), cgroup_room(place))


@dataclass(frozen=True)
class Room:
    """Memory of a cgroup that has a limit: the limit, and what is left of it."""

    limit: int
    free: int


def cgroup_room(place: Place) -> Room | None:
    """The cgroup with the least left, of either version; None without a limit. Pages of files that
    were not used lately are free when asked for."""
    found = []
    for controller, limit_file, used_file, idle in _MEMORY_FILES:
        limits, used, stats = (
            host.cgroup_files(place.root, controller, name)
            for name in (limit_file, used_file, "memory.stat")
        )
        for limit, use, stat in zip(limits, used, stats, strict=False):
            if limit.isdigit() and use.isdigit() and int(limit) < 1 << 60:
                lines = (line.split() for line in stat.splitlines())
                cached = [int(n) for name, n in lines if name == idle]
                found.append(Room(int(limit), int(limit) - int(use) + sum(cached)))
    return min(found, key=lambda room: room.free, default=None)


_MEMORY_FILES: Final = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_of(total: int, available: int, room: Room | None) -> Finding:
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
        return Finding("memory", "failure", value, advice, detail)
    if free < matrix + kept:
        advice = f"{MICRO_REPLICAS} replicas need about {size(matrix + kept)} with all that Ray "
        advice += "keeps free: use fewer, end other programs, or raise the container's limit"
        return Finding("memory", "warning", value, advice, detail)
    return Finding("memory", "ok", value, detail=detail)


def read_swap(place: Place, before: Ticks | None, after: Ticks | None) -> Finding:
    """How much swap is in use, and whether pages moved while it was watched."""
    memory = psutil.swap_memory()
    pages: int | None = None
    if before and after and before.swapped_pages is not None and after.swapped_pages is not None:
        pages = after.swapped_pages - before.swapped_pages
    return swap(int(memory.total), int(memory.used), pages, place.pause_s)


def swap(total: int, used: int, pages: int | None, watched_s: float) -> Finding:
    """Pages that move are what hurts: what lies in swap and stays there costs nothing."""
    detail = {"total_bytes": total, "used_bytes": used, "pages_moved": pages}
    if not total:
        return Finding("swap", "ok", "none", detail=detail)
    value = f"{size(used)} used of {size(total)}"
    if pages is None:
        return Finding("swap", "unknown", f"{value}; whether pages move is not told", detail=detail)
    if pages:
        value += f", {plural(pages, 'page')} moved in {watched_s:g} s"
        advice = "the machine is swapping, which takes milliseconds: end other programs"
        return Finding("swap", "warning", value, advice, detail)
    return Finding("swap", "ok", f"{value}, no page moved in {watched_s:g} s", detail=detail)


def read_shared_memory(place: Place) -> Finding:
    """Room in /dev/shm, where Ray keeps its objects on Linux."""
    if not place.is_linux:
        value = "not Linux: Ray keeps its objects in its temporary folder"
        return Finding("shared memory", "unknown", value)
    memory, room = psutil.virtual_memory(), cgroup_room(place)
    available = int(memory.available) if room is None else min(int(memory.available), room.free)
    try:
        found = os.statvfs(place.root / "dev/shm")
    except OSError:
        return shared_memory(None, None, available)
    return shared_memory(
        found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail, available
    )


def shared_memory(total: int | None, free: int | None, available: int) -> Finding:
    """Does Ray's object store fit? `available`: memory that Ray finds, about."""
    if total is None or free is None:
        advice = "Ray opens it when it starts, and fails without: mount a tmpfs there"
        return Finding("shared memory", "failure", "/dev/shm cannot be opened", advice)
    cap = max(STORE_CAP_LEAST, int(SHM_SHARE * free))
    store = min(int(STORE_SHARE * available), STORE_MOST, cap)
    value = f"/dev/shm {size(free)} free of {size(total)}; Ray takes up to about {size(store)}"
    detail = {"total_bytes": total, "free_bytes": free, "object_store_bytes": store}
    if free >= store:
        return Finding("shared memory", "ok", value, detail=detail)
    advice = (
        "Ray would keep its objects on the disk, which is slow: make /dev/shm larger (docker "
        f"--shm-size={-(-store * 11 // (10 * GIB))}g), or delete what fills it"
    )
    return Finding("shared memory", "warning", value, advice, detail)


def read_disk(name: str, folder: Path, flag: str, *, needed: bool) -> Finding:
    """Room where files will be written; the folder need not exist. `needed`: nothing starts
    without it. `flag`: how another one is chosen."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    try:
        usage, inodes = shutil.disk_usage(there), os.statvfs(there)
    except OSError as error:
        return Finding(name, "unknown", f"{folder}: {(error.strerror or 'error').lower()}")
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
) -> Finding:
    """Enough for a run? `full`: share in use, as df counts it. `few`: inodes run out."""
    value = f"{folder}: {size(free)} free, {100 * full:.0f} % full"
    detail = {"folder": folder, "free_bytes": free, "full": round(full, 4), "writable": writable}
    worst: Status = "failure" if needed else "warning"
    if not writable:
        return Finding(name, worst, f"{folder} cannot be written to", flag, detail)
    if free < ROOM_LEAST:
        return Finding(name, worst, value, f"a run does not fit: {flag}, or delete files", detail)
    if few:
        advice = f"hardly a file more can be made there (df -i): {flag}, or delete files"
        return Finding(name, "warning", value, advice, detail)
    if free < ROOM_FEW or (needed and full >= DISK_FULL):
        advice = f"long runs may fill it, and Ray warns above {100 * DISK_FULL:.0f} %: {flag}, "
        return Finding(name, "warning", value, advice + "or delete files", detail)
    return Finding(name, "ok", value, detail=detail)


def read_open_files(place: Place) -> Finding:
    """The limits of this shell; what it starts inherits them."""
    return open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def open_files(soft: int, hard: int) -> Finding:
    """Enough for the largest shipped load? Launches and clients raise the soft limit themselves."""
    endless = hard == resource.RLIM_INFINITY
    told = "no hard limit" if endless else f"hard limit {hard:,}"
    below = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    value = f"{told}, soft {below} (raised to the hard one where needed)"
    detail = {"soft": soft, "hard": None if endless else hard}
    lacking = lacking_open_files(hard)
    if lacking is not None:
        advice = f"no cluster starts: {lacking.partition(', and ')[2]}"
        return Finding("open files", "failure", value, advice, detail)
    needed = 2 * MOST_CLIENTS + SPARE_FDS
    if endless or hard >= needed:
        return Finding("open files", "ok", value, detail=detail)
    advice = (
        f"{MOST_CLIENTS:,} connections (press) take {needed:,} in HAProxy: as root ulimit -Hn "
        f"{needed}, nofile in /etc/security/limits.conf, or docker --ulimit; fewer clients do too"
    )
    return Finding("open files", "warning", value, advice, detail)


def read_ports(place: Place) -> Finding:
    """The range of ports for outgoing connections, and how many of them are taken."""
    words = (place.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    if len(words) != 2:
        return Finding("ephemeral ports", "unknown", "the range is not told: no /proc/sys/net here")
    tables = [place.text(f"proc/net/{name}") for name in ("tcp", "tcp6")]
    if not any(tables):
        return Finding("ephemeral ports", "unknown", "/proc/net/tcp cannot be read")
    first, last = int(words[0]), int(words[1])
    taken = [one for table in tables if table for one in _local_ports(table)]
    reserved = place.text("proc/sys/net/ipv4/ip_local_reserved_ports") or ""
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


def ports(span: range, taken: Sequence[tuple[int, str]], reserved: bool) -> Finding:
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
    if not advice:
        return Finding("ephemeral ports", "ok", value, detail=detail)
    advice.append('sudo sysctl net.ipv4.ip_local_port_range="32768 60999"')
    return Finding("ephemeral ports", "warning", value, "; ".join(advice), detail)
