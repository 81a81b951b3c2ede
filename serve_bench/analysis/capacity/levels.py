"""What probes say of rates: how far each rate is from the bounds, and the bracket. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.capacity.model import Bound, Probe

NEAR: Final = 8.0
"""A rate whose value is within this factor of its bound lies on the gradual part: a queue of 70 %
use at p99 gets there with a change of the rate by an eighth, so that a line in logarithms holds."""

CLIFF_GAP: Final = 0.05
"""ln(rate): neighbours as near as this, one CLIFF_FACTOR below its bound and one so far above,
stand at a cliff. That is a slope above 55; that of M/M/1 at 90 % use and p99 is 41."""

CLIFF_FACTOR: Final = 4.0

AGREED: Final = 2
"""Probes that must say the same before it is believed: that the client cannot send a rate, or that
the service is no longer what it was."""


@dataclass(frozen=True)
class RateLevel:
    """What is known of one rate. `ratio`: its value over the bound, the largest of all bounds;
    above 1 it missed. `expected`: what the bound allows in the requests that were sent. `probes`,
    `seconds`: how many and how long."""

    rate: float
    ratio: float
    expected: float
    probes: int
    seconds: float

    @property
    def least(self) -> float:
        """The smallest ratio that the number of requests can tell from none."""
        return max(self.ratio, 0.5 / self.expected if self.expected else 0.0)


def sound(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """The probes that say something of the service as it is."""
    return [
        probe
        for probe in of_replicas(probes, bounds)
        if probe.whole
        and not probe.client_bound
        and any(math.fsum(s.of) for s in probe.slices.values())
    ]


def of_replicas(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """The probes in which Serve did not change the replicas, without misses with fewer of them than
    it had later: there was room to grow."""
    kept = [probe for probe in probes if probe.steady]
    replicas = [probe.replicas or 0 for probe in kept]
    return [
        probe
        for place, probe in enumerate(kept)
        if replicas[place] >= max(replicas[place:]) or _alone(probe, bounds) <= 1
    ]


def ceiling(probes: Sequence[Probe]) -> float | None:
    """The lowest rate that the client can not send; one probe of it alone does not prove it."""
    bound = sorted(one.rate for one in probes if one.client_bound)
    return bound[AGREED - 1] if len(bound) >= AGREED else None


def counts(probe: Probe, bound: Bound) -> tuple[float, float]:
    """What the bound allows in the requests of a probe, and what there was."""
    slices = probe.slices.get(bound.name)
    return (bound.most * math.fsum(slices.of), math.fsum(slices.bad)) if slices else (0.0, 0.0)


def _ratio(bound: Bound, expected: float, bad: float) -> float:
    if not expected:
        return math.inf if bad else 0.0
    if bound.kind == "share" and expected < 1 and bad <= 1:
        return min(1.0, bad / expected)  # a single request is no evidence
    return bad / expected


def levels_of(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[RateLevel]:
    """The rates in order, each with the ratio of the bound that is nearest to a miss.

    A higher rate cannot be better in the long run: neighbours that say so are pooled (pool adjacent
    violators [Ayer et al. 1955]), for each bound.
    """
    rates = sorted({one.rate for one in probes})
    best: dict[float, tuple[float, float]] = {rate: (-1.0, 0.0) for rate in rates}
    for bound in bounds:
        pools: list[tuple[list[float], float, float]] = []
        for rate in rates:
            pairs = [counts(one, bound) for one in probes if one.rate == rate]
            pool = ([rate], sum(e for e, _ in pairs), sum(b for _, b in pairs))
            while pools and _ratio(bound, *pools[-1][1:]) > _ratio(bound, *pool[1:]):
                last = pools.pop()
                pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
            pools.append(pool)
        for members, expected, bad in pools:
            ratio = _ratio(bound, expected, bad)
            for rate in members:
                if ratio > best[rate][0]:
                    best[rate] = (ratio, expected)
    lengths = {rate: [one.seconds for one in probes if one.rate == rate] for rate in rates}
    return [RateLevel(r, *best[r], len(lengths[r]), math.fsum(lengths[r])) for r in rates]


def bracket(levels: Sequence[RateLevel]) -> tuple[RateLevel | None, RateLevel | None]:
    """The highest rate that met, and the lowest above it that missed."""
    met = [one for one in levels if one.ratio <= 1]
    missed = [one for one in levels if one.ratio > 1]
    return (met[-1] if met else None), (missed[0] if missed else None)


def gap(low: RateLevel, high: RateLevel) -> float:
    """Their distance in ln(rate)."""
    return math.log(high.rate / low.rate)


def gradual(low: RateLevel, high: RateLevel) -> bool:
    """Whether both lie so near to the bound that a line can be drawn."""
    return low.least >= 1 / NEAR and high.ratio <= NEAR


def cliff(low: RateLevel, high: RateLevel) -> bool:
    """Whether the bound breaks between two neighbours."""
    apart = low.least < 1 / CLIFF_FACTOR and high.ratio > CLIFF_FACTOR
    return apart and not gradual(low, high) and gap(low, high) <= CLIFF_GAP


def fresh(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """The sound probes since the service last changed by much: the newest AGREED ones are far
    from a bound, and rates of before, on the other side of them, say the contrary."""
    kept = sound(probes, bounds)
    for end in range(len(kept), AGREED, -1):
        before, newest = kept[: end - AGREED], kept[end - AGREED : end]
        low, high = min(one.rate for one in newest), max(one.rate for one in newest)
        of_new = [_alone(one, bounds) for one in newest]
        fell = min(of_new) > CLIFF_FACTOR and any(
            one.rate >= high and _alone(one, bounds) < 1 / CLIFF_FACTOR for one in before
        )
        rose = max(of_new) < 1 / CLIFF_FACTOR and any(
            one.rate <= low and _alone(one, bounds) > CLIFF_FACTOR for one in before
        )
        if fell or rose:
            return kept[end - AGREED :]
    return kept


def _alone(probe: Probe, bounds: Sequence[Bound]) -> float:
    """The ratio of a probe alone."""
    return max(_ratio(bound, *counts(probe, bound)) for bound in bounds)
