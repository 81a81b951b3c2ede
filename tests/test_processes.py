"""Serve processes in the table of this machine: roles and titles; real ones are in integration."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serve_bench.processes import (
    TARGETS,
    ServeProcess,
    _with_fallback,
    app_of,
    chosen,
    serve_processes,
)


def process(pid: int, role: str, cluster: str = "s1", **more: str) -> ServeProcess:
    return ServeProcess(pid, role, f"ray::{role}", cluster, **more)


EVERY = [
    process(1, "proxy"),
    process(2, "replica", app="a", deployment="D"),
    process(3, "replica", app="b", deployment="D"),
    process(4, "controller"),
    process(5, "haproxy"),
    process(6, "haproxy_manager"),
]


@pytest.mark.parametrize(
    ("title", "app", "deployment"),
    [
        ("ray::ServeReplica:noop:NoOp", "noop", "NoOp"),
        ("ray::ServeReplica:noop:NoOp.handle_request", "noop", "NoOp"),
        ("ray::ServeReplica::NoOp", "", "NoOp"),
        ("ray::ProxyActor", None, None),
        ("python app.py", None, None),
    ],
)
def test_app_and_deployment_are_in_the_title(
    title: str, app: str | None, deployment: str | None
) -> None:
    assert app_of(title) == (app, deployment)


@pytest.mark.parametrize(
    ("target", "pids"),
    [("proxy", [1, 6]), ("replica", [2, 3]), ("haproxy", [5]), ("all", [1, 2, 3, 4, 6])],
)
def test_a_target_means_roles(target: str, pids: list[int]) -> None:
    assert [one.pid for one in chosen(EVERY, target)] == pids


def test_app_and_deployment_narrow_replicas_alone() -> None:
    assert [one.pid for one in chosen(EVERY, "all", app="b")] == [1, 3, 4, 6]
    assert [one.pid for one in chosen(EVERY, "replica", app="a", deployment="E")] == []


def test_behind_haproxy_the_proxy_actor_is_the_fallback_of_its_own_cluster() -> None:
    both = [process(1, "proxy"), process(2, "haproxy_manager"), process(3, "proxy", "s2")]
    assert [one.role for one in _with_fallback(both)] == [
        *("fallback_proxy", "haproxy_manager", "proxy")
    ]


def test_no_target_is_haproxy_and_python_at_once() -> None:
    assert all("haproxy" not in TARGETS[name] for name in TARGETS if name != "haproxy")


def test_a_title_alone_is_not_enough_there_must_be_a_raylet_above() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    pretender = subprocess.Popen(
        ["ray::ServeReplica:x:Y", "-c", code],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert pretender.stdout is not None
        pretender.stdout.readline()
        assert pretender.pid not in {one.pid for one in serve_processes()}
    finally:
        pretender.communicate(b"")
