"""How long a run of versus takes, and what it gives up to fit into a budget. Pure.

Rule: seconds of load are given up before rounds, since the interval is one over rounds; nothing
that was asked for is given up unsaid, and no cell or row ever is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from serve_bench.benchmarks.versus.request import (
    QUICK_STEADY_S,
    RoundPlan,
    VersusSuite,
    versus_plan,
)
from serve_bench.benchmarks.versus.slicing import DUET_S, DUET_START_S
from serve_bench.core.errors import BadInput
from serve_bench.core.scenario import CHANGE_S, FIRST_DEPLOY_S, MODEL_S, REPLICA_S

#: A round fewer, and an interval says nothing; a second less, and a round is noise.
LEAST_ROUNDS: Final = 3
LEAST_SIDE_S: Final = 4.0

#: Seconds beside the load, as measured on a host with 2 cores: both launches, at once, the end of
#: both, and for each row of a side the start of its worker and the warm-up. In the first round each
#: row is looked at before. Both deploys at once take a share of what they take one by one.
BOTH_UP_S: Final = 12.0
AT_ONCE: Final = 0.7
TEARDOWN_S: Final = 1.0
ROW_S: Final = 1.3
LOOKS_S: Final = 15.0


def round_s(suite: VersusSuite, plan: RoundPlan | None = None) -> float:
    """About how long a round takes, of all cells or of what is left of it."""
    cells = [cell for cell, _ in plan.cells] if plan is not None else list(suite.cells)
    rows = len(plan.pairings) if plan is not None else len(suite.cells) * len(suite.rows)
    loads_s = rows * 2 * (suite.side_s + suite.steady_s + ROW_S)
    if suite.pairing == "duet":
        loads_s = rows * (suite.side_s * (1 + DUET_START_S / DUET_S) + 2 * ROW_S)
    if suite.urls is not None:
        return loads_s
    deploys_s = 0.0
    for side in suite.sides:
        every = [side.cell(cell) for cell in cells]
        most = max(side.app.replicas(cell) for cell in every)
        deploys_s += FIRST_DEPLOY_S + CHANGE_S * (len(cells) - 1) + REPLICA_S * (most - 1)
        deploys_s += MODEL_S * max(
            int(cell["num_replicas"]) if "ranker" in cell else 0 for cell in every
        )
    return BOTH_UP_S + AT_ONCE * deploys_s + loads_s + TEARDOWN_S


def expected_s(suite: VersusSuite, rounds: Iterable[RoundPlan]) -> float:
    """About how long these rounds take."""
    every = list(rounds)
    looks = bool(every) and every[0].round == 1 and suite.pairing != "duet"
    first = LOOKS_S * len(every[0].pairings) if looks else 0.0
    return first + sum(round_s(suite, one) for one in every)


def fit(suite: VersusSuite, budget_s: float) -> VersusSuite:
    """The suite within a budget, with what it gave up: seconds of each side first, then rounds,
    since the interval is one over rounds. Raises BadInput, naming the least time."""
    steady_s = min(suite.steady_s, QUICK_STEADY_S)
    least_rounds = min(LEAST_ROUNDS, suite.rounds)
    least_side_s = min(LEAST_SIDE_S, suite.side_s)
    for rounds in range(suite.rounds, least_rounds - 1, -1):
        for tried in (suite.steady_s, steady_s):
            shorter = replace(suite, rounds=rounds, steady_s=tried, side_s=least_side_s)
            spare_s = budget_s - expected_s(shorter, versus_plan(shorter))
            if spare_s >= 0:
                loads = 2 * rounds * len(suite.cells) * len(suite.rows)
                more_s = int(2 * spare_s / loads) / 2  # to half a second
                side_s = min(suite.side_s, least_side_s + more_s)
                fitted = replace(shorter, side_s=side_s, budget_s=budget_s)
                return replace(fitted, gave_up=_given_up(suite, fitted))
    least = replace(suite, rounds=least_rounds, side_s=least_side_s, steady_s=steady_s)
    least_s = expected_s(least, versus_plan(least))
    raise BadInput(
        f"--budget: {duration(budget_s)} is not enough: {least_rounds} rounds of "
        f"{least_side_s:g} s a side and row take about {duration(least_s)}"
    )


def _given_up(asked: VersusSuite, fitted: VersusSuite) -> tuple[str, ...]:
    told = []
    if fitted.rounds < asked.rounds:
        told.append(f"{fitted.rounds} rounds instead of {asked.rounds}")
    if fitted.side_s < asked.side_s:
        told.append(f"{fitted.side_s:g} s a side and row instead of {asked.side_s:g} s")
    if fitted.steady_s < asked.steady_s:
        told.append(f"steady windows of {fitted.steady_s:g} s instead of {asked.steady_s:g} s")
    return tuple(told)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
