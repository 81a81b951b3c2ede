"""`serve-bench compare` from stored folders; nothing is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.cli.program import run
from tests.cli.test_gate_flags import TWINS, stored
from tests.records import ROWS
from tests.versus_records import micro_result, rates, versus_result

ROW = ROWS[2]
BEFORE, SLOWER = (500.0, 510.0, 490.0), (400.0, 404.0, 398.0)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Two runs of which the second is slower."""
    return (
        str(stored(tmp_path / "a", micro_result({ROW: BEFORE}))),
        str(stored(tmp_path / "b", micro_result({ROW: SLOWER}, "after"))),
    )


def test_a_verdict_is_printed_and_fails_only_where_asked(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *folders]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("after against before: regressed, throughput 0.801 x") and err == ""
    assert out.splitlines()[-2:] == [f"records: {folder}" for folder in folders]
    assert run(["compare", *folders, "--fail-on", "regressed"]) == 3
    assert capsys.readouterr().err.startswith("gate: regressed: 100 connections: throughput 0.801")
    assert run(["compare", *folders, "--fail-on", "regressed", "--threshold", "40%"]) == 0
    assert run(["compare", *reversed(folders), "--fail-on", "inconclusive"]) == 0


def test_a_page_is_written_with_the_figures_of_the_json(
    folders: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *folders, "--format", "json"]) == 0
    ratio = json.loads(capsys.readouterr().out)["rows"][0]["metrics"]["throughput"]["ratio"]
    line = ["compare", *folders, "--format", "html", "--fail-on", "regressed"]
    assert run(line) == 3 == run([*line, "-o", "other.html"])
    assert "wrote compare.html" in capsys.readouterr().err
    page = (tmp_path / "compare.html").read_text()
    assert f'data-value="{ratio}"' in page and page == (tmp_path / "other.html").read_text()
    (tmp_path / "mine.txt").write_text("mine")
    assert run([*line, "-o", "mine.txt"]) == 2 and (tmp_path / "mine.txt").read_text() == "mine"
    assert run(["compare", *folders, "-o", "x.html"]) == 2
    assert "--output: goes with --format html" in capsys.readouterr().err


def test_the_gate_takes_more_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = stored(tmp_path / "a", micro_result({ROW: BEFORE}, cpu_percent=50.0))
    b = stored(tmp_path / "b", micro_result({ROW: BEFORE}, "after", cpu_percent=99.0))
    line = ["compare", str(a), str(b), "--fail-on", "regressed"]
    assert run(line) == 0
    assert run([*line, "--gate", "p99,cpu"]) == 3
    assert "gate: regressed: 100 connections: cpu 1.980 x" in capsys.readouterr().err


def test_the_noise_floor_is_taken_from_a_run(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = versus_result({ROW: rates(500.0, 500.0, wobble=40.0)}, labels=TWINS)
    noise = str(stored(tmp_path / "noise", wild))
    assert run(["compare", *folders, "--fail-on", "regressed", "--noise", noise]) == 0
    assert "noise floor of run" in capsys.readouterr().out


def test_unlike_runs_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = micro_result({ROW: SLOWER}, "after", versions={"ray": "2.49.1"})
    other = replace(other, run=replace(other.run, host={**other.run.host, "cpu": "Other CPU"}))
    a, b = stored(tmp_path / "a", micro_result({ROW: BEFORE})), stored(tmp_path / "b", other)
    assert run(["compare", str(a), str(b)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "unlike: CPU Test CPU against Other CPU; Ray 2.60.0 against 2.49.1" in err
    assert run(["compare", str(a), str(b), "--force"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "! unlike runs, compared with --force: CPU Test CPU against Other CPU" in out
    assert "3 launches a side; unlike runs, compared by force" in out


def test_a_cut_off_last_line_is_read_up_to_and_said(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(folders[1]) / "records.jsonl"
    text = file.read_text()
    file.write_text(text[: len(text) - 200])
    assert run(["compare", *folders]) == 0
    out, err = capsys.readouterr()
    assert "warning: B: line 7, the last, is cut off: read up to it" in err
    assert "inconclusive" in out and "3 and 2 launches" in " ".join(out.split())
    assert "B: cut-off: line 7" in " ".join(out.split())


def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = stored(tmp_path / "good", micro_result({ROW: BEFORE}))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "records.jsonl").write_text("hello\n")
    for line in ([good, bad], [bad, good]):
        assert run(["compare", *map(str, line)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert err.startswith(f"serve-bench: {bad}") and "line 1 is not the record" in err


def test_a_run_of_versus_is_pointed_to_its_report(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = str(stored(tmp_path / "versus", versus_result()))
    assert run(["compare", whole, folders[1]]) == 2
    assert f"{whole}: is a run of versus, a comparison by itself" in capsys.readouterr().err
    assert run(["report", whole]) == 0
    assert capsys.readouterr().out.startswith("optimized against default: improved")
