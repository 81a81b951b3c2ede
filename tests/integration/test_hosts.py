"""scale on a Ray cluster of three hosts, each with a network, processes and a name of its own.

The hosts are namespaces of this machine (hosts.py); what they share is the file system. One cluster
serves all tests: it must be as it was after each.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from serve_bench.store import read
from tests.cases import sure
from tests.integration.conftest import SERVE_BENCH, ended, until
from tests.integration.hosts import Host, Network, joined_hosts

pytestmark = [pytest.mark.alone, pytest.mark.ray, pytest.mark.long, pytest.mark.netns]

ADDRESS = "10.77.0.1:6379"

#: Of each host: Ray starts a worker for each, used or not.
CPUS = 2
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}

#: What a cluster has that is not ours: asked in a process of its own, on its first host.
ASK = """
import json, ray
from ray import serve
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True)]
apps = list(serve.status().applications) if "SERVE_CONTROLLER_ACTOR" in names else None
print("TOLD " + json.dumps({"actors": sorted(names), "apps": apps}))
"""


class Cluster:
    """Ray on three hosts."""

    def __init__(self, network: Network, place: Path) -> None:
        self.network, self._place = network, place
        self.first = network.hosts[0]
        for number, host in enumerate(network.hosts):
            how = ["--head", "--port=6379", "--include-dashboard=false"]
            how = how if number == 0 else [f"--address={ADDRESS}"]
            self._ray(number, "start", *how, f"--node-ip-address={host.ip}", f"--num-cpus={CPUS}")
        self.before = self.list_names()

    def env(self, number: int = 0) -> dict[str, str]:
        place = self._place / str(number)
        place.mkdir(exist_ok=True)
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SERVE_BENCH"))}
        places = {"RAY_TMPDIR": str(place), "TMPDIR": str(place), "RAY_USAGE_STATS_ENABLED": "0"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}"
        return {**plain, **TOKEN, **places, "PATH": path}

    def _ray(self, number: int, *words: str) -> None:
        self.network.hosts[number].run("ray", *words, env=self.env(number), timeout_s=90)

    def scale(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        return self.first.start(
            *SERVE_BENCH, "scale", *words, "--address", ADDRESS, env=self.env(), cwd=cwd
        )

    def list_names(self) -> dict[str, list[str] | None]:
        """Named actors, and Serve's applications; None without Serve."""
        said = self.first.run(sys.executable, "-c", ASK, env=self.env(), timeout_s=60)
        (line,) = [text for text in said.splitlines() if text.startswith("TOLD ")]
        found: dict[str, list[str] | None] = json.loads(line.removeprefix("TOLD "))
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = Path("/tmp") / f"h{os.getpid()}"  # short: Ray's socket paths are limited
    place.mkdir()
    try:
        with joined_hosts(3) as network:
            yield Cluster(network, place)
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)


def ours_on(host: Host) -> list[str]:
    """List processes of serve-bench on a host: the tool, load workers and actors, py-spy."""
    said = host.run("ps", "ax", "-o", "args").splitlines()
    words = ("serve_bench", "serve-bench", "LoadActor")
    return [line for line in said if any(word in line for word in words) and "nsenter" not in line]


def wait_until_gone(cluster: Cluster) -> dict[str, list[str]]:
    def left() -> dict[str, list[str]]:
        return {host.name: ours_on(host) for host in cluster.network.hosts}

    until(lambda: not any(left().values()), 30.0, 0.5)
    return left()


NOTHING: dict[str, list[str]] = {"host1": [], "host2": [], "host3": []}


def test_every_node_loads_its_own_proxy(cluster: Cluster, tmp_path: Path) -> None:
    command = ("single", "--replicas", "6", "--duration", "2s", "--warmup", "1s", "--out", "r")
    ran = cluster.scale(*command, "--format", "json", cwd=tmp_path)
    ended(ran, 0, 150)
    result = read(tmp_path / "r")
    (trial,), (deploy,), (launch,) = result.trials, result.deploys, result.launches
    nodes = trial.client.nodes
    assert sorted(node.ip for node in nodes) == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    assert sorted(node.hostname for node in nodes) == ["host1", "host2", "host3"]
    assert all(node.completed > 0 and node.lost is None for node in nodes)
    assert sum(node.completed for node in nodes) == trial.counts.completed
    roles = [{process.role for process in sure(node.usage).processes} for node in nodes]
    assert all("proxy" in role for role in roles) and sum("replica" in role for role in roles) >= 2
    where = Counter(replica["node_id"] for replica in deploy.proof["replicas"])
    assert list(where.values()) == [2, 2, 2]  # replicas are spread, or a node has no proxy
    owners = {proxy["node_ip"]: proxy["status"] for proxy in launch.proof["proxies"]}
    assert owners == {f"10.77.0.{number}": "HEALTHY" for number in (1, 2, 3)}
    assert wait_until_gone(cluster) == NOTHING
    assert cluster.list_names() == cluster.before


def _wait_for_load(hosts: Sequence[Host], ran: subprocess.Popen[str], then_s: float = 5.0) -> Host:
    """Wait until a load comes from one of these hosts, and `then_s`: by then it is measured."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and ran.poll() is None:
        for host in hosts:
            if any("load.worker" in line for line in ours_on(host)):
                time.sleep(then_s)  # the warm-up, and some of what is measured
                return host
        time.sleep(0.2)
    pytest.fail("no load came")


def test_a_killed_run_leaves_nothing_on_any_host(cluster: Cluster, tmp_path: Path) -> None:
    command = ("single", "--replicas", "3", "--duration", "60s", "--warmup", "1s", "--out", "r")
    ran = cluster.scale(*command, cwd=tmp_path)
    try:
        _wait_for_load([cluster.first], ran, 3.0)
        (inside,) = psutil.Process(ran.pid).children()
        os.kill(inside.pid, signal.SIGKILL)
        ran.wait(20)
    finally:
        ran.kill()
    assert wait_until_gone(cluster) == NOTHING
    assert cluster.list_names() == cluster.before


def test_a_host_that_is_cut_off_is_named(cluster: Cluster, tmp_path: Path) -> None:
    command = ("single", "--replicas", "6", "--duration", "24s", "--warmup", "1s", "--out", "r")
    ran = cluster.scale(*command, cwd=tmp_path)
    try:
        cut_off = _wait_for_load([cluster.network.hosts[2]], ran)
        cluster.network.set_link(cut_off, "down")
        out, _ = ran.communicate(timeout=200)
    finally:
        for host in cluster.network.hosts:
            cluster.network.set_link(host, "up")
        ran.kill()
    assert ran.returncode == 1, out
    result = read(tmp_path / "r")
    (trial,) = result.trials
    nodes = {node.hostname: node for node in trial.client.nodes}
    lost = nodes.pop(cut_off.name)
    assert lost.lost and lost.failed["node"] > 0
    assert nodes and all(node.lost is None and node.completed for node in nodes.values())
    assert trial.counts.completed == sum(node.completed for node in nodes.values())
    assert trial.counts.failed["node"] == lost.failed["node"]
    failures = [failure.message for failure in result.failures]
    assert any(cut_off.name in failure for failure in failures) and cut_off.name in out
