"""The HTML page of a run of rows: all that the other forms say, with the figures of the JSON.

What is looked at are the parts of the page before they are laid out; that texts are escaped and
charts drawn is for the tests of the frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from serve_bench.analysis.statistics import Spread
from serve_bench.benchmarks.micro.page_charts import ends_of
from serve_bench.benchmarks.micro.page_panels import MOST
from serve_bench.benchmarks.parts import about_run
from serve_bench.benchmarks.parts.page import page_of
from serve_bench.cli.show import render
from serve_bench.core.document import (
    Block,
    Chart,
    Code,
    Document,
    Folded,
    Number,
    Prose,
    Section,
    Table,
)
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Failure, Record, Result, VariantUsed, result_of
from serve_bench.report.vega import vega
from serve_bench.store import read
from tests.records import AT, ROWS, cell, failure_of, launch, planned, run, trial
from tests.sheet_parts import as_lines, page_sheet, texts

HERE = Path(__file__).parent
FILES = {
    "golden": HERE / "golden" / "records.jsonl",
    "format 1": HERE / "formats" / "format-1.jsonl",
}
LATENCY = Histogram.of([1_000_000] * 899 + [2_000_000] * 90 + [9_000_000] * 11).encode()


USED = {
    "host": {"cores": 2, "cpu_percent": 120.0},
    "processes": [
        {"pid": 1, "role": "proxy", "title": "<script>", "cpu_percent": 97.0},
        {"pid": 2, "role": "replica", "title": "<script>", "cpu_percent": 20.0},
    ],
}


@pytest.fixture(params=FILES)
def stored(request: pytest.FixtureRequest) -> Result:
    return read(FILES[request.param])


@pytest.fixture(scope="module")
def golden() -> Result:
    return read(FILES["golden"])


def section(sheet: Document, name: str) -> Section:
    return next(one for one in sheet.sections if one.name == name)


def names(sheet: Document) -> list[str]:
    return [one.name for one in sheet.sections]


Part = TypeVar("Part", bound=Block)


def every(blocks: Sequence[Block], kind: type[Part]) -> list[Part]:
    """The blocks of a kind, folded ones too."""
    out: list[Part] = []
    for one in blocks:
        if isinstance(one, kind):
            out.append(one)
        if isinstance(one, Folded):
            out += every(one.blocks, kind)
    return out


def open_(blocks: Sequence[Block], kind: type[Part]) -> list[Part]:
    return [one for one in blocks if isinstance(one, kind)]


def in_json(result: Result, **wish: bool) -> list[dict[str, Any]]:
    """The rows of `--format json`, in its order."""
    page = json.loads(render(result, "json", where="here", **wish))
    return [row for part in page["variants"] for one in part["cells"] for row in one["rows"]]


def of_json(row: Mapping[str, Any], name: str) -> Any:
    """What the JSON has for a column of the matrix."""
    rate = row["spreads"].get("throughput", {})
    latency = row["distributions"].get("latency", {})
    values = {
        "throughput": rate.get("mean"),
        "std over launches": rate.get("launch_std"),
        "ratio": row["ratio"],
        "errors": sum(row["failed"].values()) if row["status"] != "not measured" else None,
        "published": row["published"] and row["published"]["mean"],
    }
    return values[name] if name in values else latency.get(name)


def launches(*rates: float, variant: str = "default") -> list[Record]:
    """One row in a launch for each rate; the windows of a launch are 10 below and above it."""
    plan = [planned(variant, ROWS[2], at) for at in range(1, len(rates) + 1)]
    trials = [
        trial(of, rate - 10, rate, rate + 10, latency=LATENCY)
        for of, rate in zip(plan, rates, strict=True)
    ]
    return [run(*plan), *(launch(variant, at) for at in range(1, len(rates) + 1)), *trials]


# -------------------------------------------------------------------------- the same figures


@pytest.mark.parametrize("published", [False, True])
def test_figures_of_the_tables_are_those_of_the_json(stored: Result, published: bool) -> None:
    rows = in_json(stored, published=published)
    sheet = page_sheet(stored, "here", published=published)
    tables = [
        table
        for table in open_(section(sheet, "results").blocks, Table)
        if table.caption.startswith("Variant ")
    ]
    shown = [(table, row) for table in tables for row in table.rows]
    assert len(shown) == len(rows)
    compared = 0
    for (table, row), known in zip(shown, rows, strict=True):
        for column, one in zip(table.columns, row.cells, strict=True):
            if isinstance(one, Number):
                assert one.value == of_json(known, column.name), column.name
                compared += 1
    assert compared >= 6 * len(rows)


def test_every_metric_has_the_figures_of_the_json(stored: Result) -> None:
    known = {
        figure
        for row in in_json(stored)
        for found in (*row["spreads"].values(), *row["distributions"].values())
        for figure in found.values()
        if not isinstance(figure, list)  # the names of lower bounds
    } | {row["completed"] for row in in_json(stored)}
    known |= {sum(row["failed"].values()) for row in in_json(stored)}
    folded = next(
        one
        for one in section(page_sheet(stored, None), "results").blocks
        if isinstance(one, Folded)
    )
    metrics, requests = every(folded.blocks, Table)
    figures = [
        one
        for row in (*metrics.rows, *requests.rows)
        for one in row.cells
        if isinstance(one, Number)
    ]
    assert figures and {one.value for one in figures} <= known
    measured = [row for row in in_json(stored) if row["status"] != "not measured"]
    assert len(metrics.rows) == sum(
        len(row["spreads"]) + len(row["distributions"]) for row in measured
    )
    assert [row.cells[1].value for row in requests.rows if isinstance(row.cells[1], Number)] == [
        row["completed"] for row in measured
    ]


def test_charts_draw_the_figures_of_the_json(golden: Result) -> None:
    rows = [row for row in in_json(golden) if row["spreads"]]
    sheet = page_sheet(golden, None)
    drawn = every(section(sheet, "throughput").blocks, Chart)
    values = [one for chart in drawn for one in vega(chart)["data"]["values"]]
    assert sorted(one["value"] for one in values) == sorted(
        row["spreads"]["throughput"]["mean"] for row in rows
    )
    assert {round(one["value"] - one["low"], 6) for one in values} == {
        round(row["spreads"]["throughput"]["std"], 6) for row in rows
    }
    curves = every(section(sheet, "latency").blocks, Chart)
    points = [one for chart in curves for one in vega(chart)["data"]["values"]]
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        assert sorted(one["value"] for one in points if one["share"] == share) == sorted(
            row["distributions"]["latency"][name] / 1e6 for row in rows
        )


def test_bars_of_cpu_add_up_to_what_was_sampled(golden: Result) -> None:
    sheet = page_sheet(golden, None)
    drawn = every(section(sheet, "cpu").blocks, Chart)
    bars = [one["value"] for chart in drawn for one in vega(chart)["data"]["values"]]
    sampled = [trial for trial in golden.trials if trial.usage]
    assert sum(bars) == pytest.approx(
        sum(one["cpu_percent"] for trial in sampled for one in trial.usage["processes"])
    )
    notes = {text for chart in drawn for text in texts(vega(chart))}
    assert {"limited by proxy CPU", "limited by client"} <= notes


def test_a_bar_has_no_more_parts_than_can_be_told_apart_and_keeps_its_length() -> None:
    processes = [
        {"pid": at, "role": f"role {at}", "title": "t", "cpu_percent": 2.0 + at}
        for at in range(2 * MOST)
    ]
    of = planned()
    made = replace(trial(of, 10.0, 11.0, 12.0), usage={**USED, "processes": processes})
    sheet = page_sheet(result_of([run(of), launch(), made]), None)
    (chart,) = every(section(sheet, "cpu").blocks, Chart)
    values = vega(chart)["data"]["values"]
    assert len({one["part"] for one in values}) == MOST
    assert {"role 15", "role 9", "the rest"} <= {one["part"] for one in values}
    assert sum(one["value"] for one in values) == sum(2.0 + at for at in range(2 * MOST))


def test_bars_stand_in_the_order_of_the_rows_with_variants_beside_each_other(
    golden: Result,
) -> None:
    (chart,) = every(section(page_sheet(golden, None), "cpu").blocks, Chart)
    assert list(dict.fromkeys(one["label"] for one in vega(chart)["data"]["values"])) == [
        "single client, default",
        "8 clients, optimized",
        "100 connections, default",
        "100 connections, optimized",
    ]


# ------------------------------------------------------------------------ nothing is left out


def test_all_that_is_said_of_a_run_is_on_the_page(stored: Result) -> None:
    page = page_of(stored, published=True, where="here")
    sheet = page_sheet(stored, "here", published=True)
    shown = " | ".join(texts(sheet))
    wanted = [
        page.run.id,
        about_run.moment(page.run.started_at),
        "here",
        *(note.removeprefix("hint, ") for note in page.notes),
    ]
    for part in page.variants:
        wanted += [part.name, part.engaged, *part.env]
        for one in part.cells:
            wanted += [line[0] for line in one.usage.lines] if one.usage else []
            for entry in one.entries:
                facts = [fact.removeprefix("limited by: ") for fact in entry.facts]
                wanted += [entry.line.row.label, entry.line.row.client, *entry.remarks, *facts]
    assert [text for text in wanted if text not in shown] == []


def test_serves_own_metrics_are_folded_away() -> None:
    of = planned()
    made = replace(trial(of), serve_metrics={"status": "fresh", "levels": {"queued": 3}})
    sheet = page_sheet(result_of([run(of), launch(), made]), None)
    (shown,) = every(section(sheet, "results").blocks, Code)
    assert shown.text.startswith("single client, launch default-1\n")
    assert json.loads(shown.text.partition("\n")[2]) == made.serve_metrics


@pytest.mark.parametrize(
    ("failure", "place"),
    [
        (Failure("launch", "no raylet", AT, variant="default", round=1), "results"),
        (Failure("deploy", "no raylet", AT, variant="default", cell=cell()), "results"),
        (Failure("trial", "no raylet", AT, key=planned().key, detail=("last line",)), "results"),
        (Failure("teardown", "no raylet", AT, detail=("last line",)), "doubts"),
        (Failure("trial", "no raylet", AT, key="of another plan"), "doubts"),
    ],
    ids=["variant", "cell", "row", "run", "other key"],
)
def test_a_failure_is_shown_where_it_struck_and_said_first(failure: Failure, place: str) -> None:
    sheet = page_sheet(result_of([run(planned()), failure]), None)
    where: Any = as_lines(sheet.doubts) if place == "doubts" else section(sheet, "results")
    assert any("failed: " in text and "no raylet" in text for text in texts(where))
    assert "no raylet" in as_lines(sheet.findings)[0]
    logs = [code.text for code in every(section(sheet, "results").blocks, Code)]
    assert logs == (["last line"] if failure.detail else [])


def test_a_row_that_was_not_measured_is_shown_as_such() -> None:
    done, missing = planned(row=ROWS[0]), planned(row=ROWS[1])
    sheet = page_sheet(result_of([run(done, missing), launch(), trial(done)]), None)
    table = open_(section(sheet, "results").blocks, Table)[0]
    rate = table.rows[1].cells[1]
    assert rate == Number("not measured", None, "bad")
    assert {one.text for one in table.rows[1].cells[2:] if isinstance(one, Number)} == {"-"}
    assert as_lines(sheet.findings)[0] == "1 of 2 rows was not measured in full."


def test_a_run_of_which_nothing_was_measured_has_no_charts() -> None:
    sheet = page_sheet(result_of([run(planned())]), None)
    assert names(sheet) == ["results", "method"]
    assert as_lines(sheet.findings) == ("The row was not measured in full.", "No row was measured.")


def test_doubts_and_failures_stand_with_the_row() -> None:
    of = planned(row=ROWS[1])
    bound: dict[str, object] = {"verdict": {"client_bound": True, "reasons": ["never idle"]}}
    made = trial(of, 100, 200, 300, failed={"timeout": 2}, client=bound)
    sheet = page_sheet(result_of([run(of), launch(), made, failure_of(made, "interrupted")]), None)
    (row,) = open_(section(sheet, "results").blocks, Table)[0].rows
    assert as_lines(row.doubts)[0] == "failed: interrupted"
    codes = [text.partition(":")[0] for text in as_lines(row.doubts)[1:]]
    assert {"errors", "client-bound", "unsteady-windows"} <= set(codes)
    errors = row.cells[-1]
    assert isinstance(errors, Number) and (errors.text, errors.value) == ("2", 2)
    assert errors.tone == "bad"
    assert as_lines(sheet.findings)[0] == "Something failed: interrupted."
    assert any(text.startswith("To be doubted: ") for text in as_lines(sheet.findings))


def test_a_variant_that_is_not_engaged_is_said_at_its_table() -> None:
    of = planned()
    asked = replace(launch(), variant=VariantUsed("default", {"RAY_SERVE_ENABLE_HA_PROXY": "1"}))
    blocks = section(page_sheet(result_of([run(of), asked, trial(of)]), None), "results").blocks
    assert isinstance(blocks[0], Prose) and blocks[0].tone == "doubt"
    assert "variant-not-engaged" in blocks[0].paragraphs[0]
    assert isinstance(blocks[1], Table)
    assert blocks[1].caption == "Variant default: RAY_SERVE_ENABLE_HA_PROXY=1"


# -------------------------------------------------------------------------------- intervals


def test_intervals_are_over_launches_where_there_are_three() -> None:
    sheet = page_sheet(result_of(launches(100, 110, 120)), None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    (point,) = vega(chart)["data"]["values"]
    half = 4.302653 * 10 / 3**0.5  # t(0.975, 2), std of 100, 110 and 120
    assert (point["low"], point["high"]) == pytest.approx((110 - half, 110 + half), rel=1e-6)
    assert "Student's t over launches" in chart.caption and "windows" not in chart.caption
    shown = list(texts(section(sheet, "method")))
    assert any("t(0.975, k - 1)" in text for text in shown)
    (table,) = open_(section(sheet, "results").blocks, Table)
    assert [column.name for column in table.columns][:3] == [
        "row",
        "throughput",
        "std over launches",
    ]
    over = table.rows[0].cells[2]
    assert isinstance(over, Number) and (over.text, over.value) == ("10.00 (3)", 10.0)


@pytest.mark.parametrize("rates", [(100.0,), (100.0, 120.0)])
def test_intervals_are_over_windows_with_fewer_and_say_so(rates: tuple[float, ...]) -> None:
    result = result_of(launches(*rates))
    sheet = page_sheet(result, None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    (point,) = vega(chart)["data"]["values"]
    std = (200 / 3) ** 0.5
    assert point["value"] - point["low"] == pytest.approx(std)
    assert "std over the windows" in chart.caption and "Student" not in chart.caption
    lines = vega(every(section(sheet, "windows").blocks, Chart)[0])["data"]["values"]
    assert len({one["group"] for one in lines}) == len(rates)


def test_an_interval_ends_at_zero_and_one_window_has_none() -> None:
    base = Spread("requests/s", "higher", 10.0, 20.0, 4, 1, None)
    found = ends_of(base)
    assert found is not None and (found.low, found.high) == (0.0, 30.0)
    assert ends_of(replace(base, windows=1)) is None
    sheet = page_sheet(result_of([run(planned()), trial(planned(), 50.0)]), None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    assert vega(chart)["data"]["values"][0]["low"] is None
    assert chart.caption == "Intervals: none of a single window."
    assert "windows" not in names(sheet)
