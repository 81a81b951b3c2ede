"""The document of a comparison: its findings, tables and charts."""

from __future__ import annotations

import json

import pytest

from serve_bench.analysis.comparing import of_versus
from serve_bench.benchmarks.versus.document import comparison_document
from serve_bench.cli.show import render_comparing
from serve_bench.core.result import Result
from serve_bench.report.vega import vega
from tests.kinds.versus.test_report_versus import aa, stored, versus
from tests.records import ROWS
from tests.sheet_parts import as_lines, charts, section, versus_document
from tests.versus_records import rates, versus_result

MADE = {
    "versus": lambda: (versus_document(versus(), "results/x"), of_versus(versus())),
    "aa": lambda: (versus_document(aa(), None), of_versus(aa())),
    "compare": lambda: (comparison_document(stored(), ("results/a", "results/b")), stored()),
}


@pytest.mark.parametrize("kind", MADE)
def test_all_intervals_stand_on_one_axis(kind: str) -> None:
    sheet, comparing = MADE[kind]()
    (chart, *_) = charts(sheet)
    told = json.loads(render_comparing(comparing, "json"))
    lines = [line for row in told["rows"] for line in row["metrics"].values() if line["interval"]]
    expected = [
        (line["ratio"], line["interval"]["low"], line["interval"]["high"], line["verdict"])
        for line in lines
    ]
    drawn = vega(chart)["data"]["values"]
    assert [(one["ratio"], one["low"], one["high"], one["word"]) for one in drawn] == expected


def test_a_run_of_which_nothing_was_measured_has_a_page() -> None:
    empty = versus_result({ROWS[2]: rates(500.0, 450.0, rounds=2)})
    empty = Result(empty.run, launches=empty.launches)
    sheet = versus_document(empty, None)
    assert section(sheet, "ratios") is None or not charts(sheet)
    assert "inconclusive" in as_lines(sheet.findings)[0]
