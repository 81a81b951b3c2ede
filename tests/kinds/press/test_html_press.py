"""The page of a press run: its figures are those of the JSON, the published ones stand beside."""

from __future__ import annotations

from serve_bench.benchmarks.press.summary import comparisons, settings_of
from tests.kinds.press.test_report_press import golden
from tests.records import press_result
from tests.sheet_parts import (
    as_lines,
    cell,
    column,
    is_sound,
    press_sheet,
    table,
)


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


def test_without_a_row_no_figure_is_claimed() -> None:
    sheet = press_sheet(press_result(), None)
    is_sound(sheet)
    assert as_lines(sheet.findings) == (
        "No setting was climbed to its end: there is no best and no knee.",
    )
