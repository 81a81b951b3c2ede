"""Tools beside Ray: rights to look into processes, py-spy, perf, other load generators, libraries.

Rule: py-spy and perf are tried on this process, since settings alone do not tell what a seccomp
filter or a missing counter forbids. What is optional and missing is `absent`, never a warning.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final

from serve_bench.analysis.checks import Finding, Status
from serve_bench.core.errors import BadInput
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.core.result import VariantUsed
from serve_bench.doctor.place import Place, plural, said_by, where
from serve_bench.doctor.ray_checks import Interpreter
from serve_bench.observing.profiler import (
    PACKAGE,
    PerfUnusable,
    ProfileFailed,
    dump,
    ptrace_scope,
    py_spy,
    record_perf,
    why_not_allowed,
)
from serve_bench.observing.sampler import Gpus
from serve_bench.runner.model_needs import Torch, torch_of

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
        record_perf(os.getpid(), 0.0, 99)
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


# --------------------------------------------------------------------------------------------------
# GPU, driver and torch: what is there, whether it is free, and whether torch can use it.
#
# Rule: no GPU is no fault. torch is asked in a process of its own (runner/model_needs.py), by the
# interpreter whose Ray is looked at.

BUSY_PERCENT: Final = 5.0
"""Use of an idle GPU is 0 %: what is above some noise is another program."""

HELD_SHARE: Final = 0.05
"""Memory of an idle GPU in use: the driver itself holds some hundred MB of tens of GB."""

_FIELDS: Final = "name,driver_version,memory.total,memory.used,utilization.gpu"
_DRIVER: Final = re.compile(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)")


@dataclass(frozen=True)
class Device:
    """A GPU as nvidia-smi tells it; memory in MiB, use in percent; None where it does not tell."""

    name: str
    driver: str
    total_mib: float | None
    used_mib: float | None
    use_percent: float | None


def devices_of(text: str) -> list[Device]:
    """The lines of `nvidia-smi --query-gpu`, as CSV without units."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_FIELDS.split(",")):
            total, used, use = (_number(cell) for cell in cells[2:])
            found.append(Device(cells[0], cells[1], total, used, use))
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # [N/A]


def read_gpu(place: Place) -> Finding:
    """The driver by /proc, the devices by nvidia-smi."""
    told = _DRIVER.search(place.text("proc/driver/nvidia/version") or "")
    driver = told[1] if told else None
    smi = where("nvidia-smi")
    if smi is None:
        return gpu(driver, None, None, None)
    said = said_by([smi, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"], r"^([^,\n]+),")
    gpus = Gpus()
    gpus.close()
    return gpu(driver, said.why, devices_of(said.text), gpus.why_not)


def gpu(
    driver: str | None,
    smi_failed: str | None,
    devices: Sequence[Device] | None,
    nvml_missing: str | None,
) -> Finding:
    """`devices`: None without nvidia-smi. `nvml_missing`: why use cannot be sampled."""
    if devices is None:
        if driver is None:
            use = "models run on the CPU; nothing else of serve-bench wants one"
            return Finding("GPU", "absent", "no NVIDIA driver, no nvidia-smi", use)
        value = f"driver {driver}, but no nvidia-smi to tell the devices"
        return Finding("GPU", "unknown", value, detail={"driver": driver})
    detail = {"driver": driver, "devices": [asdict(one) for one in devices]}
    if not devices:
        value = f"nvidia-smi tells no device: {smi_failed or 'it said nothing'}"
        advice = "if there is a GPU: the driver does not run, or docker lacks --gpus all"
        return Finding("GPU", "warning", value, advice, detail)
    names = sorted({one.name for one in devices})
    value = f"{len(devices)} x {', '.join(names)}, driver {devices[0].driver}"
    if any(_busy(one) for one in devices):
        advice = "another program uses it: nvidia-smi names it; wait for it to end"
        return Finding("GPU", "warning", f"{value}, in use", advice, detail)
    if nvml_missing is not None:
        advice = "its use is not sampled beside loads: pip install 'serve-bench[gpu]'"
        return Finding("GPU", "warning", f"{value}; {nvml_missing}", advice, detail)
    if any(one.use_percent is None or one.used_mib is None for one in devices):
        return Finding("GPU", "unknown", f"{value}; whether it is in use is not told", "", detail)
    return Finding("GPU", "ok", f"{value}, not in use", detail=detail)


def _busy(one: Device) -> bool:
    held = one.used_mib / one.total_mib if one.used_mib and one.total_mib else 0.0
    return (one.use_percent or 0.0) > BUSY_PERCENT or held > HELD_SHARE


def ask_torch(python: str | None) -> Torch | str:
    """The torch of an interpreter, loaded there for its devices, which takes seconds; or why it
    does not load."""
    try:
        return torch_of(VariantUsed("doctor", python=python))
    except BadInput as error:
        said = str(error).removeprefix(f"variants.doctor: python {python}: ")
        return said.removeprefix("torch cannot be used: ")


def read_torch(found: Interpreter, told: Torch | str, has_gpu: bool) -> Finding:
    """What `ask_torch` told, judged."""
    if isinstance(told, str):
        return torch(found.versions["torch"], told, None, (), has_gpu)
    return torch(told.version, None, told.built_for, [name for name, _ in told.devices], has_gpu)


def torch(
    version: str | None,
    broken: str | None,
    built_for: str | None,
    devices: Sequence[str],
    has_gpu: bool,
) -> Finding:
    """`broken`: why it does not load; `devices`: the GPUs that it can use."""
    if version is None:
        use = "for recsys, press, ranker and rpc: pip install 'serve-bench[torch]'"
        return Finding("torch", "absent", "not installed", use)
    detail = {"version": version, "built_for_cuda": built_for, "devices": list(devices)}
    if broken is not None:
        advice = "recsys, press, ranker and rpc need it: pip install --force-reinstall torch"
        return Finding("torch", "warning", f"{version} does not load: {broken}", advice, detail)
    value = f"{version}, built {f'for CUDA {built_for}' if built_for else 'without CUDA'}"
    if devices:
        return Finding("torch", "ok", f"{value}, can use {plural(len(devices), 'GPU')}", "", detail)
    if has_gpu:
        advice = "models would run on the CPU: take a torch whose CUDA the driver supports "
        advice += "(nvidia-smi tells it), and see CUDA_VISIBLE_DEVICES"
        return Finding("torch", "warning", f"{value}, finds no GPU", advice, detail)
    return Finding("torch", "ok", f"{value}; it loads, models run on the CPU", "", detail)
