"""The HTML report in a real Chromium: every chart drawn, at two widths, light and dark, on paper.

The page's own policy lets no other script run, so a test adds the hash of its own to it; what that
script saw is read back from the title. Narrow pages stand in a frame: the browser's window has a
least width.
"""

import json
import re
import shutil
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from serve_bench.analysis.stacks import Stacks
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.page import Folder, html_text
from serve_bench.view.charts import Chart, Point
from serve_bench.view.document import Column, Document, Number, Section, Table, TableRow, Text
from tests.conftest import BROWSERS
from tests.html_sample import sheet
from tests.places import execute

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=30000"),
)
DARK: Final = "--blink-settings=preferredColorScheme=0"

EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
LINES = b'{"kind":"run","name":"\\u003c/script>"}\n{"kind":"trial"}\n'


WAIT = """
(function () {
  function done(seen) {
    var text = JSON.stringify(seen);
    if (parent === window) { document.title = text; } else { parent.postMessage(text, "*"); }
  }
  function look() {
    if (document.documentElement.dataset.ready !== "yes") { return setTimeout(look, 20); }
    ACT
  }
  function places() { return Array.from(document.querySelectorAll(".drawing")); }
  function colour(choice, name) { return getComputedStyle(document.querySelector(choice))[name]; }
  look();
})();
"""
LOOK = """
var charts = places(), within = charts.filter(function (one) { return one.clientWidth; });
function beyond(place) { // labels that stand out of the box of their chart, by pixels
  var box = place.getBoundingClientRect();
  return Array.from(place.querySelectorAll("text")).map(function (one) {
    var own = one.getBoundingClientRect();
    return own.width ? Math.max(box.left - own.left, own.right - box.right) : 0; });
}
done({
  charts: charts.map(function (one) { return one.querySelectorAll(".series use").length; }),
  widths: within.map(function (one) {
    return one.querySelector("svg").getBoundingClientRect().width / one.clientWidth; }),
  beyond: Math.max.apply(null, [].concat.apply([], within.map(beyond))),
  page: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
  ground: colour("body", "backgroundColor"), ink: colour("body", "color"),
  label: colour(".drawing .ticks text", "fill"),
  evil: String(window.evil), asked: performance.getEntriesByType("resource").map(
    function (one) { return one.name; }),
  flamegraphs: document.querySelectorAll("svg.flame").length,
  scrolls: Array.from(document.querySelectorAll(".table .scroll")).map(
    function (one) { return [one.scrollWidth, one.clientWidth]; })
});"""


def written(tmp_path: Path, *sheets: Document, act: str = "", scripts: bool = True) -> Path:
    """Write the page of these sheets; `act`: its test script. Without `scripts` none may run."""
    svg = flame_svg(STACKS, "")
    folder = Folder(LINES, len(LINES), {"profiles/replica.raw.txt": svg})
    text = html_text(sheets, folders=[folder])
    if act:
        script = WAIT.replace("ACT", act)
        hashed = b64encode(sha256(script.encode()).digest()).decode()
        text = text.replace("script-src ", f"script-src 'sha256-{hashed}' ", 1)
        body, end, rest = text.rpartition("</body>")
        text = f"{body}<script>{script}</script>{end}{rest}"
    if not scripts:
        text = re.sub("script-src [^;]*", "script-src 'none'", text, count=1)
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    return file


def chromium(tmp_path: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run the browser; return what it prints, and what the console of the page got."""
    browser = next(path for name in BROWSERS if (path := shutil.which(name)))
    place = f"--user-data-dir={tmp_path / 'user'}"
    done = execute(browser, *QUIET, place, *arguments, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def seen(tmp_path: Path, file: Path, width: int = 1280, dark: bool = False) -> Any:
    """Read what the script of a page wrote; the console got nothing."""
    if width < 500:
        outer = tmp_path / "outer.html"
        outer.write_text(
            f'<!doctype html><body style="margin:0"><iframe src="{file.name}" style="border:0;'
            f'width:{width}px;height:900px"></iframe><script>onmessage = function (event) '
            "{ document.title = event.data; };</script>"
        )
        file = outer
    scheme = (DARK,) if dark else ()
    size = f"--window-size={max(width, 500)},900"
    dom, console = chromium(tmp_path, *scheme, size, "--dump-dom", f"file://{file}")
    title = re.search(r"<title>([{[].*?[]}])</title>", dom, re.DOTALL)
    assert title and console == [], (dom[:500], console)
    return json.loads(unescape(title[1]))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_is_drawn_and_no_name_runs(tmp_path: Path, width: int, dark: bool) -> None:
    file = written(tmp_path, sheet(EVIL), sheet(EVIL), act=LOOK)
    found = seen(tmp_path, file, width, dark)
    assert found["charts"] == [6, 18, 6] * 2, "a mark for each point"
    assert found["evil"] == "undefined"
    assert found["asked"] == []
    assert found["flamegraphs"] == 1, "that of the first run; the second has no folder"
    whole, screen = found["page"]
    assert whole == screen, "the page is wider than the screen"
    assert (screen == 390) if width == 390 else (screen == 1280)
    assert min(found["widths"]) > (0.5 if width == 390 else 0.8)
    assert found["beyond"] < 3, "labels stay in the box of their chart"
    if width == 390:
        assert any(inner > outer for inner, outer in found["scrolls"]), "a table scrolls in its box"
    ground, ink, label = (
        [*map(int, re.findall(r"\d+", found[name]))] for name in ("ground", "ink", "label")
    )
    dim, bright = (ground, (ink, label)) if dark else (max(ink, label), (ground,))
    assert max(dim) < 120 and all(min(colour) > 150 for colour in bright)


def test_the_records_are_saved_as_they_are(tmp_path: Path) -> None:
    act = """
    var made = URL.createObjectURL;
    URL.createObjectURL = function (blob) {
      blob.text().then(function (text) {
        done({text: text, button: document.querySelector(".save button").textContent});
      });
      return "#";
    };
    document.querySelector(".save button").click();"""
    saved = seen(tmp_path, written(tmp_path, sheet(), act=act))
    assert saved == {"text": LINES.decode(), "button": "Save records.jsonl"}


def test_where_no_script_runs_charts_are_drawn_all_the_same(tmp_path: Path) -> None:
    file = written(tmp_path, sheet(), scripts=False)
    dom, _ = chromium(tmp_path, "--dump-dom", f"file://{file}")
    assert dom.count('class="drawing"') == 3 and dom.count("<polyline") == 3
    assert '<button type="button" id="scheme" hidden' in dom


def test_on_paper_what_is_folded_is_open_but_for_what_is_long(tmp_path: Path) -> None:
    act = """
    function print(name) { window.dispatchEvent(new Event(name + "print")); }
    function opened() { return document.querySelectorAll("details[open]").length; }
    var seen = [opened()];
    print("before"); seen.push(opened());
    print("after"); seen.push(opened());
    done(seen);"""
    before, paper, after = seen(tmp_path, written(tmp_path, sheet(), act=act))
    assert before == after == 0 and paper >= 3


def test_a_legend_hides_a_series_shows_it_again_and_shows_it_alone(tmp_path: Path) -> None:
    act = """
    var chart = places()[0].parentNode, buttons = chart.querySelectorAll(".legend button");
    function state() {
      return Array.from(chart.querySelectorAll(".series")).map(function (one, at) {
        var drawn = one.querySelector("use").getBoundingClientRect().width > 0;
        return [drawn, buttons[at].getAttribute("aria-pressed") === "true"]; });
    }
    var seen = [state()];
    [[0, 1], [0, 1], [1, 1], [1, 2], [1, 1]].forEach(function (step) {
      buttons[step[0]].dispatchEvent(new MouseEvent("click", {detail: step[1], bubbles: true}));
      seen.push(state());
    });
    done(seen);"""
    clicks = seen(tmp_path, written(tmp_path, sheet("default"), act=act))
    states = [[drawn for drawn, _ in state] for state in clicks]
    both, first, two = [True, True], [True, False], [False, True]
    assert states == [both, two, both, first, two, both]
    assert all(drawn == pressed for state in clicks for drawn, pressed in state)


def test_the_head_of_a_column_sorts_its_rows_and_warnings_stay_with_theirs(tmp_path: Path) -> None:
    act = """
    var table = Array.from(document.querySelectorAll(".table table")).find(function (one) {
      return one.querySelector(".below.doubt"); });
    var head = Array.from(table.querySelectorAll("thead th")).find(function (one) {
      return one.textContent.indexOf("requests/s") === 0; });
    function rows() {
      return Array.from(table.tBodies).map(function (body) {
        return Array.from(body.rows).map(function (row) { return row.cells[0].textContent; }); });
    }
    var states = [[rows(), head.getAttribute("aria-sort")]];
    for (var i = 0; i < 3; i += 1) {
      head.querySelector("button").click();
      states.push([rows(), head.getAttribute("aria-sort")]);
    }
    done(states);"""
    states = seen(tmp_path, written(tmp_path, sheet(), act=act))
    assert [order for _, order in states] == [None, "descending", "ascending", None]
    (first, *_), (down, *_), (up, *_), (back, *_) = (bodies for bodies, _ in states)
    assert back == first and states[3][0] == states[0][0]
    assert down[1:] == first[:0:-1] and up[1:] == first[1:]
    assert down[0] == first[0], "the head of the group stays"
    (warned,) = [name for name in down if "errors, client-bound" in name]
    assert warned.startswith("100 connections")


def test_dragging_over_time_zooms_all_charts_of_the_section_and_back(tmp_path: Path) -> None:
    points = [
        Point(float(second), 100.0 + second % 7, name)
        for name in ("default", "optimized")
        for second in range(60)
    ]
    charts = (Chart(title, "lines", points, "1/s", "seconds", x_scale="time") for title in "AB")
    more = replace(sheet(), sections=(Section("more", "More", tuple(charts)),))
    act = """
    var place = places()[0];
    function last(at) {
      var texts = places()[at].querySelectorAll(".ticks text");
      return Array.from(texts).map(function (one) { return one.textContent; });
    }
    function ticks() { return places().map(function (_, at) { return last(at); }); }
    function point(kind, share) {
      var plot = place.querySelector("svg").getBoundingClientRect();
      place.dispatchEvent(new PointerEvent(kind, {clientX: plot.left + share * plot.width,
        clientY: plot.top + 9, pointerId: 1, button: 0, bubbles: true}));
    }
    place.setPointerCapture = function () {};
    var seen = [ticks()];
    point("pointerdown", 0.5); point("pointermove", 0.7);
    var area = place.querySelector(".zoom").getBoundingClientRect().width;
    point("pointerup", 0.7);
    setTimeout(function () {
      seen.push(ticks());
      var back = document.querySelectorAll(".legend .whole");
      var offered = Array.from(back).map(function (one) { return one.hidden; });
      back[1].click();
      setTimeout(function () { seen.push(ticks());
        done({ticks: seen, area: area, offered: offered}); }, 500);
    }, 500);"""
    found = seen(tmp_path, written(tmp_path, more, act=act))
    before, zoomed, after = found["ticks"]
    assert before == after and len(before) == 2
    assert found["area"] > 50 and found["offered"] == [False, False]

    for labels, shown in zip(before, zoomed, strict=True):
        whole, part = ([float(tick) for tick in ticks] for ticks in (labels, shown))
        assert min(whole) == 0 and max(whole) >= 50
        assert min(part) >= 28 and max(part) <= 43


STACKS: Stacks = {
    ("main (app.py:1)", "one (app.py:2)"): 60,
    ("main (app.py:1)", "Replica.call (ray/serve/_private/replica.py:9)"): 40,
}


@pytest.mark.parametrize("width", [1280, 400])
def test_a_flamegraph_is_as_wide_as_its_shares(tmp_path: Path, width: int) -> None:
    act = """
    var svg = document.querySelector("svg.flame");
    var whole = svg.getBoundingClientRect();
    done({page: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
      frames: Array.from(svg.querySelectorAll("g")).map(function (one) {
        var box = one.querySelector("rect").getBoundingClientRect();
        return [one.querySelector("title").textContent, Math.round(100 * box.width / whole.width)];
      })});"""
    found = seen(tmp_path, written(tmp_path, sheet(), act=act), width)
    assert found["page"][0] == found["page"][1], "the page is wider than the screen"
    shares = dict(found["frames"])
    assert shares["one (app.py): 60.0 %, 60 samples, other"] == 60
    assert shares["main (app.py): 100.0 %, 100 samples, other"] == 100


def test_columns_sort_by_what_they_show(tmp_path: Path) -> None:
    columns = (Column("row", number=False), Column("time", number=False), Column("ratio"))
    cells = [
        ("1,000", "1.5 s", Number("1", None)),
        ("20,000", "-", Number("-", None)),
        ("100", "1.26 s", Number("10.4", 10.4)),
        ("10,000", "12 s", Number("0.9", 0.9)),
    ]
    rows = tuple(TableRow((*map(Text, words), ratio)) for *words, ratio in cells)
    plain = Table("Words", columns, rows)
    unlike = replace(plain, caption="Unlike", unlike=True)
    whole = replace(sheet(), sections=(Section("more", "More", (plain, unlike)),))
    act = """
    var table = document.querySelector("#more table"), told = [];
    table.querySelectorAll("thead th").forEach(function (head) {
      head.querySelector("button").click();
      if (head.getAttribute("aria-sort") === "descending") { head.querySelector("button").click(); }
      told.push(Array.from(table.tBodies[0].rows).map(function (row) {
        return row.cells[0].textContent; }));
    });
    done([told, document.querySelectorAll("#more table[data-unlike] thead button").length]);"""
    orders, buttons = seen(tmp_path, written(tmp_path, whole, act=act))
    assert orders[0] == ["100", "1,000", "10,000", "20,000"]
    assert orders[1] == ["100", "1,000", "10,000", "20,000"], "a dash is last"
    assert orders[2] == ["10,000", "1,000", "100", "20,000"], "the base of a ratio is 1"
    assert buttons == 2, "figures of several units have no order"
