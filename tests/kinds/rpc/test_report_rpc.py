"""The report of a rpc run in every form, from made records."""

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.benchmarks.rpc.latencies import Episodes
from serve_bench.benchmarks.rpc.lens import METRICS, SHARES, throughput_figures
from serve_bench.core.facts import TrialFlags
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Failure, Result, Trial
from serve_bench.view.frame import ViewRow
from tests.cases import cases, refusal
from tests.records import AT, failure_of, rpc_result, rpc_suite, rpc_trial, rpc_world
from tests.rendering import render
from tests.sheet_parts import look_at, shown, view_of

WORLDS = [rpc_world(10), rpc_world(20)]
TIMES = ((1000.0, 1100.0, 1200.0, 2300.0), (1500.0, 1600.0, 1700.0, 2900.0))
"""Of the agent, and of every observer, us."""


def rows_of(result: Result) -> list[ViewRow]:
    return list(view_of(result).rows)


def pair(backend: str, factors: tuple[float, float], **about: Any) -> list[Trial]:
    """Both worlds on a backend, with so many times TIMES."""
    return [
        rpc_trial(world, *([n * us for us in part] for part in TIMES), backend=backend, **about)
        for world, n in zip(WORLDS, factors, strict=True)
    ]


def test_an_x_axis_that_no_world_has_is_named() -> None:
    result = rpc_result(rpc_suite(), rpc_trial(WORLDS[0]))
    result = replace(result, run=replace(result.run, suite={"x_axis": "x"}))
    assert refusal(render, result, "json").endswith("its cell has no x")


def golden() -> Result:
    """Two backends at two sizes, one world broken off, and a third that never started."""
    suite = rpc_suite(WORLDS, ["torch", "ray", "serve"])
    torch = pair("torch", (1, 2), suite=suite)
    ray = pair("ray", (3, 8), suite=suite)
    ray[1] = replace(ray[1], flags=TrialFlags(interrupted=True))
    lost = failure_of(ray[1], "observer 7 (pid 4321) ended: signal 9")
    never = Failure("launch", "serve did not start", AT, variant="serve", round=1)
    return rpc_result(suite, *torch, *ray, others=[lost, never])


@cases(
    "cpu, host, limit",
    ((40.0, 30.0, 5.0), 181.0, "host CPU"),
    ((92.0, 30.0, 5.0), 181.0, "host CPU"),
    ((92.0, 30.0, 5.0), 130.0, "agent CPU"),
    ((40.0, 30.0, 5.0), 130.0, None),
    (None, 0.0, None),
)
def test_a_limit_is_said_where_the_figures_support_it(
    cpu: tuple[float, float, float] | None, host: float, limit: str | None
) -> None:
    result = rpc_result(rpc_suite(WORLDS), rpc_trial(WORLDS[0], cpu=cpu, host=host))
    assert rows_of(result)[0].dims["limit"] == limit


def test_the_published_example_is_shown_on_request() -> None:
    assert "published elsewhere, world_size 10 2.00" in shown(golden(), published=True)
    assert "published elsewhere" not in shown(golden())


def test_the_report_file_has_the_published_keys_of_the_first_backend() -> None:
    report = json.loads(look_at(golden()).classic_text())
    assert report["master_port"] == "29501" and report["nlayers"] == 5
    assert report["x_axis_name"] == "world_size" and "world_size" not in report
    first, second = report["benchmark_results"]
    assert (first["world_size"], second["world_size"]) == (10, 20)
    assert first["agent latency (seconds)"]["p50"] == pytest.approx(0.0011, rel=1e-3)
    assert second["observer throughput"]["p95"] == pytest.approx(1e6 / 3000, rel=1e-3)
    assert report["serve_bench"]["run"]["id"] == golden().run.id


def test_what_broke_off_says_what_is_kept_and_is_in_no_perf_metric() -> None:
    broken = rows_of(golden())[4]
    first, second, *_ = (finding.line for finding in broken.warnings)
    assert (broken.name, first) == ("ray, world_size 20", "broken off: 3 whole episodes kept")
    assert second == "failed: observer 7 (pid 4321) ended: signal 9"
    content = json.loads(perf_metrics(golden()))
    found = {metric["perf_metric_name"]: metric for metric in content["perf_metrics"]}
    latency = next(item for name, item in found.items() if name.endswith("agent_latency_p50_ms"))
    assert latency["perf_metric_type"] == "LATENCY"
    assert latency["perf_metric_value"] == pytest.approx(1.1, rel=1e-3)
    assert content["broken"] == [lost.key for lost in golden().failures if lost.what == "trial"]
    assert len(content["broken"]) == 1 and len(found) == (4 - 1) * (3 + 2 * 2)


def test_what_broke_is_neither_the_fastest_nor_held_against_it() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], ["torch", "ray"])
    of = {name: rpc_trial(world, suite=suite, backend=name) for name in ("torch", "ray")}

    def headline(*broken: str) -> str:
        struck = [failure_of(of[name], "observer 7 ended") for name in broken]
        return view_of(rpc_result(suite, *of.values(), others=struck)).findings[0]

    assert "of that" in headline()
    # It is of the largest world.
    both = rpc_suite(WORLDS, ["torch", "ray"])
    trials = [*pair("torch", (1, 2), suite=both), *pair("ray", (3, 8), suite=both)]
    found = view_of(rpc_result(both, *trials)).findings[0]
    assert found.startswith("With world_size 20, torch answers most")
    for sound, broken in (("torch", "ray"), ("ray", "torch")):
        assert f"{sound} answers most" in headline(broken) and "of that" not in headline(broken)
    assert headline("torch", "ray") == "No valid world."


MS = 1_000_000


def test_a_percentile_of_a_throughput_is_that_of_the_latency_from_the_other_end() -> None:
    latencies = [*range(MS, 101 * MS, MS)]
    found = throughput_figures(Histogram.of(latencies), 9)
    rates = sorted(9e9 / latency for latency in latencies)
    for name, share in SHARES.items():
        assert found[name] == pytest.approx(rates[share - 1], rel=1e-3)
    assert found["mean"] == pytest.approx(sum(rates) / 100, rel=1e-3)


@cases("batch, batch_size", (True, 9), (False, 1))
def test_a_row_has_throughput_as_batch_size_over_latency(batch: bool, batch_size: int) -> None:
    world = rpc_world(10, batch)
    (row,) = rows_of(rpc_result(rpc_suite([world]), rpc_trial(world, [2000.0], [3000.0])))
    assert (row.dims["batch_size"], row.values["throughput"].windows) == (batch_size, 3)
    for metric, exact in zip(METRICS, (2e6, batch_size / 0.002, 3e6, 1 / 0.003), strict=True):
        for share in ("p50", "p95"):
            assert row.value(f"{metric}_{share}") == pytest.approx(exact, rel=1e-3)
    assert row.value("world_memory") == 200


def test_rows_stand_in_the_order_of_the_x_axis_and_what_is_missing_is_there() -> None:
    worlds = [rpc_world(40), rpc_world(10), rpc_world(20)]
    suite = rpc_suite(worlds, ["torch", "ray"])
    run = look_at(rpc_result(suite, rpc_trial(worlds[1], backend="ray", suite=suite)))
    places = [(size, backend) for size in (40, 10, 20) for backend in ("torch", "ray")]
    assert [(row.dims["world_size"], row.dims["variant"]) for row in run.view.rows] == places
    assert [not row.gap for row in run.view.rows] == [False] * 3 + [True] + [False] * 2
    assert run.findings[0].text == "5 of 6 rows were incomplete."


def test_an_episode_gives_calls_over_its_time_and_means_of_rates() -> None:
    episodes = Episodes(batch_size=2)
    episodes.add(
        {
            "agent_ns": [MS, 4 * MS],
            "observer_ns": [[2 * MS, 5 * MS], [2 * MS, 10 * MS]],
            "began_ns": 7 * MS,
            "ended_ns": 17 * MS,
        }
    )
    metrics = episodes.metrics()
    assert episodes.times["latency"].count == 4
    assert metrics["throughput"].windows == (400.0,)
    assert metrics["agent_throughput"].windows == ((2000 + 500) / 2,)
    assert metrics["observer_throughput"].windows == ((500 + 200 + 500 + 100) / 4,)
    assert metrics["latency"].unit == metrics["agent_latency"].unit == "ns"
