"""Flamegraphs and tables of profiles: places, widths, escaping, offline."""

import re
import xml.etree.ElementTree as ET

import pytest

from serve_bench.analysis.stacks import Stacks, by_function, list_changes, parse_raw
from serve_bench.report.flamegraph import WIDTH, draw_frames, flame_svg
from serve_bench.report.profile_text import difference_text, profile_text

SVG = "{http://www.w3.org/2000/svg}"
BASE = """\
main (app.py:1);one (app.py:2) 600
main (app.py:1);same (app.py:3) 300
main (app.py:1) 100
"""
NASTY = "a <b> & \"c\" 'd' ]]> </script><script>alert(1)</script> (x.py:1) 10\n"


def draw(text: str, title: str = "t") -> str:
    return flame_svg(parse_raw(text, "x"), title)


def profile(text: str) -> tuple[str, Stacks]:
    return "p", parse_raw(text, "x")


def frames(svg: str) -> dict[str, dict[str, float]]:
    """Place and width of each frame, in pixels, by its title."""
    out = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None
        out[title.text or ""] = {name: float(rect.get(name, "")) for name in ("x", "y", "width")}
    return out


def test_a_frame_is_as_wide_as_its_share_and_lies_on_its_caller() -> None:
    found = frames(draw(BASE))
    wide = found["one (app.py): 60.0 %, 600 samples, other"]
    same = found["same (app.py): 30.0 %, 300 samples, other"]
    main = found["main (app.py): 100.0 %, 1000 samples, other"]
    assert main["width"] == pytest.approx(WIDTH, abs=1)
    assert wide["width"] == pytest.approx(0.6 * WIDTH, abs=1)
    assert wide["y"] == same["y"] > main["y"]
    assert wide["x"] + wide["width"] <= same["x"] and same["x"] + same["width"] <= WIDTH
    # One that nobody could see is left out and moves no other.
    text = "m (a.py:1);a (a.py:1) 5\nm (a.py:1);b (a.py:1) 9995\n"
    found = frames(draw(text))
    assert not any(name.startswith("a (") for name in found)
    assert found["b (a.py): 100.0 %, 9995 samples, other"]["x"] == pytest.approx(0.6)
    # A deep stack is drawn in the time of its depth.
    deep = ";".join(f"f{at} (a.py:1)" for at in range(3000))
    assert len(list(draw_frames(parse_raw(f"{deep} 1\n", "x")))) == 3001


def test_texts_of_a_profile_are_escaped_and_control_characters_written_out() -> None:
    for text in (NASTY, "a\x1b[2J\x08\uffff\u202e (x.py:1) 10\n"):
        svg = draw(text, text)
        assert ET.fromstring(svg) is not None
        assert "<script>alert" not in svg and "<b>" not in svg and "\x1b" not in svg
        assert "\x1b" not in profile_text(*profile(text))
        assert "\x1b" not in difference_text(profile(text), profile(BASE))
    # A file needs nothing from elsewhere.
    text = draw(BASE)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href)=|@import|url\(|<script", text)


def test_a_change_within_the_error_of_sampling_is_not_listed() -> None:
    few = profile("m (a.py:1);x (a.py:2) 10\nm (a.py:1);y (a.py:3) 10\n")
    other = profile("m (a.py:1);x (a.py:2) 12\nm (a.py:1);y (a.py:3) 8\n")
    assert not list_changes(by_function(few[1]), by_function(other[1]))
    assert "no function by more than 1 point" in difference_text(few, other)


def test_idle_stacks_are_said_and_left_out_of_shares() -> None:
    text = "m (a.py:1);x (a.py:2) 30\nr (threading.py:1);Condition.wait (threading.py:2) 70\n"
    busy = profile_text(*profile(text))
    assert busy.startswith("p: 30 samples, 70 idle ones left out\n")
    assert re.search(r"x \(a\.py\) +100\.0 +100\.0", busy)
    whole = profile_text(*profile(text), keep_idle=True)
    assert whole.startswith("p: 100 samples\n") and re.search(r"idle +70\.0", whole)
    assert "nothing but waiting" in profile_text(*profile(text.splitlines()[1]))
