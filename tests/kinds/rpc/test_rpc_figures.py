"""The four metrics of rpc from known latencies, merged over launches, and their ratios."""

from __future__ import annotations

import pytest

from serve_bench.benchmarks.rpc.summary import (
    AGENT_THROUGHPUT,
    NAMES,
    Episodes,
    latency_figures,
    rpc_summary,
    throughput_figures,
)
from serve_bench.core.histogram import Histogram
from tests.records import rpc_result, rpc_suite, rpc_trial, rpc_world

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
