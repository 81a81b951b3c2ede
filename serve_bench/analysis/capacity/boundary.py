"""The rate at which one bound is just met, from blocks of time in probes near to it. Pure.

Model: near the boundary what the bound limits grows as exp(slope x (ln(rate) - place)), and counts
of blocks scatter around that (quasi-likelihood [McCullagh, Nelder 1989, 9]). Bad requests come in
bursts: below the bound the variance grows as the number of bursts, with the mean; above it the
bursts grow, and the relative error stays (M/M/1, blocks of 5 s: 1.6 at p99 and 1.4 at p93). So the
variance of a block is in proportion to mean x (1 + mean / bound), which lessens its weight.
Requests are not independent, so that only blocks of time are repeated: the error comes from leaving
out one block after the other (jackknife [Tukey 1958]), and from it the bias of the logarithm of a
mean of few bursts, slope x error^2 / 2 (delta method).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.capacity.model import Bound, Probe

BLOCK_S: Final = 5.0
"""The shortest block: what recurs in seconds (collection of garbage, health checks, stalls) lies
inside of it, and 100 s still make 20 blocks."""

CORRELATIONS: Final = 5.0
"""Autocorrelation times in a block at least; blocks then are nearly independent."""

FEWEST_BLOCKS: Final = 4
"""Below, no error is taken from the scatter of blocks."""

SETTLE_S: Final = 30.0
"""A fresh launch settles: caches, pools of connections, scaling. Blocks of its first 30 s, which
are those of the search, are left out where ENOUGH_S of others are there (deletion of the initial
transient [Law, Kelton 2000, 9.5.1])."""

ENOUGH_S: Final = 40.0
"""Eight of the shortest blocks, enough to estimate their error."""

REACH, FARTHEST = 0.12, 0.25
"""ln(rate): how near to the place blocks count, or as far as it takes for SIDE_S on either side.
Beyond, the line bends: a value that grows as 1 / (1 - use) is 1.5 % off in the middle at 60 % use
with 12 %, and 8 % with 25 %; and an overload has no steady state."""

NEAREST, BEND = 0.05, 12.0
"""A launch with a small error reaches less far: BEND errors, NEAREST at least. At 60 % use the bend
of 12 errors of 1 % makes 1.5 errors, that of 12 errors of 0.5 % less than one."""

SIDE_S: Final = 20.0
"""FEWEST_BLOCKS of the shortest: with fewer on one side, luck sets the slope."""

SLOPE: Final = 20.0
"""The slope that is likely before anything is known: of p99 in M/M/1 it is use x ln(100) / (1 -
use), 5 to 40 at 50 to 90 % use. A steep guess moves the place in small steps, a gentle one throws
it past the boundary: launches of M/M/1 scatter by 2.4 % with 20, 3 % with 15, 3.4 % with 10."""

SLOPE_SD: Final = 1.0
"""Standard deviation of ln(slope) before anything is known: a factor of e either way."""

CHANGED: Final = 1.63
"""The 1 % point of the largest |Brownian bridge| [Kolmogorov 1933]: cumulated residuals beyond it
show that the service has changed."""

_LEAST_SLOPE, _MOST_SLOPE = 0.5, 400.0
_ROUNDS: Final = 3
_HALVINGS: Final = 18


@dataclass(frozen=True)
class Block:
    """Counts of a stretch of a probe."""

    x: float  # ln(rate)
    expected: float  # what the bound allows
    bad: float
    began_s: float
    seconds: float


@dataclass(frozen=True)
class BoundaryLine:
    """ln(value / bound) = slope x (x - place)."""

    place: float
    slope: float
    scatter: float  # variance of a count over its mean, at the place and by weight

    def mean(self, block: Block) -> float:
        """Return what the line expects of a block."""
        return block.expected * self.ratio(block)

    def ratio(self, block: Block) -> float:
        """Return the value over the bound that it expects at the rate of a block."""
        return math.exp(min(50.0, self.slope * (block.x - self.place)))

    def weight(self, block: Block) -> float:
        """Return the weight of a count of the block."""
        return 2 / (1 + self.ratio(block))


@dataclass(frozen=True)
class Boundary:
    """Where a bound is just met."""

    place: float  # ln(rate)
    error: float | None  # the standard error of `place`; None: too few blocks
    slope: float
    blocks: int
    seconds: float
    bad: float  # requests beyond the bound
    correlation_s: float = 0.0
    changed_s: float | None = None  # since when the service is as it is now
    change: float = 0.0  # by which the place then moved

    @property
    def block_s(self) -> float:
        """The mean length of its blocks."""
        return self.seconds / self.blocks


def measure_correlation_s(probes: Sequence[Probe], bound: Bound) -> float:
    """Estimate the autocorrelation time of the slices of probes (s); half a slice if independent.

    It is the sum of the autocorrelations up to the first that is hardly there [Geyer 1992]."""
    series = []
    for probe in probes:
        bad = probe.slices[bound.name].bad
        mean = math.fsum(bad) / len(bad)
        series.append([value - mean if abs(value - mean) > 1e-9 * mean else 0.0 for value in bad])
    longest = max((len(numbers) for numbers in series), default=0) // 3
    power = sum(value * value for numbers in series for value in numbers)
    total = 0.5
    for lag in range(1, longest + 1):
        pairs = (pair for values in series for pair in zip(values, values[lag:], strict=False))
        correlation = sum(a * b for a, b in pairs) / power if power else 0.0
        if correlation < 0.1:
            break
        total += correlation
    return total * max((probe.slice_s for probe in probes), default=0.0)


def cut_blocks(
    probes: Sequence[Probe], bound: Bound, block_s: float, settle_s: float
) -> list[Block]:
    """Cut probes into blocks in order of time, each of `block_s` or a little less.

    A shorter probe is one block, but none far below BLOCK_S. The first `settle_s` of each probe, at
    most a quarter, are left out: its queue was empty before."""
    blocks = []
    for probe in probes:
        slices = probe.slices[bound.name]
        first = min(math.ceil(settle_s / probe.slice_s), len(slices.of) // 4)
        total, bad = slices.of[first:], slices.bad[first:]
        seconds = len(total) * probe.slice_s
        if seconds < 0.7 * BLOCK_S:
            continue
        number = max(1, int(seconds / (0.85 * block_s)))
        ends = [round(len(total) * part / number) for part in range(number + 1)]
        for start, end in itertools.pairwise(ends):
            expected, beyond = bound.most * math.fsum(total[start:end]), math.fsum(bad[start:end])
            began_s, length_s = (n * probe.slice_s for n in (first + start, end - start))
            about = expected, beyond, probe.began_s + began_s, length_s
            blocks.append(Block(math.log(probe.rate), *about))
    return sorted((block for block in blocks if block.expected), key=lambda block: block.began_s)


def fit_line(blocks: Sequence[Block], guess: BoundaryLine) -> BoundaryLine | None:
    """Fit the line through blocks with the weights and the scatter of `guess`; None if none is bad.

    For a slope b the place is ln(sum expected exp(b x) / sum bad) / b, with weights; the slope
    maximizes the quasi-likelihood, with the prior of SLOPE."""
    origin = sum(block.x for block in blocks) / len(blocks)
    points = []
    bad = moment = 0.0
    for block in blocks:
        weight, x = guess.weight(block), block.x - origin
        points.append((x, weight * block.expected))
        bad += weight * block.bad
        moment += weight * block.bad * x
    if bad <= 0:
        return None
    low, high = math.log(_LEAST_SLOPE), math.log(_MOST_SLOPE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = math.exp(middle)
        total = first = 0.0
        for x, expected in points:
            mean = expected * math.exp(slope * x)
            total += mean
            first += mean * x
        gain = slope * (moment - bad * first / total) / guess.scatter
        steeper = gain > (middle - math.log(SLOPE)) / SLOPE_SD**2
        low, high = (middle, high) if steeper else (low, middle)
    slope = math.exp((low + high) / 2)
    weight = sum(expected * math.exp(slope * x) for x, expected in points)
    return BoundaryLine(origin + math.log(weight / bad) / slope, slope, guess.scatter)


def fit_boundary(probes: Sequence[Probe], bound: Bound, place: float) -> Boundary | None:
    """Estimate where `bound` is just met, near `place` (ln(rate)), from sound probes.

    None where no probe is near, or nothing was bad."""
    sliced = [probe for probe in probes if (counts := probe.slices.get(bound.name)) and counts.of]
    close = [probe for probe in sliced if abs(math.log(probe.rate) - place) <= FARTHEST]
    if not close or not bound.most:
        return None
    tau = measure_correlation_s(close, bound)
    block_s = max(BLOCK_S, CORRELATIONS * tau)
    all_blocks = cut_blocks(sliced, bound, block_s, 2 * tau)
    found = _estimate(all_blocks, BoundaryLine(place, SLOPE, 1.0), REACH)
    if found is not None and found.error is not None and BEND * found.error < REACH:
        guess = BoundaryLine(found.place, found.slope, 1.0)
        nearer = _estimate(all_blocks, guess, max(NEAREST, BEND * found.error))
        found = nearer if nearer is not None and nearer.error is not None else found
    return None if found is None else replace(found, correlation_s=tau)


def _estimate(all_blocks: Sequence[Block], line: BoundaryLine, reach: float) -> Boundary | None:
    """Fit the line to the blocks near it, in rounds; return its place, error and change."""
    for _ in range(_ROUNDS):
        found = _fitted(_near(all_blocks, line, reach), line)
        if found is None:
            return None
        line = found
    blocks, changed_s, change = _near(all_blocks, line, reach), None, 0.0
    changed = _change(blocks, line)
    if changed is not None:
        before, blocks = blocks[:changed], blocks[changed:]
        changed_s = blocks[0].began_s
        line = _fitted(blocks, line) or line
        bad = sum(block.bad for block in before) + 0.5
        change = math.log(bad / sum(map(line.mean, before))) / line.slope
    else:
        late = [block for block in blocks if block.began_s >= SETTLE_S]
        if sum(block.seconds for block in late) >= ENOUGH_S:
            blocks = late
            line = _fitted(blocks, line) or line
    if not any(block.bad for block in blocks):
        return None
    place, error = _jackknife(blocks, line)
    return Boundary(
        place,
        error,
        line.slope,
        len(blocks),
        sum(block.seconds for block in blocks),
        sum(block.bad for block in blocks),
        changed_s=changed_s,
        change=change,
    )


def _near(blocks: Sequence[Block], line: BoundaryLine, reach: float) -> list[Block]:
    """Return the blocks within `reach` of the place, or so far that either side has SIDE_S."""
    for sign in (-1, 1):
        far, seconds = 0.0, 0.0
        for block in sorted(blocks, key=lambda block: abs(block.x - line.place)):
            if sign * (block.x - line.place) >= 0 and seconds < SIDE_S:
                far, seconds = abs(block.x - line.place), seconds + block.seconds
        reach = max(reach, min(far, FARTHEST))
    return [block for block in blocks if abs(block.x - line.place) <= reach]


def _fitted(blocks: Sequence[Block], guess: BoundaryLine) -> BoundaryLine | None:
    """Fit the line with the scatter of the blocks around it.

    As if one more block had been seen with a relative error of a third: the scatter of a few blocks
    is too small by luck."""
    if not blocks:
        return None
    usual = sum(block.expected for block in blocks) / len(blocks)
    line = fit_line(blocks, BoundaryLine(guess.place, guess.slope, usual))
    if line is None:
        return None
    misses = ((block, line.mean(block)) for block in blocks)
    squares = sum(line.weight(block) * (block.bad - mean) ** 2 / mean for block, mean in misses)
    scatter = (squares + 0.1 * usual) / max(1, len(blocks) - 1)
    return fit_line(blocks, BoundaryLine(line.place, line.slope, scatter))


def _jackknife(blocks: Sequence[Block], line: BoundaryLine) -> tuple[float, float | None]:
    """Return the place without its bias, and its error; None below FEWEST_BLOCKS."""
    n = len(blocks)
    if n < FEWEST_BLOCKS:
        return line.place, None
    without = [fit_line([*blocks[:k], *blocks[k + 1 :]], line) for k in range(n)]
    places = [line.place for line in without if line is not None]
    if len(places) < n:
        return line.place, None
    mean = sum(places) / n
    error = math.sqrt((n - 1) / n * sum((place - mean) ** 2 for place in places))
    # By the delta method; the bias by the jackknife itself varies too much.
    bias = min(line.slope * error**2 / 2, error / 2)
    return line.place - bias, error


def _change(blocks: Sequence[Block], line: BoundaryLine) -> int | None:
    """Return the index of the first block since the service changed; None where it did not."""
    if len(blocks) < 3 * FEWEST_BLOCKS:
        return None
    means = [line.mean(block) * line.weight(block) for block in blocks]
    bads = [block.bad * line.weight(block) for block in blocks]
    total, rest = sum(means), sum(bads) - sum(means)
    sums, passed, largest, place = 0.0, 0.0, 0.0, 0
    for number, (bad, mean) in enumerate(zip(bads, means, strict=True), 1):
        sums, passed = sums + bad - mean, passed + mean
        bridge = abs(sums - rest * passed / total) / math.sqrt(line.scatter * total)
        if bridge > largest and 2 <= number <= len(blocks) - FEWEST_BLOCKS:
            largest, place = bridge, number
    return place if largest > CHANGED else None
