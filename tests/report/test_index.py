"""The index of stored runs, the newest run, and what a page shows first."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.record_lines import parse
from tests import places
from tests.cases import Call, Patch
from tests.rendering import render

NEWEST_FIRST = ("sweep", "micro-resumed", "press")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Three runs in results/, and one whose records are damaged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    results = tmp_path / "results"
    for name in (*NEWEST_FIRST, "odd"):
        (results / name).mkdir(parents=True)
    for name in NEWEST_FIRST:
        shutil.copy(places.FORMATS / f"2-{name}.jsonl", results / name / "records.jsonl")
    (results / "odd" / "records.jsonl").write_text("{}\n")
    return results


def test_the_runs_of_a_folder_are_listed_newest_first(shelf: Path, call: Call) -> None:
    out, _ = call("report", "results")
    assert out.startswith("3 runs in results; the newest: default serves at most 178.0 ")
    begun = [line.split()[3] for line in out.splitlines() if line.startswith("2026-")]
    assert begun == [*NEWEST_FIRST]
    assert "passed over: results/odd: " in out
    assert "records: results/sweep\n" in call("report")[0]  # without a path the newest
    text = (places.FORMATS / "2-timeline.jsonl").read_text().replace('"course":', '"other":')
    (shelf / "press" / "records.jsonl").write_text(text)
    assert "nothing was found" in call("report", "results")[0]
    shutil.rmtree(shelf)
    assert call("report", code=2)[1] == "serve-bench: results: no such folder\n"


def test_the_schema_is_printed_and_nothing_else(call: Call) -> None:
    schema = json.loads(call("report", "--schema")[0])
    assert schema["$defs"]["figures"]["patternProperties"][r"^throughput(\..+)?$"]["description"]


def test_the_index_is_a_page_too_and_no_data(shelf: Path, call: Call) -> None:
    shutil.copytree(shelf / "press", shelf / "again")  # a series needs two
    call("report", "results", "--format", "html")
    page = (shelf / "report.html").read_text()
    assert '<a href="press">press</a>' in page
    assert "The most requests/s of each suite, divided by those of its first run" in page
    _, err = call("report", "results", "--format", "json", code=2)
    assert "'json' is not for an index" in err
    _, err = call("report", "results", "--fail-on", "regressed", code=2)
    assert "--fail-on: is for a run; results holds runs" in err


def test_a_report_decodes_each_histogram_once() -> None:
    result = parse((places.FORMATS / "2-micro.jsonl").read_text().splitlines())
    stored = [metric for trial in result.trials for metric in trial.metrics.values()]
    with mock.patch.object(Histogram, "decode", side_effect=Histogram.decode) as decode:
        render(result)
    assert 0 < decode.call_count <= sum(metric.histogram is not None for metric in stored)
