import csv
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.load_result import Counts
from serve_bench.core.result import Metric, Result
from tests.cases import Call, Patch, cases
from tests.history_records import QUIET, night, nights, nine, store
from tests.records import ROWS

ROW = ROWS[2]
NAME = "default/bs1-ongoing10000-rep8/100 connections (raw)"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return store(tmp_path / "results", nine())


def test_runs_may_lie_deeper_or_be_named(results: Path, tmp_path: Path, call: Call) -> None:
    (results / "around").symlink_to(results)  # it ends
    deep = json.loads(call("history", tmp_path, "--format", "json")[0])
    (results / "around").unlink()
    first, *others = sorted(results.iterdir())
    file = first / "records.jsonl"
    named = json.loads(call("history", *others, file, others[1], "--format", "json")[0])
    assert deep["found"] == named["found"] == 9
    assert deep["groups"][0]["rows"] == named["groups"][0]["rows"]


def test_what_cannot_be_used_is_told_with_its_reason(results: Path, call: Call) -> None:
    for name, text in (("broken", "hello\n"), ("empty", ""), ("no-run", None)):
        (results / name).mkdir()
        if text is not None:
            (results / name / "records.jsonl").write_text(text)
    store(results, [night(20, {ROW: [500.0]}, suite={"windows": 3})])
    hurt = min(results.glob("n*/records.jsonl"))
    hurt.write_text(f"{hurt.read_text()}cut")
    text, error = call("history", results, "--verbose")
    out = " ".join(text.split())
    assert f"{hurt.parent}: line " in error and ", the last, is cut off: read up to it\n" in error
    assert "runs 12 found, 9 in this history" in out
    assert "broken: " in out and "line 1 is not the record of a run" in out
    assert "empty: " in out and "nothing was recorded" in out
    assert out.count("n21: ") == 1 and "n21: newer, and passed over: unlike " in out
    assert "windows 10 against 3" in out and "no-run" not in out


@cases("newest, codes", (0.85, [3, 3, 3]), (0.965, [0, 3, 3]), (1.2, [0, 0, 0]), (1.0, [0, 0, 0]))
def test_the_words_of_a_gate(tmp_path: Path, call: Call, newest: float, codes: list[int]) -> None:
    made = nights({ROW: [500.0, 501.0, 499.0, 500.5, 499.5, newest * 500.0]})
    folder, word = store(tmp_path / "results", made), "regressed" if newest < 0.95 else "slower"
    for fail_on, code in zip(("regressed", "slower", "inconclusive"), codes, strict=True):
        _, err = call("history", folder, "--fail-on", fail_on, code=code)
        assert (f"gate: micro noop: {word}: 100 connec" in err) is (code == 3)


@cases("fallen", "noop", "ranker", None)
def test_the_gate_is_over_all_apps(tmp_path: Path, call: Call, fallen: str | None) -> None:
    words = {app: "regressed" if app == fallen else "same" for app in ("noop", "ranker")}
    for app in words:
        last = 400.0 if app == fallen else 500.0
        made = nights({ROW: [500.0, 501.0, 499.0, 500.5, 499.5, last]}, suite={"app": app})
        store(tmp_path / app, made)
    out, err = call("history", tmp_path, "--fail-on", "regressed", code=3 if fallen else 0)
    said = "; ".join(f"micro {app}: {word}" for app, word in words.items())
    assert " ".join(out.split()).startswith(f"2 histories: {said}. micro noop: n6")
    assert err.startswith(f"gate: micro {fallen}: regressed: 100 connections") is bool(fallen)


def test_otava_finds_the_columns_of_its_config(results: Path, tmp_path: Path, call: Call) -> None:
    """As otava/importer.py: a float in each cell of a metric, a time with its zone, a header."""
    flags = ("--metric", "throughput,p99", "--format")
    config = json.loads(call("history", results, *flags, "otava-config")[0])
    (test,) = config["tests"].values()
    assert list(config["tests"]) == ["serve-bench"]
    assert (test["type"], test["file"], test["time_column"]) == ("csv", "history.csv", "time")
    rows = list(csv.DictReader(io.StringIO(call("history", results, *flags, "otava")[0])))
    assert len(rows) == 9 and rows[0]["time"] == "2026-01-02T03:04:05+00:00"
    assert {*test["attributes"], "time", *test["metrics"]} == {*rows[0]}
    assert [rows[at]["ray"] for at in (0, 8)] == ["2.60.0", "2.61.0"]
    for name, metric in test["metrics"].items():
        assert metric["column"] == name
        assert metric["direction"] == (1 if name.endswith("/throughput") else -1)
        assert all(float(row[name]) > 0 for row in rows)
    assert float(rows[5][f"{NAME}/throughput"]) == pytest.approx(431.8)
    runs = nights({ROWS[0]: QUIET, ROW: [*QUIET[:3], None, *QUIET[4:]]})
    out, _ = call("history", store(tmp_path / "gap", runs), "--format", "otava")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["run"] for row in rows] == [f"n{at}" for at in (1, 2, 3, 5, 6, 7, 8, 9)]


def test_bencher_reads_the_newest_run(results: Path, call: Call) -> None:
    """The JSON schema of BMF: objects of objects, `value` required, all three numbers."""
    flags = ("--format", "bencher", "--metric", "throughput,p99")
    found = json.loads(call("history", results, *flags)[0])
    assert len(found) == 2 and all(0 < len(name) <= 1024 for name in found)
    for measures in found.values():
        assert list(measures) == ["throughput", "p99"]
        for values in measures.values():
            assert "value" in values and {*values} <= {"value", "lower_value", "upper_value"}
            assert all(type(value) is float for value in values.values())
    assert found[NAME]["throughput"] == {"value": pytest.approx(422.45)}  # of one launch
    split = found["default/bs1-ongoing10000-rep8/single client (aiohttp)"]["throughput"]
    assert split["lower_value"] < split["value"] < split["upper_value"]


def test_github_action_benchmark_reads_the_newest_run(results: Path, call: Call) -> None:
    """src/extract.ts, BenchmarkResult: name, value, unit; range and extra are strings."""
    line = ("history", results, "--format", "github-action-benchmark")
    found = json.loads(call(*line)[0])
    kinds = {"name": str, "unit": str, "value": float, "range": str, "extra": str}
    first = "default/bs1-ongoing10000-rep8/single client (aiohttp)"
    assert [entry["name"] for entry in found] == [f"{first}/throughput", f"{NAME}/throughput"]
    for entry in found:
        assert {"name", "unit", "value"} <= {*entry} <= {*kinds} and entry["unit"] == "requests/s"
        assert all(type(value) is kinds[name] for name, value in entry.items())
    assert found[0]["range"].startswith("± ") and "range" not in found[1]
    assert found[1]["extra"] == "run n9, launches 1, ray 2.61.0"
    _, err = call(*line, "--metric", "throughput,p99", code=2)  # it takes one direction
    assert "here: throughput higher, p99 lower: choose by --metric" in err


def test_other_tools_take_one_history(results: Path, call: Call) -> None:
    store(results, [night(20 + at, {ROW: [500.0]}, suite={"windows": 3}) for at in range(2)])
    for form in ("otava", "otava-config", "bencher", "github-action-benchmark"):
        out, err = call("history", results, "--format", form, code=2)
        assert "--format: the runs are 2 histories (micro noop; micro noop, windows 3)" in err
        assert out == ""


def test_a_plot_and_a_report_replace_no_file(results: Path, tmp_path: Path, call: Call) -> None:
    svg, png, to = (tmp_path / name for name in ("h.svg", "h.png", "history.md"))
    line = ("history", results)
    _, err = call(*line, "--plot", svg, "-o", f"{results}/../h.svg", code=2)
    assert err == f"serve-bench: --output and --plot: both are {svg}\n"
    call(*line, "--plot", svg)
    said = "\n".join(re.findall(r">([^<>]+)<", svg.read_text()))
    assert "over 9 runs" in said and "100 connections, raw" in said and "2026-01-02 03:04" in said
    for flags in (["--plot", png], ["-f", "markdown", "-o", to]):
        call(*line, *flags)
        _, err = call(*line, *flags, code=2)
        assert "exists already; nothing is overwritten" in err
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    assert to.read_text().startswith("**micro noop: n9 against the 8 runs before: ")


def test_an_unreadable_folder_breaks_a_gate(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    folder = store(tmp_path / "results", nights({ROW: QUIET}))
    locked = folder / "locked"
    locked.mkdir()
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    out, err = call("history", folder, "--fail-on", "regressed", code=3)
    said = f"{locked}: newer, and passed over: {locked}: cannot be read: permission denied"
    assert f"gate: not judged: {said}\n" in err and "newer, and passed" in out


def failed(result: Result, share: float) -> Result:
    """Repeat it with so large a share of the requests failed."""
    trials = []
    for trial in result.trials:
        done = trial.counts.completed if share < 1 else 0
        lost = round(share / (1 - share) * done) if done else trial.counts.completed
        counts = Counts(done + lost, done, {"status": lost}, 0)
        metrics = trial.metrics if done else {"throughput": Metric("requests/s", "higher", (0.0,))}
        trials.append(replace(trial, counts=counts, metrics=metrics))
    return replace(result, trials=tuple(trials))


LATE = "not judged: {folder}/n9: newer, and passed over: "


@cases(
    "kind, why",
    ("all failed", f"{LATE}no request succeeded"),
    ("half failed", "micro noop: regressed: 100 connections: 50 % of B's requests failed, 0 %"),
    ("a row less", "not judged: micro noop: 8 clients (aiohttp) of default, bs1-ongoing10000"),
    ("empty", f"{LATE}empty: no row was measured"),
    ("unlike", f"{LATE}unlike "),
    ("unreadable", LATE),
)
def test_an_unjudged_night_breaks_a_gate(tmp_path: Path, call: Call, kind: str, why: str) -> None:
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
    call("history", folder)
    out, err = call("history", folder, "--fail-on", "regressed", code=3)
    assert f"gate: {why.format(folder=folder)}" in err
    assert ("! not judged:" in out) is (kind != "half failed")


def test_an_unjudged_night_is_past_with_the_next(tmp_path: Path, call: Call) -> None:
    made = nights({ROW: QUIET})
    folder = store(tmp_path / "results", [*made[:7], failed(made[7], 1.0), made[8]])
    call("history", folder, "--fail-on", "regressed")


def test_files_of_perf_metrics_are_runs_in_the_order_given(tmp_path: Path, call: Call) -> None:
    metric, files = {"perf_metric_name": "puts", "perf_metric_type": "THROUGHPUT"}, list[Path]()
    for name, rate in zip(("2.8", "2.9", "2.10", "2.11", "2.12"), (*QUIET[:4], 300.0), strict=True):
        files.append(tmp_path / name / "microbenchmark.json")
        files[-1].parent.mkdir()
        found = {"perf_metrics": [{**metric, "perf_metric_value": rate}]}
        files[-1].write_text(json.dumps(found))
    whole = json.loads(call("history", *files, "--format", "json")[0])
    (group,) = whole["groups"]
    assert [tmp_path / row["name"] for row in group["rows"]] == files
    huge = json.dumps({"perf_metrics": [{**metric, "perf_metric_value": 10**400}]})
    for text in ("[]", "{}", '{"perf_metrics": [{}]}', "puts", "[" * 200_000, huge):
        files[0].write_text(text)
        _, err = call("history", files[0], code=2)
        assert "no rows of perf_metrics of Ray; it takes a run" in err and err.count("\n") == 1
