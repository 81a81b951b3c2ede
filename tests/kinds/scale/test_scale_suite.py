"""Suites of scale from their files and flags; what is refused is in test_cli_scale.py."""

from __future__ import annotations

from typing import Any

import pytest

from serve_bench.benchmarks.scale import KEYS
from serve_bench.benchmarks.scale.request import AS_IT_IS, WORKLOADS
from serve_bench.benchmarks.scale.suite import read_scale
from serve_bench.core.errors import BadInput
from serve_bench.store.files import read_toml, suite_file

CURVE: dict[str, Any] = read_toml(suite_file("scale_curve"))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_is_shipped_with_the_published_sizes(workload: Any) -> None:
    data = read_toml(suite_file(f"scale_{workload}"))
    suite = read_scale(workload, data, "a.toml", {})
    assert set(data["scale"]) == {"workload", *KEYS[workload]}
    published = {
        "single": ((1000,), 600.0, 16),
        "multi": ((100,), 600.0, 16),
        "ensemble": ((1,), 10.0, 16),
        "chain": ((1,), 10.0, 16),
        "curve": ((1, 2, 4, 8, 16, 32), 10.0, 16),
    }
    assert (suite.replicas, suite.measured_s, suite.max_batch_size) == published[workload]
    assert (suite.connections, suite.clients, suite.hops, suite.size) == (10, 4, 5, 10)
    assert suite.client == "raw" and [one.name for one in suite.variants] == ["default"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_quick_is_smaller(workload: Any) -> None:
    data = read_toml(suite_file(f"scale_{workload}"))
    quick = read_scale(workload, data, "a.toml", {}, quick=True)
    assert quick.measured_s <= 20 and max(quick.replicas) <= 4 and quick.window_s == 1.0


def test_flags_go_before_the_file_and_before_quick() -> None:
    flags = {"replicas": "3, 5", "duration": "2.5s", "warmup": "500ms", "connections": "7"}
    suite = read_scale("curve", CURVE, "a.toml", flags, quick=True, variants=("haproxy",))
    assert suite.replicas == (3, 5) and suite.connections == 7 and suite.warmup_s == 0.5
    assert (suite.windows, suite.window_s) == (2, 1.25)
    assert [one.name for one in suite.variants] == ["haproxy"]


def test_a_cluster_that_is_there_has_its_own_flags() -> None:
    suite = read_scale("curve", CURVE, "a.toml", {}, address="10.0.0.1:6379")
    assert [one.name for one in suite.variants] == [AS_IT_IS] and suite.nodes == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "a.toml: is no suite of serve-bench scale: it has no table scale"),
        ({"scale": {}}, "a.toml: scale.workload: takes single, multi, ensemble, chain, curve"),
        ({"scale": {"workload": "multi"}}, "a.toml: is a suite of serve-bench scale multi, not"),
        ({"scale": {"workload": "curve"}}, "a.toml: scale: replicas is missing"),
        ({**CURVE, "rows": 1}, "a.toml: unknown key 'rows'"),
        ({**CURVE, "quick": {"fanout": 1}}, "a.toml: quick: unknown key 'fanout'"),
        ({**CURVE, "quick": {"seed": 1, "clients": 1}}, "a.toml: quick: unknown key 'clients'"),
        ({**CURVE, "quick": 1}, "a.toml: quick: must be a table"),
        ({**CURVE, "quick": {"duration": ["1s", "2s"]}}, "a.toml: quick.duration: takes one value"),
        ({**CURVE, "quick": {"replicas": []}}, "a.toml: quick.replicas: takes one value"),
        ({**CURVE, "quick": {"replicas": [2, 2]}}, "a.toml: quick.replicas: 2 stands there twice"),
        ({**CURVE, "quick": {"timeout": "0s"}}, "a.toml: quick.timeout: '0s' is not allowed"),
    ],
)
def test_a_broken_file_is_one_line(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_scale("curve", data, "a.toml", {}, quick=True)
    assert str(refused.value).startswith(message)
