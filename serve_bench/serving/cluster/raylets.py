"""More raylets on this machine, which make a cluster of several nodes of one.

Each is a `ray start` that stays in the foreground, below this process and with its environment: so
the marks of the run find it and all that it starts. Rule: one after the other, since two that start
at once may draw the same port; and each with ports of its own for its HTTP proxy, since on one all
proxies of a host would share what comes in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from refusal import Refused

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
        process = _start(address, num_cpus, own)
        started.append(process)
        _wait_joined(process, number)
        phase_ended(f"raylet {number} of {len(ports) + 1}")
    return started


def _start(address: str, num_cpus: int, ports: list[int]) -> subprocess.Popen[bytes]:
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
