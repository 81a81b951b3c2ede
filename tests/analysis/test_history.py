"""Stored runs over time: which are alike, what is passed over, the series and what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.history import history_of, news_of
from serve_bench.analysis.history.model import Chosen, Group, PassedOver, Series, Stored
from serve_bench.analysis.ratios import paired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result, Row
from tests.history_records import FALLEN, QUIET, kept, night, nights, nine
from tests.records import (
    ROWS,
    cell,
    press_result,
    press_trial,
    rpc_result,
    rpc_suite,
    rpc_trial,
    rpc_world,
)
from tests.versus_records import rates, versus_result

ROW = ROWS[2]


def group_of(results: Sequence[Result], **given: Any) -> Group:
    (group,) = history_of(kept(results), **given).groups
    return group


def series_of(group: Group, row: Row = ROW, metric: str = MAIN) -> Series:
    (found,) = [one for one in group.series if (one.row, one.metric) == (row.label, metric)]
    return found


def refusal(results: Sequence[Result], **given: Any) -> str:
    with pytest.raises(BadInput) as refused:
        history_of(kept(results), **given)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --------------------------------------------------------------------------------- the series


@pytest.mark.parametrize("row", [0, 1, 2])
def test_of_six_runs_the_planted_step_is_marked_and_no_other(row: int) -> None:
    quiet = [one[:6] for one in (QUIET, QUIET[2:], QUIET[3:])]
    every = {at: list(told) for at, told in zip(ROWS, quiet, strict=True)}
    every[ROWS[row]][3:] = [0.5 * rate for rate in every[ROWS[row]][3:]]
    group = group_of(nights(every))
    marked = [(one.row, mark.at, one.word(mark)) for one in group.series for mark in one.marks]
    assert marked == [(ROWS[row].label, 3, "regressed")]


def test_a_step_of_the_sixth_night_is_marked() -> None:
    group = group_of(nine())
    fallen = series_of(group)
    (step,) = fallen.marks
    assert step.at == 5 and fallen.is_step(step) and fallen.word(step) == "regressed"
    assert step.interval.ratio == pytest.approx(0.85, rel=0.01)
    assert series_of(group, ROWS[0]).marks == ()


def test_more_is_better_of_throughput_and_worse_of_latency() -> None:
    told = [*QUIET[:5], *(1.4 * one for one in QUIET[5:])]
    group = group_of(nights({ROW: told}), metrics=("throughput", "p50", "p99", "cpu"))
    words = {one.metric: [one.word(mark) for mark in one.marks] for one in group.series}
    assert words == {name: ["improved"] for name in ("throughput", "p50", "p99", "cpu")}


def test_a_run_is_the_geometric_mean_of_its_launches_with_their_interval() -> None:
    results = [night(at, {ROW: [90.0, 100.0, 110.0]}) for at in range(4)]
    point = series_of(group_of(results)).points[0]
    assert point.value == pytest.approx((90 * 100 * 110) ** (1 / 3))
    assert point.by_launch == pytest.approx({1: 90.0, 2: 100.0, 3: 110.0})
    assert point.interval is not None and point.interval.df == 2
    assert paired([4.0, 5.0]).df == 1  # of two launches there would be one, and it says nothing
    assert series_of(group_of(nights({ROW: QUIET}))).points[0].interval is None


def test_launches_are_no_runs() -> None:
    # Twenty launches that agree within each night do not make a step of three nights.
    results = [night(at, {ROW: [rate] * 20}) for at, rate in enumerate((100.0, 80.0, 100.0))]
    assert series_of(group_of(results)).fit.p is None


def test_runs_are_ordered_by_their_start_whatever_their_folders_are_called() -> None:
    results = nine()
    group = group_of([*results[4:], *reversed(results[:4])])
    assert [one.run.id for one in group.nights] == [f"n{at}" for at in range(1, 10)]


def test_a_row_that_a_run_did_not_measure_is_a_gap() -> None:
    told: list[float | None] = [*FALLEN]
    told[2] = None
    group = group_of(nights({ROWS[0]: QUIET, ROW: told}))
    series = series_of(group)
    assert series.points[2].value is None and [one.at for one in series.marks] == [5]
    assert len(series.points) == len(group.nights) == 9


def test_a_run_of_which_too_much_failed_is_invalid_and_in_no_level() -> None:
    results = [
        night(at, {ROW: [0.2 * rate if at == 3 else rate]}, failed=100 if at == 3 else 0)
        for at, rate in enumerate(QUIET)
    ]
    series = series_of(group_of(results))
    assert series.points[3].invalid and series.points[3].value is not None
    assert series.marks == () and 3 not in series.fit.levels[0].runs


def test_doubts_stand_with_the_run_that_they_doubt() -> None:
    group = group_of(nine())
    codes = [[one.code for one in point.doubts] for point in series_of(group).points]
    assert codes[2] == ["errors"] and not any(codes[:2] + codes[3:])


def test_rows_stand_by_variant_and_cell_in_the_order_of_the_plan() -> None:
    results = nights({ROWS[0]: QUIET, ROW: QUIET}, variants=("default", "optimized"))
    names = [(one.variant, one.row) for one in group_of(results).series]
    assert names == [(v, r.label) for v in ("default", "optimized") for r in (ROWS[0], ROW)]


def dated(results: Sequence[Result]) -> list[Result]:
    """Runs of any kind, an hour apart."""
    return [
        replace(
            one, run=replace(one.run, id=f"r{at}", started_at=f"2026-01-02T{at:02}:00:00+00:00")
        )
        for at, one in enumerate(results)
    ]


KINDS = {
    "versus": lambda rate: versus_result({ROW: rates(rate, 2 * rate, rounds=3)}),
    "press": lambda rate: press_result(press_trial(10, rate), press_trial(50, 2 * rate)),
    "rpc": lambda rate: rpc_result(
        rpc_suite(), rpc_trial(rpc_world(), agent_us=[1e6 / rate], observer_us=[2e6 / rate])
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_history(kind: str) -> None:
    made = [KINDS[kind](rate) for rate in (*QUIET[:4], *(0.5 * one for one in QUIET[4:]))]
    group = group_of(dated(made))
    assert len(group.nights) == 9 and group.series
    assert {tuple(mark.at for mark in one.marks) for one in group.series} == {(4,)}
    assert {one.variant for one in group.series} == {
        "versus": {"default", "optimized"},
        "press": {"default"},
        "rpc": {"torch"},
    }[kind]


# ---------------------------------------------------------------------------- what has changed


def test_a_commit_or_a_package_that_changed_is_told_at_its_run() -> None:
    def with_code(result: Result, commit: str, *packages: str) -> Result:
        code = {"app": {"commit": commit}, "packages": packages}
        launches = tuple(replace(one, proof={**one.proof, **code}) for one in result.launches)
        return replace(result, launches=launches)

    runs = nine()
    for at, one in enumerate(runs):
        commit = "a" * 40 if at < 2 else "b" * 40
        protobuf = "protobuf==6.33" if at < 4 else "protobuf==7.1"
        runs[at] = with_code(one, commit, protobuf, f"ray=={'2.60.0' if at < 5 else '2.61.0'}")
    told = {at: one.changed for at, one in enumerate(group_of(runs).nights) if one.changed}
    assert told[2] == ("app commit aaaaaaa -> bbbbbbb",)
    assert told[4] == ("protobuf 6.33 -> 7.1",)
    assert told[5] == ("ray 2.60.0 -> 2.61.0",)  # once, though it is a package too


def test_what_changed_is_told_at_the_run_where_it_did() -> None:
    told = {at: one.changed for at, one in enumerate(group_of(nine()).nights) if one.changed}
    assert told == {5: ("ray 2.60.0 -> 2.61.0",), 7: ("serve-bench 0.1.0 -> 0.2.0",)}


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"host": {"kernel": "Linux 6.8.0-51-generic"}}, "kernel Linux 6.8.0-45-generic -> Linux"),
        ({"suite": {}, "ray": "2.61.0"}, "ray 2.60.0 -> 2.61.0"),
    ],
)
def test_what_makes_no_run_unlike_is_told(facts: Mapping[str, Any], told: str) -> None:
    group = group_of([night(0, {ROW: [500.0]}), night(1, {ROW: [500.0]}, **facts)])
    assert group.nights[1].changed[0].startswith(told)


def test_names_of_hosts_are_told_once() -> None:
    results = [night(at, {ROW: [500.0]}, host={"id": f"{at:012}"}) for at in range(4)]
    group = group_of(results)
    assert len(group.notes) == 1 and "have 4 names" in group.notes[0]
    assert not any(one.changed for one in group.nights)


# ------------------------------------------------------------------------- alike, and passed over


def test_runs_of_another_suite_make_a_history_of_their_own() -> None:
    long = nights({ROW: QUIET[:5]})
    short = nights({ROW: QUIET[:3]}, suite={"windows": 3})
    found = history_of(kept([*short, *long]))
    assert [len(group.nights) for group in found.groups] == [5, 3]
    assert found.passed == () and found.total == 8
    assert found.groups[0].notes == ()
    assert found.groups[1].notes == (
        "a history of its own: unlike results/n1: windows 10 against 3",
    )


def test_a_run_that_is_alone_is_passed_over_with_the_reason() -> None:
    odd = [
        night(9, {ROW: [500.0]}, suite={"window_s": 0.5}),
        night(10, {ROW: [500.0]}, host={"cpu": "Other CPU"}),
        night(11, {ROW: [500.0]}, of=cell(100, 1, 1)),
        replace(night(12, {ROW: [500.0]}), trials=()),
    ]
    found = history_of(kept([*nine(), *odd]), [PassedOver("results/x", "results/x: broken")])
    assert {one.where.removeprefix("results/"): one.why for one in found.passed} == {
        "x": "results/x: broken",
        "n10": "unlike results/n1: window_s 1 against 0.5",
        "n11": "unlike results/n1: CPU Test CPU against Other CPU (--force sets hosts aside)",
        "n12": "no row in common with the others",
        "n13": "empty: no row was measured",
    }
    assert found.total == 14 and len(found.groups[0].nights) == 9


def test_force_sets_hosts_aside_and_nothing_else() -> None:
    odd = [
        night(9, {ROW: [500.0]}, host={"cpu": "Other CPU"}),
        night(10, {ROW: [500.0]}, host={"cpu": "Other CPU"}, suite={"windows": 3}),
    ]
    found = history_of(kept([*nine(), *odd]), force=True)
    assert len(found.groups[0].nights) == 10
    assert found.groups[0].nights[9].changed[-1] == "CPU Test CPU -> Other CPU"
    assert [one.where for one in found.passed] == ["results/n11"]


def test_a_copy_of_a_run_counts_once() -> None:
    results = nine()
    found = history_of([*kept(results), *(replace(kept(results)[0], where="copy/n1"),)])
    assert len(found.groups[0].nights) == 9
    assert [one.why for one in found.passed] == ["the same run as copy/n1"]


def test_of_two_copies_the_longer_one_counts() -> None:
    results = nine()
    cut = Stored("a/n1", replace(results[0], trials=results[0].trials[:1]))
    found = history_of([cut, *kept(results)])
    assert found.groups[0].nights[0].where == "results/n1"
    more = len(results[0].trials) - 1
    told = [(one.where, one.why) for one in found.passed]
    assert told == [("a/n1", f"the same run as results/n1, which has {more} trials more")]


def test_rows_of_one_name_and_another_load_are_not_put_together() -> None:
    large = replace(ROW, data_size="large")
    results = [*nights({ROW: QUIET[:4]}), night(5, {large: [500.0]})]
    assert history_of(kept(results)).passed[0].why == (
        "unlike results/n1: data_size of rows small against large"
    )


def test_fewer_than_two_runs_that_are_alike_are_refused() -> None:
    one = night(0, {ROW: [500.0]})
    assert refusal([one]) == "a history takes 2 runs: one run alone, results/n1"
    other = night(1, {ROW: [500.0]}, host={"cpu": "Other CPU"})
    assert refusal([one, other]) == (
        "no two runs are alike: results/n2 is unlike results/n1: CPU Test CPU against Other CPU "
        "(--force sets hosts aside)"
    )
    empty = replace(night(2, {ROW: [500.0]}), trials=())
    assert refusal([empty]) == (
        "a history takes 2 runs: no run that can be used; passed over: results/n3: empty: no row "
        "was measured"
    )


def test_a_person_chooses_what_to_see() -> None:
    results = nights({ROWS[0]: QUIET, ROW: FALLEN}, variants=("default", "optimized"))
    group = group_of(results, chosen=Chosen(variant="optimized", row="100 connections", last=4))
    (series,) = group.series
    assert (series.variant, series.row, len(series.points)) == ("optimized", ROW.label, 4)
    assert group.nights[0].run.id == "n6"
    assert refusal(results, chosen=Chosen(variant="fast")) == (
        "--variant: no run has 'fast'; they have default, optimized"
    )
    assert refusal(results, chosen=Chosen(cell="bs1-ongoing1-rep1")) == (
        "--cell: no run has 'bs1-ongoing1-rep1'; they have bs1-ongoing10000-rep8"
    )
    assert refusal(results, metrics=("cpu",), chosen=Chosen(row="8 clients")).startswith(
        "--row: no"
    )


def test_a_metric_that_no_run_has_is_refused() -> None:
    results = nights({ROW: QUIET[:4]}, cpu_percent=None)
    assert refusal(results, metrics=("cpu",)) == "--metric: no run has a value of cpu"


# ------------------------------------------------------------------------------ what is new


def new(results: Sequence[Result]) -> list[int]:
    return [mark.at for _, mark in news_of(group_of(results))]


def test_the_newest_run_is_news_when_it_is_unlike_and_when_it_confirms_a_step() -> None:
    told = [*QUIET[:6], *(0.7 * one for one in QUIET[6:])]
    results = nights({ROWS[0]: QUIET, ROW: told})
    assert new(results[:6]) == []
    assert new(results[:7]) == [6]  # an outlier
    assert new(results[:8]) == [6]  # the step it was the first of
    assert new(results[:9]) == []  # known since


def test_an_outlier_of_an_earlier_night_is_no_news() -> None:
    told = [*QUIET[:5], 300.0, *QUIET[6:]]
    assert new(nights({ROW: told})) == []
