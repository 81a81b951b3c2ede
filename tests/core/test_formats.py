"""Real runs, tests/formats/*.jsonl, which README.md there describes, are read and reported.

Nothing breaks, and no line is wider than the terminal; which figures are right is for the tests of
each report.
"""

import csv
import functools
import io
import json
import re
from dataclasses import replace
from typing import Any, Final

import pytest
from rich.cells import cell_len

from serve_bench.analysis.comparing import of_runs
from serve_bench.analysis.history import build_history
from serve_bench.benchmarks.registry import run_schema
from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.benchmarks.scale.spec import stored_scale
from serve_bench.benchmarks.tax.spec import TaxSpec
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.cli.history import render_history
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite
from serve_bench.core.record_lines import from_json, to_line
from serve_bench.core.result import FORMAT_VERSION, Record, Result
from serve_bench.report import COMPARED
from serve_bench.report.page import html_text
from serve_bench.store import read
from tests import places
from tests.cases import cases, refusal
from tests.rendering import render, render_comparing
from tests.sheet_parts import make_sheet

FOLDER: Final = places.FORMATS
FILES: Final = sorted(file.stem for file in FOLDER.glob("*.jsonl"))

#: What reading a file warns of, and should.
PASSED_OVER: Final = {"2-recsys-cut-off": ["cut-off"]}

#: Every kind of run that records are kept of: `scale` by its workload.
KINDS: Final = {
    *("micro", "noop", "recsys", "press", "sweep", "rpc", "versus", "run", "load"),
    *("capacity", "tax", "trace", "timeline", "soak"),
    *(f"scale {workload}" for workload in ("single", "multi", "ensemble", "chain", "curve")),
}
#: What reads the suite of a stored run, where it is not Suite.
SUITES: Final[dict[str, Any]] = {
    **{"rpc": RpcSpec.stored, "scale": stored_scale, "versus": VersusSpec.stored},
    "tax": TaxSpec.stored,
}

MOST_BYTES: Final = 3_000_000

#: Where the records lie, as it is shown.
WHERE: Final = "/srv/bench/results/20260102T030405Z"


@functools.cache
def stored(name: str) -> Result:
    return read(FOLDER / f"{name}.jsonl")


def kind_of(name: str) -> str:
    run = stored(name).run
    return f"scale {run.suite['workload']}" if run.command == "scale" else run.command


def files_of(*commands: str) -> list[str]:
    return [name for name in FILES if stored(name).run.command in commands]


def one_of_each() -> list[str]:
    """List a file of every kind, the oldest, for what costs more than to look at it."""
    return list({kind_of(name): name for name in reversed(FILES) if stored(name).trials}.values())


def too_wide(text: str, width: int, result: Result) -> list[str]:
    """List lines too long; a place or address alone, and rpc's published form, may be so."""
    whole = {f"records: {WHERE}", *(str(trial.cell.get("url", "")) for trial in result.trials)}
    return [line for line in text.splitlines() if cell_len(line) > width and line not in whole]


def test_there_is_a_file_of_every_kind() -> None:
    assert {kind_of(name) for name in FILES} == KINDS
    # Each is told of, and small.
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in FILES if f"`{name}.jsonl`" not in readme] == []
    assert sorted(re.findall(r"`([^`]*)\.jsonl`", readme)) == FILES
    assert max((FOLDER / f"{name}.jsonl").stat().st_size for name in FILES) < 66 * 1024


@pytest.mark.parametrize("name", FILES)
def test_it_is_read_whole_and_every_request_is_accounted_for(name: str) -> None:
    result = stored(name)
    assert result.run.format == FORMAT_VERSION
    assert [warning.code for warning in result.warnings] == PASSED_OVER.get(name, [])
    suite = result.run.suite
    if suite.get("ladder") is suite.get("capacity") is None:  # these go on beyond their plan
        planned = {trial.key for trial in result.run.plan}
        assert {trial.key for trial in (*result.trials, *result.profiled)} <= planned
    for trial in (*result.trials, *result.profiled):
        counts = trial.counts
        begun = counts.carried_in + counts.sent
        assert begun == counts.completed + counts.failed_total + counts.in_flight, trial.key
        latency = trial.metrics.get("latency")
        if latency is not None and latency.histogram is not None:
            assert sum(latency.histogram["count"]) == counts.completed, trial.key
    records: list[Record] = [result.run, *result.resumes, *result.launches, *result.deploys]
    for record in (*records, *result.trials, *result.failures, *result.teardowns):
        line = to_line(record)
        assert line.startswith('{"kind":') and line.count("\n") == 1
        assert from_json(json.loads(line)) == record


@pytest.mark.parametrize("name", files_of("micro", "noop", "recsys", "press", "sweep", *SUITES))
def test_a_suite_comes_back_from_its_record(name: str) -> None:
    suite = stored(name).run.suite
    if suite.get("urls") is not None:
        return  # runs of --url cannot be resumed
    again = SUITES.get(stored(name).run.command, Suite.from_json)(suite).to_json()
    assert {"load_on": None, **suite} == {"load_on": None, **again}


@pytest.mark.parametrize("name", FILES)
def test_the_table_fits_and_the_json_keeps_to_its_schema(name: str) -> None:
    """That both have their figures, and the classic form, is held by tests/corpus."""
    result = stored(name)
    assert too_wide(render(result, where=WHERE, width=80), 80, result) == []
    assert result.run.id in render(result, where=WHERE, width=80, verbose=True)
    page = json.loads(render(result, "json"), parse_constant=pytest.fail)
    assert list(schema_errors()(page)) == []


@functools.cache
def schema_errors() -> Any:
    return pytest.importorskip("jsonschema").Draft202012Validator(run_schema()).iter_errors


@pytest.mark.parametrize("name", FILES)
def test_csv_has_the_figures_of_the_json_in_the_units_of_their_columns(name: str) -> None:
    names, *rows = csv.reader(io.StringIO(render(stored(name), "csv")))
    assert {len(row) for row in rows} == {len(names)}
    lines = [dict(zip(names, row, strict=True)) for row in rows]
    figures = [(float(line["value"]), line["text"]) for line in lines if line["value"]]
    for value, text in figures:
        shown = re.match(r"'?(?:> )?([-+]?[\d,]*\d(?:\.\d+)?)", text)
        if shown is not None:
            digits = shown[1].replace(",", "")
            half = 10.0 ** -len(digits.partition(".")[2]) if "." in digits else 1.0
            assert float(digits) == pytest.approx(value, rel=0.02, abs=half), text


@pytest.mark.parametrize("name", FILES)
def test_the_page_is_made(name: str) -> None:
    result = stored(name)
    text = html_text([make_sheet(result, WHERE, True)])
    assert text.rstrip().endswith("</html>") and result.run.id in text
    assert "NaN" not in text and len(text) < MOST_BYTES / 3


def nights(result: Result, count: int = 2) -> dict[str, Result]:
    days = {f"n{day}": f"2026-01-0{day}T03:04:05" for day in range(1, count + 1)}
    return {
        f"results/{name}": replace(result, run=replace(result.run, id=name, started_at=begun))
        for name, begun in days.items()
    }


@pytest.mark.parametrize("name", one_of_each())
def test_a_history_of_it_has_no_change_and_fits(name: str) -> None:
    result = stored(name)
    if {trial.key for trial in result.trials} <= result.broken:
        with pytest.raises(BadInput, match="every row of it broke: node host2: it has not answ"):
            build_history(nights(result))
        return
    history = build_history(nights(result, 5), metrics=("throughput", "p99"))
    assert too_wide(render_history(history), 80, result) == []
    (group,) = history.groups
    assert {line.judged.word for _, line in group.comparison.pairs} <= {"same", "inconclusive"}
    for form in ("json", "otava-config", "bencher"):
        json.loads(render_history(history, form), parse_constant=pytest.fail)
    columns = json.loads(render_history(history, "otava-config"))["tests"]["serve-bench"]["metrics"]
    try:
        table = render_history(history, "otava")
    except BadInput as error:
        assert "no run has a value of every row" in str(error)
        return
    head, *rows = csv.reader(io.StringIO(table))
    assert set(columns) < set(head) and len(rows) == 5
    assert all(float(row[head.index(name)]) > 0 for row in rows for name in columns)


@cases("name", *one_of_each(), "2-press-launches")
def test_a_run_compared_with_itself_is_not_another(name: str) -> None:
    result = stored(name)
    if result.run.two_sided:
        assert "a comparison by itself" in refusal(of_runs, result, result)
        return
    other = replace(result, run=replace(result.run, id="later"))
    comparing = of_runs(result, other)
    ratios = [line.ratio for _, line in comparing.pairs if line.ratio is not None]
    assert ratios == pytest.approx([1.0] * len(ratios))
    assert not {"regressed", "improved"} & {line.judged.word for _, line in comparing.pairs}
    assert too_wide(render_comparing(comparing, "table", ("a", "b")), 80, result) == []
    for form in COMPARED:
        assert render_comparing(comparing, form)


SGR: Final = re.compile(r"\x1b\[(\d+)m")


@pytest.mark.parametrize("name", files_of("micro", "noop", "rpc", "run"))
def test_colour_adds_nothing_but_colour(name: str) -> None:
    result = stored(name)
    assert SGR.sub("", render(result, color=True)) == render(result)


def test_a_stored_suite_that_cannot_be_planned_is_refused_with_its_field() -> None:
    micro = read(FOLDER / "2-micro-failures.jsonl").run.suite
    with pytest.raises(BadInput, match=r"suite\.cells\[0\]\.num_replicas is missing"):
        Suite.from_json({**micro, "cells": [{}]})
    rpc = read(FOLDER / "2-rpc.jsonl").run.suite
    assert "backend[0]: invalid enum" in refusal(RpcSpec.stored, {**rpc, "backend": ["nope"]})
