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
    Section,
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


def test_a_run_of_which_nothing_was_measured_has_a_page() -> None:
    empty = versus_result({ROWS[2]: rates(500.0, 450.0, rounds=2)})
    empty = Result(empty.run, launches=empty.launches)
    sheet = versus_document(empty, None)
    assert charts(sheet, "ratios") == [] and "inconclusive" in as_lines(sheet.findings)[0]
