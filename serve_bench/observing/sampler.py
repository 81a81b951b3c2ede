"""CPU, memory and GPU of every process around a trial, read by a thread.

Rule: it must not disturb the measurement. It reads 5 times a second, and less often if its own CPU
would exceed 1 % of a core. Slow readings (the threads of a process) are spread over the ticks, and
the slowest (proportional memory, 3 ms a process) come after the load. A reading of a process's CPU
clock costs 0.5 us on Linux. host.py makes a reading, core/usage.py sums up.

It is a thread and not a process: the parent of a load only listens, so nothing waits for the
interpreter's lock, and a thread starts at once and needs no memory.

Other programs on the host are read at an interval, and named by their file and script: further
arguments may hold secrets. No process that is sampled is among them, whatever it started, what it
calls over TCP (a database of the app, say), a part of Ray, or a thread of the kernel.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import re
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Self

import psutil
from msgspec import structs, to_builtins

from serve_bench.core.facts import (
    GpuProcess,
    GpuReading,
    GpuUsage,
    HostUsage,
    ProcessUsage,
    TrialUsage,
)
from serve_bench.core.proof import CHILD_OF_REPLICA, role_of, without_method
from serve_bench.core.usage import (
    SHORTEST_NS,
    HostReading,
    OthersSpan,
    Track,
    host_summary,
    others_summary,
    summary_of,
)
from serve_bench.load.workers import KEPT, yield_to_workers
from serve_bench.observing.host import (
    arguments_of,
    children_of,
    cpu_ns,
    descriptors,
    find_parent,
    free_memory_bytes,
    host_reading,
    memory_of,
    perf,
    pss_bytes,
    quota_periods,
    read_title,
    rss_bytes,
    thread_count,
    thread_name,
    threads_of,
)
from serve_bench.serving.server import Process

# GPU use by NVML, if the package nvidia-ml-py and a driver are there; else nothing, and why.
#
# Rule: it never fails a run. A figure that a device does not report is None.

MODULE: Final = "pynvml"  # the module of nvidia-ml-py


class Gpus:
    """The devices of this host. `why_not`: why there are none; then this is cheap."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        self._since_us = 0
        self.why_not: str | None = None
        if importlib.util.find_spec(MODULE) is None:
            self.why_not = "nvidia-ml-py is not installed"
            return
        nvml = importlib.import_module(MODULE)
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except nvml.NVMLError as error:
            self.why_not = f"NVML: {error}"
            return
        self._nvml = nvml
        self._since_us = time.time_ns() // 1000

    def read(self) -> list[GpuReading]:
        """Read for each device the use in percent over the last interval, memory, and processes."""
        return [self._device(index, handle) for index, handle in enumerate(self._devices)]

    def _device(self, index: int, handle: Any) -> GpuReading:
        nvml = self._nvml
        rates = self._read(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._read(nvml.nvmlDeviceGetMemoryInfo, handle)
        running = self._read(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        shares = self._read(nvml.nvmlDeviceGetProcessUtilization, handle, self._since_us) or []
        by_pid = {int(share.pid): float(share.smUtil) for share in shares}
        processes = []
        for process in running:
            pid, memory_mb = int(process.pid), _to_mb(process.usedGpuMemory)
            found = GpuProcess(pid=pid, memory_mb=memory_mb, use_percent=by_pid.get(pid))
            processes.append(found)
        return GpuReading(
            device=index,
            use_percent=None if rates is None else float(rates.gpu),
            memory_mb=None if memory is None else _to_mb(memory.used),
            processes=tuple(processes),
        )

    def _read(self, function: Any, *arguments: Any) -> Any:
        """Return the answer of NVML, or None if the device or the driver does not support it."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def _to_mb(used_bytes: int | None) -> float | None:
    return None if used_bytes is None else round(used_bytes / 1e6, 1)


def gpu_summary(readings: Sequence[Sequence[GpuReading]]) -> Iterator[GpuUsage]:
    """Yield mean and highest use, highest memory and last processes of each device."""
    for index, last in enumerate(readings[-1] if readings else ()):
        devices = [reading[index] for reading in readings if index < len(reading)]
        used = [device.use_percent for device in devices if device.use_percent is not None]
        memory_mb = [device.memory_mb for device in devices if device.memory_mb is not None]
        yield GpuUsage(
            device=last.device,
            use_percent=round(sum(used) / len(used), 1) if used else None,
            use_percent_max=max(used, default=None),
            memory_mb_max=max(memory_mb, default=None),
            processes=last.processes,
        )


INTERVAL_S: Final = 0.2
OWN_SHARE: Final = 0.01  # of a core, for the sampler; ticks that cost more become rarer

LATE_ROLES: Final = ("replica", "proxy", "fallback_proxy", "haproxy_manager", "controller")
"""Actors that Serve starts while a load runs: more replicas, and what replaces one that ended."""

LONGEST_TITLE: Final = 120  # of a process in a reading of levels

THREADS_EVERY_NS: Final = 1_000_000_000
OTHERS_EVERY_NS: Final = 500_000_000
RSS_EVERY_NS: Final = 1_000_000_000


@dataclass
class Sampler:
    """A sampler of the processes of a launch or a Serve, from before a load until after it.

    Later processes are sampled too: children of this one, which are load workers, those of a reload
    of HAProxy, replicas that autoscaling adds, what Serve starts in the place of another, and what
    a replica starts.
    """

    watched: Iterable[Process]
    gpus: Gpus | None = None
    spies: Iterable[int] = ()  # the py-spys on the processes
    children_every_s: float = 1.0
    apart: bool = True  # programs that are not sampled have no part in what is measured
    tracks: dict[int, Track] = field(default_factory=dict)  # of ended processes too
    _living: set[int] = field(default_factory=set)
    _host: list[HostReading] = field(default_factory=list)
    _gpu: list[list[GpuReading]] = field(default_factory=list)
    _own_ns: list[tuple[int, int]] = field(default_factory=list)  # (at, the thread's CPU so far)
    _known_children: set[int] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _wall_ahead_ns: int = 0
    _looked_ns: int = 0
    _others: OtherPrograms | None = None
    _programs: Mapping[int, str] = field(default_factory=dict)
    _quota: tuple[int, int] = (0, 0)  # at its begin; then by how much it grew

    def __enter__(self) -> Self:
        """Read everything once, then at each interval."""
        self._wall_ahead_ns = time.time_ns() - perf()
        self._known_children = children_of("self") - {worker.process.pid for worker in KEPT}
        for process in self.watched:
            self._watch(Track(process.pid, process.role, without_method(process.title)))
        for pid in self.spies:
            self._watch(Track(pid, "py_spy", "py-spy"))
        self._watch(Track(os.getpid(), "serve_bench", "serve-bench"))
        self._others = OtherPrograms(self.tracks) if self.apart else None
        self._tick()
        for pid in tuple(self._living):
            self._read_threads(self.tracks[pid])
        self._quota = quota_periods()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Make the last readings, with proportional memory."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._tick()
        for track in [self.tracks[pid] for pid in self._living]:
            self._read_threads(track)
            track.pss_bytes = pss_bytes(track.pid)
        if self._others is not None:
            self._read_others(self._others)
            self._programs = self._others.names(self.tracks)
        stopped, periods = map(operator.sub, quota_periods(), self._quota)
        # Counts of another cgroup than at the begin do not compare.
        self._quota = (stopped, periods) if 0 <= stopped <= periods else (0, 0)

    def summary(self, began_at_ns: int, duration_s: float) -> TrialUsage:
        """Return the use in a span that began at `began_at_ns` (of `time.time_ns`).

        Processes without a reading in it are left out.
        """
        begin = began_at_ns - self._wall_ahead_ns
        end = begin + int(duration_s * 1e9)
        ticks, pauses = self._own_ns, max(0, len(self._own_ns) - 1)
        processes = (summary_of(track, begin, end) for track in self.tracks.values())
        host, others = host_summary(self._host, begin, end, os.cpu_count() or 1), None
        stopped, periods = self._quota
        if periods and self._stop.is_set():
            host = structs.replace(host, throttled_percent=round(100 * stopped / periods, 1))
        if self._others is not None:
            others = others_summary(self._others.spans, self._programs, begin, end)
        return TrialUsage(
            interval_s=round((ticks[-1][0] - ticks[0][0]) / 1e9 / pauses, 3) if pauses else None,
            own_cpu_percent=self._measure_own(),
            host=host,
            processes=tuple(process for process in processes if process.seen_s),
            others=others,
            gpus=tuple(gpu_summary(self._gpu)),
        )

    def samples(self, key: str) -> list[dict[str, Any]]:
        """Return the readings as plain content for samples.jsonl, one object per process.

        Times are milliseconds since the first tick. `cpu_ms` are running totals.
        """
        zero = self._own_ns[0][0] if self._own_ns else 0
        started = {"wall_ns": zero + self._wall_ahead_ns, "trial": key}
        out: list[dict[str, Any]] = [
            {
                "kind": "process",
                **started,
                "pid": track.pid,
                "role": track.role,
                "cpu_ms": [[(t - zero) // 1000 / 1e3, cpu / 1e6] for t, cpu in track.cpu_ns],
                "rss_mb": [[(t - zero) // 1000 / 1e3, b / 1e6] for t, b in track.rss_bytes],
            }
            for track in self.tracks.values()
        ]
        host = [[(read.at_ns - zero) // 1000 / 1e3, read.busy_ns / 1e6] for read in self._host]
        out.append({"kind": "host", **started, "cpu_ms": host})
        if self._gpu:
            out.append({"kind": "gpu", **started, "readings": to_builtins(self._gpu)})
        return out

    def _run(self) -> None:
        delay_s = INTERVAL_S
        yield_to_workers(True)
        while not self._stop.wait(delay_s):
            cost_s = self._tick(INTERVAL_S * OWN_SHARE) / 1e9
            delay_s = max(INTERVAL_S, cost_s / OWN_SHARE)

    def _tick(self, budget_s: float = 0.0) -> int:
        """Read everything cheap, then threads within the budget. Returns its CPU cost in ns."""
        before = time.thread_time_ns()
        for pid in children_of("self") - self._known_children:
            self._known_children.add(pid)
            self._watch(Track(pid, "load_worker", "load worker"))
        if perf() - self._looked_ns >= self.children_every_s * 1e9:
            self._look_for_children()
        if self._others is not None and perf() - self._others.read_ns >= OTHERS_EVERY_NS:
            self._read_others(self._others)
        for pid in tuple(self._living):
            self._read_cpu(self.tracks[pid])
        if (host := host_reading()) is not None:
            self._host.append(host)
        if self.gpus is not None and self.gpus.why_not is None:
            self._gpu.append(self.gpus.read())
        spent = time.thread_time_ns() - before
        due = perf() - THREADS_EVERY_NS
        waiting = [self.tracks[pid] for pid in self._living]
        waiting.sort(key=lambda track: track.threads[-1].at_ns if track.threads else 0)
        for track in waiting:
            if spent > budget_s * 1e9 or (track.threads and track.threads[-1].at_ns > due):
                break
            self._read_threads(track)
            spent = time.thread_time_ns() - before
        total = self._own_ns[-1][1] if self._own_ns else 0
        self._own_ns.append((perf(), total + spent))
        return spent

    def _look_for_children(self) -> None:
        """Find new children: a reload of HAProxy starts one below its manager."""
        self._looked_ns = perf()
        parents = {pid: track.role for pid, track in self.tracks.items()}
        for parent in (
            pid for pid, role in parents.items() if role in ("haproxy_manager", "raylet")
        ):
            for pid in children_of(str(parent)) - set(self.tracks):
                if parents[parent] == "haproxy_manager":
                    self._watch(Track(pid, "haproxy", "haproxy"))
                    continue
                title = read_title(pid)  # which Ray sets when a worker becomes an actor
                role = role_of(title)
                if role == "proxy" and "haproxy_manager" in parents.values():
                    role = "fallback_proxy"  # beside HAProxy
                if role in LATE_ROLES:
                    self._watch(Track(pid, role, title))

    def _read_others(self, others: OtherPrograms) -> None:
        """Read other programs, and sample those of the new processes that a replica has started."""
        for pid in others.read():
            parent = self.tracks.get(find_parent(pid))
            if parent is not None and parent.role in ("replica", CHILD_OF_REPLICA):
                self._watch(Track(pid, CHILD_OF_REPLICA, name_of(pid) or CHILD_OF_REPLICA))

    def _watch(self, track: Track) -> None:
        self.tracks[track.pid] = track
        self._living.add(track.pid)

    def _read_cpu(self, track: Track) -> None:
        used = cpu_ns(track.pid)
        now = perf()
        if used is None:
            self._living.discard(track.pid)
            return
        track.cpu_ns.append((now, used))
        is_due = not track.rss_bytes or now - track.rss_bytes[-1][0] >= RSS_EVERY_NS
        if is_due and (rss := rss_bytes(track.pid)) is not None:
            track.rss_bytes.append((now, rss))

    def _read_threads(self, track: Track) -> None:
        if (reading := threads_of(track.pid)) is None:
            return
        former = track.threads[-1].run_ns if track.threads else {}
        busiest = max(reading.run_ns, key=lambda tid: reading.run_ns[tid] - former.get(tid, 0))
        track.threads.append(reading)
        if busiest not in track.names and (name := thread_name(track.pid, busiest)) is not None:
            track.names[busiest] = name

    def _measure_own(self) -> float | None:
        """Return % of a core over the ticks of the thread, without the first and last readings."""
        ticks = self._own_ns[:-1]
        if len(ticks) < 2:
            return None
        return round(100.0 * (ticks[-1][1] - ticks[0][1]) / (ticks[-1][0] - ticks[0][0]), 2)


def levels_of(processes: Iterable[Process]) -> TrialUsage:
    """Read memory, threads and descriptors of living processes, as the `usage` of a trial.

    A reading takes 3 ms per process: it belongs between loads.
    """
    levels = []
    for process in processes:
        threads, memory = thread_count(process.pid), memory_of(process.pid)
        if threads is not None:
            sizes = {part: round(size / 1e6, 3) for part, size in memory.items()}
            level = ProcessUsage(
                pid=process.pid,
                role=process.role,
                title=without_method(process.title)[:LONGEST_TITLE],
                pss_mb=sizes.get("Pss"),
                private_mb=sizes.get("Private_Dirty"),
                threads=threads,
                descriptors=descriptors(process.pid),
            )
            levels.append(level)
    host = HostUsage(free_mb=round(free_memory_bytes() / 1e6, 1))
    return TrialUsage(host=host, processes=tuple(levels))


LEAST: Final = 0.05
"""The share of a core in an interval from which on a process is named: of the usual interval it is
25 ms, more than what shells and timers take."""

KERNEL_THREADS: Final = 2  # the pid of kthreadd, the parent of all threads of the kernel

RAY_PARTS: Final = frozenset(
    """gcs raylet dashboard dashboard_agent runtime_env_agent log_monitor autoscaler_monitor
    ray_reaper""".split()
)
"""Parts of Ray that stand beside their raylet: of which cluster they are is not in their tree."""

_INTERPRETER: Final = re.compile(r"(python|pypy|node|ruby|perl|bash|sh)[\d.]*")
_CODE: Final = {"node": "ep", "perl": "eE", "ruby": "e"}
"""Letters that end a flag before code; of the others it is c."""


@dataclass
class OtherPrograms:
    """The use of other programs, by intervals. `ours`: the processes sampled; it may grow."""

    ours: Container[int]
    spans: list[OthersSpan] = field(default_factory=list)
    read_ns: int = 0  # when it was read last
    _names: dict[int, str | None] = field(default_factory=dict)  # None: no other program
    _before: Mapping[int, int] | None = None

    def read(self) -> set[int]:
        """Read the CPU time of all processes, about 1.5 us each; return those that are new."""
        now, totals = perf(), dict[int, int]()
        if now - self.read_ns < SHORTEST_NS:  # the last reading is too near
            return set()
        for entry in os.listdir("/proc"):
            pid = int(entry) if entry.isdigit() else 0
            if pid and pid not in self.ours and (used := cpu_ns(pid)) is not None:
                totals[pid] = used
        before, begin_ns = self._before, self.read_ns
        self._before, self.read_ns = totals, now
        if before is not None:
            # What was not there before has used all its time since.
            grown = {pid: used - before.get(pid, 0) for pid, used in totals.items()}
            least = LEAST * (now - begin_ns)
            used_ns = {pid: ns for pid, ns in grown.items() if ns >= least and self._name(pid)}
            self.spans.append(OthersSpan(begin_ns, now, used_ns))
        return set(totals).difference(before or ())

    def names(self, ours: Iterable[int]) -> dict[int, str]:
        """Return the programs by pid, without those that `ours` call."""
        names = {pid: name for pid, name in self._names.items() if name is not None}
        called = find_called(ours) if names else set()
        return {pid: name for pid, name in names.items() if pid not in called}

    def _name(self, pid: int) -> str | None:
        if pid not in self._names:
            self._names[pid] = None if self._is_ours(pid) else name_of(pid)
        return self._names[pid]

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            if pid in self.ours or pid == KERNEL_THREADS:
                return True
            pid = find_parent(pid)
        return False


def name_of(pid: int) -> str | None:
    """Return the program of a process; None for a part of Ray."""
    arguments = arguments_of(pid)
    line = " ".join(arguments)
    if role_of(line) in RAY_PARTS and "ray" in PurePath(line).parts:
        return None
    return program_name(arguments) or thread_name(pid, pid) or "a program that has ended"


def program_name(arguments: Sequence[str]) -> str:
    """Return the program of a command line: `python x.py`, `python -m package`, `postgres`."""
    first, *rest = arguments or [""]
    # A title that a process has set itself ends at its first blank: what follows may name a user.
    title = first if rest else first.partition(" ")[0].rstrip(":")
    name = PurePath(title).name
    interpreter = _INTERPRETER.fullmatch(name)
    if interpreter is None:
        return name
    words, code = iter(rest), _CODE.get(interpreter[1], "c")
    for word in words:
        if word == "-m":
            return f"{interpreter[1]} -m {next(words, '')}".rstrip()
        if word in ("-X", "-W"):
            next(words, None)
        elif not word.startswith("-"):
            return f"{interpreter[1]} {PurePath(word).name}"
        elif word in ("--eval", "--print") or (not word.startswith("--") and word[-1] in code):
            break  # the next word is code: perl -we CODE
    return interpreter[1]


def find_called(ours: Iterable[int]) -> set[int]:
    """Return the processes that `ours` call over TCP, and those that these call in turn."""
    # The system shows us no connections of other users' processes.
    connections = [connection for connection in psutil.net_connections("tcp") if connection.pid]
    ends = {(end.laddr, end.raddr): end.pid for end in connections if end.raddr}
    listening: dict[int, set[int]] = {}
    for socket in connections:
        if socket.status == psutil.CONN_LISTEN:
            listening.setdefault(socket.laddr.port, set()).add(socket.pid)
    calls: dict[int, set[int]] = {}
    for (near, far), pid in ends.items():
        if far.port in listening and (far, near) in ends:
            calls.setdefault(pid, set()).update({ends[far, near], *listening[far.port]})
    found, left = set[int](), [*ours]
    while left:
        further = calls.get(left.pop(), set()) - found
        found |= further
        left += further
    return found
