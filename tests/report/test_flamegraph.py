"""Flamegraphs and diffs as text: places, widths, escaping, offline. In a browser: tests/browser."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from serve_bench.analysis.stacks import IDLE, Stacks, parse_raw
from serve_bench.report.flamegraph import (
    diff_html,
    difference_of,
    difference_text,
    flame_html,
    flame_svg,
    profile_text,
    reading_of,
)
from serve_bench.report.flames import HUES, WIDTH, boxes_of
from serve_bench.runner.recording import layer_rules

SVG = "{http://www.w3.org/2000/svg}"
BASE = """\
main (app.py:1);one (app.py:2) 600
main (app.py:1);same (app.py:3) 300
main (app.py:1) 100
"""
OTHER = BASE.replace("one (app.py:2) 600", "two (app.py:9) 600")
NASTY = "a <b> & \"c\" 'd' ]]> </script><script>alert(1)</script> (x.py:1) 10\n"


def stacks(text: str) -> Stacks:
    return parse_raw(text, "x")


def frames(svg: str) -> dict[str, ET.Element]:
    root = ET.fromstring(svg)
    return {g.get("data-name", ""): g for g in root.iter(f"{SVG}g") if g.get("class") == "frame"}


def test_a_frame_is_as_wide_as_its_share_and_lies_on_its_caller() -> None:
    found = frames(flame_svg(stacks(BASE), "title", layer_rules()))
    assert float(found["main (app.py:1)"].get("data-w", "")) == 1.0
    assert float(found["one (app.py:2)"].get("data-w", "")) == pytest.approx(0.6)
    rect = found["one (app.py:2)"].find(f"{SVG}rect")
    caller = found["main (app.py:1)"].find(f"{SVG}rect")
    assert rect is not None and caller is not None
    assert float(rect.get("width", "")) == pytest.approx(0.6 * WIDTH, abs=1)
    assert float(rect.get("y", "")) > float(caller.get("y", ""))
    title = found["one (app.py:2)"].find(f"{SVG}title")
    assert title is not None and title.text == "one (app.py:2): 60.0 %, 600 samples, other"


def test_children_of_a_frame_do_not_overlap() -> None:
    found = frames(flame_svg(stacks(BASE), "title", layer_rules()))
    spans = sorted(
        (float(found[name].get("data-x", "")), float(found[name].get("data-w", "")))
        for name in ("one (app.py:2)", "same (app.py:3)")
    )
    assert spans[0][0] + spans[0][1] <= spans[1][0] + 1e-6
    assert spans[1][0] + spans[1][1] <= 1.0


def test_texts_of_a_profile_are_escaped_wherever_they_stand() -> None:
    svg = flame_svg(stacks(NASTY), NASTY, layer_rules())
    assert any("<b>" in name for name in frames(svg))
    reading = reading_of(NASTY, stacks(NASTY), layer_rules())
    difference = difference_of(reading, reading_of("b", stacks(BASE), layer_rules()), layer_rules())
    for text in (svg, flame_html(reading, layer_rules()), diff_html(difference)):
        assert "<script>alert" not in text and "<b>" not in text
        assert "&lt;script&gt;alert" in text


def test_a_file_needs_nothing_from_elsewhere() -> None:
    reading = reading_of("a", stacks(BASE), layer_rules())
    pages = (
        flame_svg(stacks(BASE), "t", layer_rules()),
        flame_html(reading, layer_rules()),
        diff_html(difference_of(reading, reading, layer_rules())),
    )
    for text in pages:
        addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\b(src|href)=|@import|url\(", text)


def test_the_difference_shows_what_came_and_what_went() -> None:
    rules = layer_rules()
    a, b = (reading_of(name, stacks(text), rules) for name, text in (("A1", BASE), ("B1", OTHER)))
    difference = difference_of(a, b, rules)
    assert [one.name for one in difference.grew] == ["two (app.py)"]
    assert [one.name for one in difference.shrank] == ["one (app.py)"]
    page = diff_html(difference)
    assert "two (app.py): A 0.0 % (0), B 60.0 % (600), +60.0 points" in page
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    found = frames(svg)
    fills = {
        name: rect.get("fill", "") for name, g in found.items() for rect in g.iter(f"{SVG}rect")
    }
    assert fills["two (app.py)"].startswith("hsl(4,")
    assert fills["one (app.py)"].startswith("hsl(215,")
    assert fills["same (app.py)"] == "hsl(0,0%,80%)"
    text = difference_text(difference)
    assert re.search(r"two \(app\.py\) +0\.0 +60\.0 +\+60\.0", text)
    assert re.search(r"one \(app\.py\) +60\.0 +0\.0 +-60\.0", text)


def test_a_change_within_the_error_of_sampling_is_not_listed() -> None:
    rules = layer_rules()
    few = stacks("m (a.py:1);x (a.py:2) 10\nm (a.py:1);y (a.py:3) 10\n")
    other = stacks("m (a.py:1);x (a.py:2) 12\nm (a.py:1);y (a.py:3) 8\n")
    difference = difference_of(reading_of("a", few, rules), reading_of("b", other, rules), rules)
    assert not difference.grew and not difference.shrank
    assert "no function by more than 1 point" in difference_text(difference)


def test_idle_stacks_are_said_and_left_out_of_shares() -> None:
    rules = layer_rules()
    text = "m (a.py:1);x (a.py:2) 30\nr (threading.py:1);Condition.wait (threading.py:2) 70\n"
    busy = profile_text(reading_of("p", stacks(text), rules), rules)
    assert busy.startswith("p: 30 samples, 70 idle ones left out\n")
    assert re.search(r"x \(a\.py\) +100\.0 +100\.0", busy)
    whole = profile_text(reading_of("p", stacks(text), rules, keep_idle=True), rules)
    assert whole.startswith("p: 100 samples\n") and re.search(r"idle +70\.0", whole)
    nothing = profile_text(reading_of("p", stacks(text.splitlines()[1]), rules), rules)
    assert "nothing but waiting" in nothing


def test_the_script_and_the_style_come_with_the_package() -> None:
    from serve_bench.report import flamegraph

    folder = Path(flamegraph.__file__).parent / "templates"
    assert (folder / "flamegraph.js").stat().st_size > 0
    assert "</script" not in (folder / "flamegraph.js").read_text()
    assert "]]>" not in (folder / "flamegraph.js").read_text()


def test_control_characters_are_written_out_in_files_and_in_a_terminal() -> None:
    text = "a\x1b[2J\x08\uffff\u202e (x.py:1) 10\n"
    svg = flame_svg(stacks(text), "t\x08", layer_rules())
    assert any("u001b" in name for name in frames(svg))
    reading = reading_of("p", stacks(text), layer_rules())
    assert "\x1b" not in profile_text(reading, layer_rules())
    difference = difference_of(reading, reading_of("b", stacks(BASE), layer_rules()), layer_rules())
    assert "\x1b" not in difference_text(difference)


def test_frames_of_a_narrow_caller_lie_within_it_to_the_last_digit() -> None:
    rows = "".join(f"m (a.py:1);c{at} (a.py:2);x (a.py:3);y (a.py:4) {at}\n" for at in range(3, 90))
    drawn = boxes_of(stacks(rows), layer_rules())
    svg = frames(flame_svg(stacks(rows), "t", layer_rules()))
    shares = {
        name: (float(one.get("data-x", "")), float(one.get("data-w", "")))
        for name, one in svg.items()
    }
    assert len(drawn) == 2 + 3 * 87
    for box in drawn:
        if box.name.startswith("c"):
            left, width = shares[box.name]
            assert abs(left - box.x) < 1e-9 and abs(width - box.width) < 1e-9


def test_a_deep_stack_is_drawn_in_the_time_of_its_depth() -> None:
    deep = ";".join(f"f{at} (a.py:1)" for at in range(3000))
    assert len(boxes_of(stacks(f"{deep} 1\n"), layer_rules())) == 3001


def test_every_layer_has_a_hue() -> None:
    """The idle one is left out of flamegraphs."""
    assert {rule.name for rule in layer_rules().rules} - {IDLE} <= HUES.keys()
    assert len(set(HUES.values())) == len(HUES)
