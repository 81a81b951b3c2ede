"""Checks of the machine: cores, quota, governor, steal, other work, memory, open files, ports.

Rule: files of /proc and /sys are read below `root`, "/" but in tests. Thresholds stand before the
checks, with their reasons. Nothing is changed.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Final

import psutil

from serve_bench.analysis.checks import BUSY_SHARE
from serve_bench.benchmarks.scale.needs import BASE_BYTES, REPLICA_BYTES
from serve_bench.core.figures import counted
from serve_bench.doctor.finding import CheckFinding, judge
from serve_bench.load.connection import SPARE_FDS
from serve_bench.load.workers import cgroup_files, cpu_quota_cores, small_file
from serve_bench.observing import host
from serve_bench.serving.launch_spec import BLOCKS, lacking_open_files

FEW_CORES: Final = 4
"""Proxy, replica and load worker use up to a core each, Ray's other processes some of a fourth: on
2 cores the host was at 168 to 181 of 200 % in the README's example, and was the limit."""

THROTTLED_LIMIT: Final = 0.01
"""Share of a quota's periods (mostly 0.1 s) in which it stopped the processes: one in a hundred is
where p99 shows nothing else."""

STEAL_LIMIT: Final = 0.02
"""Share of CPU time that the hypervisor gave to others. The noise of an A/B in slices is about 2 %
(docs/ab.md): steal above it is no longer small beside what is compared."""

STEAL_WATCHED_S: Final = 0.5
"""On 2 cores these are 100 ticks, so that one tick is 1 %."""

MICRO_REPLICAS: Final = 8
"""The most that the micro matrix deploys."""

RAY_KEEPS_FREE: Final = 0.05
"""Ray's memory monitor kills workers once 95 % of the memory are used (docs.ray.io, "Out-Of-Memory
Prevention", RAY_memory_usage_threshold)."""

MOST_CLIENTS: Final = 3_000
"""The most connections at once of a shipped suite (press). Each takes an open file of the client,
two of HAProxy (serving/cluster/start.py), and on one machine two ports: to HAProxy, and from it
to a replica."""

GIB: Final = 1 << 30
ROOT: Final = Path("/")


def check_cores(root: Path = ROOT) -> CheckFinding:
    """Check the cores: server and client want their own; `taskset` and cpusets take some away."""
    logical, usable = psutil.cpu_count(logical=True) or 0, len(psutil.Process().cpu_affinity())
    model = host.cpu_model(root)
    text = f"{usable} usable of {logical}" + (f", {model}" if model else "")
    if usable < logical:
        hint = f"this shell may use only {counted(usable, 'core')} (taskset, cpuset): allow it more"
    else:
        hint = (
            "proxy, replica and load worker want a core each, and Ray one more: rows are often "
            "limited by the host here, not by Serve; load from another machine helps (--load-on)"
        )
    return judge(text, hint if usable < FEW_CORES else "")


def check_quota(root: Path = ROOT) -> CheckFinding:
    """Check the CPU quota of the cgroup, of either version, and how often it stopped processes."""
    places = ("cgroup.controllers", "cpu", "cpu.max")
    if not any((root / "sys/fs/cgroup" / name).exists() for name in places):
        return CheckFinding("unknown", "/sys/fs/cgroup shows no CPU controller")
    quota, logical = cpu_quota_cores(root), os.cpu_count() or 1
    if quota is None:
        return CheckFinding("ok", "none set by a cgroup")
    throttled, periods = host.quota_periods(root)
    share = throttled / periods if periods else 0.0
    text = f"{quota:g} of {logical} cores (cgroup)"
    if periods:
        text += f", used up in {100 * share:.1f} % of its periods so far"
    hint = (
        "a quota that is used up stops all processes for the rest of a period, which shows as high "
        "percentiles: take it away (docker --cpus, Kubernetes limits.cpu), or use docker "
        "--cpuset-cpus instead"
    )
    return judge(text, hint if quota < logical or share > THROTTLED_LIMIT else "")


def check_governor(root: Path = ROOT) -> CheckFinding:
    """Check the frequency governors of all cores."""
    folders = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    names = [name for folder in folders if (name := small_file(folder / "scaling_governor"))]
    if not names:
        why = "no cpufreq in /sys: mostly a virtual machine, whose host sets the frequency"
        return CheckFinding("unknown", why)
    counts = Counter(names).most_common()
    text = ", ".join(f"{name} on {count} of {len(names)} cores" for name, count in counts)
    # Benchmark tools ask for `performance` (Google Benchmark, docs/reducing_variance.md; Node.js,
    # writing-and-running-benchmarks.md).
    hint = (
        "the frequency follows the load, so low rates look slower than they are: "
        "sudo cpupower frequency-set --governor performance"
    )
    return judge(text, "" if set(names) == {"performance"} else hint)


def check_steal(root: Path = ROOT) -> CheckFinding:
    """Check the CPU time that the hypervisor gave to others, just now and since the start."""
    stolen, total = _read_ticks(root)
    time.sleep(STEAL_WATCHED_S)
    stolen_later, total_later = _read_ticks(root)
    if stolen is None or stolen_later is None:
        return CheckFinding("unknown", "/proc/stat does not show it")
    since_start, passed = stolen_later / max(1, total_later), total_later - total
    text, now = f"{100 * since_start:.2f} % of CPU time since the start", 0.0
    if passed > 0:
        now = (stolen_later - stolen) / passed
        text = f"{100 * now:.0f} % in {STEAL_WATCHED_S:g} s just now, {text}"
    hint = "the hypervisor gives cores to other machines: use dedicated ones, or more launches"
    return judge(text, hint if max(now, since_start) > STEAL_LIMIT else "")


def _read_ticks(root: Path) -> tuple[int | None, int]:
    """Read stolen and all ticks of /proc/stat; None where the kernel does not count them."""
    # user nice system idle iowait irq softirq steal; guest time, behind them, is in user already
    first = (small_file(root / "proc/stat") or "cpu").splitlines()[0]
    ticks = [int(field) for field in first.split()[1:9]]
    return ticks[7] if len(ticks) == 8 else None, sum(ticks)


def check_busy() -> CheckFinding:
    """Check the cores that other processes use now; reports have the same limit (`busy-host`)."""
    busy, logical = host.busy_cores(), os.cpu_count() or 1
    if busy is None:
        return CheckFinding("unknown", "the system does not tell how long its cores were in use")
    hint = "other work takes the cores: `top` names it; wait for it to end"
    text = f"{busy:.2f} of {logical} cores in use now"
    return judge(text, hint if busy > BUSY_SHARE * logical else "")


_MEMORY_FILES: Final = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def check_memory(root: Path = ROOT) -> CheckFinding:
    """Check that Ray and the micro matrix fit, with what Ray's memory monitor keeps free."""
    memory = psutil.virtual_memory()
    total, free, of_whom = int(memory.total), int(memory.available), ""
    limited = _read_cgroup_memory(root)
    if limited is not None and limited[1] < total:
        total, free, of_whom = limited[1], min(limited[0], free), " (limit of the cgroup)"
    text = f"{_format(free)} free of {_format(total)}{of_whom}"
    kept_free = int(RAY_KEEPS_FREE * total)
    matrix = BASE_BYTES + MICRO_REPLICAS * REPLICA_BYTES + kept_free
    if free < BASE_BYTES + kept_free:
        hint = (
            f"Ray and Serve take about {_format(BASE_BYTES)}, and Ray kills workers when less than "
            f"{_format(kept_free)} is left: end other programs, or raise the container's limit"
        )
        return CheckFinding("failure", text, hint)
    hint = (
        f"{MICRO_REPLICAS} replicas need about {_format(matrix)} with all that Ray keeps free: use "
        "fewer, end other programs, or raise the container's limit"
    )
    return judge(text, hint if free < matrix else "")


def _read_cgroup_memory(root: Path) -> tuple[int, int] | None:
    """Return free bytes and limit of the cgroup with the least free; None without a limit."""
    rooms = []
    for controller, limit_file, used_file, idle in _MEMORY_FILES:
        limits, used, stats = (
            cgroup_files(root, controller, name) for name in (limit_file, used_file, "memory.stat")
        )
        for limit, use, stat in zip(limits, used, stats, strict=False):
            if limit.isdigit() and use.isdigit() and int(limit) < 1 << 60:
                lines = (line.split() for line in stat.splitlines())
                # Pages of files that were not used lately are free when asked for.
                cached = sum(int(count) for name, count in lines if name == idle)
                rooms.append((int(limit) - int(use) + cached, int(limit)))
    return min(rooms, default=None)


def _format(count: int) -> str:
    """Write bytes as GiB, or MiB where that is little."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / (1 << 20):,.0f} MiB"


def check_files() -> CheckFinding:
    """Check the limits of open files of this shell, which what it starts inherits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # launches and clients raise `soft`
    endless = hard == resource.RLIM_INFINITY
    above = "no hard limit" if endless else f"hard limit {hard:,}"
    below = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    text = f"{above}, soft {below} (raised to the hard one where needed)"
    if (lacking := lacking_open_files(hard)) is not None:
        return CheckFinding("failure", text, f"no cluster starts: {lacking.partition(', and ')[2]}")
    needed = 2 * MOST_CLIENTS + SPARE_FDS
    hint = (
        f"{MOST_CLIENTS:,} connections (press) take {needed:,} in HAProxy: as root ulimit -Hn "
        f"{needed}, nofile in /etc/security/limits.conf, or docker --ulimit; fewer clients do too"
    )
    return judge(text, "" if endless or hard >= needed else hint)


TIME_WAIT: Final = "06"
"""Of /proc/net/tcp. It lasts 60 s in Linux (TCP_TIMEWAIT_LEN in include/net/tcp.h)."""


def check_ports(root: Path = ROOT) -> CheckFinding:
    """Check the ports of outgoing connections: enough are free, and launches draw none of them."""
    words = (small_file(root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    tables = [small_file(root / f"proc/net/{name}") for name in ("tcp", "tcp6")]
    if len(words) != 2 or not any(tables):
        return CheckFinding("unknown", "/proc/sys/net and /proc/net/tcp cannot be read")
    span = range(int(words[0]), int(words[1]) + 1)
    states: dict[int, str] = {}
    for line in (line for table in tables for line in (table or "").splitlines()[1:]):
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        if port in span and states.get(port, TIME_WAIT) == TIME_WAIT:
            states[port] = fields[3]
    free, waiting = len(span) - len(states), list(states.values()).count(TIME_WAIT)
    text = f"{span.start} to {span.stop - 1}: {free:,} free, {len(states) - waiting:,} in use, "
    text += f"{waiting:,} in TIME_WAIT"
    hints = []
    if free < 2 * MOST_CLIENTS:
        hints.append(
            f"{MOST_CLIENTS:,} connections (press) behind HAProxy take {2 * MOST_CLIENTS:,}: wait "
            "60 s for TIME_WAIT to end, or widen the range"
        )
    reserved = small_file(root / "proc/sys/net/ipv4/ip_local_reserved_ports") or ""
    if span.start < BLOCKS.stop and span.stop > BLOCKS.start and not _covers(reserved, BLOCKS):
        hints.append(
            f"launches take their ports from {BLOCKS.start} to {BLOCKS.stop - 1}, which the kernel "
            "may give to others meanwhile"
        )
    if hints:
        hints.append('sudo sysctl net.ipv4.ip_local_port_range="32768 60999"')
    return judge(text, "; ".join(hints))


def _covers(reserved: str, block: range) -> bool:
    """Return whether `10-20,30` holds all of a block."""
    ports: set[int] = set()
    for part in filter(None, reserved.split(",")):
        first, _, last = part.partition("-")
        ports.update(range(int(first), int(last or first) + 1))
    return ports.issuperset(block)
