from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.climb import Climb, climbs_of, throughput_of
from serve_bench.core.facts import ProfileFacts, TrialFlags
from serve_bench.core.ladder import Ladder, Rung, find_shape
from serve_bench.core.plan import Suite, expected_trial_s, label_of, plan, setup_s, step_row
from serve_bench.core.result import Failure, PlannedTrial, Result, Trial, result_of
from serve_bench.runner.agenda import PROFILING_S, Agenda, Climbing, rest_of
from serve_bench.spec.suite import Around
from tests.cases import sure
from tests.records import AT, failure_of, run, trial
from tests.suites import suite_with

KEPT = (ProfileFacts(role="replica", pid=1, title="", path="x", samples=9),)
FAILED = (ProfileFacts(role="replica", pid=1, title="", failed="was idle"),)
LISTED = Ladder(steps=(10, 20, 30))


def suite_of(**flags: Any) -> Suite:
    return suite_with(**{"variant": ["default"], **flags})


def planned_rows(of: Suite) -> list[PlannedTrial]:
    return [row for launch in plan(of) for _, rows in launch.cells for row in rows]


SUITE = suite_of(matrix={"max_ongoing_requests": (1, 100)}, clients=["1", "raw:100"])
ROWS = planned_rows(SUITE)
LADDER = suite_of(users="10,20,30")
THRICE = Around(climb=Ladder(runs=3))
PRESS = replace(suite_of(users="1,10,100", around=THRICE), requests_per_client=50)


def earlier(suite: Suite, *records: Trial | Failure) -> Result:
    return result_of([run(*planned_rows(suite)), *records])


def todo_of(agenda: Agenda) -> list[list[tuple[PlannedTrial, bool]]]:
    """List what is done in each cell: rows, and whether they are profiled."""
    return [agenda.list_loads(rows) for launch in agenda.launches for _, rows in launch.cells]


def test_the_time_left_counts_profiled_repetitions() -> None:
    launches = plan(SUITE)
    plain, both = Agenda(SUITE, launches), Agenda(SUITE, launches, profile=True)
    rows_s = sum(expected_trial_s(SUITE, planned.row) for planned in ROWS)
    assert plain.expected_s() == pytest.approx(setup_s(SUITE, launches) + rows_s)
    assert both.expected_s() == pytest.approx(plain.expected_s() + rows_s + 4 * PROFILING_S)
    behind = replace(both, measured=frozenset(row.key for row in ROWS))
    assert behind.expected_s() == pytest.approx(both.expected_s() - rows_s)
    assert plain.expected_s([]) == 0


def test_resuming_does_what_is_missing_alone() -> None:
    measured = [trial(row) for row in ROWS[:3]]
    with_stacks = replace(trial(ROWS[0], profiled=True), profiles=KEPT)
    without_stacks = replace(trial(ROWS[1], profiled=True), profiles=FAILED)
    run_before = earlier(SUITE, *measured, with_stacks, without_stacks)
    plain = rest_of(run_before, SUITE, profile=False)
    assert todo_of(plain) == [[(ROWS[3], False)]]
    both = rest_of(run_before, SUITE, profile=True)
    assert todo_of(both) == [
        [(ROWS[1], True)],
        [(ROWS[3], False), (ROWS[2], True), (ROWS[3], True)],
    ]
    assert [profiled for _, profiled in both.loads()] == [True, False, True, True]


def test_a_row_in_doubt_is_measured_again_and_a_whole_run_leaves_nothing() -> None:
    measured = [trial(row) for row in ROWS]
    doubt = Failure("worker", "a worker died", AT, key=ROWS[2].key)
    again = rest_of(earlier(SUITE, *measured, doubt), SUITE, profile=False)
    assert todo_of(again) == [[(ROWS[2], False)]]
    assert rest_of(earlier(SUITE, *measured), SUITE, profile=False).launches == ()
    profiles = [replace(trial(row, profiled=True), profiles=KEPT) for row in ROWS]
    assert rest_of(earlier(SUITE, *measured, *profiles), SUITE, profile=True).launches == ()
    # A profile that was broken off is recorded again.
    broken_off = replace(profiles[1], flags=TrialFlags(profiled=True, interrupted=True))
    before = earlier(SUITE, *measured, profiles[0], broken_off, *profiles[2:])
    assert todo_of(rest_of(before, SUITE, profile=True)) == [[(ROWS[1], True)]]


def step(users: int, rate: float, **more: object) -> Trial:
    made = Climb(LISTED, "default", 1, label_of(LADDER.cells[0]))
    planned = made.planned(users)
    return replace(trial(planned, rate, rate, rate), **more)  # type: ignore[arg-type]


def work_of(suite: Suite, rest: Agenda | None = None) -> Any:
    launch = (rest.launches if rest else plan(suite))[0]
    ((cell, rows),) = launch.cells
    return (rest or Agenda(suite, (launch,))).work(launch, cell, rows)


def test_work_gives_step_after_step_and_a_failed_load_served_nothing() -> None:
    work = work_of(LADDER)
    taken: list[int] = []
    while (todo := work.next()) is not None:
        assert work.left() == 3 - len(taken)
        taken.append(todo[0].row.connections)
        work.add(todo, None)
    assert taken == [10, 20, 30] and work.left() == 0
    assert throughput_of(None) == 0.0


def test_gone_on_with_a_ladder_measures_what_is_missing() -> None:
    rest = rest_of(earlier(LADDER, step(10, 40), step(20, 80)), LADDER, profile=False)
    todo = work_of(LADDER, rest).next()
    assert todo is not None and todo[0].row.connections == 30
    assert len(rest.loads()) == 1
    # The agenda is asked more than once: a sitting must not use up what the next question finds.
    assert work_of(LADDER, rest).next() == todo
    whole = earlier(LADDER, *(step(users, 4.0 * users) for users in (10, 20, 30)))
    assert rest_of(whole, LADDER, profile=False).launches == ()  # it is at its end


def test_a_step_in_doubt_comes_first_and_keeps_its_place() -> None:
    bad = step(20, 3)
    before = earlier(LADDER, step(10, 40), bad, failure_of(bad, "a replica ended"), step(30, 90))
    climb = climbs_of(before, LISTED)[("default", 1, "bs1-ongoing10000-rep1")]
    assert climb.again == [(20, 1)]
    assert [step.clients for step in climb.steps] == [10, 30]
    assert sure(climb.next()).row.connections == 20
    climb.add(step_row(20), 80)
    assert climb.steps == (Rung(10, 40), Rung(20, 80), Rung(30, 90))
    assert climb.next() is None
    # Without a trial.
    lost = earlier(LADDER, step(10, 40), failure_of(step(20, 1), "a replica ended"))
    climb = climbs_of(lost, LISTED)[("default", 1, "bs1-ongoing10000-rep1")]
    assert ([*climb.rates], climb.again) == ([(10, 1), (20, 1)], [(20, 1)])


def pressed(rates: list[float]) -> list[PlannedTrial]:
    """Press with loads that come out as told, in their order."""
    work = work_of(PRESS)
    taken = []
    while (todo := work.next()) is not None:
        taken.append(todo[0])
        work.add(todo, trial(todo[0], rates[len(taken) - 1]))
    return taken


def test_a_step_that_fell_is_measured_three_times_at_once() -> None:
    taken = pressed([40, 100, 30, 90, 20, 101, 99])
    assert [(step.row.connections, step.row.run) for step in taken] == [
        *((1, 1), (10, 1)),
        *((100, 1), (100, 2), (100, 3)),
        *((10, 2), (10, 3)),  # what it fell from, so that one good moment makes no collapse
    ]
    assert [step.row.requests for step in taken] == [50, 500, 5000, 5000, 5000, 500, 500]
    assert len({step.key for step in taken}) == 7
    # One that was broken off goes on with the runs that are missing.
    done = [trial(step, rate) for step, rate in zip(taken, [40, 100, 30, 90], strict=False)]
    rest = rest_of(earlier(PRESS, *done), PRESS, profile=False)
    assert work_of(PRESS, rest).next()[0] == taken[4]
    rates = [40.0, 100.0, 70.0, 75.0, 72.0, 71.0]  # the best was one good moment
    taken = pressed(rates)
    assert [(step.row.connections, step.row.run) for step in taken][5:] == [(10, 2)]
    measured = [Rung(step.row.connections, rate) for step, rate in zip(taken, rates, strict=True)]
    assert find_shape(measured).collapses == ()


def test_the_time_left_follows_the_rate_and_is_bounded_for_each_row() -> None:
    work = work_of(PRESS)
    todo = work.next()
    assert todo is not None and isinstance(work, Climbing)
    before = work.left_s()
    work.add(todo, trial(todo[0], 10_000.0))
    after = work.left_s()
    assert 0 < after < before
    slow = work_of(PRESS)
    slow.add(todo, trial(todo[0], 0.001))
    assert isinstance(slow, Climbing) and slow.left_s() < 2 * (PRESS.max_row_s + 10)
