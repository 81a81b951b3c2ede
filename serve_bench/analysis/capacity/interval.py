"""The capacity over fresh launches, with its 95 % interval, and the ratio of two. Pure.

Launches are the unit of repetition: a t interval on the logarithms of their capacities. Their
variance is at least the mean square of their own errors, so that launches that agree by luck do not
make the interval narrow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from serve_bench.analysis.capacity.model import PRECISION, Capacity, LaunchEstimate
from serve_bench.analysis.ratios import CONFIDENCE, quantile

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


def over_launches(estimates: Sequence[LaunchEstimate], precision: float = PRECISION) -> Capacity:
    """The capacity over launches. Bounded alone where a launch is only bounded."""
    every = tuple(estimates)
    open_ended = [one for one in every if one.rate is None and one.ceiling is None]
    left_out = open_ended if len(open_ended) <= UNFINISHED * len(every) else []
    counted = [one for one in every if one not in left_out]
    known = [(one.rate, one.error or 0.0) for one in counted if one.rate is not None]
    if not counted or len(known) < len(counted):
        return _bounded(every)
    logs = [math.log(rate) for rate, _ in known]
    center, n = statistics.fmean(logs), len(logs)
    own = statistics.fmean(error**2 for _, error in known)
    spread = statistics.stdev(logs) if n > 1 else None
    variance = own if spread is None else max(own, spread**2)
    df = float(n - 1) if n > 1 else ONE_DF
    half = quantile(df, 1 - LOOKS / 2) * math.sqrt(variance / n)
    # Of a cliff only the bracket is known, and the middle of brackets says nothing of inside.
    half += statistics.fmean(_half_bracket(one) for one in counted)
    low = math.exp(center - half - statistics.fmean(_bias(one) for one in counted))
    high = math.exp(center + half)
    rate = math.exp(center)
    precise = (high - low) / rate <= precision and n > 1
    doubts = [] if n > 1 else ["one launch: the spread between launches is unknown"]
    if left_out:
        doubts.append(f"{len(left_out)} of {len(every)} launches: no rate missed; left out")
    return Capacity(rate, low, high, every, precise, spread, tuple(doubts))


def _bias(one: LaunchEstimate) -> float:
    """By how much few bursts make a launch look better (boundary.py): it is taken off already, but
    known no better than the error that it follows from, so that the lower end reaches further."""
    return (one.slope or 0.0) * (one.error or 0.0) ** 2 / 2


def _half_bracket(one: LaunchEstimate) -> float:
    if not one.cliff or one.low is None or one.high is None:
        return 0.0
    return math.log(one.high / one.low) / 2


def _bounded(every: tuple[LaunchEstimate, ...]) -> Capacity:
    """At least what every launch met, at most what every launch missed."""
    lows = [one.low if one.rate is None else one.rate for one in every]
    highs = [one.high if one.rate is None else one.rate for one in every]
    low = min((one for one in lows if one is not None), default=None)
    high = max((one for one in highs if one is not None), default=None)
    count = sum(one.rate is None for one in every)
    return Capacity(
        None,
        None if None in lows else low,
        None if None in highs else high,
        every,
        doubts=(f"the capacity of {count} of {len(every)} launches is only bounded",)
        if every
        else (),
    )


def enough(
    estimates: Sequence[LaunchEstimate], precision: float = PRECISION, planned: int = 3
) -> bool:
    """Whether no further launch is needed: the planned ones are there, and the interval is narrow
    or, where launches are only bounded, no further one would make it so."""
    if len(estimates) < planned:
        return False
    capacity = over_launches(estimates, precision)
    return capacity.precise or capacity.rate is None


def ratio(a: Capacity, b: Capacity) -> tuple[float, float, float]:
    """B/A with its 95 % interval (Welch on logarithms, the variances floored as above).

    Raises ValueError where one is only bounded or has a single launch.
    """
    parts = []
    for one in (a, b):
        if one.rate is None or one.spread is None:
            raise ValueError("a ratio takes two capacities, each over two launches or more")
        known = [launch for launch in one.launches if launch.rate is not None]
        n = len(known)
        own = statistics.fmean((launch.error or 0.0) ** 2 for launch in known)
        bracket = statistics.fmean(_half_bracket(launch) for launch in known)
        parts.append((math.log(one.rate), max(own, one.spread**2) / n, n - 1, bracket))
    (of_a, va, na, ba), (of_b, vb, nb, bb) = parts
    squared, center = va + vb, of_b - of_a
    df = squared**2 / (va**2 / na + vb**2 / nb) if squared else float(na + nb)
    half = quantile(df, 0.5 + CONFIDENCE / 2) * math.sqrt(squared) + ba + bb
    return math.exp(center), math.exp(center - half), math.exp(center + half)
