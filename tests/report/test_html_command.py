"""`report --format html`: where a page is written, what it never replaces, other forms."""

import json
import os
import shutil
from pathlib import Path

import pytest

from serve_bench.cli.program import run
from serve_bench.store import read
from serve_bench.view.document import Document, Flamegraph, Section
from serve_bench.view.lens import RunLook
from tests.html_sample import STUB, sheet
from tests.report.test_html_frame import GOLDEN, STACKS, Read


@pytest.fixture
def stub_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of any command that hold the run's id and a flamegraph: what is about the file."""

    def filled(run: RunLook) -> Document:
        result, options = run.result, run.options
        within = Flamegraph("replica", "profiles/replica.raw.txt", "words")
        beyond = Flamegraph("beyond", "../beyond.raw.txt", "words")
        return sheet(
            title=f"run {result.run.id}",
            sections=(Section("profiles", "Profiles", (within, beyond)),),
            where=options.where,
        )

    monkeypatch.setattr("serve_bench.view.lens.RunLook.document", property(filled))
    monkeypatch.setattr("serve_bench.report.page.bundle", lambda: STUB)


def stored(place: Path, lines: bytes | None = None) -> Path:
    (place / "profiles").mkdir(parents=True)
    (place / "records.jsonl").write_bytes(lines or GOLDEN.read_bytes())
    (place / "profiles" / "replica.raw.txt").write_bytes(STACKS)
    return place


@pytest.mark.usefixtures("stub_sheets")
def test_a_page_is_written_into_the_folder_of_its_run_and_replaces_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = stored(tmp_path / "a run")
    before = sorted(file.name for file in home.iterdir())
    assert run(["report", str(home), "--format", "html"]) == 0
    captured = capsys.readouterr()
    to = home / "report.html"
    assert captured.out == "" and captured.err.startswith(f"wrote {to} (")
    assert sorted(file.name for file in home.iterdir()) == [*before, "report.html"]
    to.write_text(to.read_text().replace("<main", "<!--of yesterday--><main"))
    assert run(["report", str(home / "records.jsonl"), "--format", "html"]) == 0
    assert "of yesterday" not in to.read_text()
    assert (home / "records.jsonl").read_bytes() == GOLDEN.read_bytes()


@pytest.mark.usefixtures("stub_sheets")
def test_records_are_linked_from_where_the_page_is_and_nothing_beyond_a_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_bench.report.page.MOST_RECORDS", 0)
    (tmp_path / "beyond.raw.txt").write_bytes(STACKS)
    monkeypatch.chdir(tmp_path)
    stored(Path("results/a 1#"))
    stored(Path("b"))
    assert run(["report", "results/a 1#", "b", "--format", "html"]) == 0
    read_page = Read(Path("report.html").read_text())
    assert read_page.all("a", href="results/a%201%23/records.jsonl")
    assert read_page.all("a", href="b/records.jsonl")
    assert len(read_page.all("svg")) == 2 and "../beyond.raw.txt is not in" in read_page.text
    Path("out").mkdir()
    assert run(["report", "b", "--format", "html", "-o", "out/x.html"]) == 0
    assert Read(Path("out/x.html").read_text()).all("a", href="../b/records.jsonl")


@pytest.mark.usefixtures("stub_sheets")
def test_nothing_but_a_page_of_ours_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = stored(tmp_path / "r")
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><p>mine")
    (home / "report.html").write_text("mine too")
    for words in ([], ["-o", str(other)], ["-o", str(home / "records.jsonl")]):
        assert run(["report", str(home), "-f", "html", *words]) == 2
        said = capsys.readouterr().err
        assert "exists and is no page of serve-bench; nothing is overwritten" in said
        assert said.count("\n") == 1
    assert other.read_text() == "<!doctype html><p>mine"
    assert (home / "report.html").read_text() == "mine too"
    assert (home / "records.jsonl").read_bytes() == GOLDEN.read_bytes()


@pytest.mark.usefixtures("stub_sheets")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "."], "--output: . is a folder; it takes a file"),
        (["-o", "none/x.html"], "none/x.html: cannot be written: no such file or directory"),
        (["-o", "/proc/x.html"], "/proc/x.html: cannot be written: "),
        (["--exclude-connect"], "--exclude-connect: is not for --format html"),
    ],
)
def test_where_no_page_can_be_written_one_line_says_so(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(stored(tmp_path / "r"))
    assert run(["report", ".", "-f", "html", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert not Path("report.html").exists()


@pytest.mark.usefixtures("stub_sheets")
def test_a_full_disk_leaves_the_earlier_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = stored(tmp_path / "r")
    assert run(["report", str(home), "-f", "html"]) == 0
    before = (home / "report.html").read_bytes()
    kept = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        kept(path, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    capsys.readouterr()
    assert run(["report", str(home), "-f", "html"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("report.html: cannot be written: no space left on device\n")
    assert (home / "report.html").read_bytes() == before
    assert sorted(os.listdir(home)) == ["profiles", "records.jsonl", "report.html"]


@pytest.fixture
def two_runs(tmp_path: Path) -> list[str]:
    """Two folders: the second run has another id."""
    first, second = stored(tmp_path / "one"), stored(tmp_path / "two")
    text = GOLDEN.read_text().replace('"id":"20260102-golden"', '"id":"second"', 1)
    (second / "records.jsonl").write_text(text)
    assert read(second).run.id != read(first).run.id
    return [str(first), str(second)]


def test_two_runs_stand_side_by_side(
    two_runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *two_runs, "-f", "csv"]) == 2
    assert "--format csv: takes at most 1; there are 2 runs" in capsys.readouterr().err
    assert run(["report", *two_runs]) == 0
    text = capsys.readouterr().out
    assert text.startswith("B has 1.00 times the requests/s of A, in the 11 rows that both have.")
    assert run(["report", *two_runs, "-f", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "| throughput A requests/s | throughput B requests/s | B/A |" in text
    assert sum(line.count(" 1.00 |") == 3 for line in text.splitlines()) == 11
    assert "| A errors; B errors |" in text and "- A errors: 3 of 7,445 requests failed" in text


def test_a_report_in_words_goes_to_a_new_file_alone(
    two_runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "report.md"
    assert run(["report", two_runs[0], "-f", "markdown"]) == 0
    text = capsys.readouterr().out
    assert run(["report", two_runs[0], "-f", "markdown", "-o", str(to)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, to.read_text()) == ("", text) and f"wrote {to}" in captured.err
    assert run(["report", two_runs[0], "-o", str(to)]) == 2
    assert "exists already; nothing is overwritten" in capsys.readouterr().err
    assert to.read_text() == text
    assert run(["report", two_runs[0], "-f", "markdown", "-o", "-"]) == 0
    assert capsys.readouterr().out == text


def test_report_and_perf_metrics_take_a_file_each(
    two_runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "same.txt"
    page = Path(two_runs[0]) / "report.html"
    for file, words in ((to, ["-o", str(to)]), (page, ["-f", "html"])):
        assert run(["report", two_runs[0], "--perf-metrics", str(file), *words]) == 2
        said = capsys.readouterr().err
        assert said == f"serve-bench: --output and --perf-metrics: both are {file}\n"
        assert not file.exists()


def test_perf_metrics_are_written_whole_or_not_at_all(
    two_runs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(path: Path, *data: object, **more: object) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    folder = tmp_path / "out"
    folder.mkdir()
    words = ["report", two_runs[0], "--perf-metrics", str(folder / "t.pm")]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        patched.setattr(Path, "write_text", full)
        assert run(words) == 1
    assert capsys.readouterr().err.endswith("t.pm: cannot be written: no space left on device\n")
    assert list(folder.iterdir()) == []
    assert run(words) == 0
    assert "perf_metrics" in json.loads((folder / "t.pm").read_text())


@pytest.mark.usefixtures("stub_sheets")
def test_a_page_whose_folder_is_elsewhere_needs_nothing_of_it(tmp_path: Path) -> None:
    home = stored(tmp_path / "r")
    to = tmp_path / "x.html"
    assert run(["report", str(home), "-f", "html", "-o", str(to)]) == 0
    shutil.rmtree(home)
    read_page = Read(to.read_text())
    assert json.loads(read_page.scripts["records.jsonl-text"].splitlines()[0])["kind"] == "run"
    assert len(read_page.all("svg")) == 1
