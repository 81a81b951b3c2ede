"""The HTML report in a real Chromium: every chart drawn, at two widths, light and dark, on paper.

The page's own policy lets no other script run, so a test adds the hash of its own to it; what that
script saw is read back from the title. Narrow pages stand in a frame: the browser's window has a
least width.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.document import Chart, Document, Section
from serve_bench.report.page import Folder, RunFile, html_text
from serve_bench.report.vega import vega
from tests.browser.chromium import DARK, chromium
from tests.html_sample import chart, sheet

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 80" width="1200" height="80">
<rect width="1200" height="80" fill="#c40"/><script>parent.evil = 1</script></svg>"""
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
LOOK = """done({
  drawn: places().map(function (one) { return one.dataset.drawn; }),
  svgs: places().map(function (one) { return one.querySelectorAll("svg").length; }),
  widths: places().filter(function (one) { return one.clientWidth; }).map(function (one) {
    return [one.querySelector("svg").getBoundingClientRect().width, one.clientWidth]; }),
  page: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
  ground: colour("body", "backgroundColor"), ink: colour("body", "color"),
  label: colour(".drawing svg .role-axis-label text", "fill"),
  evil: String(window.evil), asked: performance.getEntriesByType("resource").map(
    function (one) { return one.name; }),
  images: Array.from(document.images).map(function (one) { return one.naturalWidth; }),
  scrolls: Array.from(document.querySelectorAll(".table .scroll")).map(
    function (one) { return [one.scrollWidth, one.clientWidth]; })
});"""


def written(
    tmp_path: Path, *sheets: Document, act: str = "", policy: bool = True, scripts: bool = True
) -> Path:
    """The page of these sheets; `act` is what the script of the test does when all is drawn.
    Without `policy` all is allowed, without `scripts` no script may run."""
    kept = RunFile("profiles/replica.svg", len(SVG), SVG)
    folder = Folder(RunFile("records.jsonl", len(LINES), LINES), {kept.href: kept})
    text = html_text(sheets, folders=[folder])
    if act:
        script = WAIT.replace("ACT", act)
        hashed = b64encode(sha256(script.encode()).digest()).decode()
        text = text.replace("script-src ", f"script-src 'sha256-{hashed}' ", 1)
        body, end, rest = text.rpartition("</body>")
        text = f"{body}<script>{script}</script>{end}{rest}"
    if not scripts:
        text = re.sub("script-src [^;]*", "script-src 'none'", text, count=1)
    if not policy:
        text, count = re.subn("<meta http-equiv=.Content-Security-Policy.*?>", "", text, count=1)
        assert count == 1
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    return file


def seen(
    tmp_path: Path, file: Path, width: int = 1280, dark: bool = False
) -> tuple[Any, list[str]]:
    """What the script of a page told, and what the console got."""
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
    assert title, (dom[:500], console)
    return json.loads(unescape(title[1])), console


def with_chart(chart: Chart) -> Document:
    first = sheet()
    return replace(first, sections=(Section("more", "More", (chart,)), *first.sections))


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The URL of a server, and the paths that it was asked for."""
    paths: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/x.json", paths
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_is_drawn_and_no_name_runs(tmp_path: Path, width: int, dark: bool) -> None:
    file = written(tmp_path, sheet(EVIL), sheet(EVIL), act=LOOK)
    told, console = seen(tmp_path, file, width, dark)
    assert console == []
    assert told["drawn"] == ["yes"] * 6 and told["svgs"] == [1] * 6
    assert told["evil"] == "undefined"
    assert told["asked"] == []
    assert told["images"] == [1200], "the picture of the first run; the second has no folder"
    whole, screen = told["page"]
    assert whole == screen, "the page is wider than the screen"
    assert (screen == 390) if width == 390 else (screen == 1280)
    assert len(told["widths"]) == 6, "what is folded has a width too"
    assert all(abs(svg - place) <= 3 for svg, place in told["widths"])
    if width == 390:
        assert any(inner > outer for inner, outer in told["scrolls"]), "a table scrolls in its box"
    ground, ink, label = (
        [int(one) for one in re.findall(r"\d+", told[name])] for name in ("ground", "ink", "label")
    )
    dim, bright = (ground, (ink, label)) if dark else (max(ink, label), (ground,))
    assert max(dim) < 120 and all(min(one) > 150 for one in bright)


def test_light_and_dark_change_by_the_button_without_drawing_anew(tmp_path: Path) -> None:
    act = """
    var svg = document.querySelector(".drawing svg"), button = document.getElementById("scheme");
    function now() { return [button.textContent, colour("body", "backgroundColor"),
      colour(".drawing svg .role-axis-label text", "fill")]; }
    var states = [now()];
    button.click(); states.push(now());
    button.click(); states.push(now());
    done({states: states, same: svg === document.querySelector(".drawing svg")});"""
    told, console = seen(tmp_path, written(tmp_path, sheet(), act=act))
    first, second, third = told["states"]
    assert console == [] and told["same"] is True
    assert first == third and first[0] == "dark page" and second[0] == "light page"
    assert first[1] != second[1] and first[2] != second[2]


def drawn_as(spec: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> Chart:
    """A chart for which a page gets this Vega-Lite."""
    one = replace(chart("drawn otherwise"), words=words)
    monkeypatch.setattr("serve_bench.report.page.vega", lambda of: spec if of is one else vega(of))
    return one


def test_a_chart_that_cannot_be_drawn_says_so_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"mark": {"type": "no such mark"}}
    spoiled = drawn_as(spec, "Rises from 1 to 2.", monkeypatch)
    act = """done({drawn: places().map(function (one) { return one.dataset.drawn; }),
      said: places()[0].textContent});"""
    told, console = seen(tmp_path, written(tmp_path, with_chart(spoiled), act=act))
    assert told["drawn"] == ["no", "yes", "yes", "yes"]
    assert "could not be drawn (" in told["said"] and "Rises from 1 to 2." in told["said"]
    assert console == []


def test_no_chart_can_ask_the_network_even_if_it_wants_to(
    tmp_path: Path, asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, paths = asked
    asking = drawn_as({"data": {"url": url}, "mark": "bar"}, "Nothing.", monkeypatch)
    states = "done(places().map(function (one) { return one.dataset.drawn; }));"
    told, console = seen(tmp_path, written(tmp_path, with_chart(asking), act=states))
    assert paths == []
    assert any("Content Security Policy" in line for line in console), "refused, and told"
    assert told[1:] == ["yes"] * 3
    # Without the policy the browser asks, so that the above can fail.
    seen(tmp_path, written(tmp_path, with_chart(asking), act=states, policy=False))
    assert paths == ["/x.json"]


def test_a_folded_chart_is_drawn_to_the_width_of_its_place_when_it_is_opened(
    tmp_path: Path,
) -> None:
    act = """
    var fold = document.querySelector("details"), place = fold.querySelector(".drawing");
    var before = place.dataset.drawn;
    fold.open = true;
    setTimeout(function () { setTimeout(function () {
      done({before: before, after: place.dataset.drawn,
        widths: [place.querySelector("svg").getBoundingClientRect().width, place.clientWidth]});
    }, 500); }, 500);"""
    file = written(tmp_path, sheet(), act=act)
    hidden = "details:not([open]) > .inside { display: none }</style>"  # as older browsers do
    file.write_text(file.read_text().replace("</style>", hidden, 1))
    told, console = seen(tmp_path, file)
    assert console == [] and told["before"] == told["after"] == "yes"
    assert told["widths"][1] > 300 and abs(told["widths"][0] - told["widths"][1]) <= 3


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
    told, console = seen(tmp_path, written(tmp_path, sheet(), act=act))
    assert told == {"text": LINES.decode(), "button": "Save records.jsonl"} and console == []


def test_where_no_script_runs_words_stand_in_place_of_charts(tmp_path: Path) -> None:
    file = written(tmp_path, sheet(), scripts=False)
    dom, _ = chromium(tmp_path, "--dump-dom", f"file://{file}")
    assert "<svg" not in dom.partition("<script")[0]
    assert dom.count('<p class="instead">') == 3
    assert '<button type="button" id="scheme" hidden' in dom


def test_it_prints(tmp_path: Path) -> None:
    file, pdf = written(tmp_path, sheet()), tmp_path / "page.pdf"
    chromium(tmp_path, DARK, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", f"file://{file}")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    pages = re.findall(rb"/Type\s*/Page\b", content)
    assert 2 <= len(pages) <= 8


def test_on_paper_charts_are_as_wide_as_the_paper_and_on_screen_again_as_before(
    tmp_path: Path,
) -> None:
    act = """
    function widths() {
      return places().map(function (one) {
        return Array.from(one.querySelectorAll("svg")).map(function (svg) {
          return Number(svg.getAttribute("width")); }); });
    }
    var before = widths();
    window.dispatchEvent(new Event("beforeprint"));
    setTimeout(function () {
      var paper = widths();
      window.dispatchEvent(new Event("afterprint"));
      setTimeout(function () { done([before, paper, widths()]); }, 500);
    }, 500);"""
    (before, paper, after), console = seen(tmp_path, written(tmp_path, sheet(), act=act))
    assert not console
    assert len(paper) == len(before) == 3
    # 690 px for the plot, and what stands beside it in the sample.
    pairs = zip(paper, before, strict=True)
    assert all(690 <= on_paper < 900 < shown for (on_paper,), (shown,) in pairs), (paper, before)
    assert after == before
