"""Ladders of a run: knee, best and collapse are measured steps, and the end is told."""

from __future__ import annotations

from dataclasses import asdict, replace

from serve_bench.climb import Climb
from serve_bench.ladder import Ladder
from serve_bench.ladder_figures import ladder_lines
from serve_bench.report import render
from serve_bench.result import Counts, Failure, Result, Trial, result_of
from tests.records import AT, cell, run, trial

BROKEN = Failure("trial", "a replica ended", AT, variant="default", round=1)
RATES = {10: 100.0, 20: 180.0, 30: 196.0, 40: 200.0, 50: 150.0}


def steps(variant: str, ladder: Ladder, rates: dict[int, float]) -> list[Trial]:
    climb = Climb(ladder, variant, 1, cell())
    return [trial(climb.planned(users), rate, rate) for users, rate in rates.items()]


def result(ladder: Ladder, *trials: Trial) -> Result:
    begun = replace(run(), suite={"ladder": asdict(ladder)})
    return result_of([begun, *trials])


def test_knee_best_and_collapse_are_steps() -> None:
    ladder = Ladder(steps=tuple(RATES))
    (found,) = ladder_lines(result(ladder, *steps("default", ladder, RATES)))
    assert [line.row.connections for line in found.steps] == [10, 20, 30, 40, 50]
    assert found.knee is found.steps[2] and found.best is found.steps[3]
    assert [line.row.connections for line in found.collapses] == [50]
    assert [found.mark(line) for line in found.steps] == ["", "", "knee", "best", "collapse"]
    assert found.end == "the list is measured"


def test_steps_come_with_the_fewest_users_first_whatever_the_order() -> None:
    ladder = Ladder()
    rates = {10: 100.0, 15: 150.0, 20: 152.0, 30: 151.0, 12: 120.0}
    (found,) = ladder_lines(result(ladder, *steps("default", ladder, rates)))
    assert [line.row.connections for line in found.steps] == [10, 12, 15, 20, 30]
    assert found.mark(found.steps[2]) == "knee"


def test_a_ladder_that_was_broken_off_says_what_comes_next() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    done = {users: RATES[users] for users in (10, 20)}
    (found,) = ladder_lines(result(ladder, *steps("default", ladder, done)))
    assert found.end == "not at its end: 30 users come next"


def test_ladders_of_two_variants_stand_apart() -> None:
    ladder = Ladder(steps=(10, 20))
    rates = {10: 100.0, 20: 180.0}
    both = [one for name in ("default", "optimized") for one in steps(name, ladder, rates)]
    assert [one.variant for one in ladder_lines(result(ladder, *both))] == ["default", "optimized"]


def test_where_nothing_was_served_there_is_no_knee() -> None:
    ladder = Ladder(steps=(10,))
    (found,) = ladder_lines(result(ladder, *steps("default", ladder, {10: 0.0})))
    assert (found.knee, found.best, found.collapses) == (None, None, ())


def test_a_run_without_a_ladder_has_none() -> None:
    assert ladder_lines(result_of([run()])) == ()


def test_a_step_in_doubt_is_neither_knee_nor_best_nor_a_collapse() -> None:
    ladder = Ladder(steps=tuple(RATES))
    trials = steps("default", ladder, RATES)
    broken = [
        replace(BROKEN, key=one.key, cell=one.cell, row=one.row) for one in (trials[3], trials[4])
    ]
    begun = replace(run(), suite={"ladder": asdict(ladder)})
    (found,) = ladder_lines(result_of([begun, *trials, *broken]))
    marks = [found.mark(line) for line in found.steps]
    assert marks == ["", "", "knee, best", "in doubt", "in doubt"]
    assert found.collapses == ()
    assert found.end == "in doubt, and to be measured again: 40, 50 users"


def test_a_step_that_was_broken_off_is_in_doubt() -> None:
    ladder = Ladder(steps=(10, 20))
    first, second = steps("default", ladder, {10: 100.0, 20: 180.0})
    (found,) = ladder_lines(result(ladder, first, replace(second, flags={"interrupted": True})))
    assert found.best is found.steps[0] and found.mark(found.steps[1]) == "in doubt"


def test_a_step_with_many_errors_is_no_best_but_can_be_a_collapse() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    one, two, three = steps("default", ladder, {10: 100.0, 20: 180.0, 30: 60.0})
    many = Counts(sent=200, completed=100, failed={"timeout": 100}, in_flight=0)
    failing = [replace(two, counts=many), replace(three, counts=many)]
    (found,) = ladder_lines(result(ladder, one, *failing))
    assert found.best is found.steps[0]
    assert [line.row.connections for line in found.collapses] == [30]


def test_a_deploy_that_failed_stands_in_the_table() -> None:
    ladder = Ladder(steps=(10,))
    lost = Failure("deploy", "no replica came", AT, variant="default", round=1, cell=cell())
    begun = replace(run(), suite={"ladder": asdict(ladder)})
    trials = steps("default", ladder, {10: 100.0})
    text = render(result_of([begun, *trials, lost]))
    assert "failed: deploy: no replica came" in text
    assert "LADDER default" in text
