"""Flamegraph and diff in a real Chromium: drawn, coloured, zoomed, searched, in light and dark.

Only what the page's own script did is read back: a line behind it clicks, types and writes down
what it sees, and the browser prints the document. Pixels come from a screenshot.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.stacks import parse_raw
from serve_bench.report.flamegraph import diff_html, difference_of, flame_svg, reading_of
from serve_bench.runner.recording import layer_rules
from tests.browser.chromium import DARK, chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

A = "main (app.py:1);one (app.py:2) 600\nmain (app.py:1);same (app.py:3) 400\n"
B = "main (app.py:1);two (app.py:2) 600\nmain (app.py:1);same (app.py:3) 400\n"

#: What is seen: each visible frame's left edge and width, as shares of the drawing, and its label.
LOOK = """
function look() {
  var whole = document.querySelector("svg.flame").getBoundingClientRect();
  return Array.from(document.querySelectorAll(".frame")).filter(
    function (f) { return f.style.display !== "none"; }
  ).map(function (f) {
    var box = f.querySelector("rect").getBoundingClientRect();
    return [f.dataset.name, (box.left - whole.left) / whole.width, box.width / whole.width,
            f.querySelector("text").textContent, f.classList.contains("found")];
  });
}
function frame(name) { return document.querySelector('.frame[data-name="' + name + '"]'); }
"""
ACT = """
var seen = {start: look()};
frame("two (app.py)").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
seen.said = document.querySelector("div.said").textContent;
frame("two (app.py)").dispatchEvent(new MouseEvent("click", {bubbles: true}));
seen.zoomed = look();
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
seen.back = look();
var input = document.querySelector("input");
input.value = "SAME|tw.";
input.dispatchEvent(new Event("input"));
seen.searched = look();
seen.found = document.querySelector("span.hits").textContent;
input.value = "(";
input.dispatchEvent(new Event("input"));
seen.wrong = document.querySelector("span.hits").textContent;
document.title = JSON.stringify(seen);
"""


def pixels(png: Path) -> list[list[tuple[int, int, int]]]:
    """The rows of a PNG of 8 bits a channel, not interlaced, as Chromium writes it."""
    data, at, packed = png.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlaced
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    step = 3 if colour == 2 else 4
    raw, rows, former = zlib.decompress(packed), [], bytearray(width * step)
    for y in range(height):
        line = bytearray(raw[y * (width * step + 1) + 1 : (y + 1) * (width * step + 1)])
        kind_of = raw[y * (width * step + 1)]
        for x in range(len(line)):
            left = line[x - step] if x >= step else 0
            corner = former[x - step] if x >= step else 0
            line[x] = (line[x] + _predicted(kind_of, left, former[x], corner)) & 255
        rows.append([(line[x], line[x + 1], line[x + 2]) for x in range(0, len(line), step)])
        former = line
    return rows


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


@pytest.fixture
def page() -> str:
    rules = layer_rules()
    a, b = (reading_of(name, parse_raw(text, "x"), rules) for name, text in (("A", A), ("B", B)))
    return diff_html(difference_of(a, b, rules))


def test_the_diff_is_zoomed_searched_and_read(page: str, tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    file.write_text(page.replace("</body>", f"<script>{LOOK}{ACT}</script></body>"))
    dom, _ = chromium(tmp_path, "--dump-dom", f"file://{file}")
    title = re.search(r"<title>(\{.*?\})</title>", dom, re.DOTALL)
    assert title, dom[:2000]
    seen: dict[str, Any] = json.loads(unescape(title[1]))

    def place(when: str, name: str) -> tuple[float, float]:
        ((_, left, width, *_),) = [one for one in seen[when] if one[0] == name]
        return left, width

    # Half the width of what is in one profile alone, each beside the other, none on another.
    assert place("start", "one (app.py)")[1] == pytest.approx(0.3, abs=0.01)
    assert place("start", "two (app.py)")[1] == pytest.approx(0.3, abs=0.01)
    assert place("start", "same (app.py)")[1] == pytest.approx(0.4, abs=0.01)
    assert place("zoomed", "two (app.py)")[0] == pytest.approx(0, abs=0.01)
    assert place("zoomed", "two (app.py)")[1] == pytest.approx(1, abs=0.01)
    assert place("zoomed", "main (app.py)")[1] == pytest.approx(1, abs=0.01)
    assert "one (app.py)" not in [one[0] for one in seen["zoomed"]]
    assert seen["back"] == seen["start"]
    assert seen["said"] == "two (app.py): A 0.0 % (0), B 60.0 % (600), +60.0 points"
    assert {one[0] for one in seen["searched"] if one[4]} == {"same (app.py)", "two (app.py)"}
    assert seen["found"] == "2 frames, 70.0 % of the width"
    assert seen["wrong"] == "no valid pattern: ("
    assert all(one[3] for one in seen["start"]), "every frame is wide enough for a label"


@pytest.mark.parametrize("dark", [False, True])
def test_red_blue_and_the_ground_are_on_the_screen(page: str, dark: bool, tmp_path: Path) -> None:
    file, shot = tmp_path / "diff.html", tmp_path / "shot.png"
    file.write_text(page)
    scheme = (DARK,) if dark else ()
    size = ("--window-size=1280,700", f"--screenshot={shot}")
    chromium(tmp_path, *scheme, *size, f"file://{file}")
    rows = pixels(shot)
    every = [colour for row in rows for colour in row]
    red = sum(1 for r, g, b in every if r > 180 and g < 110 and b < 110)
    blue = sum(1 for r, g, b in every if b > 180 and r < 110)
    assert red > 3000 and blue > 3000
    assert abs(red - blue) < 0.3 * max(red, blue)
    ground = rows[-1][2]
    assert (max(ground) < 60) if dark else (min(ground) > 240)


def test_the_svg_stands_alone_and_its_frames_are_where_they_should_be(tmp_path: Path) -> None:
    file, shot = tmp_path / "flame.svg", tmp_path / "shot.png"
    two_files = A.replace("same (app.py", "same (library.py")
    file.write_text(flame_svg(parse_raw(two_files, "x"), "replica 7", layer_rules()))
    chromium(tmp_path, "--window-size=1300,400", f"--screenshot={shot}", f"file://{file}")
    line = pixels(shot)[42 + 2 * 17 + 2]  # the third row of frames: "one", then "same"
    left, right = line[300], line[900]
    assert left != right and min(left) < 250 and min(right) < 250
    assert {x for x in range(5, 717) if line[x] != left} == set()
    assert {x for x in range(724, 1195) if line[x] != right} == set()
    assert line[1250] == (255, 255, 255)
