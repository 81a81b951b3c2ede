"""Ladders of a run: knee, best and collapse are measured steps, and it is said why each ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from serve_bench.analysis.climb import Climb
from serve_bench.core.histogram import Histogram
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Failure, Metric, Result, Trial, result_of
from serve_bench.report.vega import vega
from serve_bench.view.drawn import AT_LEAST
from serve_bench.view.ladders import LadderView
from tests.records import AT, cell, run, trial
from tests.rendering import render
from tests.sheet_parts import as_lines, chart, is_sound, ladder_sheet, ladders_of, names
from tests.versus_records import latency_of

BROKEN = Failure("trial", "a replica ended", AT, variant="default", round=1)
RATES = {10: 100.0, 20: 180.0, 30: 196.0, 40: 200.0, 50: 150.0}


def steps(variant: str, ladder: Ladder, rates: dict[int, float]) -> list[Trial]:
    climb = Climb(ladder, variant, 1, cell())
    return [trial(climb.planned(users), rate, rate) for users, rate in rates.items()]


def climbed(
    ladder: Ladder, variant: str, launch: int, rates: Mapping[int, float], **about: Any
) -> list[Trial]:
    """Steps of a launch with latencies as Little's law has them."""
    climb = Climb(ladder, variant, launch, cell())
    return [
        trial(climb.planned(users), rate, latency=latency_of(rate, users), **about)
        for users, rate in rates.items()
    ]


def result(ladder: Ladder, *trials: Trial | Failure) -> Result:
    begun = replace(run(), command="sweep", suite={"ladder": asdict(ladder)})
    return result_of([begun, *trials])


def marks(ladder: LadderView) -> list[str]:
    return [row.dims["mark"] for row in ladder.rows]


def users(ladder: LadderView) -> tuple[int | None, int | None, list[int]]:
    """Of knee, best and collapses."""
    first, top = (None if step is None else step.users for step in (ladder.knee, ladder.best))
    return first, top, [step.users for step in ladder.collapses]


NONE = (None, None, list[int]())


def test_knee_best_and_collapse_are_steps() -> None:
    ladder = Ladder(steps=tuple(RATES))
    (found,) = ladders_of(result(ladder, *steps("default", ladder, RATES)))
    assert list(found.steps) == [10, 20, 30, 40, 50] and users(found) == (30, 40, [50])
    assert marks(found) == ["", "", "knee", "best", "collapse"]
    assert found.end == "the list is measured"


def test_steps_come_with_the_fewest_users_first_whatever_the_order() -> None:
    ladder = Ladder(refinements=1)
    rates = {10: 100.0, 15: 150.0, 20: 152.0, 30: 151.0, 12: 120.0}
    (found,) = ladders_of(result(ladder, *steps("default", ladder, rates)))
    assert list(found.steps) == [10, 12, 15, 20, 30] and marks(found)[2] == "knee"


def test_a_ladder_that_was_broken_off_says_what_comes_next() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    done = {users: RATES[users] for users in (10, 20)}
    whole = steps("optimized", ladder, {10: 200.0, 20: 300.0, 30: 310.0})
    first, found = ladders_of(result(ladder, *whole, *steps("default", ladder, done)))
    assert found.end == "not at its end: 30 users come next"
    assert users(found) == NONE and marks(found) == ["", ""]
    assert users(first) == (20, 30, [])
    text = render(result(ladder, *whole, *steps("default", ladder, done)), width=120)
    (row,) = [line for line in text.splitlines() if "not climbed to its end" in line]
    assert row.split()[0] == "default" and row.split()[-2:] == ["-", "-"]
    of_json = json.loads(render(result(ladder, *steps("default", ladder, done)), "json"))
    (point,) = of_json["points"]
    assert "throughput" not in point["figures"] and "best_with" not in point["dims"]


def cut(one: Trial) -> Trial:
    return replace(one, flags={"interrupted": True})


def test_a_ladder_that_was_broken_off_in_a_step_below_its_highest_is_not_at_its_end() -> None:
    refining = Ladder(refinements=4)
    *grown, last = steps("default", refining, {10: 100.0, 15: 150.0, 20: 152.0, 30: 151.0, 24: 9.0})
    falling = Ladder(steps=(30, 20, 10))
    three, two, one = steps("default", falling, {30: 150.0, 20: 180.0, 10: 9.0})
    repeating = Ladder(runs=2)
    fell = steps("default", repeating, {10: 200.0, 15: 100.0})
    for ladder, trials in (
        (refining, [*grown, cut(last)]),  # further refinements come after it
        (falling, [three, two, cut(one)]),
        (repeating, fell),  # 15 users come once more, and 20 after them
    ):
        (found,) = ladders_of(result(ladder, *trials))
        assert users(found) == NONE and not found.finished
    (found,) = ladders_of(result(falling, three, cut(two), one))
    assert users(found) == (30, 30, [])  # in the middle of a list it is left out


def test_a_launch_in_which_the_ladder_was_broken_off_is_in_no_best() -> None:
    ladder = Ladder(steps=(10, 20))
    whole = steps("default", ladder, {10: 100.0, 20: 180.0})
    later = Climb(ladder, "default", 2, cell())
    (found,) = ladders_of(result(ladder, *whole, trial(later.planned(10), 900.0, 900.0)))
    assert users(found) == (20, 20, []) and found.bests == {1: 180.0}


def test_figures_are_of_the_launches_that_came_to_their_end() -> None:
    ladder = Ladder(steps=(10, 20, 30))

    whole_run = result(
        ladder,
        *climbed(ladder, "optimized", 1, {10: 100.0, 20: 360.0, 30: 350.0}),
        *climbed(ladder, "default", 1, {10: 100.0, 20: 180.0, 30: 150.0}),
        *climbed(ladder, "default", 2, {10: 90.0, 20: 360.0}),
    )
    _, found = ladders_of(whole_run)
    assert found.best_rate == 180.0
    page = json.loads(render(whole_run, "json"))
    figures = page["points"][1]["figures"]
    assert (figures["best"]["value"], figures["throughput"]["value"]) == (180.0, 180.0)
    assert page["comparisons"][0]["figures"]["served_of_base"]["value"] == 0.5
    knees, _, _ = render(whole_run).partition("\nSteps")
    assert "180.0" in knees and "270.0" not in knees


def test_a_step_in_doubt_is_neither_knee_nor_best_nor_a_collapse() -> None:
    ladder = Ladder(steps=tuple(RATES))
    trials = steps("default", ladder, RATES)
    broken = [
        replace(BROKEN, key=one.key, cell=one.cell, row=one.row) for one in (trials[3], trials[4])
    ]
    begun = replace(run(), command="sweep", suite={"ladder": asdict(ladder)})
    (found,) = ladders_of(result_of([begun, *trials, *broken]))
    assert marks(found) == ["", "", "", "in doubt", "in doubt"]  # what it ended with is not known
    assert users(found) == NONE
    assert found.end == "in doubt, and to be measured again: 40, 50 users"
    (found,) = ladders_of(result_of([begun, *trials, broken[0]]))
    assert marks(found) == ["", "", "knee, best", "in doubt", "collapse"]


def test_a_step_that_was_broken_off_is_in_doubt() -> None:
    ladder = Ladder(steps=(10, 20))
    first, second = steps("default", ladder, {10: 100.0, 20: 180.0})
    (found,) = ladders_of(result(ladder, first, replace(second, flags={"interrupted": True})))
    assert found.best is None and marks(found)[1] == "in doubt"
    nothing = replace(second, counts=Counts(90, 0, {"reset": 90}, 0))
    lost = replace(BROKEN, key=second.key, cell=second.cell, row=second.row)
    (found,) = ladders_of(result(ladder, first, nothing, lost))
    assert users(found)[1] == 10  # it was climbed to where nothing was served


def test_a_step_with_many_errors_is_no_best_but_can_be_a_collapse() -> None:
    ladder = Ladder(steps=(10, 20, 30))
    one, two, three = steps("default", ladder, {10: 100.0, 20: 180.0, 30: 60.0})
    many = Counts(sent=200, completed=100, failed={"timeout": 100}, in_flight=0)
    failing = [replace(two, counts=many), replace(three, counts=many)]
    (found,) = ladders_of(result(ladder, one, *failing))
    assert users(found) == (10, 10, [30])


def test_without_a_sound_step_no_figure_is_claimed() -> None:
    ladder = Ladder(steps=tuple(RATES))
    made = climbed(ladder, "default", 1, dict.fromkeys(RATES, 0.0001), failed={"reset": 50})
    page = ladder_sheet(result(ladder, *made), None)
    is_sound(page)
    assert "No valid step: there is no knee and no best." in as_lines(page.findings)
    begun = ladder_sheet(result(ladder, *climbed(ladder, "default", 1, {10: 100.0})), None)
    assert "No ladder is complete: there is no knee and no best." in as_lines(begun.findings)
    (served,) = ladders_of(result(Ladder(steps=(10,)), *steps("default", ladder, {10: 0.0})))
    assert users(served) == NONE
    nothing = ladder_sheet(result(ladder), None)
    is_sound(nothing)
    assert "throughput" not in names(nothing)


def test_a_latency_that_is_only_a_lower_bound_is_marked() -> None:
    """With 50 users a tenth of the requests got no answer in 30 s."""
    ladder = Ladder(steps=tuple(RATES))
    made = climbed(ladder, "default", 1, RATES)
    sound = chart(ladder_sheet(result(ladder, *made), None), "Latency over users")
    assert AT_LEAST not in sound.caption
    given_up = Histogram.of([30_000_000_000] * 100).encode()
    metrics = {**made[-1].metrics, "censored": Metric("ns", "lower", histogram=given_up)}
    made[-1] = replace(made[-1], metrics=metrics)
    latency = chart(ladder_sheet(result(ladder, *made), None), "Latency over users")
    points = vega(latency)["data"]["values"]
    marked = [(point["x"], point["group"]) for point in points if "least" in point]
    assert marked == [(50, "p99")]
    assert AT_LEAST in latency.caption and "> 30,000" in latency.words
