"""The SLO of a run in every form of its report, for every kind of run that may have one."""

import json
from dataclasses import replace
from typing import Final

import pytest

from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.core.errors import BadInput
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result, result_of
from serve_bench.report.page import html_text
from serve_bench.view.slo import judged_rows, reasons, slo_of
from tests.records import ROWS, cell, planned, run, stored, trial
from tests.rendering import render
from tests.sheet_parts import make_sheet

SLO: Final = "p50=20ms,errors=0.1%,goodput=90%@50ms"

NAMES: Final = (
    *("load-open", "load-profiled", "micro", "micro-failures", "noop", "run-options", "sweep"),
    *("sweep-url", "recsys-url-errors", "press-url-collapse", "scale-single", "scale-ensemble"),
    *("scale-curve", "scale-lost-node"),
)


def judged_run(name: str, slo: str | None = SLO) -> Result:
    result = stored(name)
    suite = {**result.run.suite, **({} if slo is None else {"slo": slo})}
    return replace(result, run=replace(result.run, suite=suite))


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_verdict_and_published_forms_and_runs_without_an_slo_none(
    name: str,
) -> None:
    plain, given = judged_run(name, None), judged_run(name)
    rows = judged_rows(given)
    assert rows and {row.word for row in rows} <= {"met", "missed", "not judged"}
    data = json.loads(render(given, "json"))["rows"]
    judged = [row["slo"]["verdict"] for row in data if row["dims"]["status"] != "profiled"]
    assert sorted(judged) == sorted(row.word for row in rows)
    assert not any("slo" in row for row in data if row["dims"]["status"] == "profiled")
    if plain.run.command == "micro":
        assert render(given, "classic") == render(plain, "classic")
    assert perf_metrics(given) == perf_metrics(plain)
    assert judged_rows(plain) == () and slo_of(plain.run) is None
    assert '"slo": {' not in render(plain, "json") and "Service level" not in render(plain)
    assert ",slo," not in render(plain, "csv")


def test_every_form_has_the_verdicts() -> None:
    result = judged_run("micro")
    table = render(result, verbose=True)
    part = table[table.index("Service level objectives\n") :].split("\n\n")[0]
    assert part.count("missed") == sum(row.word == "missed" for row in judged_rows(result))
    assert "| row | p50 &lt;= 20 ms" in render(result, "markdown")
    assert ",slo," in render(result, "csv")
    page = html_text([make_sheet(result)])
    assert page.count('<section id="slo"') == 1 and "slo: p50 &lt;= 20 ms" in page


def micro(slo: str, *p50_ms: float) -> Result:
    """Rows of one cell with 200 requests each, all of the same latency; of 0 ms: not measured."""
    plan = [planned(row=row) for row in ROWS[: len(p50_ms)]]
    trials = [
        trial(at, 200.0, latency=Histogram.of([round(ms * 1e6)] * 200).encode())
        for at, ms in zip(plan, p50_ms, strict=True)
        if ms
    ]
    first = replace(run(*plan), suite={"slo": slo})
    return result_of([first, *trials])


def test_a_row_that_was_not_measured_is_not_judged() -> None:
    rows = judged_rows(micro("p99=50ms", 10.0, 0.0))
    assert [(row.name, row.word) for row in rows] == [
        ("single client", "met"),
        ("8 clients", "not judged"),
    ]
    assert reasons(rows, "not judged") == "8 clients: not measured"
    assert reasons(rows, "missed") == ""


def test_the_name_of_a_row_tells_it_from_all_others() -> None:
    plan = [
        planned(variant, row, of=cell(replicas=replicas))
        for variant in ("default", "optimized")
        for replicas in (1, 8)
        for row in ROWS[:2]
    ]
    result = result_of([replace(run(*plan), suite={"slo": "mean=1s"}), trial(plan[0])])
    names = [row.name for row in judged_rows(result)]
    assert names[0] == "single client, replicas 1, default" and len(set(names)) == len(plan)


def test_an_slo_that_a_hand_has_changed_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"^suite\.slo: 'p99' is not allowed"):
        render(micro("p99", 10.0))
