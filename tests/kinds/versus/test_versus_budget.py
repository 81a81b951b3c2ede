"""How long a run of versus takes, and a budget in which no verdict fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
