"""Readings of processes and the host, and the fingerprint of this machine for the Run record.

Rule: nothing that names a person or a network. The host's name is stored only as a hash, so that
runs of one host can be recognized. A figure that cannot be read is None, never a guess or 0. The
version of Ray is read without importing it. A reading is cheap enough for several in a second.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

from serve_bench import __version__
from serve_bench.core.facts import HostFacts
from serve_bench.core.proof import without_method
from serve_bench.core.usage import HostReading, Threads
from serve_bench.load.workers import cgroup_files, cpu_quota_cores, small_file

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

perf = time.perf_counter_ns


def cpu_ns(pid: int) -> int | None:
    """Return the CPU time of a process so far, ended threads included; None if it has ended."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # clock_getcpuclockid(3); needs no rights
    except OSError:
        return None


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if it has ended."""
    pages = _read_file(f"/proc/{pid}/statm").split()
    return int(pages[1]) * _PAGE if pages else None


def memory_of(pid: int) -> dict[str, int]:
    """Return bytes by the names of smaps_rollup, such as `Pss`; empty without the right.

    See proc(5): in `Pss` a page that n processes share counts 1/n; `Private_Dirty` is written, and
    of no other process.
    """
    lines = _read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    parts = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in parts}


def pss_bytes(pid: int) -> int | None:
    """Return the proportional memory of a process; None without the right."""
    return memory_of(pid).get("Pss")


def descriptors(pid: int) -> int | None:
    """Return how many descriptors a process has open; None without the right."""
    return len(_list_folder(f"/proc/{pid}/fd")) or None


def thread_count(pid: int) -> int | None:
    """Return how many threads a process has; None if it has ended."""
    return len(_list_folder(f"/proc/{pid}/task")) or None


def threads_of(pid: int) -> Threads | None:
    """Return running totals of each thread, from schedstat; None without schedstat or process."""
    run: dict[int, int] = {}
    wait: dict[int, int] = {}
    turns: dict[int, int] = {}
    for name in _list_folder(f"/proc/{pid}/task"):
        if fields := _read_file(f"/proc/{pid}/task/{name}/schedstat").split():  # else it has ended
            run[int(name)], wait[int(name)], turns[int(name)] = map(int, fields)
    return Threads(perf(), run, wait, turns) if run else None


def host_reading() -> HostReading | None:
    """Read the busy and stolen time of all cores so far; None where the kernel does not count."""
    counts = _read_file("/proc/stat").split()[1:9]
    if len(counts) < 8:
        return None
    user, nice, system, _, _, irq, soft, steal = map(int, counts)  # not: idle, wait for I/O
    busy_ticks = user + nice + system + irq + soft
    return HostReading(perf(), busy_ticks * _TICK_NS, steal * _TICK_NS)


def children_of(process: str) -> set[int]:
    """Return the pids of a process's children; empty if it has ended.

    `process`: its name in /proc (`self`: this one).
    """
    task = f"/proc/{process}/task"
    texts = (_read_file(f"{task}/{tid}/children") for tid in _list_folder(task))
    return {int(pid) for text in texts for pid in text.split()}


def read_title(pid: int) -> str:
    """Return the command line, or Ray's title without the running method; empty if it has ended."""
    return without_method(" ".join(arguments_of(pid)).strip())


def arguments_of(pid: int) -> list[str]:
    """Return a process's command line; empty if it has ended, and of threads of the kernel."""
    text = _read_file(f"/proc/{pid}/cmdline")
    return text.rstrip("\0").split("\0") if text else []


def find_parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if it has ended."""
    fields = _read_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def thread_name(pid: int, tid: int) -> str | None:
    """Return the name of a thread; None if it has ended."""
    return _read_file(f"/proc/{pid}/task/{tid}/comm").strip() or None


def _list_folder(path: str) -> list[str]:
    """List a folder of /proc; empty where it cannot be read, or its process ended."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read_file(path: str) -> str:
    """Read a small file of /proc at once; empty where it cannot be read, or its process ended."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(fd, 16384).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


_GIT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class CpuWatch:
    """The use of the host from now on, seen for `least_s` at least."""

    least_s: float = 1.0
    reading: HostReading | None = field(default_factory=host_reading)
    own_ns: int = field(default_factory=time.process_time_ns)
    begun_ns: int = field(default_factory=perf)


def fingerprint(root: Path = Path("/"), watch: CpuWatch | None = None) -> HostFacts:
    """Describe the host of a run. Call it before the load starts.

    `usable_cores`: those this process may run on. `cpu_quota_cores` and `memory_limit_bytes`: of
    the cgroup (None: no limit). `busy_cores`: used by others, during `watch`. `load_*`: load
    averages, which include an earlier run of ours for minutes. `root`: the parent of /proc and
    /sys, for tests.
    """
    load, busy = os.getloadavg(), busy_cores(watch)
    return HostFacts(
        id=host_id(),
        cpu=cpu_model(root),
        logical_cores=psutil.cpu_count(logical=True),
        physical_cores=psutil.cpu_count(logical=False),
        usable_cores=len(psutil.Process().cpu_affinity()),
        cpu_quota_cores=cpu_quota_cores(root),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=memory_limit_bytes(root),
        kernel=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        busy_cores=busy,
        load_1m=load[0],
        load_5m=load[1],
        load_15m=load[2],
        governor=governor(root),
        python=platform.python_version(),
        ray=ray_version(),
        tool=__version__,
        git_commit=git_commit(),
    )


def busy_cores(watch: CpuWatch | None = None) -> float | None:
    """Return the mean number of cores that all other processes use since `watch` (default: now).

    None if that is too short for the clock of the system.
    """
    watch = watch or CpuWatch()
    time.sleep(max(0.0, watch.least_s - (perf() - watch.begun_ns) / 1e9))
    before, after, own_ns = watch.reading, host_reading(), time.process_time_ns() - watch.own_ns
    if before is None or after is None or after.at_ns <= before.at_ns:
        return None
    used = after.busy_ns - before.busy_ns - own_ns
    return round(max(0.0, used / (after.at_ns - before.at_ns)), 2)


def host_id() -> str:
    """Return twelve hexadecimal digits, the same for each run of one host."""
    return hashlib.sha256(f"serve-bench:{platform.node()}".encode()).hexdigest()[:12]


def cpu_model(root: Path = Path("/")) -> str | None:
    """Return the CPU's model name; None if the system does not say."""
    for line in (small_file(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model") and value.strip():
            return value.strip()
    return platform.processor() or None


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory limit of this process's cgroup, version 2 or 1; None without a limit."""
    texts = cgroup_files(root, "", "memory.max")
    texts += cgroup_files(root, "memory", "memory.limit_in_bytes")
    # Version 1 says "no limit" by a number near 2**63.
    limits = [int(text) for text in texts if text.isdigit() and int(text) < 1 << 60]
    return min(limits, default=None)


def quota_periods(root: Path = Path("/")) -> tuple[int, int]:
    """Return in how many periods so far the CPU quota was used up, and all; 0 without a quota."""
    texts = cgroup_files(root, "", "cpu.stat") + cgroup_files(root, "cpu", "cpu.stat")
    stats = [dict(line.split()[:2] for line in text.splitlines() if " " in line) for text in texts]
    pairs = ((int(stat.get("nr_throttled", 0)), int(stat.get("nr_periods", 0))) for stat in stats)
    return max(pairs, default=(0, 0))  # of the cgroup, or one above, that was stopped most


def free_memory_bytes() -> int:
    """Return the memory that is free for more processes, within the limit of the cgroup."""
    free, limit = int(psutil.virtual_memory().available), memory_limit_bytes()
    return free if limit is None else min(free, limit)


def governor(root: Path = Path("/")) -> str | None:
    """Return the frequency governor of the first core, if the kernel shows it."""
    return small_file(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def ray_version() -> str | None:
    """Return the version of the installed Ray; None if there is none."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def git_commit(checkout: Path | None = None) -> str | None:
    """Return the commit of the tool's checkout, with `+changes` if files are changed.

    None for an installed tool, without git, and before the first commit.
    """
    top = Path(__file__).resolve().parents[2] if checkout is None else checkout
    if not (top / ".git").exists():
        return None
    commit = _git(top, "rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("+changes" if _git(top, "status", "--porcelain") else "")


def _git(top: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(top), "--no-optional-locks", *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, no commit yet, not ours to read: the record says null
    return done.stdout.strip()
