"""`serve-bench history` from real folders; nothing is measured."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.cli.program import run
from serve_bench.core.result import Result
from tests.history_records import QUIET, night, nights, nine, store
from tests.records import ROWS

ROW = ROWS[2]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Nine nights in a folder."""
    return store(tmp_path / "results", nine())


def test_a_folder_of_runs_is_read_and_the_step_is_marked(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", str(results), "--verbose"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("1 step in 1 of 2 rows over 9 runs of micro: 100 connections: step,")
    marked = [line for line in out.splitlines() if re.search(r"step 0\.\d+ x", line)]
    assert len(marked) == 2 and marked[1].strip().startswith("2026-01-07 03:04")
    assert "changed at 2026-01-07 03:04: ray 2.60.0 -> 2.61.0" in out
    assert "runs 9 found, 9 in one history" in out


def test_runs_may_lie_deeper_or_be_named_one_by_one(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", str(tmp_path), "--format", "json"]) == 0
    deep = json.loads(capsys.readouterr().out)
    folders = sorted(map(str, results.iterdir()))
    file = f"{folders[0]}/records.jsonl"
    assert run(["history", *folders[1:], file, folders[2], "--format", "json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert deep["found"] == named["found"] == 9
    assert deep["groups"][0]["series"] == named["groups"][0]["series"]


def test_what_cannot_be_used_is_told_with_its_reason(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("broken", "hello\n"), ("empty", ""), ("no-run", None)):
        (results / name).mkdir()
        if text is not None:
            (results / name / "records.jsonl").write_text(text)
    store(results, [night(20, {ROW: [500.0]}, suite={"windows": 3})])
    assert run(["history", str(results)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "runs 12 found, 9 in one history" in out
    assert "broken: " in out and "line 1 is not the record of a run" in out
    assert "empty: " in out and "nothing was recorded" in out
    assert "n21: unlike " in out and "windows 10 against 3" in out
    assert "no-run" not in out


def test_a_gate_breaks_on_what_the_newest_run_brought(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [*QUIET[:6], *(1.4 * one for one in QUIET[6:9])]
    made = nights({ROW: rates})
    folder = tmp_path / "results"
    codes: dict[str, list[int]] = {"step": [], "regressed": []}
    for count in range(5, 10):
        store(folder, made[:count] if count == 5 else made[count - 1 : count])
        for fail_on, found in codes.items():
            found.append(run(["history", str(folder), "--fail-on", fail_on]))
    # Nothing, nothing, an outlier, the step it was the first of, known.
    assert codes == {"step": [0, 0, 3, 3, 0], "regressed": [0] * 5}
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("gate: 100 connections: outlier, improved: the last run, 2026-01-08")
    assert err[1].startswith("gate: 100 connections: step, improved: from 2026-01-08 03:04 on")


def test_hosts_are_kept_apart_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store(
        tmp_path, [night(0, {ROW: [500.0]}), night(1, {ROW: [500.0]}, host={"cpu": "Other CPU"})]
    )
    assert run(["history", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == (
        f"serve-bench: no two runs are alike: {folder}/n2 is unlike {folder}/n1: CPU Test CPU "
        "against Other CPU (--force sets hosts aside)\n"
    )
    assert run(["history", str(folder), "--force"]) == 0
    assert "CPU Test CPU -> Other CPU" in capsys.readouterr().out


def test_plots_are_drawn_and_drawn_anew(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vl_convert")
    svg, png = tmp_path / "h.svg", tmp_path / "h.png"
    for _ in range(2):
        assert run(["history", str(results), "--plot", str(svg)]) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"wrote {svg}"
    said = "\n".join(re.findall(r">([^<>]+)<", svg.read_text()))
    assert "step 0.85" in said and "over 9 runs" in said
    assert "100 connections (raw)" in said and "2026-01-02 03:04" in said
    assert run(["history", str(results), "--plot", str(png)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    assert run(["history", str(results), "--plot", str(png)]) == 0


@pytest.mark.parametrize("name", ["notes.svg", "notes.png"])
def test_a_plot_replaces_an_earlier_plot_alone(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    mine = tmp_path / name
    mine.write_text("my notes on serve-bench history")
    assert run(["history", str(results), "--plot", str(mine)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == (
        f"serve-bench: --plot: {mine} exists and is no plot of serve-bench history; "
        "nothing is overwritten\n"
    )
    assert mine.read_text() == "my notes on serve-bench history"


def test_report_and_plot_take_a_file_each(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, to = tmp_path / "z.svg", f"{results}/../z.svg"
    assert run(["history", str(results), "--plot", str(plot), "-o", to]) == 2
    assert capsys.readouterr().err == f"serve-bench: --output and --plot: both are {plot}\n"
    assert not plot.exists()


def test_a_dash_is_stdout(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["history", str(results), "-f", "csv"]) == 0
    text = capsys.readouterr().out
    assert run(["history", str(results), "-f", "csv", "-o", "-"]) == 0
    assert capsys.readouterr() == (text, "")
    assert [one.name for one in tmp_path.iterdir()] == ["results"]


def test_a_folder_that_cannot_be_read_is_told_and_breaks_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store(tmp_path / "results", nights({ROW: QUIET}))
    locked = folder / "locked"
    locked.mkdir()
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert run(["history", str(folder), "--fail-on", "step"]) == 3
    out, err = capsys.readouterr()
    told = f"{locked}: newer, and passed over: cannot be read: permission denied"
    assert f"gate: not judged: {told}\n" in err
    assert "locked: cannot be read: permission denied" in " ".join(out.split())


def test_a_report_goes_to_a_new_file_and_replaces_none(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "history.md"
    assert run(["history", str(results), "-f", "markdown", "-o", str(to)]) == 0
    assert to.read_text().startswith("**1 step in 1 of 2 rows over 9 runs of micro")
    capsys.readouterr()
    assert run(["history", str(results), "-f", "markdown", "-o", str(to)]) == 2
    assert "exists already; nothing is overwritten" in capsys.readouterr().err


def test_a_page_is_written_and_written_anew(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("vl_convert")
    to = tmp_path / "history.html"
    for _ in range(2):
        assert run(["history", str(results), "-f", "html", "-o", str(to)]) == 0
    page = to.read_text()
    assert page.startswith("<!doctype html>") and len(page) < 3_000_000
    assert "micro over 9 runs" in page and "ray 2.60.0 -&gt; 2.61.0" in page
    to.write_text("mine")
    assert run(["history", str(results), "-f", "html", "-o", str(to)]) == 2
    assert to.read_text() == "mine"
    monkeypatch.chdir(tmp_path / "results" / "n1")
    capsys.readouterr()
    assert run(["history", str(results), "-f", "html"]) == 0
    assert capsys.readouterr() == ("", "wrote history.html\n")


BAD = [
    ("history", "Missing argument 'DIR...'"),
    ("history nosuch", "nosuch: no such folder"),
    (
        "history . --metric p90",
        "--metric: 'p90' is not allowed; it takes throughput, p50, p99, cpu",
    ),
    ("history . --metric throughput,", "--metric: '' is not allowed; it takes throughput"),
    ("history . --threshold 5", "--threshold: '5' is not allowed; it takes a share"),
    ("history . --fail-on inconclusive", "--fail-on: 'inconclusive' is not allowed; it takes step"),
    ("history . --format classic", "--format: 'classic' is not allowed; it takes table, markdown"),
    ("history . --last 1", "--last: 1 is not allowed; it takes 2 or more"),
    ("history . --plot x.pdf", "--plot: x.pdf is not allowed; it takes a file that ends in .png"),
    ("history . --plot no/x.png", "--plot: no/x.png: cannot be written: no such file"),
    ("history . --output no/x.md", "--output: the folder of no/x.md does not exist"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    line: str, message: str, refuses: Callable[[str, str], None]
) -> None:
    refuses(line, message)


def test_where_no_run_is_found_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == (
        f"serve-bench: {tmp_path}: no run found (no records.jsonl in it or below)\n"
    )


def test_one_run_alone_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path, [night(0, {ROW: [500.0]})])
    assert run(["history", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"serve-bench: a history takes 2 runs: one run alone, {tmp_path}/n1\n"
    )


def test_a_link_around_the_folder_ends(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "around").symlink_to(results)
    assert run(["history", str(results)]) == 0
    assert "runs 9 found" in capsys.readouterr().out


def failed(result: Result, share: float) -> Result:
    """The same with so large a share of the requests failed."""
    trials = []
    for one in result.trials:
        ended = one.counts.completed
        lost = round(share * ended)
        counts = replace(one.counts, completed=ended - lost, failed={"status": lost})
        trials.append(replace(one, counts=counts))
    return replace(result, trials=tuple(trials))


@pytest.mark.parametrize("fail_on", ["step", "regressed"])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("all failed", "n9: newer, and passed over: no request succeeded: all "),
        ("half failed", "100 connections: the run of 2026-01-10 03:04: more than 1 % of its req"),
        ("a row less", "8 clients: the run of 2026-01-10 03:04: not measured, as it was in the"),
        ("empty", "n9: newer, and passed over: empty: no row was measured"),
        ("unlike", "n9: newer, and passed over: unlike "),
        ("unreadable", "n9: newer, and passed over: "),
    ],
)
def test_a_night_that_cannot_be_judged_breaks_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, told: str, fail_on: str
) -> None:
    made = nights({ROW: QUIET, ROWS[1]: QUIET})
    last = {
        "all failed": failed(made[-1], 1.0),
        "half failed": failed(made[-1], 0.5),
        "a row less": nights({ROW: QUIET, ROWS[1]: (*QUIET[:8], None)})[-1],
        "empty": replace(made[-1], trials=()),
        "unlike": night(8, {ROW: [500.0]}, host={"cpu": "Other CPU"}),
        "unreadable": made[-1],
    }
    folder = store(tmp_path / "results", [*made[:8], last[kind]])
    if kind == "unreadable":
        (folder / "n9" / "records.jsonl").write_text("no record\n")
    assert run(["history", str(folder)]) == 0
    assert run(["history", str(folder), "--fail-on", fail_on]) == 3
    captured = capsys.readouterr()
    gate = [line for line in captured.err.splitlines() if line.startswith("gate: not judged: ")]
    assert any(told in line for line in gate)
    assert "! not judged:" in captured.out


def test_a_night_that_could_not_be_judged_is_past_when_the_next_one_can(tmp_path: Path) -> None:
    made = nights({ROW: QUIET})
    folder = store(tmp_path / "results", [*made[:7], failed(made[7], 1.0), made[8]])
    assert run(["history", str(folder), "--fail-on", "step"]) == 0
