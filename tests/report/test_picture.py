"""Pictures of runs: which charts they hold, what they say, what they refuse."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.benchmarks.registry import benchmark_of
from serve_bench.benchmarks.rpc.stored import report_document
from serve_bench.cli.show import RunReport, draw_plots
from serve_bench.core.document import Document, ReportOptions
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result, result_of
from serve_bench.report.picture import charts_of, is_made_by, picture
from serve_bench.store import read
from tests import places
from tests.records import press_result, press_trial, run

RATES = {1: 300.0, 10: 1500.0, 50: 1980.0, 100: 2000.0}


def pressed(command: str = "press") -> Result:
    return press_result(*(press_trial(users, qps) for users, qps in RATES.items()), command=command)


def document(result: Result, published: bool = False) -> Document:
    return benchmark_of(result.run).telling.document(result, ReportOptions(None, published))


def stored(name: str, published: bool = False) -> Document:
    return document(read(places.FORMATS / f"{name}.jsonl"), published)


def words(of: Document) -> str:
    """All texts of the picture."""
    svg = picture([of], "svg").decode("utf-8")
    return "\n".join(re.findall(r">([^<>]+)<", svg))


def test_png_and_svg_are_what_they_are_called_and_equal_for_equal_runs() -> None:
    png, svg = (picture([document(pressed())], kind) for kind in ("png", "svg"))
    assert png.startswith(b"\x89PNG\r\n") and svg.startswith(b"<svg")
    assert svg == picture([document(pressed())], "svg")


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            lambda: document(pressed()),
            ("Requests/s over clients", "Latency over clients", "clients (log)", "knee", "p99"),
        ),
        (lambda: document(pressed(), published=True), ("published, not measured here: CPU",)),
        (lambda: stored("2-sweep"), ("Requests/s over users", "users (log)", "AMD EPYC")),
        (lambda: stored("2-rpc", published=True), ("Agent latency", "PUBLISHED, not measured")),
        (lambda: stored("2-scale-curve"), ("Throughput", "replicas (log)", "Deploy time", "n^")),
    ],
)
def test_a_picture_says_what_it_shows(of: Callable[[], Document], said: tuple[str, ...]) -> None:
    made = of()
    text = words(made)
    assert made.title in text
    for one in (*said, *(chart.title for chart in charts_of(made))):
        assert one in text, one


def test_a_report_of_rpc_from_a_file_has_the_four_metrics() -> None:
    theirs = {
        "world_size": 10,
        "benchmark_results": [
            {
                name: {f"p{share}": 1.0 + share for share in (50, 75, 90, 95)}
                for name in (
                    *("agent latency (seconds)", "agent throughput"),
                    *("observer latency (seconds)", "observer throughput"),
                )
            }
        ],
    }
    of = report_document(theirs, published=False)
    assert len(charts_of(of)) == 4 and "PyTorch RPC" in words(of)


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (pressed(), "pdf", "plot: 'pdf' is not allowed; it takes png or svg"),
        (result_of([run()]), "png", "plot: there is no figure to draw"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(result: Result, kind: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        picture([document(result)], kind)
    assert str(refused.value) == message


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(BadInput, match=r"pip install vl-convert-python"):
        picture([document(pressed())], "png")


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_known_by_its_maker(kind: str) -> None:
    made = picture([document(pressed())], kind, made_by="serve-bench report")
    assert is_made_by(made[:5000], "serve-bench report")
    assert not is_made_by(made[:5000], "someone else")
    assert not is_made_by(b"serve-bench report", "serve-bench report")
    assert not is_made_by(picture([document(pressed())], kind), "serve-bench report")


def report(result: Result) -> RunReport:
    return RunReport(result, ReportOptions())


def test_the_files_stand_in_the_folder_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = draw_plots(tmp_path, report(pressed()))
    assert [one.name for one in places] == ["press.png", "press.svg"]
    assert all(one.stat().st_size > 1000 for one in places)
    assert capsys.readouterr().err.startswith("plots: ")
    assert draw_plots(tmp_path, report(pressed())) == places, "its own are drawn anew"
    capsys.readouterr()
    assert draw_plots(tmp_path, report(result_of([run()]))) == []
    assert capsys.readouterr().err == ""
    assert draw_plots(tmp_path, report(result_of([run()])), required=True) == []
    assert capsys.readouterr().err == "no plot: the run holds no figure to draw\n"


def test_a_file_of_somebody_else_is_no_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "press.png").write_text("mine")
    (tmp_path / "press.svg").symlink_to(tmp_path / "press.png")
    with pytest.raises(BadInput, match=r"press\.png exists and is no plot of serve-bench"):
        draw_plots(tmp_path, report(pressed()), required=True)
    assert draw_plots(tmp_path, report(pressed())) == []
    assert capsys.readouterr().err.count("nothing is overwritten") == 2
    assert (tmp_path / "press.png").read_text() == "mine"


@pytest.mark.parametrize("command", ["/{}/logo", "../logo", "a\0b", ""])
def test_the_command_of_a_record_is_no_path(command: str, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with pytest.raises(BadInput, match="is no command of serve-bench"):
        draw_plots(tmp_path / "r", report(pressed(command.format(tmp_path))))
    assert [one.name for one in tmp_path.rglob("*")] == ["r"]
