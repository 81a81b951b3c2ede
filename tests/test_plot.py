"""The figure of a run of ladders: what it draws, what it says, what it refuses."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.ladder.plot import plot_ladders
from serve_bench.cli.show import draw_plots
from serve_bench.core.errors import BadInput
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric, Result, result_of
from tests.records import PRESS_CELL, press_result, press_trial, run

RATES = {1: 300.0, 10: 1500.0, 50: 1980.0, 100: 2000.0}
DEBUG = {**PRESS_CELL, "log_level": "DEBUG"}


def pressed(command: str = "press") -> Result:
    flat = [press_trial(users, qps) for users, qps in RATES.items()]
    falls = [press_trial(users, 0.7 * qps, of=DEBUG) for users, qps in RATES.items()]
    runs = [
        press_trial(500, qps, run=at, of=DEBUG, failed={"rejected": 900})
        for at, qps in enumerate((200.0, 900.0, 1300.0), 1)
    ]
    return press_result(*flat, *falls, *runs, command=command)


def words(result: Result, **about: Any) -> str:
    """All texts of the figure."""
    svg = plot_ladders(result, "svg", **about).decode("utf-8")
    return "\n".join(re.findall(r">([^<>]+)</text>", svg))


def test_png_and_svg_are_what_they_are_called() -> None:
    assert plot_ladders(pressed()).startswith(b"\x89PNG\r\n")
    assert b"<svg" in plot_ladders(pressed(), "svg")


def test_the_figure_says_what_it_shows() -> None:
    text = words(pressed())
    for said in (
        "serve-bench press: requests/s and latency",
        "clients at once (log)",
        "requests/s",
        "latency in ms (log)",
        "ERROR",
        "DEBUG",
        "knee: fewest with 95 % of the best",
        "collapse: below 80 % of the best",
        "some requests failed or were cut",
        "one run of a step measured again",
        "each of the clients is a connection and sends 100 requests",
        "run r1, ",
        "host: Test CPU",
    ):
        assert said in text, said
    assert "PUBLISHED" not in text
    assert "500" in text.splitlines()  # the last step has a tick


def test_marks_that_do_not_occur_are_not_explained() -> None:
    flat = press_result(*(press_trial(users, qps) for users, qps in RATES.items()))
    text = words(flat)
    assert "knee" in text
    assert not re.search("collapse|failed|measured again", text)


def test_latencies_that_are_only_lower_bounds_are_marked_and_explained() -> None:
    first, *others = (press_trial(users, qps) for users, qps in RATES.items())
    given_up = Histogram.of([30_000_000_000] * 10).encode()
    metrics = {**first.metrics, "censored": Metric("ns", "lower", histogram=given_up)}
    said = "latency is at least this: some had no answer"
    assert said in words(press_result(replace(first, metrics=metrics), *others))
    assert said not in words(press_result(first, *others))


def test_published_curves_are_named_as_such() -> None:
    text = words(pressed(), published=True)
    assert "PUBLISHED, not measured here: 2 x M40 GPU, one host" in text
    assert "CPU, level 2" in text and "CPU, level 5" in text
    assert "requests/s (log)" in text


def test_equal_runs_make_equal_files() -> None:
    assert plot_ladders(pressed(), "svg") == plot_ladders(pressed(), "svg")


def test_any_ladder_can_be_drawn() -> None:
    assert "serve-bench sweep: requests/s" in words(pressed("sweep"))


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (pressed(), "pdf", "plot: 'pdf' is not allowed; it takes png or svg"),
        (result_of([run()]), "png", "plot: the run holds no ladder with a measured step"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(result: Result, kind: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        plot_ladders(result, kind)
    assert str(refused.value) == message


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return known(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadInput, match=r"pip install 'serve-bench\[plot\]'"):
        plot_ladders(pressed())


@pytest.mark.parametrize("command", ["/{}/logo", "../logo", "a\0b", ""])
def test_the_command_of_a_record_is_no_path(command: str, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with pytest.raises(BadInput, match="is no command of serve-bench"):
        draw_plots(tmp_path / "r", pressed(command.format(tmp_path)))
    assert [one.name for one in tmp_path.rglob("*")] == ["r"]
