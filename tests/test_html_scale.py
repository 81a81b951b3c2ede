"""The page of a scale run: its figures are those of the JSON, in each of its workloads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_bench.benchmarks.scale.growth import QUANTITIES
from serve_bench.cli.show import render
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
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
from tests.test_report_scale import curve, ensemble, golden


def in_json(made: Result) -> Any:
    return json.loads(render(made, "json"))


def sizes(told: Any) -> list[tuple[str, Any]]:
    return [(part["name"], one) for part in told["variants"] for one in part["sizes"]]


@pytest.mark.parametrize("made", [golden(), curve(), ensemble()], ids=["single", "curve", "graph"])
def test_every_page_is_sound(made: Result) -> None:
    sheet = scale_sheet(made, "results/x")
    is_sound(sheet)
    told = {line.split(" (")[0] for line in texts(sheet.run)}
    assert any(made.run.suite["workload"] in one for one in told)


@pytest.mark.parametrize("made", [golden(), ensemble()], ids=["single", "graph"])
def test_metrics_stand_by_their_published_names_as_in_the_json(made: Result) -> None:
    shown = table(scale_sheet(made, None), "Metrics by their published names")
    for variant, size in sizes(in_json(made)):
        for row in shown.rows:
            known = size["metrics"][cell(shown, row, "metric")]
            assert cell(shown, row, variant) == known["mean"]
            assert cell(shown, row, "unit") == known["unit"]
        assert len(shown.rows) == len(size["metrics"])


def test_published_metrics_stand_in_a_column_of_their_own() -> None:
    shown = table(scale_sheet(golden(), None), "Metrics by their published names")
    published = dict(zip(column(shown, "metric"), column(shown, "published"), strict=True))
    assert published["per_thread_latency_avg_ms"] == "22.41"
    assert published["cluster_total_requests"] == "-"


@pytest.mark.parametrize("made", [golden(), ensemble()], ids=["single", "graph"])
def test_sizes_have_the_rows_of_the_json(made: Result) -> None:
    shown = table(scale_sheet(made, None), "Each size")
    rows = [
        (variant, row)
        for variant, size in sizes(in_json(made))
        for row in size["rows"]
        if row["requests_each"] is None
    ]
    for row, (variant, told) in zip(shown.rows, rows, strict=True):
        assert cell(shown, row, "variant") == variant
        assert cell(shown, row, "throughput") == told["throughput"]["mean"]
        assert cell(shown, row, "p99") == told["latency"]["p99"]
        assert cell(shown, row, "requests") == told["completed"]
        assert cell(shown, row, "failed") == sum(told["failed"].values())


def test_every_row_of_a_graph_has_the_figures_of_the_json() -> None:
    made = ensemble()
    shown = table(scale_sheet(made, None), "Every row")
    (_, size), *_ = sizes(in_json(made))
    for row, told in zip(shown.rows, size["rows"], strict=True):
        each = told["requests_each"] is not None
        assert cell(shown, row, "throughput") == (None if each else told["throughput"]["mean"])
        for name in ("p50", "p90", "max"):
            assert cell(shown, row, name) == told["latency"][name]
        assert cell(shown, row, "requests") == told["completed"]


def test_nodes_have_the_figures_of_the_json_and_a_lost_one_its_reason() -> None:
    made = golden()
    shown = table(scale_sheet(made, None), "The load from each node")
    nodes = [node for _, size in sizes(in_json(made)) for node in size["nodes"]]
    for row, node in zip(shown.rows, nodes, strict=True):
        assert cell(shown, row, "connections") == node["connections"]
        if node["lost"]:
            assert cell(shown, row, "requests") == "lost"
            assert as_lines(row.doubts) == (f"lost: {node['lost']}",)
            continue
        assert cell(shown, row, "requests") == node["completed"]
        assert cell(shown, row, "throughput") == node["rate"]
        assert cell(shown, row, "p50") == node["latency_ms"]["p50"]
        assert cell(shown, row, "failed") == sum(node["failed"].values())
    drawing = chart(scale_sheet(made, None), "Requests/s of each node")
    assert sorted(one["value"] for one in vega(drawing)["data"]["values"]) == sorted(
        node["rate"] for node in nodes if node["rate"] is not None
    )


def test_a_curve_has_the_quantities_and_exponents_of_the_json() -> None:
    made = curve()
    sheet, told = scale_sheet(made, None), in_json(made)
    shown = table(sheet, "Each size")
    for row, (variant, size) in zip(shown.rows, sizes(told), strict=True):
        assert row.group == f"variant {variant}"
        if size["status"] == "not measured":
            assert cell(shown, row, "throughput") == "not measured"
            continue
        for one in QUANTITIES:
            assert cell(shown, row, one.title) == size["metrics"][one.figure]["mean"]
    grown = table(sheet, "Growth over")
    titles = {one.title: one.name for one in QUANTITIES}
    for row in grown.rows:
        part = next(one for one in told["variants"] if row.group == f"variant {one['name']}")
        fit = part["growth"][titles[cell(grown, row, "quantity")]]["fit"]
        if fit is None:
            assert cell(grown, row, "exponent") is None
            continue
        assert cell(grown, row, "exponent") == fit["exponent"]
        assert (cell(grown, row, "from"), cell(grown, row, "to")) == (fit["low"], fit["high"])
        assert cell(grown, row, "in words") == fit["words"]


def test_a_curve_is_drawn_as_it_was_measured() -> None:
    made = curve()
    sheet = scale_sheet(made, None)
    (first, *_) = in_json(made)["variants"]
    points = [(one["replicas"], one["mean"]) for one in first["growth"]["deploy_time"]["points"]]
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
    assert as_lines(sheet.doubts)[0].startswith("INVALID")
    (row,) = table(sheet, "Throughput and latency").rows
    assert as_lines(row.doubts)[0].startswith("INVALID")


def test_cpu_is_shown_for_one_node_and_for_each_of_several() -> None:
    suite = scale_suite()
    (of,) = planned(suite)
    one = scale_sheet(scale_result(suite, scale_trial(of, [scale_node(1, usage=usage())])), None)
    values = vega(chart(one, "CPU by process"))["data"]["values"]
    assert {item["part"]: item["value"] for item in values} == {
        "proxy": 80.0,
        "replicas": 45.0,
        "controller": 6.0,
        "others": 4.0,
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
