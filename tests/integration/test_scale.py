"""scale on a real Ray and Serve on this machine: sums, metric names, nodes, curve."""

import json
import signal
from pathlib import Path

import pytest

from serve_bench.benchmarks.scale.lens import LOAD_METRICS
from serve_bench.store import read
from tests.integration.conftest import ended, measure, start, wait_for_load_worker

pytestmark = [pytest.mark.ray]

GRAPH_NAMES = ("throughput_mean_tps", "throughput_std_tps", "latency_mean_ms", "latency_std_ms")


def perf_metrics(file: Path) -> dict[str, float]:
    metrics = json.loads(file.read_text())["perf_metrics"]
    return {metric["perf_metric_name"]: metric["perf_metric_value"] for metric in metrics}


@pytest.mark.long
def test_an_ensemble_is_summed_right_by_handle_and_by_http(tmp_path: Path) -> None:
    sizes = ("--fanout", "3", "--duration", "1s", "--warmup", "0.5s", "--requests", "5")
    result = measure(["scale", "ensemble", *sizes, "--perf-metrics", "p.json"], tmp_path)
    rows = {trial.row.label.partition(", ")[2]: trial for trial in result.trials}
    kinds = ("throughput", "latency")
    assert list(rows) == [f"{way}, {kind}" for way in ("handle", "HTTP") for kind in kinds]
    for trial in rows.values():  # every answer was compared with the sum
        assert trial.counts.completed > 0 and trial.counts.failed == {}
        assert trial.usage.processes
    assert [rows[f"{way}, latency"].counts.completed for way in ("handle", "HTTP")] == [20, 20]
    metrics = perf_metrics(tmp_path / "p.json")
    assert {*GRAPH_NAMES, *(f"http_{name}" for name in GRAPH_NAMES)} <= set(metrics)
    assert metrics["throughput_mean_tps"] > 0 and metrics["latency_mean_ms"] > 0


@pytest.mark.ci
def test_each_raylet_with_a_proxy_is_loaded_and_published_names_are_told(tmp_path: Path) -> None:
    sizes = ("--replicas", "4", "--nodes", "2", "--duration", "2s", "--warmup", "0.5s")
    command = ("scale", "single", *sizes, "--perf-metrics", "p.json", "--published")
    result = measure(command, tmp_path)
    (trial,), (launch,) = result.trials, result.launches
    healthy = {node["node_id"] for node in launch.proof["proxies"] if node["status"] == "HEALTHY"}
    nodes = trial.client.nodes
    assert {node.node for node in nodes} == healthy and 1 <= len(healthy) <= 2
    assert len({node.url for node in nodes}) == len(nodes)
    assert sum(node.completed for node in nodes) == trial.counts.completed > 0
    assert trial.row.connections == 10 * len(nodes)
    metrics = perf_metrics(tmp_path / "p.json")
    for name in LOAD_METRICS:
        timeouts = name == "cluster_total_timeout_requests"
        assert metrics[name] == 0 if timeouts else metrics[name] > 0, name
    assert metrics["cluster_total_requests"] == metrics["cluster_total_thoughput"]


@pytest.mark.long
def test_a_curve_tells_what_each_number_of_replicas_costs(tmp_path: Path) -> None:
    sizes = ("--replicas", "1,2,3", "--duration", "1s", "--warmup", "0.5s")
    result = measure(["scale", "curve", *sizes], tmp_path)
    assert [trial.cell["num_replicas"] for trial in result.trials] == [1, 2, 3]
    deploys = {deploy.cell["num_replicas"]: deploy for deploy in result.deploys}
    for trial in result.trials:
        values = {name: metric.windows for name, metric in trial.metrics.items()}
        names = ("deploy_time", "memory_per_replica", "cpu_per_request", "controller_loop")
        for name in (*names, "teardown_time", "throughput"):
            (value,) = values[name] or ()
            assert value > 0, name
        replicas = deploys[trial.cell["num_replicas"]].proof["replicas"]
        assert len(replicas) == trial.cell["num_replicas"]


@pytest.mark.long
def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(tmp_path: Path) -> None:
    sizes = ("--replicas", "1", "--duration", "60s", "--warmup", "0.5s", "--out", "r")
    running = start("scale", "single", *sizes, cwd=tmp_path)
    wait_for_load_worker(running.pid, 2.5)
    running.send_signal(signal.SIGINT)
    out = ended(running, 130)
    assert "resume: serve-bench scale single --resume r" in out
    (trial,) = read(tmp_path / "r").trials
    assert trial.flags.interrupted and trial.seconds.measured < 60


@pytest.mark.long
def test_the_load_of_micro_can_come_from_the_nodes_of_its_cluster(tmp_path: Path) -> None:
    cell = ("--num-replicas", "1", "--max-batch-size", "1", "--max-ongoing-requests", "100")
    row = ("--clients", "raw:4", "--quick", "--load-on", "ray")
    result = measure(["micro", *cell, *row], tmp_path)
    (trial,) = result.trials
    nodes = trial.client.nodes
    assert [node.connections for node in nodes] == [4]
    assert nodes[0].completed == trial.counts.completed > 0
    assert result.run.suite["load_on"] == {"address": None, "nodes": None}
