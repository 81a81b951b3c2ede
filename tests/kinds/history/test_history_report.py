"""The forms of a history, of easy numbers.

Nine nights of two rows, of which one falls by 15 % at the sixth, and three runs of another suite.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.history import history_of
from serve_bench.analysis.history.model import History, PassedOver
from serve_bench.benchmarks.history.document import documents, strips
from serve_bench.benchmarks.history.summary import headline, news_lines
from serve_bench.cli.history import render_history
from serve_bench.report.vega import vega
from tests.history_records import FALLEN, QUIET, kept, nights, nine
from tests.records import ROWS
from tests.sheet_parts import as_lines, charts

ROW = ROWS[2]


def several() -> History:
    short = nights({ROW: QUIET[:3]}, suite={"windows": 3})
    broken = PassedOver("results/broken", "results/broken: line 1 is not the record of a run")
    return history_of(kept([*nine(), *short]), [broken], metrics=("throughput", "p99"))


def first(results: Any, **given: Any) -> str:
    return headline(history_of(kept(results), **given).groups[0])


def test_the_first_sentence_says_what_was_found() -> None:
    assert first(nights({ROW: QUIET})) == "no step in 1 row over 9 runs of micro"
    assert first(nights({ROW: QUIET[:3]})) == (
        "no verdict on 1 row: 3 of 3 runs of micro can be judged, and a step takes 4"
    )
    said = first(nine())
    assert said.startswith(
        "1 step in 1 of 2 rows over 9 runs of micro: 100 connections: step, regressed: from "
        "2026-01-07 03:04 on throughput 0.85"
    )
    assert said.endswith("requests/s; with this run: ray 2.60.0 -> 2.61.0")
    both = first(nights({ROWS[0]: FALLEN, ROW: FALLEN}))
    assert both.startswith(
        "2 steps in 2 of 2 rows over 9 runs of micro: at 2026-01-07 03:04 throughput 0.85"
    )
    assert both.endswith("x in 2 rows")
    alone = first(nights({ROW: [*QUIET[:8], 300.0]}))
    assert "1 outlier over 9 runs of micro, no step" in alone and "run again" in alone


@pytest.mark.parametrize(
    ("command", "suite", "name"),
    [
        ("micro", {"name": "micro"}, "9 runs of micro"),
        ("press", {"name": "press_noop"}, "9 runs of press press_noop"),
        ("run", {"name": "shop.py:app"}, "9 runs of shop.py:app"),
    ],
)
def test_it_says_what_the_runs_are_of(command: str, suite: dict[str, str], name: str) -> None:
    results = [
        replace(one, run=replace(one.run, command=command))
        for one in nights({ROW: QUIET}, suite=suite)
    ]
    assert name in first(results)


def test_the_newest_run_is_told_to_a_gate() -> None:
    rates = [*QUIET[:6], 300.0]
    (group,) = history_of(kept(nights({ROW: rates}))).groups
    ((word, line),) = news_lines(group)
    assert word == "regressed" and "the last run, 2026-01-08 03:04, is unlike" in line


def test_runs_of_one_minute_are_told_apart_by_seconds() -> None:
    first, second = nights({ROW: QUIET[:2]})
    text = render_history(history_of(kept([first, second])), verbose=True)
    assert "2026-01-02 03:04 " in text and "03:04:05" not in text
    second = replace(second, run=replace(second.run, started_at="2026-01-02T03:04:50+00:00"))
    text = render_history(history_of(kept([first, second])), verbose=True)
    assert "2026-01-02 03:04:05 " in text and "2026-01-02 03:04:50 " in text


@pytest.mark.parametrize(
    ("slope", "word"),
    [(-0.004, "slower"), (-0.01, "regressed"), (0.004, "faster"), (0.01, "improved")],
)
def test_a_drift_matters_by_its_size_from_the_first_run_to_the_last(
    slope: float, word: str
) -> None:
    """12 runs: 4.3 and 10.4 % in all, at a threshold of 5 %."""
    rates = [500.0 * math.exp(slope * at + 0.0006 * (-1) ** at) for at in range(12)]
    (group,) = history_of(kept(nights({ROW: rates}))).groups
    drift = group.series[0].fit.drift
    assert drift is not None and group.series[0].word(drift) == word


def test_a_strip_shows_where_a_run_lies() -> None:
    (group,) = history_of(kept(nights({ROW: [500.0] * 4 + [250.0] * 4}))).groups
    drawn = strips(group.series[0])
    assert drawn == [" " * 16 + "o"] * 4 + ["o" + " " * 16] * 4
    (group,) = history_of(kept(nights({ROW: [500.0, 505.0, 495.0, 500.0]}))).groups
    middle = {one.index("o") for one in strips(group.series[0])}
    assert max(middle) - min(middle) <= 2  # noise of 1 % does not fill it


def test_no_form_leaves_out_what_doubts_or_was_passed_over() -> None:
    for format in ("table", "markdown", "json"):
        text = " ".join(render_history(several(), format).split())
        for known in ("errors", "regressed", "line 1 is not the record of a run", "2.61.0"):
            assert known in text, (format, known)


def test_each_group_is_a_document_with_a_chart_for_each_cell_and_metric() -> None:
    sheets = documents(several())
    assert [sheet.command for sheet in sheets] == ["history"] * 2
    first, second = sheets
    assert [len(charts(sheet)) for sheet in sheets] == [2, 2]
    names = [section.name for section in first.sections]
    assert names == ["results", "steps", "runs-over-time", "changes", "runs"]
    names = [section.name for section in second.sections]  # what holds for all is in the last
    assert names == ["results", "runs-over-time", "runs", "passed-over", "how", "method"]
    assert as_lines(first.findings)[1:] == (
        "Runs of one level spread by 1.6 % to 1.7 %; of the steps 2 regressed.",
        "Versions or the host changed with 2 of 9 runs; a row steps at 1 of them.",
    )
    drawn = vega(charts(first)[0])["data"]["values"]
    values = [one["value"] for one in drawn if one["group"].startswith("100 connections")]
    assert values == pytest.approx(FALLEN, rel=1e-9)
    assert "step 0.85" in json.dumps(vega(charts(first)[0]))
    assert as_lines(first.findings)[0] == (
        "2 steps in 1 of 2 rows over 9 runs of micro: at 2026-01-07 03:04 throughput 0.850 x in 1 "
        "row, p99 1.177 x in 1 row."
    )


def test_rows_that_are_far_apart_are_drawn_to_their_first_level() -> None:
    far = nights({ROWS[0]: QUIET, ROW: [20 * rate for rate in FALLEN]})
    (sheet,) = documents(history_of(kept(far)))
    (chart,) = charts(sheet)
    drawn = [
        one["value"]
        for one in vega(chart)["data"]["values"]
        if one["group"].startswith("100 connections")
    ]
    assert drawn[0] == pytest.approx(1, rel=0.01) and drawn[8] == pytest.approx(0.845, rel=0.01)
    assert "to that of the first level" in chart.title
