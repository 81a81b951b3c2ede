"""What a search for a capacity is made of: bounds, probes, questions, estimates. Pure values.

A capacity is the highest arrival rate (requests/s, open loop) at which every objective of an SLO
is met in the long run. A search asks for probes, each an open-loop load at one rate, on one launch;
each launch gives an estimate of its own, and the launches together give the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from serve_bench.core.facts import SliceCounts

PRECISION: Final = 0.05
"""Width of the 95 % interval, as a share of the capacity, that is narrow enough."""


@dataclass(frozen=True)
class Bound:
    """An objective as a search sees it: the sum of `bad` over the sum of `of` is at most `most`.

    `kind` "share": bad is a number of requests (of a percentile those beyond the limit, and
    most = 1 - 0.99; of errors those that failed); "mean": bad is the sum of the latencies in ns.
    `limit_ns`: the time that the objective sets; None for one that sets none.
    """

    name: str
    most: float
    kind: Literal["share", "mean"] = "share"
    limit_ns: float | None = None


@dataclass(frozen=True)
class Probe:
    """An open-loop load that was measured at `rate` (requests/s).

    `slices`: by name of the bound, each slice `slice_s` long. `began_s`: its first slice, in
    seconds since the launch was up. `client_bound`: the client did not keep the rate, or added much
    of the time that missed, so the probe says nothing of the service. `whole`: it was not broken
    off. `replicas`: how many ran of the deployments that Serve scales; None: it scales none, or
    that is not known. `steady`: their number did not change, neither in the probe nor just before.
    """

    rate: float
    slice_s: float
    slices: Mapping[str, SliceCounts]
    began_s: float = 0.0
    client_bound: bool = False
    whole: bool = True
    replicas: int | None = None
    steady: bool = True

    @property
    def seconds(self) -> float:
        """Its measured length."""
        return self.slice_s * max((len(counts.of) for counts in self.slices.values()), default=0)


@dataclass(frozen=True)
class Ask:
    """Measure this rate next, for this long."""

    rate: float
    seconds: float


@dataclass(frozen=True)
class LaunchEstimate:
    """What the probes of one launch say.

    `rate`: the capacity (requests/s), None where it is only bounded; `error`: its standard error
    as a share (of ln(rate)), from blocks of time. `low`: the highest rate that met all bounds
    below every one that missed, `high`: the lowest above it that missed; None: there is none.
    `binds`: the bound that sets the rate, `next`: the one that would bind next with its own rate,
    where the probes tell. `cliff`: no gradual boundary; between `low` and `high` it breaks.
    `slope`: of the bound's value at the boundary, d ln(value) / d ln(rate), where it is gradual.
    `blocks`: how many independent blocks, of `block_s` seconds, above five autocorrelation times
    of `correlation_s` seconds. `ceiling`: "client" where every rate met that the client could
    send, "floor" where the lowest rate missed; None: neither. `drift`: the change of the capacity
    with time within the launch, in words; empty: none seen. `doubts`: what else to know, in words.
    """

    rate: float | None
    error: float | None
    low: float | None
    high: float | None
    binds: str | None = None
    next: tuple[str, float] | None = None
    cliff: bool = False
    slope: float | None = None
    blocks: int = 0
    block_s: float = 0.0
    correlation_s: float = 0.0
    ceiling: Literal["client", "floor"] | None = None
    drift: str = ""
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capacity:
    """The capacity over launches with its 95 % interval.

    `rate` None: only bounded, by `low` (a lower bound: all rates met up to there) or by `high`
    (the lowest rate missed). `precise`: the interval is as narrow as `precision` asks. `spread`:
    the standard deviation between launches, as a share; None for one. `doubts`: what else to know.
    """

    rate: float | None
    low: float | None
    high: float | None
    launches: tuple[LaunchEstimate, ...] = field(default=())
    precise: bool = False
    spread: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def width(self) -> float | None:
        """Of the interval, as a share of the rate."""
        if self.rate is None or self.low is None or self.high is None:
            return None
        return (self.high - self.low) / self.rate
