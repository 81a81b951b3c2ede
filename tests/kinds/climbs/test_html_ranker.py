"""What the ranker alone says: times, ratios, floors, gaps, doubts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.ranker.summary import (
    CALL,
    FORWARD,
    THROUGHPUT,
    MedianInterval,
    RankerLine,
    ranker_lines,
)
from serve_bench.core.errors import FormatError
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Result,
    Row,
    Trial,
    result_of,
    trial_key,
)
from serve_bench.report.vega import vega
from tests.records import AT, run
from tests.sheet_parts import (
    SCRIPT,
    as_lines,
    cell,
    chart,
    charts,
    column,
    drawn,
    is_sound,
    ranker_sheet,
    table,
    texts,
)

FORWARD_ROW = Row("forward", "torch", 1)
SHAPE = {
    **{"dense_features": 13, "sparse_features": 26, "table_rows": 1000, "width": 64},
    **{"bottom": [256, 64], "top": [256, 128, 64]},
}


def planned(kind: str, rows: int) -> PlannedTrial:
    cell_ = {"rows": rows, "device": "cpu", "threads": 1}
    return PlannedTrial(trial_key(kind, 1, cell_, "forward"), 1, kind, cell_, FORWARD_ROW)


def ranker_trial(kind: str, rows: int, ms: float, rounds: int = 9, device: str = "") -> Trial:
    """Rounds around so many ms; a call takes a fifth more."""
    at = planned(kind, rows)
    forward = tuple(1e6 * ms * (1 + 0.01 * n) for n in range(rounds))
    call = tuple(1.2 * one for one in forward)
    return Trial(
        key=at.key,
        launch="",
        round=1,
        variant=kind,
        cell=at.cell,
        row=at.row,
        started_at=AT,
        window_s=0.05,
        warmup=Warmup(0.25, True, 5),
        metrics={
            FORWARD: Metric("ns", "lower", windows=forward),
            CALL: Metric("ns", "lower", windows=call),
            THROUGHPUT: Metric("rows/s", "higher", windows=tuple(rows * 1e9 / one for one in call)),
        },
        counts=Counts(180, 180, {}, 0),
        client={
            "ranker": {"threads": 1, "device": "cpu", "device_name": device, "torch": "2.9.0"},
            "shape": SHAPE,
            "work": {"bytes_moved": 10_000 * rows, "flops": 50_000 * rows, "launches": 19},
            "machine": {"bytes_per_s": 1e10, "flops_per_s": 8e10, "launch_ns": 900.0},
            "inputs": 40,
        },
        seconds={"total": 1.5, "warmup": 0.25},
    )


def ranker_result(*trials: Trial, others: Any = ()) -> Result:
    plan = [planned(kind, rows) for rows in (32, 3200) for kind in ("plain", "tuned")]
    begun = replace(run(*plan), command="ranker", argv=("serve-bench", "ranker"))
    return result_of([begun, *trials, *others])


def whole(rounds: int = 9) -> Result:
    return ranker_result(
        ranker_trial("plain", 32, 0.8, rounds),
        ranker_trial("tuned", 32, 0.4, rounds),
        ranker_trial("plain", 3200, 40.0, rounds),
        ranker_trial("tuned", 3200, 32.0, rounds),
    )


def test_charts_draw_medians_with_their_intervals() -> None:
    made = whole()
    sheet, lines = ranker_sheet(made, None), ranker_lines(made)
    forward = chart(sheet, "Forward and its floor")
    medians = [(one.rows, one.forward.median / 1e6) for one in lines[::2]]
    assert drawn(forward, "plain, forward") == medians
    ratios = vega(chart(sheet, "Time of plain"))["data"]["values"]
    known = [ratio for one in lines if one.kind == "tuned" for ratio in of_both(one)]
    assert [(one["value"], one["low"], one["high"]) for one in ratios] == [
        (one.median, one.low, one.high) for one in known
    ]
    titles = [one.title for one in charts(sheet)]
    assert "Forward by round, 32 rows" in titles and "Forward by round, 3,200 rows" in titles


def of_both(line: RankerLine) -> tuple[MedianInterval, MedianInterval]:
    assert line.forward_ratio and line.call_ratio
    return line.forward_ratio, line.call_ratio


def test_the_floor_stands_beside_the_forward() -> None:
    """32 rows: 320 kB at 10 GB/s are 32 us, 1.6 Mflop at 80 Gflop/s 20 us, 19 operators 17 us."""
    floors = table(ranker_sheet(whole(), None), "The floor")
    names = ("memory", "compute", "launches", "floor", "bound by")
    found = [cell(floors, floors.rows[0], name) for name in names]
    assert found == [pytest.approx(32e-6), 20e-6, pytest.approx(17.1e-6), 32e-6, "memory"]


@pytest.mark.parametrize(
    ("part", "damaged"),
    [
        ("work", None),
        ("machine", {}),
        ("machine", {"bytes_per_s": 0, "flops_per_s": 1e9, "launch_ns": 900.0}),
        ("work", {"bytes_moved": 0, "flops": 0, "launches": 0}),
    ],
)
def test_a_floor_that_is_damaged_is_refused(part: str, damaged: Any) -> None:
    trial = ranker_trial("plain", 32, 0.8)
    hurt = replace(trial, client={**trial.client, part: damaged})
    with pytest.raises(FormatError, match=r"client\.work, client\.machine"):
        ranker_lines(ranker_result(hurt))


def test_found_says_how_much_faster_and_how_far_from_the_floor() -> None:
    first, second, *_ = as_lines(ranker_sheet(whole(), None).findings)
    assert first.startswith(
        "For a call plain takes 2.00 times as long as tuned with 32 rows (2.00 to"
    )
    assert "1.25 times with 3,200 rows" in first
    assert second.startswith("A forward of tuned takes ") and "(memory)" in second


def test_few_rounds_are_a_doubt_beside_their_figures() -> None:
    sheet = ranker_sheet(whole(rounds=3), None)
    shown = table(sheet, "Times by batch size")
    assert "few-rounds: 3 rounds: intervals hold 75%" in as_lines(shown.rows[0].doubts)
    assert "few-rounds" in shown.rows[0].codes
    assert "3 rounds: intervals hold 75%" in as_lines(sheet.findings)[-1]


def test_what_is_missing_stands_in_its_row_and_comes_first() -> None:
    made = whole()
    gone = made.trials[-1]
    broken = Failure("trial", "out of memory", AT, gone.key)
    sheet = ranker_sheet(ranker_result(*made.trials[:-1], others=[broken]), None)
    is_sound(sheet)
    shown = table(sheet, "Times by batch size")
    assert column(shown, "forward", "ms")[-1] == "not measured"
    assert as_lines(shown.rows[-1].doubts) == ("failed: out of memory",)
    assert as_lines(sheet.findings)[0] == (
        "1 of 4 rows was incomplete; something failed: out of memory."
    )


@pytest.mark.parametrize("kinds", [("plain",), ("tuned",)])
def test_one_ranker_alone_has_no_ratio(kinds: tuple[str, ...]) -> None:
    trials = [one for one in whole().trials if one.variant in kinds]
    sheet = ranker_sheet(ranker_result(*trials), None)
    is_sound(sheet)
    assert not any(one.title == "Time of plain over time of tuned" for one in charts(sheet))
    assert any("scores most with" in one for one in as_lines(sheet.findings))


def test_a_run_of_nothing_claims_nothing() -> None:
    sheet = ranker_sheet(ranker_result(), None)
    is_sound(sheet)
    assert as_lines(sheet.findings)[-1] == "Nothing was measured."


def test_names_pass_through_as_they_are() -> None:
    made = ranker_result(ranker_trial("plain", 32, 0.8, device=SCRIPT))
    every = list(texts(ranker_sheet(made, SCRIPT)))
    assert sum(SCRIPT in one for one in every) >= 2
    assert not any("&lt;" in one for one in every)
