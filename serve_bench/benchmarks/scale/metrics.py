"""The load of `serve-bench scale` node by node, and the published metrics of a row.

Pure. Rule: names are those of Ray's nightly benchmarks, a misspelt one included; a thread of theirs
is a connection of ours, KB are 1024 bytes. What is not known is None, never 0: a node without an
answered request has no latency. A node that was lost enters no mean, no maximum and no total.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import (
    CENSORED,
    LATENCY,
    MAIN,
    Line,
    LowerBound,
    distribution,
    made_of,
    merged,
)
from serve_bench.benchmarks.scale.request import GRAPHS
from serve_bench.core.facts import NodeFacts
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Trial
from serve_bench.view.figures import FIGURES, Value, declare, declare_all, scale, tier_of
from serve_bench.view.inside import grouped_cpu
from serve_bench.view.rows import NS_PER_MS

KB: Final = 1024.0

declare_all(
    ("connection_rate_mean", "requests/s", "requests/s of a connection, the mean of a node"),
    ("connection_rate_max", "requests/s", "requests/s of the fastest connection of a node"),
    ("received", "KB", "what a node received, in 1024 bytes"),
    ("received_rate", "KB/s", "what a node received in a second"),
    ("timeouts", "requests", "requests without an answer in time"),
    shown={"requests": ""},
)


def nodes_of(trial: Trial) -> Sequence[NodeFacts]:
    """What a trial records of its nodes; empty where it has none."""
    return trial.client.get("nodes") or ()


def node_figures(facts: NodeFacts) -> Mapping[str, float | None]:
    """The figures of a node; none of one that was lost."""
    if facts.get("lost"):
        return {}
    received, seconds = facts.get("bytes_received"), facts["seconds"]
    bounds = facts.get("latency_lower_bounds", ())
    cpu = grouped_cpu([facts.get("usage") or {}], tier_of)
    return {
        MAIN: facts["rate"],
        "completed": float(facts["completed"]),
        "timeouts": float(facts["failed"].get("timeout", 0)),
        "connection_rate_mean": facts.get("connection_rate_mean"),
        "connection_rate_max": facts.get("connection_rate_max"),
        "received": None if received is None else received / KB,
        "received_rate": received / KB / seconds if received is not None and seconds else None,
        "cpu_http": cpu.get("HTTP"),
        "cpu_replicas": cpu.get("replicas"),
        **{
            f"latency_{name}": LowerBound(ns) if ns is not None and name in bounds else ns
            for name, ns in facts["latency_ns"].items()
        },
    }


Metric: TypeAlias = Callable[[Trial], float | None]
Published: TypeAlias = tuple[str, str, Metric]
"""A published metric: its unit, what it is, and its value of a trial."""


def _over_nodes(over: Callable[[Sequence[float]], float], name: str) -> Published:
    """Over those of the nodes that have the figure, in the unit in which it is shown."""
    figure = FIGURES[name]
    factor = scale(figure.unit, figure.shown)

    def metric(trial: Trial) -> float | None:
        nodes = map(node_figures, nodes_of(trial))
        values = [value for node in nodes if (value := node.get(name)) is not None]
        return made_of(over(values) * factor, values) if values else None

    return figure.shown or figure.unit, f"{figure.meaning}, of nodes", metric


def _over_windows(over: Callable[[Sequence[float]], float], trial: Trial) -> float | None:
    metric = trial.metrics.get(MAIN)
    return over(metric.windows) if metric is not None and metric.windows else None


def _over_times(statistic: str, trial: Trial) -> float | None:
    """Of the latency of all requests, those without an answer in it."""
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    if not (answered.count or given_up.count):
        return None
    return distribution(answered, given_up)[statistic] / NS_PER_MS


NODE_METRICS: Final[Mapping[str, Published]] = {
    "per_thread_latency_avg_ms": _over_nodes(statistics.fmean, "latency_mean"),
    "per_thread_latency_max_ms": _over_nodes(max, "latency_max"),
    "per_thread_avg_tps": _over_nodes(statistics.fmean, "connection_rate_mean"),
    "per_thread_max_tps": _over_nodes(max, "connection_rate_max"),
    "per_node_avg_tps": _over_nodes(statistics.fmean, MAIN),
    "per_node_avg_transfer_per_sec_KB": _over_nodes(statistics.fmean, "received_rate"),
    "cluster_total_thoughput": _over_nodes(sum, "completed"),
    "cluster_total_transfer_KB": _over_nodes(sum, "received"),
    "cluster_total_timeout_requests": _over_nodes(sum, "timeouts"),
    **{
        f"cluster_max_P{share}_latency_ms": _over_nodes(max, f"latency_p{share}")
        for share in (50, 75, 90, 99)
    },
}
"""The 13 of single and multi, in the published order."""

RATE: Final = "cluster_requests_per_s"
ALL: Final = "of all requests of all nodes"
CLUSTER_METRICS: Final[Mapping[str, Published]] = {
    "cluster_total_requests": ("requests", ALL, lambda trial: float(trial.completed_in_windows)),
    RATE: ("requests/s", ALL, partial(_over_windows, statistics.fmean)),
    **{
        f"cluster_P{share}_latency_ms": ("ms", ALL, partial(_over_times, f"p{share}"))
        for share in (50, 75, 90, 99)
    },
}
"""Ours beside the 13: the count under its right name, the rate of all nodes, and percentiles of all
requests, which a maximum over nodes is not."""

HTTP: Final = "http_"
_MEAN, _STD = "mean over the windows", "std over the windows (ddof 0)"
GRAPH_METRICS: Final[Mapping[str, Published]] = {
    f"{way}{name}": about
    for way in ("", HTTP)
    for name, about in {
        "throughput_mean_tps": ("requests/s", _MEAN, partial(_over_windows, statistics.fmean)),
        "throughput_std_tps": ("requests/s", _STD, partial(_over_windows, statistics.pstdev)),
        "latency_mean_ms": ("ms", "mean of requests in turn", partial(_over_times, "mean")),
        "latency_std_ms": ("ms", "std of requests in turn (ddof 0)", partial(_over_times, "std")),
    }.items()
}
"""As published, of requests through a handle; those through HTTP bear HTTP before them."""

PUBLISHED: Final = {**NODE_METRICS, **CLUSTER_METRICS, **GRAPH_METRICS}


def metric_names(line: Line) -> tuple[str, ...]:
    """The published names of a row. Of a graph the load for some time has its rate, the requests
    one after the other their latency."""
    if line.cell.get("workload") not in GRAPHS:
        return (*NODE_METRICS, *CLUSTER_METRICS)
    way = "" if line.row.client == HANDLE else HTTP
    kind = "throughput" if line.row.requests_each is None else "latency"
    return tuple(name for name in GRAPH_METRICS if name.startswith(f"{way}{kind}"))


def _over_launches(name: str, metric: Metric, line: Line) -> Value | None:
    """The mean over the launches in which the metric is known, with its std (ddof 1: they are a
    sample of what could have been)."""
    every = {trial.round: metric(trial) for trial in line.trials if name in metric_names(line)}
    launches = {round_: value for round_, value in every.items() if value is not None}
    values = launches.values()
    if not launches:
        return None
    return Value(
        made_of(statistics.fmean(values), values),
        std=statistics.stdev(values) if len(values) > 1 else None,
        launches=launches,
        missing=len(line.keys) - len(values) or None,
    )


for _name, (_unit, _meaning, _metric) in PUBLISHED.items():
    declare(
        *(_name, _unit, _meaning),
        partial(_over_launches, _name, _metric),
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
"""What a trial of a curve has by windows."""

for _name, _about in COSTS.items():
    declare(_name, *_about, title=_name.replace("_", " ").replace("cpu", "CPU"), better="lower")

CURVE_METRICS: Final = {
    **{RATE: "throughput", "latency_p50": "latency p50", "latency_p99": "latency p99"},
    **{name: FIGURES[name].title for name in COSTS},
}
"""What is followed over the number of replicas, and its title."""
