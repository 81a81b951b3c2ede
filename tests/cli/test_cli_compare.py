"""`serve-bench compare` from stored folders; nothing is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.cli.gate import GateOptions, read_flags, read_noise, read_share
from serve_bench.cli.program import run
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from tests.records import ROWS, store_run
from tests.versus_records import micro_result, micro_run, rates, versus_result

ROW = ROWS[2]
BEFORE, SLOWER = (500.0, 510.0, 490.0), (400.0, 404.0, 398.0)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Two runs of which the second is slower."""
    return (
        str(store_run(tmp_path / "a", micro_result({ROW: BEFORE}))),
        str(store_run(tmp_path / "b", micro_result({ROW: SLOWER}, "after"))),
    )


def test_a_verdict_is_printed_and_fails_only_where_asked(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *folders]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("after is 19.9 % slower than before (") and err == ""
    assert [line.split()[1] for line in out.splitlines()[-2:]] == list(folders)
    assert run(["compare", *folders, "--fail-on", "regressed"]) == 3
    assert capsys.readouterr().err.startswith("gate: regressed: 100 connections: 19.9 % slower")
    assert run(["compare", *folders, "--fail-on", "regressed", "--threshold", "40%"]) == 0
    assert run(["compare", *reversed(folders), "--fail-on", "inconclusive"]) == 0


def test_a_run_that_cannot_be_read_ends_no_comparison_of_others(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"all-{name}" / "x").mkdir(parents=True)
        (tmp_path / name).rename(tmp_path / f"all-{name}" / name)
    (tmp_path / "all-b" / "x" / "records.jsonl").write_text("no record\n")
    every = [str(tmp_path / f"all-{name}") for name in ("a", "b")]
    assert run(["compare", *every]) == 0
    out, err = capsys.readouterr()
    assert "19.9 % slower" in out and "not compared: " in err and "line 1 is not the" in err
    assert run(["compare", every[0], every[0]]) == 2
    assert "are the same runs: name two folders" in capsys.readouterr().err


def test_a_page_is_written_with_the_figures_of_the_json(
    folders: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *folders, "--format", "json"]) == 0
    ratio = json.loads(capsys.readouterr().out)["comparisons"][0]["figures"]["b_over_a"]["value"]
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
    a = store_run(tmp_path / "a", micro_result({ROW: BEFORE}, cpu_percent=50.0))
    b = store_run(tmp_path / "b", micro_result({ROW: BEFORE}, "after", cpu_percent=99.0))
    line = ["compare", str(a), str(b), "--fail-on", "regressed"]
    assert run(line) == 0
    assert run([*line, "--gate", "p99,cpu"]) == 3
    assert "gate: regressed: 100 connections: 98 % more CPU per request" in capsys.readouterr().err


def test_the_noise_floor_is_taken_from_a_run(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = versus_result({ROW: rates(500.0, 500.0, wobble=40.0)}, labels=TWINS)
    noise = str(store_run(tmp_path / "noise", wild))
    assert run(["compare", *folders, "--fail-on", "regressed", "--noise", noise]) == 0
    assert "Noise floor of run" in capsys.readouterr().out


def test_unlike_runs_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = micro_result({ROW: SLOWER}, "after", versions={"ray": "2.49.1"})
    other = replace(other, run=replace(other.run, host={**other.run.host, "cpu": "Other CPU"}))
    a, b = store_run(tmp_path / "a", micro_result({ROW: BEFORE})), store_run(tmp_path / "b", other)
    assert run(["compare", str(a), str(b)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "unlike: CPU Test CPU against Other CPU; Ray 2.60.0 against 2.49.1" in err
    assert run(["compare", str(a), str(b), "--force"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "! unlike runs, compared with --force: CPU Test CPU against Other CPU" in out
    assert "3 launches a side; unlike runs, compared by force" in out


def two_folders(folder: Path, rates: dict[str, tuple[float, ...]]) -> tuple[str, str]:
    """A folder with a run of each app, and a later one where they have these rates; beside them a
    run of each folder that the other has no like of."""
    for side, by_app in (("a", dict.fromkeys(rates, BEFORE)), ("b", rates)):
        suites: dict[str, dict[str, object]] = {app: {"app": app} for app in rates}
        suites["odd"] = {"name": f"only {side}"}
        suites["short"] = {"app": "press", "windows": 10 if side == "a" else 3}
        for name, suite in suites.items():
            result = micro_result({ROW: by_app.get(name, BEFORE)}, run=micro_run(side, **suite))
            store_run(folder / side / name, result)
    third = replace(micro_run("third", windows=4), started_at="2026-01-01T00:00:00+00:00")
    store_run(folder / "b" / "third", micro_result({ROW: BEFORE}, run=third))
    return str(folder / "a"), str(folder / "b")


def test_runs_of_two_folders_are_paired_by_app_and_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = two_folders(tmp_path, {"noop": BEFORE, "ranker": SLOWER})
    assert run(["compare", *sides]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("micro noop: b against a: ")
    assert "\nmicro ranker: b is 19.9 % slower than a (" in out
    assert err.splitlines() == [
        f"warning: not compared: {sides[1]}/short is unlike {sides[0]}/short (micro press): "
        "windows 10 against 3",
        f"warning: not compared: {sides[1]}/third is unlike {sides[0]}/noop (micro noop): windows "
        "10 against 4",
        f"warning: not compared: micro noop, only a is in A alone ({sides[0]}/odd)",
        f"warning: not compared: micro noop, only b is in B alone ({sides[1]}/odd)",
    ]
    assert run(["compare", *sides, "--fail-on", "regressed"]) == 3
    err = capsys.readouterr().err
    assert "\ngate: micro ranker: regressed: 100 connections: 19.9 % slower (" in err
    assert err.count("gate: ") == 3 and f"\ngate: not judged: {sides[1]}/short is unlike" in err
    assert run(["compare", *sides, "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert len(whole["pairs"]) == 2 and len(whole["not_compared"]) == 4
    assert run(["compare", *sides, "--format", "csv"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header not in lines


def test_of_several_runs_that_are_alike_the_newest_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at, found in enumerate((SLOWER, BEFORE)):
        started = f"2026-01-0{at + 1}T00:00:00+00:00"
        made = replace(micro_run(f"a{at}"), started_at=started)
        store_run(tmp_path / "a" / str(at), micro_result({ROW: found}, run=made))
    b = store_run(tmp_path / "b", micro_result({ROW: SLOWER}, "after"))
    assert run(["compare", str(tmp_path / "a"), str(b)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("micro noop: after is 19.9 % slower than a1 (")
    assert f"A: the newest of 2 runs ({tmp_path}/a/1)" in out


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
    good = store_run(tmp_path / "good", micro_result({ROW: BEFORE}))
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
    whole = str(store_run(tmp_path / "versus", versus_result()))
    assert run(["compare", whole, folders[1]]) == 2
    assert f"{whole}: is a run of versus, a comparison by itself" in capsys.readouterr().err
    assert run(["report", whole]) == 0
    assert capsys.readouterr().out.startswith("optimized is 11.8 times as fast as default (")


TWINS = ("default (A)", "default (B)")


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), ("90%", 0.9), ("1e-3", 0.001)],
)
def test_a_threshold_is_a_share(text: str, share: float) -> None:
    assert read_share(text, "--threshold") == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0", "0%", "-5%", "100%", "nan", "inf", "", "%", "5%%", "x"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--threshold: .* it takes a share such as 5% or 0.05"):
        read_share(text, "--threshold")


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("p99", ("throughput", "p99")),
        ("cpu, p50", ("throughput", "p50", "cpu")),
        ("throughput", ("throughput",)),
        ("p99,p99", ("throughput", "p99")),
    ],
)
def test_throughput_is_always_in_the_gate(text: str, metrics: tuple[str, ...]) -> None:
    assert read_flags(GateOptions(gate=text)).metrics == metrics


def test_the_floor_is_read_from_an_a_a_run(tmp_path: Path) -> None:
    result = versus_result({ROWS[2]: rates(500.0, 500.0)}, labels=TWINS)
    assert read_noise(store_run(tmp_path, result)).aa
    assert read_flags(GateOptions(threshold="1%", noise=tmp_path)).noise is not None


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "no such folder"),
        (versus_result(), "is no A/A run; serve-bench versus --aa makes one"),
        (versus_result({ROWS[2]: rates(5.0, 5.0, 2)}, labels=TWINS), "fewer than 3 rounds"),
        (micro_result({ROWS[2]: (5.0,)}), "is a run of micro, not of versus --aa"),
    ],
)
def test_another_run_gives_no_floor(tmp_path: Path, result: Result | None, message: str) -> None:
    folder = tmp_path / "run"
    if result is not None:
        store_run(folder, result)
    with pytest.raises(BadInput) as refused:
        read_noise(folder)
    assert str(refused.value).startswith("--noise: ") and message in str(refused.value)
    assert str(refused.value).count("--noise") == 1
