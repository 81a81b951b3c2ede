"""What is needed to start a cluster: its ports, and the environment of its processes.

Rule: each launch has its own marks, ports and paths, and no RAY_* name of the shell. So two
clusters do not meet, and `default` is the default. Nothing is started here, except an interpreter
that is asked for its Ray.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import math
import os
import random
import resource
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from serve_bench.core import usage as counts
from serve_bench.core.app_spec import APPS_PACKAGE
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.marks import EXPORTER, FOLDER
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.core.result import VariantUsed
from serve_bench.serving.strays import LAUNCH_MARK, MARKS, marks, run_directory

METRICS_INTERVAL: Final = "RAY_metrics_report_interval_ms"
METRICS_INTERVAL_MS: Final = "1000"
"""Set where Serve's metrics are read. Ray's default is 10 s: too long to wait after each trial.
Each second costs 3 to 4 % of a core with 8 replicas (docs/profiling.md): not done unasked."""

LOOPBACK: Final = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Without clusters of several hosts, as on macOS, Ray's node is 127.0.0.1, and what it starts binds
that: GCS, raylet, workers, agents, the metrics of dashboard, autoscaler and node. By default it
binds all interfaces, and anybody can read the metrics (Ray 2.60)."""

SERVING: Final = Path(__file__).resolve().parent

TOKEN_FILE: Final = "token"
TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
"""By default Ray makes its token in the home directory, readable by all (0644), and leaves it."""

#: With direct ingress each replica has a port, and a restarted one takes another.
PORTS_PER_REPLICA: Final = 8

#: For HTTP and for gRPC: the range that blocks are drawn from has room for both, and for others.
MOST_PORTS: Final = 4000

#: HTTP and gRPC of its proxy, statistics and metrics of its HAProxy.
PORTS_PER_RAYLET: Final = 4

GRPC_PORT: Final = 5
"""The place of the port of gRPC among those of a launch."""

FIRST_PORTS: Final = 6
"""Ports before those for direct ingress."""

FEWEST_OPEN_FILES: Final = 96
"""A hard limit, to which launches raise the soft one. The smallest cluster (one replica, one
connection, variant default, Ray 2.60) came up and was measured with 96, when its proxy had 73 open,
its replica 70, the raylet 67 and the GCS 61; with 64 it was still being deployed after 30 s."""


@dataclass(frozen=True)
class LaunchSpec:
    """What `Serving` needs to start a cluster.

    `grpc`: import paths of the functions that add a servicer to Serve's gRPC proxy; without any
    there is no such proxy. `traced`: requests that carry a `traceparent` leave marks
    (core/marks.py).
    """

    variant: VariantUsed
    run_id: str
    name: str  # unique in the run
    log: Path
    most_replicas: int = 8
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    metrics: bool = False  # export Serve's metrics often
    raylets: int = 1  # nodes of the cluster, all on this machine
    proxy_location: str = "HeadOnly"  # which nodes have an HTTP proxy, as Serve calls it
    folders: tuple[str, ...] = ()  # where Python must find the app, beside ours
    cpus: float = 0.0  # what the app's replicas ask of Ray in all
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)  # its modules by folder
    grpc: tuple[str, ...] = ()
    traced: bool = False

    @property
    def ports(self) -> int:
        """Ports in a row that it takes: of HTTP, HAProxy, gRPC, direct ingress and more raylets."""
        ingress_ports = PORTS_PER_REPLICA * max(8, self.most_replicas)
        ingress = 2 * min(ingress_ports, max(MOST_PORTS, self.most_replicas))
        return FIRST_PORTS + ingress + PORTS_PER_RAYLET * (self.raylets - 1)

    @property
    def directory(self) -> Path:
        """The temporary directory of the launch; its path is short, for HAProxy's sockets."""
        return run_directory(self.run_id) / self.name

    @property
    def logical_cpus(self) -> int:
        """What Ray counts: enough that the replicas fit on any machine, and two to spare."""
        return max(self.most_replicas + 2, math.ceil(self.cpus) + 2, os.cpu_count() or 1)

    @property
    def counts_folder(self) -> Path:
        """Where replicas keep their counts."""
        return self.directory / "c"

    @property
    def marks_folder(self) -> Path:
        """Where processes of Serve keep the marks of traced requests."""
        return self.directory / "w"

    @property
    def metrics_interval_s(self) -> float:
        """How often Ray exports metrics in this launch."""
        return float(self.variant.env.get(METRICS_INTERVAL, METRICS_INTERVAL_MS)) / 1000.0


def python_environment(
    env: Mapping[str, str], places: Iterable[str | Path], ours: bool = True
) -> dict[str, str]:
    """Return `env` for a program whose Python finds modules in `places` first.

    `ours`: it is this interpreter, and looks into the shell's PYTHONPATH then. Ray reports no
    usage.
    """
    last = [env["PYTHONPATH"]] if ours and env.get("PYTHONPATH") else []
    path = os.pathsep.join([*map(str, places), *last])
    return {**env, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}


def program_environment(
    directory: Path, run_id: str, name: str, folders: Sequence[str] = (), *, ours: bool = True
) -> dict[str, str]:
    """Return the environment of a launch's program: marks, and no RAY_* name of the shell.

    It imports our apps from the launch's `directory`, and from `folders`. `ours`: it runs in this
    interpreter; another must not see our packages.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env = python_environment(env, [directory / "p", *folders], ours)
    return {**env, **marks(run_id), LAUNCH_MARK: f"{run_id}.{name}"}


def child_environment(spec: LaunchSpec, ports: range) -> dict[str, str]:
    """Return the environment of a launch: marks, the variant's flags, its own ports and paths.

    `ports`: one for HTTP, four for HAProxy and the fallback proxy, one for gRPC, then those for
    direct ingress and those of further raylets.
    """
    ours = spec.variant.python is None
    haproxy = spec.directory / "h"
    ingress = ports[FIRST_PORTS : len(ports) - PORTS_PER_RAYLET * (spec.raylets - 1)]
    http, grpc = ingress[: len(ingress) // 2], ingress[len(ingress) // 2 :]
    traced = {
        "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": f"{APPS_PACKAGE}.{EXPORTER}",
        "RAY_SERVE_TRACING_SAMPLING_RATIO": "0",  # but those whose `traceparent` says so
        FOLDER: str(spec.marks_folder),
    }
    return (
        program_environment(spec.directory, spec.run_id, spec.name, spec.folders, ours=ours)
        | {
            counts.FOLDER: str(spec.counts_folder),
            TOKEN_PATH: str(spec.directory / TOKEN_FILE),
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(haproxy / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(haproxy / "a.sock"),
            "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(haproxy / "m.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(haproxy),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(haproxy / "state"),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[1]),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[2]),
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports[3]),
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(ports[4]),
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(http[0]),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(http[-1]),
            "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(grpc[0]),
            "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(grpc[-1]),
            # No request is in progress when a cell changes: 30 s of draining would be lost.
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        }
        | (LOOPBACK if spec.raylets == 1 else {})
        | ({METRICS_INTERVAL: METRICS_INTERVAL_MS} if spec.metrics else {})
        | (traced if spec.traced else {})
        | dict(spec.variant.env)
    )


def make_directory(directory: Path, *folders: str | Path) -> None:
    """Make a launch's directory with `folders`, a link to our apps, and a new token for its Ray."""
    for folder in ("p", *folders):
        (directory / folder).mkdir(parents=True)
    (directory / "p" / APPS_PACKAGE).symlink_to(SERVING / "apps")
    # For our own user alone.
    file = os.open(directory / TOKEN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as opened:
        opened.write(secrets.token_hex(32))


def raylet_ports(spec: LaunchSpec, ports: range) -> list[list[int]]:
    """Return the ports of each raylet beside the head, from the end of the launch's ports."""
    last = ports[len(ports) - PORTS_PER_RAYLET * (spec.raylets - 1) :]
    return [list(last[n : n + PORTS_PER_RAYLET]) for n in range(0, len(last), PORTS_PER_RAYLET)]


def attaching_environment(path: Path) -> dict[str, str]:
    """Return the environment of a program that attaches to a running cluster, with apps in `path`.

    It is the shell's, whose token and addresses may be needed, without marks: when the run is
    killed, the program has yet to leave the cluster as it was, and ends by itself then. What it
    starts is in the cluster, and no process of this machine.
    """
    env = {k: v for k, v in os.environ.items() if k not in (*MARKS, counts.FOLDER)}
    return python_environment(env, [path])


def ignored_environment() -> list[str]:
    """List the RAY_* names of the shell that a launch leaves out."""
    return sorted(name for name in os.environ if name.startswith("RAY_"))


def own_ray_version() -> str:
    """Return the version of this interpreter's Ray, without importing it. Raises BadInput."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        message = "Ray is not installed in this environment: pip install 'ray[serve]'"
        raise BadInput(message) from None


def lacking_open_files(hard: int) -> str | None:
    """Say why no cluster can start with this hard limit of open files; None where one can."""
    if hard == resource.RLIM_INFINITY or hard >= FEWEST_OPEN_FILES:
        return None
    return (
        f"the hard limit of open files is {hard:,}, and a process of Ray needs "
        f"{FEWEST_OPEN_FILES:,}: as root ulimit -Hn {FEWEST_OPEN_FILES}, nofile in "
        "/etc/security/limits.conf, or docker --ulimit"
    )


def check_interpreter(variant: VariantUsed, flag: str | None = None) -> None:
    """Raise BadInput unless the variant can be launched here: a Ray, and open files enough."""
    lacking = lacking_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    if lacking is not None:
        raise BadInput(lacking)
    if variant.python is None:
        own_ray_version()
        return
    where = f"{flag or f'variants.{variant.name}: python'} {variant.python}"
    ask = "import importlib.metadata as m; print(m.version('ray'))"
    if not _run_code(variant.python, ask, where):
        raise BadInput(f"{where}: has no Ray installed")


def _run_code(python: str, code: str, where: str) -> str | None:
    """Return what an interpreter prints; None where the code raises. Raises BadInput."""
    argv = [python, "-c", NOT_FROM_HERE + code]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise BadInput(f"{where}: {(error.strerror or 'cannot be run').lower()}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{where}: gave no answer in 30 s") from None
    return ran.stdout.strip() if ran.returncode == 0 else None


#: Prints what an interpreter lacks to trace requests. Imports no ray, which takes a second.
_LACKS_TRACING: Final = """
import importlib.util as u, os
ray = u.find_spec("ray")
file = os.path.join(os.path.dirname(ray.origin), "serve", "_private", "tracing_utils.py")
if not os.path.exists(file):
    print("its Ray has no tracing of Serve's requests: it takes 2.60 or later")
elif u.find_spec("opentelemetry") is None or u.find_spec("opentelemetry.sdk") is None:
    print("tracing needs OpenTelemetry: pip install opentelemetry-sdk")
"""


def check_tracing(variant: VariantUsed) -> None:
    """Raise BadInput unless a launch of a variant that passed `check_interpreter` can trace."""
    where = f"--trace: variant {variant.name}"
    lacks = _run_code(variant.python or sys.executable, _LACKS_TRACING, where)
    if lacks is None or lacks:
        raise BadInput(f"{where}: {lacks or 'it cannot be asked what it has'}")


# TCP ports of this machine: is one free, who owns it, which are open to the network.

#: Ports of a launch are drawn from here: below the ephemeral range, which begins at 32768 on Linux.
#: A free ephemeral port is not free for long, because Ray's own processes take such ports while
#: they start.
BLOCKS = range(20000, 32000)

#: How many ports at the beginning of a block are tried.
_TRIED_OF_A_BLOCK = 16

CONNECT_S: Final = 5.0
"""How long a cluster may take to answer at its address."""


def port_owner(port: int) -> psutil.Process | None:
    """Return the process that listens on a TCP port; None where it cannot be known."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS without root
        return None
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        if listens and connection.pid:
            try:
                return psutil.Process(connection.pid)
            except psutil.NoSuchProcess:
                continue
    return None


def check_port(host: str, port: int, flags: tuple[str, str] = ("--host", "--port")) -> None:
    """Raise BadInput when host and port, given by `flags`, cannot be bound; name the owner."""
    host_flag, port_flag = flags
    if not 0 <= port <= 65535:
        raise BadInput(
            f"{port_flag}: {port} is not allowed; it takes 1 to 65535, or 0 for any free one"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"{host_flag}: {host!r} cannot be resolved: {error.strerror}") from None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise BadInput(f"{host_flag}: {host} is no address of this machine") from None
            owner = port_owner(port)
            whose = f"; taken by pid {owner.pid} ({owner.name()})" if owner else ""
            reason = (error.strerror or "error").lower()
            raise BadInput(
                f"{port_flag}: {port} on {host} cannot be used: {reason}{whose}; "
                "choose another, or 0 for any free one"
            ) from None


def free_block(width: int, apart_from: Sequence[range] = ()) -> range:
    """Draw ports in a row of which the first ones are free, and none is in `apart_from`."""
    for _ in range(100):
        first = random.randrange(BLOCKS.start, BLOCKS.stop - width)
        # Clusters up at the same time take some of theirs later: they look free until then.
        if any(first < block.stop and block.start < first + width for block in apart_from):
            continue
        try:
            for port in range(first, first + min(width, _TRIED_OF_A_BLOCK)):
                with socket.socket() as probe:
                    probe.bind(("", port))  # all interfaces, as HAProxy binds some of them
        except OSError:
            continue
        return range(first, first + width)
    raise RunFailed(f"no {width} ports in a row are free between 20000 and 32000")


def listening_ports(roles: Mapping[int, str]) -> list[dict[str, Any]]:
    """List what these processes (pid to role) listen on, by port."""
    entries: dict[tuple[str, int], dict[str, Any]] = {}
    for pid, role in roles.items():
        # Each is asked: in a list of all sockets, one that HAProxy and its successor share has one.
        with contextlib.suppress(psutil.Error):  # it has ended, or is another user's
            process = psutil.Process(pid)  # which has the method under another name before 6.0
            ask = getattr(process, "net_connections", None) or process.connections
            for c in ask("tcp"):
                if c.status == psutil.CONN_LISTEN:
                    entries[c.laddr] = {"port": c.laddr.port, "address": c.laddr.ip, "role": role}
    return sorted(entries.values(), key=lambda entry: int(entry["port"]))


def open_to_network(ports: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return those of listening ports that are bound to more than loopback."""
    return [dict(entry) for entry in ports if not is_loopback(entry["address"])]


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    # gRPC binds loopback as `::ffff:127.0.0.1`.
    return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback  # gRPC adds that


def reachable(address: str, flag: str = "--address") -> str:
    """Return `address`, HOST:PORT of a cluster, if it takes connections; else raise BadInput."""
    host, colon, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    if not colon or not host or "/" in address or not 1 <= number <= 65535:
        raise BadInput(
            f"{flag}: {address!r} is not allowed; it takes HOST:PORT of the cluster's head, as "
            "`ray start --head` prints it (its port is 6379 unless told otherwise)"
        )
    try:
        with socket.create_connection((host.strip("[]"), number), CONNECT_S):
            return address
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"{flag}: no Ray cluster at {address}: {reason}") from None
