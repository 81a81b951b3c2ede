"""The load of `serve-bench scale` node by node, and the published metrics that are made of it.

Pure. Rule: names are those of Ray's nightly benchmarks, a misspelt one included; a thread of theirs
is a connection of ours, KB are 1024 bytes. What is not known is None, never 0: a node without an
answered request has no latency. A node that was lost enters no mean, no maximum and no total; of it
only the reason is shown, and what it was last known to have done.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from serve_bench.analysis.statistics import LowerBound, made_of
from serve_bench.core.facts import NodeFacts
from serve_bench.core.result import JsonObject, Trial
from serve_bench.view.inside import GroupedCpu, grouped_cpu
from serve_bench.view.rows import NS_PER_MS

Kind: TypeAlias = Literal["THROUGHPUT", "LATENCY"]
"""The two types that Ray's release tooling knows; a count is neither."""

KB: Final = 1024.0

TIMEOUT: Final = "timeout"
"""The class of requests without an answer in time."""


@dataclass(frozen=True)
class ScaleNode:
    """The load from one node in one launch. `failed`: by class. Latencies in ms by name (mean,
    max, p50, p75, p90, p99), only those that are known. `lost`: why the node was lost; then
    `last_completed` and `last_failed` are what it reported `age_s` before that, if it did."""

    launch: int
    node: str
    ip: str
    hostname: str
    connections: int
    seconds: float | None
    completed: int
    failed: dict[str, int]
    rate: float | None
    connection_rate_mean: float | None
    connection_rate_max: float | None
    bytes_received: float | None
    latency_ms: dict[str, float]
    lost: str | None
    last_completed: int | None
    last_failed: int | None
    age_s: float | None
    client_bound: bool | None
    usage: JsonObject

    @property
    def failures(self) -> int:
        """Failed requests of all classes."""
        return sum(self.failed.values())


def nodes_of(trial: Trial) -> tuple[ScaleNode, ...]:
    """What a trial records of its nodes, in the order of the record; empty where it has none."""
    return tuple(_node(facts, trial.round) for facts in trial.client.get("nodes") or ())


def _node(facts: NodeFacts, launch: int) -> ScaleNode:
    lost, heard = facts.get("lost") or None, facts.get("last_heard")

    def figure(value: float | None) -> float | None:
        return None if lost or value is None else float(value)

    bounds = facts.get("latency_lower_bounds", ())
    latency_ms = {
        name: (LowerBound(ns) if name in bounds else ns) / NS_PER_MS
        for name, value in facts["latency_ns"].items()
        if (ns := figure(value)) is not None
    }
    return ScaleNode(
        launch=launch,
        node=facts["node"],
        ip=facts["ip"],
        hostname=facts["hostname"],
        connections=facts["connections"],
        seconds=figure(facts["seconds"]),
        completed=facts["completed"],
        failed=dict(facts["failed"]),
        rate=figure(facts["rate"]),
        connection_rate_mean=figure(facts.get("connection_rate_mean")),
        connection_rate_max=figure(facts.get("connection_rate_max")),
        bytes_received=figure(facts.get("bytes_received")),
        latency_ms=latency_ms,
        lost=lost,
        last_completed=heard["completed"] if heard else None,
        last_failed=heard["failed"] if heard else None,
        age_s=heard["age_s"] if heard else None,
        client_bound=facts.get("client_bound"),
        usage=facts.get("usage") or {},
    )


Of: TypeAlias = Callable[[ScaleNode], float | None]


class NodeMetric(NamedTuple):
    """A metric over nodes: `over` the values `of` each. `kind` is None for a count."""

    name: str
    unit: str
    kind: Kind | None
    over: Callable[[Sequence[float]], float]
    of: Of

    def value(self, nodes: Sequence[ScaleNode]) -> float | None:
        """Over those of these nodes that have one; a LowerBound where one of theirs is."""
        known = [value for one in nodes if (value := self.of(one)) is not None]
        return made_of(self.over(known), known) if known else None


def _latency(name: str) -> Of:
    return lambda node: node.latency_ms.get(name)


def _kb(node: ScaleNode) -> float | None:
    return None if node.bytes_received is None else node.bytes_received / KB


def _kb_a_second(node: ScaleNode) -> float | None:
    size = _kb(node)
    return None if size is None or not node.seconds else size / node.seconds


_RATES: Final[tuple[tuple[str, Callable[[Sequence[float]], float], Of], ...]] = (
    ("per_thread_avg_tps", statistics.fmean, lambda node: node.connection_rate_mean),
    ("per_thread_max_tps", max, lambda node: node.connection_rate_max),
    ("per_node_avg_tps", statistics.fmean, lambda node: node.rate),
)
NODE_METRICS: Final = (
    NodeMetric("per_thread_latency_avg_ms", "ms", "LATENCY", statistics.fmean, _latency("mean")),
    NodeMetric("per_thread_latency_max_ms", "ms", "LATENCY", max, _latency("max")),
    *(NodeMetric(name, "requests/s", "THROUGHPUT", over, of) for name, over, of in _RATES),
    NodeMetric(
        "per_node_avg_transfer_per_sec_KB", "KB/s", "THROUGHPUT", statistics.fmean, _kb_a_second
    ),
    NodeMetric("cluster_total_thoughput", "requests", None, sum, lambda node: node.completed),
    NodeMetric("cluster_total_transfer_KB", "KB", None, sum, _kb),
    NodeMetric(
        "cluster_total_timeout_requests",
        "requests",
        None,
        sum,
        lambda node: node.failed.get(TIMEOUT, 0),
    ),
    *(
        NodeMetric(f"cluster_max_P{share}_latency_ms", "ms", "LATENCY", max, _latency(f"p{share}"))
        for share in (50, 75, 90, 99)
    ),
)
"""The 13 of single and multi, in the published order. A mean or a maximum is over nodes."""

NODE_NAMES: Final = tuple(one.name for one in NODE_METRICS)


def node_figures(nodes: Sequence[ScaleNode]) -> dict[str, float | None]:
    """The 13 by name, of one launch; all None where every node was lost or none is known."""
    heard = [one for one in nodes if one.lost is None]
    return {one.name: one.value(heard) for one in NODE_METRICS}


_PROXY: Final = frozenset({"proxy", "haproxy", "haproxy_manager", "fallback_proxy"})


def _group(role: str) -> str:
    """Replicas of all deployments count together; others: raylet, load, the tool ..."""
    if role in _PROXY:
        return "proxy"
    if role.partition(" ")[0] == "replica":
        return "replicas"
    return "controller" if role == "controller" else "others"


def cpu_of(usages: Sequence[dict[str, Any] | JsonObject]) -> GroupedCpu | None:
    """CPU of proxy, replicas, controller and others, mean over what was sampled; None where nothing
    was."""
    cpu = grouped_cpu(usages, _group)
    return cpu if cpu.groups or cpu.host is not None or cpu.cores else None
