"""Records of scale from what was measured: handles, lost nodes, costs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serve_bench.analysis.checks import checks
from serve_bench.benchmarks.scale import bench as scale_bench
from serve_bench.benchmarks.scale.bench import ScaleBench
from serve_bench.benchmarks.scale.request import ScaleSuite, on_nodes, scale_plan
from serve_bench.benchmarks.scale.trial import (
    HandleResult,
    cpu_us_a_request,
    handle_trial,
    nodes_trial,
    why_invalid,
)
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Result, Run, Trial, VariantUsed
from tests.load.test_combine import MS, a_result
from tests.runner.fakes import Sampling

DEFAULT = (VariantUsed("default"),)
HANDLE_ROW = scale_plan(ScaleSuite("chain", DEFAULT))[0].cells[0].rows[0]
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


def test_a_handle_row_holds_windows_and_every_latency() -> None:
    told = HandleResult(2.0, (3, 2), (10, 20, 30, 40, 50), {"body": 1}, examples=("1 for 3",))
    trial = handle_trial(HANDLE_ROW, "1", "now", told, 1.0, 3.5)
    assert trial.metrics["throughput"].windows == (3.0, 2.0)
    latency = trial.metrics["latency"].histogram
    assert latency is not None and Histogram.decode(latency).count == 5
    assert trial.counts.balanced and trial.counts.sent == 6 and trial.counts.failed == {"body": 1}
    assert trial.row.client == "handle" and trial.window_s == 1.0
    # Its warm-up is of a fixed length: nobody says that it was steady, and nobody doubts it.
    assert not trial.warmup.steady and trial.warmup.seconds == 1.0
    run = Run("r", (), "scale", "now", "0", plan=(HANDLE_ROW,))
    assert "unsteady-warmup" not in {one.code for one in checks(Result(run, trials=(trial,)))}


def test_requests_one_after_the_other_have_one_rate() -> None:
    told = HandleResult(0.5, (), (10, 20, 30, 40))
    trial = handle_trial(HANDLE_ROW, "1", "now", told, 1.0, 2.0)
    assert trial.metrics["throughput"].windows == (8.0,)


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


class Sampler(Sampling):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    def summary(self, began_ns: int, seconds: float) -> dict[str, Any]:
        self.asked.append((began_ns, seconds))
        return {}


def test_the_cpu_of_a_row_through_a_handle_is_of_its_windows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two windows of a second, and 30 s of drain behind them."""
    result = HandleResult(2.0, (3, 2), (10, 20, 30, 40, 50), drained_s=30.0)
    now_ns, sampling = 100_000_000_000, Sampler()
    clock = SimpleNamespace(time_ns=lambda: now_ns, monotonic=lambda: 0.0)
    monkeypatch.setattr(scale_bench, "time", clock)
    monkeypatch.setattr(scale_bench, "keep_samples", lambda *_: None)
    monkeypatch.setattr(ScaleBench, "_sampling", lambda _: sampling)
    journal: Any = SimpleNamespace(say=lambda *_, **__: None, append=lambda record: None)
    suite = ScaleSuite("ensemble", DEFAULT)
    (launch,) = scale_plan(suite)
    bench = ScaleBench(suite, launch, tmp_path, "run", 1, journal)
    cluster: Any = SimpleNamespace(
        **{"put": lambda *_: SimpleNamespace(replicas=(), seconds=1.0), "seconds": {}},
        **{"prove": dict, "proxies": list, "handle_load": lambda load: result},
        **{"broken": lambda: None},
    )
    bench._cluster = cluster
    bench.put(launch.cells[0])
    assert len(bench.load(launch.cells[0].rows[0]).trials) == 1
    assert sampling.asked == [(now_ns - 32_000_000_000, 2.0)]
