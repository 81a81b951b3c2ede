"""What was seen inside the replicas, as the record of a trial holds it (`waits`), in typed form.

Rule: figures only; what follows from them is in waits.py, how they were got in cluster/waiting.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serve_bench.analysis.verdict.limits import FEWEST_LOOKS
from serve_bench.analysis.verdict.usage import number


@dataclass(frozen=True)
class Place:
    """Where requests wait: in which deployment ("app:Name"), what they await, the app's line and
    function."""

    deployment: str
    awaited: str
    line: str
    function: str


@dataclass(frozen=True)
class Replica:
    """One replica as it was seen; its deployment as "app:Name", numbers are means over the looks,
    shares are of the looks."""

    pid: int
    deployment: str
    looks: int
    most: int | None  # requests that it takes at once
    ongoing: float
    served: int
    mean_ms: float | None
    places: Mapping[Place, float]
    own: Mapping[Place, float]  # tasks of the app that are no request
    loop: Mapping[str, float]  # line of the app in which its loop is, and how often
    threads: Mapping[Place, float]
    pools: Mapping[str, Mapping[str, float]]
    batches: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Waits:
    """All replicas, and what a request takes alone and under the load (ms)."""

    replicas: tuple[Replica, ...] = ()
    p50_ms: float | None = None
    alone_ms: float | None = None
    seconds: float | None = None
    of: Mapping[str, tuple[Replica, ...]] = field(default_factory=dict)

    @property
    def longer(self) -> float | None:
        """How many times as long as alone a request takes under the load."""
        return self.p50_ms / self.alone_ms if self.p50_ms and self.alone_ms else None


def waits_of(told: Mapping[str, Any]) -> Waits:
    """The record's `waits`; empty where nothing was looked at. Replicas that were seen too few
    times are left out."""
    every = tuple(_replica(one) for one in told.get("replicas", ()))
    seen = tuple(one for one in every if one.looks >= FEWEST_LOOKS)
    of: dict[str, tuple[Replica, ...]] = {}
    for one in seen:
        of[one.deployment] = (*of.get(one.deployment, ()), one)
    return Waits(
        seen,
        number(told.get("p50_ms")),
        number(told.get("alone_p50_ms")),
        number(told.get("seconds")),
        of,
    )


def deployment_of(told: Mapping[str, Any]) -> str:
    """The deployment of a replica in the record, as its process is titled: "app:Name"."""
    return f"{told['app']}:{told['deployment']}"


def _replica(told: Mapping[str, Any]) -> Replica:
    name = deployment_of(told)

    def places(key: str) -> dict[Place, float]:
        return {Place(name, *map(str, one[:3])): float(one[3]) for one in told.get(key, ())}

    return Replica(
        pid=int(told.get("pid", 0)),
        deployment=name,
        looks=int(told["looks"]),
        most=told.get("max_ongoing"),
        ongoing=float(told.get("ongoing") or 0.0),
        served=int(told.get("served", 0)),
        mean_ms=number(told.get("mean_ms")),
        places=places("places"),
        own=places("own"),
        loop={str(line): float(share) for line, share in told.get("loop", ())},
        threads=places("threads"),
        pools=told.get("pools", {}),
        batches=told.get("batches", {}),
    )
