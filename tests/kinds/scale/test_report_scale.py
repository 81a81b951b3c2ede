"""The report of a scale run in every form, from made records.

Two variants in two launches on three nodes, of which one was lost and one launch failed; a curve;
an ensemble.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.checks import checks
from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.core.facts import TrialFlags
from serve_bench.core.result import Failure, Launch, Result, VariantUsed
from tests.kinds.scale.test_scale_figures import LAWS
from tests.records import AT, changed
from tests.rendering import render
from tests.scale_records import (
    curve_trials,
    graph_trials,
    lost_node,
    one_launch,
    planned,
    points_of,
    scale_node,
    scale_result,
    scale_suite,
    scale_trial,
)
from tests.sheet_parts import flat, shown, view_of
from tests.verdict_trials import serving


def golden() -> Result:
    suite = scale_suite("single", ("default", "optimized"), replicas=(1000,), launches=2)
    trials = []
    rates = {("default", 1): 101.0, ("default", 2): 102.0, ("optimized", 1): 202.0}
    for (variant, round_), rate in rates.items():
        (of,) = planned(suite, variant=variant, round_=round_)
        third = lost_node(3) if variant == "optimized" else scale_node(3, rate=rate)
        trials.append(scale_trial(of, [scale_node(1, rate=rate), scale_node(2, rate=rate), third]))
    never = Failure("launch", "serve did not start", AT, variant="optimized", round=2)
    return scale_result(suite, *trials, others=[never])


def test_a_node_that_was_not_loaded_is_named_with_the_reason() -> None:
    ours = {"node_id": "a" * 56, "node_ip": "10.1.0.1", "status": "HEALTHY", "why": None}
    why = {"status": "NONE", "why": "no replica runs there"}
    proxies = [ours, {"node_id": "b" * 56, "node_ip": "10.1.0.2", **why}]
    was = Launch("1", VariantUsed("default"), 1, AT, proof={"proxies": proxies})
    loaded, other = points_of(replace(one_launch(), launches=(was,)), "node")
    assert (loaded.name, loaded.warnings) == ("10.1.0.1 0001", ())
    (warning,) = other.warnings
    assert (other.name, warning.line) == ("10.1.0.2 bbbbbb", "not loaded: no replica runs there")


def test_an_invalid_result_says_so_before_anything_else() -> None:
    node = scale_node(1, completed=24_000, failed={"timeout": 3000})
    result = one_launch(nodes=[node], completed=22_000, flags=TrialFlags(invalid=True))
    why = "INVALID, default, 4 replicas, launch 1: 12.0 % of the requests failed (3,000 timed out)"
    assert flat(render(result)).startswith(why)
    for text in (render(result, "json"), render(result, "csv"), perf_metrics(result)):
        assert why in text


def test_a_lost_node_is_named_with_its_reason_and_when_it_was_last_heard() -> None:
    heard = "last heard 5.2 s before it was given up: 47 completed, 0 failed"
    assert f"x lost: no word for 5 s; {heard}" in flat(render(golden()))
    unheard = lost_node(2, "never came up", failed={})
    del unheard["last_heard"]
    assert "lost: never came up; never heard" in shown(one_launch(nodes=[scale_node(1), unheard]))


def test_little_is_not_held_against_the_connections_of_a_lost_node() -> None:
    """Two nodes of 10 connections at 100 requests/s and 100 ms keep 20 requests in flight."""

    def codes(nodes: list[dict[str, Any]], **about: Any) -> list[str]:
        return [warning.code for warning in checks(one_launch(nodes=nodes, **about))]

    nodes = [scale_node(1), scale_node(2)]
    about = {"completed": 600, "latencies_ms": [100.0] * 600}
    assert "littles-law" not in codes(nodes, **about)
    assert "littles-law" not in codes([*nodes, lost_node(3)], **about)
    assert "littles-law" in codes([*nodes, scale_node(3, rate=0.0)], **about)
    assert codes([lost_node(1), lost_node(2)], windows=(50.0,) * 3) == ["errors"]


def test_no_limit_is_told_of_a_row_through_a_handle_or_from_several_nodes() -> None:
    suite, usage_of_proxy = scale_suite("chain"), serving((99.0,), (30.0,), host=120.0)
    trials = [changed(trial, usage=usage_of_proxy) for trial in graph_trials(suite)]
    rows = view_of(scale_result(suite, *trials)).rows
    assert [row.dims["limit"] is not None for row in rows] == [False, False, True, True]
    several = view_of(one_launch(nodes=[scale_node(1), scale_node(2)], usage=usage_of_proxy))
    assert several.rows[0].dims["limit"] is None


def named(result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    """The perf_metrics of a run, and its metrics by their names."""
    content = json.loads(perf_metrics(result))
    metrics = {metric["perf_metric_name"]: metric for metric in content["perf_metrics"]}
    assert len(metrics) == len(content["perf_metrics"])
    assert all(metric["perf_metric_value"] is not None for metric in metrics.values())
    return content, metrics


def test_perf_metrics_name_later_variants_replicas_of_a_curve_and_what_is_not_known() -> None:
    content, metrics = named(golden())
    assert metrics["per_node_avg_tps"]["perf_metric_value"] == pytest.approx(101.5)  # of launches
    assert metrics["optimized_per_node_avg_tps"]["perf_metric_value"] == pytest.approx(202.0)
    assert len(metrics) == 2 * 19 and "INVALID" in content["invalid"][0]
    assert content["not_measured"] == [planned.key for planned in golden().missing]
    content, _ = named(one_launch(nodes=[scale_node(1)], windows=(100.0,), latencies_ms=[]))
    assert content["not_told"] == [f"cluster_P{share}_latency_ms" for share in (50, 75, 90, 99)]
    suite = scale_suite("curve", ("default", "haproxy"), replicas=(1, 2, 4, 8, 16))
    trials = [*curve_trials(suite, LAWS), *curve_trials(suite, LAWS, variant="haproxy")[:2]]
    _, metrics = named(scale_result(suite, *trials))
    assert len(metrics) == (5 + 2) * 8
    teardown = metrics["replicas_16_teardown_time_s"]
    assert teardown["perf_metric_value"] == pytest.approx(6.0)
    assert teardown["perf_metric_type"] == "LATENCY"
    rate = metrics["haproxy_replicas_1_cluster_requests_per_s"]
    assert rate["perf_metric_type"] == "THROUGHPUT"
