"""`serve-bench doctor`: everything on this machine that decides whether figures can be trusted.

Rule: it reads and changes nothing. Where something cannot be read, it says so and goes on.
Findings and their words are in analysis/checks.py, thresholds beside the checks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil

from serve_bench.analysis.checks import Check, CheckGroup
from serve_bench.doctor import machine_checks, tool_checks
from serve_bench.doctor.machine import Machine
from serve_bench.serving.launch_spec import ignored_environment

__all__ = ["Machine", "diagnose"]

Checker = Callable[[], Check]


def diagnose(
    machine: Machine, announce: Callable[[str], None] = lambda text: None
) -> tuple[CheckGroup, ...]:
    """Looks at all there is. `announce` is called with what takes seconds, before it begins.

    Raises BadInput when `machine.python` is no interpreter.
    """
    python = tool_checks.interpreter(machine)  # first: a wrong --python is refused at once
    load = _checked("load", lambda: machine_checks.read_load(machine))  # before we add to it
    before = machine_checks.ticks(machine)
    time.sleep(machine.pause_s)
    after = machine_checks.ticks(machine)
    cpu = _section(
        "CPU and clock",
        {
            "cores": lambda: machine_checks.read_cores(machine),
            "CPU quota": lambda: machine_checks.read_quota(machine),
            "CPU governor": lambda: machine_checks.read_governor(machine),
            "load": lambda: load,
            "steal": lambda: machine_checks.steal(before, after, machine.pause_s),
            "clock": lambda: machine_checks.read_clock(machine),
        },
    )
    room = _room(machine, before, after)  # before torch takes some of it
    heavy = [name for name in ("ray", "torch") if python.versions[name] is not None]
    if heavy:
        announce(f"importing {' and '.join(heavy)} (some seconds)")
    with ThreadPoolExecutor(2) as pool:
        serve = pool.submit(tool_checks.why_not_loaded, machine) if "ray" in heavy else None
        torch = pool.submit(tool_checks.ask_torch, machine.python) if "torch" in heavy else None
        not_loaded = None if serve is None else serve.result()
        ray = _ray(python, not_loaded)
        inside = _inside()
        gpu = _checked("GPU", lambda: tool_checks.read_gpu(machine))
        answer = None if torch is None else torch.result()
    has_gpu = bool(gpu.detail.get("devices"))
    models = CheckGroup("models", (gpu, tool_checks.read_torch(python, answer, has_gpu)))
    programs = tuple(tool_checks.program(*one) for one in tool_checks.PROGRAMS)
    libraries = tuple(tool_checks.library(*one) for one in tool_checks.LIBRARIES)
    return (cpu, room, ray, inside, models, CheckGroup("other tools", programs + libraries))


def _room(
    machine: Machine, before: machine_checks.Ticks | None, after: machine_checks.Ticks | None
) -> CheckGroup:
    ray_flag, flag = "set TMPDIR to a short path elsewhere", "choose another folder by --out"
    read_disk = machine_checks.read_disk
    return _section(
        "room",
        {
            "memory": lambda: machine_checks.read_memory(machine),
            "swap": lambda: machine_checks.read_swap(machine, before, after),
            "shared memory": lambda: machine_checks.read_shared_memory(machine),
            "disk for Ray": lambda: read_disk("", machine.temporary, ray_flag, needed=True),
            "disk for results": lambda: read_disk("", machine.results, flag, needed=False),
            "open files": lambda: machine_checks.read_open_files(machine),
            "ephemeral ports": lambda: machine_checks.read_ports(machine),
        },
    )


def _ray(python: tool_checks.Interpreter, not_loaded: str | None) -> CheckGroup:
    return _section(
        "Ray",
        {
            "Python": lambda: tool_checks.python(python, os.environ),
            "Ray": lambda: tool_checks.ray(python, not_loaded),
            "RAY_SERVE_* flags": lambda: tool_checks.flags(python),
            "HAProxy": lambda: tool_checks.haproxy(python, os.environ),
            "RAY_* in the shell": lambda: tool_checks.shell(ignored_environment()),
            "earlier runs": tool_checks.read_strays,
            "other Ray nodes": tool_checks.read_other_clusters,
        },
    )


def _inside() -> CheckGroup:
    py_spy = _checked("py-spy", tool_checks.read_py_spy)
    return _section(
        "looking inside",
        {
            "py-spy": lambda: py_spy,
            "ptrace rights": lambda: tool_checks.read_ptrace(py_spy.status == "ok"),
            "perf": tool_checks.read_perf,
        },
    )


def _section(title: str, checks: dict[str, Checker]) -> CheckGroup:
    return CheckGroup(title, tuple(_checked(name, check) for name, check in checks.items()))


def _checked(name: str, check: Checker) -> Check:
    """The finding of a check. What it may not read makes it unknown."""
    try:
        return replace(check(), name=name)
    except (OSError, ValueError, IndexError, psutil.Error) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Check(name, "unknown", f"cannot be found out: {why}")
