"""What a search for a capacity is made of: bounds, probes, questions, estimates. Pure values.

A capacity is the highest arrival rate (requests/s, open loop) at which every objective of an SLO is
met in the long run. A search asks for probes, each an open-loop load at one rate, on one launch.
Each launch gives an estimate, and the launches together give the interval."""

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

    `kind` "share": bad is a number of requests (of a percentile those beyond the limit, and most =
    1 - 0.99; of errors those that failed); "mean": bad is the sum of the latencies in ns."""

    name: str
    most: float
    kind: Literal["share", "mean"] = "share"
    limit_ns: float | None = None  # the time that the objective sets; None for one that sets none


@dataclass(frozen=True)
class Probe:
    """An open-loop load that was measured at `rate` (requests/s).

    `client_bound`: the client did not keep the rate, or added much of the time that missed, so the
    probe says nothing of the service."""

    rate: float
    slice_s: float
    slices: Mapping[str, SliceCounts]  # by name of the bound, each slice `slice_s` long
    began_s: float = 0.0  # its first slice, in seconds since the launch was up
    client_bound: bool = False
    whole: bool = True  # it was not broken off
    # How many ran of the deployments that Serve scales; None: it scales none, or not known.
    replicas: int | None = None
    steady: bool = True  # their number did not change, neither in the probe nor just before

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
    """What the probes of one launch say."""

    rate: float | None  # the capacity (requests/s), None where it is only bounded
    error: float | None  # its standard error as a share (of ln(rate)), from blocks of time
    low: float | None  # the highest rate that met all bounds below every one that missed
    high: float | None  # the lowest rate above `low` that missed
    binds: str | None = None  # the bound that sets the rate
    next: tuple[str, float] | None = None  # the bound that would bind next, with its own rate
    cliff: bool = False  # no gradual boundary; between `low` and `high` it breaks
    # Of the bound's value at the boundary, d ln(value) / d ln(rate), where it is gradual.
    slope: float | None = None
    blocks: int = 0  # independent ones, each above five autocorrelation times
    block_s: float = 0.0
    correlation_s: float = 0.0  # the autocorrelation time
    # "client": every rate met that the client could send; "floor": the lowest rate missed.
    ceiling: Literal["client", "floor"] | None = None
    drift: str = ""  # the change of the capacity with time, in words; empty: none seen
    doubts: tuple[str, ...] = ()  # what else to know, in words


@dataclass(frozen=True)
class Capacity:
    """The capacity over launches with its 95 % interval.

    `rate` None: only bounded, by `low` (a lower bound: all rates met up to there) or by `high` (the
    lowest rate missed)."""

    rate: float | None
    low: float | None
    high: float | None
    launches: tuple[LaunchEstimate, ...] = field(default=())
    precise: bool = False  # the interval is as narrow as `precision` asks
    spread: float | None = None  # the standard deviation between launches, as a share; None for one
    doubts: tuple[str, ...] = ()  # what else to know

    @property
    def width(self) -> float | None:
        """The width of the interval, as a share of the rate."""
        if self.rate is None or self.low is None or self.high is None:
            return None
        return (self.high - self.low) / self.rate
