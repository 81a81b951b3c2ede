"""The load of `serve-bench scale` node by node, and the published metrics that are made of it.

Pure. Rule: names are those of Ray's nightly benchmarks, a misspelt one included; a thread of theirs
is a connection of ours, KB are 1024 bytes. What was not told is None, never 0: a node without an
answered request has no latency, and a node that was lost enters no mean, no maximum and no total;
of it only its reason and what it was last known to have done are shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from serve_bench.analysis.statistics import LowerBound, made_of
from serve_bench.core.result import JsonObject, Trial
from serve_bench.core.usage import by_role

Kind: TypeAlias = Literal["THROUGHPUT", "LATENCY"]
"""The two types that Ray's release tooling knows; a count is neither."""

NS_PER_MS: Final = 1e6
KB: Final = 1024.0

TIMEOUT: Final = "timeout"
"""The class of requests without an answer in time, of our client as of wrk."""


@dataclass(frozen=True)
class ScaleNode:
    """The load from one node in one launch. `failed`: by class. Latencies in ms by name (mean,
    max, p50, p75, p90, p99), only those that are known. `lost`: why the node was lost; then
    `last_completed` and `last_failed` are what it told `age_s` before that, where it told any."""

    launch: int
    node: str
    ip: str
    hostname: str
    connections: int
    seconds: float | None
    completed: int
    failed: Mapping[str, int]
    rate: float | None
    connection_rate_mean: float | None
    connection_rate_max: float | None
    bytes_received: float | None
    latency_ms: Mapping[str, float]
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
    return tuple(_node(told, trial.round) for told in trial.client.get("nodes") or ())


def _node(told: Mapping[str, Any], launch: int) -> ScaleNode:
    heard = told.get("last_heard") or {}
    lost = told.get("lost")
    known = {name: _number(value) for name, value in (told.get("latency_ns") or {}).items()}
    for name in told.get("latency_lower_bounds") or ():
        value = known.get(name)
        known[name] = None if value is None else LowerBound(value)

    def figure(name: str) -> float | None:
        return None if lost else _number(told.get(name))

    return ScaleNode(
        launch=launch,
        node=str(told.get("node") or ""),
        ip=str(told.get("ip") or "?"),
        hostname=str(told.get("hostname") or ""),
        connections=int(told.get("connections") or 0),
        seconds=figure("seconds"),
        completed=int(told.get("completed") or 0),
        failed={name: int(count) for name, count in (told.get("failed") or {}).items()},
        rate=figure("rate"),
        connection_rate_mean=figure("connection_rate_mean"),
        connection_rate_max=figure("connection_rate_max"),
        bytes_received=figure("bytes_received"),
        latency_ms={name: value / NS_PER_MS for name, value in known.items() if value is not None}
        if not lost
        else {},
        lost=str(lost) if lost else None,
        last_completed=_count(heard.get("completed")),
        last_failed=_count(heard.get("failed")),
        age_s=_number(heard.get("age_s")),
        client_bound=told.get("client_bound"),
        usage=told.get("usage") or {},
    )


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def _count(value: object) -> int | None:
    found = _number(value)
    return None if found is None else int(found)


# ------------------------------------------------------------------------- published metrics

Of: TypeAlias = Callable[[Sequence[ScaleNode]], float | None]


class NodeMetric(NamedTuple):
    """A metric over nodes. `kind` is None for a count; `of` gets the nodes that were not lost."""

    name: str
    unit: str
    kind: Kind | None
    of: Of


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(value: Callable[[ScaleNode], float | None]) -> Of:
    def of(nodes: Sequence[ScaleNode]) -> float | None:
        found = _known(value(one) for one in nodes)
        return made_of(statistics.fmean(found), found) if found else None

    return of


def _highest(value: Callable[[ScaleNode], float | None]) -> Of:
    def of(nodes: Sequence[ScaleNode]) -> float | None:
        found = _known(value(one) for one in nodes)
        return made_of(max(found), found) if found else None

    return of


def _total(value: Callable[[ScaleNode], float | None]) -> Of:
    def of(nodes: Sequence[ScaleNode]) -> float | None:
        found = _known(value(one) for one in nodes)
        return sum(found) if found else None

    return of


def _latency(name: str) -> Callable[[ScaleNode], float | None]:
    return lambda node: node.latency_ms.get(name)


def _kb(node: ScaleNode) -> float | None:
    return None if node.bytes_received is None else node.bytes_received / KB


def _kb_a_second(node: ScaleNode) -> float | None:
    size = _kb(node)
    return None if size is None or not node.seconds else size / node.seconds


NODE_METRICS: Final = (
    NodeMetric("per_thread_latency_avg_ms", "ms", "LATENCY", _mean(_latency("mean"))),
    NodeMetric("per_thread_latency_max_ms", "ms", "LATENCY", _highest(_latency("max"))),
    NodeMetric(
        "per_thread_avg_tps", "requests/s", "THROUGHPUT", _mean(lambda n: n.connection_rate_mean)
    ),
    NodeMetric(
        "per_thread_max_tps", "requests/s", "THROUGHPUT", _highest(lambda n: n.connection_rate_max)
    ),
    NodeMetric("per_node_avg_tps", "requests/s", "THROUGHPUT", _mean(lambda n: n.rate)),
    NodeMetric("per_node_avg_transfer_per_sec_KB", "KB/s", "THROUGHPUT", _mean(_kb_a_second)),
    NodeMetric("cluster_total_thoughput", "requests", None, _total(lambda n: n.completed)),
    NodeMetric("cluster_total_transfer_KB", "KB", None, _total(_kb)),
    NodeMetric(
        "cluster_total_timeout_requests",
        "requests",
        None,
        _total(lambda n: n.failed.get(TIMEOUT, 0)),
    ),
    *(
        NodeMetric(
            f"cluster_max_P{share}_latency_ms", "ms", "LATENCY", _highest(_latency(f"p{share}"))
        )
        for share in (50, 75, 90, 99)
    ),
)
"""The 13 of single and multi, in the published order. A mean or a maximum is over nodes."""

NODE_NAMES: Final = tuple(one.name for one in NODE_METRICS)


def node_figures(nodes: Sequence[ScaleNode]) -> dict[str, float | None]:
    """The 13 by name, of one launch; all None where every node was lost or none is known."""
    heard = [one for one in nodes if one.lost is None]
    return {one.name: one.of(heard) if heard else None for one in NODE_METRICS}


# --------------------------------------------------------------------------------------------------
# CPU of the processes on a node, by what they are for: what a scale report tells of it.
#
# Rule: % of a core; None where nothing was sampled. Replicas of all deployments count together.

_PROXY: Final = frozenset({"proxy", "haproxy", "haproxy_manager", "fallback_proxy"})


@dataclass(frozen=True)
class NodeUse:
    """% of a core. `busiest`: of the busiest replica. `others`: raylet, load, tool ..."""

    proxy: float | None
    replicas: float | None
    busiest: float | None
    controller: float | None
    others: float | None
    host: float | None
    cores: int | None

    @property
    def words(self) -> str:
        """`proxy 80, replicas 120 (busiest 31), controller 5, others 40, host 190 of 200`."""
        said = []
        for name in ("proxy", "replicas", "controller", "others"):
            share = getattr(self, name)
            if share is not None:
                said.append(f"{name} {share:.0f}")
                if name == "replicas" and self.busiest is not None:
                    said[-1] += f" (busiest {self.busiest:.0f})"
        if self.host is not None:
            said.append(f"host {self.host:.0f}" + (f" of {100 * self.cores}" if self.cores else ""))
        return ", ".join(said)


def use_of(usages: Sequence[Mapping[str, Any]]) -> NodeUse | None:
    """The mean over what was sampled; None where nothing was."""
    found = [one for one in usages if one.get("processes") or one.get("host")]
    if not found:
        return None
    roles = [by_role(one) for one in found]
    hosts = [one["host"] for one in found if one.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    sums: dict[str, list[float]] = {}
    busiest: list[float] = []
    for uses in roles:
        own: dict[str, float] = {}
        for role, use in uses.items():
            group = _group(role)
            own[group] = own.get(group, 0.0) + use.cpu_percent
            busiest += [use.busiest_percent] if group == "replicas" else []
        for group, share in own.items():
            sums.setdefault(group, []).append(share)
    means = {group: sum(each) / len(roles) for group, each in sums.items()}
    return NodeUse(
        proxy=means.get("proxy"),
        replicas=means.get("replicas"),
        busiest=max(busiest, default=None),
        controller=means.get("controller"),
        others=means.get("others"),
        host=statistics.fmean(shares) if shares else None,
        cores=int(hosts[0]["cores"]) if hosts and hosts[0].get("cores") else None,
    )


def _group(role: str) -> str:
    if role in _PROXY:
        return "proxy"
    if role.partition(" ")[0] == "replica":
        return "replicas"
    return "controller" if role == "controller" else "others"
