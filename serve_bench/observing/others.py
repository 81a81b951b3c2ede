"""CPU of the other programs on the host beside a load, read at an interval.

Rule: a program is named by its file and its script; further arguments may hold secrets. No other
program is a process that is sampled, whatever that started, what it calls over TCP (a database of
the app, say), a part of Ray, or a thread of the kernel. core/usage.py adds up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

import psutil

from serve_bench.core.proof import role_of
from serve_bench.core.usage import SHORTEST_NS, OthersSpan
from serve_bench.observing.host import arguments_of, cpu_ns, parent_of, perf, thread_name

LEAST: Final = 0.05
"""The share of a core in an interval from which on a process is named: of the usual interval it is
25 ms, more than what shells and timers take."""

KERNEL_THREADS: Final = 2
"""The pid of kthreadd, the parent of all threads of the kernel."""

RAY_PARTS: Final = frozenset(
    """gcs raylet dashboard dashboard_agent runtime_env_agent log_monitor autoscaler_monitor
    ray_reaper""".split()
)
"""Parts of Ray that stand beside their raylet: of which cluster they are is not in their tree."""

_INTERPRETER: Final = re.compile(r"(python|pypy|node|ruby|perl|bash|sh)[\d.]*")
_WITH_VALUE: Final = ("-X", "-W")


@dataclass
class OtherPrograms:
    """What others use, by intervals. `ours`: the processes that are sampled; it may grow."""

    ours: Container[int]
    spans: list[OthersSpan] = field(default_factory=list)
    read_ns: int = 0  # when it was read last
    _names: dict[int, str | None] = field(default_factory=dict)  # None: no other program
    _before: Mapping[int, int] | None = None

    def read(self) -> set[int]:
        """Reads the CPU time of all processes, about 1.5 us each. Returns those that were not there
        at the last reading; none if that is too near."""
        now, totals = perf(), dict[int, int]()
        if now - self.read_ns < SHORTEST_NS:
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
        """The programs by pid, without those that `ours` call."""
        names = {pid: name for pid, name in self._names.items() if name is not None}
        called = called_by(ours) if names else set()
        return {pid: name for pid, name in names.items() if pid not in called}

    def _name(self, pid: int) -> str | None:
        if pid not in self._names:
            self._names[pid] = None if self._is_ours(pid) else name_of(pid)
        return self._names[pid]

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            if pid in self.ours or pid == KERNEL_THREADS:
                return True
            pid = parent_of(pid)
        return False


def name_of(pid: int) -> str | None:
    """The program of a process; None for a part of Ray."""
    arguments = arguments_of(pid)
    line = " ".join(arguments)
    if role_of(line) in RAY_PARTS and "ray" in PurePath(line).parts:
        return None
    return program_name(arguments) or thread_name(pid, pid) or "a program that has ended"


def program_name(arguments: Sequence[str]) -> str:
    """`python x.py`, `python -m package`, `postgres`: the program of a command line, and of an
    interpreter the script; empty without arguments. A title that a process has set for itself ends
    at its first blank: what follows may name a user."""
    first, *rest = arguments or [""]
    title = first if rest else first.partition(" ")[0].rstrip(":")
    name = PurePath(title).name
    interpreter = _INTERPRETER.fullmatch(name)
    if interpreter is None:
        return name
    words = iter(rest)
    for word in words:
        if word == "-m":
            return f"{interpreter[1]} -m {next(words, '')}".rstrip()
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return f"{interpreter[1]} {PurePath(word).name}"
        elif word in ("-c", "-e"):
            break
    return interpreter[1]


def called_by(ours: Iterable[int]) -> set[int]:
    """The processes that listen where these have TCP connections, or where those have some in turn.
    Of other users' processes the system shows us no connections."""
    known = [connection for connection in psutil.net_connections("tcp") if connection.pid]
    ends = {(end.laddr, end.raddr): end.pid for end in known if end.raddr}
    listening: dict[int, set[int]] = {}
    for socket in known:
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
