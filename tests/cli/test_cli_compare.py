import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.cli.gate import read_noise
from serve_bench.cli.options import GateOptions
from serve_bench.core.result import Result
from tests.cases import Call, Patch, cases, refusal
from tests.records import ROWS, store_run
from tests.versus_records import micro_result, micro_run, rates, versus_result

ROW = ROWS[2]
BEFORE, SLOWER = (500.0, 510.0, 490.0), (400.0, 404.0, 398.0)
TWINS = ("default (A)", "default (B)")
REGRESSED = ("--fail-on", "regressed")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Two runs of which the second is slower."""
    return (
        str(store_run(tmp_path / "a", micro_result({ROW: BEFORE}))),
        str(store_run(tmp_path / "b", micro_result({ROW: SLOWER}, "after"))),
    )


def test_a_verdict_fails_only_where_asked(folders: tuple[str, str], call: Call) -> None:
    out, err = call("compare", *folders)
    assert out.startswith("after is 19.9 % slower than before (") and err == ""
    assert [line.split()[1] for line in out.splitlines()[-2:]] == list(folders)
    _, err = call("compare", *folders, *REGRESSED, code=3)
    assert err.startswith("gate: regressed: 100 connections: 19.9 % slower")
    call("compare", *folders, *REGRESSED, "--threshold", "40%")
    call("compare", *reversed(folders), "--fail-on", "inconclusive")


def test_an_unreadable_run_left_out(folders: tuple[str, str], call: Call, tmp_path: Path) -> None:
    places = [tmp_path / f"all-{name}" for name in "ab"]
    for name, place in zip("ab", places, strict=True):
        (place / "x").mkdir(parents=True)
        (tmp_path / name).rename(place / name)
    (places[1] / "x" / "records.jsonl").write_text("no record\n")
    out, err = call("compare", *places)
    assert "19.9 % slower" in out and "not compared: " in err and "line 1 is not the" in err
    _, err = call("compare", places[0], places[0], code=2)
    assert "are the same runs: name two folders" in err


def test_a_page_is_written_with_the_figures_of_the_json(
    folders: tuple[str, str], call: Call, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, _ = call("compare", *folders, "--format", "json")
    ratio = json.loads(out)["comparisons"][0]["figures"]["b_over_a"]["value"]
    line = ("compare", *folders, "--format", "html", *REGRESSED)
    assert "wrote compare.html" in call(*line, code=3)[1]
    assert f'data-value="{ratio}"' in Path("compare.html").read_text()


def test_the_gate_takes_more_metrics(tmp_path: Path, call: Call) -> None:
    a = store_run(tmp_path / "a", micro_result({ROW: BEFORE}, cpu_percent=50.0))
    b = store_run(tmp_path / "b", micro_result({ROW: BEFORE}, "after", cpu_percent=99.0))
    call("compare", a, b, *REGRESSED)
    _, err = call("compare", a, b, *REGRESSED, "--gate", "p99,cpu", code=3)
    assert "gate: regressed: 100 connections: 98 % more CPU per request" in err


def test_the_noise_floor_of_a_run(folders: tuple[str, str], tmp_path: Path, call: Call) -> None:
    wild = versus_result({ROW: rates(500.0, 500.0, wobble=40.0)}, labels=TWINS)
    noise = store_run(tmp_path / "noise", wild)
    assert "Noise floor of run" in call("compare", *folders, *REGRESSED, "--noise", noise)[0]


def test_unlike_runs_are_refused_unless_forced(tmp_path: Path, call: Call) -> None:
    other = micro_result({ROW: SLOWER}, "after", versions={"ray": "2.49.1"})
    a, b = store_run(tmp_path / "a", micro_result({ROW: BEFORE})), store_run(tmp_path / "b", other)
    assert "unlike: Ray 2.60.0 against 2.49.1" in call("compare", a, b, code=2)[1]
    assert "! unlike runs, compared with --force: Ray 2.60.0" in call("compare", a, b, "--force")[0]


STATS = """Type,Name,Request Count,Failure Count,Requests/s,Failures/s,50%,99%
GET,/a,{n},0,{n},0.0,55,{p99}
,Aggregated,{n},0,{n},0.0,55,{p99}
,None,0,0,0,0,N/A,N/A
"""
COLUMNS = "Total Request Count,Total Failure Count,Total Median Response Time"
SECONDS = f"""Timestamp,Type,Name,Requests/s,Failures/s,50%,99%,{COLUMNS}
100,,Aggregated,0,0,N/A,N/A,0,0,0
102,,Aggregated,9,0,54,60,{{n}},0,55
"""


def rounds(mean: float, count: int = 400) -> str:
    stats = {"rounds": count, "mean": mean, "stddev": 0.1 * mean, "median": mean}
    about = {"node": "n", "cpu": {"brand_raw": "c", "count": 4}}
    found = {"machine_info": about, "benchmarks": [{"fullname": "t.py::sum", "stats": stats}]}
    return json.dumps(found)


@cases(
    "name, texts, rows, warned",
    ("a_stats.csv", [STATS.format(n=n, p99=n) for n in (250, 200)], 2, "p99 0.75 to 0.853"),
    ("a_stats.csv", [STATS.format(n=n, p99=210) for n in (50, 40)], 2, "1.07 (no difference show"),
    ("a_stats_history.csv", ["\ufeff" + SECONDS.format(n=n) for n in (100, 80)], 1, "p50 0.975"),
    ("a.json", [rounds(mean) for mean in (0.001, 0.00125)], 1, "throughput 0.789 to 0.811"),
    ("a.json", [rounds(mean, 2) for mean in (0.001, 0.00125)], 1, "throughput 0.225 to 2.85 (no"),
)
def test_files_of_other_tools_prove_nothing(
    name: str, texts: list[str], rows: int, warned: str, tmp_path: Path, call: Call
) -> None:
    files = [tmp_path / side / name for side in "ab"]
    for file, text in zip(files, texts, strict=True):
        file.parent.mkdir()
        file.write_text(text)
    found = json.loads(call("compare", *files, "--format", "json")[0])
    lines = [line for line in found["comparisons"] if line["dims"]["metric"] == "throughput"]
    assert [line["figures"]["b_over_a"]["value"] for line in lines] == [pytest.approx(0.8)] * rows
    assert {line["dims"]["verdict"] for line in lines} == {"inconclusive"}
    (text,) = [text for text in found["warnings"][-1:] if warned in text]
    assert ": one run a side is no evidence on others; within these files B/A is " in text
    files[1].write_text("x,y\n1,2")
    assert f"{files[1]}: holds no rows of " in call("compare", *files, code=2)[1]


def test_the_spread_of_a_single_round_is_unknown(tmp_path: Path, call: Call) -> None:
    for name, count in (("a", 400), ("b", 1)):
        (tmp_path / f"{name}.json").write_text(rounds(0.001, count))
    assert "within these files" not in call("compare", tmp_path / "a.json", tmp_path / "b.json")[0]


def test_runs_of_two_folders_are_paired_by_app_and_suite(tmp_path: Path, call: Call) -> None:
    """The ranker of B is slower; beside it lies in each folder what the other has no like of."""
    a, b = sides = tmp_path / "a", tmp_path / "b"
    for side, rates_, windows in ((a, BEFORE, 10), (b, SLOWER, 3)):
        suites: dict[str, dict[str, object]] = {app: {"app": app} for app in ("noop", "ranker")}
        suites |= {"odd": {"name": f"only {side.name}"}}
        suites |= {"short": {"app": "press", "windows": windows}}
        for name, suite in suites.items():
            found = {ROW: rates_ if name == "ranker" else BEFORE}
            store_run(side / name, micro_result(found, run=micro_run(side.name, **suite)))
    third = replace(micro_run("third", windows=4), started_at="2026-01-01T00:00:00+00:00")
    store_run(b / "third", micro_result({ROW: BEFORE}, run=third))
    out, err = call("compare", *sides)
    assert out.startswith("micro noop: b against a: ")
    assert "\nmicro ranker: b is 19.9 % slower than a (" in out
    assert err.splitlines() == [
        f"warning: not compared: {text}"
        for text in (
            f"{b}/short is unlike {a}/short (micro press): windows 10 against 3",
            f"{b}/third is unlike {a}/noop (micro noop): windows 10 against 4",
            f"micro noop, only a is in A alone ({a}/odd)",
            f"micro noop, only b is in B alone ({b}/odd)",
        )
    ]
    _, err = call("compare", *sides, *REGRESSED, code=3)
    assert "\ngate: micro ranker: regressed: 100 connections: 19.9 % slower (" in err
    assert err.count("gate: ") == 3 and f"\ngate: not judged: {b}/short is unlike" in err
    whole = json.loads(call("compare", *sides, "--format", "json")[0])
    assert len(whole["pairs"]) == 2 and len(whole["not_compared"]) == 4
    header, *lines = call("compare", *sides, "--format", "csv")[0].splitlines()
    assert header not in lines


def test_of_several_runs_that_are_alike_the_newest_are_compared(tmp_path: Path, call: Call) -> None:
    for at, found in enumerate((SLOWER, BEFORE)):
        made = replace(micro_run(f"a{at}"), started_at=f"2026-01-0{at + 1}T00:00:00+00:00")
        store_run(tmp_path / "a" / str(at), micro_result({ROW: found}, run=made))
    b = store_run(tmp_path / "b", micro_result({ROW: SLOWER}, "after"))
    out = " ".join(call("compare", tmp_path / "a", b)[0].split())
    assert out.startswith("micro noop: after is 19.9 % slower than a1 (")
    assert f"A: the newest of 2 runs ({tmp_path}/a/1)" in out


def test_a_threshold_is_a_share() -> None:
    shares = {"5%": 0.05, "0.05": 0.05, " 2.5 % ": 0.025, "90%": 0.9, "1e-3": 0.001}
    threshold = GateOptions.options()["threshold"]
    assert {text: threshold.read(text, "--threshold") for text in shares} == pytest.approx(shares)
    for text in ("5", "0%", "100%", "nan", "5%%"):
        said = refusal(threshold.read, text, "--threshold")
        assert said.startswith("--threshold: ") and "up to 90%, such as 5% or 0.05" in said


@cases(
    "result, message",
    (None, "no such folder"),
    (versus_result(), "is no A/A run; serve-bench versus --aa makes one"),
    (versus_result({ROW: rates(5.0, 5.0, 2)}, labels=TWINS), "fewer than 3 rounds"),
    (micro_result({ROW: (5.0,)}), "is a run of micro, not of versus --aa"),
)
def test_another_run_gives_no_floor(tmp_path: Path, result: Result | None, message: str) -> None:
    if result is not None:
        store_run(tmp_path / "run", result)
    said = refusal(read_noise, tmp_path / "run")
    assert said.startswith("--noise: ") and message in said and said.count("--noise") == 1
