"""Ladders of a run: knee, best and collapse are measured steps, and it is said why each ended."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from serve_bench.analysis.climb import Climb
from serve_bench.core.facts import TrialFlags
from serve_bench.core.figures import LowerBound
from serve_bench.core.histogram import Histogram
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Failure, Metric, Result, Trial, result_of
from serve_bench.report.drawing import draw
from serve_bench.report.theme import list_looks, list_series
from serve_bench.view.charts import AT_LEAST
from serve_bench.view.ladders import LadderView
from tests.cases import cases
from tests.records import AT, cell, run, trial
from tests.sheet_parts import chart, ladders_of, make_sheet, view_of
from tests.versus_records import latency_of

RATES = {10: 100.0, 20: 180.0, 30: 196.0, 40: 200.0, 50: 150.0}
LISTED = Ladder(steps=tuple(RATES))
NONE = (None, None, list[int]())


def climbed(
    ladder: Ladder, rates: Mapping[int, float], variant: str = "default", launch: int = 1, **of: Any
) -> list[Trial]:
    """Make steps of a launch with latencies as Little's law has them."""
    climb = Climb(ladder, variant, launch, cell())
    return [
        trial(climb.planned(users), rate, latency=latency_of(rate, users), **of)
        for users, rate in rates.items()
    ]


def result(ladder: Ladder, *trials: Trial | Failure) -> Result:
    begun = replace(run(), command="sweep", suite={"ladder": asdict(ladder)})
    return result_of([begun, *trials])


def failed(trial: Trial) -> Failure:
    place: Any = {"variant": "default", "round": 1, "cell": trial.cell, "row": trial.row}
    return Failure("trial", "a replica ended", AT, key=trial.key, **place)


def cut(trial: Trial) -> Trial:
    return replace(trial, flags=TrialFlags(interrupted=True))


def marks(ladder: LadderView) -> list[str]:
    return [row.dims["mark"] for row in ladder.rows]


def users(ladder: LadderView) -> tuple[int | None, int | None, list[int]]:
    steps = (ladder.knee, ladder.best)
    first, top = (None if rung is None else rung.clients for rung in steps)
    return first, top, list(ladder.collapses)


def test_knee_best_and_collapse_are_steps_the_fewest_users_first() -> None:
    (found,) = ladders_of(result(LISTED, *climbed(LISTED, RATES)))
    assert list(found.steps) == [10, 20, 30, 40, 50] and users(found) == (30, 40, [50])
    assert marks(found) == ["", "", "knee", "best", "collapse"]
    refined = {10: 100.0, 15: 150.0, 20: 152.0, 30: 151.0, 12: 120.0}
    (found,) = ladders_of(result(Ladder(refinements=1), *climbed(Ladder(refinements=1), refined)))
    assert list(found.steps) == [10, 12, 15, 20, 30] and marks(found)[2] == "knee"


def test_a_ladder_that_was_broken_off_says_what_comes_next() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    trials = [
        *climbed(ladder, {10: 200.0, 20: 300.0, 30: 310.0}, "optimized"),
        *climbed(ladder, {10: 100.0, 20: 180.0}),
    ]
    first, found = ladders_of(result(ladder, *trials))
    assert users(found) == NONE and marks(found) == ["", ""]
    assert users(first) == (20, 30, [])
    whole, point = view_of(result(ladder, *trials)).points
    assert whole.dims["end"] == "the list is measured"
    ends = "the list is measured (optimized); 30 users come next (default)"
    assert view_of(result(ladder, *trials)).findings[-1] == f"Climb: {ends}"
    assert point.dims["end"] == "30 users come next"
    assert point.gap == "not climbed to its end" and not point.values
    assert "best_with" not in point.dims


def test_a_ladder_that_was_broken_off_in_a_step_below_its_highest_is_not_at_its_end() -> None:
    refining, falling, repeating = Ladder(refinements=4), Ladder(steps=(30, 20, 10)), Ladder(runs=2)
    *grown, last = climbed(refining, {10: 100.0, 15: 150.0, 20: 152.0, 30: 151.0, 24: 9.0})
    three, two, lowest = climbed(falling, {30: 150.0, 20: 180.0, 10: 9.0})
    for ladder, trials in (
        (refining, [*grown, cut(last)]),  # further refinements come after it
        (falling, [three, two, cut(lowest)]),
        (repeating, climbed(repeating, {10: 200.0, 15: 100.0})),  # 15 users come once more
    ):
        (found,) = ladders_of(result(ladder, *trials))
        assert users(found) == NONE
    (found,) = ladders_of(result(falling, three, cut(two), lowest))
    assert users(found) == (30, 30, [])  # in the middle of a list it is left out


def test_figures_are_of_the_launches_that_came_to_their_end() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    trials = [
        *climbed(ladder, {10: 100.0, 20: 360.0, 30: 350.0}, "optimized"),
        *climbed(ladder, {10: 100.0, 20: 180.0, 30: 150.0}),
        *climbed(ladder, {10: 90.0, 20: 360.0}, launch=2),
    ]
    view = view_of(result(ladder, *trials))
    point = view.points[1]
    assert (point.value("best"), point.value("throughput")) == (180.0, 180.0)
    assert point.values["best"].launches == {1: 180.0}
    assert view.comparisons[0].value("served_of_base") == 0.5


def test_a_step_in_doubt_is_neither_knee_nor_best_nor_a_collapse() -> None:
    trials = climbed(LISTED, RATES)
    broken = [failed(trials[3]), failed(trials[4])]
    (found,) = ladders_of(result(LISTED, *trials, *broken))
    assert marks(found) == ["", "", "", "in doubt", "in doubt"]  # what it ended with is not known
    assert users(found) == NONE
    (point,) = view_of(result(LISTED, *trials, *broken)).points
    assert point.dims["end"] == "40 users come next"
    (found,) = ladders_of(result(LISTED, *trials, broken[0]))
    assert marks(found) == ["", "", "knee, best", "in doubt", "collapse"]
    # One that a launch did not measure counts by the others.
    again = climbed(LISTED, RATES, launch=2)
    lost = replace(failed(again.pop(3)), round=2)
    (found,) = ladders_of(result(LISTED, *trials, *again, lost))
    assert users(found) == (30, 40, [50])
    # One that was broken off is in doubt.
    ladder = Ladder(steps=(10, 20))
    first, second = climbed(ladder, {10: 100.0, 20: 180.0})
    (found,) = ladders_of(result(ladder, first, cut(second)))
    assert found.best is None and marks(found)[1] == "in doubt"
    nothing = replace(second, counts=Counts(90, 0, {"reset": 90}, 0))
    (found,) = ladders_of(result(ladder, first, nothing, failed(second)))
    assert users(found)[1] == 10  # it was climbed to where nothing was served


def test_a_step_with_many_errors_is_no_best_but_can_be_a_collapse() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    first, *others = climbed(ladder, {10: 100.0, 20: 180.0, 30: 60.0})
    many = Counts(sent=200, completed=100, failed={"timeout": 100}, in_flight=0)
    (found,) = ladders_of(result(ladder, first, *(replace(at, counts=many) for at in others)))
    assert users(found) == (10, 10, [30])


@cases(
    "trials, said",
    (climbed(LISTED, dict.fromkeys(RATES, 1e-4), failed={"reset": 50}), "no sound step (the li"),
    (climbed(LISTED, {10: 100.0}), "not climbed to its end (20 users come next)"),
    ([], "nothing was measured"),
)
def test_without_a_sound_step_no_figure_is_claimed(trials: list[Trial], said: str) -> None:
    view = view_of(result(LISTED, *trials))
    (finding,) = view.findings
    assert finding.startswith(f"There is no knee and no best: {said}")
    assert not any(point.values for point in view.points)


def test_a_latency_that_is_only_a_lower_bound_is_marked() -> None:
    """With 50 users a tenth of the requests got no answer in 30 s."""
    made = climbed(LISTED, RATES)
    sound = chart(make_sheet(result(LISTED, *made)), "Latency over users")
    assert AT_LEAST not in sound.caption
    given_up = Histogram.of([30_000_000_000] * 100).encode()
    metrics = {**made[-1].metrics, "censored": Metric("ns", "lower", histogram=given_up)}
    made[-1] = replace(made[-1], metrics=metrics)
    latency = chart(make_sheet(result(LISTED, *made)), "Latency over users")
    points = [point for point in latency.points if isinstance(point.value, LowerBound)]
    assert [(point.x, point.series) for point in points] == [(50, "p99")]
    drawn = draw(latency, list_series(latency, list_looks([latency])))
    assert AT_LEAST in latency.caption and "&gt; 30,000" in drawn.plot
