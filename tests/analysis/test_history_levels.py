"""Levels of a series: false marks are counted, planted steps are found, one bad run is no step."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats

from serve_bench.analysis.history.levels import Levels, levels_of
from serve_bench.analysis.ratios import unpaired

EVEN = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1)


def noisy(rng: random.Random, shape: Sequence[float], spread: float) -> list[float]:
    """Values about 1,000 whose logarithms have that standard deviation, times a shape."""
    return [1000 * one * math.exp(rng.gauss(0, spread)) for one in shape]


def related(rng: random.Random, count: int, correlation: float, spread: float) -> list[float]:
    """Runs of which each depends on the one before."""
    log, values = rng.gauss(0, 1), []
    for _ in range(count):
        values.append(1000 * math.exp(spread * log))
        log = correlation * log + math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
    return values


def changed(found: Levels) -> bool:
    return bool(found.steps or found.outliers or found.drift)


def one_of(values: Sequence[float | None]) -> Levels:
    return levels_of([values])[0]


def steps(found: Levels) -> list[int]:
    return [one.at for one in found.steps]


def outliers(found: Levels) -> list[int]:
    return [one.at for one in found.outliers]


# ------------------------------------------------------------------------------ how often it errs


@pytest.mark.parametrize(("spread", "rows"), [(0.03, 1), (0.3, 1), (0.3, 6)])
def test_noise_alone_is_hardly_ever_marked(spread: float, rows: int) -> None:
    # A year of looks marks 5 %; one look at ten nights less: 2 % of 200 are 4, and 9 are two
    # standard errors more.
    rng = random.Random(1)
    marked = 0
    for _ in range(200):
        found = levels_of([noisy(rng, [1.0] * 10, spread) for _ in range(rows)])
        marked += any(one.steps or one.outliers or one.drift for one in found)
    assert marked <= 9


@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_month_of_looks_marks_few(correlation: float) -> None:
    # 5 % of 60 are 3; 7 are two standard errors more.
    rng = random.Random(6)
    marked = 0
    for _ in range(60):
        values = related(rng, 30, correlation, 0.02)
        marked += any(changed(one_of(values[:n])) for n in range(4, 31))
    assert marked <= 7


@pytest.mark.parametrize(
    ("shape", "at", "least"),
    [
        ([1.0] * 15 + [0.97] * 15, [15], 90),
        ([1.0] * 20 + [1.18] * 10, [20], 190),
        ([1.0] * 9 + [0.7] * 4, [9], 180),
        ([1.0] * 12 + [0.75] * 7 + [1.0] * 8, [12, 19], 180),
    ],
)
def test_a_planted_step_is_found_where_it_is(shape: list[float], at: list[int], least: int) -> None:
    rng = random.Random(2)
    spread = 0.012 if min(shape) == 0.97 else 0.03
    found = [one_of(noisy(rng, shape, spread)) for _ in range(200)]
    near = [
        len(steps(one)) == len(at)
        and all(abs(x - y) <= 1 for x, y in zip(steps(one), at, strict=True))
        for one in found
    ]
    assert sum(near) >= least
    assert sum(bool(one.outliers) for one in found) <= 4


@pytest.mark.parametrize(("slope", "spread"), [(-0.003, 0.01), (0.006, 0.016)])
def test_a_drift_is_no_step(slope: float, spread: float) -> None:
    rng = random.Random(7)
    shape = [math.exp(slope * at) for at in range(30)]
    found = [one_of(noisy(rng, shape, spread)) for _ in range(50)]
    drifts = [one.drift for one in found if one.drift is not None]
    assert len(drifts) >= 45
    assert all(not one.steps for one in found if one.drift is not None)
    held = sum(one.interval.low <= math.exp(slope) <= one.interval.high for one in drifts)
    assert held >= 0.85 * len(drifts)


def test_the_line_of_a_drift_is_that_of_least_squares() -> None:
    values = [math.exp(4 + 0.02 * at + (0.001 if at % 2 else -0.001)) for at in range(12)]
    found = one_of(values)
    assert found.drift is not None and found.df == 10 and len(found.levels) == 1
    known = stats.linregress(range(12), [math.log(one) for one in values])
    assert found.drift.slope == pytest.approx(known.slope)
    assert found.drift.at(0) == pytest.approx(known.intercept)
    assert found.expected is not None
    assert found.expected.ratio == pytest.approx(math.exp(known.intercept + 12 * known.slope))


def test_runs_that_depend_on_each_other_are_noticed() -> None:
    rng = random.Random(8)
    noticed = [one_of(related(rng, 40, 0.6, 0.02)).correlation for _ in range(50)]
    assert sum(one > 0 for one in noticed) >= 40
    apart = [one_of(related(rng, 40, 0.0, 0.02)).correlation for _ in range(50)]
    assert sum(one > 0 for one in apart) <= 8


def test_a_run_that_stands_alone_is_an_outlier_and_no_step() -> None:
    rng = random.Random(3)
    last = [one_of(noisy(rng, [1.0] * 14 + [0.7], 0.03)) for _ in range(200)]
    assert sum(outliers(one) == [14] for one in last) >= 180
    middle = [one_of(noisy(rng, [1.0] * 6 + [0.6] + [1.0] * 7, 0.03)) for _ in range(200)]
    assert sum(outliers(one) == [6] for one in middle) >= 190
    assert sum(bool(one.steps) for one in (*last, *middle)) <= 4


def test_a_row_without_a_step_is_not_marked_for_its_neighbour() -> None:
    rng = random.Random(4)
    beside = 0
    for _ in range(100):
        found = levels_of(
            [noisy(rng, [1.0] * 8 + [0.6] * 8, 0.05), *(noisy(rng, [1.0] * 16, 0.05),) * 4]
        )
        assert steps(found[0]) == [8]
        beside += any(one.steps or one.outliers for one in found[1:])
    assert beside <= 5


# -------------------------------------------------------------------------------- the figures


def test_the_figures_of_a_step_are_those_of_the_t_test() -> None:
    values = [100.0, 101.0, 99.0, 70.0, 71.0, 69.0]
    found = one_of(values)
    (step,) = found.steps
    known = unpaired(values[:3], values[3:])  # of equal numbers Welch's error is the pooled one
    assert step.at == 3 and found.df == 4
    assert step.interval.ratio == pytest.approx(known.ratio)
    assert step.interval.se == pytest.approx(known.se)
    # By hand: t(0.975, 4) = 2.776.
    assert step.interval.half == pytest.approx(2.7764 * known.se, rel=1e-4)
    assert [level.runs for level in found.levels] == [(0, 1, 2), (3, 4, 5)]
    assert found.levels[1].value == pytest.approx((70 * 71 * 69) ** (1 / 3))
    assert step.p <= 0.05 and found.p == step.p


def test_where_a_next_run_would_lie() -> None:
    found = one_of(EVEN)
    logs = [math.log(one) for one in EVEN]
    mean = sum(logs) / 8
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / 7)
    assert found.spread == pytest.approx(spread) and found.df == 7
    assert found.expected is not None
    # By hand: t(0.975, 7) = 2.3646.
    assert found.expected.high == pytest.approx(
        math.exp(mean + 2.3646 * spread * math.sqrt(1 + 1 / 8)), rel=1e-4
    )


def test_p_is_adjusted_for_the_places_and_the_rows() -> None:
    values = [100.0, 101.0, 99.0, 70.0, 71.0, 69.0]
    alone = one_of(values).steps[0].p
    beside = levels_of([values, EVEN[:6], EVEN[2:]])[0].steps[0].p
    assert beside == pytest.approx(3 * alone)


# --------------------------------------------------------------------------------- the edges


@pytest.mark.parametrize("count", range(4))
def test_fewer_than_four_runs_are_not_judged(count: int) -> None:
    found = one_of([100.0, 100.0, 10.0][:count])
    assert found.p is None and not found.steps and not found.outliers
    assert len(found.levels) == min(1, count)


def test_equal_values_have_no_spread_and_a_change_is_certain() -> None:
    assert not one_of([100.0] * 9).steps
    assert steps(one_of([100.0] * 5 + [94.0] * 2)) == [5]
    assert steps(one_of([100.0] * 5 + [99.0] * 2)) == [5]  # however small
    assert outliers(one_of([100.0] * 4 + [70.0])) == [4]
    assert outliers(one_of([100.0] * 3 + [70.0] + [100.0] * 3)) == [3]


def test_a_step_and_back_is_two_steps() -> None:
    values = [*EVEN[:4], *(0.7 * one for one in EVEN[:3]), *EVEN[4:]]
    found = one_of(values)
    assert steps(found) == [4, 7]
    assert found.steps[0].interval.ratio == pytest.approx(0.7, rel=0.02)
    assert found.steps[1].interval.ratio == pytest.approx(1 / 0.7, rel=0.02)


def test_several_steps_and_an_outlier_are_told_apart() -> None:
    values = [*EVEN, *(0.8 * one for one in EVEN), *(1.2 * one for one in EVEN)]
    values[20] = 60.0
    found = one_of(values)
    assert steps(found) == [8, 16] and outliers(found) == [20]
    assert found.outliers[0].interval.ratio == pytest.approx(0.5, rel=0.02)
    assert all(20 not in level.runs for level in found.levels)


def test_a_step_whose_first_run_is_an_outlier_begins_behind_it() -> None:
    values = [*EVEN, 20.0, *(0.6 * one for one in EVEN)]
    found = one_of(values)
    assert steps(found) == [9] and outliers(found) == [8]
    assert found.steps[0].interval.ratio == pytest.approx(0.6, rel=0.02)


def test_bad_nights_do_not_hide_a_step_or_each_other() -> None:
    rng = random.Random(5)
    shape = [1.0] * 20 + [0.85] * 10
    for at in (4, 13, 22):
        shape[at] *= 0.6
    found = [one_of(noisy(rng, shape, 0.03)) for _ in range(50)]
    assert sum(steps(one) == [20] and outliers(one) == [4, 13, 22] for one in found) >= 47


def test_a_night_without_a_value_is_passed_over() -> None:
    values: list[float | None] = [*EVEN[:5], *(0.7 * one for one in EVEN[:4])]
    values.insert(3, None)
    values.append(None)
    found = one_of(values)
    assert steps(found) == [6]
    assert found.levels[0].runs == (0, 1, 2, 4, 5)


def test_two_runs_that_end_a_series_make_a_step_and_one_does_not() -> None:
    assert outliers(one_of([*EVEN, 70.0])) == [8] and steps(one_of([*EVEN, 70.0])) == []
    both = one_of([*EVEN, 70.0, 71.0])
    assert steps(both) == [8] and outliers(both) == []


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_value_above_zero_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="levels are made of values above 0"):
        one_of([100.0, wrong])


def test_the_scale_of_the_values_does_not_matter() -> None:
    values = [*EVEN, *(0.7 * one for one in EVEN[:3])]
    a, b = one_of(values), one_of([1e6 * one for one in values])
    assert steps(a) == steps(b) == [8]
    assert a.steps[0].p == pytest.approx(b.steps[0].p)
