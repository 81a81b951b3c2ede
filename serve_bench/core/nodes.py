"""Nodes of a cluster that drive a load: what is known of each, and its share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.facts import LastHeard, NodeFacts, TrialUsage
from serve_bench.core.histogram import bounded
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load

# What is known of the nodes of a cluster that drive a load, and of each one's share. Pure words.
#
# Rule: plain, frozen content. A node that was lost is a value: it stands beside the others, with
# what was last heard of it, and its requests count as failed of the class `node`.

NODE: Final = "node"
"""The class of failure of the requests that a lost node was last known to have sent."""

SHARES: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Node:
    """A node of a Ray cluster, as Ray tells of it. `cpus`: logical CPUs; None when dead."""

    node_id: str
    ip: str
    hostname: str
    alive: bool
    is_head: bool
    cpus: float | None


@dataclass(frozen=True)
class Lost:
    """A node whose share of the load is not known: why, and what was last heard of it.

    `completed`, `failed`: requests of the measured part, as of `age_s` before it was given up; 0
    when it was lost before that began.
    """

    reason: str
    completed: int = 0
    failed: int = 0
    age_s: float = 0.0

    @property
    def last_heard(self) -> LastHeard:
        """What it had told."""
        return LastHeard(self.completed, self.failed, self.age_s)


def node_fact(
    node: Node, load: Load, part: LoadResult | Lost, usage: TrialUsage | None
) -> NodeFacts:
    """One node's share."""
    return NodeFacts(
        node=node.node_id,
        ip=node.ip,
        hostname=node.hostname,
        url=load.request.url,
        client=load.client,
        connections=load.connections,
        usage=usage,
        **(_of_lost(part) if isinstance(part, Lost) else _of_result(part, load)),
    )


def _of_lost(part: Lost) -> dict[str, Any]:
    return {
        "seconds": 0.0,
        "completed": 0,
        "failed": {NODE: part.completed + part.failed},
        "rate": 0.0,
        "bytes_received": 0,
        "latency_ns": dict.fromkeys(("mean", "max", *SHARES)),
        "lost": part.reason,
        "last_heard": part.last_heard,
    }


def _of_result(part: LoadResult, load: Load) -> dict[str, Any]:
    everything = part.latency.joined(part.censored)
    shares = bounded(part.latency, part.censored, list(SHARES.values()))
    open_ = [name for name, (_, lower) in zip(SHARES, shares, strict=True) if lower]
    return {
        "seconds": part.duration_s,
        "completed": part.completed_in_windows,
        "failed": dict(part.measured.failed),
        "rate": part.rate,
        "connection_rate_mean": part.rate / load.connections,
        "connection_rate_max": part.connection_rate_max,
        "bytes_received": part.bytes_received,
        "latency_ns": {
            "mean": everything.mean,
            "max": everything.max,
            **{name: ns for name, (ns, _) in zip(SHARES, shares, strict=True)},
        },
        "latency_lower_bounds": ("mean", "max", *open_) if part.censored.count else (),
        "client_bound": part.verdict.client_bound,
    }
