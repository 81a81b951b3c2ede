"""`report --format html`: where a page is written, what it never replaces, other forms."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import places
from tests.cases import cases
from tests.fixtures import Call, Patch
from tests.report.test_html_frame import GOLDEN, STACKS, Read

PROFILED = places.FORMATS / "2-micro-profiled.jsonl"
GRAPHS = re.findall(r'"path":"(profiles/[^"]+)"', PROFILED.read_text())


def stored(place: Path) -> Path:
    """The folder of a run with profiles."""
    for path in GRAPHS:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(STACKS)
    shutil.copy(PROFILED, place / "records.jsonl")
    return place


def test_a_page_is_written_into_the_folder_of_its_run_and_replaces_an_earlier_one(
    tmp_path: Path, call: Call
) -> None:
    home = stored(tmp_path / "a run")
    before = sorted(file.name for file in home.iterdir())
    (out, err), to = call("report", home, "--format", "html"), home / "report.html"
    assert out == "" and err.startswith(f"wrote {to} (")
    assert sorted(file.name for file in home.iterdir()) == [*before, "report.html"]
    to.write_text(to.read_text().replace("<main", "<!--of yesterday--><main"))
    call("report", home / "records.jsonl", "--format", "html")
    assert "of yesterday" not in to.read_text()
    assert (home / "records.jsonl").read_bytes() == PROFILED.read_bytes()


def test_a_page_of_several_runs_has_the_flamegraphs_of_each_and_no_large_records(
    tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    monkeypatch.setattr("serve_bench.report.page.MOST_RECORDS", 0)
    monkeypatch.chdir(tmp_path)
    stored(Path("a 1#"))
    stored(Path("b"))
    call("report", "a 1#", "b", "--format", "html")
    read_page = Read(page := Path("report.html").read_text())
    assert read_page.text.count("they are too large for this page") == 2
    assert len(read_page.all("svg", **{"class": "flame"})) == 2 * len(GRAPHS) > 2
    assert "onerror=alert(1)>" not in page and "<img src=x" in read_page.text


@cases(
    "words, said",
    ("", "exists and is no page of serve-bench; nothing is overwritten"),
    ("-o other.html", "exists and is no page of serve-bench; nothing is overwritten"),
    ("-o records.jsonl", "exists and is no page of serve-bench; nothing is overwritten"),
    ("-o .", "--output: . is a folder; it takes a file"),
    ("-o none/x.html", "none/x.html: cannot be written: no such file or directory"),
    ("-o /proc/x.html", "/proc/x.html: cannot be written: "),
    ("--exclude-connect", "--exclude-connect: is not for --format html"),
)
def test_where_no_page_can_be_written_one_line_says_so_and_no_other_file_is_replaced(
    words: str, said: str, tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    home = stored(tmp_path / "r")
    monkeypatch.chdir(home)
    for name in ("report.html", "other.html"):
        (home / name).write_text("<!doctype html><p>mine")
    before = contents(home)
    _, err = call("report", ".", "-f", "html", *words.split(), code=2)
    assert said in err and err.count("\n") == 1
    assert contents(home) == before


def contents(home: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in home.iterdir() if file.is_file()}


def test_a_full_disk_leaves_the_earlier_page_and_no_part_of_a_file(
    tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    home = stored(tmp_path / "r")
    monkeypatch.chdir(home)
    call("report", ".", "-f", "html")
    before, kept = contents(home), Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        kept(path, data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        for code, words in ((2, ["-f", "html"]), (1, ["--perf-metrics", "t.pm"])):
            _, said = call("report", ".", *words, code=code)
            assert said.endswith(": cannot be written: no space left on device\n")
            assert contents(home) == before
    call("report", ".", "--perf-metrics", "t.pm")
    assert "perf_metrics" in json.loads((home / "t.pm").read_text())


@pytest.fixture
def two_runs(tmp_path: Path) -> list[str]:
    """Two folders: the second run has another id."""
    for name in ("20260102-golden", "second"):
        (tmp_path / name).mkdir()
        text = GOLDEN.read_text().replace('"id":"20260102-golden"', f'"id":"{name}"', 1)
        (tmp_path / name / "records.jsonl").write_text(text)
    return [str(tmp_path / "20260102-golden"), str(tmp_path / "second")]


def test_two_runs_stand_side_by_side(two_runs: list[str], call: Call) -> None:
    _, err = call("report", *two_runs, "-f", "csv", code=2)
    assert "--format csv: takes at most 1; there are 2 runs" in err
    text, _ = call("report", *two_runs)
    assert text.startswith("second against 20260102-golden: inconclusive in 12 of 12 rows, ")
    text, _ = call("report", *two_runs, "-f", "markdown")
    assert "| errors (A and B) |" in text
    assert "- A and B: errors: 3 requests failed (0.04 %)" in text
    same = [two_runs[0], two_runs[0]]
    assert "are the same run: --variant-a" in call("report", *same, code=2)[1]
    call("report", *same, "-f", "html", "-o", f"{two_runs[0]}/both.html")  # each by itself


def test_a_report_in_words_goes_to_a_new_file_alone(
    two_runs: list[str], tmp_path: Path, call: Call
) -> None:
    to, page = tmp_path / "report.md", f"{two_runs[0]}/report.html"
    words = ("report", two_runs[0], "-f", "markdown", "-o")
    text, _ = call(*words[:-1])
    out, err = call(*words, to)
    assert (out, to.read_text()) == ("", text) and f"wrote {to}" in err
    for flags, said in (
        (["-o", to], f"--output: {to} exists already; nothing is overwritten"),
        (["-o", "x", "--perf-metrics", "x"], "--output and --perf-metrics: both are x"),
        (["-f", "html", "--perf-metrics", page], f"--output and --perf-metrics: both are {page}"),
    ):
        assert call("report", two_runs[0], *flags, code=2)[1] == f"serve-bench: {said}\n"
    assert to.read_text() == text == call(*words, "-")[0]
