"""What probes say: of rates, of the capacity of their launch, and of that over launches. Pure.

How far each rate is from the bounds gives the bracket, and the boundary within it the estimate of
a launch. Launches are the unit of repetition: a t interval on the logarithms of their capacities.
Their variance is at least the mean square of their own errors, so that launches that agree by luck
do not make the interval narrow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from serve_bench.analysis.capacity.boundary import CORRELATIONS, REACH, Boundary, fit_boundary
from serve_bench.analysis.capacity.model import PRECISION, Bound, Capacity, LaunchEstimate, Probe
from serve_bench.analysis.ratios import CONFIDENCE, freedom, quantile

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

FEWEST_BAD: Final = 20.0
"""Requests beyond a bound below which the estimate is doubted: their number alone has a relative
error of more than a fifth."""

RULE_OF_THREE: Final = 3.0
"""Requests that a bound allows beyond it: where it allows three and none is, it is met at 95 %
(Hanley and Lippman-Hand 1983)."""

STEEP: Final = 0.7
"""Slope times error of a launch, its error in ln(value), above which few bursts make the capacity
look better than it is: by 1 to 5 % in simulations of slow queues (scripts/bench_capacity.py)."""

LOOKS: Final = 0.02
"""The two-sided level of t. A run ends at the first look at which the interval is narrow, so where
the spread happens to look small. At 0.05 its interval then holds the truth in 90.5 % (normal
logarithms, looks after each launch from the third to the 60th, spread of 0.5 to 6 %, 20,000 runs
each); at 0.02 in 95.4 to 98 %."""

UNFINISHED: Final = 0.25
"""Launches whose search used its budget before a rate missed are left out up to this share: they
are late, not different. Above, the capacity is only bounded."""

ONE_DF: Final = 8.0
"""Degrees of freedom of the error of a single launch: about half of its blocks, which are not all
equally near to the boundary."""


@dataclass(frozen=True)
class RateLevel:
    """What is known of one rate."""

    rate: float
    ratio: float  # its value over the bound, the largest of all bounds; above 1 it missed
    expected: float  # what the bound allows in the requests that were sent
    probes: int  # how many
    seconds: float  # of all probes

    @property
    def least(self) -> float:
        """The smallest ratio that the number of requests can tell from none."""
        return max(self.ratio, 0.5 / self.expected if self.expected else 0.0)


def select_sound(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """Return the probes that say something of the service as it is."""
    kept = (probe for probe in select_grown(probes, bounds) if probe.whole)
    served = (probe for probe in kept if any(any(part.of) for part in probe.slices.values()))
    return [probe for probe in served if not probe.client_bound]


def select_grown(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """Return the probes in which Serve did not change the replicas.

    Without misses with fewer replicas than Serve had later: there was room to grow."""
    kept = [probe for probe in probes if probe.steady]
    replicas = [probe.replicas or 0 for probe in kept]
    most = [count >= max(replicas[place:]) for place, count in enumerate(replicas)]
    pairs = zip(kept, most, strict=True)
    return [probe for probe, grown in pairs if grown or _alone(probe, bounds) <= 1]


def find_ceiling(probes: Sequence[Probe]) -> float | None:
    """Return the lowest rate that the client cannot send; one probe alone does not prove it."""
    bound = sorted(probe.rate for probe in probes if probe.client_bound)
    return bound[AGREED - 1] if len(bound) >= AGREED else None


def sum_counts(probes: Iterable[Probe], bound: Bound) -> tuple[float, float]:
    """Return what the bound allows in the requests of probes, and what there was."""
    slices = [part for probe in probes if (part := probe.slices.get(bound.name))]
    total, bad = chain(*(part.of for part in slices)), chain(*(part.bad for part in slices))
    return bound.most * math.fsum(total), math.fsum(bad)


def _ratio(bound: Bound, expected: float, bad: float) -> float:
    if not expected:
        return math.inf if bad else 0.0
    if bound.kind == "share" and expected < 1 and bad <= 1:
        return min(1.0, bad / expected)  # a single request is no evidence
    return bad / expected


def pool_levels(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[RateLevel]:
    """Return the rates in order, each with the ratio of the bound that is nearest to a miss.

    A higher rate cannot be better in the long run: neighbours that say so are pooled (pool adjacent
    violators [Ayer et al. 1955]), for each bound."""
    rates = sorted({probe.rate for probe in probes})
    best: dict[float, tuple[float, float]] = {rate: (-1.0, 0.0) for rate in rates}
    for bound in bounds:
        pools: list[tuple[list[float], float, float]] = []
        for rate in rates:
            pool = ([rate], *sum_counts((probe for probe in probes if probe.rate == rate), bound))
            while pools and _ratio(bound, *pools[-1][1:]) > _ratio(bound, *pool[1:]):
                last = pools.pop()
                pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
            pools.append(pool)
        for members, expected, bad in pools:
            ratio = _ratio(bound, expected, bad)
            for rate in members:
                if ratio > best[rate][0]:
                    best[rate] = (ratio, expected)
    lengths = {rate: [probe.seconds for probe in probes if probe.rate == rate] for rate in rates}
    return [RateLevel(r, *best[r], len(lengths[r]), math.fsum(lengths[r])) for r in rates]


def find_bracket(levels: Sequence[RateLevel]) -> tuple[RateLevel | None, RateLevel | None]:
    """Return the highest rate that met, and the lowest that missed; None where none did."""
    met = [level for level in levels if level.ratio <= 1]
    missed = [level for level in levels if level.ratio > 1]
    return (met[-1] if met else None), (missed[0] if missed else None)


def measure_gap(low: RateLevel, high: RateLevel) -> float:
    """Return the distance of two rates in ln(rate)."""
    return math.log(high.rate / low.rate)


def is_gradual(low: RateLevel, high: RateLevel) -> bool:
    """Return whether both lie so near to the bound that a line can be drawn."""
    return low.least >= 1 / NEAR and high.ratio <= NEAR


def is_cliff(low: RateLevel, high: RateLevel) -> bool:
    """Return whether the bound breaks between two neighbours."""
    apart = low.least < 1 / CLIFF_FACTOR and high.ratio > CLIFF_FACTOR
    return apart and not is_gradual(low, high) and measure_gap(low, high) <= CLIFF_GAP


def select_fresh(probes: Sequence[Probe], bounds: Sequence[Bound]) -> list[Probe]:
    """Return the sound probes since the service last changed by much.

    It did if the newest AGREED ones are far from a bound, and rates of before, on the other side of
    them, say the contrary."""
    kept = select_sound(probes, bounds)
    for end in range(len(kept), AGREED, -1):
        before, newest = kept[: end - AGREED], kept[end - AGREED : end]
        low, high = min(probe.rate for probe in newest), max(probe.rate for probe in newest)
        of_new, of_old = ([_alone(probe, bounds) for probe in part] for part in (newest, before))
        old = [(probe.rate, alone) for probe, alone in zip(before, of_old, strict=True)]
        met = any(rate >= high and alone < 1 / CLIFF_FACTOR for rate, alone in old)
        missed = any(rate <= low and alone > CLIFF_FACTOR for rate, alone in old)
        fell, rose = min(of_new) > CLIFF_FACTOR and met, max(of_new) < 1 / CLIFF_FACTOR and missed
        if fell or rose:
            return kept[end - AGREED :]
    return kept


def _alone(probe: Probe, bounds: Sequence[Bound]) -> float:
    return max(_ratio(bound, *sum_counts([probe], bound)) for bound in bounds)


def estimate_launch(probes: Sequence[Probe], bounds: Sequence[Bound]) -> LaunchEstimate:
    """Estimate the capacity of a launch from its probes."""
    all_sound, kept = select_sound(probes, bounds), select_fresh(probes, bounds)
    low, high = find_bracket(pool_levels(kept, bounds))
    if low is None or high is None:
        kept = all_sound  # where the budget ended before the new place was known
        low, high = find_bracket(pool_levels(kept, bounds))
    drift = "" if len(kept) == len(all_sound) else "it changed by much; earlier probes are left out"
    broken = low is not None and high is not None and is_cliff(low, high)
    found = [] if broken else fit_boundaries(kept, bounds)
    if found and low is None and high is not None and found[0][1].place > math.log(high.rate):
        found = []  # nothing met, and a line drawn over what missed says it would
    if found:
        # Among the rates of probes, or next above where the client is free to send more, it is a
        # boundary though noise has set no bracket.
        logs = [math.log(probe.rate) for probe in kept]
        above = max(logs) + (REACH if find_ceiling(probes) is None else 0.0)
        if (low and high) or min(logs) <= found[0][1].place <= above:
            return _fitted(found, bounds, low, high, drift)
    ends = (low.rate if low else None, high.rate if high else None)
    binds = None
    if high is not None:  # the bound that is farthest beyond there
        missed = [probe for probe in kept if probe.rate == high.rate]
        binds = max(bounds, key=lambda bound: _ratio(bound, *sum_counts(missed, bound))).name
    if low is not None and high is not None:
        rate, error = math.sqrt(low.rate * high.rate), measure_gap(low, high) / math.sqrt(12)
        short = _short(kept, bounds, (low.rate, high.rate), FEWEST_BAD)
        few = () if broken else ("the probes near the boundary are too few for a fit", *short)
        return LaunchEstimate(rate, error, *ends, binds, cliff=broken, drift=drift, doubts=few)
    end: Literal["client", "floor"] | None = "floor"
    if high is None:
        end = None if find_ceiling(probes) is None else "client"
    doubts = [] if end else ["no rate missed"] if low else ["no probe is sound"]
    if low is not None:
        doubts += _short(kept, bounds, (low.rate,), RULE_OF_THREE)
    return LaunchEstimate(None, None, *ends, binds=binds, ceiling=end, doubts=tuple(doubts))


def _short(
    kept: Sequence[Probe], bounds: Sequence[Bound], rates: Sequence[float], allowed: float
) -> Iterator[str]:
    """Yield for each bound that is a share how many requests at `rates` it takes for an estimate.

    So many that `allowed` of them may be beyond it; nothing where there were as many."""
    for bound in bounds:
        expected, _ = sum_counts((probe for probe in kept if probe.rate in rates), bound)
        if bound.kind == "share" and bound.most and expected < allowed:
            yield _needs(bound, allowed, f"{expected / bound.most:,.0f} were measured")


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
    """Estimate the capacity from the boundaries, the lowest first."""
    (name, edge), error, doubts = found[0], found[0][1].error, []
    if error is None:
        # Each block has a relative error of 1.
        error = 1 / (edge.slope * math.sqrt(max(1, edge.blocks)))
        doubts.append(f"{edge.blocks} blocks near the boundary: too few for an error of their own")
    elif edge.block_s < CORRELATIONS / 2 * edge.correlation_s:
        length = f"blocks of {edge.block_s:.3g} s"
        doubts.append(f"{length} are too short: what is bad stays so for long")
    bound = next(candidate for candidate in bounds if candidate.name == name)
    if bound.kind == "share" and bound.most and edge.bad < FEWEST_BAD:
        doubts.append(_needs(bound, FEWEST_BAD, f"{edge.bad:.0f} lay beyond it"))
    if edge.slope * error > STEEP:
        doubts.append("too short for so steep a boundary: longer launches (--launch-time)")
    if edge.changed_s is not None:
        word, share = "fell" if edge.change < 0 else "rose", 100 * abs(math.expm1(edge.change))
        drift = f"the capacity {word} by about {share:.2g} % at {edge.changed_s:.0f} s"
    return LaunchEstimate(
        math.exp(edge.place),
        error,
        low.rate if low else None,
        high.rate if high else None,
        binds=name,
        next=(found[1][0], math.exp(found[1][1].place)) if len(found) > 1 else None,
        slope=edge.slope,
        blocks=edge.blocks,
        block_s=edge.block_s,
        correlation_s=edge.correlation_s,
        drift=drift,
        doubts=tuple(doubts),
    )


def fit_boundaries(kept: Sequence[Probe], bounds: Sequence[Bound]) -> list[tuple[str, Boundary]]:
    """Return the boundary of each bound that was met and missed, or nearly so; the lowest first.

    `kept`: sound probes."""
    found = []
    for bound in bounds:
        ends = [level for level in find_bracket(pool_levels(kept, [bound])) if level is not None]
        if len(ends) == 2 or (ends and 1 / NEAR < ends[0].ratio < NEAR):
            middle = math.fsum(math.log(level.rate) for level in ends) / len(ends)
            if (edge := fit_boundary(kept, bound, middle)) is not None:
                found.append((bound.name, edge))
    return sorted(found, key=lambda pair: pair[1].place)


def pool_launches(estimates: Sequence[LaunchEstimate], precision: float = PRECISION) -> Capacity:
    """Estimate the capacity over launches; only bounded where a launch is."""
    launches = tuple(estimates)
    open_ended = [found for found in launches if found.rate is None and found.ceiling is None]
    left_out = open_ended if len(open_ended) <= UNFINISHED * len(launches) else []
    counted = [found for found in launches if found not in left_out]
    rates = [(found.rate, found.error or 0.0) for found in counted if found.rate is not None]
    if not counted or len(rates) < len(counted):
        return _bounded(launches)
    logs = [math.log(rate) for rate, _ in rates]
    center, n = statistics.fmean(logs), len(logs)
    noise = statistics.fmean(error**2 for _, error in rates)
    spread = statistics.stdev(logs) if n > 1 else None
    variance = noise if spread is None else max(noise, spread**2)
    df = float(n - 1) if n > 1 else ONE_DF
    half = quantile(df, 1 - LOOKS / 2) * math.sqrt(variance / n)
    # Of a cliff only the bracket is known, and the middle of brackets says nothing of inside.
    half += statistics.fmean(_half_bracket(found) for found in counted)
    # By how much few bursts make a launch look better (boundary.py) is taken off already, but known
    # no better than the error that it follows from, so that the lower end reaches further.
    bends = [(found.slope or 0.0) * (found.error or 0.0) ** 2 for found in counted]
    bias = statistics.fmean(bends) / 2
    low, rate, high = map(math.exp, (center - half - bias, center, center + half))
    precise = (high - low) / rate <= precision and n > 1
    doubts = [] if n > 1 else ["one launch: the spread between launches is unknown"]
    if left_out:
        doubts.append(f"{len(left_out)} of {len(launches)} launches: no rate missed; left out")
    return Capacity(rate, low, high, launches, precise, spread, tuple(doubts))


def _half_bracket(launch: LaunchEstimate) -> float:
    known = launch.cliff and launch.low and launch.high
    return math.log((launch.high or 1.0) / (launch.low or 1.0)) / 2 if known else 0.0


def _bounded(launches: tuple[LaunchEstimate, ...]) -> Capacity:
    """Bound a capacity: at least what every launch met, at most what every launch missed."""
    lows = [found.low if found.rate is None else found.rate for found in launches]
    highs = [found.high if found.rate is None else found.rate for found in launches]
    low = min((low for low in lows if low is not None), default=None)
    high = max((high for high in highs if high is not None), default=None)
    count = sum(found.rate is None for found in launches)
    only = f"the capacity of {count} of {len(launches)} launches is only bounded"
    ends = None if None in lows else low, None if None in highs else high
    return Capacity(None, *ends, launches, doubts=(only,) if launches else ())


def is_enough(
    estimates: Sequence[LaunchEstimate], precision: float = PRECISION, planned: int = 3
) -> bool:
    """Return whether no further launch is needed.

    The planned ones are there, and the interval is narrow or, where launches are only bounded, no
    further one would make it so."""
    if len(estimates) < planned:
        return False
    capacity = pool_launches(estimates, precision)
    return capacity.precise or capacity.rate is None


def compare_capacities(a: Capacity, b: Capacity) -> tuple[float, float, float]:
    """Return B/A with its 95 % interval (Welch on logarithms, the variances floored as above).

    Raises ValueError where one is only bounded or has a single launch."""
    parts = []
    for capacity in (a, b):
        if capacity.rate is None or capacity.spread is None:
            raise ValueError("a ratio takes two capacities, each over two launches or more")
        launches = [launch for launch in capacity.launches if launch.rate is not None]
        n = len(launches)
        noise = statistics.fmean((launch.error or 0.0) ** 2 for launch in launches)
        bracket = statistics.fmean(_half_bracket(launch) for launch in launches)
        parts.append((math.log(capacity.rate), max(noise, capacity.spread**2) / n, n - 1, bracket))
    (of_a, va, na, ba), (of_b, vb, nb, bb) = parts
    center, df = of_b - of_a, freedom((va, na), (vb, nb))
    half = quantile(df, 0.5 + CONFIDENCE / 2) * math.sqrt(va + vb) + ba + bb
    return math.exp(center), math.exp(center - half), math.exp(center + half)
