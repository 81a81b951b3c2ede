"""Nodes of a cluster that drive a load: what is known of each, its share, its name. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.errors import BadInput
from serve_bench.core.histogram import bounded
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load

# --------------------------------------------------------------------------------------------------
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
    def last_heard(self) -> dict[str, Any]:
        """Plain JSON content."""
        return {"completed": self.completed, "failed": self.failed, "age_s": self.age_s}


def node_fact(
    node: Node, load: Load, part: LoadResult | Lost, usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    """One node's share, as it stands in `Trial.client["nodes"]`. Times in ns, rates in 1/s."""
    out: dict[str, Any] = {
        "node": node.node_id,
        "ip": node.ip,
        "hostname": node.hostname,
        "url": load.request.url,
        "client": load.client,
        "connections": load.connections,
    }
    out |= _of_lost(part) if isinstance(part, Lost) else _of_result(part, load)
    return out | {"usage": None if usage is None else dict(usage)}


def _of_lost(part: Lost) -> dict[str, Any]:
    return {
        "seconds": 0.0,
        "completed": 0,
        "failed": {NODE: part.completed + part.failed},
        "rate": 0.0,
        "connection_rate_mean": None,
        "connection_rate_max": None,
        "bytes_received": 0,
        "latency_ns": dict.fromkeys(("mean", "max", *SHARES)),
        "latency_lower_bounds": [],
        "lost": part.reason,
        "last_heard": part.last_heard,
        "client_bound": None,
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
        "latency_lower_bounds": ["mean", "max", *open_] if part.censored.count else [],
        "lost": None,
        "client_bound": part.verdict.client_bound,
    }


# --------------------------------------------------------------------------------------------------
# How nodes of a cluster are called, and which one a word of the command line means. Pure words.
#
# Rule: a name tells a node from all others. Several may run on one machine and share its name and
# its address, so either may not do.

LEAST_ID: Final = 8
"""How much of a node id is shown, at least."""


def full_name(node: Node, nodes: Iterable[Node]) -> str:
    """For a sentence: `node host3 (10.1.0.3)`, with the id where others share both."""
    alike = [one for one in nodes if (one.hostname, one.ip) == (node.hostname, node.ip)]
    more = f", {short_id(node, nodes)}" if len(alike) > 1 else ""
    return f"node {node.hostname} ({node.ip}{more})"


def file_name(node: Node, nodes: Sequence[Node]) -> str:
    """For the name of a file: its hostname, else its address, else the beginning of its id."""
    word = _first_own(node, nodes, (lambda one: one.hostname, lambda one: one.ip))
    return re.sub(r"[^A-Za-z0-9_.-]", "_", word)


def flag_name(node: Node, nodes: Sequence[Node]) -> str:
    """For `--node`: its address, else its hostname, else the beginning of its id."""
    return _first_own(node, nodes, (lambda one: one.ip, lambda one: one.hostname))


def short_id(node: Node, nodes: Iterable[Node]) -> str:
    """The beginning of a node id that no other begins with."""
    others = [one.node_id for one in nodes if one.node_id != node.node_id]
    size = LEAST_ID
    while any(one.startswith(node.node_id[:size]) for one in others):
        size += 1
    return node.node_id[:size]


def node_of(word: str, nodes: Sequence[Node]) -> Node:
    """The living node that `--node` means. BadInput when there is none, or more than one."""
    alive = [node for node in nodes if node.alive]
    matches = [node for node in alive if word in (node.ip, node.hostname)]
    matches = matches or [node for node in alive if word and node.node_id.startswith(word)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(short_id(node, nodes) for node in matches)
        raise BadInput(f"--node: {len(matches)} nodes are called {word}; take one of: {ids}")
    dead = [one for one in nodes if word in (one.ip, one.hostname) or one.node_id.startswith(word)]
    known = ", ".join(f"{flag_name(node, alive)} ({node.hostname})" for node in alive)
    what = f"node {word} is dead" if dead and word else f"no node {word!r}"
    raise BadInput(f"--node: {what}; there are: {known}")


def _first_own(node: Node, nodes: Sequence[Node], ways: Sequence[Callable[[Node], str]]) -> str:
    for way in ways:
        if [way(one) for one in nodes].count(way(node)) == 1:
            return way(node)
    return short_id(node, nodes)
