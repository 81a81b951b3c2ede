"""The report of a rpc run in every form, from made records.

Two backends at two sizes, the second world of the second broken off, a third backend that never
started.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.parts.perf_metrics import perf_metrics
from serve_bench.benchmarks.rpc.summary import rpc_summary
from serve_bench.core.result import Failure, Result, Trial
from tests.records import AT, failure_of, rpc_result, rpc_suite, rpc_trial, rpc_world
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
