"""Pictures of the charts of runs: `report --plot`, which charts they hold, what they refuse."""

import re
import sys
from pathlib import Path

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.report.picture import charts_of, picture
from tests import places
from tests.cases import Call, Patch, cases
from tests.records import stored
from tests.sheet_parts import make_sheet, tiles


@pytest.mark.parametrize("name", ["press", "sweep", "rpc", "scale-curve", "micro"])
def test_a_picture_says_what_it_shows(name: str) -> None:
    document = make_sheet(stored(name))
    charts = charts_of([document])
    svg = picture([document], charts, ".svg").decode("utf-8")
    text = " ".join(re.findall(r">([^<>]+)<", svg))
    for words in (document.title, charts[0].title, *tiles(document)):
        assert words in text, words
    assert len(charts) == 1
    assert not re.search(r'(href|src)="[^#]', svg)


PLOT = ("report", places.FORMATS / "2-micro.jsonl", "--plot")


def test_the_main_chart_or_those_with_words_in_their_title(tmp_path: Path, call: Call) -> None:
    svg, png = tmp_path / "all.svg", tmp_path / "one.png"
    _, err = call(*PLOT, svg)
    assert svg.read_text().startswith("<svg") and f"wrote {svg}" in err
    document = make_sheet(stored("micro"))
    title = charts_of([document])[0].title
    call(*PLOT, png, "--chart", title.upper())
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    call(*PLOT, tmp_path / "x.svg", "--chart", "")
    named, whole = (charts_of([document], words) for words in (title.upper(), ""))
    assert title in {chart.title for chart in named}
    assert 1 < len(named) < len(whole)


@cases(
    "words, said",
    ("--plot x.pdf", "--plot: x.pdf is not allowed; it takes a file in .svg or .png"),
    ("--plot mine.svg", "--plot: mine.svg exists already; nothing is overwritten"),
    ("--plot no/x.svg", "--plot: the folder of no/x.svg does not exist"),
    ("--plot x.svg --chart zz", "--chart: no chart has 'zz' in its title; there"),
    ("--chart zz", "--chart: chooses charts of --plot FILE, which is not there"),
)
def test_what_cannot_be_drawn_is_one_line(
    words: str, said: str, tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.svg").write_text("mine")
    printed, error = call(*PLOT[:2], *words.split(), code=2)
    assert error.startswith(f"serve-bench: {said}") and error.count("\n") == 1 and not printed
    assert [file.name for file in tmp_path.iterdir()] == ["mine.svg"]
    assert Path("mine.svg").read_text() == "mine"


def test_without_a_figure_or_the_library_there_is_no_picture(monkeypatch: Patch) -> None:
    document = make_sheet(stored("micro"))
    charts = charts_of([document])
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(BadInput, match=r"pip install vl-convert-python"):
        picture([document], charts, ".png")
    with pytest.raises(BadInput, match=r"^--plot: there is no figure to draw$"):
        charts_of([make_sheet(stored("scale-no-cluster"))])
