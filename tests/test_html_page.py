"""The HTML page of a run of rows: all that the other forms say, with the figures of the JSON.

What is looked at are the parts of the page before they are laid out; that texts are escaped and
charts drawn is for the tests of the frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from serve_bench.histogram import Histogram
from serve_bench.report import render
from serve_bench.report.html import about_run
from serve_bench.report.html.of_ladder import ladder_sheet
from serve_bench.report.html.of_page import page_sheet
from serve_bench.report.html.of_page_charts import ends_of
from serve_bench.report.html.of_page_panels import MOST
from serve_bench.report.html.parts import (
    Block,
    Chart,
    Code,
    Figure,
    Folded,
    Picture,
    Prose,
    Section,
    Sheet,
    Table,
)
from serve_bench.report.page import page_of
from serve_bench.result import (
    Failure,
    PlannedTrial,
    Record,
    Result,
    Row,
    Trial,
    VariantUsed,
    result_of,
    trial_key,
)
from serve_bench.statistics import Spread
from serve_bench.store import read
from tests.records import AT, ROWS, cell, failure_of, launch, planned, run, trial

HERE = Path(__file__).parent
FILES = {
    "golden": HERE / "golden" / "records.jsonl",
    "format 1": HERE / "formats" / "format-1.jsonl",
}
LATENCY = Histogram.of([1_000_000] * 899 + [2_000_000] * 90 + [9_000_000] * 11).encode()


@pytest.fixture(params=FILES)
def stored(request: pytest.FixtureRequest) -> Result:
    return read(FILES[request.param])


@pytest.fixture(scope="module")
def golden() -> Result:
    return read(FILES["golden"])


def section(sheet: Sheet, name: str) -> Section:
    return next(one for one in sheet.sections if one.name == name)


def names(sheet: Sheet) -> list[str]:
    return [one.name for one in sheet.sections]


def texts(part: Any) -> Iterator[str]:
    """Every text of a part of the page."""
    if isinstance(part, str):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from texts(getattr(part, field.name))
    elif isinstance(part, Mapping):
        for name, value in part.items():
            yield from (*texts(name), *texts(value))
    elif isinstance(part, Sequence):
        for one in part:
            yield from texts(one)


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
        trial(of, rate - 10, rate, rate + 10, latency=dict(LATENCY))
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
            if isinstance(one, Figure):
                assert one.value == of_json(known, column.name), column.name
                compared += 1
    assert compared >= 6 * len(rows)


def test_every_metric_has_the_figures_of_the_json(stored: Result) -> None:
    known = {
        figure
        for row in in_json(stored)
        for found in (*row["spreads"].values(), *row["distributions"].values())
        for figure in found.values()
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
        if isinstance(one, Figure)
    ]
    assert figures and {one.value for one in figures} <= known
    measured = [row for row in in_json(stored) if row["status"] != "not measured"]
    assert len(metrics.rows) == sum(
        len(row["spreads"]) + len(row["distributions"]) for row in measured
    )
    assert [row.cells[1].value for row in requests.rows if isinstance(row.cells[1], Figure)] == [
        row["completed"] for row in measured
    ]


def test_charts_draw_the_figures_of_the_json(golden: Result) -> None:
    rows = [row for row in in_json(golden) if row["spreads"]]
    sheet = page_sheet(golden, None)
    drawn = every(section(sheet, "throughput").blocks, Chart)
    values = [one for chart in drawn for one in chart.spec["data"]["values"]]
    assert sorted(one["value"] for one in values) == sorted(
        row["spreads"]["throughput"]["mean"] for row in rows
    )
    assert {round(one["value"] - one["low"], 6) for one in values} == {
        round(row["spreads"]["throughput"]["std"], 6) for row in rows
    }
    curves = every(section(sheet, "latency").blocks, Chart)
    points = [one for chart in curves for one in chart.spec["data"]["values"]]
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        assert sorted(one["value"] for one in points if one["share"] == share) == sorted(
            row["distributions"]["latency"][name] / 1e6 for row in rows
        )


def test_bars_of_cpu_add_up_to_what_was_sampled(golden: Result) -> None:
    sheet = page_sheet(golden, None)
    drawn = every(section(sheet, "cpu").blocks, Chart)
    bars = [one["value"] for chart in drawn for one in chart.spec["data"]["values"]]
    sampled = [trial for trial in golden.trials if trial.usage]
    assert sum(bars) == pytest.approx(
        sum(one["cpu_percent"] for trial in sampled for one in trial.usage["processes"])
    )
    notes = {text for chart in drawn for text in texts(chart.spec)}
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
    values = chart.spec["data"]["values"]
    assert len({one["part"] for one in values}) == MOST
    assert {"role 15", "role 9", "the rest"} <= {one["part"] for one in values}
    assert sum(one["value"] for one in values) == sum(2.0 + at for at in range(2 * MOST))


def test_bars_stand_in_the_order_of_the_rows_with_variants_beside_each_other(
    golden: Result,
) -> None:
    (chart,) = every(section(page_sheet(golden, None), "cpu").blocks, Chart)
    assert list(dict.fromkeys(one["label"] for one in chart.spec["data"]["values"])) == [
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
    where: Any = sheet.doubts if place == "doubts" else section(sheet, "results")
    assert any("failed: " in text and "no raylet" in text for text in texts(where))
    assert "no raylet" in sheet.found[0]
    logs = [code.text for code in every(section(sheet, "results").blocks, Code)]
    assert logs == (["last line"] if failure.detail else [])


def test_a_row_that_was_not_measured_is_shown_as_such() -> None:
    done, missing = planned(row=ROWS[0]), planned(row=ROWS[1])
    sheet = page_sheet(result_of([run(done, missing), launch(), trial(done)]), None)
    table = open_(section(sheet, "results").blocks, Table)[0]
    rate = table.rows[1].cells[1]
    assert rate == Figure("not measured", None, "bad")
    assert {one.text for one in table.rows[1].cells[2:] if isinstance(one, Figure)} == {"-"}
    assert sheet.found[0] == "1 of 2 rows was not measured in full."


def test_a_run_of_which_nothing_was_measured_has_no_charts() -> None:
    sheet = page_sheet(result_of([run(planned())]), None)
    assert names(sheet) == ["results", "method"]
    assert sheet.found == ("The row was not measured in full.", "No row was measured.")


def test_doubts_and_failures_stand_with_the_row() -> None:
    of = planned(row=ROWS[1])
    bound: dict[str, object] = {"verdict": {"client_bound": True, "reasons": ["never idle"]}}
    made = trial(of, 100, 200, 300, failed={"timeout": 2}, client=bound)
    sheet = page_sheet(result_of([run(of), launch(), made, failure_of(made, "interrupted")]), None)
    (row,) = open_(section(sheet, "results").blocks, Table)[0].rows
    assert row.doubts[0] == "failed: interrupted"
    codes = [text.partition(":")[0] for text in row.doubts[1:]]
    assert {"errors", "client-bound", "unsteady-windows"} <= set(codes)
    errors = row.cells[-1]
    assert isinstance(errors, Figure) and (errors.text, errors.value) == ("2", 2)
    assert errors.tone == "bad"
    assert sheet.found[0] == "Something failed: interrupted."
    assert any(text.startswith("To be doubted: ") for text in sheet.found)


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
    (point,) = chart.spec["data"]["values"]
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
    assert isinstance(over, Figure) and (over.text, over.value) == ("10.00 (3)", 10.0)


@pytest.mark.parametrize("rates", [(100.0,), (100.0, 120.0)])
def test_intervals_are_over_windows_with_fewer_and_say_so(rates: tuple[float, ...]) -> None:
    result = result_of(launches(*rates))
    sheet = page_sheet(result, None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    (point,) = chart.spec["data"]["values"]
    std = (200 / 3) ** 0.5
    assert point["value"] - point["low"] == pytest.approx(std)
    assert "std over the windows" in chart.caption and "Student" not in chart.caption
    lines = every(section(sheet, "windows").blocks, Chart)[0].spec["data"]["values"]
    assert len({one["group"] for one in lines}) == len(rates)


def test_an_interval_ends_at_zero_and_one_window_has_none() -> None:
    base = Spread("requests/s", "higher", 10.0, 20.0, 4, 1, None)
    found = ends_of(base)
    assert found is not None and (found.low, found.high) == (0.0, 30.0)
    assert ends_of(replace(base, windows=1)) is None
    sheet = page_sheet(result_of([run(planned()), trial(planned(), 50.0)]), None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    assert chart.spec["data"]["values"][0]["low"] is None
    assert chart.caption == "Intervals: none of a single window."
    assert "windows" not in names(sheet)


# ------------------------------------------------------------------------------ what matters


def test_the_golden_run_in_sentences(golden: Result) -> None:
    sheet = page_sheet(golden, "here")
    assert sheet.found == (
        "1 of 12 rows was not measured in full; something failed: connection refused by "
        "127.0.0.1:8000.",
        "The highest throughput is that of 100 connections, max_concurrent_queries 1, num_replicas "
        "1, optimized: 4,500 ± 90 requests/s, p50 21.1 ms, p99 26.4 ms; it is limited by "
        "concurrency limit, 99 for 1 slot (sure; then replica CPU 20 %).",
        "optimized has 2.00 to 5.00 times the requests/s of default, in the 5 rows that both have.",
        "To be doubted: errors (1 of 11 rows), client bound (1 of 11 rows); from 1 launch it is "
        "not known how far launches differ.",
    )
    assert section(sheet, "cpu").blocks[0] == Prose(
        (
            "Of the 4 rows whose CPU was sampled, limited by: offered load in 1, proxy CPU in 1, "
            "client in 1, concurrency limit in 1.",
        )
    )


def test_one_row_alone_is_named_by_its_load() -> None:
    sheet = page_sheet(result_of(launches(100, 110, 120)), None)
    assert sheet.found[0] == "100 connections: 110.0 ± 8.2 requests/s, p50 1.00 ms, p99 9.00 ms."
    (table,) = open_(section(sheet, "results").blocks, Table)
    assert table.rows[0].group == "max_batch_size 1, max_concurrent_queries 1, num_replicas 1"


def test_a_row_with_failed_requests_makes_no_headline_without_a_word() -> None:
    fast, slow = planned(row=ROWS[2]), planned(row=ROWS[0])
    made = [trial(fast, 900.0, 900.0, 900.0, failed={"reset": 5}), trial(slow, 100.0, 100.0, 100.0)]
    sheet = page_sheet(result_of([run(slow, fast), *made]), None)
    assert sheet.found[0].startswith("The highest throughput without a failed request is that of s")


def many(cells: int, windows: Sequence[float] = (10.0, 11.0, 9.0)) -> Result:
    """Three loads of so many cells; the last cell is the fastest."""
    plan = [planned(row=row, of=cell(queries=at)) for at in range(1, cells + 1) for row in ROWS]
    trials = [
        trial(
            of, *(of.cell["max_concurrent_queries"] * one for one in windows), latency=dict(LATENCY)
        )
        for of in plan
    ]
    return result_of([run(*plan), launch(), *trials])


def q(queries: int) -> str:
    return f"max_concurrent_queries {queries}"


def test_of_many_cells_the_fastest_is_open_and_none_is_lost() -> None:
    sheet = page_sheet(many(5), None)
    for name in ("latency", "windows"):
        blocks = section(sheet, name).blocks
        assert [chart.title.partition(": ")[2] for chart in open_(blocks, Chart)] == [q(5)]
        said = next(one for one in blocks if isinstance(one, Prose))
        assert said.paragraphs[0].startswith("Open: the highest requests/s;")
        titles = [chart.title.partition(": ")[2] for chart in every(blocks, Chart)]
        assert sorted(titles) == [q(at) for at in range(1, 6)]
    by_load = every(section(sheet, "throughput").blocks, Chart)
    assert [chart.title.partition(": ")[2] for chart in by_load] == [row.label for row in ROWS]


def test_windows_in_doubt_stand_open_too() -> None:
    result = many(4)
    shaky = replace(result.trials[0], metrics=trial(result.run.plan[0], 1, 9, 30).metrics)
    result = replace(result, trials=(shaky, *result.trials[1:]))
    blocks = section(page_sheet(result, None), "windows").blocks
    assert [chart.title.partition(": ")[2] for chart in open_(blocks, Chart)] == [q(1), q(4)]
    assert any("unsteady windows" in text for text in texts(blocks))


def test_no_chart_has_more_lines_than_can_be_told_apart() -> None:
    plan = [planned(row=ROWS[2], of=cell(queries=at)) for at in range(1, 2 * MOST + 2)]
    trials = [trial(of, 10.0, 12.0, 11.0, latency=dict(LATENCY)) for of in plan]
    sheet = page_sheet(result_of([run(*plan), *trials]), None)
    for name in ("latency", "windows"):
        charts = every(section(sheet, name).blocks, Chart)
        groups = [{one["group"] for one in chart.spec["data"]["values"]} for chart in charts]
        assert max(len(group) for group in groups) <= MOST
        assert len(set().union(*groups)) == len(plan)


def test_profiled_rows_are_in_the_table_and_in_no_chart() -> None:
    of = planned()
    slow = replace(
        trial(of, 7.0, 7.0, 7.0, profiled=True),
        profiles=(
            {
                "pid": 5,
                "role": "proxy",
                "title": "p",
                "path": "profiles/k/proxy-5.raw.txt",
                "samples": 90,
            },
            {"pid": 6, "role": "replica", "title": "r", "failed": "it ended"},
        ),
    )
    records: list[Record] = [run(of), launch(), trial(of, 100.0, 101.0, 99.0), slow]
    sheet = page_sheet(result_of(records), None)
    assert [row["status"] for row in in_json(result_of(records))] == ["measured", "profiled"]
    (table,) = open_(section(sheet, "results").blocks, Table)
    assert [row.cells[1].text for row in table.rows if isinstance(row.cells[1], Figure)] == [
        "100.0 ± 0.8",
        "7.000 ± 0.000",
    ]
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    assert [one["value"] for one in chart.spec["data"]["values"]] == [100.0]
    (picture,) = every(section(sheet, "profiles").blocks, Picture)
    assert picture.path == "profiles/k/proxy-5.svg"
    assert any(
        "not recorded: replica it ended" in text for text in texts(section(sheet, "profiles"))
    )


# ---------------------------------------------------------------------------------- names


def test_names_stay_as_they_are_and_in_no_expression() -> None:
    evil = "<script>alert('1')</script>"
    row = Row(f"{evil} clients", "raw", 4)
    plan = [planned(evil, row, of=cell(queries=at)) for at in (1, 2)]
    trials = [
        replace(trial(of, 10.0, 20.0, 30.0, latency=dict(LATENCY)), usage=USED) for of in plan
    ]
    records: list[Record] = [run(*plan), launch(evil), *trials, failure_of(trials[0], evil)]
    sheet = page_sheet(result_of(records), evil)
    shown = list(texts(sheet))
    assert any(evil in text for text in shown) and not any("&lt;" in text for text in shown)
    for chart in (chart for one in sheet.sections for chart in every(one.blocks, Chart)):
        assert list(expressions(chart.spec))
        assert not any("script" in text for text in expressions(chart.spec))


USED = {
    "host": {"cores": 2, "cpu_percent": 120.0},
    "processes": [
        {"pid": 1, "role": "proxy", "title": "<script>", "cpu_percent": 97.0},
        {"pid": 2, "role": "replica", "title": "<script>", "cpu_percent": 20.0},
    ],
}


def expressions(spec: Any, name: str = "") -> Iterator[str]:
    """What Vega evaluates: texts under these names."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            yield from expressions(value, key)
    elif isinstance(spec, str):
        yield from [spec] if name in ("labelExpr", "filter", "calculate", "expr") else []
    elif isinstance(spec, Sequence):
        for one in spec:
            yield from expressions(one, name)


def test_rows_of_one_label_are_told_apart() -> None:
    rows = [Row("10 connections", "raw", 10), Row("10 connections", "aiohttp", 10)]
    rows.append(replace(rows[0], data_size="large"))
    plan = [PlannedTrial(f"k{at}", 1, "default", cell(), row) for at, row in enumerate(rows)]
    trials = [trial(of, 10.0 * at, 11.0 * at) for at, of in enumerate(plan, 1)]
    sheet = page_sheet(result_of([run(*plan), *trials]), None)
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    assert [one["label"] for one in chart.spec["data"]["values"]] == [
        "10 connections (raw, small data)",
        "10 connections (aiohttp)",
        "10 connections (raw, large data)",
    ]


# ------------------------------------------------------------------------ the user's own app

APP = {
    "target": "shop.py:app",
    "deployments": [{"name": "Ranker"}, {"name": "Shop"}],
    "asked": {"route": "/rank", "method": "POST", "body": "WzEsIDJd"},
}


def own(*rates: Sequence[float]) -> Result:
    """A cell of one row for each; the number of replicas counts from 1."""
    trials: list[Trial] = []
    for at, windows in enumerate(rates, 1):
        where = {"Ranker.num_replicas": at, "Ranker.max_ongoing_requests": 10}
        of = PlannedTrial(
            trial_key("default", 1, where, ROWS[2].label), 1, "default", where, ROWS[2]
        )
        trials.append(trial(of, *windows, latency=dict(LATENCY)))
    about = replace(run(), command="run", suite={"app": APP, "ladder": None})
    return result_of([about, launch(), *trials])


def test_an_own_app_names_its_best_cell_and_those_like_it() -> None:
    result = own((100.0, 110.0), (200.0, 200.0), (195.0, 205.0))
    sheet = page_sheet(result, None)
    assert names(sheet)[:3] == ["results", "best", "throughput"]
    table = open_(section(sheet, "best").blocks, Table)[0]
    assert [row.cells[:2] for row in table.rows] == [
        ("Ranker.num_replicas 2", "best"),
        ("Ranker.num_replicas 3", "not clearly slower"),
    ]
    values = [row.cells[2].value for row in table.rows if isinstance(row.cells[2], Figure)]
    assert values == [200.0, 200.0]
    said = json.loads(render(result, "json"))["notes"][0]
    assert f"B{said[1:]}." in list(texts(section(sheet, "best")))
    assert sheet.title == "serve-bench run shop.py:app, run r1"
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    labels = [one["label"] for one in chart.spec["data"]["values"]]
    assert labels == ["num_replicas 1", "num_replicas 2", "num_replicas 3"]
    assert "num_replicas: Ranker.num_replicas" in chart.caption
    pairs = dict(sheet.asked.pairs)
    assert pairs["app"] == "shop.py:app"
    assert pairs["deployments"] == "Shop meets HTTP, in front of Ranker"
    assert pairs["request"] == "POST /rank, body of 6 bytes"


def test_an_own_app_has_a_column_for_each_option_that_varies() -> None:
    blocks = section(page_sheet(own((100.0, 110.0), (200.0, 200.0)), None), "results").blocks
    assert blocks[0] == Prose(("In every cell: Ranker.max_ongoing_requests 10.",))
    table = open_(blocks, Table)[0]
    assert [column.name for column in table.columns][:3] == ["num_replicas", "row", "throughput"]
    assert [row.cells[0] for row in table.rows] == ["1", "2"]
    assert {row.group for row in table.rows} == {""}


def test_a_single_cell_has_no_best() -> None:
    assert "best" not in names(page_sheet(own((100.0, 110.0)), None))


def test_recsys_has_the_page_of_ladders() -> None:
    rows = [Row(f"{users} users", "raw", users) for users in (1, 2)]
    plan = [planned(row=row) for row in rows]
    about = replace(run(*plan), command="recsys", suite={"ladder": {"steps": [1, 2]}})
    result = result_of([about, launch(), *(trial(of, 50.0, 50.0, 50.0) for of in plan)])
    assert page_sheet(result, "here") == ladder_sheet(result, "here", published=False)
