"""Nodes of a cluster that drive a load: what is known of each, and its share. Pure.

Rule: plain, frozen content. A node that was lost is a value: it stands beside the others, with
what was last heard of it, and its requests count as failed of the class `node`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from msgspec import structs

from serve_bench.core.facts import LastHeard, NodeFacts, TrialUsage
from serve_bench.core.histogram import bounded
from serve_bench.core.load_result import LoadResult, Phase, Progress
from serve_bench.core.load_spec import Load

NODE: Final = "node"
"""The class of failure of the requests that a lost node was last known to have sent."""

SHARES: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}

NOTHING_HEARD: Final = LastHeard(0, 0, 0.0)


@dataclass(frozen=True)
class Node:
    """A node of a Ray cluster that is alive."""

    node_id: str
    node_ip: str
    hostname: str

    @property
    def name(self) -> str:
        return f"{self.hostname} ({self.node_ip}, {self.node_id[:12]})"


@dataclass(frozen=True)
class NodePart:
    """What came of a node's share of a load: its `result`, or the reason why there is none."""

    result: LoadResult | None = None
    reason: str = ""
    refused: bool = False  # the node runs, and its target could not be reached
    broken: bool = False  # our code there failed
    last_heard: LastHeard = NOTHING_HEARD  # of the measured part; zeros before it began
    usage: TrialUsage | None = None  # of the node's Serve processes, if sampled
    opened_after_s: float | None = None  # from the message to begin until the node began


@dataclass(frozen=True)
class NodeState:
    """How the load of a node stands."""

    progress: Progress | None = None
    at_gate: bool = False  # it is ready to be measured


_ORDER: Final[Sequence[Phase]] = get_args(Phase)


def sum_progress(nodes: Iterable[Progress | None]) -> Progress | None:
    """Add up the rates and counts of nodes; the phase is the earliest that any is in.

    Percentiles do not add up, so there are none. None before any node has reported."""
    reports = [progress for progress in nodes if progress is not None]
    if not reports:
        return None
    phase = min((progress.phase for progress in reports), key=_ORDER.index)
    same = [progress for progress in reports if progress.phase == phase]
    return Progress(
        phase=phase,
        elapsed_s=max(progress.elapsed_s for progress in reports),
        remaining_s=max(progress.remaining_s for progress in reports),
        left=sum(progress.left for progress in reports),
        rate=sum(progress.rate for progress in reports),
        completed=sum(progress.completed for progress in same),
        failed=sum(progress.failed for progress in same),
    )


def node_fact(node: Node, load: Load, part: NodePart) -> NodeFacts:
    """Summarize one node's share of a load for the record."""
    lost = NodeFacts(
        node=node.node_id,
        ip=node.node_ip,
        hostname=node.hostname,
        url=load.request.url,
        client=load.client,
        connections=load.connections,
        usage=part.usage,
        seconds=0.0,
        completed=0,
        failed={NODE: part.last_heard.completed + part.last_heard.failed},
        rate=0.0,
        bytes_received=0,
        latency_ns=dict.fromkeys(("mean", "max", *SHARES)),
        lost=part.reason,
        last_heard=part.last_heard,
    )
    if (result := part.result) is None:
        return lost
    everything = result.latency.joined(result.censored)
    shares = bounded(result.latency, result.censored, list(SHARES.values()))
    open_ = [name for name, (_, lower) in zip(SHARES, shares, strict=True) if lower]
    percentiles = {name: ns for name, (ns, _) in zip(SHARES, shares, strict=True)}
    return structs.replace(
        lost,
        seconds=result.duration_s,
        completed=result.completed_in_windows,
        failed=dict(result.measured.failed),
        rate=result.rate,
        connection_rate_mean=result.rate / load.connections,
        connection_rate_max=result.connection_rate_max,
        bytes_received=result.bytes_received,
        latency_ns={"mean": everything.mean, "max": everything.max, **percentiles},
        latency_lower_bounds=("mean", "max", *open_) if result.censored.count else (),
        client_bound=result.verdict.client_bound,
        lost=None,
        last_heard=None,
    )
