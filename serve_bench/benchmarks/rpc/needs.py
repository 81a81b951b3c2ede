"""What a run of `serve-bench rpc` needs and whether this host has it: torch, Ray, a device, memory,
open files, the master port.

Rule: all is found out before anything is started, and what cannot be had is refused in one line
with a way out. Torch is asked for its devices in a process of its own, and only where that matters.
"""

from __future__ import annotations

import importlib.util
import math
import resource
import socket
from dataclasses import replace
from typing import Final

import psutil

from serve_bench.benchmarks.rpc.request import RpcSuite, World
from serve_bench.core.errors import BadInput
from serve_bench.core.result import VariantUsed
from serve_bench.observing.host import memory_limit_bytes
from serve_bench.runner.model_needs import torch_of
from serve_bench.serving.launch_spec import own_ray_version
from serve_bench.serving.ports import check_port

INSTALL: Final = "torch is not installed: pip install 'serve-bench[torch]'"

AGENT_BYTES: Final = 650_000_000
"""An agent, which has torch (588 to 614 MB as an actor or a replica)."""

OBSERVER_BYTES: Final = {"torch": 58_000_000, "ray": 70_000_000, "serve": 100_000_000}
"""An observer: forked from one process that has torch; an actor; one with a handle of Serve.
Measured with 79 of them, proportional memory: 36 MB beside an agent of 1.4 GB; 59 MB; 89 MB."""

BASE_BYTES: Final = {"torch": 300_000_000, "ray": 900_000_000, "serve": 1_300_000_000}
"""What the backend needs besides: its program, and Ray's and Serve's processes."""

FILES_EACH: Final = 18
"""Open files that the agent of a torch world has for each observer."""


def address_of(name: str) -> str:
    """The address that a name means. BadInput when there is none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput(f"--master-addr: {name!r} cannot be resolved: {error.strerror}") from None
    return str(found[0][4][0])


def checked(suite: RpcSuite) -> RpcSuite:
    """The suite with the device that "auto" means here, once it is sure that all of it can be had.

    Raises BadInput.
    """
    if ("torch" in suite.backends or suite.policy_ms is None) and not _has("torch"):
        raise BadInput(INSTALL)
    if set(suite.backends) - {"torch"}:
        own_ray_version()
    address = address_of(suite.master_addr)
    if "torch" in suite.backends:
        check_port(address, suite.master_port, ("--master-addr", "--master-port"))
        _check_files(suite)
    for world in suite.worlds:
        for backend in suite.backends:
            _check_memory(world, backend)
    worlds = tuple(_with_device(world) for world in suite.worlds)
    if len(set(worlds)) < len(worlds):
        raise BadInput(f"--device: auto is {worlds[0].device} here, which stands there too")
    return replace(suite, worlds=worlds)


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _with_device(world: World) -> World:
    if world.device == "cpu":
        return world
    torch = torch_of(VariantUsed("rpc"))
    if world.device == "cuda" and not torch.devices:
        why = "torch finds no CUDA device" if torch.built_for else "torch is built without CUDA"
        raise BadInput(f"--device cuda: {why}; it takes auto or cpu here")
    return replace(world, device="cuda" if torch.devices else "cpu")


def needed_bytes(world: World, backend: str) -> int:
    """About what a world takes on a backend: processes, weights, and states on their way."""
    state = 4 * math.prod(world.state_size)
    weights = state * world.out_features + 4 * world.nlayers * world.out_features**2
    on_their_way = world.observers * 6 * state  # made, sent, received, gathered, computed on
    processes = AGENT_BYTES + world.observers * OBSERVER_BYTES[backend] + BASE_BYTES[backend]
    return processes + 2 * weights + on_their_way


def _check_memory(world: World, backend: str) -> None:
    free, limit = int(psutil.virtual_memory().available), memory_limit_bytes()
    free = free if limit is None else min(free, limit)
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


def _check_files(suite: RpcSuite) -> None:
    most = max(world.world_size for world in suite.worlds)
    needed = 64 + FILES_EACH * most
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadInput(
            f"--world-size: an agent with {most - 1} observers needs about {needed} open files, "
            f"and the hard limit is {hard}: raise it (ulimit -Hn {needed}), or use fewer observers"
        )
