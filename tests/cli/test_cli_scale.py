from dataclasses import replace

import pytest

from serve_bench.benchmarks.scale import needs as scale_needs
from serve_bench.benchmarks.scale.spec import SingleSpec
from serve_bench.core.errors import RunFailed
from serve_bench.core.result import VariantUsed
from tests.cases import Patch, Refuses, cases


@cases(
    "line, message",
    ("single --replicas 1000", "take about 101.3 GB, free here: 2.0 GB; --replicas 7 fits"),
    ("multi --replicas 100", "--replicas: memory: 1,000 replicas in all"),
    ("multi --replicas 100", "free here: 2.0 GB; not even the smallest fits"),
    ("ensemble --fanout 100", "--fanout: memory: 101 replicas in all take about 11.4 GB"),
    ("ensemble --fanout 100", "--fanout 6 fits"),
    ("chain --length 100", "--length 7 fits"),
    ("curve --replicas 1,100", "--replicas 7 fits"),
)
def test_too_many_replicas(line: str, message: str, refuses: Refuses, monkeypatch: Patch) -> None:
    free = scale_needs.BASE_BYTES + 7 * scale_needs.REPLICA_BYTES
    monkeypatch.setattr(scale_needs, "free_memory_bytes", lambda: free)
    refuses(f"scale {line}", message)


def test_a_cluster_that_is_there_must_have_the_memory() -> None:
    suite = SingleSpec(variants=(VariantUsed("as-it-is"),), replicas=(100,), address="a:1")
    nodes = [{"memory_bytes": 4 * 10**9}, {"memory_bytes": 3 * 10**9}]
    with pytest.raises(RunFailed) as refused:
        scale_needs.check_cluster(suite, nodes)
    for said in ("memory: 100 replicas in all take about 10.0 GB", "7.0 GB; --replicas 70 fits"):
        assert said in str(refused.value)
    scale_needs.check_cluster(replace(suite, replicas=(70,)), nodes)
    scale_needs.check_cluster(suite, [*nodes, {"memory_bytes": None}])  # Ray does not say
