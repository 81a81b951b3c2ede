"""How long a run of versus takes, a budget in which no verdict fits, and when it ends early."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.benchmarks.versus.bench import SHORTEST_SIDE_S, Pairs
from serve_bench.benchmarks.versus.request import check_budget, expected_s, versus_plan
from serve_bench.core.errors import BadInput
from tests.kinds.versus.test_versus_request import suite


@pytest.mark.parametrize(("rounds", "least"), [(20, "3 rounds"), (3, "3 rounds"), (1, "1 round")])
def test_a_budget_has_room_for_a_verdict(rounds: int, least: str) -> None:
    asked = suite(rounds=rounds)
    fewest = replace(asked, rounds=min(3, rounds))
    takes_s = expected_s(fewest, versus_plan(fewest))
    check_budget(asked)
    check_budget(replace(asked, budget_s=takes_s + 1))
    with pytest.raises(BadInput, match=rf"^--budget: .* is not enough: {least} of 16 s a .* min"):
        check_budget(replace(asked, budget_s=takes_s - 1))


def rounds_in_budget(
    late_s: float, room_s: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Pairs, list[float], float, str]:
    """A run of three rounds that each last longer than planned, in a budget with so much room: the
    seconds that a side is loaded in each, how much of the budget is left, and why it ended."""
    asked = suite(rounds=3)
    plan, now_s, sides = versus_plan(asked), 0.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    budget_s = expected_s(asked, plan) + room_s
    pairs = Pairs(asked, plan, folder, "abc", budget_s=budget_s)
    for place in range(3):
        pairs._expected_s(place, None)
        sides.append(pairs.rows.suite.side_s)
        now_s += expected_s(pairs.suite, plan[place : place + 1]) + late_s
        if place < 2 and (stop := pairs._over()) is not None:
            return pairs, sides, budget_s - now_s, stop.why
    return pairs, sides, budget_s - now_s, ""


@pytest.mark.parametrize(("late_s", "room_s"), [(5.0, 0.0), (10.0, 2.0), (3.0, 9.0)])
def test_rounds_that_take_longer_are_followed_by_shorter_ones(
    late_s: float, room_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sides, left_s, why = rounds_in_budget(late_s, room_s, tmp_path, monkeypatch)
    assert why == "" and left_s >= 0
    assert (sides[2] < sides[0]) is (3 * late_s > room_s)


def test_a_round_is_not_shortened_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, sides, left_s, why = rounds_in_budget(60.0, 0.0, tmp_path, monkeypatch)
    assert why == "budget" and pairs.suite.side_s == SHORTEST_SIDE_S
    assert len(sides) < 3 and left_s > 0


TIMED_OUT = "GET / on port {} had no answer in 30 s"


@pytest.mark.parametrize(
    ("rounds", "ends"),
    [
        ([[TIMED_OUT.format(1001), TIMED_OUT.format(1051)]], True),
        ([[TIMED_OUT.format(1001), "the app 'default' is DEPLOY_FAILED"]], False),
        ([[TIMED_OUT.format(1001)]], False),
        ([[TIMED_OUT.format(1001)], [TIMED_OUT.format(1101)]], True),
        ([[TIMED_OUT.format(1001)], ["raylet 7 ended"]], False),
    ],
)
def test_a_failure_of_both_sides_or_of_two_rounds_ends_the_run(
    rounds: list[list[str]], ends: bool, tmp_path: Path
) -> None:
    asked = suite(rounds=3)
    for measured in (False, True):
        pairs = Pairs(asked, versus_plan(asked), tmp_path, "abc")
        if measured:
            pairs.note_measured()
        for messages in rounds:
            pairs.note_failures(messages)
        stop = pairs._over()
        assert (stop is not None and stop.why == "failure") is (ends and not measured)
