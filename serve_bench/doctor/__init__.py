"""`serve-bench doctor`: everything on this machine that decides whether figures can be trusted.

Rule: it looks and changes nothing; it never fails because something cannot be read, but says so.
Findings and their words are in analysis/checks.py, thresholds at the top of each module here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import psutil

from serve_bench.analysis.checks import Finding, Section
from serve_bench.doctor import cpu_checks, ray_checks, room_checks, tool_checks
from serve_bench.doctor import tool_checks as gpu_checks
from serve_bench.doctor.place import Place
from serve_bench.runner.model_needs import Torch
from serve_bench.serving.launch_spec import ignored_environment

__all__ = ["Place", "diagnose"]


def diagnose(place: Place, tell: Callable[[str], None] = lambda text: None) -> tuple[Section, ...]:
    """Looks at all there is. `tell` hears what takes seconds, before it does.

    Raises BadInput when `place.python` is no interpreter.
    """
    python = ray_checks.interpreter(place)  # first: a wrong --python is told at once
    load = _looked("load", lambda: cpu_checks.read_load(place))  # before we add to it
    before = cpu_checks.ticks(place)
    time.sleep(place.pause_s)
    after = cpu_checks.ticks(place)
    clock = _looked("clock", lambda: cpu_checks.read_clock(place))
    steal = _looked("steal", lambda: cpu_checks.steal(before, after, place.pause_s))
    cpu = _cpu(place, load, steal, clock)
    room = _room(place, before, after)  # before torch takes some of it
    asked = [name for name in ("ray", "torch") if python.versions[name] is not None]
    if asked:
        tell(f"asking {' and '.join(asked)}, which takes seconds")
    with ThreadPoolExecutor(2) as pool:
        serve = pool.submit(ray_checks.why_not_loaded, place) if "ray" in asked else None
        torch = pool.submit(gpu_checks.ask_torch, place.python) if "torch" in asked else None
        rest = (_ray(python, serve), _inside(), _models(place, python, torch), _others())
    return (cpu, room, *rest)


def _cpu(place: Place, load: Finding, steal: Finding, clock: Finding) -> Section:
    return Section(
        "CPU and clock",
        (
            _looked("cores", lambda: cpu_checks.read_cores(place)),
            _looked("CPU quota", lambda: cpu_checks.read_quota(place)),
            _looked("CPU governor", lambda: cpu_checks.read_governor(place)),
            load,
            steal,
            clock,
        ),
    )


def _room(place: Place, before: cpu_checks.Ticks | None, after: cpu_checks.Ticks | None) -> Section:
    return Section(
        "room",
        (
            _looked("memory", lambda: room_checks.read_memory(place)),
            _looked("swap", lambda: room_checks.read_swap(place, before, after)),
            _looked("shared memory", lambda: room_checks.read_shared_memory(place)),
            _looked("disk for Ray", lambda: _ray_disk(place)),
            _looked("disk for results", lambda: _results_disk(place)),
            _looked("open files", lambda: room_checks.read_open_files(place)),
            _looked("ephemeral ports", lambda: room_checks.read_ports(place)),
        ),
    )


def _ray(python: ray_checks.Interpreter, serve: Future[str | None] | None) -> Section:
    not_loaded = None if serve is None else serve.result()
    return Section(
        "Ray",
        (
            _looked("Python", lambda: ray_checks.python(python, os.environ)),
            _looked("Ray", lambda: ray_checks.ray(python, not_loaded)),
            _looked("RAY_SERVE_* flags", lambda: ray_checks.flags(python)),
            _looked("HAProxy", lambda: ray_checks.haproxy(python, os.environ)),
            _looked("RAY_* in the shell", lambda: ray_checks.shell(ignored_environment())),
            _looked("earlier runs", ray_checks.read_strays),
            _looked("other Ray nodes", ray_checks.read_other_clusters),
        ),
    )


def _inside() -> Section:
    py_spy = _looked("py-spy", tool_checks.read_py_spy)
    runs = py_spy.status == "ok"
    return Section(
        "looking inside",
        (
            py_spy,
            _looked("ptrace rights", lambda: tool_checks.read_ptrace(runs)),
            _looked("perf", tool_checks.read_perf),
        ),
    )


def _models(
    place: Place, python: ray_checks.Interpreter, asked: Future[Torch | str] | None
) -> Section:
    gpu = _looked("GPU", lambda: gpu_checks.read_gpu(place))
    if asked is None:
        return Section("models", (gpu, gpu_checks.torch(None, None, None, (), False)))
    told, has_gpu = asked.result(), bool(gpu.detail.get("devices"))
    return Section("models", (gpu, gpu_checks.read_torch(python, told, has_gpu)))


def _others() -> Section:
    programs = tuple(tool_checks.program(*one) for one in tool_checks.PROGRAMS)
    libraries = tuple(tool_checks.library(*one) for one in tool_checks.LIBRARIES)
    return Section("other tools", programs + libraries)


def _ray_disk(place: Place) -> Finding:
    return room_checks.read_disk(
        "disk for Ray", place.temporary, "set TMPDIR to a short path elsewhere", needed=True
    )


def _results_disk(place: Place) -> Finding:
    return room_checks.read_disk(
        "disk for results", place.results, "choose another folder by --out", needed=False
    )


def _looked(name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check. What the system does not let it read makes it unknown."""
    try:
        return replace(check(), name=name)
    except (OSError, ValueError, IndexError, psutil.Error) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Finding(name, "unknown", f"cannot be found out: {why}")
