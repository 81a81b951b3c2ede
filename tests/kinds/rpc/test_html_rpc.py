"""The document of a run of rpc: its tables, charts and findings, worlds over the x axis."""

from __future__ import annotations

import pytest

from serve_bench.benchmarks.rpc.charts import PUBLISHED
from serve_bench.benchmarks.rpc.summary import rpc_summary
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
from tests.kinds.rpc.test_report_rpc import golden
from tests.records import failure_of, rpc_result, rpc_suite, rpc_trial, rpc_world
from tests.sheet_parts import (
    SCRIPT,
    as_lines,
    cell,
    chart,
    charts,
    column,
    drawn,
    is_sound,
    rpc_sheet,
    section,
    table,
    texts,
)


def batches() -> Result:
    """An x axis of words, two launches."""
    worlds = [rpc_world(3, batch) for batch in (True, False)]
    suite = rpc_suite(worlds, x_axis="batch", launches=2)
    trials = [
        rpc_trial(world, (900.0 * n,), (1500.0 * n,), suite=suite, round_=n)
        for world in worlds
        for n in (1, 2)
    ]
    return rpc_result(suite, *trials)


def test_a_figure_of_each_table_is_the_one_that_was_measured() -> None:
    made = golden()
    sheet, point = rpc_sheet(made, "results/x"), rpc_summary(made).by_x[1]
    is_sound(sheet)
    assert point.title == "ray, world_size 10"
    shown = table(sheet, "Agent and observers")
    assert [(row.group, row.cells[0]) for row in shown.rows][:2] == [
        ("world_size 10", "torch"),
        ("world_size 10", "ray"),
    ]
    p50 = point.figures["agent latency (seconds)"].percentiles[50]
    assert cell(shown, shown.rows[1], "agent", "p50 ms") == p50 == pytest.approx(0.0033, rel=1e-3)
    assert column(table(sheet, "Percentiles"), "p50")[4] == p50
    assert cell(shown, shown.rows[1], "all observers") == point.rate.mean if point.rate else False
    used = table(sheet, "CPU and memory")
    assert cell(used, used.rows[1], "host") == 185.0
    assert cell(used, used.rows[1], "limited by") == "host CPU"


def test_what_broke_has_no_ratio() -> None:
    shown = table(rpc_sheet(golden(), None), "Times torch")
    assert [row.cells[0] for row in shown.rows] == ["ray", "ray"]
    assert column(shown, "agent", "latency") == [pytest.approx(3.0, rel=2e-3), None]
    assert column(shown, "all observers") == [pytest.approx(0.33, rel=0.02), None]


def test_lines_join_worlds_where_the_x_axis_has_numbers() -> None:
    made = golden()
    rates = chart(rpc_sheet(made, None), "Calls of all observers")
    spreads = [one.rate for one in rpc_summary(made).of("torch") if one.rate is not None]
    assert drawn(rates, "torch") == [
        (x, one.mean) for x, one in zip((10.0, 20.0), spreads, strict=True)
    ]
    first = vega(rates)["data"]["values"][0]
    assert first["high"] == pytest.approx(spreads[0].mean + spreads[0].std)
    words = vega(chart(rpc_sheet(batches(), None), "Calls of all observers"))["data"]["values"]
    assert {one["label"] for one in words} == {"batch True", "batch False"}


def test_the_four_metrics_are_drawn_beside_the_published_example() -> None:
    for published in (False, True):
        latency = chart(rpc_sheet(golden(), None, published), "Agent latency")
        assert drawn(latency, PUBLISHED) == ([(10.0, 2.0), (20.0, 5.0)] if published else [])
    value = vega(latency)["data"]["values"][0]
    assert (value["value"], value["low"], value["high"]) == (2.0, 2.0, 2.0)  # p50, up to p95
    titles = [one.title for one in charts(rpc_sheet(golden(), None))]
    assert {"Agent throughput", "Observer latency", "Observer throughput"} <= set(titles)


def test_each_point_of_the_axis_has_its_percentiles_and_episodes() -> None:
    titles = [one.title for one in charts(rpc_sheet(golden(), None))]
    for x in ("10", "20"):
        assert f"Observer latency, world_size {x}" in titles
        assert f"Agent latency, world_size {x}" in titles
        assert f"Calls of all observers by episode, world_size {x}" in titles


def test_what_was_not_measured_comes_first_and_keeps_its_row() -> None:
    sheet = rpc_sheet(golden(), None)
    assert as_lines(sheet.findings)[0].startswith(
        "2 of 6 worlds were not measured in full; something failed:"
    )
    shown = table(sheet, "Agent and observers")
    rows = {(row.group, row.cells[0]): row for row in shown.rows}
    gone = rows["world_size 10", "serve"]
    assert cell(shown, gone, "agent", "p50 ms") is None
    assert as_lines(gone.doubts) == ("not measured",)
    broken = as_lines(rows["world_size 20", "ray"].doubts)
    assert any(one.startswith("failed: observer 7 (pid 4321) ended") for one in broken)
    assert any("serve did not start" in one for one in as_lines(sheet.doubts))


def test_found_names_the_fastest_backend_and_the_share_of_the_others() -> None:
    sheet = rpc_sheet(golden(), None)
    assert any(
        "torch answers most" in one and "ray 0.33 of that" in one
        for one in as_lines(sheet.findings)
    )
    assert any("host CPU was full" in one for one in as_lines(sheet.findings))


def test_what_broke_is_neither_the_fastest_nor_held_against_it() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], ["torch", "ray"])
    of = {name: rpc_trial(world, suite=suite, backend=name) for name in ("torch", "ray")}

    def headline(*broken: str) -> str:
        struck = [failure_of(of[name], "observer 7 ended") for name in broken]
        made = rpc_result(suite, *of.values(), others=struck)
        (told,) = [
            one
            for one in as_lines(rpc_sheet(made, None).findings)
            if "answers most" in one or "relied on" in one
        ]
        return told

    assert "of that" in headline()
    for sound, broken in (("torch", "ray"), ("ray", "torch")):
        assert f"{sound} answers most" in headline(broken) and "of that" not in headline(broken)
    assert headline("torch", "ray") == "No world can be relied on."


def test_of_an_axis_without_order_the_fastest_point_is_the_headline() -> None:
    worlds = [rpc_world(3, batch) for batch in (True, False)]
    suite = rpc_suite(worlds, ["torch", "ray"], x_axis="batch")
    trials = [
        rpc_trial(world, (900.0,), (1500.0 * slow,), suite=suite, backend=backend)
        for slow, world in enumerate(worlds, 1)
        for backend in ("torch", "ray")
    ]
    sheet = rpc_sheet(rpc_result(suite, *trials), None)
    assert as_lines(sheet.findings)[0].startswith("With batch True, "), (
        "not the last, which is slower"
    )


def test_a_run_of_nothing_claims_nothing() -> None:
    suite = rpc_suite([rpc_world(3)])
    sheet = rpc_sheet(rpc_result(suite), None)
    is_sound(sheet)
    assert as_lines(sheet.findings)[-1] == "Nothing was measured."
    assert section(sheet, "throughput") is None and section(sheet, "cpu") is None


def test_names_and_messages_pass_through_as_they_are() -> None:
    world = rpc_world(3)
    one = rpc_trial(world, versions={"python": SCRIPT})
    made = rpc_result(rpc_suite([world]), one, others=[failure_of(one, SCRIPT)])
    every = list(texts(rpc_sheet(made, SCRIPT)))
    assert sum(SCRIPT in text for text in every) >= 3
    assert not any("&lt;" in text for text in every)


def test_more_launches_than_are_told_apart_are_in_several_charts() -> None:
    world, backends = rpc_world(3), ["torch", "ray", "serve"]
    suite = rpc_suite([world], backends, launches=3)
    trials = [
        rpc_trial(world, backend=backend, suite=suite, round_=n)
        for backend in backends
        for n in (1, 2, 3)
    ]
    sheet = rpc_sheet(rpc_result(suite, *trials), None)
    title = "Calls of all observers by episode, world_size 3"
    titles = [one.title for one in charts(sheet) if "by episode" in one.title]
    assert titles == [f"{title}, part 1 of 2", f"{title}, part 2 of 2"]
