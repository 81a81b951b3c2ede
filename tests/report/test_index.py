"""The index of stored runs, the newest run, and what a page shows first."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest

from serve_bench.cli.program import run
from serve_bench.core.histogram import Histogram
from serve_bench.core.record_lines import parse
from serve_bench.report.page import html_text
from tests import places
from tests.rendering import render
from tests.sheet_parts import page_sheet, tiles

NEWEST_FIRST = ("sweep", "micro-resumed", "press")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs in results/, and one whose records are damaged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    for name in NEWEST_FIRST:
        (tmp_path / "results" / name).mkdir(parents=True)
        shutil.copy(
            places.FORMATS / f"2-{name}.jsonl", tmp_path / "results" / name / "records.jsonl"
        )
    (tmp_path / "results" / "odd").mkdir()
    (tmp_path / "results" / "odd" / "records.jsonl").write_text("{}\n")
    return tmp_path / "results"


def test_the_runs_of_a_folder_are_listed_newest_first(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "results"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 runs in results; the newest: default serves at most 178.0 ")
    begun = [line.split()[3] for line in out.splitlines() if line.startswith("2026-")]
    assert begun == [*NEWEST_FIRST]
    assert "passed over: results/odd: " in out


def test_no_finding_is_said(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (places.FORMATS / "2-timeline.jsonl").read_text().replace('"course":', '"other":')
    (shelf / "press" / "records.jsonl").write_text(text)
    assert run(["report", "results"]) == 0
    assert "nothing was found" in capsys.readouterr().out


def test_without_a_path_the_newest_run_is_reported(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report"]) == 0
    assert "records: results/sweep\n" in capsys.readouterr().out
    shutil.rmtree(shelf)
    assert run(["report"]) == 2
    assert capsys.readouterr().err == "serve-bench: results: no such folder\n"


def test_the_schema_is_printed_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$defs"]["figures"]["patternProperties"][r"^throughput(\..+)?$"]["description"]


def test_the_index_is_a_page_too_and_no_data(
    shelf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shelf / "press", shelf / "again")  # a series needs two
    assert run(["report", "results", "--format", "html"]) == 0
    page = (shelf / "report.html").read_text()
    assert '<a href="press">press</a>' in page
    assert "The most requests/s of each suite, divided by those of its first run" in page
    assert run(["report", "results", "--format", "json"]) == 2
    assert "'json' is not for an index" in capsys.readouterr().err
    assert run(["report", "results", "--fail-on", "regressed"]) == 2
    assert "--fail-on: is for a run; results holds runs" in capsys.readouterr().err


def test_a_page_shows_verdict_tiles_chart_and_table_first() -> None:
    sheet = page_sheet(parse((places.FORMATS / "2-micro.jsonl").read_text().splitlines()))
    assert tiles(sheet) == ["4,552 ± 601", "39.3", "replica CPU"]
    page = html_text([sheet])
    order = [page.index(f'<section id="{name}"') for name in ("throughput", "results", "findings")]
    assert order == sorted(order) and page.index("tiles") < order[0]
    assert page.index('<section id="machine"') > page.index('<section id="method"')


def test_a_report_decodes_each_histogram_once() -> None:
    result = parse((places.FORMATS / "2-micro.jsonl").read_text().splitlines())
    stored = [metric for trial in result.trials for metric in trial.metrics.values()]
    with mock.patch.object(Histogram, "decode", side_effect=Histogram.decode) as decode:
        render(result)
    assert 0 < decode.call_count <= sum(metric.histogram is not None for metric in stored)
