"""The page itself: what it escapes, its order, what it embeds, where it is written."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from serve_bench.report.page import MOST_RECORDS, Folder, folder_of, html_text
from serve_bench.view.document import (
    Column,
    Document,
    Flamegraph,
    Folded,
    Number,
    Section,
    Table,
    TableRow,
)
from tests import places
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


def page(*sheets_: Document, folders: tuple[Folder, ...] = (FOLDER,)) -> str:
    return html_text(sheets_ or (sheet(),), folders)


def test_names_are_text_wherever_they_stand() -> None:
    plain, evil = Read(page(sheet("x" * len(EVIL)))), Read(page(sheet(EVIL)))
    # Not one element more or less, none of their attributes but those that hold the name.
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in plain.tags]
    assert [sorted(about) for _, about in evil.tags] == [sorted(about) for _, about in plain.tags]
    assert not any(name.startswith("on") for _, about in evil.tags for name in about)
    said = EVIL.replace("\u2028", " ")
    assert evil.text.replace("\u2028", " ").count(said) >= 12


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
    rows = tuple(
        TableRow(("a", Number(f"{value:.1f}" if value else "-", value))) for value in values
    )
    table = Table("t", (Column("row", number=False), Column("x", "1/s")), rows)
    read_page = Read(page(sheet(sections=(Section("s", "S", (table,)),))))
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
        graph = Folded("more", (Flamegraph("replica", stacks, "words"),))
        document = sheet(sections=(Section("profiles", "Profiles", (graph,)),))
        read_page = Read(page(document, folders=(folder_of(home, document, "records.jsonl"),)))
        assert not read_page.all("svg", **{"class": "flame"})
        assert "is not in the folder of the run" in read_page.text


def test_records_that_are_too_large_are_left_out_with_their_size(tmp_path: Path) -> None:
    document = sheet(sections=())
    for size, embedded in ((MOST_RECORDS - 1, True), (MOST_RECORDS, False)):
        (tmp_path / "records.jsonl").write_bytes(b"x" * size)
        kept = folder_of(tmp_path, document, "records.jsonl")
        read_page = Read(page(document, folders=(kept,)))
        assert bool(read_page.all("script", type="application/x-ndjson")) == embedded
        assert ("too large for this page" in read_page.text) != embedded
        assert "2.0 MB" in read_page.text


def test_a_name_turns_no_figure_beside_it_and_half_a_pair_of_surrogates_breaks_no_page() -> None:
    text = Read(page(sheet("a\u202eb\x1bc \ud800 d"))).text
    assert not {"\u202e", "\x1b"} & {*text}
    assert r"a\u202eb" in text and r"c \ud800 d" in text
