"""Against scipy's own tests, worked examples and simulated runs; all draws are seeded."""

import math
import random
import warnings
from collections.abc import Sequence

import pytest
from scipy import stats

from serve_bench.analysis import ratios
from serve_bench.core.result import Better
from tests.cases import cases, sure

A = (101.0, 97.0, 103.0, 99.5, 100.2, 98.8)
B = (93.0, 92.5, 96.1, 90.9, 94.0, 91.2)
LOGS = [math.log(y / x) for x, y in zip(A, B, strict=True)]


def interval(ratio: float, se: float, n: int = 6) -> ratios.Interval:
    """Of a ratio with a known standard error of its logarithm."""
    return ratios.Interval(math.log(ratio), se, n - 1, n, n)


def judge_all(
    intervals: Sequence[ratios.Interval | None],
    better: Better = "higher",
    threshold: float = 0.05,
    floor: float = 0.0,
) -> tuple[ratios.Judged, ...]:
    claims = [ratios.Hypothesis(interval, better, floor) for interval in intervals]
    return ratios.judge(claims, threshold)


@cases("confidence", 0.8, 0.95, 0.995)
def test_pairs_are_the_paired_t_test_on_logarithms(confidence: float) -> None:
    found = ratios.paired(LOGS).at(confidence)
    known = stats.ttest_rel([math.log(x) for x in B], [math.log(x) for x in A])
    low, high = known.confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-12)
    assert found.df == known.df == 5
    ratio = math.prod(y / x for x, y in zip(A, B, strict=True)) ** (1 / 6)
    assert found.ratio == pytest.approx(ratio)


@cases("a, b", (A, B), (A[:3], B), (A, B[:2]), (A, tuple(x**2 for x in B)))
@cases("confidence", 0.8, 0.95)
def test_unpaired_is_welchs(a: tuple[float, ...], b: tuple[float, ...], confidence: float) -> None:
    found = ratios.unpaired(a, b).at(confidence)
    known = stats.ttest_ind([math.log(x) for x in b], [math.log(x) for x in a], equal_var=False)
    low, high = known.confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)
    assert found.df == pytest.approx(known.df)
    assert (found.n_a, found.n_b, found.fewest) == (len(a), len(b), min(len(a), len(b)))


def test_the_ends_of_an_interval() -> None:
    forth, back = ratios.unpaired(A, B), ratios.unpaired(B, A)
    turned = (1 / forth.ratio, 1 / forth.high, 1 / forth.low)
    assert (back.ratio, back.low, back.high) == pytest.approx(turned)
    two = ratios.paired([0.0, 0.02])  # which are enough, and it is wide
    assert two.df == 1 and two.half == pytest.approx(12.706 * 0.01, rel=1e-3)
    for found in (ratios.paired([0.1, 0.1, 0.1]), ratios.unpaired([2.0, 2.0], [2.0, 2.0, 2.0])):
        assert (found.se, found.low) == (0.0, found.high)
    one_sided = ratios.unpaired([2.0, 2.0, 2.0], [2.0, 2.1, 2.2])
    assert one_sided.df == pytest.approx(2)  # all of the variance is of the three
    assert ratios.paired([0.0, 700.0]).high == math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge_all([interval(0.9, 1e-300), interval(0.9, 1e300), ratios.paired([1e-200, 2e-200])])


def test_what_is_no_sample_is_refused() -> None:
    for values in ([], [0.1], [0.1, math.nan], [0.1, math.inf]):
        with pytest.raises(ValueError, match=r"two launches or more|must be numbers"):
            ratios.paired(values)
    for value in (0.0, -1.0, math.nan, math.inf):  # it has no logarithm
        for sides in (([1.0, value], [1.0, 2.0]), ([1.0, 2.0], [value, 1.0])):
            with pytest.raises(ValueError, match="values above 0"):
                ratios.unpaired(*sides)
    with pytest.raises(ValueError, match="two launches or more"):
        ratios.unpaired([1.0], [1.0, 2.0])
    for threshold, floor in ((1.0, 0.0), (-0.1, 0.0), (0.05, -1.0)):
        with pytest.raises(ValueError, match="cannot be"):
            judge_all([interval(1.0, 0.1)], threshold=threshold, floor=floor)


@cases(
    "ratio, se, higher, lower",
    (0.90, 0.01, "regressed", "improved"),
    (1.10, 0.01, "improved", "regressed"),
    (1.00, 0.01, "same", "same"),
    (0.97, 0.01, "slower", "faster"),  # proven, and below the threshold
    (0.98, 0.01, "same", "same"),
    (0.97, 0.03, "inconclusive", "inconclusive"),  # across 1 and 0.95
    (0.90, 0.05, "inconclusive", "inconclusive"),
    (1.00, 0.10, "inconclusive", "inconclusive"),  # across both
    (0.95, 0.0, "regressed", "improved"),
    (0.951, 0.0, "slower", "faster"),
)
def test_the_six_words(ratio: float, se: float, higher: str, lower: str) -> None:
    (more,) = judge_all([interval(ratio, se)])
    (less,) = judge_all([interval(ratio, se)], "lower")
    assert (more.word, less.word) == (higher, lower)
    assert bool(more.why) == (more.word == "inconclusive")


def test_a_proof_is_an_interval_that_excludes_no_change() -> None:
    just = -math.log(0.9) / ratios.quantile(5, 0.975)
    assert judge_all([interval(0.9, 0.999 * just)])[0].word == "regressed"
    assert judge_all([interval(0.9, 1.001 * just)])[0].word == "inconclusive"
    assert judge_all([interval(0.9, just)])[0].p == pytest.approx(0.05)
    # The noise floor is to be excluded too.
    (judged,) = judge_all([interval(0.9, 0.01)], floor=0.2)
    assert (judged.word, judged.threshold) == ("inconclusive", 0.2)  # not the same: 10 % is 10 %
    assert "the noise floor of 20 %" in judged.why and judged.rounds_needed is None
    (judged,) = judge_all([interval(0.9, 0.01)], floor=0.01)
    assert (judged.word, judged.threshold) == ("regressed", 0.05)
    # A floor of more than the whole: nothing can lie below it, and what is far above still can.
    words = [judge_all([interval(r, 0.01)], floor=1.5)[0].word for r in (0.01, 2.0, 4.0)]
    assert words == ["inconclusive", "inconclusive", "improved"]


def test_holms_step_down_as_worked_by_hand() -> None:
    # p of 0.005, 0.03, 0.011 and 1: in order against 0.05/4, 0.05/3, 0.05/2. The third fails.
    room = -math.log(0.9)
    with_p = [interval(0.9, room / ratios.quantile(5, 1 - p / 2)) for p in (0.005, 0.03, 0.011)]
    found = judge_all([*with_p, interval(1.0, 0.001)])
    assert [test.word for test in found] == ["regressed", "inconclusive", "regressed", "same"]
    assert [test.p for test in found] == pytest.approx([0.005, 0.03, 0.011, 1.0])
    assert [test.alpha for test in found] == pytest.approx([0.05 / 4, 0.05 / 2, 0.05 / 3, 0.05 / 2])
    assert [test.p_adjusted for test in found] == pytest.approx([0.02, 0.06, 0.033, 1.0])
    assert "not at the 97.5 % that Holm's correction asks over 4 figures" in found[1].why
    # Alone it is a proof: what is not tested takes nothing from the rest.
    assert judge_all([with_p[1], None])[0].word == "regressed"
    # 0.026 against 0.025 fails; 0.04 against 0.05 would pass, but comes too late.
    first, second = (interval(0.9, room / ratios.quantile(5, 1 - p / 2)) for p in (0.026, 0.04))
    late = judge_all([first, second])
    assert [test.word for test in late] == ["inconclusive"] * 2
    assert all((test.rounds_needed or 0) > 6 for test in late)
    # Metrics with their own good side are judged in one family.
    just = -math.log(0.9) / ratios.quantile(5, 1 - 0.03 / 2)
    pair = [ratios.Hypothesis(interval(0.9, just), good) for good in ("higher", "lower")]
    assert [test.word for test in ratios.judge(pair)] == ["inconclusive", "inconclusive"]
    assert [ratios.judge([claim])[0].word for claim in pair] == ["regressed", "improved"]


def test_a_trimmed_interval_is_yuens_as_worked_by_hand() -> None:
    # 7 values: one left out at each end, Winsorized to -1 -1 0 1 2 3 3; h = 5.
    found = ratios.paired([-9.0, -1.0, 0.0, 1.0, 2.0, 3.0, 30.0])
    se = stats.tstd([-1, -1, 0, 1, 2, 3, 3]) * math.sqrt(6 / (5 * 4))
    assert (found.center, found.df, found.n_a) == (1.0, 3.5, 7)
    assert found.se == pytest.approx(se)
    assert [ratios.trimmed(n) for n in (2, 6, 7, 11, 12, 17, 52)] == [0, 0, 1, 1, 2, 3, 10]
    steady = [-0.10, -0.11, -0.09, -0.105, -0.095, -0.10, -0.102]
    odd = [*steady[:-1], math.log(0.7)]  # one odd launch leaves the verdict as it is
    assert [judge_all([ratios.paired(logs)])[0].word for logs in (steady, odd)] == ["regressed"] * 2
    assert ratios.paired(odd).ratio == pytest.approx(ratios.paired(steady).ratio, rel=0.01)


@cases("rounds", 4, 7, 12)
def test_equal_sides_are_called_changed_in_at_most_5_percent(rounds: int) -> None:
    import numpy as np

    draws = np.random.default_rng(rounds).standard_normal((8_000, rounds)).tolist()
    alarms = sum(ratios.p_beyond(ratios.paired(logs), 0.0) <= 0.05 for logs in draws)
    assert 0.04 < alarms / len(draws) < 0.0547, "5 % and two standard errors"


@cases("planned", 3, 8, 20)
def test_all_looks_together_err_as_often_as_one_may(planned: int) -> None:
    """Sums of normal steps, against the bounds of all looks, and of as many more that are added."""
    import numpy as np

    draw, most = np.random.default_rng(planned), 2 * planned
    steps = draw.standard_normal((40_000, most)).cumsum(axis=1) / np.sqrt(np.arange(1, most + 1))
    bounds = [-stats.norm.ppf(ratios.nominal(n, planned, 0.05) / 2) for n in range(3, most + 1)]
    beyond = np.abs(steps[:, 2:]) >= bounds
    for n, share in ((planned, 0.04), (most, 0.045)):
        ended = int(beyond[:, : n - 2].any(axis=1).sum())
        assert stats.binomtest(ended, 40_000, share).pvalue > 0.001
        assert share == pytest.approx(ratios.spent(n, planned, 0.05))


def test_an_interval_with_looks_is_wider_and_that_of_the_last_look_less_so() -> None:
    wide = [ratios.paired(LOGS * n, planned=20).half / ratios.paired(LOGS * n).half for n in (1, 3)]
    assert wide[0] > wide[1] > 1
    assert ratios.paired(LOGS, planned=20).level == ratios.nominal(6, 20, 0.05)
    assert ratios.paired([0.1, 0.2], planned=20).half == ratios.paired([0.1, 0.2]).half
    with pytest.raises(ValueError, match="looks begin after round 3, not 2"):
        ratios.nominal(2, 20, 0.05)
    # A stricter level takes more rounds.
    plain, strict = (ratios.rounds_needed(interval(0.9, 0.05), 0.05, p) for p in (0.05, 0.005))
    assert sure(strict) > sure(plain)
    assert (
        ratios.rounds_needed(interval(1.0, 0.5), 0.05) is None
    )  # where hardly anything is to be seen
    assert judge_all([interval(1.0, 0.5)])[0].rounds_needed is None


@cases(
    "ratio, se, settled",
    (1.00, 0.005, True),  # the same
    (0.90, 0.01, True),  # beyond half the threshold
    (0.94, 0.015, False),  # proven, but perhaps of 2 %
    (0.98, 0.005, True),  # slower, and within the threshold
    (0.955, 0.01, False),  # slower, and perhaps regressed
    (0.97, 0.05, False),
)
def test_a_word_is_settled_where_its_size_is(ratio: float, se: float, settled: bool) -> None:
    assert judge_all([interval(ratio, se)])[0].settled is settled
    assert judge_all([interval(1 / ratio, se)])[0].settled is settled


@cases("ratio", 0.90, 0.93, 1.0, 1.02, 1.2)
@cases("sd", 0.02, 0.05, 0.1)
def test_with_the_rounds_that_it_names_it_is_settled(ratio: float, sd: float) -> None:
    needed = sure(ratios.rounds_needed(interval(ratio, sd / math.sqrt(4), 4), 0.05))
    *fewer, last = (
        judge_all([interval(ratio, sd / math.sqrt(n), n)])[0].word
        for n in range(max(3, needed - 1), needed + 1)
    )
    assert last != "inconclusive" and fewer in ([], ["inconclusive"])


@cases("cells", 1, 6)
def test_false_alarms_over_all_cells_stay_within_what_holm_promises(cells: int) -> None:
    """A against itself, any difference counted: the hardest case, since the truth is the bound."""
    draw, alarmed, runs = random.Random(f"holm/{cells}"), 0, 2000
    for _ in range(runs):
        rows = [ratios.paired([draw.gauss(0.0, 0.05) for _ in range(6)]) for _ in range(cells)]
        alarmed += any(test.word not in ("same", "inconclusive") for test in judge_all(rows))
    assert stats.binomtest(alarmed, runs, 0.05, alternative="greater").pvalue > 0.01
    assert alarmed > 0.03 * runs  # and not so strict that nothing is ever found
