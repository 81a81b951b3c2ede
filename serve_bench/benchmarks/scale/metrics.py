"""The load of `serve-bench scale` node by node, and the published metrics of a trial.

Pure. Rule: names are those of Ray's nightly benchmarks, a misspelt one included; a thread of theirs
is a connection of ours, KB are 1024 bytes. What is not known is None, never 0: a node without an
answered request has no latency. A node that was lost enters no mean, no maximum and no total.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Trial
from serve_bench.view.figures import FIGURES, Value, declare, scale
from serve_bench.view.inside import grouped_cpu
from serve_bench.view.rows import NS_PER_MS

KB: Final = 1024.0

declare("connection_rate_mean", "requests/s", "requests/s of a connection, the mean of a node")
declare("connection_rate_max", "requests/s", "requests/s of the fastest connection of a node")
declare("received", "KB", "what a node received, in 1024 bytes")
declare("received_rate", "KB/s", "what a node received in a second")
declare("timeouts", "requests", "requests without an answer in time", shown="")

Over = Callable[[Sequence[float]], float]

NODE_METRICS: Final[Mapping[str, tuple[Over, str]]] = {
    "per_thread_latency_avg_ms": (statistics.fmean, "latency_mean"),
    "per_thread_latency_max_ms": (max, "latency_max"),
    "per_thread_avg_tps": (statistics.fmean, "connection_rate_mean"),
    "per_thread_max_tps": (max, "connection_rate_max"),
    "per_node_avg_tps": (statistics.fmean, MAIN),
    "per_node_avg_transfer_per_sec_KB": (statistics.fmean, "received_rate"),
    "cluster_total_thoughput": (sum, "completed"),
    "cluster_total_transfer_KB": (sum, "received"),
    "cluster_total_timeout_requests": (sum, "timeouts"),
    **{f"cluster_max_P{p}_latency_ms": (max, f"latency_p{p}") for p in (50, 75, 90, 99)},
}
"""The 13 of single and multi, in the published order: a mean, maximum or sum over nodes of one of
their figures, in the unit in which that is shown."""

RATE: Final = "cluster_requests_per_s"
SHARES: Final = {f"cluster_P{share}_latency_ms": share / 100 for share in (50, 75, 90, 99)}
CLUSTER_METRICS: Final = {
    "cluster_total_requests": "requests",
    RATE: "requests/s",
    **dict.fromkeys(SHARES, "ms"),
}
"""Ours beside the 13, with their units: the count under its right name, the rate of all nodes, and
percentiles of all requests, which a maximum over nodes is not."""

HTTP: Final = "http_"
GRAPH_METRICS: Final = {
    f"{way}{name}": about
    for way in ("", HTTP)
    for name, about in {
        "throughput_mean_tps": ("requests/s", "mean over the windows"),
        "throughput_std_tps": ("requests/s", "std over the windows (ddof 0)"),
        "latency_mean_ms": ("ms", "mean over requests one after the other"),
        "latency_std_ms": ("ms", "std over requests one after the other (ddof 0)"),
    }.items()
}
"""As published, of requests through a handle; those through HTTP bear HTTP before them."""

_of_nodes = {name: FIGURES[figure] for name, (_, figure) in NODE_METRICS.items()}
for _name, (_unit, _meaning) in {
    **{name: (of.shown or of.unit, f"{of.meaning}, of nodes") for name, of in _of_nodes.items()},
    **{name: (unit, "of all requests of all nodes") for name, unit in CLUSTER_METRICS.items()},
    **GRAPH_METRICS,
}.items():
    declare(
        *(_name, _unit, _meaning),
        title=_name,
        shown="" if _unit == "requests" else _unit,
        better="lower" if _unit == "ms" else "higher",
    )

COSTS: Final = {
    "deploy_time": ("s", "from the deployment of an app until all replicas are up"),
    "memory_per_replica": ("MB", "memory of the process of a replica"),
    "cpu_per_request": ("us", "CPU of Serve over the completed requests"),
    "controller_loop": ("ms", "mean time of a loop of Serve's controller"),
    "teardown_time": ("s", "from the removal of an app until all replicas are gone"),
}
for _name, _about in COSTS.items():
    declare(_name, *_about, title=_name.replace("_", " ").replace("cpu", "CPU"), better="lower")

CURVE_METRICS: Final = {
    **{RATE: "throughput", "latency_p50": "latency p50", "latency_p99": "latency p99"},
    **{name: FIGURES[name].title for name in COSTS},
}
"""What is followed over the number of replicas, and its title."""


def expected_metrics(workload: Any) -> tuple[str, ...]:
    """The names that a size of a workload has, in the order of a report."""
    if workload in GRAPHS:
        return tuple(GRAPH_METRICS)
    further = CURVE_METRICS if workload == "curve" else ()
    return tuple(dict.fromkeys((*NODE_METRICS, *CLUSTER_METRICS, *further)))


def nodes_of(trial: Trial) -> Sequence[NodeFacts]:
    """What a trial records of its nodes; empty where it has none."""
    return trial.client.get("nodes") or ()


def node_figures(facts: NodeFacts) -> Mapping[str, float | None]:
    """The figures of a node; none of one that was lost."""
    if facts.get("lost"):
        return {}
    received, seconds = facts.get("bytes_received"), facts["seconds"]
    bounds = facts.get("latency_lower_bounds", ())
    cpu = grouped_cpu([facts.get("usage") or {}], _group).groups
    return {
        MAIN: facts["rate"],
        "completed": float(facts["completed"]),
        "timeouts": float(facts["failed"].get("timeout", 0)),
        "connection_rate_mean": facts.get("connection_rate_mean"),
        "connection_rate_max": facts.get("connection_rate_max"),
        "received": None if received is None else received / KB,
        "received_rate": received / KB / seconds if received is not None and seconds else None,
        "cpu_http": cpu.get("http"),
        "cpu_replicas": cpu.get("replicas"),
        **{
            f"latency_{name}": LowerBound(ns) if ns is not None and name in bounds else ns
            for name, ns in facts["latency_ns"].items()
        },
    }


def _group(role: str) -> str:
    """Replicas of all deployments count together; others: raylet, load, the tool ..."""
    if role in ("proxy", "haproxy", "haproxy_manager", "fallback_proxy"):
        return "http"
    return "replicas" if role.partition(" ")[0] == "replica" else "others"


def trial_metrics(trial: Trial) -> dict[str, float | None]:
    """The published metrics of a trial, and those of a curve, by name."""
    if trial.cell.get("workload") in GRAPHS:
        return _graph_metrics(trial)
    nodes = [node_figures(facts) for facts in nodes_of(trial)]
    latencies = latency_figures([trial], tuple(SHARES.values()))
    return {
        **{name: _over_nodes(*metric, nodes) for name, metric in NODE_METRICS.items()},
        "cluster_total_requests": float(trial.completed_in_windows),
        RATE: _over_windows(trial, MAIN),
        **{
            name: None if ns is None else ns / NS_PER_MS
            for name, ns in zip(SHARES, latencies, strict=True)
        },
        **{name: _over_windows(trial, name) for name in COSTS},
        "latency_p50": latencies[0],
        "latency_p99": latencies[-1],
    }


def _over_nodes(
    over: Over, figure: str, nodes: Sequence[Mapping[str, float | None]]
) -> float | None:
    """Over those of the nodes that have the figure; a LowerBound where one of theirs is."""
    factor = scale(FIGURES[figure].unit, FIGURES[figure].shown)
    values = [value for node in nodes if (value := node.get(figure)) is not None]
    return made_of(over(values) * factor, values) if values else None


def _over_windows(trial: Trial, name: str, over: Over = statistics.fmean) -> float | None:
    metric = trial.metrics.get(name)
    return over(metric.windows) if metric is not None and metric.windows else None


def _graph_metrics(trial: Trial) -> dict[str, float | None]:
    """Of a load for some time its rate, of requests one after the other their latency, those
    without an answer in it."""
    way = "" if trial.row.client == HANDLE else HTTP
    if trial.row.requests_each is None:
        return {
            f"{way}throughput_mean_tps": _over_windows(trial, MAIN),
            f"{way}throughput_std_tps": _over_windows(trial, MAIN, statistics.pstdev),
        }
    metric = trial.metrics.get(LATENCY)
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    if metric is None or not (answered.count or given_up.count):
        return {}
    figures = distribution(metric, answered, given_up)
    return {
        f"{way}latency_mean_ms": figures.mean / NS_PER_MS,
        f"{way}latency_std_ms": figures.std / NS_PER_MS,
    }


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
