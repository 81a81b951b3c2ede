"""Cells of CSV and lines for a terminal: text stays text, numbers stay numbers."""

import csv
import io
import json
from dataclasses import replace

import pytest

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.history import build_history
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate
from serve_bench.cli.history import close_history, render_history
from serve_bench.cli.profile import process_lines
from serve_bench.cli.progress import failure_text
from serve_bench.core.result import Failure, result_of
from serve_bench.observing.processes import InUse, ServeProcess
from serve_bench.view.csv import csv_of
from tests import records
from tests.cases import cases
from tests.history_records import QUIET, in_folders, nights
from tests.rendering import render, render_comparing
from tests.versus_records import rates, versus_result

EVIL = '=HYPERLINK("http://x/")'


@cases(
    "value, cell",
    *((EVIL, f"'{EVIL}"), ("+cmd", "'+cmd"), ("-cmd|' /C'!A0", "'-cmd|' /C'!A0")),
    *(("@SUM(1)", "'@SUM(1)"), ("\t=1", "'\t=1"), ("-", "'-")),
    *((-3.2, "-3.2"), (-1, "-1"), ("-3.2", "-3.2"), ("+1e3", "+1e3"), ("3 - 4", "3 - 4")),
    *((None, ""), (True, "True"), ("a\x1b[2Jb\rc", "a\\u001b[2Jb\\u000dc")),
)
def test_a_cell_that_looks_like_a_formula_is_text(value: object, cell: str) -> None:
    read = list(csv.reader(io.StringIO(csv_of([EVIL], [{EVIL: value}]))))
    assert read == [[f"'{EVIL}"], [cell]]


@pytest.mark.parametrize("form", ["csv", "table", "markdown", "classic", "json"])
def test_no_form_of_a_run_holds_a_formula_or_raw_control_characters(form: str) -> None:
    name = EVIL + "\x1b[31m\x9b"
    trial = replace(records.trial(records.planned()), variant=name, key=f"{name}/r1/x/y")
    whole = result_of([records.run(), records.launch(name), trial])
    text = render(whole, form)
    assert not set(text) & {"\x1b", "\x9b", "\r", "\x07"}
    if form == "csv":
        rows = [row for row in csv.DictReader(io.StringIO(text)) if row["section"] == "results"]
        assert any(float(row["value"]) > 0 for row in rows if row["value"])
    if form == "json":
        assert repr(name)[1:-1] in repr(json.loads(text))


FALLEN = (*QUIET[:7], 0.7 * QUIET[7])
TURNED = replace(records.ROWS[2], label="x\x9b[2J\u202ey\u061c")


def unseen(text: str) -> set[str]:
    """List the control characters in it."""
    return set(text) & {"\x1b", "\x9b", "\u202e", "\u061c"}


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_no_form_of_several_runs_holds_raw_control_characters(form: str) -> None:
    comparing = of_versus(versus_result({TURNED: rates(500.0, 400.0)}))
    history = build_history(in_folders(nights({TURNED: FALLEN})))
    named = "otava" if form == "csv" else form
    for text in (render_comparing(comparing, form), render_history(history, named)):
        assert not unseen(text) and "x" in text
        if form == "json":
            assert repr(TURNED.label)[1:-1] in repr(json.loads(text))


def test_lines_beside_a_report_hold_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    Gate(fail_on="regressed").close(of_versus(versus_result({TURNED: rates(500.0, 400.0)})))
    close_history(build_history(in_folders(nights({TURNED: FALLEN}))), "regressed")
    print_note(f"warning: {TURNED.label}")
    err = capsys.readouterr().err
    assert not unseen(err) and err.count("x\\u009b[2J\\u202ey") >= 3
    process = ServeProcess(1, "replica", "title", "x\x1b", "app\x1b[2J", "\u202eD")
    out = "\n".join(process_lines([InUse(process, 0.0, 1_000_000)], 80))
    assert not unseen(out) and "app\\u001b[2J" in out and "\\u202eD" in out
    text = failure_text(Failure("trial", "\x1b[2J\x1b[H", "now", detail=("\x1b]0;x\x07",)))
    assert "\x1b" not in text and "\x07" not in text and "\\u001b[2J" in text
