"""A backend of `serve-bench rpc` that is up: drives the program of apps/rpc, and ends it whole.

Rule: nothing here imports torch or ray; what must be done inside them is done by the program. All
its processes carry the marks of the run, so that none outlives it however it ends.
"""

from __future__ import annotations

import ipaddress
import math
import os
import resource
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil

from serve_bench.benchmarks.rpc.spec import Device, RpcSpec, World
from serve_bench.core.app_spec import APPS_PACKAGE
from serve_bench.core.errors import BadInput
from serve_bench.core.result import VariantUsed
from serve_bench.observing.host import free_memory_bytes, pss_bytes
from serve_bench.runner.model_needs import torch_of
from serve_bench.serving.child import Child
from serve_bench.serving.launch_spec import (
    LOOPBACK,
    TOKEN_FILE,
    TOKEN_PATH,
    check_port,
    listening_ports,
    make_directory,
    open_to_network,
    own_ray_version,
    program_environment,
)
from serve_bench.serving.server import ChildDriver, Process
from serve_bench.serving.strays import Reaped, run_directory

# What a run of `serve-bench rpc` needs and whether this host has it: torch, Ray, a device, memory,
# open files, the master port.
#
# Rule: everything is checked before anything is started, and what is missing is refused in one line
# with a way out. Torch is asked for its devices in a separate process, and only where that matters.

INSTALL: Final = "torch is not installed: pip install torch numpy"

AGENT_BYTES: Final = 650_000_000
"""An agent, which has torch (588 to 614 MB as an actor or a replica)."""

OBSERVER_BYTES: Final = {"torch": 58_000_000, "ray": 70_000_000, "serve": 100_000_000}
"""An observer: forked from one process that has torch; an actor; one with a handle of Serve.
Measured with 79 of them, proportional memory: 36 MB beside an agent of 1.4 GB; 59 MB; 89 MB."""

BASE_BYTES: Final = {"torch": 300_000_000, "ray": 900_000_000, "serve": 1_300_000_000}
"""What the backend needs in addition: its program, and Ray's and Serve's processes."""

FILES_EACH: Final = 18
"""Open files that the agent of a torch world has for each observer."""


def address_of(name: str) -> str:
    """Resolve a name to an address. BadInput when there is none."""
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput(f"--master-addr: {name!r} cannot be resolved: {error.strerror}") from None
    return str(addresses[0][4][0])


def resolve_device(suite: RpcSpec) -> RpcSpec:
    """Return the suite with the device that "auto" means here, after all checks.

    Raises BadInput.
    """
    if ("torch" in suite.backend or suite.policy_ms is None) and find_spec("torch") is None:
        raise BadInput(INSTALL)
    if set(suite.backend) - {"torch"}:
        own_ray_version()
    address = address_of(suite.master_addr)
    if "torch" in suite.backend:
        check_port(address, suite.master_port, ("--master-addr", "--master-port"))
        _check_files(suite)
    for world in suite.worlds:
        for backend in suite.backend:
            _check_memory(world, backend)
    devices = tuple(map(_device_of, suite.device))
    if len(set(devices)) < len(devices):
        raise BadInput(f"--device: auto is {devices[0]} here, which stands there too")
    return replace(suite, device=devices)


def _device_of(device: Device) -> Device:
    if device == "cpu":
        return device
    torch = torch_of(VariantUsed("rpc"))
    if device == "cuda" and not torch.devices:
        why = "torch finds no CUDA device" if torch.built_for else "torch is built without CUDA"
        raise BadInput(f"--device cuda: {why}; it takes auto or cpu here")
    return "cuda" if torch.devices else "cpu"


def needed_bytes(world: World, backend: str) -> int:
    """Estimate the memory of a world on a backend: processes, weights, and states on their way."""
    state = 4 * math.prod(world.shape)
    weights = state * world.out_features + 4 * world.nlayers * world.out_features**2
    on_their_way = world.observers * 6 * state  # made, sent, received, gathered, computed on
    processes = AGENT_BYTES + world.observers * OBSERVER_BYTES[backend] + BASE_BYTES[backend]
    return processes + 2 * weights + on_their_way


def _check_memory(world: World, backend: str) -> None:
    free = free_memory_bytes()
    needed = needed_bytes(world, backend)
    if needed <= free:
        return
    fit = 1 + (free - needed_bytes(replace(world, world_size=1), backend)) // (
        needed_bytes(replace(world, world_size=2), backend)
        - needed_bytes(replace(world, world_size=1), backend)
    )
    way = f"--world-size {fit} fits" if fit >= 2 else "try a smaller --state-size"
    raise BadInput(
        f"--world-size: memory: {world.world_size} processes on {backend} take about "
        f"{needed / 1e9:.1f} GB, {free / 1e9:.1f} GB is free; {way}"
    )


def _check_files(suite: RpcSpec) -> None:
    most = max(world.world_size for world in suite.worlds)
    needed = 64 + FILES_EACH * most
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadInput(
            f"--world-size: an agent with {most - 1} observers needs about {needed} open files, "
            f"and the hard limit is {hard}: raise it (ulimit -Hn {needed}), or use fewer observers"
        )


LAUNCH_TIMEOUT_S: Final = 120.0
WORLD_TIMEOUT_S: Final = 60.0
WORLD_TIMEOUT_EACH_S: Final = 4.0
"""For each process: 80 forked ones are up in 13 s on 2 cores, 32 replicas of Serve in 24 s."""


@dataclass(frozen=True)
class WorldPids:
    """The pids of a world that is up, and the seconds that it took."""

    agent: int
    observers: tuple[int, ...]
    seconds: float


@dataclass
class RpcBackend(ChildDriver):
    """A launch of a backend, from `start` to `close`."""

    backend: str
    suite: RpcSpec
    run_id: str
    name: str  # unique in the run
    log: Path
    versions: dict[str, str] = field(default_factory=dict)
    port: int | None = None  # of torch's store
    start_s: float = 0.0
    _pids: WorldPids | None = None

    @property
    def directory(self) -> Path:
        """The temporary directory of the launch."""
        return run_directory(self.run_id) / self.name

    def start(self) -> None:
        """Start the program, and Ray or Serve with it. Raises LaunchFailed."""
        make_directory(self.directory, "r")
        self._child = Child(
            [sys.executable, "-u", "-m", f"{APPS_PACKAGE}.rpc"],
            log=self.log,
            cwd=self.directory,
            env=program_environment(self.directory, self.run_id, self.name)
            | {TOKEN_PATH: str(self.directory / TOKEN_FILE)}
            | LOOPBACK,
            name="the rpc program",
        )
        body = {
            "backend": self.backend,
            "master_addr": address_of(self.suite.master_addr),
            "master_port": self.suite.master_port,
            "logical_cpus": max(4, os.cpu_count() or 1),
            "ray_dir": str(self.directory / "r"),
        }
        answer = self._ask("launch", body, LAUNCH_TIMEOUT_S)
        self.start_s, self.versions, self.port = (
            float(answer["seconds"]),
            dict(answer["versions"]),
            answer["port"],
        )

    def world(self, world: World) -> WorldPids:
        """Start the processes of a world, in place of the former one. Raises LaunchFailed."""
        self._pids = None
        body = {
            **asdict(world),
            "state_size": world.shape,
            "observers": world.observers,
            "policy_ms": self.suite.policy_ms,
            "timeout_s": self.suite.timeout_s,
            "seed": self.suite.seed,
            "interface": interface_of(address_of(self.suite.master_addr)),
        }
        patience_s = WORLD_TIMEOUT_S + WORLD_TIMEOUT_EACH_S * world.world_size
        answer = self._ask("world", body, patience_s)
        self._pids = WorldPids(
            int(answer["agent"]), tuple(answer["observers"]), float(answer["seconds"])
        )
        return self._pids

    def episode(self) -> Mapping[str, Any]:
        """Run an episode, and return its times (ns). Raises LaunchFailed, naming the process."""
        patience_s = WORLD_TIMEOUT_S + self.suite.steps * self.suite.timeout_s
        return self._ask("episode", {"steps": self.suite.steps}, patience_s)

    def end_world(self) -> None:
        """End the processes of the world. Raises LaunchFailed."""
        self._pids = None
        self._ask("end", {}, WORLD_TIMEOUT_S)

    def processes(self) -> list[Process]:
        """List the processes of the launch now: agent, observers, and what the backend needs."""
        roles: dict[int, str] = {}
        if self._pids is not None:
            roles = {**dict.fromkeys(self._pids.observers, "observer"), self._pids.agent: "agent"}
        return [
            replace(process, role=roles.get(process.pid, process.role))
            for process in super().processes()
        ]

    def memory_bytes(self) -> int | None:
        """Return the memory of all processes, a shared page counted once; None: unknown."""
        sizes = [pss_bytes(process.pid) for process in self.processes()]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    def open_to_network(self) -> list[dict[str, Any]]:
        """List the ports of the launch that more than this machine can reach."""
        roles = {process.pid: process.role for process in self.processes()}
        return open_to_network(listening_ports(roles))

    def close(self) -> Reaped:
        """End every process of the launch and remove its directory."""
        return self._end(self.run_id, self.name)

    def broken(self) -> str | None:
        """Return why the program can give no answer: a signal has stopped it."""
        assert self._child is not None, "start() first"
        try:
            stopped = psutil.Process(self._child.pid).status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return None  # its closed output shows that better
        why = f"the rpc program (pid {self._child.pid}) is stopped by a signal"
        return why if stopped else None


def interface_of(address: str) -> str | None:
    """Return the interface that has this address; None where it is unknown."""
    wanted = ipaddress.ip_address(address)
    if wanted.is_loopback and psutil.LINUX:
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        for found in addresses:
            try:
                if ipaddress.ip_address(found.address.partition("%")[0]) == wanted:
                    return str(name)
            except ValueError:  # a hardware address
                continue
    return None
