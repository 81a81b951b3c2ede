"""A histogram of durations in constant memory, mergeable without loss.

Rule: a value's slot is found from its bit length alone, so that recording is a few integer
operations and any two histograms have the same slots. The widest slot is 1/1024 of its value, so
the middle of a slot is off by at most 0.05 %. No clock and no file is touched here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from msgspec import Meta

from serve_bench.core.numbers import Count

SUB_BITS = 10
"""Each power of two is cut into 2**10 slots: half a slot is 0.05 % of the value."""

SHIFT = SUB_BITS + 1
"""Values below 2**11 have a slot each; above, `e = v.bit_length() - 11` low bits are dropped."""

SLOTS = 32 << SUB_BITS
"""32,768 slots: values up to 2**41 ns (36.6 minutes)."""

MAX_VALUE = (1 << 41) - 1

_EMPTY = [0] * 256
"""A block of slots without a count."""

Slot: TypeAlias = Annotated[int, Meta(ge=0, lt=SLOTS)]


class HistogramFacts(TypedDict):
    """What `Histogram.encode` gives: the slots that hold anything, and their counts."""

    unit: str
    sub_bits: Literal[10]  # SUB_BITS
    max: Count
    index: list[Slot]
    count: list[Count]


def slot(value: int) -> int:
    """Return the slot of a value in ns. Below 0 counts as 0; above MAX_VALUE as MAX_VALUE."""
    if value < 0:
        return 0
    if value > MAX_VALUE:
        return SLOTS - 1
    e = value.bit_length() - SHIFT
    return (e << SUB_BITS) + (value >> e) if e > 0 else value


def slot_start(index: int) -> int:
    """Return the lowest value of a slot."""
    e = max(0, (index >> SUB_BITS) - 1)
    return (index - (e << SUB_BITS)) << e


def slot_middle(index: int) -> int:
    """Return the value that a slot stands for: its middle."""
    e = max(0, (index >> SUB_BITS) - 1)
    return ((index - (e << SUB_BITS)) << e) + ((1 << e) >> 1)


class Histogram:
    """Counts of values (ns) per slot, with the exact highest value beside them.

    It may be recorded into directly, or made from the counts that a worker kept in shared memory.
    """

    __slots__ = ("_max", "counts", "unit")

    def __init__(
        self, counts: Sequence[int] | None = None, max_value: int = 0, unit: str = "ns"
    ) -> None:
        self.counts: list[int] = [0] * SLOTS if counts is None else list(counts)
        if len(self.counts) != SLOTS:
            raise ValueError(f"a histogram has {SLOTS} slots, got {len(self.counts)}")
        self._max = max_value
        self.unit = unit

    @classmethod
    def of(cls, values: Iterable[int]) -> Histogram:
        """Make a histogram of these values."""
        out = cls()
        for value in values:
            out.record(value)
        return out

    def record(self, value: int) -> None:
        """Count one value (ns)."""
        self.counts[slot(value)] += 1
        if value > self._max:
            self._max = value

    def merge(self, other: Histogram) -> None:
        """Add the other's counts to these; nothing is lost."""
        if other.unit != self.unit:
            raise ValueError(f"cannot merge {other.unit} into {self.unit}")
        mine = self.counts
        for index, n in other.occupied():
            mine[index] += n
        self._max = max(self._max, other._max)

    def joined(self, other: Histogram) -> Histogram:
        """Return a copy with the other's counts added."""
        out = Histogram(self.counts, self._max, self.unit)
        out.merge(other)
        return out

    def without(self, other: Histogram) -> Histogram:
        """Return a copy that lacks the other's values, which are among these."""
        counts = list(self.counts)
        for index, count in other.occupied():
            counts[index] -= count
        out = Histogram(counts, self._max, self.unit)
        if not counts[slot(self._max)]:  # it was the other's
            out._max = slot_middle(max((index for index, _ in out.occupied()), default=0))
        return out

    def without_highest(self, n: int) -> Histogram:
        """Return a copy that lacks the `n` highest values."""
        counts = list(self.counts)
        for index, count in reversed(self.occupied()):
            if n <= 0:
                break
            counts[index] -= min(n, count)
            n -= count
        return Histogram(counts, self._max, self.unit)

    def coarser(self, bits: int) -> Histogram:
        """Return a copy for a smaller record, with 2**`bits` neighbouring slots in the middle one.

        A value is off by at most 2**`bits` times 0.05 %, or half as many ns where that is more
        (below 2,048 ns). Counts and the highest value stay."""
        counts = [0] * SLOTS
        for index, n in self.occupied():
            counts[(index >> bits << bits) + (1 << bits >> 1)] += n
        return Histogram(counts, self._max, self.unit)

    def occupied(self) -> list[tuple[int, int]]:
        """List the slots with a count, in order: (index, count)."""
        occupied: list[tuple[int, int]] = []
        for start in range(0, SLOTS, len(_EMPTY)):  # most are empty: a report spends its time here
            block = self.counts[start : start + len(_EMPTY)]
            if block != _EMPTY:
                occupied += [(i, n) for i, n in enumerate(block, start) if n]
        return occupied

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return sum(self.counts)

    @property
    def max(self) -> int | None:
        """The highest value, exact; None when empty."""
        return self._max if any(self.counts) else None

    @property
    def min(self) -> int | None:
        """The lowest value (start of the lowest slot: exact below 2,048 ns, else within 0.1 %)."""
        return next((slot_start(index) for index, n in enumerate(self.counts) if n), None)

    def percentile(self, q: float) -> int | None:
        """Return the value that a share `q` (0 to 1) of all values does not exceed.

        Nearest rank: the smallest recorded value with at least ceil(q * count) values at or below
        it. Off by at most 0.05 %, and never above the exact maximum. None when empty."""
        return self.percentiles((q,))[0]

    def percentiles(self, qs: Sequence[float]) -> list[int | None]:
        """Compute `percentile` for several shares at the price of one pass."""
        if not all(0 <= q <= 1 for q in qs):
            raise ValueError(f"a percentile's share is 0 to 1, got {list(qs)}")
        occupied = self.occupied()
        running = list(accumulate(n for _, n in occupied))
        if not running:
            return [None for _ in qs]
        total = running[-1]
        # ceil() of a product that is a whole number but for float noise must not step up:
        # 0.07 * 100 is 7.000000000000001.
        ranks = [max(1, math.ceil(q * total - 1e-9 * total)) for q in qs]
        values = [slot_middle(occupied[bisect_left(running, rank)][0]) for rank in ranks]
        return [min(v, self._max) if self._max else v for v in values]

    @property
    def mean(self) -> float | None:
        """The mean, each value taken as the middle of its slot; None when empty."""
        occupied = self.occupied()
        if not occupied:
            return None
        return sum(slot_middle(i) * n for i, n in occupied) / sum(n for _, n in occupied)

    @property
    def std(self) -> float | None:
        """The standard deviation (ddof 0); None when empty."""
        mean = self.mean
        if mean is None:
            return None
        occupied = self.occupied()
        squares = sum((slot_middle(i) - mean) ** 2 * n for i, n in occupied)
        return math.sqrt(squares / sum(n for _, n in occupied))

    def share_within_std(self) -> float | None:
        """Return the share of values within one standard deviation of the mean, as wrk does."""
        mean, std = self.mean, self.std
        if mean is None or std is None:
            return None
        inside = sum(n for i, n in self.occupied() if abs(slot_middle(i) - mean) <= std)
        return inside / self.count

    def encode(self) -> HistogramFacts:
        """Return a sparse form for JSON: slot indices and their counts."""
        occupied = self.occupied()
        return {
            "unit": self.unit,
            "sub_bits": 10,
            "max": self._max,
            "index": [i for i, _ in occupied],
            "count": [n for _, n in occupied],
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Histogram:
        """Reverse `encode`. Raises ValueError for a form that this version does not know."""
        if data.get("sub_bits") != SUB_BITS:
            raise ValueError(f"histogram with sub_bits {data.get('sub_bits')}, not {SUB_BITS}")
        out = cls(max_value=int(data["max"]), unit=str(data["unit"]))
        for index, n in zip(data["index"], data["count"], strict=True):
            if not 0 <= index < SLOTS or n < 0:
                raise ValueError(f"histogram slot {index} with count {n} cannot be")
            out.counts[index] += n
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = (self.unit, self._max), (other.unit, other._max)
        return mine == theirs and self.counts == other.counts

    __hash__ = None  # type: ignore[assignment]  # it can change, so it is no key


def bounded(
    answered: Histogram, censored: Histogram, qs: Sequence[float]
) -> list[tuple[int | None, bool]]:
    """Compute percentiles of all requests: (value, whether it is only a lower bound).

    `censored`: how long each request without an end was waited for in vain. Its latency is
    somewhere above, so a percentile lies between that of all with each at its bound and that of all
    with each at infinity. Where the two are one it is exact; else the first is reported, as a lower
    bound. Unlike an estimate (Kaplan-Meier) this assumes nothing about those that never came."""
    everything = answered.joined(censored)
    given_up = censored.count
    lowest = everything.percentiles(qs)
    if not given_up:
        return [(value, False) for value in lowest]
    total, ended = everything.count, answered.count
    # The rank among all is the same rank among the answered, as those at infinity come last.
    ranks = [max(1, math.ceil(q * total - 1e-9 * total)) for q in qs]
    highest = answered.percentiles([min(1.0, rank / ended) if ended else 0.0 for rank in ranks])
    return [
        (low, True) if rank > ended or slot(low or 0) != slot(high or 0) else (high, False)
        for low, high, rank in zip(lowest, highest, ranks, strict=True)
    ]
