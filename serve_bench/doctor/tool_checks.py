"""Tools beside Ray: rights to look into processes, py-spy, perf, other load generators, libraries.

Rule: py-spy and perf are tried on this process, since settings alone do not tell what a seccomp
filter or a missing counter forbids. What is optional and missing is `absent`, never a warning.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from typing import Final

from serve_bench.analysis.fitness import Finding, Status
from serve_bench.core.errors import BadInput
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.doctor.place import plural
from serve_bench.doctor.programs import said_by, where
from serve_bench.observing.perf import PACKAGE, PerfUnusable, record
from serve_bench.observing.pyspy import ProfileFailed, dump, py_spy
from serve_bench.observing.rights import ptrace_scope, why_not_allowed

#: Program, the flag that makes it tell its version, the pattern, and what it is good for here.
PROGRAMS: Final = (
    ("wrk", "-v", r"wrk (?:debian/)?v?(\d[^\s\[]*)", "load --client wrk: apt-get install wrk"),
    ("ab", "-V", r"Version (\d\S*)", "load --client ab: apt-get install apache2-utils"),
    ("locust", "--version", r"locust (\d\S*)", "deploy/locustfile.py: pip install locust"),
    ("oha", "--version", r"oha (\d\S*)", "loads of your own on `serve-bench noop --blocking`"),
)

#: What each is for, and how its absence is judged: scipy comes with the tool, plots are an extra.
LIBRARIES: Final[tuple[tuple[str, str, Status], ...]] = (
    ("scipy", "intervals of versus and compare: pip install scipy", "warning"),
    ("matplotlib", "plots of ladders, rpc and scale: pip install 'serve-bench[plot]'", "absent"),
    ("vl-convert-python", "--format html: pip install 'serve-bench[plot]'", "absent"),
    ("pytest-benchmark", "the pytest fixtures: pip install 'serve-bench[ci]'", "absent"),
)

#: What a library is imported as, where it is not its name.
MODULES: Final = {"scipy": "scipy.special", "vl-convert-python": "vl_convert"}

#: matplotlib makes a list of all fonts the first time.
IMPORT_TIMEOUT_S: Final = 60.0


def program(name: str, flag: str, pattern: str, use: str) -> Finding:
    """A program that need not be there: found with its version, or what it would be good for."""
    path = where(name)
    if path is None:
        return Finding(name, "absent", "not on PATH", f"for {use}")
    said = said_by([path, flag], pattern)
    detail = {"path": path, "version": said.version}
    if said.version is None:
        advice = "install it anew, or take it off PATH"
        return Finding(name, "warning", f"{path} does not run: {said.why}", advice, detail)
    return Finding(name, "ok", f"{said.version}, {path}", detail=detail)


def library(name: str, use: str, missing: Status = "absent") -> Finding:
    """A library of this interpreter that some commands need."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, missing, "not installed", f"for {use}")
    detail = {"version": version}
    reason = why_not_imported(MODULES.get(name, name.replace("-", "_")))
    if reason is not None:
        advice = f"for {use.replace('pip install', 'pip install --force-reinstall')}"
        value = f"{version}, but cannot be imported: {reason}"
        return Finding(name, "warning", value, advice, detail)
    return Finding(name, "ok", version, detail=detail)


def why_not_imported(module: str) -> str | None:
    """Why this interpreter, in a process of its own, cannot import a module; None where it can."""
    code = f"{NOT_FROM_HERE}import {module}"
    try:
        told = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {IMPORT_TIMEOUT_S:.0f} s"
    lines = told.stderr.strip().splitlines() or [f"exit code {told.returncode}"]
    return lines[-1] if told.returncode else None


def read_py_spy() -> Finding:
    """The py-spy that `profile` uses."""
    try:
        path = py_spy()
    except BadInput as error:
        advice = f"profile and --profile need it: {str(error).rpartition(': ')[2]}"
        return Finding("py-spy", "warning", "not installed", advice)
    said = said_by([path, "--version"], r"py-spy (\S+)")
    detail = {"path": path, "version": said.version}
    if said.version is None:
        advice = "profile and --profile need it: pip install --force-reinstall py-spy"
        return Finding("py-spy", "warning", f"{path} does not run: {said.why}", advice, detail)
    return Finding("py-spy", "ok", f"{said.version}, {path}", detail=detail)


def read_ptrace(py_spy_runs: bool) -> Finding:
    """May this user look into other processes? Tried by py-spy on this process."""
    reason = why_not_allowed(os.getpid())
    if reason is None and py_spy_runs:
        try:
            stacks = dump(os.getpid())
        except ProfileFailed as error:
            reason = str(error)
        else:
            return ptrace(None, len(re.findall(r"^Thread ", stacks, re.MULTILINE)))
    return ptrace(reason, None)


def ptrace(reason: str | None, threads: int | None) -> Finding:
    """`reason`: why not, and what to do; `threads`: of this process, that py-spy saw."""
    scope = ptrace_scope()
    detail = {"ptrace_scope": scope, "root": os.geteuid() == 0, "threads_seen": threads}
    if reason is not None:
        own = re.sub(rf"process {os.getpid()}\b", "this process", reason)
        value, _, advice = own.replace(f" --pid {os.getpid()}", " ...").partition(": ")
        advice = f"profile and --profile cannot work: {advice or 'see docs/profiling.md'}"
        return Finding("ptrace rights", "warning", value, advice, detail)
    who = "root" if os.geteuid() == 0 else f"ptrace_scope {scope}"
    if threads is None:
        value = f"{who}: nothing speaks against it, but without py-spy it was not tried"
        return Finding("ptrace rights", "unknown", value, detail=detail)
    value = f"{who}; py-spy saw {plural(threads, 'thread')} of this process"
    return Finding("ptrace rights", "ok", value, detail=detail)


def read_perf() -> Finding:
    """perf, tried on this process for a moment."""
    path = where("perf")
    if path is None:
        return Finding("perf", "absent", "not on PATH", f"for --target haproxy: {PACKAGE}")
    said = said_by([path, "--version"], r"perf version (\S+)")
    try:
        record(os.getpid(), 0.0, 99)
    except PerfUnusable as error:
        return perf(path, said.version, str(error))
    return perf(path, said.version, None)


def perf(path: str, version: str | None, reason: str | None) -> Finding:
    """`reason`: why it could not record."""
    detail = {"path": path, "version": version, "reason": reason}
    if reason is None and version is not None:
        return Finding("perf", "ok", f"{version}, {path}; it may record", detail=detail)
    value = f"{version or 'version not told'}; {reason or 'it tells no version'}"
    advice = "profile --target haproxy cannot work: run as root, or "
    advice += "sudo sysctl kernel.perf_event_paranoid=2 (a container needs CAP_PERFMON)"
    return Finding("perf", "warning", value, advice, detail)
