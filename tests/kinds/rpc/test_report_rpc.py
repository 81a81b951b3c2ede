"""The report of a rpc run in every form, from made records.

Two backends at two sizes, the second world of the second broken off, a third backend that never
started.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.benchmarks.rpc.summary import (
    AGENT_THROUGHPUT,
    NAMES,
    Episodes,
    latency_figures,
    rpc_summary,
    throughput_figures,
)
from serve_bench.cli.show import render
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Failure, Result, Trial
from tests.records import AT, failure_of, rpc_result, rpc_suite, rpc_trial, rpc_world
from tests.refused import refusal
from tests.sheet_parts import as_lines, sheet, shown

WORLDS = [rpc_world(10), rpc_world(20)]
AGENT = (1000.0, 1100.0, 1200.0, 2300.0)
OBSERVER = (1500.0, 1600.0, 1700.0, 2900.0)


def times(factor: float, values: tuple[float, ...]) -> list[float]:
    return [factor * one for one in values]


def pair(backend: str, factor: float, **about: Any) -> list[Trial]:
    """Both worlds on a backend; the larger takes twice as long."""
    return [
        rpc_trial(
            world, times(factor * n, AGENT), times(factor * n, OBSERVER), backend=backend, **about
        )
        for n, world in enumerate(WORLDS, 1)
    ]


def test_an_x_axis_that_no_world_has_is_named() -> None:
    result = rpc_result(rpc_suite(x_axis="x"), rpc_trial(WORLDS[0]))
    assert refusal(render, result, "json").endswith("its cell has no x")


def golden() -> Result:
    suite = rpc_suite(WORLDS, ["torch", "ray", "serve"])
    torch = pair("torch", 1.0, suite=suite)
    ray = pair("ray", 3.0, suite=suite, cpu=(91.0, 60.0, 12.0), host=185.0)
    ray[1] = replace(
        ray[1], flags={"interrupted": True}, warmup=replace(ray[1].warmup, steady=False)
    )
    lost = failure_of(ray[1], "observer 7 (pid 4321) ended: signal 9")
    never = Failure("launch", "serve did not start", AT, variant="serve", round=1)
    return rpc_result(suite, *torch, *ray, others=[lost, never])


@pytest.mark.parametrize(
    ("cpu", "host", "limit"),
    [
        ((40.0, 30.0, 5.0), 181.0, "host CPU"),
        ((92.0, 30.0, 5.0), 181.0, "host CPU"),
        ((92.0, 30.0, 5.0), 130.0, "agent CPU"),
        ((40.0, 30.0, 5.0), 130.0, None),
        (None, 0.0, None),
    ],
)
def test_a_limit_is_said_where_the_figures_support_it(
    cpu: tuple[float, float, float] | None, host: float, limit: str | None
) -> None:
    result = rpc_result(rpc_suite(WORLDS), rpc_trial(WORLDS[0], cpu=cpu, host=host))
    assert rpc_summary(result).points[0].limited == limit


def test_the_published_example_is_set_beside_where_it_is_alike() -> None:
    text = shown(golden(), published=True)
    assert "Published, not measured here" in text
    assert "agent throughput 4071 4374 4579 4686" in text
    assert "4071" not in shown(golden())
    worlds = [rpc_world(10, False)]
    other = rpc_result(rpc_suite(worlds), rpc_trial(worlds[0]))
    assert "4071" not in shown(other, published=True)


def test_the_perf_metrics_leave_out_what_broke() -> None:
    content = json.loads(perf_metrics(golden()))
    found = {one["perf_metric_name"]: one for one in content["perf_metrics"]}
    latency = next(item for name, item in found.items() if name.endswith("agent_latency_p50_ms"))
    assert latency["perf_metric_type"] == "LATENCY"
    assert latency["perf_metric_value"] == pytest.approx(1.1, rel=1e-3)
    assert content["broken"] == [one.key for one in golden().failures if one.what == "trial"]
    assert len(content["broken"]) == 1 and len(found) == (4 - 1) * (3 + 2 * 2)


def test_a_profiled_world_is_in_no_report_of_figures() -> None:
    plain = rpc_trial(WORLDS[0])
    slow = replace(rpc_trial(WORLDS[0], [9000.0]), flags={"profiled": True})
    summary = rpc_summary(rpc_result(rpc_suite(WORLDS[:1]), plain, slow))
    assert [one.line.status for one in summary.points] == ["measured"]


def test_what_broke_is_neither_the_fastest_nor_held_against_it() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], ["torch", "ray"])
    of = {name: rpc_trial(world, suite=suite, backend=name) for name in ("torch", "ray")}

    def headline(*broken: str) -> str:
        struck = [failure_of(of[name], "observer 7 ended") for name in broken]
        made = rpc_result(suite, *of.values(), others=struck)
        (told,) = [
            one
            for one in as_lines(sheet(made, None).findings)
            if "answers most" in one or "No valid world" in one
        ]
        return told

    assert "of that" in headline()
    for sound, broken in (("torch", "ray"), ("ray", "torch")):
        assert f"{sound} answers most" in headline(broken) and "of that" not in headline(broken)
    assert headline("torch", "ray") == "No valid world."


AGENT_LATENCY, AGENT_RATE, OBSERVER_LATENCY, OBSERVER_RATE = NAMES
MS = 1_000_000


def test_percentiles_of_a_latency_are_nearest_rank_in_seconds() -> None:
    found = latency_figures(Histogram.of(range(MS, 101 * MS, MS)))
    for share in (50, 75, 90, 95, 99):
        assert found.percentiles[share] == pytest.approx(share / 1e3, rel=5e-4)
    assert found.count == 100
    assert found.mean == pytest.approx(0.0505, rel=1e-3)
    assert found.std == pytest.approx(0.02887, rel=1e-3)


def test_a_percentile_of_a_throughput_is_that_of_the_latency_from_the_other_end() -> None:
    latencies = [*range(MS, 101 * MS, MS)]
    found = throughput_figures(Histogram.of(latencies), 9)
    rates = sorted(9e9 / one for one in latencies)
    for share in (50, 75, 90, 95, 99):
        assert found.percentiles[share] == pytest.approx(rates[share - 1], rel=1e-3)
    assert found.mean == pytest.approx(sum(rates) / 100, rel=1e-3)
    assert found.count == 100


@pytest.mark.parametrize(("batch", "batch_size"), [(True, 9), (False, 1)])
def test_a_point_holds_throughput_as_batch_size_over_latency(batch: bool, batch_size: int) -> None:
    world = rpc_world(10, batch)
    (point,) = rpc_summary(
        rpc_result(rpc_suite([world]), rpc_trial(world, [2000.0], [3000.0]))
    ).points
    p50 = {name: figures.percentiles[50] for name, figures in point.figures.items()}
    assert point.batch_size == batch_size
    assert p50[AGENT_LATENCY] == pytest.approx(0.002, rel=5e-4)
    assert p50[AGENT_RATE] == pytest.approx(batch_size / p50[AGENT_LATENCY], rel=1e-3)
    assert p50[OBSERVER_LATENCY] == pytest.approx(0.003, rel=5e-4)
    assert p50[OBSERVER_RATE] == pytest.approx(1 / p50[OBSERVER_LATENCY], rel=1e-3)
    assert (point.x, point.episodes, point.memory_bytes) == ("10", 3, 200_000_000)


def test_launches_are_merged() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], launches=2)
    trials = [
        rpc_trial(world, [1000.0], [us], suite=suite, round_=round_)
        for round_, us in ((1, 2000.0), (2, 4000.0))
    ]
    (point,) = rpc_summary(rpc_result(suite, *trials)).points
    figures = point.figures[OBSERVER_LATENCY]
    assert figures.count == 2 * 3 * world.observers
    assert figures.mean == pytest.approx(0.003, rel=1e-3)
    assert point.line.spreads[AGENT_THROUGHPUT].launches == 2
    assert point.episodes == 6


def test_ratios_are_of_medians_to_the_same_world_on_the_first_backend() -> None:
    worlds = [rpc_world(10), rpc_world(20)]
    suite = rpc_suite(worlds, ["torch", "ray"])
    trials = [
        rpc_trial(world, [1000.0 * factor], [2000.0 * factor], backend=name, suite=suite)
        for name, factors in (("torch", (1, 2)), ("ray", (3, 8)))
        for world, factor in zip(worlds, factors, strict=True)
    ]
    points = rpc_summary(rpc_result(suite, *trials)).points
    assert [(one.backend, one.x) for one in points] == [
        *(("torch", "10"), ("torch", "20")),
        *(("ray", "10"), ("ray", "20")),
    ]
    assert [dict(one.ratios) for one in points[:2]] == [{}, {}]
    for point, times in zip(points[2:], (3, 4), strict=True):
        assert point.ratios == {
            AGENT_LATENCY: pytest.approx(times, rel=2e-3),
            AGENT_RATE: pytest.approx(1 / times, rel=2e-3),
            OBSERVER_LATENCY: pytest.approx(times, rel=2e-3),
            OBSERVER_RATE: pytest.approx(1 / times, rel=2e-3),
        }


def test_points_stand_in_the_order_of_the_x_axis_and_what_is_missing_is_there() -> None:
    worlds = [rpc_world(40), rpc_world(10), rpc_world(20)]
    suite = rpc_suite(worlds, ["torch", "ray"])
    points = rpc_summary(rpc_result(suite, rpc_trial(worlds[1], backend="ray", suite=suite))).points
    assert [one.x for one in points] == ["40", "10", "20"] * 2
    assert [bool(one.figures) for one in points] == [False] * 4 + [True, False]
    assert not points[4].ratios  # there is nothing on torch to hold it against
    assert points[0].memory_bytes is None


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
    assert episodes.calls == 4
    assert metrics["throughput"].windows == (400.0,)
    assert metrics["agent_throughput"].windows == ((2000 + 500) / 2,)
    assert metrics["observer_throughput"].windows == ((500 + 200 + 500 + 100) / 4,)
    assert metrics["latency"].unit == metrics["agent_latency"].unit == "ns"
