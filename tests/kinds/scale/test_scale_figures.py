"""The figures of scale by hand: published metrics, lost nodes, invalid runs, growth, reports."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.checks import checks
from serve_bench.analysis.drift import fit_power
from serve_bench.analysis.statistics import LowerBound
from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.benchmarks.scale import lens
from serve_bench.core.facts import TrialFlags
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Failure, Launch, Metric, Result, VariantUsed
from serve_bench.view.frame import ViewRow
from tests.cases import cases
from tests.records import AT, changed
from tests.rendering import render
from tests.scale_records import (
    MS,
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
    sizes_of,
)
from tests.sheet_parts import flat, shown, view_of
from tests.verdict_trials import serving

PUBLISHED = {
    "per_thread_latency_avg_ms": (25 + 50) / 2,  # the mean of the nodes' means
    "per_thread_latency_max_ms": 50.0,
    "per_thread_avg_tps": 15.0,
    "per_thread_max_tps": 90.0,
    "per_node_avg_tps": 150.0,
    "per_node_avg_transfer_per_sec_KB": (10 + 20) / 2,  # 30 and 60 KB in 3 s
    "cluster_total_thoughput": 900,
    "cluster_total_transfer_KB": 90.0,
    "cluster_total_timeout_requests": 3,
    **{f"cluster_max_P{share}_latency_ms": 50.0 for share in (50, 75, 90, 99)},
}
"""The 13 of the nodes FIRST and SECOND together."""


def only(*nodes: dict[str, Any], **about: Any) -> ViewRow:
    (size,) = sizes_of(one_launch(nodes=nodes, **about))
    return size


def means(size: ViewRow) -> dict[str, float]:
    return {name: value.value for name, value in size.values.items() if name in lens.PUBLISHED}


_RATES = ("rate", "connection_rate_mean", "connection_rate_max", "bytes_received", "completed")
FIRST = scale_node(
    1,
    [10.0, 20.0, 30.0, 40.0],
    **dict(zip(_RATES, (100.0, 10.0, 20.0, 30_720, 300), strict=True)),
    failed={"timeout": 2},
)
SECOND = scale_node(
    2,
    [50.0],
    **dict(zip(_RATES, (200.0, 20.0, 90.0, 61_440, 600), strict=True)),
    failed={"timeout": 1, "reset": 4},
)


def test_the_13_published_metrics_have_their_names_and_are_those_of_two_nodes() -> None:
    found = means(only(FIRST, SECOND))
    assert list(found) == list(lens.LOAD_METRICS) and list(found)[:13] == list(PUBLISHED)
    for name, value in PUBLISHED.items():
        assert found[name] == pytest.approx(value, rel=5e-4), name
    # Where every node was lost nothing is told, and nothing is 0.
    nodes = [lost_node(1), lost_node(2)]
    result = one_launch(nodes=nodes, windows=(0.0, 0.0, 0.0), completed=0)
    (size,) = sizes_of(result)
    assert not set(PUBLISHED) & set(size.values)
    assert invalid(result).startswith("100.0 % of the requests failed (114 lost with their node)")


def test_ours_are_of_all_requests_together_and_the_count_is_of_the_windows() -> None:
    times = [*([10.0] * 60), *([20.0] * 20), *([30.0] * 15), *([40.0] * 5)]
    about = {"windows": (290.0, 300.0, 310.0), "latencies_ms": times}
    found = means(only(FIRST, SECOND, **about))
    assert found["cluster_total_requests"] == 900
    assert found["cluster_requests_per_s"] == pytest.approx(300.0)
    for share, value in ((50, 10.0), (75, 20.0), (90, 30.0), (99, 40.0)):
        assert found[f"cluster_P{share}_latency_ms"] == pytest.approx(value, rel=5e-4)
    within = {"sent": 900, "completed": 850, "failed": {}, "in_flight": 50}
    client = {"nodes": [FIRST, SECOND], "in_windows": within}
    assert means(only(FIRST, SECOND, client=client, **about))["cluster_total_requests"] == 850


def test_a_lost_node_is_in_no_mean_no_maximum_and_no_total() -> None:
    result = one_launch(nodes=[FIRST, SECOND, lost_node(3)])
    (with_lost,), without = sizes_of(result), only(FIRST, SECOND)
    for name in lens.LOAD_METRICS:
        assert with_lost.values[name] == without.values[name], name
    (lost,) = (node for node in points_of(result, "node") if node.dims["lost"])
    assert (lost.name, lost.dims["lost"]) == ("10.1.0.3 0003", "no word for 5 s")
    assert {name: value.value for name, value in lost.values.items()} == {"errors": 57}


def invalid(result: Result) -> str:
    """Why the only row is invalid; empty: it is not."""
    return "".join(lens.invalid_lines(view_of(result).rows)).partition(": ")[2]


def test_a_node_without_an_answer_has_no_latency_but_a_rate_of_0() -> None:
    silent = scale_node(completed=0, rate=0.0, latency_ns=dict.fromkeys(("mean", "max", "p50")))
    found = means(only(silent, windows=(0.0,), completed=0, failed={"timeout": 9}))
    assert found["per_node_avg_tps"] == 0.0
    assert not {"per_thread_latency_avg_ms", "cluster_max_P99_latency_ms"} & set(found)
    values = only(scale_node(latency_lower_bounds=["mean", "p99"])).values
    names = ("per_thread_latency_avg_ms", *(f"cluster_max_P{of}_latency_ms" for of in (99, 50)))
    assert [isinstance(values[name].value, LowerBound) for name in names] == [True, True, False]


def test_each_launch_has_its_value_however_many_nodes_loaded() -> None:
    """The row of a trial has the connections of all nodes, the planned one those of one."""
    suite = scale_suite(launches=3)
    trials = []
    for round_, rate, nodes in ((1, 90.0, (1, 2, 3)), (3, 110.0, (1, 2))):
        (of,) = planned(suite, round_=round_)
        trials.append(scale_trial(of, [scale_node(at, rate=rate) for at in nodes]))
    result = scale_result(suite, *trials)
    (size,), (row,) = sizes_of(result), view_of(result).rows
    assert [trial.row.connections for trial in row.trials] == [30, 20]
    assert (row.dims["connections"], row.gap) == (10, "2 of 3 launches measured")
    assert [node.dims["launch"] for node in points_of(result, "node")] == [1, 1, 1, 3, 3]
    figure = size.values["per_node_avg_tps"]
    assert (figure.value, figure.launches, figure.missing) == (100.0, {1: 90.0, 3: 110.0}, 1)
    assert figure.std == pytest.approx(200**0.5)  # ddof 1
    assert size.values["per_thread_latency_max_ms"].std == 0.0
    alone = only(FIRST).values["per_node_avg_tps"]
    assert (alone.std, alone.missing) == (None, None)


@cases(
    "completed, failed, words",
    *((99, 1, ""), (990, 10, ""), (5, 0, ""), (980, 20, "2.0 % of the requests")),
    *((300, 3000, "90.9 % of the"), (0, 5, "100.0 % of the"), (0, 0, "no request was")),
)
def test_more_than_one_percent_failed_is_invalid(completed: int, failed: int, words: str) -> None:
    why = invalid(one_launch(completed=completed, failed={"timeout": failed}))
    assert why.startswith(words) and bool(why) == bool(words)


def test_a_graph_has_its_four_metrics_through_handle_and_http() -> None:
    suite = scale_suite("ensemble")
    (size,) = sizes_of(scale_result(suite, *graph_trials(suite)))
    assert list(means(size)) == list(lens.GRAPH_METRICS)
    # The std over windows has ddof 0.
    expected = (100.0, (200 / 3) ** 0.5, 50.0, 10.0, 50.0, (50 / 3) ** 0.5, 100.0, 20.0)
    assert list(means(size).values()) == pytest.approx(expected, rel=5e-3)


def test_a_graph_counts_what_timed_out_for_at_least_as_long_as_it_was_waited_for() -> None:
    """Ten of a thousand requests of a handle were given up after 30 s, the others took 5 ms."""
    suite = scale_suite("ensemble")
    trials = graph_trials(suite)
    times = {"latency": [5 * MS] * 990, "censored": [30_000 * MS] * 10}
    histograms = {name: Histogram.of(values).encode() for name, values in times.items()}
    metrics = {name: Metric("ns", "lower", histogram=of) for name, of in histograms.items()}
    trials[1] = replace(trials[1], metrics={**trials[1].metrics, **metrics})
    (size,) = sizes_of(scale_result(suite, *trials))
    mean = size.values["latency_mean_ms"].value
    assert mean == pytest.approx((990 * 5 + 10 * 30_000) / 1000, rel=1e-3)
    assert isinstance(mean, LowerBound) and size.text("latency_mean_ms")[:2] == "> "
    assert not isinstance(size.values["http_latency_mean_ms"].value, LowerBound)


def test_rows_of_a_graph_that_are_missing_are_none() -> None:
    suite = scale_suite("chain")
    result = scale_result(suite, *graph_trials(suite)[:1])
    (size,) = sizes_of(result)
    found = means(size)
    assert found["throughput_mean_tps"] == pytest.approx(100.0)
    assert set(found) == {"throughput_mean_tps", "throughput_std_tps"}
    assert [row.gap for row in view_of(result).rows] == ["", *["not measured"] * 3]


LAWS = {
    "throughput": (900.0, 0.0),
    "deploy_time": (3.0, 1.0),
    "memory_per_replica": (70.0, 0.0),
    "cpu_per_request": (400.0, 0.25),
    "controller_loop": (2.0, 2.0),
    "teardown_time": (1.5, 0.5),
}


def test_the_standard_error_and_interval_are_those_of_least_squares() -> None:
    """By hand, with x = ln n of 1, 2, 4: slope and residuals of y = 0, 1, 1 (in units of ln 2)."""
    fit, ln2 = fit_power([(1, 1.0), (2, math.e), (4, math.e)]), math.log(2)
    # residuals -1/6, 1/3, -1/6: their squares sum to 1/6; S_xx = 2 ln2^2; one degree of freedom.
    assert fit is not None
    error = (1 / 6 / (2 * ln2**2)) ** 0.5
    assert (fit.exponent, fit.std_error) == pytest.approx((0.5 / ln2, error))
    ends = (fit.exponent - 12.706 * error, fit.exponent + 12.706 * error)
    assert (fit.low, fit.high) == pytest.approx(ends, rel=1e-4)


@cases(
    "points",
    *([], [(1, 1.0), (2, 2.0)], [(1, 0.0), (2, 2.0), (4, 4.0)]),
    *([(4, 1.0), (4, 2.0), (4, 3.0)], [(1, -1.0), (2, -2.0), (4, -4.0)]),
)
def test_three_sizes_with_positive_values_are_needed(points: list[tuple[int, float]]) -> None:
    assert fit_power(points) is None


def test_every_quantity_of_a_curve_has_its_points_and_its_exponent() -> None:
    suite = scale_suite("curve", replicas=(1, 2, 4, 8))
    result = scale_result(suite, *curve_trials(suite, LAWS))
    sizes, growths = sizes_of(result), points_of(result, "growth")
    assert [size.dims["replicas"] for size in sizes] == [1, 2, 4, 8]
    found = {growth.dims["quantity"]: growth.values for growth in growths}
    assert len(found) == 8
    for name, (a, b) in LAWS.items():
        fit = found["cluster_requests_per_s" if name == "throughput" else name]
        values = [fit[part].value for part in ("exponent", "factor", "std_error")]
        assert values == pytest.approx([b, a, 0.0], abs=1e-9), name
    deploys = [size.value("deploy_time") for size in sizes]
    assert deploys == pytest.approx([3.0, 6.0, 12.0, 24.0])
    assert sizes[0].value("latency_p50") == pytest.approx(1e10 / 900 / 1.04, rel=5e-4)
    assert sizes[0].value("latency_p99") == pytest.approx(3e10 / 900 / 1.04, rel=5e-4)


def test_variants_grow_each_for_itself_and_launches_are_averaged() -> None:
    suite = scale_suite("curve", ("default", "haproxy"), replicas=(1, 2, 4), launches=2)
    trials = [
        trial
        for variant, b in (("default", 1.0), ("haproxy", 0.5))
        for round_, a in ((1, 1.8), (2, 2.2))
        for trial in curve_trials(suite, {"deploy_time": (a, b)}, variant=variant, round_=round_)
    ]
    result = scale_result(suite, *trials)
    exponents = {
        growth.dims["variant"]: growth.value("exponent")
        for growth in points_of(result, "growth")
        if growth.dims["quantity"] == "deploy_time"
    }
    assert exponents == pytest.approx({"default": 1.0, "haproxy": 0.5}, abs=1e-9)
    deploys = {size.name: size.values.get("deploy_time") for size in sizes_of(result)}
    found = deploys["haproxy, 2 replicas"]
    assert found is not None and found.value == pytest.approx(2.0 * 2**0.5)
    assert found.launches == pytest.approx({1: 1.8 * 2**0.5, 2: 2.2 * 2**0.5})


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
    """Read the perf_metrics of a run, and its metrics by their names."""
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
