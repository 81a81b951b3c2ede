"""The load of `serve-bench scale` node by node, and the published metrics of a trial.

Pure. Rule: names are those of Ray's nightly benchmarks, a misspelt one included; a thread of theirs
is a connection of ours, KB are 1024 bytes. What is not known is None, never 0: a node without an
answered request has no latency. A node that was lost enters no mean, no maximum and no total; of it
only the reason is shown, and what it was last known to have done.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from serve_bench.analysis.statistics import (
    CENSORED,
    LATENCY,
    MAIN,
    LowerBound,
    distribution,
    latency_figures,
    made_of,
    merged,
)
from serve_bench.benchmarks.scale.request import GRAPHS
from serve_bench.core.facts import NodeFacts
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Trial
from serve_bench.view.document import Finding
from serve_bench.view.figures import FIGURES, Value, declare, scale
from serve_bench.view.frame import ViewRow
from serve_bench.view.inside import grouped_cpu
from serve_bench.view.rows import NS_PER_MS
from serve_bench.view.texts import number

KB: Final = 1024.0

declare("connection_rate_mean", "requests/s", "requests/s of a connection, the mean of a node")
declare("connection_rate_max", "requests/s", "requests/s of the fastest connection of a node")
declare("received", "KB", "what a node received, in 1024 bytes")
declare("received_rate", "KB/s", "what a node received in a second")
declare("timeouts", "requests", "requests without an answer in time", shown="")


class NodeMetric(NamedTuple):
    """A published metric: `over` a figure of the nodes."""

    name: str
    unit: str
    over: Callable[[Sequence[float]], float]
    figure: str


NODE_METRICS: Final = (
    NodeMetric("per_thread_latency_avg_ms", "ms", statistics.fmean, "latency_mean"),
    NodeMetric("per_thread_latency_max_ms", "ms", max, "latency_max"),
    NodeMetric("per_thread_avg_tps", "requests/s", statistics.fmean, "connection_rate_mean"),
    NodeMetric("per_thread_max_tps", "requests/s", max, "connection_rate_max"),
    NodeMetric("per_node_avg_tps", "requests/s", statistics.fmean, MAIN),
    NodeMetric("per_node_avg_transfer_per_sec_KB", "KB/s", statistics.fmean, "received_rate"),
    NodeMetric("cluster_total_thoughput", "requests", sum, "completed"),
    NodeMetric("cluster_total_transfer_KB", "KB", sum, "received"),
    NodeMetric("cluster_total_timeout_requests", "requests", sum, "timeouts"),
    *(
        NodeMetric(f"cluster_max_P{share}_latency_ms", "ms", max, f"latency_p{share}")
        for share in (50, 75, 90, 99)
    ),
)
"""The 13 of single and multi, in the published order. A mean or a maximum is over nodes."""

RATE: Final = "cluster_requests_per_s"
SHARES: Final = {f"cluster_P{share}_latency_ms": share / 100 for share in (50, 75, 90, 99)}
CLUSTER_NAMES: Final = ("cluster_total_requests", RATE, *SHARES)
"""Ours beside the 13: the count under its right name, the rate of all nodes, and percentiles of all
requests, which a maximum over nodes is not."""

HTTP: Final = "http_"
GRAPH_METRICS: Final = {
    "throughput_mean_tps": ("requests/s", "mean over the windows"),
    "throughput_std_tps": ("requests/s", "std over the windows (ddof 0)"),
    "latency_mean_ms": ("ms", "mean over requests one after the other"),
    "latency_std_ms": ("ms", "std over requests one after the other (ddof 0)"),
}
"""As published, of requests through a handle; those through HTTP bear HTTP before them."""

GRAPH_NAMES: Final = (*GRAPH_METRICS, *(f"{HTTP}{name}" for name in GRAPH_METRICS))


def _declare(name: str, unit: str, meaning: str) -> None:
    shown, better = "" if unit == "requests" else unit, "lower" if unit == "ms" else "higher"
    declare(name, unit, meaning, title=name, shown=shown, better=better)  # type: ignore[arg-type]


for _metric in NODE_METRICS:
    _over = _metric.over.__name__.removeprefix("f")
    _declare(_metric.name, _metric.unit, f"{_over} over nodes: {FIGURES[_metric.figure].meaning}")
for _name in CLUSTER_NAMES:
    _unit = "ms" if _name in SHARES else "requests/s" if _name == RATE else "requests"
    _declare(_name, _unit, "of all requests of all nodes")
for _name in GRAPH_NAMES:
    _declare(_name, *GRAPH_METRICS[_name.removeprefix(HTTP)])

COSTS: Final = {
    "deploy_time": ("s", "from the deployment of an app until all replicas are up"),
    "memory_per_replica": ("MB", "memory of the process of a replica"),
    "cpu_per_request": ("us", "CPU of Serve over the completed requests"),
    "controller_loop": ("ms", "mean time of a loop of Serve's controller"),
    "teardown_time": ("s", "from the removal of an app until all replicas are gone"),
}
for _name, _about in COSTS.items():
    declare(_name, *_about, title=_name.replace("_", " ").replace("cpu", "CPU"), better="lower")


# Nodes.


def nodes_of(trial: Trial) -> Sequence[NodeFacts]:
    """What a trial records of its nodes; empty where it has none."""
    return trial.client.get("nodes") or ()


def node_rows(trial: Trial) -> Iterator[ViewRow]:
    """The nodes that loaded in a trial. Where several have an address, the beginning of their ids
    names them too."""
    addresses = [facts["ip"] for facts in nodes_of(trial)]
    for facts in nodes_of(trial):
        lost, address = facts.get("lost") or None, facts["ip"]
        dims = {"point": "node", "variant": trial.variant, "launch": trial.round, "lost": lost}
        dims |= {name: facts.get(name) for name in ("node", "ip", "hostname", "connections")}
        name = f"{address} {facts['node'][:6]}" if addresses.count(address) > 1 else address
        figures = {} if lost else dict(_figures(facts))
        values = {"errors": Value(float(sum(facts["failed"].values())))}
        values |= {figure: Value(value) for figure, value in figures.items() if value is not None}
        warnings = (Finding(lost, "lost", "bad"),) if lost else ()
        yield ViewRow(dims, values, name, warnings=warnings)


def _figures(facts: NodeFacts) -> Iterator[tuple[str, float | None]]:
    received, seconds = facts.get("bytes_received"), facts["seconds"]
    yield MAIN, facts["rate"]
    yield "completed", float(facts["completed"])
    yield "timeouts", float(facts["failed"].get("timeout", 0))
    yield "connection_rate_mean", facts.get("connection_rate_mean")
    yield "connection_rate_max", facts.get("connection_rate_max")
    if received is not None:
        yield "received", received / KB
        yield "received_rate", received / KB / seconds if seconds else None
    bounds = facts.get("latency_lower_bounds", ())
    for name, ns in facts["latency_ns"].items():
        yield f"latency_{name}", LowerBound(ns) if ns is not None and name in bounds else ns
    cpu = grouped_cpu([facts.get("usage") or {}], _group).groups
    yield from ((f"cpu_{group}", cpu.get(group)) for group in ("http", "replicas"))


def _group(role: str) -> str:
    """Replicas of all deployments count together; others: raylet, load, the tool ..."""
    if role in ("proxy", "haproxy", "haproxy_manager", "fallback_proxy"):
        return "http"
    return "replicas" if role.partition(" ")[0] == "replica" else "others"


def lost_words(facts: NodeFacts) -> str:
    """`node 10.1.0.3 (host3): why; last heard 2.1 s before it was given up: 1,234 completed, 0
    failed`."""
    name = f"{facts['ip']} ({facts['hostname']})" if facts["hostname"] else facts["ip"]
    heard, words = facts.get("last_heard"), "never heard"
    if heard:
        counts = f"{heard['completed']:,} completed, {heard['failed']:,} failed"
        words = f"last heard {number(heard['age_s'], 2)} s before it was given up: {counts}"
    errors = sum(facts["failed"].values())
    failed = f"; {counted(errors, 'request')} counted as failed" if errors else ""
    return f"node {name}: {facts['lost']}; {words}{failed}"


# Metrics.


def expected_metrics(workload: Any) -> tuple[str, ...]:
    """The names that a size of a workload has, in the order of a report."""
    if workload in GRAPHS:
        return GRAPH_NAMES
    further = (*COSTS, "latency_p50", "latency_p99") if workload == "curve" else ()
    return (*(metric.name for metric in NODE_METRICS), *CLUSTER_NAMES, *further)


def trial_metrics(trial: Trial) -> dict[str, float | None]:
    """The published metrics of a trial, and those of a curve, by name."""
    workload = trial.cell.get("workload")
    if workload in GRAPHS:
        return dict(_graph_metrics(trial))
    nodes = [node for node in node_rows(trial) if node.dims["lost"] is None]
    shares = latency_figures([trial], tuple(SHARES.values()))
    times = [None if value is None else value / NS_PER_MS for value in shares]
    of_all = (float(trial.completed_in_windows), _over_windows(trial, MAIN), *times)
    return {
        **{metric.name: _over_nodes(metric, nodes) for metric in NODE_METRICS},
        **dict(zip(CLUSTER_NAMES, of_all, strict=True)),
        **{name: _over_windows(trial, name) for name in COSTS},
        **{"latency_p50": shares[0], "latency_p99": shares[-1]},
    }


def _over_nodes(metric: NodeMetric, nodes: Sequence[ViewRow]) -> float | None:
    """Over those of the nodes that have the figure; a LowerBound where one of theirs is."""
    factor = scale(FIGURES[metric.figure].unit, metric.unit)
    values = [value for node in nodes if (value := node.value(metric.figure)) is not None]
    return made_of(metric.over(values) * factor, values) if values else None


def _over_windows(
    trial: Trial, name: str, over: Callable[[Sequence[float]], float] = statistics.fmean
) -> float | None:
    metric = trial.metrics.get(name)
    return over(metric.windows) if metric is not None and metric.windows else None


def _graph_metrics(trial: Trial) -> Iterator[tuple[str, float | None]]:
    """Of a load for some time its rate, of requests one after the other their latency, those
    without an answer in it."""
    way = "" if trial.row.client == HANDLE else HTTP
    if trial.row.requests_each is None:
        yield f"{way}throughput_mean_tps", _over_windows(trial, MAIN)
        yield f"{way}throughput_std_tps", _over_windows(trial, MAIN, statistics.pstdev)
        return
    metric = trial.metrics.get(LATENCY)
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    if metric is not None and (answered.count or given_up.count):
        figures = distribution(metric, answered, given_up)
        yield f"{way}latency_mean_ms", figures.mean / NS_PER_MS
        yield f"{way}latency_std_ms", figures.std / NS_PER_MS


def mean_metrics(trials: Sequence[Trial], planned: int) -> dict[str, Value]:
    """The mean of each metric over the launches in which it is known, with its std (ddof 1: they
    are a sample of what could have been); a LowerBound where one of theirs is. `planned`: so many
    launches."""
    launches: dict[str, dict[int, float]] = {}
    for trial in trials:
        for name, value in trial_metrics(trial).items():
            if value is not None:
                launches.setdefault(name, {})[trial.round] = value
    return {
        name: Value(
            made_of(statistics.fmean(values.values()), values.values()),
            std=statistics.stdev(values.values()) if len(values) > 1 else None,
            launches=values,
            missing=planned - len(values) or None,
        )
        for name, values in launches.items()
    }
