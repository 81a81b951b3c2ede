"""Two-level designs in rounds of two, and the effects that their log ratios show."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence

import pytest

from serve_bench.analysis.factorial import (
    MOST_POINTS,
    Fit,
    Point,
    Round,
    Term,
    design,
    fit,
    points_of,
    rounds_for,
    sees,
    terms_of,
)

PLANTED = {(1,): -0.05, (4,): 0.10, (1, 4): 0.08}


def log_of(point: Point, effects: Mapping[Term, float]) -> float:
    """The logarithm of a launch's figure: a factor's effect over the levels of the others, and half
    of what a pair does more."""
    signs = [1 if level == "1" else -1 for level in point]
    total = 0.0
    for term, effect in effects.items():
        total += math.prod(signs[at] for at in term) * effect / (2 * len(term))
    return total


def logs_of(
    rounds: Sequence[Round], effects: Mapping[Term, float], sd: float = 0.0, seed: int = 0
) -> list[float]:
    draw = random.Random(seed)
    return [log_of(b, effects) - log_of(a, effects) + draw.gauss(0, sd) for a, b in rounds]


def centers(whole: Fit) -> dict[Term, float]:
    return {one.term: one.interval.center for one in whole.effects if one.interval is not None}


def planned(factors: int = 6, pairs: bool = True) -> tuple[tuple[Term, ...], tuple[Round, ...]]:
    points = points_of(factors, 1)
    terms, untold = terms_of(points, pairs)
    assert untold == ()
    return terms, design(points, terms, rounds_for(terms), 1)


def test_points_are_all_combinations_or_so_many_of_them() -> None:
    assert points_of(2, 1) == ("00", "01", "10", "11")
    many = points_of(12, 1)
    assert MOST_POINTS - 10 < len(many) <= MOST_POINTS + 2
    assert many[0] == "0" * 12 and many[-1] == "1" * 12 and len({*many}) == len(many)
    assert many == points_of(12, 1) != points_of(12, 2)


def test_what_never_goes_without_another_is_not_told_as_a_pair() -> None:
    points = [one for one in points_of(4, 1) if not (one[3] == "1" and one[2] == "0")]
    terms, untold = terms_of(points, True)
    assert untold == ((2, 3),) and {(2,), (3,), (0, 3), (0, 2)} <= {*terms}
    rounds = design(points, terms, rounds_for(terms), 1)
    assert {one for pair in rounds for one in pair} <= {*points}
    assert centers(fit(rounds, logs_of(rounds, {(3,): 0.3, (2,): 0.1}), terms))[
        3,
    ] == pytest.approx(0.3)


def test_effects_without_noise_are_what_was_planted() -> None:
    terms, rounds = planned()
    whole = fit(rounds, logs_of(rounds, PLANTED), terms)
    assert len(terms) == 21
    for term, center in centers(whole).items():
        assert center == pytest.approx(PLANTED.get(term, 0.0), abs=1e-9), term
    assert whole.whole is not None and whole.whole.center == pytest.approx(0.05)
    assert whole.odd == {} and whole.rounds == len(rounds) == 33


def test_a_plan_begins_with_none_against_all_and_can_be_gone_on_with() -> None:
    points = points_of(5, 1)
    terms, _ = terms_of(points, True)
    short, long = (design(points, terms, count, 3) for count in (20, 26))
    assert short[0] == ("00000", "11111") and long[:20] == short
    assert design(points, terms, 26, 3, short) == long
    assert all(first != second for first, second in long)
    orders = [first < second for first, second in long]
    assert 5 < sum(orders) < 21  # which of both is first is drawn


def test_intervals_hold_what_was_planted_about_as_often_as_they_say() -> None:
    """200 runs, seeds fixed: 95 % of 4,200 intervals, so 93 to 97 % by six standard errors."""
    terms, rounds = planned()
    held = [
        abs(one.interval.center - PLANTED.get(one.term, 0.0)) <= one.interval.half
        for seed in range(200)
        for one in fit(rounds, logs_of(rounds, PLANTED, 0.02, seed), terms).effects
        if one.interval is not None
    ]
    assert len(held) == 200 * 21 and 0.93 < statistics.fmean(held) < 0.97


def test_pairs_are_not_paid_for_where_they_are_not_asked_for() -> None:
    terms, rounds = planned(pairs=False)
    assert terms == tuple((at,) for at in range(6)) and len(rounds) == 18
    effects: dict[Term, float] = {(1,): -0.05, (4,): 0.10}
    assert centers(fit(rounds, logs_of(rounds, effects), terms))[4,] == pytest.approx(0.10)


def test_odd_rounds_are_left_out_and_named() -> None:
    terms, rounds = planned()
    logs = logs_of(rounds, PLANTED, 0.01, 5)
    whole = fit(
        rounds, [one + math.log(0.7) * (at in (3, 17)) for at, one in enumerate(logs)], terms
    )
    assert {*whole.odd} == {3, 17} and whole.rounds == 31
    assert whole.odd[3] == pytest.approx(0.7, abs=0.1)
    assert centers(whole)[4,] == pytest.approx(0.10, abs=0.03)
    assert fit(rounds, logs, terms).odd == {}


def test_what_the_rounds_do_not_tell_has_no_interval() -> None:
    terms, rounds = planned()
    few = fit(rounds[:5], logs_of(rounds[:5], PLANTED), terms)
    assert all(one.interval is None for one in few.effects) and few.whole is None
    nothing = fit([], [], terms)
    assert all(one.interval is None for one in nothing.effects)
    without = [one for one in rounds if one[0][2] == one[1][2]]  # factor 2 never changes
    told = {one.term: one.interval for one in fit(without, [0.0] * len(without), terms[:6]).effects}
    assert told[2,] is None and told[1,] is not None


def test_a_plan_sees_less_where_rounds_differ_more() -> None:
    terms, rounds = planned()
    small, large = (sees(rounds, terms, sd) for sd in (0.01, 0.03))
    assert small is not None and large is not None and large == pytest.approx(3 * small)
    assert sees(rounds[:21], terms, 0.01) is None
