"""How long a run of versus takes, and what it gives up to fit into a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_bench.benchmarks.versus import drive as versus_run
from serve_bench.benchmarks.versus.request import (
    LEAST_ROUNDS,
    LEAST_SIDE_S,
    expected_s,
    fit,
    round_s,
    versus_plan,
)
from serve_bench.core.errors import BadInput
from tests.kinds.versus.test_versus_request import ROWS, suite


def test_the_time_grows_with_rounds_rows_and_seconds() -> None:
    one = expected_s(suite(rounds=1), versus_plan(suite(rounds=1)))
    for more in ({"rounds": 2}, {"rows": ROWS}, {"side_s": 30.0}, {"steady_s": 4.0}):
        grown = suite(**({"rounds": 1} | more))
        assert expected_s(grown, versus_plan(grown)) > one
    assert round_s(suite(urls={})) < round_s(suite()) - 15  # nothing is launched


@pytest.mark.parametrize("budget_s", [100.0, 120.0, 150.0, 200.0, 260.0, 1000.0])
@pytest.mark.parametrize("rows", [ROWS[:1], ROWS])
def test_what_fits_is_within_the_budget_and_says_what_it_gave_up(
    budget_s: float, rows: tuple[object, ...]
) -> None:
    asked = suite(rows=rows)
    try:
        found = fit(asked, budget_s)
    except BadInput:
        least = replace(asked, rounds=3, side_s=LEAST_SIDE_S, steady_s=1.0)
        assert expected_s(least, versus_plan(least)) > budget_s
        return
    assert expected_s(found, versus_plan(found)) <= budget_s
    assert LEAST_ROUNDS <= found.rounds <= asked.rounds
    assert LEAST_SIDE_S <= found.side_s <= asked.side_s
    changed = (found.rounds, found.side_s, found.steady_s) != (20, 16.0, 2.0)
    assert bool(found.gave_up) is changed and found.budget_s == budget_s
    if found.rounds < asked.rounds:  # rounds are given up last
        one_more = replace(found, rounds=found.rounds + 1, side_s=LEAST_SIDE_S, steady_s=1.0)
        assert expected_s(one_more, versus_plan(one_more)) > budget_s


def test_seconds_are_given_up_before_rounds() -> None:
    whole = suite()
    short = expected_s(whole, versus_plan(whole)) - 30
    found = fit(whole, short)
    assert found.rounds == 20 and found.side_s < 16.0
    assert found.gave_up == (f"{found.side_s:g} s a side and row instead of 16 s",)


@pytest.mark.parametrize("budget_s", [150.0, 400.0, 1100.0])
def test_a_run_that_ends_once_settled_has_fewer_rounds_and_whole_ones(
    budget_s: float,
) -> None:
    asked = suite(looks=True)
    fewer = fit(asked, budget_s)
    assert fewer.looks and expected_s(fewer, versus_plan(fewer)) <= budget_s
    if expected_s(replace(asked, rounds=3), versus_plan(replace(asked, rounds=3))) <= budget_s:
        assert (fewer.side_s, fewer.steady_s) == (asked.side_s, asked.steady_s)
        one_more = replace(fewer, rounds=fewer.rounds + 1)
        assert expected_s(one_more, versus_plan(one_more)) > budget_s
        assert fewer.gave_up == (f"{fewer.rounds} rounds instead of 20",)
    else:
        assert fewer.rounds == 3 and fewer.side_s < asked.side_s


def test_a_budget_that_is_too_short_names_the_least_time() -> None:
    with pytest.raises(BadInput, match=r"^--budget: 30 s is not enough: 3 rounds of 4 s a .* min"):
        fit(suite(), 30.0)


@pytest.mark.parametrize(("took_s", "said"), [(109.0, False), (111.0, True)])
def test_a_budget_that_was_overrun_is_said(
    took_s: float, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    versus_run._note_overrun(100.0, took_s)
    told = capsys.readouterr().err
    assert ("it took 1 min 51 s of a budget of 1 min 40 s" in told) is said
