"""Checks of the software: Ray, HAProxy, py-spy with its rights, and what earlier runs left.

Rule: no Ray is started, and none is imported in this process. HAProxy is found by the code that
launches use. py-spy is tried on this process, since settings alone do not show what a seccomp
filter forbids.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.doctor.finding import CheckFinding, judge
from serve_bench.observing.profiler import ProfileFailed, dump, py_spy, why_not_allowed
from serve_bench.serving.strays import RUN_MARK, find, known_runs, owner_alive

OLDEST_RAY: Final = (2, 10)
"""What serve-bench asks for (pyproject.toml)."""

ASK_TIMEOUT_S: Final = 90.0
VERSION_TIMEOUT_S: Final = 10.0
CLUSTER: Final = Path(__file__).parent.parent / "serving" / "cluster"

#: The answer comes first, so that it is there where the import of Serve fails.
_ASK: Final = (
    NOT_FROM_HERE
    + """
sys.path.insert(0, sys.argv[1])
from start import haproxy_binary, import_needed
del sys.path[0]
import json, platform
from importlib import metadata
try:
    ray = metadata.version("ray")
except metadata.PackageNotFoundError:
    ray = None
answer = {"python": platform.python_version(), "ray": ray, "haproxy": haproxy_binary()}
print("\\n" + json.dumps(answer), flush=True)
if ray is not None:
    try:
        import_needed()
    except Exception as error:
        sys.exit(str(error))
"""
)


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter has. `ray`: the version; `why_no_serve`: why it cannot import Serve."""

    path: str
    python: str
    ray: str | None
    haproxy: str | None
    why_no_serve: str | None


def ask_interpreter(path: str | None) -> Interpreter:
    """Ask the interpreter of launches (None: this one) what it has. Raises BadInput without one."""
    # The environment is that of launches; importing Serve takes seconds.
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    if path is not None:
        env.pop("PYTHONPATH", None)  # another interpreter must not see our packages
    python = path or sys.executable
    where = f"--python: {python}"
    try:
        done = _run([python, "-c", _ASK, str(CLUSTER)], ASK_TIMEOUT_S, env)
    except OSError as error:
        raise BadInput(f"{where}: {(error.strerror or 'cannot be run').lower()}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{where}: gave no answer in {ASK_TIMEOUT_S:.0f} s") from None
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    line = next((line for line in done.stdout.splitlines() if line.startswith('{"python"')), None)
    if line is None:
        raise BadInput(f"{where}: is no Python that can be asked: {last}")
    answer: dict[str, Any] = json.loads(line)
    return Interpreter(python, **answer, why_no_serve=last if done.returncode else None)


def check_ray(interpreter: Interpreter) -> CheckFinding:
    """Check Ray, and whether it can run Serve."""
    version, install = interpreter.ray, f"{interpreter.path} -m pip install 'ray[serve]'"
    if version is None:
        hint = f"nothing of Serve can be measured without it: {install}"
        return CheckFinding("failure", f"not installed for {interpreter.path}", hint)
    text = f"{version}, Python {interpreter.python}"
    if interpreter.why_no_serve is not None:
        text += f", but Serve cannot be imported: {interpreter.why_no_serve}"
        return CheckFinding("failure", text, f"Serve needs it: {install}")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) < 2:
        return CheckFinding("unknown", f"{version}: not a version that can be judged")
    hint = f"serve-bench asks for {'.'.join(map(str, OLDEST_RAY))} or newer: {install}"
    return judge(f"{text}; Serve can be imported", hint if numbers < OLDEST_RAY else "")


def check_haproxy(interpreter: Interpreter) -> CheckFinding:
    """Check the HAProxy that a launch finds, and whether it runs."""
    path, named = interpreter.haproxy, "--env RAY_SERVE_HAPROXY_BINARY_PATH=PATH"
    if path is None:
        hint = (
            f"variants with HAProxy need it: {interpreter.path} -m pip install 'ray[serve]' "
            f"(Linux), a haproxy on PATH, or {named}"
        )
        return CheckFinding("warning", "not found", hint)
    try:
        done = _run([path, "-v"], VERSION_TIMEOUT_S)
        output = done.stdout + done.stderr
    except OSError as error:
        output = (error.strerror or "cannot be run").lower()
    except subprocess.TimeoutExpired:
        output = f"no answer in {VERSION_TIMEOUT_S:.0f} s"
    match = re.search(r"version (\d[^\s-]*)", output)
    if match is not None:
        return CheckFinding("ok", f"{match[1]}, {path}")
    first = next((line.strip() for line in output.splitlines() if line.strip()), "it said nothing")
    hint = f"variants with HAProxy cannot start: install it anew, or name another by {named}"
    return CheckFinding("warning", f"{path} does not run: {first[:100]}", hint)


def check_py_spy() -> CheckFinding:
    """Check the py-spy of `profile`, and whether this user may look into other processes."""
    try:
        path = py_spy()
    except BadInput as error:
        hint = f"profile and --profile need it: {str(error).rpartition(': ')[2]}"
        return CheckFinding("warning", "not installed", hint)
    try:
        if reason := why_not_allowed(os.getpid()):
            raise ProfileFailed(reason)
        threads = len(re.findall(r"^Thread ", dump(os.getpid()), re.MULTILINE))
    except (OSError, ProfileFailed) as error:
        reason = re.sub(rf"process {os.getpid()}\b", "this process", str(error))
        text, _, hint = reason.replace(f" --pid {os.getpid()}", " ...").partition(": ")
        hint = f"profile and --profile cannot work: {hint or 'see docs/profiling.md'}"
        return CheckFinding("warning", text, hint)
    return CheckFinding("ok", f"{path}; it saw {counted(threads, 'thread')} of this process")


def check_leftovers() -> CheckFinding:
    """Look for runs that left something, and runs in progress, which take the same cores."""
    runs = {name: run for name, run in known_runs().items() if name != os.environ.get(RUN_MARK)}
    dead = [name for name, run in runs.items() if not owner_alive(run.owner)]
    processes = sum(len(find(name, place=runs[name].directory)) for name in dead)
    living = {name: run.owner.partition(":")[0] for name, run in runs.items() if name not in dead}
    under_way = [f"{name} of pid {pid}" for name, pid in living.items()]
    texts, hints = [], []
    if dead:
        texts.append(f"left by dead runs ({_shorten(dead)}): files, {processes} processes")
        hints.append("serve-bench clean removes what is left")
    if under_way:
        texts.append(f"under way: {_shorten(under_way)}")
        hints.append("wait for what is under way: it takes the same cores")
    return judge("; ".join(texts) or "nothing left, none under way", "; ".join(hints))


def _shorten(names: Sequence[str], most: int = 4) -> str:
    """Name the first few, and say how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*sorted(names)[:most], *more])


def _run(
    words: Sequence[str], timeout_s: float, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program. Raises OSError and TimeoutExpired."""
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        env=env,
    )
