"""The document of a comparison: its findings, tables and charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from serve_bench.analysis.comparing import of_versus
from serve_bench.benchmarks.versus.document import comparison_document
from serve_bench.cli.show import render_comparing
from serve_bench.core.document import (
    Block,
    Chart,
    Document,
    Folded,
    Number,
    Prose,
    Section,
    TableRow,
    with_charts,
)
from serve_bench.core.document import Table as Shown
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
from tests.kinds.versus.test_report_versus import TWINS, aa, stored, versus
from tests.records import ROWS
from tests.sheet_parts import as_lines, versus_document
from tests.versus_records import rates, versus_result


def section(sheet: Document, name: str) -> Section:
    return next(one for one in sheet.sections if one.name == name)


def names(sheet: Document) -> list[str]:
    return [one.name for one in sheet.sections]


def blocks(every: Sequence[Block]) -> Iterator[Block]:
    for one in every:
        yield one
        if isinstance(one, Folded):
            yield from blocks(one.blocks)


def tables(sheet: Document, name: str) -> list[Shown]:
    return [one for one in blocks(section(sheet, name).blocks) if isinstance(one, Shown)]


def charts(sheet: Document, name: str) -> list[Chart]:
    every = with_charts(section(sheet, name).blocks)
    return [one for one in every if isinstance(one, Chart)]


def values(row: TableRow) -> list[float | None]:
    return [one.value for one in row.cells if isinstance(one, Number)]


def known(result: Result) -> Any:
    return json.loads(render_comparing(of_versus(result), "json"))


def drawn(chart: Chart) -> list[dict[str, Any]]:
    return list(vega(chart)["data"]["values"])


SHEETS = {
    "versus": lambda: (versus_document(versus(), "results/x"), known(versus())),
    "aa": lambda: (versus_document(aa(), None), known(aa())),
    "compare": lambda: (
        comparison_document(stored(), ("results/a", "results/b")),
        json.loads(render_comparing(stored(), "json")),
    ),
}


@pytest.mark.parametrize("kind", SHEETS)
def test_all_intervals_stand_on_one_axis(kind: str) -> None:
    sheet, told = SHEETS[kind]()
    (chart,) = charts(sheet, "ratios")
    lines = [line for row in told["rows"] for line in row["metrics"].values() if line["interval"]]
    expected = [
        (line["ratio"], line["interval"]["low"], line["interval"]["high"], line["verdict"])
        for line in lines
    ]
    assert [
        (one["ratio"], one["low"], one["high"], one["word"]) for one in drawn(chart)
    ] == expected
    for line in lines:
        assert line["verdict"] in chart.words


def test_single_rounds_are_drawn_as_they_lie() -> None:
    sheet = versus_document(versus_result({ROWS[2]: rates(500.0, 450.0, rounds=4)}), None)
    (chart,) = charts(sheet, "rounds")
    told = known(versus_result({ROWS[2]: rates(500.0, 450.0, rounds=4)}))
    line = told["rows"][0]["metrics"]["throughput"]
    expected = [line["b_by_round"][at] / line["a_by_round"][at] for at in "1234"]
    assert [one["value"] for one in drawn(chart)] == pytest.approx(expected)
    band = vega(chart)["layer"][0]["data"]["values"]
    assert band == [{"low": 0.95, "high": 1.05, "one": 1}]
    marks = [one["mark"]["type"] for one in vega(chart)["layer"]]
    assert "line" not in marks and "point" in marks  # rounds do not depend on each other


def test_rates_of_both_sides_are_drawn_with_intervals_from_three_launches_on() -> None:
    sheet, told = SHEETS["versus"]()
    (chart,) = charts(sheet, "throughput")
    sides = [
        (
            row["row"],
            f"{letter.upper()} {told[letter]['name']}",
            row["metrics"]["throughput"][letter],
        )
        for row in told["rows"]
        for letter in "ab"
    ]
    found = [(one["label"], one["group"], one["value"]) for one in drawn(chart)]
    assert [one[:2] for one in found] == [one[:2] for one in sides]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in sides])
    assert all(one["low"] <= one["value"] <= one["high"] for one in drawn(chart))
    two = versus_document(versus_result({ROWS[2]: rates(500.0, 450.0, rounds=2)}), None)
    assert all(one["low"] is None for one in drawn(charts(two, "throughput")[0]))


def test_what_is_found_is_said_first_and_doubted_at_once() -> None:
    sheet, told = SHEETS["versus"]()
    assert as_lines(sheet.findings)[0] == f"{told['headline']}; 1 failure, see below."
    assert len(sheet.findings) in (2, 3)
    assert as_lines(sheet.findings)[1].startswith(
        "Outside of the gate: p50 0.102 to 1.116 x (improved in 1"
    )
    assert sheet.title == "optimized against default"
    (table,) = tables(sheet, "results")
    doubted = [text for row in table.rows for text in as_lines(row.doubts)]
    assert any(text.startswith("B: errors: in 6 of 6 rounds") for text in doubted)
    assert any(text.startswith("B: client-bound: in 6 of 6 rounds") for text in doubted)
    said = [one for one in section(sheet, "results").blocks if isinstance(one, Prose)]
    assert said[0].paragraphs == ("failed: optimized, round 3, trial: no answer within 5 s",)


def test_verdicts_have_a_word_beside_their_colour() -> None:
    (table,) = tables(SHEETS["versus"]()[0], "results")
    words = {(one.text, one.tone) for row in table.rows if (one := row.cells[-1])}  # type: ignore[union-attr]
    assert words == {
        ("improved", "good"),
        ("regressed", "bad"),
        ("slower", "bad"),
        ("same", "plain"),
    }


def test_a_noise_floor_is_told_in_figures() -> None:
    sheet, result = SHEETS["aa"]()
    interval = result["rows"][0]["metrics"]["throughput"]["interval"]
    floor = max(1 - interval["low"], interval["high"] - 1)
    text = as_lines(sheet.findings)[-1]
    assert text.startswith(f"Noise floor: throughput {100 * floor:.2g} %, p50")
    assert "--noise RUN" in text
    held, _ = SHEETS["compare"]()  # against a floor that was given
    text = as_lines(held.findings)[-1]
    assert text.startswith("Noise floor of run 2026") and text.endswith("no threshold is raised.")
    short = versus_document(versus_result({ROWS[2]: rates(580.0, 580.0, 2)}, labels=TWINS), None)
    assert "Noise floor: unknown, with fewer than 3 rounds." in as_lines(short.findings)


def test_what_would_settle_it_is_told_where_that_can_be_said() -> None:
    sheet, _ = SHEETS["compare"]()
    assert (
        "the spread between runs hides it: serve-bench versus avoids it"
        in as_lines(sheet.findings)[0]
    )
    few = {row: rates(500.0, 450.0, rounds=2) for row in ROWS[:2]}
    sheet = versus_document(versus_result(few), None)
    (table,) = tables(sheet, "results")
    doubts = [text for row in table.rows for text in as_lines(row.doubts)]
    assert sum("2 rounds: a verdict takes 3" in one for one in doubts) == 2
    assert not any("would settle" in one for one in (*as_lines(sheet.findings), *doubts))


def test_what_both_hosts_share_is_said_once() -> None:
    sheet, _ = SHEETS["compare"]()
    names_ = [name for name, _ in sheet.machine.pairs]
    bare = {name.removeprefix("A: ").removeprefix("B: ") for name in names_}
    pairs = dict(sheet.machine.pairs)
    for name in bare:
        assert (name in pairs) != (f"A: {name}" in pairs or f"B: {name}" in pairs)
        assert pairs.get(f"A: {name}") != pairs.get(f"B: {name}") or name in pairs


def test_it_says_who_is_which_and_proves_it() -> None:
    sheet, _ = SHEETS["versus"]()
    first, second = tables(sheet, "proof")
    assert (first.caption[:2], second.caption[:2]) == ("A:", "B:")
    assert "HTTP by ray::ProxyActor" in str(first.rows) and "haproxy" not in str(first.rows)
    assert "HTTP by haproxy" in str(second.rows)


def test_two_stored_runs_say_what_is_not_compared_and_whose_is_what() -> None:
    sheet, _ = SHEETS["compare"]()
    said = " ".join(
        text
        for one in section(sheet, "results").blocks
        if isinstance(one, Prose)
        for text in one.paragraphs
    )
    assert "100 connections (raw) of bs1-ongoing10000-rep8: only in A" in said
    assert ("A: command", "serve-bench micro --launches 3") in sheet.run.pairs
    assert sheet.where == "results/a and results/b"


def test_the_method_names_its_formulas_and_what_was_executed() -> None:
    sheet, _ = SHEETS["versus"]()
    method = [one for one in blocks(section(sheet, "method").blocks)]
    for known_word in ("Holm 1979", "Student 1908"):
        assert known_word in str(method)
    assert "slices of 50 ms a side in turn" in str(section(sheet, "how"))
    assert any(isinstance(one, Shown) and one.caption == "Plan and execution" for one in method)
    unpaired = section(SHEETS["compare"]()[0], "method")
    assert "Welch 1947" in str(unpaired) and "Student 1908" not in str(unpaired)


def test_a_run_of_which_nothing_was_measured_has_a_page() -> None:
    empty = versus_result({ROWS[2]: rates(500.0, 450.0, rounds=2)})
    empty = Result(empty.run, launches=empty.launches)
    sheet = versus_document(empty, None)
    assert charts(sheet, "ratios") == [] and "inconclusive" in as_lines(sheet.findings)[0]
