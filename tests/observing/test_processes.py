"""Serve processes in the table of this machine: roles and titles; real ones are in integration."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil

from serve_bench.core.result import VariantUsed
from serve_bench.core.usage import read_replica
from serve_bench.observing import processes
from serve_bench.observing.processes import ServeProcess, behind, chosen, serve_processes
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Process, Serving, with_fallback
from tests.cases import Patch, cases, sure
from tests.places import begin


def process(pid: int, role: str, cluster: str = "s1", **more: str) -> ServeProcess:
    return ServeProcess(pid, role, f"ray::{role}", cluster, **more)


def test_behind_a_url_is_the_serve_of_its_port(monkeypatch: Patch) -> None:
    proxy, other = process(os.getpid(), "proxy"), process(os.getppid(), "proxy", "s2")
    owner = SimpleNamespace(pid=proxy.pid)
    monkeypatch.setattr(processes, "port_owner", lambda port: owner)
    monkeypatch.setattr(processes, "serve_processes", lambda: [proxy, other])
    monkeypatch.setattr(processes, "_raylet_above", lambda child: SimpleNamespace(pid=77))
    raylet = ServeProcess(77, "raylet", "raylet", "s1")
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0"):
        assert behind(f"http://{host}:8000/") == [proxy, raylet]
    assert behind("http://192.0.2.7:8000/") == behind("http://localhost/", "/run/app.sock") == []
    assert behind("http:///") == []
    monkeypatch.setattr(processes, "port_owner", lambda port: None)
    assert behind("http://127.0.0.1:9/") == []


EVERY = [
    process(1, "proxy"),
    process(2, "replica", app="a", deployment="D"),
    process(3, "replica", app="b", deployment="D"),
    process(4, "controller"),
    process(5, "haproxy"),
    process(6, "haproxy_manager"),
]


@cases(
    "title, app, deployment",
    ("ray::ServeReplica:noop:NoOp", "noop", "NoOp"),
    ("ray::ServeReplica:noop:NoOp.handle_request", "noop", "NoOp"),
    ("ray::ServeReplica:noop:My model  ", "noop", "My model"),
    ("ray::ServeReplica::NoOp", "", "NoOp"),
    ("ray::ProxyActor", None, None),
    ("python app.py", None, None),
)
def test_the_title_has_app_and_name(title: str, app: str | None, deployment: str | None) -> None:
    assert read_replica(title) == (app, deployment)


@cases("target, pids", ("proxy", [1, 6]), ("replica", [2, 3]), ("all", [1, 2, 3, 4, 6]))
def test_a_target_means_roles(target: str, pids: list[int]) -> None:
    assert [process.pid for process in chosen(EVERY, target)] == pids
    assert [part.pid for part in chosen(EVERY, "all", app="b")] == [1, 3, 4, 6]  # replicas alone
    assert [process.pid for process in chosen(EVERY, "replica", app="a", deployment="E")] == []


def test_behind_haproxy_the_proxy_actor_is_the_fallback_of_its_own_cluster() -> None:
    both = [process(1, "proxy"), process(2, "haproxy_manager"), process(3, "proxy", "s2")]
    first, _, last = (process.role for process in with_fallback(both))
    assert (first, last) == ("fallback_proxy", "proxy")


def test_a_title_alone_is_not_enough_there_must_be_a_raylet_above() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    words, program = ("ray::ServeReplica:x:Y", "-c", code), {"executable": sys.executable}
    with begin(*words, stdin=subprocess.PIPE, **program) as pretender:
        assert pretender.stdout is not None and pretender.stdout.readline()
        assert pretender.pid not in {process.pid for process in serve_processes()}
        pretender.communicate("")


def test_a_launch_that_ended_has_no_processes() -> None:
    """They are asked for once more when a row is measured, and the cluster may have ended in it."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    serving = Serving(LaunchSpec(VariantUsed("default"), "abcdef", "1", Path("log")))
    serving._child = cast(Any, SimpleNamespace(pid=gone.pid))
    assert serving.processes() == []


def test_a_child_with_the_title_of_its_parent_is_not_missed() -> None:
    """A worker that starts has the raylet's title for a moment, and then its own or none."""
    code = "sleep 60 & echo $!; read line"
    with begin("sh", "-c", code, stdin=subprocess.PIPE) as parent:
        child = psutil.Process(int(sure(parent.stdout).readline()))
        found = [Process(pid, "raylet", "raylet") for pid in (parent.pid, child.pid)]
        launched: Any = SimpleNamespace(
            processes=lambda: found, _list_haproxy=list, _find_owner=lambda: parent.pid, port=1
        )
        launched._gone = lambda: Serving._gone(launched)
        Serving._note_vital(launched)
        child.kill()
        assert Serving.casualties(launched) == []
        parent.kill()
        parent.wait()
        assert Serving.missing(launched) == [f"raylet {parent.pid} ended"]
        assert Serving.casualties(launched) == [f"raylet {parent.pid} ended"]
