"""What the probes of one launch say of its capacity. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from serve_bench.analysis.capacity.boundary import CORRELATIONS, REACH, Boundary, boundary
from serve_bench.analysis.capacity.levels import (
    NEAR,
    RateLevel,
    bracket,
    ceiling,
    cliff,
    counts,
    fresh,
    gap,
    levels_of,
    sound,
)
from serve_bench.analysis.capacity.model import Bound, LaunchEstimate, Probe

FEWEST_BAD: Final = 20.0
"""Requests beyond a bound below which the estimate is doubted: their number alone has a relative
error of more than a fifth."""

RULE_OF_THREE: Final = 3.0
"""Requests that a bound allows beyond it: where so many are allowed and none is, it is met at 95 %
(Hanley and Lippman-Hand 1983)."""

STEEP: Final = 0.7
"""Slope times error of a launch, its error in ln(value), above which few bursts make the capacity
look better than it is: by 1 to 5 % in simulations of slow queues (scripts/bench_capacity.py)."""


def estimate(probes: Sequence[Probe], bounds: Sequence[Bound]) -> LaunchEstimate:
    """The capacity of a launch."""
    every, kept = sound(probes, bounds), fresh(probes, bounds)
    low, high = bracket(levels_of(kept, bounds))
    if low is None or high is None:
        kept = every  # where the budget ended before the new place was known
        low, high = bracket(levels_of(kept, bounds))
    drift = "" if len(kept) == len(every) else "it changed by much; earlier probes are left out"
    broken = low is not None and high is not None and cliff(low, high)
    found = [] if broken else boundaries(kept, bounds)
    if found and low is None and high is not None and found[0][1].place > math.log(high.rate):
        found = []  # nothing met, and a line drawn over what missed says it would
    if found and ((low and high) or _inside(found[0][1], kept, ceiling(probes) is None)):
        return _fitted(found, bounds, low, high, drift)
    ends = (low.rate if low else None, high.rate if high else None)
    binds = _worst(kept, bounds, high) if high else None
    if low is not None and high is not None:
        rate, error = math.sqrt(low.rate * high.rate), gap(low, high) / math.sqrt(12)
        doubts = [] if broken else ["the probes near the boundary are too few for a fit"]
        if not broken:
            doubts += _short(kept, bounds, (low.rate, high.rate), FEWEST_BAD)
        return LaunchEstimate(
            rate, error, *ends, binds, cliff=broken, drift=drift, doubts=tuple(doubts)
        )
    end: Literal["client", "floor"] | None = None
    if high is not None:
        end = "floor"
    elif ceiling(probes) is not None:
        end = "client"
    doubts = [] if end else ["no rate missed"] if low else ["no probe is sound"]
    if low is not None:
        doubts += _short(kept, bounds, (low.rate,), RULE_OF_THREE)
    return LaunchEstimate(None, None, *ends, binds=binds, ceiling=end, doubts=tuple(doubts))


def _short(
    kept: Sequence[Probe], bounds: Sequence[Bound], rates: Sequence[float], allowed: float
) -> list[str]:
    """Of each bound that is a share: how many requests at `rates` it takes before `allowed` of them
    may be beyond it, where there were fewer."""
    texts = []
    for bound in bounds:
        expected = math.fsum(counts(one, bound)[0] for one in kept if one.rate in rates)
        if bound.kind == "share" and bound.most and expected < allowed:
            texts.append(_needs(bound, allowed, f"{expected / bound.most:,.0f} were measured"))
    return texts


def _needs(bound: Bound, allowed: float, measured: str) -> str:
    count = f"about {allowed / bound.most:,.0f} requests near the boundary"
    return f"{bound.name} takes {count}; {measured} (--launch-time)"


def _fitted(
    found: Sequence[tuple[str, Boundary]],
    bounds: Sequence[Bound],
    low: RateLevel | None,
    high: RateLevel | None,
    drift: str,
) -> LaunchEstimate:
    """From the boundaries, the lowest first."""
    (name, at), error, doubts = found[0], found[0][1].error, []
    if error is None:
        error = 1 / (
            at.slope * math.sqrt(max(1, at.blocks))
        )  # each block has a relative error of 1
        doubts.append(f"{at.blocks} blocks near the boundary: too few for an error of their own")
    elif at.block_s < CORRELATIONS / 2 * at.correlation_s:
        doubts.append(f"blocks of {at.block_s:.3g} s are too short: what is bad stays so for long")
    bound = next(one for one in bounds if one.name == name)
    if bound.kind == "share" and bound.most and at.bad < FEWEST_BAD:
        doubts.append(_needs(bound, FEWEST_BAD, f"{at.bad:.0f} lay beyond it"))
    if at.slope * error > STEEP:
        doubts.append("too short for so steep a boundary: longer launches (--launch-time)")
    if at.changed_s is not None:
        word, share = "fell" if at.change < 0 else "rose", 100 * abs(math.expm1(at.change))
        drift = f"the capacity {word} by about {share:.2g} % at {at.changed_s:.0f} s"
    return LaunchEstimate(
        math.exp(at.place),
        error,
        low.rate if low else None,
        high.rate if high else None,
        binds=name,
        next=(found[1][0], math.exp(found[1][1].place)) if len(found) > 1 else None,
        slope=at.slope,
        blocks=at.blocks,
        block_s=at.block_s,
        correlation_s=at.correlation_s,
        drift=drift,
        doubts=tuple(doubts),
    )


def boundaries(kept: Sequence[Probe], bounds: Sequence[Bound]) -> list[tuple[str, Boundary]]:
    """The boundary of each bound that was met and missed, or nearly so; the lowest first. `kept`:
    sound probes."""
    found = []
    for bound in bounds:
        ends = [one for one in bracket(levels_of(kept, [bound])) if one is not None]
        if len(ends) == 2 or (ends and 1 / NEAR < ends[0].ratio < NEAR):
            middle = math.fsum(math.log(one.rate) for one in ends) / len(ends)
            if (at := boundary(kept, bound, middle)) is not None:
                found.append((bound.name, at))
    return sorted(found, key=lambda one: one[1].place)


def _inside(at: Boundary, kept: Sequence[Probe], free: bool) -> bool:
    """Whether a boundary lies among the rates of probes, or next above where the client is `free`
    to send more, though noise has set no bracket."""
    logs = [math.log(one.rate) for one in kept]
    return min(logs) <= at.place <= max(logs) + (REACH if free else 0.0)


def _worst(probes: Sequence[Probe], bounds: Sequence[Bound], at: RateLevel) -> str:
    """The bound that is farthest beyond at a rate."""
    worst = [one for one in probes if one.rate == at.rate]

    def over(bound: Bound) -> float:
        pairs = [counts(one, bound) for one in worst]
        expected, bad = sum(e for e, _ in pairs), sum(b for _, b in pairs)
        return bad / expected if expected else math.inf if bad else 0.0

    return max(bounds, key=over).name
