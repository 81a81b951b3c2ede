"""The report of a press run in every form, and of ladders in those that are not text.

tests/golden/press-classic.txt: two log levels, three launches; DEBUG collapses with runs that
disagree, with requests rejected and a row that was cut.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_bench.core.result import Result, Trial
from serve_bench.view.published import PRESS, press_table, reference
from tests import places
from tests.records import PRESS_CELL, press_result, press_trial
from tests.rendering import render
from tests.sheet_parts import flat

GOLDEN = places.GOLDEN
DEBUG = {**PRESS_CELL, "log_level": "DEBUG"}
ERROR_QPS = {1: 330.0, 10: 1480.0, 50: 1790.0, 100: 1805.0, 200: 1799.0}
DEBUG_QPS = {1: 240.0, 10: 1130.0, 50: 1400.0, 100: 1405.0}
FALLS = {1: (300.0, 900.0, 1370.0), 2: (310.0, 880.0, 1300.0), 3: (1390.0,)}


def golden() -> Result:
    trials: list[Trial] = []
    for round_, drift in ((1, 1.0), (2, 1.04), (3, 0.98)):
        trials += [
            press_trial(users, qps * drift, round_=round_) for users, qps in ERROR_QPS.items()
        ]
        debug: dict[str, Any] = {"round_": round_, "of": DEBUG}
        trials += [
            press_trial(users, qps * drift, cpu=97.0, levels={"queued": 30.0}, **debug)
            for users, qps in DEBUG_QPS.items()
        ]
        for number, qps in enumerate(FALLS[round_], 1):
            failed = {"rejected": 4000} if qps < 1000 else None
            cut = 1200 if qps < 500 else 0
            levels = {"ongoing": 64.0, "queued": 930.0}
            more: dict[str, Any] = {"failed": failed, "cut": cut, "cpu": 35.0, "levels": levels}
            trials.append(press_trial(200, qps, run=number, **debug, **more))
    return press_result(*trials)


def test_the_classic_form_is_the_published_one() -> None:
    text = render(golden(), "classic", where="results/golden")
    assert text == (GOLDEN / "press-classic.txt").read_text(encoding="utf-8")


def shown(*trials: Trial, **about: Any) -> str:
    return flat(render(press_result(*trials), **about))


FLAT = [press_trial(users, qps) for users, qps in {1: 300.0, 50: 1980.0, 100: 2000.0}.items()]


def test_times_without_connecting_are_shown_on_demand() -> None:
    one = press_trial(100, 2000.0)
    assert " 4750000 2,105 " in shown(one, exclude_connect=True)
    assert "onnected" not in shown(one)


def test_the_published_table_is_that_of_the_device_and_level() -> None:
    for device, level, best in (("cpu", "DEBUG", 4000), ("cuda", "ERROR", 2900)):
        rows = press_table(device, level)["rows"]
        assert max(row["qps"] for row in rows) == pytest.approx(best, rel=0.03)


def test_published_tables_are_never_called_measured_here() -> None:
    text = shown(*FLAT, published=True)
    assert "Published, not measured here" in text and "100 17,974 3312.3 556360" in text
    assert reference(PRESS)["hardware"] in text and "17,974" not in shown(*FLAT)
    other = press_trial(1, 100.0, of={**PRESS_CELL, "device": "cuda", "log_level": "INFO"})
    assert "no published table like default, GPU, INFO" in shown(other, published=True)


def test_json_holds_all_figures_and_every_ratio() -> None:
    page = json.loads(render(golden(), "json"))
    error, debug, collapse = page["points"]
    assert (error["dims"]["best_with"], error["dims"]["users"]) == (100, 50)
    assert set(debug["figures"]["best"]["launches"]) == {"1", "2", "3"}
    assert collapse["dims"]["users"] == 200 and "its 7 runs: " in collapse["notes"][0]
    best, *steps = page["comparisons"]
    assert best["figures"]["served_of_base"]["launches"]["2"] == pytest.approx(1405 / 1805)
    assert [row["dims"]["with"] for row in steps] == [1, 10, 50, 100, 200]
    for row in page["rows"]:
        figures = {name: value["value"] for name, value in row["figures"].items()}
        assert figures["asked"] == sum(figures[name] for name in ("completed", "errors", "cut"))
        assert figures["total"] > figures["connected"]
