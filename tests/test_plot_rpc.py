"""The figure of a rpc report: what it draws, what it says, what it refuses."""

from __future__ import annotations

import builtins
import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.parts.published import RPC, reference
from serve_bench.benchmarks.rpc.forms import benchmark_report
from serve_bench.benchmarks.rpc.plot import plot_rpc
from serve_bench.benchmarks.rpc.request import World
from serve_bench.benchmarks.rpc.stored import THEIRS, read_report
from serve_bench.benchmarks.rpc.summary import NAMES
from serve_bench.cli.show import draw_plots
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from tests.records import rpc_result, rpc_suite, rpc_trial, rpc_world

SIZES = [rpc_world(size) for size in (10, 20, 40)]


def measured(
    worlds: list[World], backends: tuple[str, ...] = ("torch",), x_axis: str = "world_size"
) -> Result:
    suite = rpc_suite(worlds, backends, x_axis=x_axis)
    trials = [
        rpc_trial(
            world,
            [100.0 * at * world.observers, 150.0 * at * world.observers],
            [180.0 * at * world.observers, 250.0 * at * world.observers],
            backend=name,
            suite=suite,
        )
        for at, name in enumerate(backends, 1)
        for world in worlds
    ]
    return rpc_result(suite, *trials)


def theirs() -> dict[str, Any]:
    """As PyTorch's own launcher writes it."""
    entries = []
    for one in reference(RPC)["example"]:
        metrics = {}
        for name in NAMES:
            values = one[name.removesuffix(" (seconds)").replace(" ", "_")]
            metrics[name] = dict(zip(("p50", "p75", "p90", "p95"), values, strict=True))
        entries.append({**metrics, "world_size": one["world_size"]})
    about = {"master_addr": "127.0.0.1", "master_port": "29501", "batch": True, "nlayers": 5}
    return {**about, "x_axis_name": "world_size", "benchmark_results": entries}


def words(report: dict[str, Any], **about: Any) -> str:
    """All texts of the figure."""
    svg = plot_rpc(report, "svg", **about).decode("utf-8")
    return "\n".join(re.findall(r">([^<>]+)</text>", svg))


def test_png_and_svg_are_what_they_are_called() -> None:
    report = benchmark_report(measured(SIZES))
    assert plot_rpc(report).startswith(b"\x89PNG\r\n")
    assert b"<svg" in plot_rpc(report, "svg")
    assert plot_rpc(report, "svg") == plot_rpc(report, "svg")


def test_the_figure_says_what_it_shows() -> None:
    text = words(benchmark_report(measured(SIZES, ("torch", "ray", "serve"))))
    for said in (
        "serve-bench rpc: one agent and its observers, over world_size",
        *("agent latency", "agent throughput", "observer latency", "observer throughput"),
        *("torch", "ray", "serve", "p50", "p75, p90", "p95"),
        "batch True, state_size 10-20-10, nlayers 5, out_features 10",
        "episode: 4 calls of each observer",
        "backend torch: python 3.12.1, torch 2.9.0",
        "run: r1, ",
        "host: Test CPU",
    ):
        assert said in text, said
    assert text.splitlines().count("world_size") == 4
    assert text.splitlines().count("40") >= 4  # each panel has a tick for it
    assert "PUBLISHED" not in text


@pytest.mark.parametrize(
    ("worlds", "x_axis", "ticks"),
    [
        ([rpc_world()], "world_size", ["10"]),
        ([rpc_world(10, True), rpc_world(10, False)], "batch", ["True", "False"]),
        (
            [rpc_world(), rpc_world(state_size=(15, 20, 25))],
            "state_size",
            ["10-20-10", "15-20-25"],
        ),
    ],
)
def test_points_that_are_no_numbers_are_marks_with_their_median(
    worlds: list[World], x_axis: str, ticks: list[str]
) -> None:
    text = words(benchmark_report(measured(worlds, x_axis=x_axis)))
    assert "p50; bars across at p75, p90, p95, each wider" in text
    assert set(ticks) <= set(text.splitlines())
    assert "0.900" in text.splitlines()  # 100 us x 9 observers


def test_numbers_far_apart_have_an_axis_that_shows_them_all() -> None:
    worlds = [rpc_world(nlayers=count) for count in (1, 5, 50)]
    text = words(benchmark_report(measured(worlds, x_axis="nlayers")))
    assert text.splitlines().count("nlayers (log)") == 4
    sizes = [rpc_world(size) for size in (10, 11, 12, 160, 161)]
    lines = words(benchmark_report(measured(sizes))).splitlines()
    assert lines.count("161") == 4 and "160" not in lines and "11" not in lines
    assert "ms (log)" in lines and "requests/s (log)" in lines


def test_a_backend_of_which_some_was_not_measured_is_drawn_as_far_as_it_goes() -> None:
    suite = rpc_suite(SIZES, ["torch", "ray"])
    trials = [rpc_trial(one, suite=suite) for one in SIZES]
    report = benchmark_report(rpc_result(suite, *trials, rpc_trial(SIZES[1], backend="ray")))
    drawn = read_report(report)
    assert [(one.name, list(one.points)) for one in drawn.curves] == [
        ("torch", ["10", "20", "40"]),
        ("ray", ["20"]),
    ]
    assert "ray" in words(report)


def test_a_report_of_pytorchs_own_launcher_is_drawn_too() -> None:
    drawn = read_report(theirs())
    (curve,) = drawn.curves
    assert (curve.name, list(curve.points), drawn.ours) == (THEIRS, ["10", "20"], {})
    assert curve.points["20"][NAMES[2]][95] == 0.007
    text = words(theirs())
    assert "PyTorch RPC, over world_size" in text
    assert "launcher rounds to whole ms and requests/s" in text
    once = theirs()
    once["benchmark_results"] = once["benchmark_results"][:1]
    del once["x_axis_name"], once["benchmark_results"][0]["world_size"]  # no argument was a list
    assert list(read_report({**once, "world_size": 10}).curves[0].points) == ["10"]
    zero = theirs()
    zero["benchmark_results"][0][NAMES[0]] = dict.fromkeys(("p50", "p75", "p90", "p95"), 0.0)
    assert "ms (log)" not in words(zero)


def test_the_example_is_named_as_published() -> None:
    text = words(benchmark_report(measured([rpc_world()])), published=True)
    assert "PUBLISHED, not measured here; hardware not named" in text
    assert "published: Distributed RPC Benchmark (PyTorch); the hardware is not named" in text
    assert text.splitlines().count("20") == 4
    assert "p50; bars across at p75, p90, p95, each wider" in text  # one world is no line
    assert "p75, p90" in words(benchmark_report(measured(SIZES)), published=True)
    for worlds, axis in (
        ([rpc_world(10, False), rpc_world(20, False)], "world_size"),
        ([rpc_world(10, True), rpc_world(10, False)], "batch"),
    ):
        report = benchmark_report(measured(worlds, x_axis=axis))
        assert "PUBLISHED" not in words(report, published=True)


def broken(*path: Any, to: Any = None) -> dict[str, Any]:
    """Our report with a key gone, or set to something else."""
    report: Any = json.loads(json.dumps(benchmark_report(measured(SIZES))))
    at = report
    for part in path[:-1]:
        at = at[part]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return report  # type: ignore[no-any-return]


def foreign(*path: Any, to: Any) -> dict[str, Any]:
    report = copy.deepcopy(theirs())
    at: Any = report
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = to
    return report


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ([], "it is no JSON object"),
        ({}, "benchmark_results is missing"),
        ({"benchmark_results": 3}, "benchmark_results is no list"),
        (foreign("benchmark_results", 0, to=7), "benchmark_results[0] is no JSON object"),
        (foreign("x_axis_name", to="batch"), "benchmark_results[0].batch is missing"),
        (foreign("x_axis_name", to=5), "x_axis_name is no text"),
        (
            foreign("benchmark_results", 1, NAMES[0], to=None),
            "benchmark_results[1].agent latency (seconds) is missing",
        ),
        (
            foreign("benchmark_results", 1, NAMES[3], "p75", to="404"),
            "benchmark_results[1].observer throughput.p75 is no number",
        ),
        (
            foreign("benchmark_results", 1, NAMES[3], "p75", to=True),
            "benchmark_results[1].observer throughput.p75 is no number",
        ),
        (
            foreign("benchmark_results", 0, NAMES[1], "p50", to=float("nan")),
            "benchmark_results[0].agent throughput.p50 is nan; it takes a number from 0 to 1e+15",
        ),
        (
            foreign("benchmark_results", 0, NAMES[1], "p50", to=-1),
            "benchmark_results[0].agent throughput.p50 is -1; it takes a number from 0 to 1e+15",
        ),
        (
            foreign("benchmark_results", 0, NAMES[1], "p50", to=10**400),
            "benchmark_results[0].agent throughput.p50 is inf; it takes a number from 0 to 1e+15",
        ),
        (broken("serve_bench", to=[1]), "serve_bench is no JSON object"),
        (broken("serve_bench", "backends"), "serve_bench.backends is missing"),
        (broken("serve_bench", "backends", "torch", to=1), "serve_bench.backends.torch is no list"),
        (
            broken("serve_bench", "backends", "torch", 1, "x"),
            "serve_bench.backends.torch[1].x is missing",
        ),
        (
            broken("serve_bench", "backends", "torch", 1, "metrics", NAMES[2], "p95"),
            "serve_bench.backends.torch[1].metrics.observer latency (seconds).p95 is missing",
        ),
        (
            broken("serve_bench", "host", to=[3]),
            "run, host, asked or client in serve_bench is not as we write it",
        ),
    ],
)
def test_what_is_no_report_is_one_line_that_names_the_key(report: Any, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        plot_rpc(report)
    assert str(refused.value) == f"plot: no report of rpc: {message}"
    with pytest.raises(BadInput) as named:
        plot_rpc(report, name="some.json")
    assert str(named.value) == f"some.json: no report of rpc: {message}"


def test_what_a_report_says_is_no_formula() -> None:
    assert "state_size $x^" in words(foreign("state_size", to="$x^"))


def test_a_report_without_a_figure_and_other_kinds_are_refused() -> None:
    with pytest.raises(BadInput, match="the report holds no figure"):
        plot_rpc(benchmark_report(rpc_result(rpc_suite(SIZES))))
    with pytest.raises(BadInput, match="plot: 'pdf' is not allowed; it takes png or svg"):
        plot_rpc(theirs(), "pdf")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return known(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadInput, match=r"pip install 'serve-bench\[plot\]'"):
        plot_rpc(theirs())


# --------------------------------------------------------------------------- in a run's folder


def test_the_plots_of_a_run_are_drawn_into_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = draw_plots(tmp_path, measured(SIZES))
    assert [place.name for place in places] == ["rpc.png", "rpc.svg"]
    assert sorted(place.name for place in tmp_path.iterdir()) == ["rpc.png", "rpc.svg"]
    assert capsys.readouterr().err == f"plots: {places[0]}, {places[1]}\n"


def test_a_run_of_which_nothing_was_measured_has_no_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = rpc_result(rpc_suite(SIZES))
    assert draw_plots(tmp_path, nothing) == []
    assert capsys.readouterr().err == ""
    assert draw_plots(tmp_path, nothing, asked=True) == []
    assert capsys.readouterr().err == "no plot: the run holds no measured world\n"
    assert list(tmp_path.iterdir()) == []
