"""The page of a run of rpc: its figures are those of the JSON, worlds over the x axis."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_bench.cli.show import render
from serve_bench.core.result import Result
from tests.records import failure_of, rpc_result, rpc_suite, rpc_trial, rpc_world
from tests.sheet_parts import (
    SCRIPT,
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
from tests.test_report_rpc import golden

COLUMNS = (
    ("agent p50", "ms", "agent latency (seconds)", "p50"),
    ("agent p95", "ms", "agent latency (seconds)", "p95"),
    ("agent p50", "requests/s", "agent throughput", "p50"),
    ("observer p50", "ms", "observer latency (seconds)", "p50"),
    ("observer p95", "ms", "observer latency (seconds)", "p95"),
    ("observer p99", "ms", "observer latency (seconds)", "p99"),
    ("observer p50", "requests/s", "observer throughput", "p50"),
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


def in_json(made: Result) -> Any:
    return json.loads(render(made, "json"))["serve_bench"]


def entries(told: Any) -> dict[tuple[str, str], Any]:
    """By the x axis and the backend."""
    return {(str(one["x"]), name): one for name, every in told["backends"].items() for one in every}


def place(row: Any, told: Any) -> tuple[str, str]:
    """The x and the backend of a row."""
    first = row.cells[0]
    if row.group:
        return row.group.split(" ")[-1], first
    return first, next(iter(told["backends"]))


@pytest.mark.parametrize("made", [golden(), batches()], ids=["backends", "batch"])
def test_every_world_has_the_figures_of_the_json(made: Result) -> None:
    sheet, told = rpc_sheet(made, "results/x"), in_json(made)
    is_sound(sheet)
    shown = table(sheet, "Agent and observers")
    assert len(shown.rows) == len(entries(told))
    for row in shown.rows:
        known = entries(told)[place(row, told)]
        for name, unit, metric, share in COLUMNS if known["metrics"] else ():
            assert cell(shown, row, name, unit) == known["metrics"][metric][share]
        rate = known["throughput"]
        assert cell(shown, row, "all observers") == (rate and rate["mean"])
        if rate and any(one.name == "over launches" for one in shown.columns):
            assert cell(shown, row, "over launches") == rate["std_over_launches"]


def test_all_percentiles_cpu_and_memory_are_those_of_the_json() -> None:
    made = golden()
    sheet, told = rpc_sheet(made, None), entries(in_json(made))
    shown = table(sheet, "Percentiles")
    for row in shown.rows:
        backend, x = row.group.replace(" world_size", "").split(", ")[0], row.group.split(" ")[-1]
        metrics = {
            name.removesuffix(" (seconds)"): one
            for name, one in told[x, backend]["metrics"].items()
        }
        known = metrics[cell(shown, row, "metric")]
        for name in ("p50", "p75", "p90", "p95", "p99", "mean", "std"):
            assert cell(shown, row, name) == known[name]
        assert cell(shown, row, "samples") == known["count"]
    used = table(sheet, "CPU and memory")
    for row in used.rows:
        known = told[row.group.split(" ")[-1], str(row.cells[0])]
        for name in ("agent", "observers", "others", "host"):
            assert cell(used, row, name) == known["cpu_percent"][name]
        assert cell(used, row, "memory") == known["memory_bytes"]
        assert cell(used, row, "limited by") == (known["cpu_percent"]["limited_by"] or "-")


def test_ratios_are_those_of_the_json() -> None:
    made = golden()
    shown, told = table(rpc_sheet(made, None), "Ratios to torch"), entries(in_json(made))
    names = {
        "agent latency": "agent latency (seconds)",
        "agent rate": "agent throughput",
        "observer latency": "observer latency (seconds)",
        "observer rate": "observer throughput",
    }
    assert [row.cells[0] for row in shown.rows] == ["ray", "ray"]
    for row in shown.rows:
        known = told[row.group.split(" ")[-1], "ray"]
        for name, metric in names.items():
            assert cell(shown, row, name) == (known["ratios"] or {}).get(metric)
    assert told["20", "ray"]["ratios"] is None  # that world lost an observer
    assert column(shown, "all observers") == ["0.33", "-"]


def test_lines_join_worlds_where_the_x_axis_has_numbers() -> None:
    made = golden()
    told = entries(in_json(made))
    rates = chart(rpc_sheet(made, None), "Calls of all observers")
    assert drawn(rates, "torch") == [
        (float(x), told[x, "torch"]["throughput"]["mean"]) for x in ("10", "20")
    ]
    first = rates.spec["data"]["values"][0]
    spread = told["10", "torch"]["throughput"]
    assert first["high"] == pytest.approx(spread["mean"] + spread["std"])
    words = chart(rpc_sheet(batches(), None), "Calls of all observers").spec["data"]["values"]
    assert {one["label"] for one in words} == {"batch True", "batch False"}


def test_each_point_of_the_axis_has_its_percentiles_and_episodes() -> None:
    titles = [one.title for one in charts(rpc_sheet(golden(), None))]
    for x in ("10", "20"):
        assert f"Observer latency, world_size {x}" in titles
        assert f"Agent latency, world_size {x}" in titles
        assert f"Calls of all observers by episode, world_size {x}" in titles


def test_what_was_not_measured_comes_first_and_keeps_its_row() -> None:
    sheet = rpc_sheet(golden(), None)
    assert sheet.findings[0].startswith(
        "2 of 6 worlds were not measured in full; something failed:"
    )
    shown = table(sheet, "Agent and observers")
    rows = {(row.group, row.cells[0]): row for row in shown.rows}
    gone = rows["world_size 10", "serve"]
    assert cell(shown, gone, "agent p50", "ms") == "not measured"
    broken = rows["world_size 20", "ray"].doubts
    assert any(one.startswith("failed: observer 7 (pid 4321) ended") for one in broken)
    assert any("serve did not start" in one for one in sheet.doubts)


def test_found_names_the_fastest_backend_and_the_share_of_the_others() -> None:
    sheet = rpc_sheet(golden(), None)
    assert any("torch answers most" in one and "ray 0.33 of that" in one for one in sheet.findings)
    assert any("host CPU was full" in one for one in sheet.findings)


def test_what_broke_is_neither_the_fastest_nor_held_against_it() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], ["torch", "ray"])
    of = {name: rpc_trial(world, suite=suite, backend=name) for name in ("torch", "ray")}

    def headline(*broken: str) -> str:
        struck = [failure_of(of[name], "observer 7 ended") for name in broken]
        made = rpc_result(suite, *of.values(), others=struck)
        (told,) = [
            one
            for one in rpc_sheet(made, None).findings
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
    assert sheet.findings[0].startswith("With batch True, "), "not the last, which is slower"


def test_a_run_of_nothing_claims_nothing() -> None:
    suite = rpc_suite([rpc_world(3)])
    sheet = rpc_sheet(rpc_result(suite), None)
    is_sound(sheet)
    assert sheet.findings[-1] == "Nothing was measured."
    assert section(sheet, "throughput") is None and section(sheet, "cpu") is None


def test_names_and_messages_pass_through_as_they_are() -> None:
    world = rpc_world(3)
    one = rpc_trial(world, versions={"python": SCRIPT})
    made = rpc_result(rpc_suite([world]), one, others=[failure_of(one, SCRIPT)])
    every = list(texts(rpc_sheet(made, SCRIPT)))
    assert sum(SCRIPT in text for text in every) >= 3
    assert not any("&lt;" in text for text in every)


def test_many_launches_of_many_backends_have_a_chart_each() -> None:
    world = rpc_world(3)
    suite = rpc_suite([world], ["torch", "ray", "serve"], launches=3)
    trials = [
        rpc_trial(world, backend=backend, suite=suite, round_=n)
        for backend in ("torch", "ray", "serve")
        for n in (1, 2, 3)
    ]
    sheet = rpc_sheet(rpc_result(suite, *trials), None)
    titles = [one.title for one in charts(sheet) if "by episode" in one.title]
    assert len(titles) == 3 and "Calls of all observers by episode, ray, world_size 3" in titles
