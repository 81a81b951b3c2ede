"""What scale is asked for: files and flags, its applications, its rows and its plan.

What the command refuses is in test_cli_scale.py.
"""

from typing import Any

import pytest

from serve_bench.benchmarks.scale import spec
from serve_bench.core.content import Content
from serve_bench.core.plan import list_trials
from serve_bench.core.result import VariantUsed
from serve_bench.store.files import read_toml, suite_file
from tests.cases import cases, refusal

DEFAULT = VariantUsed("default")
CURVE: dict[str, Any] = read_toml(suite_file("scale_curve"))
SINGLE = spec.SingleSpec(variants=(DEFAULT,), replicas=(4,))


def test_several_deployments_are_applications_that_know_each_other() -> None:
    suite = spec.MultiSpec(deployments=3, hops=5, seed=7)
    apps = suite.apps(2)
    names = [app.name for app in apps]
    assert names == ["serve_bench_multi_0", "serve_bench_multi_1", "serve_bench_multi_2"]
    assert all(app.args["apps"] == names and app.args["hops"] == 5 for app in apps)
    assert len({app.args["seed"] for app in apps}) == 3
    assert suite.processes(2) == 6


@cases(
    "workload, size, answer, processes",
    *(("ensemble", 10, "45", 11), ("ensemble", 1, "0", 2), ("chain", 10, "10", 10)),
)
def test_a_graph_knows_its_sum(workload: str, size: int, answer: str, processes: int) -> None:
    kind = spec.WORKLOADS[workload]
    sizes: dict[str, Any] = {kind.size_option: size}
    suite = kind(**sizes)
    (app,) = suite.apps(1)
    assert app.ready_body == answer and suite.processes(1) == processes


def test_the_load_of_a_node_is_counted_for_each_node() -> None:
    planned, *_ = list_trials(SINGLE.plan())
    assert planned.row.connections == 10
    on_three = spec.on_nodes(planned, 3)
    assert (on_three.row.connections, on_three.row.processes) == (30, 3)
    assert (on_three.key, on_three.row.label) == (planned.key, "10 connections a node")


def test_variants_alternate_and_later_rounds_draw_their_sizes() -> None:
    variants = (DEFAULT, VariantUsed("optimized"))
    suite = spec.CurveSpec(variants=variants, replicas=(1, 2, 4, 8, 16), launches=3)
    plan = suite.plan()
    assert [(launch.variant.name, launch.round) for launch in plan] == [
        (name, round_) for round_ in (1, 2, 3) for name in ("default", "optimized")
    ]
    orders = [[cell["num_replicas"] for cell, _ in launch.cells] for launch in plan]
    assert orders[0] == [1, 2, 4, 8, 16] and orders[2] != orders[0]
    assert orders[2] == orders[3] and all(sorted(map(int, order)) == orders[0] for order in orders)
    keys = [planned.key for planned in list_trials(plan)]
    assert len(set(keys)) == len(keys) == 30
    rest = suite.plan(keys[:7])
    assert [planned.key for planned in list_trials(rest)] == keys[7:]
    assert suite.expected_s(rest) < suite.expected_s(plan)


@pytest.mark.parametrize("workload", spec.WORKLOADS)
def test_each_workload_is_shipped_with_its_defaults_and_smaller_sizes(workload: str) -> None:
    data = read_toml(suite_file(f"scale_{workload}"))
    suite = spec.read_scale(workload, Content("a.toml", data), {})
    assert set(data["scale"]) == {"workload", *suite.options()}
    assert suite == spec.WORKLOADS[workload](variants=(DEFAULT,))
    quick = spec.read_scale(workload, Content("a.toml", data), {}, quick=True)
    assert quick.duration <= 20 and max(quick.replicas) <= 4 and quick.window_s == 1.0


def test_flags_go_before_the_file_and_before_quick_and_a_cluster_has_its_own() -> None:
    content = Content("a.toml", CURVE).set("variant", ["haproxy"], "--variant")
    flags = {"replicas": "3, 5", "duration": "2.5s", "warmup": "500ms", "connections": "7"}
    suite = spec.read_scale("curve", content, flags, quick=True)
    assert suite.replicas == (3, 5) and suite.to_json()["connections"] == 7 and suite.warmup == 0.5
    assert (suite.windows, suite.window_s) == (2, 1.25)
    assert [variant.name for variant in suite.variants] == ["haproxy"]
    suite = spec.read_scale("curve", Content("a.toml", CURVE), {}, address="10.0.0.1:6379")
    assert [variant.name for variant in suite.variants] == [spec.AS_IT_IS] and suite.nodes == 1


@cases(
    "data, message",
    ({}, "a.toml: is no suite of serve-bench scale: it has no table scale"),
    ({"scale": {}}, "a.toml: scale.workload: takes single, multi, ensemble, chain, curve"),
    ({"scale": {"workload": "multi"}}, "a.toml: is a suite of serve-bench scale multi, not"),
    ({**CURVE, "rows": 1}, "a.toml: unknown key 'rows'"),
    ({**CURVE, "quick": {"fanout": 1}}, "a.toml: quick: unknown key 'fanout'"),
    ({**CURVE, "quick": {"duration": ["1s", "2s"]}}, "a.toml: quick.duration: ['1s', '2s'] is "),
    ({**CURVE, "quick": {"timeout": "0s"}}, "a.toml: quick.timeout: '0s' is not allowed"),
)
def test_a_broken_file_is_one_line(data: dict[str, Any], message: str) -> None:
    said = refusal(spec.read_scale, "curve", Content("a.toml", data), {}, quick=True)
    assert said.startswith(message)
