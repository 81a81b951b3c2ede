"""The search on one launch: which rate to measure next.

Pure, and a function of the probes alone, so that a resumed run rebuilds it from its records.

It goes up or down by factors until a rate met and another missed, then halves the distance in
ln(rate) until the boundary is near. Longer probes follow, in turn below and above it, for the fit
of estimate.py. Where the service breaks at once and no line can be drawn, it halves until the
bracket is narrow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from serve_bench.analysis.capacity.boundary import BEND, BLOCK_S
from serve_bench.analysis.capacity.estimate import (
    AGREED,
    CLIFF_FACTOR,
    CLIFF_GAP,
    RateLevel,
    estimate_launch,
    find_bracket,
    find_ceiling,
    fit_boundaries,
    is_cliff,
    is_gradual,
    measure_gap,
    pool_levels,
    select_fresh,
    select_grown,
)
from serve_bench.analysis.capacity.model import PRECISION, Ask, Bound, Probe

BUDGET_S: Final = 120.0
"""Measured seconds on a launch: what a person waits for, with 80 s of it at the boundary."""

FIRST_RATE: Final = 10.0
"""Where it begins without a hint: a service that cannot do 10/s is rare, and from there seven
doublings reach 1000/s."""

SHORT_S, LONG_S = 3.0, 15.0
"""Lengths of a probe: far from the boundary, and at it (three blocks)."""

LONGEST_S: Final = 20.0
"""No probe is longer, however few requests it has."""

TIGHTEST: Final = 0.5e-3
"""Bounds below set no length of a probe: no number of requests is enough for none at all."""

BEYOND: Final = 10.0
"""Requests beyond a percentile in a probe at its bound that are worth a look: their number has a
relative error of a third."""

SPREAD: Final = math.log(2.5)
"""How far, in ln(value), probes at the boundary lie below and above it: far enough for a slope,
near enough for a line; above, there are more bad requests, and the error is smaller."""

STEPS: Final = (0.04, 0.1)
"""The same in ln(rate): at least, since a slope that luck made steep would keep all probes at one
place, and at most. Of a small error the bend of the line would be a large part."""

SHARE: Final = 0.1
"""Of the precision: a launch with a smaller error has said enough; three of them need 0.14 (7 x 2 /
sqrt(3) = 8)."""

BELIEVED_S: Final = 60.0
"""At the boundary, before the error of a launch is believed: that of fewer blocks is small by luck
where no burst came."""

NEARLY: Final = 0.4
"""A value over its bound from which (and from its inverse) the boundary may be next to a rate: with
a slope of 10 it is 10 % away. Further steps are small, and their probes long: of 3 s, luck would
lead the search astray."""

CLOSE: Final = 0.095
"""ln(rate): a client that fails 10 % above a rate that met is a ceiling; nearer is not looked."""

ATTEMPTS: Final = 3
"""Probes of one rate that are broken off in a row before the search gives up."""


@dataclass
class RateSearch:
    """The search on one launch, and the probes so far."""

    bounds: Sequence[Bound]
    precision: float = PRECISION
    budget_s: float = BUDGET_S
    start: float | None = None  # a rate near the capacity (requests/s), where one is known
    least: float = 1.0  # requests/s, as `most`: rates that bound the search
    most: float = 1e6
    probes: list[Probe] = field(default_factory=list)
    _moves: dict[int, Ask | None] = field(default_factory=dict)
    """The move that follows, by the number of probes."""

    @property
    def left_s(self) -> float:
        """The remaining budget, in measured seconds.

        Probes that say nothing since Serve changed the replicas are measured in addition, for as
        long again at most."""
        of_use = math.fsum(probe.seconds for probe in select_grown(self.probes, self.bounds))
        all_s = math.fsum(probe.seconds for probe in self.probes)
        return min(self.budget_s - of_use, 2 * self.budget_s - all_s)

    @property
    def expected_left_s(self) -> float:
        """The measured seconds that are likely to follow: most searches use their budget."""
        return 0.0 if self.next() is None else max(0.0, self.left_s)

    def add(self, probe: Probe) -> None:
        """Add a probe that was measured."""
        self.probes.append(probe)

    def next(self) -> Ask | None:
        """Return the next probe to measure; None at the end."""
        count = len(self.probes)
        if count not in self._moves:
            self._moves[count] = self._next()
        return self._moves[count]

    def _next(self) -> Ask | None:
        """Decide on the next probe from all so far; None at the end."""
        newest = self.probes[-ATTEMPTS:]
        broken_off = len(newest) == ATTEMPTS and not any(probe.whole for probe in newest)
        if broken_off or self.left_s < SHORT_S:
            return None
        if newest and self._is_doubted(newest[-1]):
            return self._ask(newest[-1].rate, SHORT_S)
        kept = select_fresh(self.probes, self.bounds)
        levels = pool_levels(kept, self.bounds)
        if not levels:
            if (most := find_ceiling(self.probes)) is not None:
                lowest = most <= self.least * (1 + 1e-9)
                return None if lowest else self._ask(most / 2, 0.0)
            return self._ask(self.start or FIRST_RATE, 0.0)
        low, high = find_bracket(levels)
        if low is None:
            return self._down(levels)
        if high is None:
            return self._up(levels)
        if not is_gradual(low, high):
            if measure_gap(low, high) > CLIFF_GAP:
                return self._ask(math.sqrt(low.rate * high.rate), BLOCK_S)
            if is_cliff(low, high):
                return self._cliff(low, high)
        if (doubted := self._doubted(kept, low, high)) is not None:
            return self._ask(doubted, BLOCK_S)
        return self._fit(kept, low, high)

    def _doubted(self, kept: Sequence[Probe], low: RateLevel, high: RateLevel) -> float | None:
        """Return the end of the bracket to measure again: that of one probe, perhaps luck.

        Only where the newest probes are all far on the other side of the bound: or the service has
        changed."""
        newest = [level for probe in kept[-AGREED:] for level in pool_levels([probe], self.bounds)]
        if low.probes < AGREED and all(probe.ratio > CLIFF_FACTOR for probe in newest):
            return low.rate
        if high.probes < AGREED and all(probe.ratio < 1 / CLIFF_FACTOR for probe in newest):
            return high.rate
        return None

    def _is_doubted(self, last: Probe) -> bool:
        """Return whether the last probe is not to be relied on."""
        if last.client_bound:
            lower = (probe for probe in self.probes if probe.rate <= last.rate)
            return sum(probe.client_bound for probe in lower) < AGREED
        return not (last.whole and last.steady)

    def _up(self, levels: Sequence[RateLevel]) -> Ask | None:
        top, most = levels[-1], find_ceiling(self.probes)
        at_ceiling = most is not None and most <= top.rate * math.exp(CLOSE)
        if at_ceiling or top.rate >= self.most:
            return None
        factor, seconds = self._step(top.ratio > NEARLY, top.ratio > NEARLY / 10)
        rate = top.rate * factor
        if most is not None and rate >= most:
            return self._ask(math.sqrt(top.rate * most), SHORT_S)
        return self._ask(rate, seconds)

    def _down(self, levels: Sequence[RateLevel]) -> Ask | None:
        bottom = levels[0]
        if bottom.rate <= self.least * (1 + 1e-9):
            return self._ask(bottom.rate, SHORT_S) if bottom.probes < AGREED else None
        factor, seconds = self._step(bottom.ratio < 1 / NEARLY, bottom.ratio < 10 / NEARLY)
        return self._ask(bottom.rate / factor, seconds)

    def _step(self, next_to: bool, near: bool) -> tuple[float, float]:
        """Return the factor of a step and the seconds of its probe.

        A step is small near the boundary, where overload is dear, and first from a hint."""
        steps = len({probe.rate for probe in self.probes})
        hinted = {1: 1.25, 2: 1.5}.get(steps, 2.0) if self.start else 2.0
        if next_to:
            return min(hinted, 1.2), LONG_S
        return (min(hinted, 1.5), SHORT_S) if near else (hinted, 0.0)

    def _cliff(self, low: RateLevel, high: RateLevel) -> Ask | None:
        """Ask for both ends for LONG_S, then for halves until the bracket is narrow.

        That is a quarter of the precision: the launches have the rest. A queue near to full use
        takes long to grow, so that shorter probes show a steep boundary as a cliff, and too
        high."""
        for end in (low, high):
            if end.seconds < LONG_S:
                return self._ask(end.rate, LONG_S)
        if measure_gap(low, high) <= self.precision / 4:
            return None
        return self._ask(math.sqrt(low.rate * high.rate), LONG_S)

    def _fit(self, kept: Sequence[Probe], low: RateLevel, high: RateLevel) -> Ask | None:
        """Ask for a longer probe below or above the boundary, until its error is small."""
        seconds = min(LONG_S, self.left_s)
        if seconds < BLOCK_S:
            return None
        if self.left_s - seconds < BLOCK_S:
            seconds = min(LONGEST_S, self.left_s)
        found = fit_boundaries(kept, self.bounds)
        if not found:
            return self._ask(math.sqrt(low.rate * high.rate), seconds)
        edge = found[0][1]
        if edge.seconds >= BELIEVED_S and edge.error is not None:
            estimated = estimate_launch(self.probes, self.bounds)
            if estimated.error is not None and estimated.error <= SHARE * self.precision:
                return None
        most = find_ceiling(self.probes)
        if most is not None and math.exp(edge.place) >= most:
            return None
        # The bracket needs no line: it holds back one that few blocks have led astray.
        place = min(max(edge.place, math.log(low.rate) - STEPS[0]), math.log(high.rate) + STEPS[0])
        widest = STEPS[1] if edge.error is None else min(STEPS[1], BEND / 2 * edge.error)
        step = max(STEPS[0], min(widest, SPREAD / edge.slope))
        far = [((math.log(probe.rate) - place) / step, probe.seconds) for probe in kept]
        below = sum(seconds for steps, seconds in far if -2 <= steps <= 0)
        above = sum(seconds for steps, seconds in far if 0 <= steps <= 2)
        if above < below:
            most = min(most * 0.98 if most else math.inf, high.rate if _far(high) else math.inf)
            return self._ask(min(math.exp(place + step), most), seconds)
        rate = math.exp(place - step)
        return self._ask(max(rate, low.rate) if _far(low) else rate, seconds)

    def _ask(self, rate: float, seconds: float) -> Ask:
        """Ask for a probe, long enough for the percentile with the fewest requests beyond it.

        `seconds` 0: as short as can be, far from the boundary."""
        rate = min(self.most, max(self.least, float(f"{rate:.4g}")))
        shares = [bound.most for bound in self.bounds if bound.kind == "share"]
        tightest = min((share for share in shares if share >= TIGHTEST), default=1.0)
        needed = math.ceil(2 * BEYOND / tightest / rate) / 2
        length = max(seconds, min(LONGEST_S, needed)) if seconds else SHORT_S
        return Ask(rate, max(SHORT_S, min(length, self.left_s)))


def _far(end: RateLevel) -> bool:
    """Return whether an end of the bracket is far enough from its bound for a probe of the fit."""
    return abs(math.log(end.least)) > SPREAD
