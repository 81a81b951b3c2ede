"""The page itself: what it escapes, its order, what it embeds, where it is written."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from serve_bench.report.page import MOST_RECORDS, Folder, folder_of, html_text
from serve_bench.view import document
from tests import places
from tests.cases import Call, Patch, cases
from tests.html_sample import EVIL, sheet

GOLDEN = places.GOLDEN / "records.jsonl"
STACKS = b"main (app.py:1);a<img src=x onerror=alert(1)> (x.py:1) 3\nmain (app.py:1) 1\n"


class Read(HTMLParser):
    """A page as a browser reads it: elements with their attributes, texts, scripts by their id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag in ("script", "style"):
            self._within = given.get("id", f"script {len(self.scripts)}")

    def handle_endtag(self, tag: str) -> None:
        self._within = "" if tag in ("script", "style") else self._within

    def handle_data(self, data: str) -> None:
        if self._within:
            self.scripts[self._within] = self.scripts.get(self._within, "") + data
        else:
            self.texts.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [
            about
            for name, about in self.tags
            if name == tag and all(about.get(key) == value for key, value in wanted.items())
        ]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


FOLDER = Folder(
    *(b'{"name":"</script>"}\n', 20), {"profiles/replica.raw.txt": "<svg class='flame'></svg>"}
)
"""Of a run with records and a flamegraph."""


def page(*sheets_: document.Document, folders: tuple[Folder, ...] = (FOLDER,)) -> str:
    return html_text(sheets_ or (sheet(),), folders)


def test_names_are_text_wherever_they_stand() -> None:
    plain, evil = Read(page(sheet("x" * len(EVIL)))), Read(page(sheet(EVIL)))
    # Not one element more or less, none of their attributes but those that hold the name.
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in plain.tags]
    assert [sorted(about) for _, about in evil.tags] == [sorted(about) for _, about in plain.tags]
    assert not any(name.startswith("on") for _, about in evil.tags for name in about)
    said = EVIL.replace("\u2028", " ")
    assert evil.text.replace("\u2028", " ").count(said) >= 12
    # It turns no figure beside it, and half a pair of surrogates breaks no page.
    text = Read(page(sheet("a\u202eb\x1bc \ud800 d"))).text
    assert not {"\u202e", "\x1b"} & {*text}
    assert r"a\u202eb" in text and r"c \ud800 d" in text


def test_only_the_script_of_the_page_may_run_and_none_may_ask_the_network() -> None:
    whole = page()
    read_page = Read(whole)
    (policy,) = read_page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.strip().split(" ", 1) for rule in policy["content"].split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "img-src" not in rules and "unsafe" not in rules["script-src"]
    (running,) = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(running.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    outside = [about[key] for _, about in read_page.tags for key in ("src", "href") if key in about]
    assert outside and all(url.startswith("#") for url in outside)


def test_figures_carry_their_value_as_json_writes_it() -> None:
    values = (1234.5678901234567, 0.1 + 0.2, 1e-09, 3, None, float("nan"))
    cells = (document.Number(f"{value:.1f}" if value else "-", value) for value in values)
    rows = tuple(document.TableRow((document.Text("a"), cell)) for cell in cells)
    columns = document.Column("row", number=False), document.Column("x", "1/s")
    table = document.Table("t", columns, rows)
    read_page = Read(page(sheet(sections=(document.Section("s", "S", (table,)),))))
    shown = [about["data-value"] for about in read_page.all("td", **{"class": "number"})]
    assert shown == ["1234.5678901234567", "0.30000000000000004", "1e-09", "3", "null", "null"]
    assert shown[0] == json.dumps(values[0])


def test_stacks_that_are_none_or_of_another_folder_are_said_to_be_missing(tmp_path: Path) -> None:
    home = tmp_path / "r"
    home.mkdir()
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    (home / "none.raw.txt").write_bytes(b"no stacks")
    (tmp_path / "out.raw.txt").write_bytes(STACKS)
    beyond = ("../out.raw.txt", "../ring/a", "/")
    for stacks in ("none.raw.txt", *beyond, "gone", "a\0b", "x" * 5000):
        graph = document.Folded("more", (document.Flamegraph("replica", stacks),))
        made = sheet(sections=(document.Section("profiles", "Profiles", (graph,)),))
        read_page = Read(page(made, folders=(folder_of(home, made, "records.jsonl"),)))
        assert not read_page.all("svg", **{"class": "flame"})
        assert "is not in the folder of the run" in read_page.text


def test_records_that_are_too_large_are_left_out_with_their_size(tmp_path: Path) -> None:
    made = sheet(sections=())
    for size, embedded in ((MOST_RECORDS - 1, True), (MOST_RECORDS, False)):
        (tmp_path / "records.jsonl").write_bytes(b"x" * size)
        kept = folder_of(tmp_path, made, "records.jsonl")
        read_page = Read(page(made, folders=(kept,)))
        assert bool(read_page.all("script", type="application/x-ndjson")) == embedded
        assert ("too large for this page" in read_page.text) != embedded
        assert "2.0 MB" in read_page.text


PROFILED = places.FORMATS / "2-micro-profiled.jsonl"
GRAPHS = re.findall(r'"path":"(profiles/[^"]+)"', PROFILED.read_text())


def stored(place: Path) -> Path:
    """Write the folder of a run with profiles."""
    for path in GRAPHS:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(STACKS)
    shutil.copy(PROFILED, place / "records.jsonl")
    return place


def test_a_page_replaces_an_earlier_one_of_its_run(tmp_path: Path, call: Call) -> None:
    home = stored(tmp_path / "a run")
    before = sorted(file.name for file in home.iterdir())
    (out, err), to = call("report", home, "--format", "html"), home / "report.html"
    assert out == "" and err.startswith(f"wrote {to} (")
    assert sorted(file.name for file in home.iterdir()) == [*before, "report.html"]
    to.write_text(to.read_text().replace("<main", "<!--of yesterday--><main"))
    call("report", home / "records.jsonl", "--format", "html")
    assert "of yesterday" not in to.read_text()
    assert (home / "records.jsonl").read_bytes() == PROFILED.read_bytes()


def test_a_page_of_several_runs(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
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


def test_a_full_disk_leaves_an_earlier_page(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
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


def test_words_go_to_a_new_file_alone(two_runs: list[str], tmp_path: Path, call: Call) -> None:
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
