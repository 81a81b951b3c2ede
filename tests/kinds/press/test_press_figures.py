"""Figures of a press run: rows as published, their accounting, collapses, settings compared."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from serve_bench.benchmarks.press.summary import Comparison, Setting, comparisons, settings_of
from serve_bench.benchmarks.press.words import row_findings, setting_lines
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Trial
from tests.records import PRESS_CELL, press_result, press_trial

DEBUG = {**PRESS_CELL, "log_level": "DEBUG"}
FLAT = {1: 300.0, 10: 1500.0, 50: 1960.0, 100: 2000.0, 200: 1990.0}


def ladder(rates: dict[int, float], **about: Any) -> list[Trial]:
    return [press_trial(clients, qps, **about) for clients, qps in rates.items()]


def only(*trials: Trial) -> Setting:
    (found,) = settings_of(press_result(*trials))
    return found


def test_a_row_has_the_published_name_and_units() -> None:
    (row,) = only(press_trial(100, 2000.0)).rows
    assert (row.name, row.clients, row.run) == ("json_1_200000_100_100", 100, 1)
    assert row.total_us == pytest.approx(5_000_000)  # 10,000 requests at 2,000/s
    assert row.without_us == pytest.approx(4_750_000)
    assert row.qps == 2000.0 and row.qps_without == pytest.approx(2000 / 0.95)
    assert row.ave_us == pytest.approx(47_500, rel=0.001)  # Little's law over what is measured
    assert row.p50_ms == pytest.approx(47.5, rel=0.01)


@pytest.mark.parametrize(
    ("about", "completed", "errors", "cut", "unaccounted"),
    [
        ({}, 10_000, 0, 0, 0),
        ({"failed": {"rejected": 300, "timeout": 5}}, 9_695, 305, 0, 0),
        ({"cut": 1200}, 8_800, 0, 1200, 0),
        ({"cut": 1200, "failed": {"rejected": 300}}, 8_500, 300, 1200, 0),
        ({"lost": 7}, 9_993, 0, 0, 7),
    ],
)
def test_every_request_is_accounted_for(
    about: dict[str, Any], completed: int, errors: int, cut: int, unaccounted: int
) -> None:
    twice = [press_trial(100, 2000.0, round_=round_, **about) for round_ in (1, 2)]
    (row,) = only(*twice).rows
    assert (row.line.completed, row.line.errors) == (2 * completed, 2 * errors)
    assert (row.asked, row.cut, row.unaccounted) == (20_000, 2 * cut, 2 * unaccounted)


def test_a_row_whose_last_answers_came_when_time_had_ended_it_is_cut() -> None:
    one = replace(press_trial(100, 2000.0), flags={"cut": True})
    within = asdict(Counts(10_000, 9_950, {}, 50))
    (row,) = only(replace(one, client={"in_windows": within})).rows
    assert (row.cut, row.late, row.unaccounted, row.ended_by_time) == (0, 50, 0, True)
    (finding,) = row_findings(row)
    assert finding.line == (
        "cut by time: 10,000 of 10,000 requests were completed, 0 not, 50 ended after that"
    )


def test_more_answers_than_requests_are_seen() -> None:
    one = press_trial(100, 2000.0)
    (row,) = only(replace(one, counts=replace(one.counts, completed=10_003))).rows
    assert row.unaccounted == -3


def test_cpu_of_the_service_is_neither_the_clients_nor_the_tools() -> None:
    (row,) = only(press_trial(10, 1000.0, cpu=90.0)).rows
    assert (row.use.service, row.use.client, row.use.host) == (135.0, 20.0, 165.0)
    (bare,) = only(press_trial(10, 1000.0, cpu=None)).rows
    assert (bare.use.service, bare.use.client, bare.limited) == (None, None, None)


@pytest.mark.parametrize(("device", "found"), [("cuda", 33.0), ("cpu", None)])
def test_gpu_is_of_settings_that_use_one(device: str, found: float | None) -> None:
    of = {**PRESS_CELL, "device": device}
    setting = only(press_trial(10, 1000.0, of=of, gpu=33.0))
    assert (setting.device, setting.rows[0].use.gpu) == (device, found)


def test_a_service_of_others_shows_no_inside() -> None:
    one = press_trial(10, 900.0, of={}, variant="mine")
    (setting,) = settings_of(press_result(one, suite={"urls": {"mine": "http://h/"}}))
    assert (setting.visible, setting.device, setting.log_level) == (False, None, None)
    assert (setting.rows[0].use.service, setting.rows[0].use.client) == (None, 20.0)


def test_a_flat_ladder_has_no_collapse() -> None:
    setting = only(*ladder(FLAT))
    assert setting.collapses == ()
    assert setting.best is setting.rows[3] and setting.knee is setting.rows[2]
    assert setting.best_qps == 2000.0


@pytest.mark.parametrize(
    ("runs", "qps", "agree", "fell", "marks"),
    [
        ((900.0, 880.0, 910.0), 900.0, True, 3, ["collapse"] * 3),
        ((300.0, 900.0, 1450.0), 900.0, False, 3, ["collapse"] * 3),
        ((400.0, 410.0, 1950.0), 410.0, False, 2, ["collapse", "collapse", "this run held"]),
        ((1590.0,), 1590.0, True, 1, ["collapse"]),
    ],
)
def test_a_collapse_counts_by_its_median_run(
    runs: tuple[float, ...], qps: float, agree: bool, fell: int, marks: list[str]
) -> None:
    again = [press_trial(500, rate, run=at) for at, rate in enumerate(runs, 1)]
    setting = only(*ladder(FLAT), *again)
    (collapse,) = setting.collapses
    assert (collapse.qps, collapse.at.qps, collapse.agree) == (qps, qps, agree)
    assert collapse.share == qps / 2000
    assert [one.qps for one in collapse.runs] == list(runs)
    assert sum(one.fell for one in collapse.runs) == fell
    assert [setting.ladder.mark(row.line) for row in setting.rows if row.clients == 500] == marks


@pytest.mark.parametrize(("app", "named"), [("press_noop", True), ("press", False)])
def test_a_collapse_to_what_the_router_gives_is_named(app: str, named: bool) -> None:
    """2 tasks for the one replica, a request each in 0.5 s; the ranker has two deployments."""
    again = [press_trial(500, rate, run=at) for at, rate in enumerate((4.1, 3.9, 4.0), 1)]
    (setting,) = settings_of(press_result(*ladder(FLAT), *again, suite={"app": app}))
    assert (
        any("4/s fits what Serve's router gives" in one for one in setting_lines(setting)) is named
    )


def test_one_bad_run_of_three_is_no_collapse() -> None:
    again = [press_trial(500, rate, run=at) for at, rate in enumerate((300.0, 1980.0, 1970.0), 1)]
    setting = only(*ladder(FLAT), *again)
    assert setting.collapses == ()
    assert setting.ladder.rates[500] == 1970.0
    marks = [setting.ladder.mark(row.line) for row in setting.rows if row.clients == 500]
    assert marks == ["this run fell", "", ""]


def test_runs_of_a_step_are_weighed_launch_by_launch() -> None:
    first = [press_trial(500, rate, run=at) for at, rate in enumerate((300.0, 400.0, 500.0), 1)]
    whole = [*ladder(FLAT), *first, *ladder({**FLAT, 500: 1900.0}, round_=2)]
    assert only(*whole).ladder.rates[500] == (400.0 + 1900.0) / 2


def compared(*factors: float) -> Comparison:
    """DEBUG against ERROR in so many launches, the machine another in each."""
    drift = (1.0, 1.3, 0.8)
    trials = []
    for at, factor in enumerate(factors):
        for of, share in ((None, 1.0), (DEBUG, factor)):
            rates = {users: qps * drift[at] * share for users, qps in FLAT.items()}
            trials += ladder(rates, of=of, round_=at + 1)
    (found,) = comparisons(settings_of(press_result(*trials)))
    return found


@pytest.mark.parametrize(
    ("factors", "support"),
    [
        ((0.7, 0.8, 0.75), "distinguished"),
        ((0.9, 1.02, 0.95), "not distinguished"),
        ((0.5,), "one launch"),
    ],
)
def test_only_what_every_launch_shows_is_claimed(factors: tuple[float, ...], support: str) -> None:
    one = compared(*factors)
    assert one.support == support
    assert all(f"{factor:.2f}" in one.sentence for factor in factors)
    assert list(one.rounds.values()) == pytest.approx(list(factors))
    assert set(one.steps) == set(FLAT)
    assert list(one.steps[50].values()) == pytest.approx(list(factors))


def test_settings_are_compared_along_one_axis_at_a_time() -> None:
    gpu = {"device": "cuda"}
    cells = [{**PRESS_CELL, **more} for more in ({}, {"log_level": "DEBUG"}, gpu)]
    cells.append({**DEBUG, **gpu})
    trials = [press_trial(10, 100.0 * (at + 1), of=of) for at, of in enumerate(cells)]
    found = comparisons(settings_of(press_result(*trials)))
    assert {one.sentence.partition(" serves ")[0] for one in found} == {
        "ERROR: GPU",
        "DEBUG: GPU",
        "CPU: DEBUG",
        "GPU: DEBUG",
    }
    assert {one.base.name for one in found if one.axis == "log_level"} == {
        "CPU, ERROR",
        "GPU, ERROR",
    }


def test_a_setting_that_served_nothing_is_not_compared() -> None:
    none = press_trial(10, 100.0, of=DEBUG, failed={"timeout": 900})
    assert comparisons(settings_of(press_result(press_trial(10, 100.0), none))) == ()
