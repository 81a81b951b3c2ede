"""Against scipy's own tests, worked examples and simulated runs; all draws are seeded."""

from __future__ import annotations

import math
import random
import warnings

import pytest
from scipy import stats

from serve_bench.analysis.ratios import (
    Interval,
    judge,
    paired,
    quantile,
    rounds_needed,
    unpaired,
)

A = (101.0, 97.0, 103.0, 99.5, 100.2, 98.8)
B = (93.0, 92.5, 96.1, 90.9, 94.0, 91.2)


def logs(a: tuple[float, ...] = A, b: tuple[float, ...] = B) -> list[float]:
    return [math.log(y / x) for x, y in zip(a, b, strict=True)]


def interval(ratio: float, se: float, n: int = 6) -> Interval:
    """Of a ratio with a known standard error of its logarithm."""
    return Interval(math.log(ratio), se, n - 1, n, n)


# ----------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.995])
def test_pairs_are_the_paired_t_test_on_logarithms(confidence: float) -> None:
    found = paired(logs()).at(confidence)
    known = stats.ttest_rel([math.log(x) for x in B], [math.log(x) for x in A])
    low, high = known.confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-12)
    assert found.df == known.df == 5
    assert found.ratio == pytest.approx(
        math.prod(y / x for x, y in zip(A, B, strict=True)) ** (1 / 6)
    )


@pytest.mark.parametrize(("a", "b"), [(A, B), (A[:3], B), (A, B[:2]), (A, tuple(x**2 for x in B))])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_launches_that_belong_to_nobody_are_welchs(
    a: tuple[float, ...], b: tuple[float, ...], confidence: float
) -> None:
    found = unpaired(a, b).at(confidence)
    known = stats.ttest_ind([math.log(x) for x in b], [math.log(x) for x in a], equal_var=False)
    low, high = known.confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)
    assert found.df == pytest.approx(known.df)
    assert (found.n_a, found.n_b, found.fewest) == (len(a), len(b), min(len(a), len(b)))


def test_two_are_enough_for_an_interval_and_it_is_wide() -> None:
    found = paired([0.0, 0.02])
    assert found.df == 1
    assert found.half == pytest.approx(12.706 * 0.01, rel=1e-3)


def test_turned_round_it_is_the_inverse() -> None:
    forth, back = unpaired(A, B), unpaired(B, A)
    assert (back.ratio, back.low, back.high) == pytest.approx(
        (1 / forth.ratio, 1 / forth.high, 1 / forth.low)
    )


def test_what_does_not_vary_has_no_width() -> None:
    for found in (paired([0.1, 0.1, 0.1]), unpaired([2.0, 2.0], [2.0, 2.0, 2.0])):
        assert (found.se, found.low) == (0.0, found.high)
    one_sided = unpaired([2.0, 2.0, 2.0], [2.0, 2.1, 2.2])
    assert one_sided.df == pytest.approx(2)  # all of the variance is of the three


@pytest.mark.parametrize("values", [[], [0.1], [0.1, math.nan], [0.1, math.inf]])
def test_what_is_no_sample_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"two launches or more|must be numbers"):
        paired(values)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_has_no_logarithm_is_refused(value: float) -> None:
    for sides in (([1.0, value], [1.0, 2.0]), ([1.0, 2.0], [value, 1.0])):
        with pytest.raises(ValueError, match="values above 0"):
            unpaired(*sides)
    with pytest.raises(ValueError, match="two launches or more"):
        unpaired([1.0], [1.0, 2.0])


def test_the_floor_is_the_end_that_is_farther_from_1() -> None:
    found = interval(0.99, 0.02)
    assert found.low < 1 < found.high
    assert found.distance == 1 - found.low > found.high - 1


def test_an_end_beyond_all_numbers_is_infinite() -> None:
    assert paired([0.0, 700.0]).high == math.inf


# -------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("ratio", "se", "higher", "lower"),
    [
        (0.90, 0.01, "regressed", "improved"),
        (1.10, 0.01, "improved", "regressed"),
        (1.00, 0.01, "same", "same"),
        (0.97, 0.01, "inconclusive", "inconclusive"),  # across 0.95
        (0.90, 0.03, "inconclusive", "inconclusive"),
        (1.00, 0.10, "inconclusive", "inconclusive"),  # across both
        (0.949, 0.0, "regressed", "improved"),
        (0.951, 0.0, "same", "same"),
    ],
)
def test_the_four_words(ratio: float, se: float, higher: str, lower: str) -> None:
    (more,) = judge([interval(ratio, se)], "higher")
    (less,) = judge([interval(ratio, se)], "lower")
    assert (more.word, less.word) == (higher, lower)
    assert bool(more.why) == (more.word == "inconclusive")


def test_an_alarm_is_an_interval_that_lies_beyond() -> None:
    """The p of the alarm and the interval are one thing: they cross at the same standard error."""
    room = math.log(0.95) - math.log(0.90)
    just = room / quantile(5, 0.975)
    assert judge([interval(0.9, 0.999 * just)], "higher")[0].word == "regressed"
    assert judge([interval(0.9, 1.001 * just)], "higher")[0].word == "inconclusive"
    assert judge([interval(0.9, just)], "higher")[0].p == pytest.approx(0.05)


def test_the_noise_floor_raises_the_threshold_and_never_lowers_it() -> None:
    (judged,) = judge([interval(0.9, 0.01)], "higher", 0.05, floor=0.2)
    assert (judged.word, judged.threshold) == ("inconclusive", 0.2)  # not the same: 10 % is 10 %
    (judged,) = judge([interval(0.9, 0.01)], "higher", 0.05, floor=0.01)
    assert (judged.word, judged.threshold) == ("regressed", 0.05)
    # A floor of more than the whole: nothing can lie below it, and what is far above still can.
    words = [judge([interval(r, 0.01)], "higher", floor=1.5)[0].word for r in (0.01, 2.0, 4.0)]
    assert words == ["inconclusive", "inconclusive", "improved"]


@pytest.mark.parametrize("found", [None, interval(0.5, 0.001, 2)])
def test_fewer_than_three_launches_are_never_a_verdict(found: Interval | None) -> None:
    (judged,) = judge([found], "higher")
    assert (judged.word, judged.rounds_needed, judged.p) == ("inconclusive", 3, None)
    assert "two launches" in judged.why or "a verdict takes 3" in judged.why


def test_holms_step_down_as_worked_by_hand() -> None:
    # p of 0.005, 0.03, 0.011 and 1: in order against 0.05/4, 0.05/3, 0.05/2. The third fails.
    room = math.log(0.95) - math.log(0.90)
    with_p = [interval(0.9, room / quantile(5, 1 - p / 2)) for p in (0.005, 0.03, 0.011)]
    found = judge([*with_p, interval(1.0, 0.001)], "higher")
    assert [one.word for one in found] == ["regressed", "inconclusive", "regressed", "same"]
    assert [one.p for one in found] == pytest.approx([0.005, 0.03, 0.011, 1.0])
    assert [one.alpha for one in found] == pytest.approx([0.05 / 4, 0.05 / 2, 0.05 / 3, 0.05 / 2])
    assert [one.p_adjusted for one in found] == pytest.approx([0.02, 0.06, 0.033, 1.0])
    assert "not at the 97.5 % that Holm's correction asks over 4 cells" in found[1].why
    # Alone it is an alarm: what is not tested takes nothing from the rest.
    assert judge([with_p[1], None], "higher")[0].word == "regressed"


def test_behind_the_first_that_fails_nothing_is_an_alarm() -> None:
    # 0.026 against 0.025 fails; 0.04 against 0.05 would pass, but comes too late.
    room = math.log(0.95) - math.log(0.90)
    first, second = (interval(0.9, room / quantile(5, 1 - p / 2)) for p in (0.026, 0.04))
    assert [one.word for one in judge([first, second], "higher")] == ["inconclusive"] * 2
    assert all((one.rounds_needed or 0) > 6 for one in judge([first, second], "higher"))


@pytest.mark.parametrize(("threshold", "floor"), [(1.0, 0.0), (-0.1, 0.0), (0.05, -1.0)])
def test_a_threshold_that_cannot_be_is_refused(threshold: float, floor: float) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        judge([interval(1.0, 0.1)], "higher", threshold, floor)


# -------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize("ratio", [0.90, 0.93, 1.0, 1.02, 1.2])
@pytest.mark.parametrize("sd", [0.02, 0.05, 0.1])
def test_with_the_rounds_that_it_names_it_is_settled(ratio: float, sd: float) -> None:
    found = interval(ratio, sd / math.sqrt(4), 4)
    needed = rounds_needed(found, 0.05)
    assert needed is not None
    words = [
        judge([interval(ratio, sd / math.sqrt(n), n)], "higher")[0].word
        for n in (needed - 1, needed)
        if n >= 3
    ]
    assert words[-1] != "inconclusive"
    assert words[:-1] in ([], ["inconclusive"])


def test_at_the_threshold_itself_no_number_of_rounds_is_named() -> None:
    assert rounds_needed(interval(0.95, 0.02), 0.05) is None
    assert rounds_needed(interval(0.9501, 0.05), 0.05) is None
    assert judge([interval(0.95, 0.02)], "higher")[0].rounds_needed is None


def test_a_stricter_level_takes_more_rounds() -> None:
    plain, strict = (rounds_needed(interval(0.9, 0.03), 0.05, alpha) for alpha in (0.05, 0.005))
    assert plain is not None and strict is not None and strict > plain


def test_launches_a_side_of_unlike_numbers() -> None:
    a, b = [100.0, 104.0, 96.0] * 4, [92.0, 95.0, 89.0]
    needed = rounds_needed(unpaired(a, b), 0.05)
    assert needed is not None
    assert judge([unpaired(a, b)], "higher")[0].word == "inconclusive"
    assert 3 < needed < 50


# ------------------------------------------------------------------------- simulated runs

RUNS = 2000


def simulated(draw: random.Random, ratio: float, rounds: int, sd: float) -> Interval:
    """A run whose launches really are normal on logarithms."""
    return paired([draw.gauss(math.log(ratio), sd) for _ in range(rounds)])


@pytest.mark.parametrize(("rounds", "sd"), [(3, 0.02), (6, 0.1)])
def test_the_interval_holds_the_truth_as_often_as_it_says(rounds: int, sd: float) -> None:
    draw = random.Random(f"coverage/{rounds}")
    runs = [simulated(draw, 0.93, rounds, sd) for _ in range(RUNS)]
    hits = sum(one.low <= 0.93 <= one.high for one in runs)
    assert stats.binomtest(hits, RUNS, 0.95).pvalue > 0.01


def test_welchs_interval_holds_the_truth_with_unlike_spreads() -> None:
    draw, hits = random.Random("welch"), 0
    for _ in range(RUNS):
        a = [draw.lognormvariate(0.0, 0.02) for _ in range(4)]
        b = [draw.lognormvariate(math.log(1.1), 0.08) for _ in range(6)]
        found = unpaired(a, b)
        hits += found.low <= 1.1 <= found.high
    assert 0.935 <= hits / RUNS <= 0.975


@pytest.mark.parametrize("cells", [1, 6])
def test_false_alarms_over_all_cells_stay_within_what_holm_promises(cells: int) -> None:
    """A against itself, any difference counted: the hardest case, since the truth is the bound."""
    draw, alarmed = random.Random(f"holm/{cells}"), 0
    for _ in range(RUNS):
        found = judge([simulated(draw, 1.0, 6, 0.05) for _ in range(cells)], "higher", 0.0)
        alarmed += any(one.word in ("regressed", "improved") for one in found)
    assert stats.binomtest(alarmed, RUNS, 0.05, alternative="greater").pvalue > 0.01
    assert alarmed > 0.03 * RUNS  # and not so strict that nothing is ever found


def test_at_the_threshold_itself_alarms_are_half_as_many() -> None:
    draw = random.Random("bound")
    words = [judge([simulated(draw, 0.95, 6, 0.03)], "higher")[0].word for _ in range(RUNS)]
    assert stats.binomtest(words.count("regressed"), RUNS, 0.025).pvalue > 0.01
    assert words.count("improved") == 0


def test_a_planted_loss_is_found_and_an_a_a_is_not() -> None:
    draw = random.Random("power")
    lost = [judge([simulated(draw, 0.85, 6, 0.03)], "higher")[0].word for _ in range(200)]
    alike = [judge([simulated(draw, 1.0, 6, 0.03)], "higher")[0].word for _ in range(200)]
    assert lost.count("regressed") > 190
    assert {"regressed", "improved"}.isdisjoint(alike)


def test_no_warning_of_numbers_is_hidden() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge([interval(0.9, 1e-300), interval(0.9, 1e300), paired([1e-200, 2e-200])], "lower")
