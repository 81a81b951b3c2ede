import json
import math
import statistics
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.histogram import MAX_VALUE, SLOTS, Histogram, slot, slot_middle, slot_start
from serve_bench.core.live_percentiles import percentiles_in_use
from tests.cases import sure

VALUES = st.integers(0, MAX_VALUE)


@given(VALUES)
def test_a_slot_is_off_by_at_most_half_a_thousandth(value: int) -> None:
    index = slot(value)
    assert 0 <= index < SLOTS
    assert slot_start(index) <= value
    assert index == SLOTS - 1 or value < slot_start(index + 1)
    assert abs(slot_middle(index) - value) <= value * 0.0005


def test_values_out_of_range_go_to_the_ends() -> None:
    assert slot(-5) == 0
    assert slot(MAX_VALUE) == SLOTS - 1
    assert slot(MAX_VALUE + 1) == SLOTS - 1
    assert [slot(v) for v in range(3000)] == sorted(slot(v) for v in range(3000))


@given(st.lists(VALUES, min_size=1, max_size=200), st.floats(0, 1))
def test_percentiles_are_the_nearest_rank(values: list[int], q: float) -> None:
    exact = sorted(values)[max(1, math.ceil(q * len(values) - 1e-9 * len(values))) - 1]
    got = sure(Histogram.of(values).percentile(q))
    assert abs(got - exact) <= exact * 0.0005
    assert got <= max(values)


@given(st.lists(st.lists(st.integers(1, MAX_VALUE), max_size=9), min_size=1, max_size=3))
def test_percentiles_in_shared_memory_are_those_of_the_whole(parts: list[list[int]]) -> None:
    whole = [Histogram.of(values) for values in parts]
    words = [
        memoryview(array("Q", [max(values, default=0), *histogram.counts]))
        for values, histogram in zip(parts, whole, strict=True)
    ]
    shares = (0.0, 0.5, 0.99, 1.0)
    together = Histogram.of(value for values in parts for value in values)
    assert percentiles_in_use(words, shares) == Histogram(together.counts).percentiles(shares)


@given(st.lists(VALUES), st.lists(VALUES))
def test_merging_loses_nothing(left: list[int], right: list[int]) -> None:
    merged = Histogram.of(left)
    merged.merge(Histogram.of(right))
    assert merged == Histogram.of(left + right)
    assert merged.count == len(left) + len(right)
    assert merged.max == max(left + right, default=None)


@given(st.lists(VALUES))
def test_encoding_survives_json(values: list[int]) -> None:
    histogram = Histogram.of(values)
    assert Histogram.decode(json.loads(json.dumps(histogram.encode()))) == histogram


def test_mean_and_deviation_match_the_values() -> None:
    values = [100_000, 200_000, 200_000, 300_000, 1_200_000]
    histogram = Histogram.of(values)
    assert histogram.mean == pytest.approx(statistics.fmean(values), rel=5e-4)
    assert histogram.std == pytest.approx(statistics.pstdev(values), rel=5e-4)
    assert histogram.share_within_std() == 0.8
    assert (histogram.min, histogram.max) == (slot_start(slot(100_000)), 1_200_000)
    empty = Histogram()
    assert empty.count == 0 and empty.percentile(0.5) is None
    assert [empty.min, empty.max, empty.mean, empty.std, empty.share_within_std()] == [None] * 5


def test_foreign_data_and_a_share_outside_0_to_1_are_refused() -> None:
    for q in (-0.1, 1.1):
        with pytest.raises(ValueError, match="0 to 1"):
            Histogram.of([1]).percentile(q)
    with pytest.raises(ValueError, match="slots"):
        Histogram([0] * 10)
    with pytest.raises(ValueError, match="sub_bits 7"):
        Histogram.decode(Histogram().encode() | {"sub_bits": 7})
    with pytest.raises(ValueError, match="cannot be"):
        Histogram.decode(Histogram().encode() | {"index": [SLOTS], "count": [1]})
    with pytest.raises(ValueError, match="cannot merge"):
        Histogram().merge(Histogram(unit="bytes"))
