"""May this user look into a process, and is there Python in it? Answers say what to do about it.

It reads /proc and changes nothing.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

import psutil

from serve_bench.core.errors import BadInput, RunFailed

_CAP_SYS_PTRACE: Final = 19


def check_process(pid: int) -> None:
    """BadInput unless the process runs and is Python; RunFailed when it may not be looked into."""
    try:
        process = psutil.Process(pid)
        name, status = process.name(), process.status()
    except psutil.NoSuchProcess:
        raise BadInput(f"no process {pid}: it has ended, or never was") from None
    if status == psutil.STATUS_ZOMBIE:
        raise BadInput(f"process {pid} ({name}) has ended and waits for its parent to notice")
    reason = why_not_allowed(pid)
    if reason is not None:
        raise RunFailed(reason)
    if name == "haproxy":
        raise BadInput(
            f"process {pid} is haproxy, which is C: py-spy cannot see it; "
            "use --target haproxy for its CPU and for perf"
        )
    if is_python(pid) is False:
        raise BadInput(f"process {pid} ({name}) is not Python: py-spy cannot see into it")


def why_not_allowed(pid: int) -> str | None:
    """Why this user may not look into the process, and what to do; None where it may."""
    again = f'sudo env "PATH=$PATH" serve-bench profile --pid {pid}'
    if sys.platform == "darwin":
        return None if os.geteuid() == 0 else f"macOS lets only root look into a process: {again}"
    if _has_ptrace():
        return None
    try:
        owner = psutil.Process(pid).uids().real
    except psutil.NoSuchProcess:
        return None  # check_process says that better
    if os.geteuid() == 0:
        return (
            "root without CAP_SYS_PTRACE: start the container with --cap-add SYS_PTRACE "
            '(Kubernetes: securityContext.capabilities.add: ["SYS_PTRACE"])'
        )
    if owner != os.geteuid():
        return f"process {pid} belongs to another user: {again}"
    scope = ptrace_scope()
    if scope >= 1:
        return f"ptrace_scope is {scope}, which keeps other processes closed: {again}"
    return None


def ptrace_scope(file: Path = Path("/proc/sys/kernel/yama/ptrace_scope")) -> int:
    """The kernel's setting: 0 own processes, 1 own children, 2 administrators, 3 nobody."""
    try:
        return int(file.read_text())
    except OSError:
        return 0  # a kernel without Yama does not restrict


def _has_ptrace() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False


def is_python(pid: int) -> bool | None:
    """Whether an interpreter is mapped into the process; None where that cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return None
    files = {line.rsplit("/", 1)[-1] for line in text.splitlines() if "/" in line}
    return any(re.match(r"(lib)?python\d", name) for name in files) if files else None
