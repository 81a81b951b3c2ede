"""What a cluster of `scale` is started with and tells, without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.benchmarks.scale.cluster import NodeProxy
from serve_bench.core import usage as counts
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.serving.launch_spec import (
    LaunchSpec,
    attaching_environment,
    child_environment,
    raylet_ports,
)
from serve_bench.serving.strays import LAUNCH_MARK, MARKS


def spec(most_replicas: int = 8, raylets: int = 1) -> LaunchSpec:
    variant = BUILT_IN_VARIANTS["default"]
    return LaunchSpec(variant, "abcdef", "1", Path("log"), most_replicas, raylets=raylets)


@pytest.mark.parametrize(("most_replicas", "raylets"), [(1, 1), (8, 3), (1000, 1), (5000, 2)])
def test_a_launch_has_room_for_its_ports_and_gives_none_twice(
    most_replicas: int, raylets: int
) -> None:
    launch = spec(most_replicas, raylets)
    assert launch.ports < 32000 - 20000
    ports = range(20000, 20000 + launch.ports)
    env = child_environment(launch, ports)
    kinds = [
        range(int(env[f"{flag}_MIN_{kind}_PORT"]), int(env[f"{flag}_MAX_{kind}_PORT"]) + 1)
        for flag in ("RAY_SERVE_DIRECT_INGRESS",)
        for kind in ("HTTP", "GRPC")
    ]
    assert all(len(kind) >= most_replicas for kind in kinds)
    own = raylet_ports(launch, ports)
    assert [len(one) for one in own] == [4] * (raylets - 1)
    taken = [*ports[:5], *kinds[0], *kinds[1], *(port for one in own for port in one)]
    assert len(set(taken)) == len(taken) and set(taken) <= set(ports)


def test_a_program_that_attaches_has_the_token_of_the_shell_and_no_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the cluster")
    monkeypatch.setenv("PYTHONPATH", "before")
    for name in (*MARKS, counts.FOLDER):
        monkeypatch.setenv(name, "of another run")
    env = attaching_environment(Path("place"))
    assert env["RAY_AUTH_TOKEN"] == "of the cluster"
    assert env["PYTHONPATH"].split(":") == ["place", "before"]
    assert not {*MARKS, LAUNCH_MARK, counts.FOLDER} & set(env)


def test_the_url_of_a_proxy_is_that_of_its_own_node() -> None:
    def url(host: str) -> str:
        return NodeProxy("n", "10.1.0.2", "h", "HEALTHY", host, 8000, 1, None).url

    assert url("0.0.0.0") == url("127.0.0.1") == "http://127.0.0.1:8000"
    assert url("::") == "http://[::1]:8000"
    assert url("10.1.0.2") == "http://10.1.0.2:8000"
