"""Records of scale from what was measured: handles, lost nodes, costs."""

from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.scale.bench import cpu_us_a_request, nodes_trial
from serve_bench.benchmarks.scale.spec import SingleSpec, on_nodes
from serve_bench.core import usage as counts
from serve_bench.core.facts import NodeFacts, NodeProxy, ProcessUsage, TrialUsage
from serve_bench.core.load_result import Counts
from serve_bench.core.plan import list_trials
from serve_bench.core.result import Trial, VariantUsed
from serve_bench.core.schema import built
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.serving.launch_spec import (
    LaunchSpec,
    attaching_environment,
    child_environment,
    raylet_ports,
)
from serve_bench.serving.strays import LAUNCH_MARK, MARKS
from tests.cases import Patch, cases
from tests.rounds import MS, a_result
from tests.scale_records import scale_node

DEFAULT = (VariantUsed("default"),)
NODE_ROW = on_nodes(list_trials(SingleSpec(variants=DEFAULT).plan())[0], 3)


def node(**changes: Any) -> NodeFacts:
    known = scale_node(seconds=10.0, completed=1000, rate=100.0)
    return built(NodeFacts, known | changes, "node")


def of_nodes(nodes: list[NodeFacts], completed: int = 1000, timeouts: int = 0) -> Trial:
    """Make the record of a load from nodes, of which the living ones together measured this."""
    counts = Counts(completed + timeouts, completed, {"timeout": timeouts} if timeouts else {}, 0)
    about: dict[str, Any] = {"measured": counts, "in_windows": counts, "nodes": tuple(nodes)}
    return nodes_trial(NODE_ROW, "1", "now", a_result([MS] * completed, (100,) * 10, **about), 12.0)


def test_the_requests_of_a_lost_node_count_as_failed() -> None:
    nodes = [node(), node(rate=50.0, completed=500, failed={"timeout": 2})]
    nodes.append(node(lost="gone", completed=0, rate=0.0, failed={"node": 7}))
    trial = of_nodes(nodes, completed=1500, timeouts=2)
    assert trial.counts.completed == 1500 and trial.counts.balanced
    assert trial.counts.failed == {"timeout": 2, "node": 7}
    assert [node.lost for node in trial.client.nodes] == [None, None, "gone"]


def test_the_cpu_of_a_request_leaves_the_load_out() -> None:
    trial = of_nodes([node()])
    used = {"replica": 60.0, "proxy": 40.0, "load_worker": 90.0, "ray_worker": 90.0, "raylet": None}
    roles = used.items()
    processes = (ProcessUsage(pid=1, role=role, cpu_percent=percent) for role, percent in roles)
    usage = TrialUsage(processes=tuple(processes))
    # One core for ten seconds over a thousand requests.
    assert cpu_us_a_request(usage, trial) == pytest.approx(10_000.0)
    assert cpu_us_a_request(TrialUsage(), trial) is None


@cases("most_replicas, raylets", (1, 1), (8, 3), (1000, 1), (5000, 2))
def test_a_launch_gives_no_port_twice(most_replicas: int, raylets: int) -> None:
    variant = BUILT_IN_VARIANTS["default"]
    launch = LaunchSpec(variant, "abcdef", "1", Path("log"), most_replicas, raylets=raylets)
    assert launch.ports < 32000 - 20000
    ports = range(20000, 20000 + launch.ports)
    env = child_environment(launch, ports)
    most, least = (f"RAY_SERVE_DIRECT_INGRESS_{end}_{{}}_PORT" for end in ("MAX", "MIN"))
    kinds = [
        range(int(env[least.format(kind)]), int(env[most.format(kind)]) + 1)
        for kind in ("HTTP", "GRPC")
    ]
    assert all(len(kind) >= most_replicas for kind in kinds)
    by_raylet = raylet_ports(launch, ports)
    assert [len(part) for part in by_raylet] == [4] * (raylets - 1)
    taken = [*ports[:5], *kinds[0], *kinds[1], *(port for part in by_raylet for port in part)]
    assert len(set(taken)) == len(taken) and set(taken) <= set(ports)


def test_a_program_that_attaches_has_the_token_of_the_shell_and_no_mark(monkeypatch: Patch) -> None:
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
        return NodeProxy(node_id="n", node_ip="10.1.0.2", status="", host=host, port=8000).url

    assert url("0.0.0.0") == url("127.0.0.1") == "http://127.0.0.1:8000"
    assert url("::") == "http://[::1]:8000"
    assert url("10.1.0.2") == "http://10.1.0.2:8000"
