"""The figure of a curve of scale: what it draws, what it says, what it refuses."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.scale.plot import plot_scale
from serve_bench.cli.show import draw_plots
from serve_bench.core.errors import BadInput
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric, Result
from tests.scale_records import (
    curve_trials,
    planned,
    scale_node,
    scale_result,
    scale_suite,
    scale_trial,
)

pytest.importorskip("matplotlib")

LAWS = {
    "throughput": (900.0, -0.1),
    "deploy_time": (2.0, 0.7),
    "memory_per_replica": (70.0, 0.0),
    "cpu_per_request": (900.0, 0.05),
    "controller_loop": (3.0, 1.0),
    "teardown_time": (1.0, 0.5),
}


def curve(
    *variants: str, replicas: tuple[int, ...] = (1, 2, 4, 8), launches: int = 1, **laws: Any
) -> Result:
    suite = scale_suite("curve", variants or ("default",), replicas=replicas, launches=launches)
    trials = [
        one
        for variant in suite.variants
        for round_ in range(1, launches + 1)
        for one in curve_trials(suite, laws or LAWS, variant=variant.name, round_=round_)
    ]
    return scale_result(suite, *trials)


def words(result: Result) -> str:
    """All texts of the figure."""
    svg = plot_scale(result, "svg").decode("utf-8")
    return "\n".join(re.findall(r">([^<>]+)</text>", svg))


def marks(result: Result) -> int:
    """Points that were drawn, those of the legend too."""
    return plot_scale(result, "svg").decode("utf-8").count("<use ")


def test_png_and_svg_are_what_they_are_called_and_alike_each_time() -> None:
    result = curve()
    assert plot_scale(result).startswith(b"\x89PNG\r\n")
    assert b"<svg" in plot_scale(result, "svg")
    assert plot_scale(result, "svg") == plot_scale(result, "svg")


def test_each_quantity_has_a_panel_with_its_exponent() -> None:
    said = words(curve())
    for title in (
        *("throughput", "latency", "deploy time", "teardown time", "memory per replica"),
        *("CPU per request", "controller loop"),
    ):
        assert f"\n{title}\n" in f"\n{said}\n", title
    for exponent in (
        *("n^-0.10 ± 0.00", "n^0.70 ± 0.00", "n^0.50 ± 0.00", "n^0.00 ± 0.00", "n^1.00 ± 0.00"),
        *("p50 n^0.10 ± 0.00", "p99 n^0.10 ± 0.00"),
    ):
        assert exponent in said, exponent
    assert "replicas (log)" in said and "Test CPU" in said and "run r1" in said
    assert said.count("variant default") == 1


def test_several_variants_stand_in_one_picture() -> None:
    said = words(curve("default", "a_{b}$c$"))
    assert "variant default" in said and "variant a_{b}$c$" in said  # no formula
    assert said.count("n^0.70 ± 0.00") == 2


def test_every_launch_has_its_point() -> None:
    # Eight quantities at four sizes; the axes' own ticks do not change.
    assert marks(curve(launches=3)) - marks(curve()) == 2 * 4 * 8


def test_latencies_that_are_only_lower_bounds_are_marked_and_explained() -> None:
    result = curve()
    given_up = Histogram.of([30_000_000_000] * 1000).encode()
    first, *others = result.trials
    metrics = {**first.metrics, "censored": Metric("ns", "lower", histogram=given_up)}
    left_open = replace(result, trials=(replace(first, metrics=metrics), *others))
    said = "at least this: some had no answer"
    assert said in words(left_open) and said not in words(result)


def test_two_sizes_have_points_and_no_fit() -> None:
    said = words(curve(replicas=(1, 2)))
    assert "no fit" in said and "n^" not in said.replace("a n^b", "")
    assert plot_scale(curve(replicas=(4,))).startswith(b"\x89PNG")


def test_what_was_not_measured_has_no_panel_and_zero_no_point() -> None:
    said = words(curve(deploy_time=(2.0, 1.0), teardown_time=(0.0, 0.0)))
    assert "deploy time" in said and "controller loop" not in said
    assert "teardown time" not in said


def test_an_invalid_run_says_so_in_the_picture() -> None:
    suite = scale_suite("curve", replicas=(1, 2))
    trials = [
        scale_trial(
            planned(suite, replicas=size)[0],
            [scale_node(1)],
            failed={"timeout": 100},
            metrics={"deploy_time": ("s", 1.0)},
        )
        for size in (1, 2)
    ]
    said = words(scale_result(suite, *trials))
    assert "(INVALID: see below)" in said
    assert "INVALID, default, 1 replica: 25 % of the requests failed" in said
    assert "(and 1 more)" in said


def test_what_cannot_be_drawn_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match="'pdf' is not allowed; it takes png or svg"):
        plot_scale(curve(), "pdf")
    suite = scale_suite("single")
    (of,) = planned(suite)
    with pytest.raises(BadInput, match="no curve with a measured size"):
        plot_scale(scale_result(suite, scale_trial(of, [scale_node(1)])))
    with pytest.raises(BadInput, match="no curve with a measured size"):
        plot_scale(scale_result(scale_suite("curve")))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r"serve-bench\[plot\]"):
        plot_scale(curve())


def test_the_plots_of_a_curve_lie_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = draw_plots(tmp_path, curve())
    assert [one.name for one in places] == ["scale.png", "scale.svg"]
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert "plots: " in capsys.readouterr().err


def test_of_another_workload_there_is_none_and_only_who_asks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = scale_suite("single")
    (of,) = planned(suite)
    result = scale_result(suite, scale_trial(of, [scale_node(1)]))
    assert draw_plots(tmp_path, result) == []
    assert capsys.readouterr().err == ""
    assert draw_plots(tmp_path, result, asked=True) == []
    assert capsys.readouterr().err == "no plot: the run holds no curve with a measured size\n"
    assert not list(tmp_path.iterdir())
