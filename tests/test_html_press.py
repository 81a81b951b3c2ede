"""The page of a press run: its figures are those of the JSON, the published ones stand beside."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.parts.published import press_table
from serve_bench.cli.show import render
from serve_bench.core.result import Result
from tests.records import PRESS_CELL, failure_of, press_result, press_trial
from tests.sheet_parts import (
    SCRIPT,
    as_lines,
    cell,
    chart,
    charts,
    column,
    drawn,
    is_sound,
    marks,
    press_sheet,
    section,
    table,
    tables,
    texts,
)
from tests.test_report_press import golden

CUDA = {**PRESS_CELL, "device": "cuda"}


def in_json(made: Result) -> Any:
    return json.loads(render(made, "json"))["press"]


def gpu() -> Result:
    return press_result(*(press_trial(users, 900.0, of=CUDA, gpu=40.0) for users in (1, 10)))


@pytest.mark.parametrize("made", [golden(), gpu()], ids=["levels", "gpu"])
def test_every_row_has_the_figures_of_the_json(made: Result) -> None:
    sheet = press_sheet(made, "results/x")
    is_sound(sheet)
    for setting in in_json(made)["settings"]:
        shown = next(
            one
            for one in tables(sheet)
            if one.caption.split(",")[0] == setting["name"].split(",")[0]
            and one.columns[0].name == "clients"
        )
        used = table(sheet, "CPU of service")
        uses = [row for row in used.rows if row.group == setting["name"]]
        for row, use, told in zip(shown.rows, uses, setting["rows"], strict=True):
            assert cell(shown, row, "clients") == told["clients"]
            assert cell(shown, row, "aveTime", "us") == told["ave_time_us"]
            assert cell(shown, row, "totalTime") == told["total_time_us"]
            assert cell(shown, row, "qps", "1/s") == told["qps"]
            assert cell(shown, row, "p50") == told["p50_ms"]
            assert cell(shown, row, "p99") == told["p99_ms"]
            assert cell(shown, row, "errors") == sum(told["failed"].values())
            assert cell(shown, row, "cut") == told["cut"]
            assert cell(shown, row, "mark") == told["mark"]
            for name in ("service", "client", "host"):
                assert cell(used, use, name) == told[f"{name}_cpu_percent"]
            if setting["device"] == "cuda":
                assert cell(used, use, "GPU") == cell(shown, row, "GPU") == told["gpu_percent"]


def test_the_settings_are_those_of_the_json() -> None:
    made = golden()
    shown, told = table(press_sheet(made, None), "Settings"), in_json(made)["settings"]
    assert column(shown, "setting") == [one["name"] for one in told]
    assert column(shown, "best", "qps") == [one["best_qps"] for one in told]
    assert column(shown, "clients") == [one["best_clients"] for one in told]
    assert column(shown, "knee") == [one["knee_clients"] for one in told]
    alone = [one["rows"][0]["ave_time_us"] for one in told]
    assert column(shown, "aveTime") == alone


def test_log_levels_are_compared_launch_by_launch() -> None:
    made = golden()
    sheet = press_sheet(made, None)
    (told,) = in_json(made)["comparisons"]
    shown = table(sheet, "qps of DEBUG over those of ERROR")
    best = shown.rows[0]
    assert [cell(shown, best, f"launch {at}") for at in (1, 2, 3)] == list(
        told["ratio_of_best_by_round"].values()
    )
    by_clients = told["ratio_by_clients_and_round"]
    for row, found in zip(shown.rows[1:], by_clients.values(), strict=True):
        assert [cell(shown, row, f"launch {at}") for at in found] == list(found.values())
    assert told["sentence"] in as_lines(sheet.findings)
    assert any(
        one.startswith("DEBUG collapses with 200 clients") and "disagree" in one
        for one in as_lines(sheet.findings)
    )


def test_charts_have_a_line_for_each_setting_with_its_marks() -> None:
    made = golden()
    sheet = press_sheet(made, None)
    rates = chart(sheet, "Requests/s over clients")
    told = {one["name"]: one["rounds"] for one in in_json(made)["settings"]}
    for name, rounds in told.items():
        points = dict(drawn(rates, name))
        for users in rounds[0]["qps_by_clients"]:
            every = [one["qps_by_clients"][users] for one in rounds]
            assert points[float(users)] == pytest.approx(sum(every) / len(every))
    assert (200, "collapse: DEBUG") in marks(rates)
    assert len([one for one in charts(sheet) if one.title.startswith("CPU by process")]) == 2
    assert section(sheet, "windows") is None  # a row of so many requests is one window


def test_without_the_published_figures_there_is_no_column_of_them() -> None:
    sheet = press_sheet(press_result(press_trial(1, 330.0)), None, published=False)
    assert not any("published" in one.unit for each in tables(sheet) for one in each.columns)
    assert not any("not measured here" in one for one in texts(sheet))


def test_published_rows_stand_beside_those_of_as_many_clients() -> None:
    made = press_result(press_trial(1, 330.0), press_trial(7, 900.0), press_trial(10, 1480.0))
    shown = table(press_sheet(made, None), "default")
    there = {row["clients"]: row for row in press_table("cpu", "ERROR")["rows"]}
    beside = column(shown, "qps", "1/s, published")
    assert [float(beside[0]), beside[1], float(beside[2])] == [
        pytest.approx(there[1]["qps"], rel=1e-3),
        "-",
        pytest.approx(there[10]["qps"], rel=1e-3),
    ]
    noop = {name: value for name, value in PRESS_CELL.items() if name not in ("ranker", "device")}
    plain = table(press_sheet(press_result(press_trial(1, 330.0, of=noop)), None), "default")
    assert not any("published" in one.unit for one in plain.columns)


def test_a_row_that_was_cut_or_broke_says_so_under_itself() -> None:
    broken = press_trial(100, 900.0)
    made = press_result(
        press_trial(10, 900.0),
        press_trial(50, 950.0, cut=900),
        broken,
        press_trial(200, 940.0),
        others=[failure_of(broken, "a replica ended")],
    )
    sheet = press_sheet(made, None)
    is_sound(sheet)
    rows = table(sheet, "default").rows
    assert any(one.startswith("cut by time: 4,100 of") for one in as_lines(rows[1].doubts))
    assert as_lines(rows[2].doubts)[0] == "failed: a replica ended"
    assert as_lines(sheet.findings)[0].startswith("Something failed: a replica ended")
    assert "cut by time (1 of 4 rows)" in as_lines(sheet.findings)[-1]


def test_a_service_of_others_shows_nothing_inside() -> None:
    trials = [press_trial(users, 500.0, variant="mine", of={}) for users in (1, 10)]
    urls = {"urls": {"mine": "http://127.0.0.1:1/"}}
    sheet = press_sheet(press_result(*trials, suite=urls), None)
    is_sound(sheet)
    assert (
        "service",
        "there already: mine http://127.0.0.1:1/; what is inside it is not visible",
    ) in (sheet.run.pairs)
    assert column(table(sheet, "Settings"), "CPU") == [None]


def test_names_pass_through_as_they_are() -> None:
    made = press_result(*(press_trial(users, 500.0, variant=SCRIPT) for users in (1, 10)))
    every = list(texts(press_sheet(made, SCRIPT)))
    assert any(SCRIPT in one for one in every)
    assert not any("&lt;" in one for one in every)


def test_without_a_row_no_figure_is_claimed() -> None:
    sheet = press_sheet(press_result(), None)
    is_sound(sheet)
    assert as_lines(sheet.findings) == (
        "No setting was climbed to its end: there is no best and no knee.",
    )


def test_parts_of_a_bar_are_no_more_than_can_be_told_apart() -> None:
    roles = [f"role {n}" for n in range(1, 13)]
    processes = [
        {"pid": n, "role": role, "title": role, "cpu_percent": float(n)}
        for n, role in enumerate(roles, 1)
    ]
    usage = {"host": {"cores": 2, "cpu_percent": 90.0}, "processes": processes, "gpus": []}
    trial = replace(press_trial(10, 500.0), usage=usage)
    values = chart(press_sheet(press_result(trial), None), "CPU by process").spec["data"]["values"]
    parts = {one["part"]: one["value"] for one in values}
    assert len(parts) == 8 and parts["the rest"] == pytest.approx(sum(range(1, 6)))
    assert parts["role 12"] == 12.0
