"""What a run of rows says (micro, noop, and run for an app of one's own): its table, its sentences,
its charts; with the figures of the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.statistics import Spread
from serve_bench.benchmarks.micro.charts import ends_of
from serve_bench.benchmarks.parts import about_run
from serve_bench.benchmarks.parts.blocks import MOST_LINES
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.cli.show import render
from serve_bench.core.app_spec import own_spec
from serve_bench.core.document import Chart, Code, Document, Number, Picture, Prose, Table
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Record,
    Result,
    Row,
    Trial,
    VariantUsed,
    result_of,
    trial_key,
)
from serve_bench.report.vega import vega
from serve_bench.store import read
from tests import places
from tests.records import AT, ROWS, cell, failure_of, launch, planned, run, trial
from tests.sheet_parts import as_lines, every, ladder_sheet, names, opened, page_sheet, part, texts
from tests.verdict_trials import IDLE, measured, process, usage

FILES = {
    "golden": places.GOLDEN / "records.jsonl",
    "format 1": places.FORMATS / "format-1.jsonl",
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


def sheet(*records: Record) -> Document:
    return page_sheet(result_of(records))


def in_json(result: Result, **wish: bool) -> list[dict[str, Any]]:
    """The rows of `--format json`, in its order."""
    page = json.loads(render(result, "json", where="here", **wish))
    return [row for one in page["variants"] for of in one["cells"] for row in of["rows"]]


def results(of: Document) -> Table:
    """The table of all rows."""
    return opened(part(of, "results"), Table)[0]


def column(table: Table, name: str) -> list[Any]:
    """The cells of a column."""
    at = [one.name for one in table.columns].index(name)
    return [row.cells[at] for row in table.rows]


def drawn(of: Document, name: str) -> list[dict[str, Any]]:
    """The data of all charts of a section."""
    charts = every(part(of, name), Chart)
    return [one for chart in charts for one in vega(chart)["data"]["values"]]


def findings(of: Document) -> list[str]:
    return list(as_lines(of.findings))


def launches(*rates: float, variant: str = "default") -> list[Record]:
    """One row in a launch for each rate; the windows of a launch are 10 below and above it."""
    plan = [planned(variant, ROWS[2], at) for at in range(1, len(rates) + 1)]
    trials = [
        trial(of, rate - 10, rate, rate + 10, latency=LATENCY)
        for of, rate in zip(plan, rates, strict=True)
    ]
    return [run(*plan), *(launch(variant, at) for at in range(1, len(rates) + 1)), *trials]


# ------------------------------------------------------------------------------------ figures


def test_charts_of_cpu_have_whole_bars_with_what_limited_each(golden: Result) -> None:
    of = page_sheet(golden)
    sampled = [made for made in golden.trials if made.usage]
    used = (one["cpu_percent"] for made in sampled for one in made.usage["processes"])
    assert sum(one["value"] for one in drawn(of, "cpu")) == pytest.approx(sum(used))
    notes = {text for one in every(part(of, "cpu"), Chart) for text in texts(vega(one))}
    assert {"limited by proxy CPU", "limited by client"} <= notes
    assert list(dict.fromkeys(one["label"] for one in drawn(of, "cpu"))) == [
        "single client, default",
        "8 clients, optimized",
        "100 connections, default",
        "100 connections, optimized",
    ]


def test_a_bar_has_no_more_parts_than_can_be_told_apart_and_keeps_its_length() -> None:
    processes: list[dict[str, Any]] = [
        {"pid": at, "role": f"role {at}", "title": "t", "cpu_percent": 2.0 + at}
        for at in range(2 * MOST_LINES)
    ]
    at = planned()
    made = replace(trial(at, 10.0, 11.0, 12.0), usage={**USED, "processes": processes})
    values = drawn(sheet(run(at), launch(), made), "cpu")
    assert len({one["part"] for one in values}) == MOST_LINES
    assert {"role 15", "role 9", "the rest"} <= {one["part"] for one in values}
    assert sum(one["value"] for one in values) == sum(one["cpu_percent"] for one in processes)


def test_cpu_is_shown_of_the_fastest_row_of_each_variant() -> None:
    variants = ("a", "b")
    plan = [planned(variant, row) for variant in variants for row in ROWS[1:]]
    made = [
        replace(
            trial(at, rate, rate),
            usage={
                **USED,
                "processes": [
                    {"pid": 1, "role": "proxy", "cpu_percent": rate},
                    {"pid": 2, "role": "gcs", "cpu_percent": 4.0},
                ],
            },
        )
        for at, rate in zip(plan, (10.0, 20.0, 40.0, 30.0), strict=True)
    ]
    (table,) = opened(part(sheet(run(*plan), *map(launch, variants), *made), "usage"), Table)
    assert [one.name for one in table.columns] == ["process", "a", "b"]
    assert [row.cells for row in table.rows] == [
        ("proxy", "20", "40"),
        ("the rest", "4", "4"),
        ("host, all processes", "120 of 200", "120 of 200"),
    ]
    assert "100 connections, a; 8 clients, b" in table.caption


# ------------------------------------------------------------------------ nothing is left out


def test_all_that_is_known_of_a_run_is_there(stored: Result) -> None:
    page = page_of(stored, published=True, where="here")
    of = page_sheet(stored, "here", published=True)
    shown = " | ".join((*texts(of), *(one.line for row in results(of).rows for one in row.doubts)))
    wanted = [page.run.id, about_run.moment(page.run.started_at), "here", *page.notes]
    for one in page.variants:
        wanted += [one.name, one.engaged, *one.env]
        for entry in one.entries:
            facts = [fact.removeprefix("limited by: ") for fact in entry.facts]
            wanted += [entry.line.row.label, entry.line.row.client, *facts]
            wanted += [doubt.text for doubt in entry.findings]
            wanted += [doubt.hint for doubt in entry.findings]
    assert [text for text in wanted if text not in shown] == []


def test_serves_own_metrics_are_folded_away() -> None:
    made = replace(trial(planned()), serve_metrics={"status": "fresh", "levels": {"queued": 3}})
    (shown,) = every(part(sheet(run(planned()), launch(), made), "details"), Code)
    assert shown.text.startswith("single client, launch default-1\n")
    assert json.loads(shown.text.partition("\n")[2]) == made.serve_metrics


@pytest.mark.parametrize(
    ("failure", "place"),
    [
        (Failure("launch", "no raylet", AT, variant="default", round=1), "doubts"),
        (Failure("deploy", "no raylet", AT, variant="default", cell=cell()), "results"),
        (Failure("trial", "no raylet", AT, key=planned().key, detail=("last line",)), "results"),
        (Failure("teardown", "no raylet", AT, detail=("last line",)), "doubts"),
        (Failure("trial", "no raylet", AT, key="of another plan"), "doubts"),
    ],
    ids=["variant", "cell", "row", "run", "other key"],
)
def test_a_failure_is_shown_where_it_struck_and_said_first(failure: Failure, place: str) -> None:
    of = sheet(run(planned()), failure)
    where: Any = of.doubts if place == "doubts" else part(of, "results")
    assert any("no raylet" in text for text in texts(where))
    assert "no raylet" in findings(of)[0]
    logs = [code.text for code in every(part(of, "results"), Code)]
    assert logs == (["last line"] if failure.detail else [])


def test_a_row_that_was_not_measured_is_shown_as_such() -> None:
    done, missing = planned(row=ROWS[0]), planned(row=ROWS[1])
    of = sheet(run(done, missing), launch(), trial(done))
    _, rate, *others = results(of).rows[1].cells
    assert rate == Number("not measured", None, "bad")
    assert {one.text for one in others if isinstance(one, Number)} == {"-"}
    assert findings(of)[0].startswith("1 of 2 rows was incomplete. single client: ")
    nothing = sheet(run(planned()))
    assert names(nothing) == ["results", "method"]
    assert findings(nothing) == ["The row was incomplete. No row was measured."]


def test_doubts_and_failures_stand_with_the_row() -> None:
    at = planned(row=ROWS[1])
    bound: dict[str, object] = {"verdict": {"client_bound": True, "reasons": ["never idle"]}}
    made = trial(at, 100, 200, 300, failed={"timeout": 2}, client=bound)
    of = sheet(run(at), launch(), made, failure_of(made, "interrupted"))
    (row,) = results(of).rows
    assert [one.code for one in row.doubts][:1] == ["failed"]
    assert {"errors", "client-bound", "unsteady-windows"} <= {one.code for one in row.doubts}
    (errors,) = column(results(of), "errors")
    assert errors == Number("2", 2, "doubt")
    assert findings(of)[0].startswith("Something failed: interrupted. ")
    assert any(text.startswith("Warnings: ") for text in findings(of))


def test_a_row_that_was_broken_off_says_so_first_and_where_it_stands() -> None:
    broken = replace(trial(planned()), flags={"interrupted": True})
    of = sheet(run(planned()), launch(), broken)
    assert findings(of)[0].startswith("The row was interrupted. single client: 100.0 ± 8.2 ")
    assert [one.code for one in results(of).rows[0].doubts][-1] == "interrupted"


def test_what_to_do_about_the_same_doubt_of_several_rows_is_said_once() -> None:
    at, other = planned(row=ROWS[0]), planned(row=ROWS[1])
    alone = sheet(run(at), launch(), trial(at, 10.0))
    (doubt,) = results(alone).rows[0].doubts
    assert doubt.code == "few-windows" and doubt.hint == "measure 3 or more"
    both = sheet(run(at, other), launch(), trial(at, 10.0), trial(other, 10.0))
    assert [[one.hint for one in row.doubts] for row in results(both).rows] == [[""], [""]]
    assert list(texts(part(both, "results"))).count("hint, few-windows: measure 3 or more") == 1


def test_a_variant_that_is_not_engaged_is_said_of_the_run_and_of_each_row() -> None:
    at = planned()
    asked = replace(launch(), variant=VariantUsed("default", {"RAY_SERVE_ENABLE_HA_PROXY": "1"}))
    of = sheet(run(at), asked, trial(at))
    assert [one.code for one in of.doubts] == ["variant-not-engaged"]
    assert [one.code for one in results(of).rows[0].doubts] == ["variant-not-engaged"]
    assert dict(of.run.pairs)["variant default"].startswith("RAY_SERVE_ENABLE_HA_PROXY=1")


def test_clients_are_named_once_with_what_is_not_usual() -> None:
    rows = [
        ROWS[0],
        ROWS[2],
        Row("open", "raw", 9, loop="open", rate_per_s=50.0, data_size="large"),
    ]
    plan = [planned(row=row) for row in rows]
    assert (
        "single client: client aiohttp; 100 connections: client raw; open: client raw, large data, "
        "open loop at 50 requests/s"
    ) in results(sheet(run(*plan), *map(trial, plan))).notes


# -------------------------------------------------------------------------------- intervals


def test_intervals_are_over_launches_where_there_are_three() -> None:
    of = sheet(*launches(100, 110, 120))
    (chart,) = every(part(of, "throughput"), Chart)
    (point,) = vega(chart)["data"]["values"]
    half = 4.302653 * 10 / 3**0.5  # t(0.975, 2), std of 100, 110 and 120
    assert (point["low"], point["high"]) == pytest.approx((110 - half, 110 + half), rel=1e-6)
    assert "Student's t over launches" in chart.caption and "windows" not in chart.caption
    assert any("t(0.975, k - 1)" in text for text in texts(part(of, "method")))
    (over,) = column(results(of), "std over launches")
    assert over == Number("10.00 (3)", 10.0)


@pytest.mark.parametrize("rates", [(100.0,), (100.0, 120.0)])
def test_intervals_are_over_windows_with_fewer_and_say_so(rates: tuple[float, ...]) -> None:
    of = sheet(*launches(*rates))
    (chart,) = every(part(of, "throughput"), Chart)
    (point,) = vega(chart)["data"]["values"]
    assert point["value"] - point["low"] == pytest.approx((200 / 3) ** 0.5)
    assert "std over the windows" in chart.caption and "Student" not in chart.caption
    assert len({one["group"] for one in drawn(of, "windows")}) == len(rates)


def test_an_interval_ends_at_zero_and_one_window_has_none() -> None:
    base = Spread("requests/s", "higher", 10.0, 20.0, 4, 1, None)
    ends = ends_of(base)
    assert ends is not None and (ends.low, ends.high) == (0.0, 30.0)
    assert ends_of(replace(base, windows=1)) is None
    of = sheet(run(planned()), trial(planned(), 50.0))
    (chart,) = every(part(of, "throughput"), Chart)
    assert vega(chart)["data"]["values"][0]["low"] is None
    assert chart.caption == "Intervals: none of a single window."
    assert "windows" not in names(of)


# ---------------------------------------------------------------------------------- sentences


def test_the_golden_run_in_sentences(golden: Result) -> None:
    of = page_sheet(golden, "here")
    assert findings(of) == [
        "1 of 12 rows was incomplete; something failed: connection refused by "
        "127.0.0.1:8000. 100 connections, max_ongoing_requests 1, num_replicas 1, optimized has "
        "the highest throughput: 4,500 ± 90 requests/s, p50 21.1 ms, p99 26.4 ms; it is limited by "
        "concurrency limit, 99 for 1 slot (high confidence; next limit: replica CPU 20 %).",
        "optimized has 2.00 to 5.00 times the requests/s of default, in the 5 rows that both have.",
        "Warnings: errors (1 of 11 rows), client bound (1 of 11 rows).",
        "The spread between launches is unknown after 1 launch (--launches 3).",
    ]
    first = part(of, "cpu")[0]
    assert isinstance(first, Prose) and first.paragraphs[0] == (
        "Of the 4 rows whose CPU was sampled, limited by: offered load in 1, proxy CPU in 1, "
        "client in 1, concurrency limit in 1."
    )


def test_one_row_alone_is_named_by_its_load() -> None:
    of = sheet(*launches(100, 110, 120))
    assert findings(of)[0] == "100 connections: 110.0 ± 8.2 requests/s, p50 1.00 ms, p99 9.00 ms."
    (row,) = results(of).rows
    assert row.group == ""
    fixed = "every cell: max_batch_size 1, max_ongoing_requests 1, num_replicas 1"
    assert results(of).notes[0] == fixed


def test_a_row_with_failed_requests_makes_no_headline_without_a_word() -> None:
    fast, slow = planned(row=ROWS[2]), planned(row=ROWS[0])
    made = [trial(fast, 900.0, 900.0, 900.0, failed={"reset": 5}), trial(slow, 100.0, 100.0, 100.0)]
    first = findings(sheet(run(slow, fast), *made))[0]
    assert first.startswith("single client has the highest throughput without a failed request: ")


# ------------------------------------------------------------------------------------- charts


def many(cells: int, windows: Sequence[float] = (10.0, 11.0, 9.0)) -> Result:
    """Three loads of so many cells; the last cell is the fastest."""
    plan = [planned(row=row, of=cell(queries=at)) for at in range(1, cells + 1) for row in ROWS]
    trials = [
        trial(of, *(of.cell["max_ongoing_requests"] * one for one in windows), latency=LATENCY)
        for of in plan
    ]
    return result_of([run(*plan), launch(), *trials])


def q(queries: int) -> str:
    return f"max_ongoing_requests {queries}"


def cells_of(charts: Sequence[Chart]) -> list[str]:
    return [chart.title.partition(": ")[2] for chart in charts]


def test_of_many_cells_the_fastest_is_open_and_none_is_lost() -> None:
    of = page_sheet(many(5))
    for name in ("latency", "windows"):
        blocks = part(of, name)
        assert cells_of(opened(blocks, Chart)) == [q(5)]
        (said,) = opened(blocks, Prose)
        assert said.paragraphs[0].startswith("Open: the highest requests/s;")
        assert sorted(cells_of(every(blocks, Chart))) == [q(at) for at in range(1, 6)]
    by_load = every(part(of, "throughput"), Chart)
    assert cells_of(by_load) == [row.label for row in ROWS]
    assert [row.group for row in results(of).rows[::3]] == [q(at) for at in range(1, 6)]


def test_windows_in_doubt_stand_open_too() -> None:
    result = many(4)
    shaky = replace(result.trials[0], metrics=trial(result.run.plan[0], 1, 9, 30).metrics)
    result = replace(result, trials=(shaky, *result.trials[1:]))
    blocks = part(page_sheet(result), "windows")
    assert cells_of(opened(blocks, Chart)) == [q(1), q(4)]
    assert any("unsteady windows" in text for text in texts(blocks))


def test_no_chart_has_more_lines_than_can_be_told_apart() -> None:
    plan = [planned(row=ROWS[2], of=cell(queries=at)) for at in range(1, 2 * MOST_LINES + 2)]
    trials = [trial(of, 10.0, 12.0, 11.0, latency=LATENCY) for of in plan]
    of = sheet(run(*plan), *trials)
    for name in ("latency", "windows"):
        charts = every(part(of, name), Chart)
        groups = [{one["group"] for one in vega(chart)["data"]["values"]} for chart in charts]
        assert max(len(group) for group in groups) <= MOST_LINES
        assert len(set().union(*groups)) == len(plan)


def test_profiled_rows_are_in_the_table_and_in_no_chart() -> None:
    at = planned()
    kept = {"pid": 5, "role": "proxy", "path": "profiles/k/proxy-5.raw.txt", "samples": 90}
    failed = {"pid": 6, "role": "replica", "title": "r", "failed": "it ended"}
    slow = replace(trial(at, 7.0, 7.0, 7.0, profiled=True), profiles=(kept, failed))
    result = result_of([run(at), launch(), trial(at, 100.0, 101.0, 99.0), slow])
    of = page_sheet(result)
    assert [row["status"] for row in in_json(result)] == ["measured", "profiled"]
    assert [one.text for one in column(results(of), "requests/s")] == [
        "100.0 ± 0.8",
        "7.000 ± 0.000",
    ]
    assert [one["value"] for one in drawn(of, "throughput")] == [100.0]
    (picture,) = every(part(of, "profiles"), Picture)
    assert picture.path == "profiles/k/proxy-5.svg"
    assert any("not recorded: replica it ended" in text for text in texts(part(of, "results")))


# -------------------------------------------------------------------------------------- names


def test_names_stay_as_they_are_and_in_no_expression() -> None:
    evil = "<script>alert('1')</script>"
    row = Row(f"{evil} clients", "raw", 4)
    plan = [planned(evil, row, of=cell(queries=at)) for at in (1, 2)]
    trials = [replace(trial(of, 10.0, 20.0, 30.0, latency=LATENCY), usage=USED) for of in plan]
    records: list[Record] = [run(*plan), launch(evil), *trials, failure_of(trials[0], evil)]
    of = page_sheet(result_of(records), evil)
    shown = list(texts(of))
    assert any(evil in text for text in shown) and not any("&lt;" in text for text in shown)
    for chart in (chart for one in of.sections for chart in every(one.blocks, Chart)):
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
    of = sheet(run(*plan), *trials)
    told_apart = [
        "10 connections (raw, small data)",
        "10 connections (aiohttp)",
        "10 connections (raw, large data)",
    ]
    assert [one["label"] for one in drawn(of, "throughput")] == told_apart
    assert [one.text for one in column(results(of), "load")] == told_apart


def test_rows_of_streams_keep_their_first_event_where_it_is_narrow() -> None:
    plan = [
        planned(variant, Row("4 connections, stream", "raw", 4, protocol="stream"))
        for variant in ("default", "optimized")
    ]
    trials = []
    for of in plan:
        one = trial(of, 100.0, 101.0, 99.0, latency=LATENCY)
        times = {name: Metric("ns", "lower", histogram=LATENCY) for name in ("ttft", "itl")}
        events = Metric("events/s", "higher", windows=(2000.0, 2020.0, 1980.0))
        tokens = {"requests": 300, "answer": 6000, "prompt": 60_000}
        client = {"events": 6000, "merged": 0, "tokens": tokens}
        metrics = {**one.metrics, **times, "events": events}
        trials.append(replace(one, metrics=metrics, client=client, seconds={"measured": 3.0}))
    of_streams = result_of([run(*plan), *trials])
    for width, shown in (
        (60, {"TTFT p50"}),
        (200, {"TTFT p50", "events/s", "ITL p50", "tokens/s"}),
    ):
        text = render(of_streams, "table", width=width)
        head = next(line for line in text.splitlines() if "requests/s" in line and "load" in line)
        assert shown == {
            name for name in ("TTFT p50", "events/s", "ITL p50", "tokens/s") if name in head
        }
        assert max(map(len, text.splitlines())) <= width
    assert "2,000 tokens/s of answers" in " ".join(text.split())
    assert "tokens_per_s" in render(of_streams, "csv").splitlines()[0]


# ------------------------------------------------------------------------ an app of one's own

APP = OwnApp(
    "shop.py:app",
    "shop:app",
    "/",
    (OwnDeployment("Ranker", 1), OwnDeployment("Shop", 1)),
    ("num_replicas",),
    Asked("/rank", "POST", (), b"[1, 2]"),
)


def own_trial(replicas: int, queries: int, *rates: float, variant: str = "default") -> Trial:
    of = {"Ranker.num_replicas": replicas, "Ranker.max_ongoing_requests": queries}
    at = PlannedTrial(trial_key(variant, 1, of, ROWS[2].label), 1, variant, of, ROWS[2])
    return trial(at, *rates, latency=LATENCY)


def own_run(*trials: Trial, app: OwnApp = APP) -> Result:
    about = replace(run(), command="run", suite={"app": own_spec(app).to_json()})
    return result_of([about, launch(), *trials])


OWN = own_run(
    own_trial(1, 10, 100.0, 110.0), own_trial(2, 10, 200.0, 200.0), own_trial(2, 20, 195.0, 205.0)
)


def test_an_own_app_has_a_row_a_cell_and_names_the_best_first() -> None:
    of = page_sheet(OWN)
    assert findings(of)[:2] == [
        "Ranker.num_replicas 2, Ranker.max_ongoing_requests 10 has the highest throughput: "
        "200.0 ± 0.0 requests/s, p50 1.00 ms, p99 9.00 ms.",
        "Not clearly slower (within 5 % or two standard errors): Ranker.num_replicas 2, "
        "Ranker.max_ongoing_requests 20 (200.0).",
    ]
    assert json.loads(render(OWN, "json"))["notes"][0].startswith("best: Ranker.num_replicas 2, ")
    table = results(of)
    assert [one.text for one in column(table, "num_replicas")] == ["1", "2", "2"]
    assert column(table, "max_ongoing_requests") == ["10", "10", "20"]
    assert {row.group for row in table.rows} == {""}
    legend = "num_replicas: Ranker.num_replicas, max_ongoing_requests: Ranker.max_ongoing_requests"
    assert legend in table.notes and "100 connections: client raw" in table.notes
    assert of.title == "serve-bench run shop.py:app, run r1"
    pairs = dict(of.run.pairs)
    assert pairs["app"] == "shop.py:app"
    assert pairs["deployments"] == "Shop receives HTTP, in front of Ranker"
    assert pairs["request"] == "POST /rank with a body of 6 bytes"


def test_options_that_do_not_vary_are_said_once_and_one_cell_has_no_rival() -> None:
    of = page_sheet(own_run(own_trial(1, 10, 100.0, 110.0), own_trial(2, 10, 200.0, 200.0)))
    assert "max_ongoing_requests" not in {one.name for one in results(of).columns}
    assert results(of).notes[0] == "every cell: Ranker.max_ongoing_requests 10"
    alone = findings(page_sheet(own_run(own_trial(1, 10, 100.0, 110.0))))
    assert not any("highest" in text or "slower" in text for text in alone)


def test_variants_have_a_column_where_there_are_several() -> None:
    of = page_sheet(own_run(own_trial(1, 1, 100.0), own_trial(1, 1, 900.0, variant="optimized")))
    assert column(results(of), "variant") == ["default", "optimized"]
    assert findings(of)[0].startswith(
        "100 connections, optimized has the highest throughput: 900.0"
    )


def test_many_options_share_a_column() -> None:
    made = []
    for at in (1, 2):
        of = {f"A.option{n}": at for n in range(4)}
        key = trial_key("default", 1, of, ROWS[2].label)
        made.append(trial(PlannedTrial(key, 1, "default", of, ROWS[2]), 10.0))
    table = results(page_sheet(own_run(*made)))
    assert [one.name for one in table.columns][:2] == ["cell", "requests/s"]
    assert column(table, "cell")[0].text == "option0 1, option1 1, option2 1, option3 1"


@pytest.mark.parametrize("width", [80, 60])
def test_a_table_of_options_fits(width: int) -> None:
    assert max(map(len, render(OWN, "table", width=width).splitlines())) <= width


@pytest.mark.parametrize("format", ["table", "markdown", "csv"])
def test_where_nothing_was_completed_there_is_no_limit_but_the_status(format: str) -> None:
    failed = replace(
        own_trial(1, 10, 0.0, 0.0),
        counts=Counts(9, 0, {"status": 9}, 0),
        client={"status_codes": {"408": 9}},
        usage={"host": {"cores": 2, "cpu_percent": 20.0}, "processes": []},
    )
    (entry,) = page_of(own_run(failed)).entries
    assert entry.limited is None
    text = " ".join(render(own_run(failed), format, width=200).split())
    assert "9 of 9 requests failed: 9 with status 408" in text
    assert "unclear" not in text and "measure again" not in text


@pytest.mark.parametrize("command", ["run", "micro", "sweep"])
@pytest.mark.parametrize("color", [True, False])
def test_control_characters_in_names_are_written_out(command: str, color: bool) -> None:
    about = replace(OWN.run, command=command, id="a\x1b[2Jb")
    text = render(replace(OWN, run=about), "table", width=200, color=color)
    assert "run a\\u001b[2Jb" in text and "\x1b[2J" not in text


def test_the_front_is_that_of_the_application_which_is_loaded() -> None:
    """Two applications of a config file have an ingress of one name: `b` is loaded, and burns."""
    uses = [process(1, "proxy", 20, wait=1)]
    uses += [process(2, "replica", 2, wait=1, of="a:Ingress")]
    uses += [process(3, "replica", 97, wait=1, of="b:Ingress")]
    made = (OwnDeployment("Ingress", 1),)
    app = OwnApp("c.yaml: b", "b:app", "/", made, (), config={"name": "b"})
    at = replace(own_trial(1, 10, 100.0), usage=usage(*uses, host=130), slots={"Ingress": 5})
    (entry,) = page_of(own_run(at, app=app)).entries
    assert entry.limited is not None
    assert entry.limited.figures == "Ingress: replica CPU 97 % of a core"


def test_a_cause_has_each_of_its_hints() -> None:
    """One row could have been looked into, of another the look failed."""
    blind, failed = measured(100, 1000, IDLE), measured(50, 700, IDLE)
    failed = replace(failed, waits={"why_not": "nobody answered"})
    notes = page_of(result_of([run(), launch(), blind, failed])).notes
    hints = [one for one in notes if one.startswith("hint, app wait: ")]
    assert len(hints) == 2 and "serve-bench run" in hints[0] and "failed here" in hints[1]


def test_recsys_has_the_page_of_ladders() -> None:
    rows = [Row(f"{users} users", "raw", users) for users in (1, 2)]
    plan = [planned(row=row) for row in rows]
    about = replace(run(*plan), command="recsys", suite={"ladder": {"steps": [1, 2]}})
    result = result_of([about, launch(), *(trial(of, 50.0, 50.0, 50.0) for of in plan)])
    of, ladder = page_sheet(result, "here"), ladder_sheet(result, "here", published=False)
    assert of.findings == ladder.findings and names(of) == names(ladder)
    assert names(of)[0] == "results" and "details" not in names(of)
