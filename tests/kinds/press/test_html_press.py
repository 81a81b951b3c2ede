"""The page of a press run: its figures are those of the JSON, the published ones stand beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_bench.benchmarks.parts.published import press_table
from serve_bench.benchmarks.press.summary import comparisons, settings_of
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
from tests.kinds.press.test_report_press import golden
from tests.records import PRESS_CELL, failure_of, press_result, press_trial
from tests.sheet_parts import (
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

CUDA = {**PRESS_CELL, "device": "cuda"}


def gpu() -> Result:
    return press_result(*(press_trial(users, 900.0, of=CUDA, gpu=40.0) for users in (1, 10)))


def test_every_row_of_every_setting_stands_in_its_table() -> None:
    made = golden()
    sheet = press_sheet(made, "results/x")
    is_sound(sheet)
    settings = settings_of(made)
    shown = table(sheet, "Settings")
    assert column(shown, "setting") == ["ERROR", "DEBUG"]
    assert column(shown, "with") == [100, 100] and column(shown, "knee") == [50, 50]
    for one in settings:
        rows = table(sheet, f"{one.name}, mean of 3 launches")
        assert column(rows, "qps") == [row.qps for row in one.rows]
        assert column(rows, "mark") == [one.ladder.mark(row.line) for row in one.rows]


def test_a_gpu_has_columns_where_one_is_used() -> None:
    sheet = press_sheet(gpu(), None)
    assert column(table(sheet, "default, GPU"), "GPU") == [40.0, 40.0]
    assert column(table(sheet, "CPU of service"), "GPU") == [40.0, 40.0]
    every = tables(press_sheet(golden(), None))
    assert not any(one.name == "GPU" for each in every for one in each.columns)


def test_log_levels_are_compared_launch_by_launch() -> None:
    sheet = press_sheet(golden(), None)
    (one,) = comparisons(settings_of(golden()))
    shown = table(sheet, "qps of DEBUG over those of ERROR")
    for row, ratios in zip(shown.rows, (one.rounds, *one.steps.values()), strict=True):
        assert [cell(shown, row, f"launch {at}") for at in ratios] == list(ratios.values())
    assert one.sentence in as_lines(sheet.findings)
    assert any(
        line.startswith("DEBUG collapses with 200 clients") and "disagree" in line
        for line in as_lines(sheet.findings)
    )


def test_charts_have_a_line_for_each_setting_with_its_marks() -> None:
    made = golden()
    sheet = press_sheet(made, None)
    rates = chart(sheet, "Requests/s over clients")
    for one in settings_of(made):
        assert dict(drawn(rates, one.name)) == pytest.approx(dict(one.ladder.rates))
    assert (200, "collapse: DEBUG") in marks(rates)
    assert len([one for one in charts(sheet) if one.title.startswith("CPU by process")]) == 2
    assert section(sheet, "windows") is None  # a row of so many requests is one window


def test_without_the_published_figures_there_is_no_column_of_them() -> None:
    sheet = press_sheet(press_result(press_trial(1, 330.0)), None, published=False)
    assert section(sheet, "published") is None
    assert not any("published, not measured here:" in one for one in texts(sheet))


def test_the_published_table_of_the_device_and_level_has_a_place_of_its_own() -> None:
    sheet = press_sheet(press_result(press_trial(1, 330.0), press_trial(10, 1480.0)), None)
    rows = press_table("cpu", "ERROR")["rows"]
    shown = table(sheet, "Published, not measured here, like default, CPU, ERROR")
    assert column(shown, "clients") == [f"{row['clients']:,}" for row in rows]
    assert column(table(sheet, "Settings"), "published best") == ["18297 (500)"]
    rates = chart(sheet, "Requests/s over clients")
    (name,) = {one["group"] for one in vega(rates)["data"]["values"]} - {"default, CPU, ERROR"}
    assert name == "published, not measured here: CPU, log level 5"
    assert drawn(rates, name) == [(row["clients"], row["qps"]) for row in rows]
    noop = {name: value for name, value in PRESS_CELL.items() if name not in ("ranker", "device")}
    plain = press_sheet(press_result(press_trial(1, 330.0, of=noop)), None)
    assert any("no published table like" in one for one in texts(plain))


def test_requests_that_failed_or_were_cut_are_named_below_the_chart() -> None:
    made = press_result(press_trial(1, 330.0), press_trial(10, 1480.0, failed={"rejected": 3}))
    rates = chart(press_sheet(made, None), "Requests/s over clients")
    assert "Some requests failed or were cut with 10." in rates.caption


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
    values = vega(chart(press_sheet(press_result(trial), None), "CPU by process"))["data"]["values"]
    parts = {one["part"]: one["value"] for one in values}
    assert len(parts) == 8 and parts["the rest"] == pytest.approx(sum(range(1, 6)))
    assert parts["role 12"] == 12.0
