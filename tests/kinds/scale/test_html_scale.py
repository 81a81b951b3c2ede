"""The document of a scale run in each of its workloads: tables, charts, findings."""

from __future__ import annotations

import pytest

from serve_bench.benchmarks.scale.summary import scale_summary
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
from tests.kinds.scale.test_report_scale import curve, ensemble, golden
from tests.scale_records import planned, scale_node, scale_result, scale_suite, scale_trial, usage
from tests.sheet_parts import (
    SCRIPT,
    as_lines,
    cell,
    chart,
    charts,
    column,
    drawn,
    is_sound,
    scale_sheet,
    section,
    table,
    texts,
)


@pytest.mark.parametrize("made", [golden(), curve(), ensemble()], ids=["single", "curve", "graph"])
def test_every_page_is_sound(made: Result) -> None:
    sheet = scale_sheet(made, "results/x")
    is_sound(sheet)
    told = {line.split(" (")[0] for line in texts(sheet.run)}
    assert any(made.run.suite["workload"] in one for one in told)


def test_metrics_stand_by_their_published_names() -> None:
    for made in (golden(), ensemble()):
        shown = table(scale_sheet(made, None), "Metrics by their published names")
        first = scale_summary(made).sizes[0]
        assert column(shown, "metric") == list(first.figures)
        assert column(shown, "default") == [one.mean for one in first.figures.values()]


def test_published_metrics_stand_in_a_column_of_their_own() -> None:
    shown = table(scale_sheet(golden(), None), "Metrics by their published names")
    published = dict(zip(column(shown, "metric"), column(shown, "published"), strict=True))
    assert published["per_thread_latency_avg_ms"] == "22.41"
    assert published["cluster_total_requests"] == "-"


def test_each_size_has_the_rows_that_were_loaded() -> None:
    for made, caption in ((golden(), "Each size"), (ensemble(), "Each row")):
        lines = [line for size in scale_summary(made).sizes for line in size.lines]
        rates = [
            line.spreads["throughput"].mean if line.row.requests_each is None else None
            for line in lines
        ]
        shown = table(scale_sheet(made, None), caption)
        assert column(shown, "throughput") == rates
        assert column(shown, "requests") == [line.completed for line in lines]
    assert len(rates) == 4 and rates[1] is rates[3] is None


def test_a_lost_node_has_its_reason_and_no_figures() -> None:
    sheet = scale_sheet(golden(), None)
    shown = table(sheet, "The load from each node")
    nodes = [node for size in scale_summary(golden()).sizes for node in size.nodes]
    assert column(shown, "throughput") == [one.rate for one in nodes]
    (lost,) = (row for row in shown.rows if row.doubts)
    assert lost.doubts[0].line == "lost: no word for 5 s" and cell(shown, lost, "requests") is None
    drawing = chart(sheet, "Requests/s of each node")
    assert sorted(one["value"] for one in vega(drawing)["data"]["values"]) == sorted(
        one.rate for one in nodes if one.rate is not None
    )


def test_a_curve_has_a_row_for_each_size_and_an_exponent_for_each_quantity() -> None:
    made = curve()
    sheet, (first, second) = scale_sheet(made, None), scale_summary(made).variants
    shown = table(sheet, "Each size")
    own = [row for row in shown.rows if row.group == "variant default"]
    assert [cell(shown, row, "deploy") for row in own] == [
        one.mean("deploy_time") for one in first.sizes
    ]
    assert [one.line for one in shown.rows[-1].doubts] == ["not measured"]
    grown = table(sheet, "Growth over")
    assert column(grown, "exponent") == [
        one.fit and one.fit.exponent for part in (first, second) for one in part.grown
    ]


def test_a_curve_is_drawn_as_it_was_measured() -> None:
    made = curve()
    sheet = scale_sheet(made, None)
    grown = scale_summary(made).variants[0].grown
    (deploy,) = (one for one in grown if one.quantity.name == "deploy_time")
    points = [(replicas, figure.mean) for replicas, figure in deploy.points]
    assert drawn(chart(sheet, "Deploy time"), "default") == points
    assert "n^0.69 ± 0.02" in chart(sheet, "Deploy time").caption
    titles = [one.title for one in charts(sheet)]
    assert {"Throughput", "Latency", "The controller's loop", "Teardown time"} <= set(titles)


def test_gaps_losses_and_failures_come_first() -> None:
    sheet = scale_sheet(golden(), None)
    said = " ".join(as_lines(sheet.findings[:2]))
    assert "of 2 sizes was not measured in full" in said and "something failed" in said
    shown = table(sheet, "Each size")
    assert any("lost: node 10.1.0.3" in one for one in as_lines(shown.rows[1].doubts))
    assert any("serve did not start" in one for one in as_lines(sheet.doubts))


def test_an_invalid_result_says_so_before_anything_else() -> None:
    suite = scale_suite()
    (of,) = planned(suite)
    node = scale_node(1, completed=24_000, failed={"timeout": 3000})
    bad = scale_trial(of, [node], completed=22_000, flags={"invalid": True})
    sheet = scale_sheet(scale_result(suite, bad), None)
    assert as_lines(sheet.findings)[0].startswith(
        "INVALID: 12 % of the requests failed or timed out"
    )
    assert not sheet.doubts  # it is said once
    (row,) = table(sheet, "Throughput and latency").rows
    assert as_lines(row.doubts)[0].startswith("INVALID")


def test_cpu_is_shown_for_one_node_and_for_each_of_several() -> None:
    suite = scale_suite()
    (of,) = planned(suite)
    one = scale_sheet(scale_result(suite, scale_trial(of, [scale_node(1, usage=usage())])), None)
    values = vega(chart(one, "CPU by process"))["data"]["values"]
    assert {item["part"]: item["value"] for item in values} == {
        "proxy": 80.0,
        "replica": 45.0,
        "controller": 6.0,
        "raylet": 4.0,
    }
    assert chart(scale_sheet(golden(), None), "CPU by process on each node")


def test_the_connections_of_several_nodes_are_one_row_of_the_method() -> None:
    """The planned row has those of a node, the trial those of all: they are the same row."""
    suite = scale_suite()
    (of,) = planned(suite)
    made = scale_result(suite, scale_trial(of, [scale_node(1), scale_node(2)]))
    executed = table(scale_sheet(made, None), "Declared and executed")
    assert len(executed.rows) == 1


def test_names_pass_through_as_they_are() -> None:
    suite = scale_suite("single", (SCRIPT,))
    (of,) = planned(suite, variant=SCRIPT)
    trial = scale_trial(of, [scale_node(1, hostname=SCRIPT)])
    every = list(texts(scale_sheet(scale_result(suite, trial), SCRIPT)))
    assert sum(SCRIPT in one for one in every) >= 3
    assert not any("&lt;" in one for one in every)


def test_a_run_of_nothing_claims_nothing() -> None:
    sheet = scale_sheet(scale_result(scale_suite()), None)
    is_sound(sheet)
    assert as_lines(sheet.findings)[-1] == "Nothing was measured."
    assert section(sheet, "latency") is None
