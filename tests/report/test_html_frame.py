"""The page itself: what it escapes, its order, what it embeds, where it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from serve_bench.core.document import (
    Chart,
    Column,
    Document,
    Facts,
    Folded,
    Number,
    Picture,
    Prose,
    Section,
    Table,
    TableRow,
)
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.page import (
    LIMIT,
    Folder,
    RunFile,
    bundle,
    data_url,
    folder_of,
    html_text,
    script_json,
    size_text,
    words,
)
from serve_bench.report.theme import DARK, LIGHT, file_text, light_dark
from serve_bench.runner.recording import layer_rules
from tests import places
from tests.html_sample import EVIL, STUB, chart, contrast, sheet

GOLDEN = places.GOLDEN / "records.jsonl"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert('evil')</script></svg>"


class Read(HTMLParser):
    """A page as a browser reads it: elements with their attributes, texts, scripts by their id."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.styles: list[str] = []
        self._within = ("", "")
        # Where lines may and may not end is nothing that is said.
        self.feed(re.sub(r'<span class="flag">(.*?)</span>', r"\1", page.replace("<wbr>", "")))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag in ("script", "style"):
            self._within = (tag, given.get("id", f"script {len(self.scripts)}"))
            self.scripts.setdefault(self._within[1], "")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within[0]:
            self._within = ("", "")

    def handle_data(self, data: str) -> None:
        if self._within[0]:
            self.scripts[self._within[1]] += data
        else:
            self.texts.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """The attributes of such elements."""
        return [
            about
            for name, about in self.tags
            if name == tag and all(about.get(key) == value for key, value in wanted.items())
        ]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def folder(**changes: Any) -> Folder:
    """The folder of a run with records and a flamegraph."""
    given: dict[str, Any] = {
        "records": RunFile("records.jsonl", 20, b'{"name":"</script>"}\n'),
        "pictures": {"profiles/replica.svg": RunFile("profiles/replica.svg", len(SVG), SVG)},
    }
    return Folder(**{**given, **changes})


def page(*sheets_: Document, folders: tuple[Folder, ...] = (folder(),)) -> str:
    return html_text(sheets_ or (sheet(),), library=STUB, folders=folders)


# ----------------------------------------------------------------------------- what is escaped


def test_names_are_text_wherever_they_stand() -> None:
    plain, evil = Read(page(sheet("x" * len(EVIL)))), Read(page(sheet(EVIL)))
    # Not one element more or less, none of their attributes but those that hold the name.
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in plain.tags]
    assert [sorted(about) for _, about in evil.tags] == [sorted(about) for _, about in plain.tags]
    assert not any(name.startswith("on") for _, about in evil.tags for name in about)
    said = EVIL.replace("\u2028", " ")
    assert evil.text.replace("\u2028", " ").count(said) >= 12
    drawn = json.loads(evil.scripts["charts"])["charts"]
    assert drawn["chart-1"]["data"]["values"][0]["group"] == EVIL


def test_nothing_in_a_script_block_can_end_it_or_break_a_line() -> None:
    text = script_json({EVIL: [EVIL, "\u2029", 1.5, None]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {EVIL: [EVIL, "\u2029", 1.5, None]}


def test_records_in_the_page_are_the_same_json() -> None:
    read_page = Read(page())
    text = read_page.scripts["records.jsonl-text"]
    assert "</" not in text and json.loads(text) == {"name": "</script>"}


def test_half_a_pair_of_surrogates_in_a_name_does_not_break_the_page() -> None:
    assert r"a \ud800 b" in Read(page(sheet("a \ud800 b"))).text


def test_only_the_two_scripts_of_the_page_may_run_and_none_may_ask_the_network() -> None:
    whole = page()
    read_page = Read(whole)
    (policy,) = read_page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.strip().split(" ", 1) for rule in policy["content"].split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["img-src"] == "data:" and "unsafe" not in rules["script-src"]
    running = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in running]
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert len(running) == 2 and "vegaEmbed=null" in running[0]
    outside = [about for _, about in read_page.tags if about.keys() & {"src", "href"}]
    for about in outside:
        where = about.get("src") or about["href"]
        assert where.startswith(("data:image/", "#")) or where == "profiles/replica.svg"


@pytest.mark.parametrize("script", ["x</SCRIPT>", "<!--", "a\r\nb"])
def test_a_library_that_would_end_its_own_block_is_refused(script: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in a page"):
        html_text([sheet()], library=replace(STUB, script=script))


# ----------------------------------------------------------------------------- what it says


def test_the_order_is_that_of_a_report() -> None:
    read_page = Read(page())
    names = [about["id"] for about in read_page.all("section")]
    assert names == [
        *("asked", "machine", "findings", "results", "throughput", "latency", "profiles"),
        *("method", "records"),
    ]
    assert [about["href"] for about in read_page.all("a") if about["href"][0] == "#"][1:] == [
        f"#{name}" for name in names
    ]
    text = read_page.text.partition("serve-bench micro")[2]  # behind title and contents
    told = [text.index(words) for words in ("optimized served", "Request", "With default")]
    assert told == sorted(told)


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


def test_doubts_stand_in_a_row_of_their_own_under_what_they_doubt() -> None:
    whole = page()
    rows = re.findall(r"<tr.*?</tr>", whole, re.DOTALL)
    at = next(i for i, row in enumerate(rows) if "374.6" in row)
    assert rows[at].startswith('<tr class="doubted">')
    assert rows[at + 1].startswith('<tr class="doubts">') and 'colspan="9"' in rows[at + 1]
    assert "reset 3" in rows[at + 1] and "client-bound" in rows[at + 1]


def test_a_tone_is_never_a_colour_alone() -> None:
    text = Read(page()).text
    for said in ("✗ bad: not measured", "✓ good: 10.81", "! warning: busy-host"):
        assert said in text, said


def test_tables_are_tables_and_charts_have_words() -> None:
    read_page = Read(page())
    scopes = {about.get("scope") for about in read_page.all("th")}
    assert scopes == {"col", "row", "rowgroup"}
    assert len(read_page.all("caption")) == len(read_page.all("table")) == 2
    drawings = read_page.all("div", **{"class": "drawing"})
    data = json.loads(read_page.scripts["charts"])
    assert [one["id"] for one in drawings] == ["chart-1", "chart-2", "chart-3"]
    assert sorted(data["charts"]) == ["chart-1", "chart-2", "chart-3"]
    assert all(one["role"] == "img" and one["aria-label"] for one in drawings)
    assert read_page.all("noscript") and "off: words stand in their place" in read_page.text


def test_three_charts_in_a_row_stand_beside_each_other() -> None:
    one = chart("Calls")
    for blocks, beside in (((one,) * 3, 1), ((one, one), 0), ((one, one, Prose(("p",)), one), 0)):
        read_page = Read(page(sheet(sections=(Section("s", "S", blocks),))))
        assert len(read_page.all("div", **{"class": "charts"})) == beside
        drawn = sum(isinstance(block, Chart) for block in blocks)
        assert len(read_page.all("div", **{"class": "drawing"})) == drawn


def test_the_only_chart_of_a_section_does_not_repeat_its_title() -> None:
    for title, count in (("Latency", 1), ("Rates", 2)):
        blocks = (replace(chart(title), words="words"),)
        read_page = Read(page(sheet(sections=(Section("s", "Latency by percentile", blocks),))))
        body = read_page.text.rpartition("Latency by percentile")[2]
        assert (title in body) == (count == 2)


def test_lines_end_where_a_reader_does_not_stumble() -> None:
    assert words("<b> --out x, 5 -> 3") == (
        '&lt;b&gt; <span class="flag">--out</span> x, 5 <span class="flag">-&gt;</span> 3'
    )
    assert words("optimized,/srv/app/base.py:app and/or") == (
        "optimized,/<wbr>srv/<wbr>app/<wbr>base.py:<wbr>app and/or"
    )
    assert words("RAY_SERVE_ENABLE_HA_PROXY=1") == "RAY_SERVE_ENABLE_HA_PROXY=1"
    kept = words("host 9 % (1,046 ± 218 requests/s) 3 %a")
    assert kept.count('<span class="flag">') == 2 and ">1,046 ± 218</span>" in kept
    table = Table("t", (Column("max_ongoing_requests"),), ())
    assert "max_<wbr>ongoing_<wbr>requests" in page(sheet(sections=(Section("s", "S", (table,)),)))


def test_a_row_that_does_not_fit_its_table_is_an_error() -> None:
    table = Table("t", (Column("row"), Column("x")), (TableRow(("a",)),))
    with pytest.raises(ValueError, match="longer"):
        page(sheet(sections=(Section("s", "S", (table,)),)))


def test_the_command_is_shown_once() -> None:
    argv = ("serve-bench", "micro", "--variant", "default,x y")
    typed = "serve-bench micro --variant 'default,x y'"
    assert Read(page(sheet(argv=argv))).text.count(typed) == 1
    told = Facts((("command", typed),))
    assert Read(page(sheet(argv=argv, run=told))).text.count(typed) == 1


def test_several_runs_stand_one_after_the_other_with_anchors_of_their_own() -> None:
    read_page = Read(page(sheet("first"), sheet("second"), folders=(folder(), Folder())))
    ids = [about["id"] for _, about in read_page.tags if "id" in about]
    assert len(ids) == len(set(ids)), "an id twice"
    articles = [about["id"] for about in read_page.all("article")]
    assert articles == ["run-1", "run-2"] and "run-2-results" in ids
    links = {about["href"] for about in read_page.all("a")}
    assert {"#run-1", "#run-2", "#run-1-records", "#run-2-method"} <= links
    assert "#run-2-records" not in links, "the second run has no folder"
    assert read_page.text.startswith("serve-bench: 2 runs")
    assert len(json.loads(read_page.scripts["charts"])["charts"]) == 6
    assert len(read_page.all("h1")) == 1


def test_texts_stand_out_from_their_ground_in_light_and_in_dark() -> None:
    pairs = re.findall(
        r"--([a-z-]+): light-dark\((#\w+), (#\w+)\)", Read(page()).scripts["script 0"]
    )
    colours = {name: (light, dark) for name, light, dark in pairs}
    for scheme in (0, 1):
        for name in ("ink", "faint", "link", "good", "bad", "doubt"):
            for ground in ("ground", "raised"):
                seen = contrast(colours[name][scheme], colours[ground][scheme])
                assert seen >= 4.5, (name, ground, scheme, seen)
        assert contrast(colours["ink"][scheme], colours["doubt-ground"][scheme]) >= 4.5


def test_no_sheet_no_page() -> None:
    with pytest.raises(ValueError, match="without a document"):
        html_text([], library=STUB)


def test_light_and_dark_are_one_configuration() -> None:
    both = light_dark(LIGHT, DARK)
    of_light, of_dark = (one["axis"]["labelColor"] for one in (LIGHT, DARK))
    assert of_light != of_dark
    assert both["axis"]["labelColor"] == f"light-dark({of_light}, {of_dark})"
    assert both["range"]["category"][0].startswith("light-dark(#")
    assert both["font"] == LIGHT["font"] == DARK["font"]


# ----------------------------------------------------------------------------- what it embeds


def test_a_picture_is_an_image_never_markup() -> None:
    read_page = Read(page())
    (image,) = read_page.all("img")
    data = image["src"].removeprefix("data:image/svg+xml;base64,")
    assert base64.b64decode(data) == SVG and "Flamegraph of a replica" in image["alt"]
    assert not read_page.all("svg")
    assert "profiles/gone.svg is not in the folder of the run." in read_page.text


def test_an_embedded_flamegraph_has_no_buttons_that_do_nothing() -> None:
    whole = flame_svg({("a (x.py:1)", "reset zoom (y.py:2)"): 3}, "t", layer_rules()).encode()
    assert whole.count(b'class="button"') == 2 and b"<script>" in whole
    url = data_url("p/replica.svg", whole)
    assert url is not None
    shown = base64.b64decode(url.partition(",")[2])
    assert b'class="button"' not in shown and b"<script>" not in shown
    assert shown.count(b'class="frame"') == whole.count(b'class="frame"') == 3
    assert b'class="title"' in shown and shown.endswith(b"</svg>")
    ElementTree.fromstring(shown)


EVIL_STACKS = b"main (app.py:1);a<img src=x onerror=alert(1)> (x.py:1) 3\nmain (app.py:1) 1\n"


def test_a_flamegraph_is_drawn_of_its_stacks_and_their_texts_are_escaped(tmp_path: Path) -> None:
    one = Picture("replica", "profiles/replica.svg", "words", "profiles/replica.raw.txt")
    document = sheet(sections=(Section("profiles", "Profiles", (Folded("more", (one,)),)),))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "records.jsonl").write_bytes(b"{}\n")
    (tmp_path / one.path).write_bytes(SVG)
    (tmp_path / one.stacks).write_bytes(EVIL_STACKS)
    kept = folder_of(tmp_path, document, tmp_path, "records.jsonl", layer_rules())
    text = html_text([document], folders=[kept])
    read_page = Read(text)
    assert not read_page.all("img") and "onerror=alert(1)>" not in text
    frames = [tag for tag in read_page.all("g") if tag.get("class") == "frame"]
    assert len(frames) == 3 and any("<img" in str(frame["data-name"]) for frame in frames)
    assert file_text("flamegraph.js") in text and "other 100.0 %" in read_page.text
    assert read_page.all("a", href="profiles/replica.svg")
    # Stacks that are none, and those of another folder, leave the picture.
    (tmp_path / one.stacks).write_bytes(b"no stacks")
    outside = replace(one, stacks="../out.raw.txt")
    (tmp_path.parent / "out.raw.txt").write_bytes(EVIL_STACKS)
    for some in (one, outside):
        document = sheet(sections=(Section("profiles", "Profiles", (some,)),))
        kept = folder_of(tmp_path, document, tmp_path, "records.jsonl", layer_rules())
        assert not kept.flames
        text = html_text([document], folders=[kept])
        assert Read(text).all("img") and file_text("flamegraph.js") not in text


def test_charts_come_before_long_tables_and_the_method_last_and_folded() -> None:
    column = (Column("row", number=False),)
    short, long = (
        Table(f"{rows} rows", column, tuple(TableRow((f"row {at}",)) for at in range(rows)))
        for rows in (12, 13)
    )
    sections = (
        Section("method", "Method", (Prose(("How.",)),)),
        Section("few", "Few", (short,)),
        Section("many", "Many", (long,)),
        Section("both", "Both", (long, chart(), short)),
        Section("later", "Later", (long,)),
    )
    text = page(sheet(sections=sections))
    assert re.findall(r'<section id="(\w+)"', text)[3:-1] == [
        *("few", "both", "many", "later", "method"),
    ]
    both = text[text.index('<section id="both"') : text.index('<section id="many"')]
    assert both.index('class="drawing"') < both.index("13 rows") < both.index("12 rows")
    assert re.search(r'<section id="method".*?<details><summary>', text, re.DOTALL)


def test_what_finds_no_room_is_linked_with_its_size() -> None:
    large = b"x" * (LIMIT - 200_000)
    filled = folder(records=RunFile("../run/records.jsonl", len(large), large))
    read_page = Read(whole := page(folders=(filled,)))
    assert LIMIT - 200_000 < len(whole.encode()) < LIMIT
    assert read_page.all("img"), "the picture is small enough to be there too"
    over = b"x" * LIMIT
    read_page = Read(
        whole := page(folders=(folder(records=RunFile("a/records.jsonl", LIMIT, over)),))
    )
    assert len(whole.encode()) < 200_000
    assert read_page.all("a", href="a/records.jsonl") and "3.0 MB" in read_page.text
    assert not read_page.all("script", type="application/x-ndjson")


def test_a_large_picture_is_linked_and_a_small_one_after_it_embedded() -> None:
    pictures = {
        "a.svg": RunFile("r/a.svg", LIMIT, b"x" * LIMIT),
        "b.png": RunFile("r/b.png", 9, b"\x89PNG 1234"),
        "c.txt": RunFile("r/c.txt", 3, b"abc"),
    }
    blocks = tuple(Picture(f"title of {path}", path, "words") for path in pictures)
    whole = page(sheet(sections=(Section("s", "S", blocks),)), folders=(Folder(pictures=pictures),))
    read_page = Read(whole)
    assert [one["src"][:14] for one in read_page.all("img")] == ["data:image/png"]
    assert "Not in this page: a.svg , 3.0 MB" in read_page.text
    assert "Not in this page: c.txt , 3 bytes" in read_page.text, "no kind of picture"


def test_sizes_are_said_in_words() -> None:
    sizes = (999, 1000, 218_860, 999_499, 999_500, 3_400_000)
    assert [size_text(size) for size in sizes] == [
        *("999 bytes", "1 kB", "219 kB", "999 kB", "1.0 MB", "3.4 MB")
    ]


def test_the_library_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(*_: str) -> str:
        made.append("é library")
        return made[-1]

    monkeypatch.setattr("vl_convert.javascript_bundle", make)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [bundle().script, bundle().script] == ["é library"] * 2 and len(made) == 1
    (kept,) = (tmp_path / "cache" / "serve-bench").iterdir()
    for damage in (kept.read_bytes()[:-1], b"", b"\xff"):
        kept.write_bytes(damage)
        made.clear()
        assert [bundle().script, bundle().script] == ["é library"] * 2 and len(made) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert bundle().script == "é library" and not (tmp_path / "relative").exists()
    assert (tmp_path / "home" / ".cache" / "serve-bench" / kept.name).exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert bundle().script == "é library", "where nothing can be kept"


def test_a_page_without_charts_has_no_library() -> None:
    text = html_text([sheet(sections=())])
    assert len(re.findall("<script>", text)) == 1 and "Vega" not in text


def test_the_library_comes_with_its_licences() -> None:
    library = bundle()
    assert "window.vegaEmbed" in library.script and len(library.script) > 500_000
    for name in ("Vega 6", "Vega-Lite 6", "Vega-Embed 7", "BSD 3-Clause", "Mike Bostock"):
        assert name in library.notices, name
    assert "-->" not in library.notices
    whole = html_text([sheet()], library=library, folders=[folder()])
    assert library.notices in whole and len(whole.encode()) < LIMIT / 2


def test_a_name_turns_no_figure_beside_it() -> None:
    turned = page(replace(sheet("a\u202eb\x1bc"), run=Facts((("app", "a\u202eb"),))))
    assert "\u202e" not in Read(turned).text and "\x1b" not in Read(turned).text
    assert "a\\u202eb" in Read(turned).text
