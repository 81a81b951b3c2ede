"""Records of scale from what was measured: handles, lost nodes, costs."""

from __future__ import annotations

from typing import Any

import pytest

from serve_bench.benchmarks.scale.request import ScaleSuite, on_nodes, scale_plan
from serve_bench.benchmarks.scale.trial import cpu_us_a_request, nodes_trial, why_invalid
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Trial, VariantUsed
from tests.load.test_combine import MS, a_result

DEFAULT = (VariantUsed("default"),)
NODE_ROW = on_nodes(scale_plan(ScaleSuite("single", DEFAULT))[0].cells[0].rows[0], 3)


def node(**changes: Any) -> dict[str, Any]:
    return {
        "node": "a",
        "seconds": 10.0,
        "completed": 1000,
        "failed": {},
        "rate": 100.0,
        "lost": None,
    } | changes


def of_nodes(nodes: list[dict[str, Any]], completed: int = 1000, timeouts: int = 0) -> Trial:
    """The record of a load from nodes, of which the living ones together measured this."""
    counts = Counts(completed + timeouts, completed, {"timeout": timeouts} if timeouts else {}, 0)
    result = a_result([MS] * completed, (100,) * 10, measured=counts, in_windows=counts)
    return nodes_trial(NODE_ROW, "1", "now", result, nodes, 12.0)


def test_the_requests_of_a_lost_node_count_as_failed() -> None:
    nodes = [node(), node(rate=50.0, completed=500, failed={"timeout": 2})]
    nodes.append(node(lost="gone", completed=0, rate=0.0, failed={"node": 7}))
    trial = of_nodes(nodes, completed=1500, timeouts=2)
    assert trial.counts.completed == 1500 and trial.counts.balanced
    assert trial.counts.failed == {"timeout": 2, "node": 7}
    assert [one["lost"] for one in trial.client["nodes"]] == [None, None, "gone"]


@pytest.mark.parametrize(
    ("completed", "timeouts", "why"),
    [
        (990, 10, None),
        (900, 100, "invalid: 10.0 % of the requests failed (100 timed out)"),
        (0, 6964, "invalid: 100.0 % of the requests failed (6,964 timed out)"),
        (0, 0, "invalid: no request was answered"),
    ],
)
def test_a_result_with_too_many_failures_is_invalid(
    completed: int, timeouts: int, why: str | None
) -> None:
    assert why_invalid(of_nodes([node()], completed, timeouts)) == why


def test_the_cpu_of_a_request_leaves_the_load_out() -> None:
    trial = of_nodes([node()])
    processes = [
        {"role": "replica", "cpu_percent": 60.0},
        {"role": "proxy", "cpu_percent": 40.0},
        {"role": "load_worker", "cpu_percent": 90.0},
        {"role": "ray_worker", "cpu_percent": 90.0},
        {"role": "raylet", "cpu_percent": None},
    ]
    # One core for ten seconds over a thousand requests.
    assert cpu_us_a_request({"processes": processes}, trial) == pytest.approx(10_000.0)
    assert cpu_us_a_request({}, trial) is None
