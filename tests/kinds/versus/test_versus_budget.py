"""How long a run of versus takes, and a budget in which no verdict fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_bench.benchmarks.versus.request import (
    check_budget,
    expected_s,
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


@pytest.mark.parametrize(("rounds", "least"), [(20, "3 rounds"), (3, "3 rounds"), (1, "1 round")])
def test_a_budget_has_room_for_a_verdict(rounds: int, least: str) -> None:
    asked = suite(rounds=rounds)
    fewest = replace(asked, rounds=min(3, rounds))
    takes_s = expected_s(fewest, versus_plan(fewest))
    check_budget(asked)
    check_budget(replace(asked, budget_s=takes_s + 1))
    with pytest.raises(BadInput, match=rf"^--budget: .* is not enough: {least} of 16 s a .* min"):
        check_budget(replace(asked, budget_s=takes_s - 1))
