"""One reading of what the system tells of a process, of its threads, and of the host.

Rule: cheap enough to be done several times a second, and None for what is gone or not told, never
0. Linux is read by /proc and by the CPU clocks of processes; elsewhere psutil gives what it can.
Who reads when is in sampler.py, adding up in usage.py.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import psutil

from serve_bench.core.proof import without_method
from serve_bench.core.usage import HostReading, Threads

LINUX: Final = sys.platform.startswith("linux")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

perf = time.perf_counter_ns


def cpu_ns(pid: int) -> int | None:
    """CPU time of a process so far, all its threads and those that ended; None when it is gone.

    On Linux by the process's CPU clock: its id is made as `clock_getcpuclockid(3)` makes it, and
    it needs no rights. Elsewhere by psutil, which counts in ticks of 10 ms.
    """
    try:
        if LINUX:
            return time.clock_gettime_ns((~pid << 3) | 2)
        times = psutil.Process(pid).cpu_times()
        return int((times.user + times.system) * 1e9)
    except (OSError, psutil.Error):
        return None


def rss_bytes(pid: int) -> int | None:
    """Resident memory; None when the process is gone."""
    try:
        if LINUX:
            return int(_text(f"/proc/{pid}/statm").split()[1]) * _PAGE
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, IndexError, psutil.Error):
        return None


def pss_bytes(pid: int) -> int | None:
    """Proportional memory: a page shared by n processes counts 1/n. None where not allowed."""
    try:
        lines = _text(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(found[0]) * 1024 if found else None


def threads_of(pid: int) -> Threads | None:
    """Running totals of each thread, from schedstat; None where there is none, or no process."""
    run: dict[int, int] = {}
    wait: dict[int, int] = {}
    turns: dict[int, int] = {}
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    for name in names:
        try:
            fields = _text(f"/proc/{pid}/task/{name}/schedstat").split()
        except OSError:
            continue  # the thread ended meanwhile
        run[int(name)], wait[int(name)], turns[int(name)] = map(int, fields)
    return Threads(perf(), run, wait, turns) if run else None


def host_reading() -> HostReading | None:
    """Busy time of all cores so far: all but idle, waiting for I/O, and what was stolen."""
    try:
        user, nice, system, _, _, irq, soft, steal = map(int, _text("/proc/stat").split()[1:9])
    except (OSError, ValueError):
        times = psutil.cpu_times()
        busy = times.user + times.system + getattr(times, "nice", 0.0)
        return HostReading(perf(), int(busy * 1e9), None)
    busy_ticks = user + nice + system + irq + soft
    return HostReading(perf(), busy_ticks * _TICK_NS, steal * _TICK_NS)


def children_of_this() -> set[int]:
    """The pids of this process's children."""
    if os.path.exists("/proc/self/task"):
        return children_of("self")
    return {child.pid for child in psutil.Process().children()}


def children_of(process: str) -> set[int]:
    """The pids of a process's children, by its name in /proc; empty when it is gone."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
        texts = [_text(f"/proc/{process}/task/{tid}/children") for tid in threads]
    except OSError:
        return set()
    return {int(pid) for text in texts for pid in text.split()}


def title_of(pid: int) -> str:
    """The command line of a process, which a title that Ray sets takes the place of, without the
    method that runs; empty when it is gone."""
    try:
        return without_method(_text(f"/proc/{pid}/cmdline").replace("\0", " ").strip())
    except OSError:
        return ""


def thread_name(pid: int, tid: int) -> str | None:
    """The name of a thread; None when it has ended."""
    try:
        return _text(f"/proc/{pid}/task/{tid}/comm").strip()
    except OSError:
        return None


def _text(path: str) -> str:
    """A small file of /proc in one read."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 16384).decode("ascii", "replace")
    finally:
        os.close(fd)
