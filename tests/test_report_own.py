"""The report of a run over the user's own app."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_bench.benchmarks.parts.page import page_of
from serve_bench.cli.show import render
from serve_bench.core.app_spec import own_spec
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment
from serve_bench.core.result import PlannedTrial, Result, Row, Trial, result_of, trial_key
from tests.records import launch, run, trial
from tests.verdict_trials import IDLE, measured, process, usage

ROW = Row("100 connections", "raw", 100)
APP = own_spec(
    OwnApp(
        "shop.py:app",
        "shop:app",
        "/",
        (OwnDeployment("Ranker", 1), OwnDeployment("Shop", 1)),
        ("num_replicas",),
        Asked("/rank", "POST", (), b"[1, 2]"),
    )
)


def one(replicas: int, queries: int, *rates: float, variant: str = "default") -> Trial:
    cell = {"Ranker.num_replicas": replicas, "Ranker.max_ongoing_requests": queries}
    of = PlannedTrial(trial_key(variant, 1, cell, ROW.label), 1, variant, cell, ROW)
    latency = Histogram.of([1_000_000] * 99 + [9_000_000]).encode()
    return trial(of, *rates, latency=latency)


def result(*trials: Trial) -> Result:
    about = replace(run(), command="run", suite={"app": APP.to_json()})
    return result_of([about, launch(), *trials])


RESULT = result(one(1, 10, 100.0, 110.0), one(2, 10, 200.0, 200.0), one(2, 20, 195.0, 205.0))


def test_one_row_a_cell_and_the_best_is_named_first() -> None:
    lines = render(RESULT, "table", width=80).splitlines()
    assert lines[1] == "app: shop.py:app (Shop and Ranker), POST /rank with a body of 6 bytes"
    text = " ".join(" ".join(lines).split())
    assert "best: Ranker.num_replicas 2, Ranker.max_ongoing_requests 10: 200.0 ± 0.0" in text
    assert (
        "not clearly slower (within 5 % or two standard errors): Ranker.num_replicas 2, Ranker.max"
        in text
    )
    assert "--launches 3 tells how far launches differ" in text
    rows = [line.split() for line in lines if line.lstrip().startswith(("1 ", "2 "))]
    assert [row[:2] for row in rows] == [["1", "10"], ["2", "10"], ["2", "20"]]
    assert [row[2] for row in rows] == ["105.0", "200.0", "200.0"]
    assert rows[0][5:7] == ["1.00", "1.00"]


@pytest.mark.parametrize("width", [80, 60])
def test_it_fits_and_letters_are_told(width: int) -> None:
    lines = render(RESULT, "table", width=width).splitlines()
    assert max(map(len, lines)) <= width
    shown = " ".join(line.strip() for line in lines)
    assert "num_replicas: Ranker.num_replicas" in shown or "a: Ranker.num_replicas" in shown


def test_variants_have_a_column_where_there_are_several() -> None:
    two = result(one(1, 1, 100.0), one(1, 1, 900.0, variant="optimized"))
    text = render(two, "table", width=120)
    assert "variant  " in text and "variant optimized: 900.0 ± 0.0 requests/s" in text


@pytest.mark.parametrize("format", ["markdown", "json"])
def test_other_forms_name_the_best_too(format: str) -> None:
    assert "best: Ranker.num_replicas 2" in render(RESULT, format)


def test_csv_has_a_column_for_each_option() -> None:
    first, *rest = render(RESULT, "csv").splitlines()
    assert "Ranker.num_replicas,Ranker.max_ongoing_requests" in first
    assert len(rest) == 3


@pytest.mark.parametrize("format", ["table", "markdown", "csv"])
def test_where_nothing_was_completed_there_is_no_limit_but_the_status(format: str) -> None:
    usage = {"host": {"cores": 2, "cpu_percent": 20.0}, "processes": []}
    failed = replace(
        one(1, 10, 0.0, 0.0),
        counts=Counts(9, 0, {"status": 9}, 0),
        client={"status_codes": {"408": 9}},
        usage=usage,
    )
    (entry,) = page_of(result(failed)).entries
    assert entry.limited is None
    text = " ".join(render(result(failed), format, width=200).split())
    assert "9 of 9 requests failed: 9 with status 408" in text
    assert "unclear" not in text and "measure again" not in text


@pytest.mark.parametrize("command", ["run", "micro", "sweep"])
@pytest.mark.parametrize("color", [True, False])
def test_control_characters_in_names_are_written_out(command: str, color: bool) -> None:
    about = replace(RESULT.run, command=command, id="a\x1b[2Jb")
    text = render(replace(RESULT, run=about), "table", color=color)
    assert "run a\\u001b[2Jb" in text and "\x1b[2J" not in text


def test_the_front_is_that_of_the_application_which_is_loaded() -> None:
    """Two applications of a config file have an ingress of one name: `b` is loaded, and burns."""
    uses = [process(1, "proxy", 20, wait=1)]
    uses += [process(2, "replica", 2, wait=1, of="a:Ingress")]
    uses += [process(3, "replica", 97, wait=1, of="b:Ingress")]
    made = (OwnDeployment("Ingress", 1),)
    app = OwnApp("c.yaml: b", "b:app", "/", made, (), config={"name": "b"})
    about = replace(run(), command="run", suite={"app": own_spec(app).to_json()})
    at = replace(one(1, 10, 100.0), usage=usage(*uses, host=130), slots={"Ingress": 5})
    (entry,) = page_of(result_of([about, launch(), at])).entries
    assert entry.limited is not None
    assert entry.limited.figures == "Ingress: replica CPU 97 % of a core"


def test_a_cause_has_each_of_its_hints() -> None:
    """One row could have been looked into, of another the look failed."""
    blind, failed = measured(100, 1000, IDLE), measured(50, 700, IDLE)
    failed = replace(failed, waits={"why_not": "nobody answered"})
    notes = page_of(result_of([run(), launch(), blind, failed])).notes
    hints = [one for one in notes if one.startswith("hint, app wait: ")]
    assert len(hints) == 2 and "serve-bench run" in hints[0] and "failed here" in hints[1]
