"""A ladder as work: the steps that come, what is taken up from an earlier sitting."""

from dataclasses import replace
from typing import Any

from serve_bench.analysis.climb import Climb, climbs_of, throughput_of
from serve_bench.core.ladder import Ladder, Rung, collapses
from serve_bench.core.plan import Suite, label_of, plan, step_row
from serve_bench.core.result import Failure, PlannedTrial, Result, Trial, result_of
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.runner.agenda import Agenda, Climbing, rest_of
from tests.records import cell, failure_of, run, trial

LISTED = Ladder(steps=(10, 20, 30))


def saturating(users: int) -> float:
    """A server that takes 100 requests/s at most."""
    return min(100.0, 4.0 * users)


def climbed(ladder: Ladder) -> Climb:
    climb = Climb(ladder, "default", 1, cell())
    while (planned := climb.next()) is not None:
        climb.add(planned.row, saturating(planned.row.connections))
    return climb


def suite(ladder: Ladder = LISTED) -> Suite:
    return read_suite({}, "x.toml", Overrides(ladder=ladder, variants=("default",)))


def step(users: int, rate: float, **more: object) -> Trial:
    """A measured step of the suite's only cell."""
    made = Climb(LISTED, "default", 1, label_of(suite().cells[0]))
    planned = made.planned(users)
    return replace(trial(planned, rate, rate, rate), **more)  # type: ignore[arg-type]


def planned_rows(of: Suite) -> list[PlannedTrial]:
    return [row for launch in plan(of) for _, rows in launch.cells for row in rows]


def work_of(suite: Suite, rest: Agenda | None = None) -> Any:
    """The work of a suite's only cell, or what is left of it."""
    launch = (rest.launches if rest else plan(suite))[0]
    ((one, rows),) = launch.cells
    return (rest or Agenda(suite, (launch,))).work(launch, one, rows)


def earlier(*records: Trial | Failure) -> Result:
    return result_of([run(*planned_rows(suite())), *records])


def test_a_ladder_grows_until_it_gains_no_more_and_refines() -> None:
    climb = climbed(Ladder(refinements=2))
    order = [clients for clients, _ in climb.rates]
    assert order[:6] == [10, 15, 20, 30, 40, 50]
    assert 20 < order[6] < 30 and len(climb.rates) == 8
    assert climb.expected_left == 0 and climb.next() is None
    assert [row.row.connections for row in planned_rows(suite())] == [10, 20, 30]
    assert [row.row.connections for row in planned_rows(suite(Ladder()))] == [10]
    assert Suite.from_json(suite().to_json()) == suite()
    planned = Climb(LISTED, "optimized", 2, cell(replicas=4)).next()
    assert planned is not None and planned.row == step_row(10)
    assert planned.key == "optimized/r2/bs1-ongoing1-rep4/10-users"
    assert (planned.row.client, planned.row.connections, planned.row.loop) == ("raw", 10, "closed")


def test_work_gives_step_after_step_and_a_failed_load_served_nothing() -> None:
    work = work_of(suite())
    taken: list[int] = []
    while (todo := work.next()) is not None:
        assert len(work.left()) == 3 - len(taken)
        taken.append(todo[0].row.connections)
        work.add(todo, None)
    assert taken == [10, 20, 30] and work.left() == []
    assert throughput_of(None) == 0.0


def test_gone_on_with_a_ladder_measures_what_is_missing() -> None:
    rest = rest_of(earlier(step(10, 40), step(20, 80)), suite(), profile=False)
    todo = work_of(suite(), rest).next()
    assert todo is not None and todo[0].row.connections == 30
    assert len(rest.loads()) == 1
    # The agenda is asked more than once: a sitting must not use up what the next question finds.
    assert work_of(suite(), rest).next() == todo
    whole = earlier(*(step(users, saturating(users)) for users in (10, 20, 30)))
    assert rest_of(whole, suite(), profile=False).launches == ()  # it is at its end


def test_a_step_in_doubt_comes_first_and_keeps_its_place() -> None:
    bad = step(20, 3)
    before = earlier(step(10, 40), bad, failure_of(bad, "a replica ended"), step(30, 90))
    climb = climbs_of(before, LISTED)[("default", 1, "bs1-ongoing10000-rep1")]
    assert climb.again == [(20, 1)]
    assert [one.clients for one in climb.steps] == [10, 30]
    planned = climb.next()
    assert planned is not None and planned.row.connections == 20
    climb.add(step_row(20), 80)
    assert [(one.clients, one.throughput) for one in climb.steps] == [(10, 40), (20, 80), (30, 90)]
    assert climb.next() is None
    lost = earlier(step(10, 40), failure_of(step(20, 1), "a replica ended"))  # without a trial
    climb = climbs_of(lost, LISTED)[("default", 1, "bs1-ongoing10000-rep1")]
    assert ([*climb.rates], climb.again) == ([(10, 1), (20, 1)], [(20, 1)])


PRESS = replace(suite(Ladder(steps=(1, 10, 100), runs=3)), requests_per_client=50)


def pressed(rates: list[float]) -> list[PlannedTrial]:
    """The rows of a press test whose loads come out as told, in their order."""
    work = work_of(PRESS)
    taken = []
    while (todo := work.next()) is not None:
        taken.append(todo[0])
        work.add(todo, trial(todo[0], rates[len(taken) - 1]))
    return taken


def test_a_step_that_fell_is_measured_three_times_at_once() -> None:
    taken = pressed([40, 100, 30, 90, 20, 101, 99])
    assert [(one.row.connections, one.row.run) for one in taken] == [
        *((1, 1), (10, 1)),
        *((100, 1), (100, 2), (100, 3)),
        *((10, 2), (10, 3)),  # what it fell from, so that one good moment makes no collapse
    ]
    assert [one.row.requests for one in taken] == [50, 500, 5000, 5000, 5000, 500, 500]
    assert len({one.key for one in taken}) == 7
    rates = [40.0, 100.0, 70.0, 75.0, 72.0, 71.0]  # the best was one good moment
    taken = pressed(rates)
    assert [(one.row.connections, one.row.run) for one in taken][5:] == [(10, 2)]
    measured = [Rung(one.row.connections, rate) for one, rate in zip(taken, rates, strict=True)]
    assert collapses(measured) == ()


def test_a_press_test_that_was_broken_off_goes_on_with_the_runs_that_are_missing() -> None:
    taken = pressed([40, 100, 30, 90, 20, 101, 99])
    done = [trial(one, rate) for one, rate in zip(taken, [40, 100, 30, 90], strict=False)]
    rest = rest_of(result_of([run(*planned_rows(PRESS)), *done]), PRESS, profile=False)
    todo = work_of(PRESS, rest).next()
    assert todo is not None and todo[0] == taken[4]


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
