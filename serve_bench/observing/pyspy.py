"""py-spy, the program: where it is, its options, what its words mean, and its dump of stacks now.

Rule: it is the one of this environment, started with a list of words; its errors come out as one
line that says what to do. Recordings are in profiler.py, who may look into a process below.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from serve_bench.analysis.stacks import Stacks
from serve_bench.core.errors import BadInput, RunFailed

# --------------------------------------------------------------------------------------------------
# May this user look into a process, and is there Python in it? Answers say what to do about it.
#
# It reads /proc and changes nothing.

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


# --------------------------------------------------------------------------------------------------

FORMATS: Final = {
    "flamegraph": ".svg",
    "speedscope": ".speedscope.json",
    "chrometrace": ".chrometrace.json",
    "raw": ".raw.txt",
}
"""What a recording can be had in, and how the name of its file ends."""


@dataclass(frozen=True)
class Options:
    """How py-spy samples. `rate` is samples a second; the others are its flags."""

    rate: int = 100
    native: bool = False
    gil: bool = False
    idle: bool = False
    threads: bool = False
    subprocesses: bool = False
    nonblocking: bool = False

    def words(self) -> list[str]:
        """As words of py-spy's command line."""
        names = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")
        flags = [f"--{name}" for name in names if getattr(self, name)]
        return ["--rate", str(self.rate), *flags]


class ProfileFailed(RunFailed):
    """A recording gave nothing. The message is one line and says what to do."""


def py_spy() -> str:
    """The py-spy of this environment, else the one on PATH. Raises BadInput without either."""
    for place in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), None):
        found = shutil.which("py-spy", path=place)
        if found:
            return found
    raise BadInput("py-spy is not installed in this environment: pip install py-spy")


def explain(said: str, pid: int) -> str:
    """What py-spy's words mean, in one line."""
    if "Permission Denied" in said or "Operation not permitted" in said:
        return why_not_allowed(pid) or f"not allowed to look into process {pid} (a seccomp filter?)"
    if "Failed to get process executable name" in said or "No such process" in said:
        if os.path.exists(f"/proc/{pid}"):
            return f"process {pid} is not Python, or hides its program"
        return f"process {pid} ended before a sample was taken"
    if "Unsupported version of Python" in said:
        found = re.search(r"Unsupported version of Python: (\S+)", said)
        version = f"Python {found[1]}" if found else "its Python"
        return f"py-spy does not know {version} of process {pid} yet: pip install -U py-spy"
    if "Failed to find python version" in said or "Failed to find a python interpreter" in said:
        return f"process {pid} is not Python, or has only just started"
    first = next((line for line in said.splitlines() if line.strip()), "it said nothing")
    return f"py-spy on process {pid} failed: {first.removeprefix('Error: ')}"


def dump(pid: int, *, native: bool = False) -> str:
    """The stacks of all threads now, as py-spy prints them. Raises ProfileFailed."""
    words = [py_spy(), "dump", "--pid", str(pid), *(["--native"] if native else [])]
    told = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if told.returncode != 0:
        raise ProfileFailed(explain(told.stderr or told.stdout, pid))
    return told.stdout


# --------------------------------------------------------------------------------------------------
# perf on a process that is no Python (haproxy), where it is installed and allowed.
#
# Its samples come out as raw stacks, like py-spy's, so that all that reads those serves for both.

PACKAGE: Final = "linux-perf on Debian, linux-tools-generic on Ubuntu, perf on Fedora"
_FRAME: Final = re.compile(r"\s+[0-9a-f]+ (?P<symbol>.*) \((?P<file>[^()]*)\)")
UNKNOWN: Final = "[unknown] ([unknown])"
_OFFSET: Final = re.compile(r"\+0x[0-9a-f]+$")


class PerfUnusable(Exception):
    """perf is missing or not allowed: one line that says what to do."""


def record(pid: int, duration_s: float, rate: int) -> Stacks:
    """Samples a process with perf. Raises PerfUnusable; an idle process gives no stacks."""
    perf = shutil.which("perf")
    if perf is None:
        raise PerfUnusable(f"perf is not installed ({PACKAGE})")
    with tempfile.TemporaryDirectory(prefix="serve-bench-perf-") as folder:
        data = Path(folder) / "perf.data"
        words = [perf, "record", "-F", str(rate), "-g", "-p", str(pid), "-o", str(data)]
        done = _run([*words, "--", "sleep", str(math.ceil(duration_s))], duration_s + 30)
        if done.returncode != 0 or not data.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise PerfUnusable(f"perf may not record: {lines[0] if lines else 'it said nothing'}")
        told = _run([perf, "script", "-i", str(data), "-F", "comm,tid,ip,sym,dso"], 120)
    if told.returncode != 0:
        raise PerfUnusable(f"perf could not read its samples: {told.stderr.strip()[:200]}")
    return collapse(told.stdout)


def _run(words: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PerfUnusable(f"perf took more than {timeout_s:.0f} s") from None


def collapse(script: str) -> Stacks:
    """`perf script` as raw stacks: its samples are blocks of frames, the innermost first."""
    stacks: Counter[tuple[str, ...]] = Counter()
    frames: list[str] = []
    for line in [*script.splitlines(), ""]:
        found = _FRAME.fullmatch(line)
        if found is not None:
            symbol = _OFFSET.sub("", found["symbol"]).replace(";", ":")
            frame = f"{symbol} ({found['file'].rsplit('/', 1)[-1]})"
            # Code without frame pointers gives dozens of unknown frames in a row: one says as much.
            if frame != UNKNOWN or frames[-1:] != [UNKNOWN]:
                frames.append(frame)
        elif not line.strip() and frames:
            stacks[tuple(reversed(frames))] += 1
            frames = []
    return stacks
