"""What a run of `serve-bench rpc` needs: refused before anything is started, with a way out."""

import os
import resource
import socket
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any

import psutil
import pytest

from serve_bench.benchmarks.rpc import backend as rpc_needs
from serve_bench.benchmarks.rpc.backend import (
    FILES_EACH,
    address_of,
    interface_of,
    needed_bytes,
    resolve_device,
)
from serve_bench.benchmarks.rpc.spec import RpcSpec, World
from serve_bench.observing import host
from serve_bench.runner.model_needs import Torch
from serve_bench.serving.launch_spec import own_ray_version
from tests.cases import Patch, cases, refusal
from tests.records import rpc_suite

WORLD = World(10, True, "10-20-10", 5, 10, "cpu", 1)
GPU = ("a GPU", 24_000_000_000)


def suite_of(*backends: Any, **given: Any) -> RpcSpec:
    return rpc_suite(**{"backends": backends or ("torch",), "master_port": 0, **given})


def refuse(suite: RpcSpec) -> str:
    return refusal(resolve_device, suite)


@pytest.fixture(autouse=True)
def _has_all(monkeypatch: Patch) -> None:
    """Pretend a host that has torch, Ray and much memory, whatever this one is."""
    monkeypatch.setattr(rpc_needs, "find_spec", lambda module: module)
    monkeypatch.setattr(rpc_needs, "own_ray_version", lambda: "2")
    free_bytes(monkeypatch, 1_000_000_000_000)


def free_bytes(monkeypatch: Patch, available: int, limit_bytes: int | None = None) -> None:
    memory = type("Memory", (), {"available": available})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(host, "memory_limit_bytes", lambda: limit_bytes)


@cases(
    "backends, policy_ms",
    ("torch", None),
    ("ray", None),  # the policy is a network
    ("serve torch", 20.0),
)
def test_who_needs_torch(backends: str, policy_ms: float | None, monkeypatch: Patch) -> None:
    monkeypatch.setattr(rpc_needs, "find_spec", {"ray": "ray"}.get)
    suite = suite_of(*backends.split(), policy_ms=policy_ms)
    assert refuse(suite) == "torch is not installed: pip install torch numpy"
    resolve_device(suite_of("ray", "serve", policy_ms=20.0))


def test_ray_is_asked_for_where_a_backend_needs_it(monkeypatch: Patch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(rpc_needs, "own_ray_version", own_ray_version)
    assert resolve_device(suite_of("torch")) == suite_of("torch")
    for backends in (("ray",), ("torch", "serve")):
        said = refuse(suite_of(*backends))
        assert said.startswith("Ray is not installed ")
        assert said.endswith(": pip install 'ray[serve]'")


def test_a_port_that_is_taken_is_named_with_its_flag_and_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = refuse(suite_of(master_port=port))
        assert said.startswith(f"--master-port: {port} on 127.0.0.1 cannot be used: ")
        assert f"taken by pid {os.getpid()} (" in said
        assert said.endswith("choose another, or 0 for any free one")
        resolve_device(suite_of("ray", "serve", master_port=port))  # they have no use for it
    assert resolve_device(suite_of(master_port=port)).master_port == port


def test_an_address_is_kept_as_it_was_given_and_has_an_interface_here() -> None:
    assert resolve_device(suite_of(master_addr="localhost")).master_addr == "localhost"
    assert address_of("localhost") in ("127.0.0.1", "::1")
    assert address_of("127.0.0.1") == "127.0.0.1"
    assert interface_of("127.0.0.1") == interface_of(address_of("localhost"))
    assert interface_of("127.0.0.1") in ("lo", "lo0") and interface_of("192.0.2.1") is None
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                assert interface_of(address.address) == name


@cases("backend", "torch", "ray", "serve")
def test_too_little_memory_names_the_size_that_fits(backend: str, monkeypatch: Patch) -> None:
    world = replace(WORLD, world_size=80)
    needed = needed_bytes(world, backend)
    assert backend != "torch" or needed < 16 << 30  # 80 over torch are meant to fit in 16 GiB
    free_bytes(monkeypatch, needed)
    resolve_device(suite_of(backend, worlds=(world,)))
    free_bytes(monkeypatch, needed - 1)
    said = refuse(suite_of(backend, worlds=(world,)))
    assert said.startswith(f"--world-size: memory: 80 processes on {backend} take about ")
    assert f"{needed / 1e9:.1f} GB, " in said and said.endswith("; --world-size 79 fits")
    resolve_device(suite_of(backend, worlds=(replace(world, world_size=79),)))


def test_the_lower_limit_counts_and_large_states_blame_no_observer(monkeypatch: Patch) -> None:
    free_bytes(monkeypatch, 64_000_000_000, limit_bytes=1_100_000_000)  # of a container
    assert "1.1 GB is free" in refuse(suite_of())
    free_bytes(monkeypatch, 2_000_000_000)
    huge = replace(WORLD, world_size=2, state_size="1000-10000")
    assert refuse(suite_of(worlds=(huge,))).endswith("; try a smaller --state-size")


def test_too_few_open_files_name_the_limit_that_suffices(monkeypatch: Patch) -> None:
    needed = 64 + FILES_EACH * 10

    def limits(hard: int) -> Callable[[int], tuple[int, int]]:
        return lambda which: (min(hard, 64), hard)

    monkeypatch.setattr(resource, "getrlimit", limits(needed - 1))
    said = refuse(suite_of())
    assert said.startswith(f"--world-size: an agent with 9 observers needs about {needed} open fi")
    assert f"the hard limit is {needed - 1}: raise it (ulimit -Hn {needed})" in said
    resolve_device(suite_of("ray"))  # its processes share few connections
    for enough in (needed, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", limits(enough))
        resolve_device(suite_of())


NO_CUDA, ONE_GPU = Torch("2", None, ()), Torch("2", "13", (GPU,))


@cases(
    "torch, asked, becomes",
    (NO_CUDA, "auto", "cpu"),
    (ONE_GPU, "auto", "cuda"),
    (ONE_GPU, "cuda", "cuda"),
    (ONE_GPU, "cpu", "cpu"),
    (NO_CUDA, "cuda", "torch is built without CUDA; it takes auto or cpu here"),
    (replace(ONE_GPU, devices=()), "cuda", "torch finds no CUDA device; it takes auto or cpu here"),
)
def test_the_device_of_torch(torch: Torch, asked: str, becomes: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(rpc_needs, "torch_of", lambda variant: torch)
    suite = suite_of(worlds=(replace(WORLD, device=asked),))
    if " " in becomes:
        assert refuse(suite) == f"--device cuda: {becomes}"
    else:
        assert [world.device for world in resolve_device(suite).worlds] == [becomes]
    if becomes == "cpu" and not torch.devices:  # what both mean is one world
        both = tuple(replace(WORLD, device=device) for device in ("cpu", "auto"))
        said = "--device: auto is cpu here, which stands there too"
        assert refuse(suite_of(worlds=both)) == said
