"""py-spy, the program: where it is, its options, what its words mean, and its dump of stacks now.

Rule: it is the one of this environment, started with a list of words; its errors come out as one
line that says what to do. Recordings are in profiler.py, who may look into a process in rights.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.observing.rights import why_not_allowed

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
