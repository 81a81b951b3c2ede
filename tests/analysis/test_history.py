import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis import ratios
from serve_bench.analysis.comparing import broken
from serve_bench.analysis.history import Group, PassedOver, Series, build_history
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.result import Result
from tests.cases import cases, sure
from tests.cases import refusal as refusal_of
from tests.history_records import FALLEN, QUIET, in_folders, night, nights, nine
from tests.records import ROWS, cell
from tests.versus_records import rates, versus_result

ROW = ROWS[2]


def group_of(results: Sequence[Result], **given: Any) -> Group:
    (group,) = build_history(in_folders(results), **given).groups
    return group


def series_of(group: Group) -> Series:
    (found,) = [line for line in group.series if line.place[1].row == ROW.label]
    return found


def words(group: Group) -> dict[str, str]:
    return {row.row: row.line(MAIN).judged.word for row in group.comparison.rows}


def refusal(results: Sequence[Result], **given: Any) -> str:
    return refusal_of(build_history, in_folders(results), **given)


@cases("row", 0, 1, 2)
def test_the_row_that_fell_with_the_newest_run_is_regressed_and_no_other(row: int) -> None:
    by_row = {at: list(rate) for at, rate in zip(ROWS, (QUIET, QUIET[::-1], QUIET), strict=True)}
    by_row[ROWS[row]][-1] *= 0.85
    found = words(group_of(nights(by_row)))
    assert found.pop(ROWS[row].label) == "regressed"
    assert "regressed" not in found.values() and len(found) == 2


def test_the_ratio_is_to_the_mean_of_runs_whatever_their_launches() -> None:
    runs = [[100.0], [100.0], [200.0, 200.0, 200.0], [200.0]]
    group = group_of([night(at, {ROW: rates}) for at, rates in enumerate([*runs, [100.0]])])
    line = group.comparison.rows[0].line(MAIN)
    assert line.a == pytest.approx(math.sqrt(100 * 200)) and line.ratio == pytest.approx(2**-0.5)
    assert len(line.a_values) == 4
    # A run is the geometric mean of its launches, with their interval.
    results = [night(at, {ROW: [90.0, 100.0, 110.0]}) for at in range(4)]
    point = series_of(group_of(results)).points[0]
    assert point.value == pytest.approx((90 * 100 * 110) ** (1 / 3)) and point.launches == 3
    assert point.interval is not None and point.interval.df == 2
    assert series_of(group_of(nights({ROW: QUIET}))).points[0].interval is None


@cases("last, ratio", (10, 0.5**0.375), (3, 1.0))
def test_the_newest_is_held_against_the_last_runs_alone(last: int, ratio: float) -> None:
    group = group_of(nights({ROW: [1000.0] * 3 + [500.0] * 6}), last=last)
    assert group.comparison.rows[0].line(MAIN).ratio == pytest.approx(ratio, rel=1e-3)
    assert len(series_of(group).points) == 9  # all are shown


def test_below_four_runs_the_spread_between_runs_is_assumed_and_said() -> None:
    launches = [{ROW: [0.99 * rate, rate, 1.01 * rate]} for rate in (500.0, 510.0, 470.0)]
    group = group_of([night(at, rates) for at, rates in enumerate(launches)])
    interval = sure(group.comparison.rows[0].line(MAIN).judged.interval)
    assert interval.between == pytest.approx(1.5 * ratios.ASSUMED.sd**2)
    assert any("assumed, 6 %" in text for text in group.comparison.warnings)
    assert not any("assumed" in text for text in group_of(nine()).comparison.warnings)
    # Two runs are compared as `compare` does.
    a, b = [500.0, 505.0, 495.0], [450.0, 455.0, 445.0]
    found, known = ratios.against_runs([a], b), ratios.unpaired(a, b, ratios.ASSUMED)
    assert found is not None and found.ratio == pytest.approx(known.ratio, rel=1e-4)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-4)
    # Few runs of few launches have no verdict.
    few = group_of(nights({ROW: [500.0, 505.0, 300.0]}))
    judged = few.comparison.rows[0].line(MAIN).judged
    assert judged.word == "inconclusive" and judged.interval is None


def test_a_run_of_which_too_much_failed_is_shown_and_no_base() -> None:
    results = [
        night(at, {ROW: [0.2 * rate if at == 3 else rate]}, failed=100 if at == 3 else 0)
        for at, rate in enumerate(QUIET)
    ]
    group = group_of(results)
    point = series_of(group).points[3]
    assert point.invalid and point.value is not None
    assert sorted(group.comparison.rows[0].line(MAIN).a_values) == [1, 2, 3, 5, 6, 7, 8]
    nights = [night(at, {ROW: [500.0]}, failed=100) for at in range(3)]
    comparison = group_of(nights).comparison
    assert comparison.alone == () and "too many requests failed" in comparison.warnings[1]


def draw_interval(
    draw: random.Random, runs: int, launches: int, spread: float, newest: float = 1.0
) -> ratios.Interval:
    """Draw a run of this size against others of size 1; launches spread by 1 %."""

    def measure(size: float) -> list[float]:
        night = draw.gauss(math.log(size), spread)
        return [math.exp(draw.gauss(night, 0.01)) for _ in range(launches)]

    return sure(ratios.against_runs([measure(1.0) for _ in range(runs)], measure(newest)))


@cases(
    "runs, launches, spread",
    (10, 3, 0.03),
    (10, 1, 0.03),
    (ratios.RUNS_KNOWN, 3, 0.03),
    (10, 3, 0.0),
    (2, 3, 0.06),
)
def test_at_most_a_run_in_twenty_is_called_changed(runs: int, launches: int, spread: float) -> None:
    """At most 5 % of the nights, and half of that slower; and three standard errors of a share."""
    draw, nights = random.Random(f"1/{runs}/{launches}/{spread}"), 1000
    found = [draw_interval(draw, runs, launches, spread) for _ in range(nights)]
    slower, faster = sum(gap.high < 1 for gap in found), sum(gap.low > 1 for gap in found)
    for count, share in ((slower + faster, 0.05), (slower, 0.025)):
        assert count / nights <= share + 3 * math.sqrt(share * (1 - share) / nights)


@cases("spread, least", (0.016, 0.99), (0.03, 0.75))
def test_a_drop_of_ten_percent_is_found(spread: float, least: float) -> None:
    draw = random.Random(1)
    drawn = (draw_interval(draw, 10, 3, spread, 0.9) for _ in range(300))
    claims = (ratios.Hypothesis(interval, "higher") for interval in drawn)
    words = [ratios.judge([claim], fewest=1)[0].word for claim in claims]
    assert words.count("regressed") / 300 > least


def test_a_row_that_a_run_did_not_measure_is_a_gap_in_its_series() -> None:
    results = nine()
    group = group_of([*results[4:], *reversed(results[:4])])  # in the order of their starts
    assert [run.run.id for run in group.runs] == [f"n{at}" for at in range(1, 10)]
    fallen: list[float | None] = [*FALLEN]
    fallen[2] = None
    series = series_of(group_of(nights({ROWS[0]: QUIET, ROW: fallen})))
    assert series.points[2].value is None and len(series.points) == 9
    # A row of the run before that the newest has not is not judged.
    group = group_of(nights({ROWS[0]: QUIET, ROW: [*QUIET[:8], None]}))
    assert [(row.side, row.row) for row in group.comparison.alone] == [("A", ROW.label)]
    (gap,) = group.gaps
    assert gap.startswith("100 connections (raw) of default")
    assert not broken(group.comparison, "regressed")
    back = group_of(nights({ROWS[0]: QUIET, ROW: [*QUIET[:7], None, QUIET[8]]}))
    assert back.gaps == () and words(back)[ROW.label] in ("same", "inconclusive")


def test_both_sides_of_versus_have_a_history() -> None:
    made = []
    for at, rate in enumerate((*QUIET[:8], 0.5 * QUIET[8])):
        run = versus_result({ROW: rates(rate, 2 * rate, rounds=3)})
        begun = f"2026-01-02T{at:02}:00:00+00:00"
        made.append(replace(run, run=replace(run.run, id=f"r{at}", started_at=begun)))
    group = group_of(made)
    assert len(group.runs) == 9 and group.series
    assert {row.word for row in group.comparison.rows} == {"regressed"}
    assert {series.place[0] for series in group.series} == {"default", "optimized"}


def test_a_commit_or_a_package_that_changed_is_told_at_its_run() -> None:
    runs = nine()
    for at, result in enumerate(runs):
        commit = "a" * 40 if at < 2 else "b" * 40
        protobuf = "protobuf==6.33" if at < 4 else "protobuf==7.1"
        packages = (protobuf, f"ray=={'2.60.0' if at < 5 else '2.61.0'}")
        code = {"app": {"commit": commit}, "packages": packages}
        launches = tuple(replace(of, proof={**of.proof, **code}) for of in result.launches)
        runs[at] = replace(result, launches=launches)
    assert {at: run.changed for at, run in enumerate(group_of(runs).runs) if run.changed} == {
        2: ("app commit aaaaaaa -> bbbbbbb",),
        4: ("protobuf 6.33 -> 7.1",),
        5: ("ray 2.60.0 -> 2.61.0",),  # once, though it is a package too
        7: ("serve-bench 0.1.0 -> 0.2.0",),
    }


def own_app(at: int, target: str, rate: float, deployment: str = "Shop") -> Result:
    """Make a run of a user's own app, in another folder each night."""
    parts = {"asked": {"route": "/"}, "deployments": [{"name": deployment}]}
    app = {"target": target, "folder": f"/builds/{at}", **parts}
    result = night(at, {ROW: [rate]}, suite={"name": target, "app": app})
    run = replace(result.run, id=f"{target}-{deployment}-{at}", command="run")
    return replace(result, run=run)


def renamed(results: Sequence[Result], letter: str) -> list[Result]:
    return [replace(run, run=replace(run.run, id=f"{letter}{run.run.id}")) for run in results]


def test_runs_of_two_apps_and_of_two_suites_are_never_in_one_series() -> None:
    shop = [own_app(at, "/builds/shop.py:app", QUIET[at]) for at in range(4)]
    cart = [own_app(at, "cart.py:app", 2 * FALLEN[at + 4]) for at in range(3)]
    other = renamed(nights({ROW: QUIET[:2]}, suite={"name": "night"}), "o")
    short = renamed(nights({ROW: QUIET[:3]}, suite={"windows": 3}), "s")
    runs = [*shop, *cart, *other, *short, *nights({ROW: QUIET})]
    found = build_history(in_folders(runs))
    groups = {group.name: len(group.runs) for group in found.groups}
    assert groups == {
        **{"micro noop": 9, "shop.py:app": 4, "cart.py:app": 3},
        **{"micro noop, windows 3": 3, "micro noop, night": 2},
    }
    notes = {group.name: group.notes for group in found.groups if group.notes}
    assert list(notes) == ["micro noop, windows 3"]
    assert "windows 10 against 3" in notes["micro noop, windows 3"][0]
    assert found.passed == () and found.total == 21


def test_two_apps_of_one_file_name_are_told_apart_by_folder_and_deployments() -> None:
    apps = [own_app(at, "app.py:app", 500.0, "Shop" if at < 4 else "Cart") for at in range(6)]
    first, second = build_history(in_folders(apps)).groups
    assert (first.name, second.name) == ("app.py:app", "app.py:app, folder of the app /builds/4")
    assert "folder of the app /builds/0 against /builds/4" in second.notes[0]
    # A newer run of another app is no gap.
    (passed,) = build_history(in_folders([*nine(), own_app(20, "shop.py:app", 1.0)])).passed
    assert (passed.why, passed.late) == ("the only run of shop.py:app", False)


def test_a_run_that_is_alone_is_passed_over_with_the_reason() -> None:
    odd = [
        night(9, {ROW: [500.0]}, suite={"window_s": 0.5}),
        night(10, {ROW: [500.0]}, host={"cpu": "Other CPU"}),
        night(11, {ROW: [500.0]}, of=cell(100, 1, 1)),
        replace(night(12, {ROW: [500.0]}), trials=()),
    ]
    passed = [PassedOver("results/x", "results/x: broken")]
    found = build_history(in_folders([*nine(), *odd]), passed)
    reasons = ("window 1 s", "CPU Test CPU", "no row in common", "no row was measured", "broken")
    for run, why in zip(sorted(found.passed, key=lambda run: run.where), reasons, strict=True):
        assert why in run.why, run.where
    assert found.total == 14 and len(found.groups[0].runs) == 9
    # Force sets hosts aside, and nothing else.
    odd = [
        night(9, {ROW: [500.0]}, host={"cpu": "Other CPU"}),
        night(10, {ROW: [500.0]}, host={"cpu": "Other CPU"}, suite={"windows": 3}),
    ]
    found = build_history(in_folders([*nine(), *odd]), force=True)
    assert len(found.groups[0].runs) == 10
    assert found.groups[0].runs[9].changed[-1] == "CPU Test CPU -> Other CPU"
    assert [run.where for run in found.passed] == ["results/n11"]


def test_of_two_copies_the_longer_one_counts() -> None:
    results = nine()
    cut = replace(results[0], trials=results[0].trials[:1])
    found = build_history({"a/n1": cut, **in_folders(results), "copy/n2": results[1]})
    assert [run.where for run in found.groups[0].runs[:2]] == ["results/n1", "results/n2"]
    more = len(results[0].trials) - 1
    assert [run.where for run in found.passed] == ["a/n1", "copy/n2"]
    assert f"has {more} trials more" in found.passed[0].why
    # Fewer than two runs that are alike are refused.
    first = night(0, {ROW: [500.0]})
    assert refusal([first]) == "a history takes 2 runs: one run alone, results/n1"
    other = night(1, {ROW: [500.0]}, host={"cpu": "Other CPU"})
    assert "results/n2 is unlike results/n1: CPU Test CPU against" in refusal([first, other])
    empty = replace(night(2, {ROW: [500.0]}), trials=())
    assert "results/n3: empty: no row was measured" in refusal([empty])


def test_a_person_chooses_what_to_see() -> None:
    results = nights({ROWS[0]: QUIET, ROW: FALLEN}, variants=("default", "optimized"))
    group = group_of(results, chosen=dict(variant="optimized", row="100 connections"))
    (series,) = group.series
    assert (series.place[0], series.place[1].row) == ("optimized", ROW.label)
    assert [row.row for row in group.comparison.rows] == [ROW.label]
    assert group.comparison.sides[1].variant == "optimized"
    for chosen, line in (
        (dict(variant="fast"), "--variant: no run has 'fast'; they have default, optimized"),
        (dict(cell="bs1-ongoing1-rep1"), "--cell: no run has 'bs1-ongoing1-rep1'; they have"),
        (dict(row="8 clients"), "--row: no"),
    ):
        assert refusal(results, chosen=chosen).startswith(line)
    blind = nights({ROW: QUIET[:4]}, cpu_percent=None)
    assert refusal(blind, metrics=("cpu",)).startswith("--metric: no run has a value of cpu")
