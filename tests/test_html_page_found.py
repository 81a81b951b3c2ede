"""What the page of a run of rows puts first: sentences, what stands open, names, best cells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.micro.page_panels import MOST
from serve_bench.cli.show import render
from serve_bench.core.document import Chart, Number, Picture, Prose, Table
from serve_bench.core.result import PlannedTrial, Record, Result, Row, Trial, result_of, trial_key
from serve_bench.report.vega import vega
from serve_bench.store import read
from tests.records import ROWS, cell, failure_of, launch, planned, run, trial
from tests.sheet_parts import as_lines, ladder_sheet, page_sheet, texts
from tests.test_html_page import (
    FILES,
    LATENCY,
    USED,
    every,
    in_json,
    launches,
    names,
    open_,
    section,
)


@pytest.fixture(scope="module")
def golden() -> Result:
    """The golden run."""
    return read(FILES["golden"])


# ------------------------------------------------------------------------------ what matters


def test_the_golden_run_in_sentences(golden: Result) -> None:
    sheet = page_sheet(golden, "here")
    assert as_lines(sheet.findings) == (
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
    assert (
        as_lines(sheet.findings)[0]
        == "100 connections: 110.0 ± 8.2 requests/s, p50 1.00 ms, p99 9.00 ms."
    )
    (table,) = open_(section(sheet, "results").blocks, Table)
    assert table.rows[0].group == "max_batch_size 1, max_concurrent_queries 1, num_replicas 1"


def test_a_row_with_failed_requests_makes_no_headline_without_a_word() -> None:
    fast, slow = planned(row=ROWS[2]), planned(row=ROWS[0])
    made = [trial(fast, 900.0, 900.0, 900.0, failed={"reset": 5}), trial(slow, 100.0, 100.0, 100.0)]
    sheet = page_sheet(result_of([run(slow, fast), *made]), None)
    assert as_lines(sheet.findings)[0].startswith(
        "The highest throughput without a failed request is that of s"
    )


def many(cells: int, windows: Sequence[float] = (10.0, 11.0, 9.0)) -> Result:
    """Three loads of so many cells; the last cell is the fastest."""
    plan = [planned(row=row, of=cell(queries=at)) for at in range(1, cells + 1) for row in ROWS]
    trials = [
        trial(of, *(of.cell["max_concurrent_queries"] * one for one in windows), latency=LATENCY)
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
    trials = [trial(of, 10.0, 12.0, 11.0, latency=LATENCY) for of in plan]
    sheet = page_sheet(result_of([run(*plan), *trials]), None)
    for name in ("latency", "windows"):
        charts = every(section(sheet, name).blocks, Chart)
        groups = [{one["group"] for one in vega(chart)["data"]["values"]} for chart in charts]
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
    assert [row.cells[1].text for row in table.rows if isinstance(row.cells[1], Number)] == [
        "100.0 ± 0.8",
        "7.000 ± 0.000",
    ]
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    assert [one["value"] for one in vega(chart)["data"]["values"]] == [100.0]
    (picture,) = every(section(sheet, "profiles").blocks, Picture)
    assert picture.path == "profiles/k/proxy-5.svg"
    said = texts(section(sheet, "results"))
    assert any("not recorded: replica it ended" in text for text in said)


# ---------------------------------------------------------------------------------- names


def test_names_stay_as_they_are_and_in_no_expression() -> None:
    evil = "<script>alert('1')</script>"
    row = Row(f"{evil} clients", "raw", 4)
    plan = [planned(evil, row, of=cell(queries=at)) for at in (1, 2)]
    trials = [replace(trial(of, 10.0, 20.0, 30.0, latency=LATENCY), usage=USED) for of in plan]
    records: list[Record] = [run(*plan), launch(evil), *trials, failure_of(trials[0], evil)]
    sheet = page_sheet(result_of(records), evil)
    shown = list(texts(sheet))
    assert any(evil in text for text in shown) and not any("&lt;" in text for text in shown)
    for chart in (chart for one in sheet.sections for chart in every(one.blocks, Chart)):
        assert list(expressions(vega(chart)))
        assert not any("script" in text for text in expressions(vega(chart)))


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
    assert [one["label"] for one in vega(chart)["data"]["values"]] == [
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
        trials.append(trial(of, *windows, latency=LATENCY))
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
    values = [row.cells[2].value for row in table.rows if isinstance(row.cells[2], Number)]
    assert values == [200.0, 200.0]
    said = json.loads(render(result, "json"))["notes"][0]
    assert f"B{said[1:]}." in list(texts(section(sheet, "best")))
    assert sheet.title == "serve-bench run shop.py:app, run r1"
    (chart,) = every(section(sheet, "throughput").blocks, Chart)
    labels = [one["label"] for one in vega(chart)["data"]["values"]]
    assert labels == ["num_replicas 1", "num_replicas 2", "num_replicas 3"]
    assert "num_replicas: Ranker.num_replicas" in chart.caption
    pairs = dict(sheet.run.pairs)
    assert pairs["app"] == "shop.py:app"
    assert pairs["deployments"] == "Shop meets HTTP, in front of Ranker"
    assert pairs["request"] == "POST /rank with a body of 6 bytes"


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
