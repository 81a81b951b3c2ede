"""A press run: rows as published, their accounting, collapses, settings compared.

tests/golden/press-classic.txt: two log levels, three launches; DEBUG collapses with runs that
disagree, with requests rejected and a row that was cut.
"""

from dataclasses import asdict, replace
from typing import Any

import pytest

from serve_bench.core.facts import TrialFlags
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Trial
from serve_bench.view.frame import ViewRow
from serve_bench.view.lens import View
from serve_bench.view.published import PRESS, published_rows, read_reference
from tests import places
from tests.cases import cases
from tests.records import PRESS_CELL, changed, press_result, press_trial
from tests.rendering import render
from tests.sheet_parts import flat, view_of

DEBUG = {**PRESS_CELL, "log_level": "DEBUG"}
FLAT = {1: 300.0, 10: 1500.0, 50: 1960.0, 100: 2000.0, 200: 1990.0}
ERROR_QPS = {1: 330.0, 10: 1480.0, 50: 1790.0, 100: 1805.0, 200: 1799.0}
DEBUG_QPS = {1: 240.0, 10: 1130.0, 50: 1400.0, 100: 1405.0}
FALLS = {1: (300.0, 900.0, 1370.0), 2: (310.0, 880.0, 1300.0), 3: (1390.0,)}


def ladder(rates: dict[int, float], **about: Any) -> list[Trial]:
    return [press_trial(clients, qps, **about) for clients, qps in rates.items()]


def runs_of(clients: int, *rates: float) -> list[Trial]:
    return [press_trial(clients, rate, run=at) for at, rate in enumerate(rates, 1)]


def view_press(*trials: Trial, **about: Any) -> View:
    return view_of(press_result(*trials, **about))


def only_row(*trials: Trial, **about: Any) -> ViewRow:
    (row,) = view_press(*trials, **about).rows
    return row


def shown(*trials: Trial, **about: Any) -> str:
    return flat(render(press_result(*trials), **about))


def figures(row: ViewRow, *names: str) -> list[float | None]:
    return [row.value(name) for name in names]


@cases(
    "about, completed, errors, cut, unaccounted",
    ({}, 10_000, 0, 0, 0),
    ({"failed": {"rejected": 300, "timeout": 5}}, 9_695, 305, 0, 0),
    ({"cut": 1200, "failed": {"rejected": 300}}, 8_500, 300, 1200, 0),
    ({"lost": 7}, 9_993, 0, 0, 7),
    ({"lost": -3}, 10_003, 0, 0, -3),
)
def test_every_request_is_accounted_for(
    about: dict[str, Any], completed: int, errors: int, cut: int, unaccounted: int
) -> None:
    row = only_row(*(press_trial(100, 2000.0, round_=round_, **about) for round_ in (1, 2)))
    assert figures(row, "completed", "errors") == [2 * completed, 2 * errors]
    assert figures(row, "asked", "cut", "unaccounted") == [20_000, 2 * cut, 2 * unaccounted]
    assert ("accounting" in {seen.code for seen in row.warnings}) == bool(unaccounted)


def test_a_row_whose_last_answers_came_when_time_had_ended_it_is_cut() -> None:
    trial = replace(press_trial(100, 2000.0), flags=TrialFlags(cut=True))
    within = asdict(Counts(10_000, 9_950, {}, 50))
    row = only_row(changed(trial, client={"in_windows": within}))
    assert figures(row, "cut", "late", "unaccounted") == [0, 50, 0]
    (finding,) = row.warnings
    words = "cut by time: 10,000 of 10,000 requests were completed, 0 not, 50 ended after that"
    assert finding.line == words


def test_cpu_of_the_service_is_neither_the_clients_nor_the_tools() -> None:
    row = only_row(press_trial(10, 1000.0, cpu=90.0))
    assert figures(row, "cpu_service", "cpu_client", "cpu_host") == [135.0, 20.0, 165.0]
    bare = only_row(press_trial(10, 1000.0, cpu=None))
    assert figures(bare, "cpu_service", "cpu_client") == [None, None] and not bare.dims["limit"]
    other = only_row(press_trial(10, 900.0, of={}, variant="a"), suite={"urls": {"a": "http://h"}})
    assert figures(other, "cpu_service", "cpu_client") == [None, 20.0]


@cases("device, found", ("cuda", 33.0), ("cpu", None))
def test_gpu_is_of_settings_that_use_one(device: str, found: float | None) -> None:
    view = view_press(press_trial(10, 1000.0, of={**PRESS_CELL, "device": device}, gpu=33.0))
    assert [row.value("gpu") for row in (*view.points, *view.rows)] == [found, found]


@cases(
    "runs, qps, words, marks",
    ((900.0, 880.0, 910.0), 900.0, "3 of 3 runs fell: 880.0 to 910.0", ["collapse"] * 3),
    ((400.0, 410.0, 1950.0), 410.0, "2 of 3 runs fell: 400.0 to 1,950", ["collapse"] * 3),
    ((1590.0,), 1590.0, "it was run once", ["collapse"]),
    ((300.0, 1980.0, 1970.0), None, "", [""] * 3),
)
def test_a_collapse_counts_by_its_median_run(
    runs: tuple[float, ...], qps: float | None, words: str, marks: list[str]
) -> None:
    view = view_press(*ladder(FLAT), *runs_of(500, *runs))
    assert [row.dims["mark"] for row in view.rows if row.dims["users"] == 500] == marks
    assert len(view.points) == 1 + (qps is not None)
    for collapse in view.points[1:]:
        assert figures(collapse, "throughput", "of_best") == [qps, (qps or 0) / 2000]
        assert words in collapse.notes[0]


@cases("app, named", ("press_noop", True), ("press", False))
def test_a_collapse_to_what_the_router_gives_is_named(app: str, named: bool) -> None:
    """2 tasks for the one replica, a request each in 0.5 s; the ranker has two deployments."""
    trials = [*ladder(FLAT), *runs_of(500, 4.1, 3.9, 4.0)]
    _, collapse = view_press(*trials, suite={"app": app}).points
    assert ("4/s fits what Serve's router gives" in " ".join(collapse.notes)) is named


@cases(
    "factors, words",
    ((0.7, 0.8, 0.75), "all 3 launches agree: by chance 1 time in 4"),
    ((0.9, 1.02, 0.95), "best requests/s: not distinguished in 3 launches"),
    ((0.5,), "best requests/s: not distinguished in 1 launch"),
)
def test_only_what_every_launch_shows_is_claimed(factors: tuple[float, ...], words: str) -> None:
    """DEBUG against ERROR in so many launches, the machine another in each."""
    trials = []
    for at, (factor, drift) in enumerate(zip(factors, (1.0, 1.3, 0.8), strict=False), 1):
        for of, share in ((None, drift), (DEBUG, drift * factor)):
            trials += ladder({users: qps * share for users, qps in FLAT.items()}, of=of, round_=at)
    best, *steps = view_press(*trials).comparisons
    assert words in best.notes[0]
    assert all(f"{factor:.2f}" in best.notes[0] for factor in factors)
    assert [row.dims["with"] for row in steps] == list(FLAT)
    for row in (best, steps[2]):
        assert list(row.values["served_of_base"].launches.values()) == pytest.approx(list(factors))


def test_a_step_has_the_warnings_of_all_its_runs() -> None:
    first, last = runs_of(500, 1990.0, 2100.0)
    last = replace(last, flags=TrialFlags(cut=True), counts=replace(last.counts, in_flight=1))
    (point,) = view_press(press_trial(1, 100.0), first, last).points
    assert "cut by time" in [warning.code for warning in point.warnings]


def test_settings_are_compared_along_one_axis_at_a_time() -> None:
    cells = [{**of, "device": device} for device in ("cpu", "cuda") for of in (PRESS_CELL, DEBUG)]
    trials = [press_trial(10, 100.0 * at, of=of) for at, of in enumerate(cells, 1)]
    found = [row for row in view_press(*trials).comparisons if row.dims["with"] == "best"]
    assert {(row.notes[0].partition(" serves ")[0], row.dims["base"]) for row in found} == {
        ("ERROR: GPU", "CPU, ERROR"),
        ("DEBUG: GPU", "CPU, DEBUG"),
        ("CPU: DEBUG", "CPU, ERROR"),
        ("GPU: DEBUG", "GPU, ERROR"),
    }
    # A setting that served nothing is not compared.
    nothing = press_trial(10, 100.0, of=DEBUG, failed={"timeout": 900})
    assert not view_press(press_trial(10, 100.0), nothing).comparisons


def test_the_classic_form_is_the_published_one() -> None:
    trials: list[Trial] = []
    for round_, drift in ((1, 1.0), (2, 1.04), (3, 0.98)):
        for of, rates in ((PRESS_CELL, ERROR_QPS), (DEBUG, DEBUG_QPS)):
            drifted = {users: qps * drift for users, qps in rates.items()}
            trials += ladder(drifted, round_=round_, of=of)
        for run, qps in enumerate(FALLS[round_], 1):
            failed = {"rejected": 4000} if qps < 1000 else None
            cut = 1200 if qps < 500 else 0
            about: dict[str, Any] = {"run": run, "round_": round_, "of": DEBUG, "failed": failed}
            trials.append(press_trial(200, qps, cut=cut, **about))
    text = render(press_result(*trials), "classic", where="results/golden")
    assert text == (places.GOLDEN / "press-classic.txt").read_text(encoding="utf-8")


def test_times_without_connecting_are_shown_on_demand() -> None:
    trial = press_trial(100, 2000.0)
    assert " 4750000 2,105 " in shown(trial, exclude_connect=True)
    assert "onnected" not in shown(trial)


def test_published_tables_are_never_called_measured_here() -> None:
    trials = ladder({1: 300.0, 100: 2000.0})
    text = shown(*trials, published=True)
    assert "Published, not measured here" in text and "100 17,974 3312.3 556360" in text
    assert read_reference(PRESS)["hardware"] in text and "17,974" not in shown(*trials)
    other = press_trial(1, 100.0, of={**PRESS_CELL, "device": "cuda", "log_level": "INFO"})
    assert "no published table like default, GPU, INFO" in shown(other, published=True)
    # The published table is that of the device and level.
    for device, level, best in (("cpu", "DEBUG", 4000), ("cuda", "ERROR", 2900)):
        rates = [row.values["throughput"].value for row in published_rows(PRESS, [device, level])]
        assert max(rates) == pytest.approx(best, rel=0.03)
