"""Medians, the interval of a ratio, the floor: held against exact probabilities and by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.benchmarks.ranker.summary import floor_of, median_interval


def test_ranks_are_those_of_the_tables() -> None:
    """n = 10: 2nd and 9th at 97.85 %; n = 41: 14th and 28th (sign test tables)."""
    ten = median_interval(list(range(1, 11)))
    assert (ten.low, ten.high, ten.median, ten.count) == (2, 9, 5.5, 10)
    assert math.isclose(ten.level, 1 - 2 * 11 / 1024)
    many = median_interval(list(range(1, 42)))
    assert (many.low, many.high, many.median) == (14, 28, 21)


def test_few_values_say_which_level_they_reach() -> None:
    five = median_interval([5, 1, 4, 2, 3])
    assert (five.low, five.high) == (1, 5)
    assert math.isclose(five.level, 1 - 2 / 32)
    one = median_interval([7])
    assert (one.low, one.median, one.high, one.level) == (7, 7, 7, 0)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


@given(st.lists(st.floats(0.01, 100), min_size=6, max_size=80))
def test_the_interval_holds_the_median_and_its_level(values: list[float]) -> None:
    interval = median_interval(values)
    assert interval.low <= interval.median <= interval.high
    assert interval.level >= 0.95
    n, k = len(values), sum(value < interval.low for value in sorted(values)) + 1
    narrower = 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    assert len(set(values)) < n or narrower < 0.95


def test_the_floor_is_its_largest_term() -> None:
    machine = {"bytes_per_s": 1e9, "flops_per_s": 1e10, "launch_ns": 1000.0}
    floor = floor_of({"bytes_moved": 2_000_000, "flops": 10_000_000, "launches": 15}, machine)
    assert (floor.memory_s, floor.compute_s) == (0.002, 0.001)
    assert math.isclose(floor.launch_s, 15e-6)
    assert floor.seconds == 0.002 and floor.bound_by == "memory"
