"""The clusters of `scale` on a real Ray: applications, proxies, handles, leftovers."""

import contextlib
import dataclasses
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from serve_bench.benchmarks.scale.cluster import AttachedCluster, OwnCluster
from serve_bench.benchmarks.scale.spec import WORKLOADS, ScaleApp
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Timing
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.serving.server import LaunchFailed
from serve_bench.serving.strays import new_run, reap
from tests.cases import cases
from tests.integration.conftest import AUTH, RayNodes, launched_as, ray_nodes, until
from tests.places import begin

pytestmark = [pytest.mark.ray]

HERE: Final = Path(__file__).parent
FOREIGN: Final = "of_others"
TIMING: Final = Timing(0.2, 0.2, 3, 0.3)
ONCE: Final = Timing(0.0, 0.0, 1, 60.0)  # requests by number
LOST_S: Final = 5.0  # an answer that takes longer than that is not to come


def apps(workload: str, **sizes: Any) -> tuple[ScaleApp, ...]:
    """Make the workload at its smallest: a replica each, two applications or three nodes."""
    return WORKLOADS[workload](**sizes).apps(1)


SINGLE, MULTI = apps("single"), apps("multi", deployments=2)
ENSEMBLE, CHAIN = apps("ensemble", fanout=3), apps("chain", length=3)
EVERY: Final = (*SINGLE, *MULTI, *ENSEMBLE, *CHAIN)


def get(url: str, timeout_s: float = 30.0) -> str:
    with urllib.request.urlopen(url, timeout=timeout_s) as response:
        assert response.headers["Content-Length"] is not None  # not chunked
        return str(response.read().decode())


def get_from(url: str, app: ScaleApp) -> str:
    """Get an answer; one that calls itself loses one in a thousand (docs/scale.md): ask thrice."""
    for _ in range(2 if app in MULTI else 0):
        with contextlib.suppress(TimeoutError):
            return get(url + app.route_prefix, LOST_S)
    return get(url + app.route_prefix)


def load_by_handle(
    cluster: OwnCluster | AttachedCluster, app: ScaleApp, *, timing: Timing = TIMING, **changes: Any
) -> LoadResult:
    """Measure three callers of a handle."""
    load = dataclasses.replace(cluster.handle_load(app, {}), connections=3, timeout_s=30.0)
    return drive_load(dataclasses.replace(load, **changes), timing)


def check_windows(result: LoadResult, may_lose: bool = False) -> None:
    """`may_lose`: what calls itself loses an answer now and then (docs/scale.md)."""
    assert set(result.measured.failed) <= ({"timeout"} if may_lose else set())
    assert sum(result.windows) == result.in_windows.completed > 0
    assert len(result.windows) == 3 and result.measured.balanced and result.in_windows.balanced


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """Two nodes, with every application on them."""
    variant, log = BUILT_IN_VARIANTS["default"], tmp_path_factory.mktemp("own") / "log"
    nodes: dict[str, Any] = {"raylets": 2, "proxy_location": "EveryNode", "most_replicas": 10}
    with launched_as(OwnCluster, variant, log, **nodes) as cluster:
        yield cluster


@pytest.mark.long
def test_every_application_answers_by_every_proxy_and_by_its_handle(both: OwnCluster) -> None:
    phases: list[str] = []
    put = both.put(EVERY, phases.append)
    assert phases[-2:] == ["replicas", "proxies"]
    asked = {(app.name, name) for app in EVERY for name in app.replicas}
    assert {(replica.app, replica.deployment) for replica in put.replicas} == asked
    assert len(put.replicas) == len(asked) == 10
    assert sorted(replica.pid for replica in put.replicas) == sorted(both.replicas())
    nodes = both.proxies()
    assert len(nodes) == 2
    for node in nodes:
        runs_there = any(replica.node_id == node.node_id for replica in put.replicas)
        assert node.healthy or not runs_there
        assert (node.why is None) == node.healthy and node.shared_with == ()
    healthy = [node for node in nodes if node.healthy]
    assert len({node.url for node in healthy}) == len(healthy) >= 1  # each has its own address
    for node in healthy:
        assert node.pid in {process.pid for process in both.processes()}
        for app in EVERY:
            assert get_from(node.url, app) == app.ready_body
        assert get(f"{node.url}{ENSEMBLE[0].route_prefix}?input=2") == "9"
        assert get(f"{node.url}{CHAIN[0].route_prefix}?input=5") == "8"
    for app in (SINGLE[0], ENSEMBLE[0], CHAIN[0]):
        check_windows(load_by_handle(both, app))
    check_windows(load_by_handle(both, MULTI[0], timeout_s=LOST_S), may_lose=True)
    assert both.prove()["port_owner"]["role"] == "proxy"
    assert both.casualties() == []


@pytest.mark.long
def test_each_replica_counts_and_hops_are_as_many_as_asked(both: OwnCluster) -> None:
    hops = [replica.pid for replica in both.put(MULTI).replicas]
    before = sum(both.counts()[pid].requests for pid in hops)
    result = load_by_handle(both, MULTI[0], each=5, timeout_s=LOST_S, timing=ONCE)
    taken = sum(both.counts()[pid].requests for pid in hops) - before
    # An answer may be lost on its way back, and is told then; every call was made.
    assert result.measured.sent == 15 and set(result.measured.failed) <= {"timeout"}
    assert taken == 15 * (1 + 5)


@pytest.mark.long
def test_what_cannot_be_built_is_refused_and_removed_is_gone(both: OwnCluster) -> None:
    broken = dataclasses.replace(SINGLE[0], name="broken", route_prefix="/broken", args={})
    with pytest.raises(LaunchFailed, match="KeyError: 'max_batch_size'"):
        both.put([broken])
    url = both.url + SINGLE[0].route_prefix
    assert get(url) == "hi"
    assert both.remove() > 0
    assert both.replicas() == [] and both.casualties() == []
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(url)
    with pytest.raises(LoadError, match="does not exist"):
        load_by_handle(both, SINGLE[0])


@pytest.mark.long
def test_behind_haproxy_all_is_the_same(tmp_path: Path) -> None:
    with launched_as(OwnCluster, BUILT_IN_VARIANTS["optimized"], tmp_path / "log") as cluster:
        # A handle is used again for an application that is put again.
        for these in ([*SINGLE, *ENSEMBLE], SINGLE):
            cluster.put(these)
            for app in these:
                assert get(cluster.url + app.route_prefix) == app.ready_body
                check_windows(load_by_handle(cluster, app))
            (node,) = cluster.proxies()
            assert node.healthy and node.url == cluster.url and node.why is None
            assert cluster.prove()["port_owner"]["role"] == "haproxy"
            cluster.remove()


@pytest.fixture(scope="module")
def others() -> Iterator[RayNodes]:
    """Start a Ray cluster that is not ours, with an application of its own."""
    with ray_nodes(1, cpus=8) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in AUTH.items():
            patch.setenv(name, value)
        cluster.ask(f"serve {cluster.port} {FOREIGN}")
        yield cluster


@contextlib.contextmanager
def attached(address: str, tmp_path: Path, *names: str, port: int = 1) -> Iterator[AttachedCluster]:
    """Not started yet; left and swept up at the end."""
    run = new_run()
    try:
        cluster = AttachedCluster(address, run, "1", tmp_path / "log", names, port)
        with contextlib.closing(cluster):
            yield cluster
        assert cluster.close().leftovers == () and not cluster.alive()
    finally:
        reap(run)


NAME: Final = SINGLE[0].name


@pytest.mark.ci
@cases(
    "environment, names, said",
    ({}, (FOREIGN,), f"named '{FOREIGN}' is there already and is not of serve-bench"),
    (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32},
        (),
        "does not let us in: it wants RAY_AUTH_MODE=token and its token",
    ),
)
def test_it_is_not_attached_to(
    environment: dict[str, str],
    names: tuple[str, ...],
    said: str,
    others: RayNodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with (
        attached(others.address, tmp_path, *names) as cluster,
        pytest.raises(LaunchFailed, match=said) as refused,
    ):
        cluster.start()
    assert "\n" not in str(refused.value)
    assert others.ask("apps") == [FOREIGN]


@pytest.mark.ci
def test_it_is_left_as_it_was_also_after_a_killed_run(others: RayNodes, tmp_path: Path) -> None:
    with attached(others.address, tmp_path, NAME) as cluster:
        cluster.start()
        assert cluster.facts["serve_was_running"] and cluster.facts["applications"] == [FOREIGN]
        assert cluster.facts["replaced"] == [] and len(cluster.facts["nodes"]) == 1
        assert cluster.put(SINGLE).replicas[0].app == NAME
        (node,) = cluster.proxies()
        assert node.healthy and node.port == others.port
        assert get(node.url + SINGLE[0].route_prefix) == "hi"
        assert get(f"{node.url}/{FOREIGN}") == "foreign"
        check_windows(load_by_handle(cluster, SINGLE[0]))
        roles = [process.role for process in cluster.processes()]
        assert roles.count("replica") == 2 and {"driver", "proxy", "controller"} <= set(roles)
        proof = cluster.prove()
        assert {"proxy", "replica"} <= set(proof["flags"]) and "ray" in proof["versions"]
        assert f"ray=={proof['versions']['ray']}" in proof["packages"]
        cluster.remove()
        assert others.ask("apps") == [FOREIGN]
        cluster.put(SINGLE)
        with (
            attached(others.address, tmp_path, NAME) as second,
            pytest.raises(LaunchFailed, match="is being measured by another serve-bench"),
        ):
            second.start()
        assert others.ask("apps") == [FOREIGN, NAME]
        psutil.Process(cluster.processes()[0].pid).kill()  # nobody is left to take it away
        with pytest.raises(LaunchFailed, match="killed by signal 9"):
            cluster.proxies()
        assert cluster.broken() is not None
        assert cluster.close().leftovers != ()
        cluster._closed = dataclasses.replace(cluster.close(), leftovers=())
    assert others.ask("apps") == [FOREIGN, NAME]
    with attached(others.address, tmp_path, NAME) as cluster:
        cluster.start()
        assert cluster.facts["replaced"] == [NAME]
    assert others.ask("apps") == [FOREIGN]
    assert get(f"http://127.0.0.1:{others.port}/{FOREIGN}") == "foreign"


PARENT: Final = """
import sys, time
from pathlib import Path
from tests.integration.test_scale_cluster import SINGLE
from serve_bench.benchmarks.scale.cluster import AttachedCluster
from serve_bench.serving.strays import new_run, start_warden
run = new_run()
warden = start_warden(run)
cluster = AttachedCluster(sys.argv[1], run, "1", Path(sys.argv[2]) / "log")
cluster.start()
cluster.put(SINGLE)
print("up", flush=True)
time.sleep(120)
"""


@pytest.mark.ci
def test_sigkill_of_the_parent_takes_our_application_away(others: RayNodes, tmp_path: Path) -> None:
    words = (sys.executable, "-c", PARENT, others.address, tmp_path)
    parent = begin(*words, cwd=HERE.parent.parent, stderr=None)
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    assert others.ask("apps") == [FOREIGN, NAME]
    parent.kill()
    parent.communicate()
    until(lambda: others.ask("apps") == [FOREIGN], 20, 0.2)
    assert others.ask("apps") == [FOREIGN]  # and that no process is left is seen by the fixture


@pytest.mark.ci
def test_serve_that_was_started_for_it_ends_with_it(others: RayNodes, tmp_path: Path) -> None:
    """The last on this cluster: it ends the Serve of others."""
    others.ask("stop")
    assert not [name for name in others.ask("actors") if name.startswith("SERVE_")]
    with attached(others.address, tmp_path, port=others.port) as cluster:
        cluster.start()
        assert not cluster.facts["serve_was_running"]
        cluster.put(CHAIN)
        (node,) = cluster.proxies()
        assert get(node.url + CHAIN[0].route_prefix) == CHAIN[0].ready_body
    assert not [name for name in others.ask("actors") if name.startswith("SERVE_")]
