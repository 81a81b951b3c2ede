"""What a run of `serve-bench rpc` needs: refused before anything is started, with a way out."""

from __future__ import annotations

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
    checked,
    interface_of,
    needed_bytes,
)
from serve_bench.benchmarks.rpc.request import RpcSuite, World
from serve_bench.core.errors import BadInput
from serve_bench.observing import host
from serve_bench.runner.model_needs import Torch
from serve_bench.serving.launch_spec import own_ray_version

WORLD = World(10, True, (10, 20, 10), 5, 10, "cpu", 1)
GPU = ("a GPU", 24_000_000_000)


def suite_of(*backends: str, **given: Any) -> RpcSuite:
    asked = {"master_addr": "127.0.0.1", "master_port": 0, "worlds": (WORLD,), **given}
    return RpcSuite(backends=backends or ("torch",), x_axis="world_size", **asked)


def refusal(suite: RpcSuite) -> str:
    with pytest.raises(BadInput) as refused:
        checked(suite)
    return str(refused.value)


@pytest.fixture(autouse=True)
def _has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has torch, Ray and much memory, whatever this one is."""
    monkeypatch.setattr(rpc_needs, "find_spec", lambda module: module)
    monkeypatch.setattr(rpc_needs, "own_ray_version", lambda: "2")
    free_bytes(monkeypatch, 1_000_000_000_000)


def free_bytes(
    monkeypatch: pytest.MonkeyPatch, available: int, limit_bytes: int | None = None
) -> None:
    memory = type("Memory", (), {"available": available})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(host, "memory_limit_bytes", lambda: limit_bytes)


@pytest.mark.parametrize(
    ("backends", "policy_ms", "needed"),
    [
        (("torch",), None, True),
        (("ray",), None, True),  # the policy is a network
        (("serve", "torch"), 20.0, True),
        (("ray", "serve"), 20.0, False),
    ],
)
def test_torch_is_asked_for_where_something_needs_it(
    backends: tuple[str, ...],
    policy_ms: float | None,
    needed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rpc_needs, "find_spec", lambda module: None if module == "torch" else module
    )
    suite = suite_of(*backends, policy_ms=policy_ms)
    if not needed:
        assert checked(suite) == suite
        return
    assert refusal(suite) == "torch is not installed: pip install torch numpy"


def test_ray_is_asked_for_where_a_backend_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(rpc_needs, "own_ray_version", own_ray_version)
    assert checked(suite_of("torch")) == suite_of("torch")
    for backends in (("ray",), ("torch", "serve")):
        said = refusal(suite_of(*backends))
        assert said.startswith("Ray is not installed ")
        assert said.endswith(": pip install 'ray[serve]'")


def test_a_port_that_is_taken_is_named_with_its_flag_and_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = refusal(suite_of(master_port=port))
        assert said.startswith(f"--master-port: {port} on 127.0.0.1 cannot be used: ")
        assert f"taken by pid {os.getpid()} (" in said
        assert said.endswith("choose another, or 0 for any free one")
        assert checked(suite_of("ray", "serve", master_port=port))  # they have no use for it
    assert checked(suite_of(master_port=port)).master_port == port


def test_a_name_is_taken_and_kept_as_it_was_given() -> None:
    assert checked(suite_of(master_addr="localhost")).master_addr == "localhost"
    assert address_of("localhost") in ("127.0.0.1", "::1")
    assert address_of("127.0.0.1") == "127.0.0.1"


def test_the_interface_of_an_address_is_its_name_of_this_machine() -> None:
    assert interface_of("127.0.0.1") == interface_of(address_of("localhost"))
    assert interface_of("127.0.0.1") in ("lo", "lo0")
    assert interface_of("192.0.2.1") is None
    for name, every in psutil.net_if_addrs().items():
        for one in every:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                assert interface_of(one.address) == name


@pytest.mark.parametrize("backend", ["torch", "ray", "serve"])
def test_memory_that_does_not_suffice_is_told_with_the_size_that_fits(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = replace(WORLD, world_size=80)
    needed = needed_bytes(world, backend)
    free_bytes(monkeypatch, needed)
    assert checked(suite_of(backend, worlds=(world,)))
    free_bytes(monkeypatch, needed - 1)
    said = refusal(suite_of(backend, worlds=(world,)))
    assert said.startswith(f"--world-size: memory: 80 processes on {backend} take about ")
    assert f"{needed / 1e9:.1f} GB, " in said and said.endswith("; --world-size 79 fits")
    assert checked(suite_of(backend, worlds=(replace(world, world_size=79),)))


def test_80_observers_over_torch_are_meant_to_fit_in_16_gib() -> None:
    assert needed_bytes(replace(WORLD, world_size=80), "torch") < 16 << 30


def test_a_limit_of_a_container_counts_where_it_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes(monkeypatch, 64_000_000_000, limit_bytes=1_100_000_000)
    assert "1.1 GB is free" in refusal(suite_of())


def test_states_that_do_not_fit_with_any_observer_are_not_blamed_on_the_observers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free_bytes(monkeypatch, 2_000_000_000)
    huge = replace(WORLD, world_size=2, state_size=(1000, 10_000))
    assert refusal(suite_of(worlds=(huge,))).endswith("; try a smaller --state-size")


def test_open_files_that_do_not_suffice_are_told_with_the_limit_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = 64 + FILES_EACH * 10

    def limits(hard: int) -> Callable[[int], tuple[int, int]]:
        return lambda which: (min(hard, 64), hard)

    monkeypatch.setattr(resource, "getrlimit", limits(needed - 1))
    said = refusal(suite_of())
    assert said.startswith(f"--world-size: an agent with 9 observers needs about {needed} open fi")
    assert f"the hard limit is {needed - 1}: raise it (ulimit -Hn {needed})" in said
    assert checked(suite_of("ray"))  # its processes share few connections
    for enough in (needed, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", limits(enough))
        assert checked(suite_of())


@pytest.mark.parametrize(
    ("built_for", "devices", "asked", "becomes"),
    [
        (None, (), "auto", "cpu"),
        ("13", (), "auto", "cpu"),
        ("13", (GPU,), "auto", "cuda"),
        ("13", (GPU,), "cuda", "cuda"),
        ("13", (GPU,), "cpu", "cpu"),
        (None, (), "cuda", "torch is built without CUDA; it takes auto or cpu here"),
        ("13", (), "cuda", "torch finds no CUDA device; it takes auto or cpu here"),
    ],
)
def test_the_device_is_what_torch_has(
    built_for: str | None,
    devices: tuple[tuple[str, int], ...],
    asked: str,
    becomes: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch("2", built_for, devices)
    monkeypatch.setattr(rpc_needs, "torch_of", lambda variant: torch)
    suite = suite_of(worlds=(replace(WORLD, device=asked),))
    if " " in becomes:
        assert refusal(suite) == f"--device cuda: {becomes}"
    else:
        assert [one.device for one in checked(suite).worlds] == [becomes]


def test_auto_and_the_device_that_it_means_are_one_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_needs, "torch_of", lambda variant: Torch("2", None, ()))
    both = tuple(replace(WORLD, device=one) for one in ("cpu", "auto"))
    assert refusal(suite_of(worlds=both)) == "--device: auto is cpu here, which stands there too"
