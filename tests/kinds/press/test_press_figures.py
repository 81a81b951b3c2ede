"""Figures of a press run: rows as published, their accounting, collapses, settings compared."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from serve_bench.benchmarks.press.lens import LENS
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Trial
from serve_bench.view.document import ReportOptions
from serve_bench.view.frame import ViewRow
from serve_bench.view.lens import View, look
from tests.records import PRESS_CELL, press_result, press_trial

DEBUG = {**PRESS_CELL, "log_level": "DEBUG"}
FLAT = {1: 300.0, 10: 1500.0, 50: 1960.0, 100: 2000.0, 200: 1990.0}


def ladder(rates: dict[int, float], **about: Any) -> list[Trial]:
    return [press_trial(clients, qps, **about) for clients, qps in rates.items()]


def view_of(*trials: Trial, **about: Any) -> View:
    return look(press_result(*trials, **about), ReportOptions(), LENS).view


def only_row(*trials: Trial, **about: Any) -> ViewRow:
    (row,) = view_of(*trials, **about).rows
    return row


def figures(row: ViewRow, *names: str) -> list[float | None]:
    return [row.value(name) for name in names]


def test_a_row_has_the_published_name_and_units() -> None:
    row = only_row(press_trial(100, 2000.0))
    assert (row.dims["test_name"], row.dims["users"]) == ("json_1_200000_100_100", 100)
    assert row.value("total") == pytest.approx(5e9)  # 10,000 requests at 2,000/s
    assert row.value("connected") == pytest.approx(4.75e9)
    assert row.value("throughput") == 2000.0
    assert row.value("connected_rate") == pytest.approx(2000 / 0.95)
    assert row.value("latency_mean") == pytest.approx(47_500_000, rel=0.001)  # Little's law
    assert row.value("latency_p50") == pytest.approx(47_500_000, rel=0.01)


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
    row = only_row(*(press_trial(100, 2000.0, round_=round_, **about) for round_ in (1, 2)))
    assert figures(row, "completed", "errors") == [2 * completed, 2 * errors]
    assert figures(row, "asked", "cut", "unaccounted") == [20_000, 2 * cut, 2 * unaccounted]


def test_a_row_whose_last_answers_came_when_time_had_ended_it_is_cut() -> None:
    trial = replace(press_trial(100, 2000.0), flags={"cut": True})
    within = asdict(Counts(10_000, 9_950, {}, 50))
    row = only_row(replace(trial, client={"in_windows": within}))
    assert figures(row, "cut", "late", "unaccounted") == [0, 50, 0]
    (finding,) = row.warnings
    assert finding.line == (
        "cut by time: 10,000 of 10,000 requests were completed, 0 not, 50 ended after that"
    )


def test_more_answers_than_requests_are_seen() -> None:
    trial = press_trial(100, 2000.0)
    row = only_row(replace(trial, counts=replace(trial.counts, completed=10_003)))
    assert row.value("unaccounted") == -3 and row.warnings[-1].code == "accounting"


def test_cpu_of_the_service_is_neither_the_clients_nor_the_tools() -> None:
    row = only_row(press_trial(10, 1000.0, cpu=90.0))
    assert figures(row, "cpu_service", "cpu_client", "cpu_host") == [135.0, 20.0, 165.0]
    bare = only_row(press_trial(10, 1000.0, cpu=None))
    assert figures(bare, "cpu_service", "cpu_client") == [None, None] and not bare.dims["limit"]


@pytest.mark.parametrize(("device", "found"), [("cuda", 33.0), ("cpu", None)])
def test_gpu_is_of_settings_that_use_one(device: str, found: float | None) -> None:
    view = view_of(press_trial(10, 1000.0, of={**PRESS_CELL, "device": device}, gpu=33.0))
    assert view.points[0].dims["device"] == device
    assert [row.value("gpu") for row in (*view.points, *view.rows)] == [found, found]


def test_a_service_of_others_shows_no_inside() -> None:
    trial = press_trial(10, 900.0, of={}, variant="mine")
    view = view_of(trial, suite={"urls": {"mine": "http://h/"}})
    assert "device" not in view.points[0].dims
    assert figures(view.rows[0], "cpu_service", "cpu_client") == [None, 20.0]


def test_a_flat_ladder_has_no_collapse() -> None:
    (point,) = view_of(*ladder(FLAT)).points
    assert (point.dims["best_with"], point.dims["users"], point.value("best")) == (100, 50, 2000.0)


@pytest.mark.parametrize(
    ("runs", "qps", "words", "marks"),
    [
        ((900.0, 880.0, 910.0), 900.0, "900.0, 880.0, 910.0; they agree", ["collapse"] * 3),
        ((300.0, 900.0, 1450.0), 900.0, "the runs disagree", ["collapse"] * 3),
        (
            (400.0, 410.0, 1950.0),
            410.0,
            "400.0, 410.0, 1,950 held; the runs disagree: 1 of 3 did not fall",
            ["collapse", "collapse", "this run held"],
        ),
        ((1590.0,), 1590.0, "it was run once", ["collapse"]),
    ],
)
def test_a_collapse_counts_by_its_median_run(
    runs: tuple[float, ...], qps: float, words: str, marks: list[str]
) -> None:
    again = [press_trial(500, rate, run=at) for at, rate in enumerate(runs, 1)]
    view = view_of(*ladder(FLAT), *again)
    _, collapse = view.points
    assert figures(collapse, "throughput", "of_best") == [qps, qps / 2000]
    assert words in collapse.notes[0]
    assert [row.dims["mark"] for row in view.rows if row.dims["users"] == 500] == marks


@pytest.mark.parametrize(("app", "named"), [("press_noop", True), ("press", False)])
def test_a_collapse_to_what_the_router_gives_is_named(app: str, named: bool) -> None:
    """2 tasks for the one replica, a request each in 0.5 s; the ranker has two deployments."""
    again = [press_trial(500, rate, run=at) for at, rate in enumerate((4.1, 3.9, 4.0), 1)]
    _, collapse = view_of(*ladder(FLAT), *again, suite={"app": app}).points
    assert ("4/s fits what Serve's router gives" in " ".join(collapse.notes)) is named


def test_one_bad_run_of_three_is_no_collapse() -> None:
    again = [press_trial(500, rate, run=at) for at, rate in enumerate((300.0, 1980.0, 1970.0), 1)]
    view = view_of(*ladder(FLAT), *again)
    assert len(view.points) == 1
    marks = [row.dims["mark"] for row in view.rows if row.dims["users"] == 500]
    assert marks == ["this run fell", "", ""]


def compared(*factors: float) -> list[ViewRow]:
    """DEBUG against ERROR in so many launches, the machine another in each."""
    drift = (1.0, 1.3, 0.8)
    trials = []
    for at, factor in enumerate(factors):
        for of, share in ((None, 1.0), (DEBUG, factor)):
            rates = {users: qps * drift[at] * share for users, qps in FLAT.items()}
            trials += ladder(rates, of=of, round_=at + 1)
    return list(view_of(*trials).comparisons)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((0.7, 0.8, 0.75), "all 3 launches agree: by chance 1 time in 4"),
        ((0.9, 1.02, 0.95), "DEBUG and ERROR are not distinguished"),
        ((0.5,), "in one launch, and launches differ too"),
    ],
)
def test_only_what_every_launch_shows_is_claimed(factors: tuple[float, ...], words: str) -> None:
    best, *steps = compared(*factors)
    assert words in best.notes[0]
    assert all(f"{factor:.2f}" in best.notes[0] for factor in factors)
    assert [row.dims["with"] for row in steps] == list(FLAT)
    for row in (best, steps[2]):
        assert list(row.values["served_of_base"].launches.values()) == pytest.approx(list(factors))


def test_settings_are_compared_along_one_axis_at_a_time() -> None:
    gpu = {"device": "cuda"}
    cells = [{**PRESS_CELL, **more} for more in ({}, {"log_level": "DEBUG"}, gpu)]
    cells.append({**DEBUG, **gpu})
    view = view_of(*(press_trial(10, 100.0 * (at + 1), of=of) for at, of in enumerate(cells)))
    found = [row for row in view.comparisons if row.dims["with"] == "best"]
    assert {row.notes[0].partition(" serves ")[0] for row in found} == {
        "ERROR: GPU",
        "DEBUG: GPU",
        "CPU: DEBUG",
        "GPU: DEBUG",
    }
    assert {row.dims["base"] for row in found if row.dims["axis"] == "log_level"} == {
        "CPU, ERROR",
        "GPU, ERROR",
    }


def test_a_setting_that_served_nothing_is_not_compared() -> None:
    nothing = press_trial(10, 100.0, of=DEBUG, failed={"timeout": 900})
    assert not view_of(press_trial(10, 100.0), nothing).comparisons
