"""CPU of the processes on a node, by what they are for: what a scale report tells of it.

Rule: % of a core; None where nothing was sampled. Replicas of all deployments count together.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.usage import by_role

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
