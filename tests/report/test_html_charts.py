"""The charts of an HTML page: what stands in them, and that Vega-Lite takes them."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve_bench.report.theme import LIGHT, PAGE
from serve_bench.report.vega import HEAT, WHITE_FROM, vega
from serve_bench.view import charts
from serve_bench.view.blocks import course_charts, percentile_charts
from serve_bench.view.charts import BarPart, Bars, Chart, Dots, HeatCell, LinePoint, Mark, Point

HOSTILE = "</script>\"'|, datum[0] ${x} \\"

POINTS = (
    Point("single client", "default", 154.3, 141.9, 166.7),
    Point("single client", "optimized", 1668.0, 1491.0, 1845.0),
    Point("100 connections", "default", 374.6),
    Point("100 connections", "optimized", 4552.0, 3951.0, 5153.0),
)
SHARES = (
    BarPart("single client", "proxy", 69.2, "limited by offered load"),
    BarPart("single client", "replica", 48.6, "limited by offered load"),
    BarPart("100 connections", "replica", 71.5, "limited by proxy"),
    BarPart("100 connections", "proxy", 93.9, "limited by proxy"),
)
CURVES = {
    "default": [(0.5, 252.7), (0.9, 362.1), (0.99, 457.4), (0.999, 629.0)],
    "optimized": [(0.5, 21.2), (0.9, 28.7), (0.99, 50.9), (0.9999, 569.0)],
}
WINDOWS = {"launch 1": [(0.5, 4611.0), (1.5, 4404.0)], "launch 2": [(0.5, 3988.0)]}
STEPS = {
    "DEBUG": [LinePoint(10, 1500.0, 1350.0, 1620.0), LinePoint(1, 300.0), LinePoint(500, 900.0)],
    "ERROR": [LinePoint(1, 330.0), LinePoint(10, 1700.0), LinePoint(500, 2200.0)],
}
RATIOS = (
    Point("100 connections, throughput", "regressed", 0.853, 0.83, 0.878),
    Point("100 connections, p99", "inconclusive", 1.1, 0.98, math.inf),
    Point("single client, throughput", "same", 1.004, 0.991, 1.017),
)


def heat(values: Sequence[float]) -> Chart:
    cells = [HeatCell(f"{at}", HOSTILE, value, f"{value}") for at, value in enumerate(values)]
    return Chart("t", charts.HeatMap(cells, HOSTILE, "requests/s"))


def stacked(parts: Sequence[BarPart]) -> Chart:
    return Chart("t", Bars(parts, "% of a core"))


def ratios(*points: Point) -> Chart:
    return Chart("t", Dots(points, "B/A", 0.05))


def curve(*points: tuple[float, float]) -> Chart:
    (chart,) = percentile_charts("t", {**CURVES, "c": points})
    return chart


def course(**series: Sequence[tuple[float, float]]) -> Chart:
    (chart,) = course_charts("t", series, "requests/s")
    return chart


def steps(*marks: Mark, log_y: bool = False, **series: Sequence[LinePoint]) -> Chart:
    return charts.ladder("t", series or STEPS, "clients", "ms", marks, log_y=log_y)


#: Every kind of chart, and what is unusual about its data.
CHARTS: dict[str, Callable[[], Chart]] = {
    "intervals": lambda: Chart("t", Dots(POINTS, "requests/s")),
    "one point": lambda: Chart("t", Dots([Point("a", "b", 3.0)], "ms")),
    "below zero": lambda: Chart("t", Dots([Point("a", "b", 1.0, -1.0, 3.0)], "ms")),
    "hostile": lambda: Chart("t", Dots([Point(HOSTILE, HOSTILE, 3.0)], HOSTILE), caption=HOSTILE),
    "stacked": lambda: stacked(SHARES),
    "stacked hostile": lambda: stacked(
        [BarPart(HOSTILE, HOSTILE, 3.0, HOSTILE), BarPart("b", "c", 1.0)]
    ),
    "ratios": lambda: ratios(*RATIOS),
    "ratio far off": lambda: ratios(Point(HOSTILE, "inconclusive", 12.0, 0.0, 900.0)),
    "heat map": lambda: heat([10.0, 55.0, 100.0]),
    "percentiles": lambda: curve((0.5, 1.0)),
    "over time": lambda: course(**WINDOWS),
    "many windows": lambda: course(**{HOSTILE: [(at, 10.0**at) for at in range(40)]}),
    "ladder": lambda: steps(Mark(10, "knee"), Mark(500, HOSTILE)),
    "ladder, all log": lambda: steps(log_y=True),
    "one step": lambda: steps(Mark(7, "k"), a=[LinePoint(7, 3.0)]),
}


def data(chart: Chart) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = vega(chart)["data"]["values"]
    return values


def expressions(part: Any) -> Iterator[str]:
    """Each piece of code in a spec."""
    for name, inner in part.items() if isinstance(part, dict) else enumerate(part):
        if name in ("expr", "labelExpr", "filter", "calculate", "test"):
            yield str(inner)
        elif isinstance(inner, dict | list | tuple):
            yield from expressions(inner)


@pytest.mark.parametrize("name", CHARTS)
def test_vega_lite_compiles_it_and_no_text_stands_in_an_expression(name: str) -> None:
    import vl_convert

    chart = CHARTS[name]()
    assert vl_convert.vegalite_to_vega({**vega(chart), "config": PAGE})["marks"]
    svg = vl_convert.vegalite_to_svg({**vega(chart, 340), "config": LIGHT})
    assert "NaN" not in svg and "undefined" not in svg and "Infinity" not in svg
    assert "light-dark" not in svg
    code = list(expressions(vega(chart)))
    assert code
    assert not any(part in one for one in code for part in ("script", "${x}", "variant"))
    json.dumps(vega(chart), allow_nan=False)


def test_a_bar_is_made_of_its_parts_in_one_order() -> None:
    values = data(stacked(SHARES))
    assert [value["order"] for value in values] == [0, 1, 1, 0]
    assert [value["value"] for value in values] == [share.value for share in SHARES]
    assert values[0]["line"] == "0|single client|limited by offered load"


def test_ratios_stand_around_one() -> None:
    first, *layers = vega(ratios(*RATIOS))["layer"]
    (band,) = first["data"]["values"]
    assert (band["low"], band["high"], band["one"]) == (0.95, 1.05, 1) and layers
    ends = first["encoding"]["x"]["scale"]["domain"]
    assert ends[0] < 0.83 and ends[1] > 1.1
    unbounded = data(ratios(*RATIOS))[1]
    assert unbounded["high"] == ends[1] and unbounded["text"].endswith("(0.980 x to inf x)")


def test_a_matrix_has_its_figures_on_colours_that_they_can_be_read_on() -> None:
    values = data(CHARTS["heat map"]())
    assert [value["shown"] for value in values] == ["10.00", "55.00", "100.0"]
    assert [value["size"] for value in values] == [0.0, 0.5, 1.0]
    assert [value["size"] for value in data(heat([1.0, 10.0, 100.0]))] == [0.0, 0.5, 1.0], "log"
    ends = [[int(end[at : at + 2], 16) for at in (1, 3, 5)] for end in HEAT]
    for share in (0.0, WHITE_FROM - 0.01, WHITE_FROM, 1.0):
        mixed = [low + share * (high - low) for low, high in zip(*ends, strict=True)]
        linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in mixed]
        ground = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        assert (1.05 / ground if share >= WHITE_FROM else ground / 0.05) > 4.5  # WCAG 1.4.3


def test_a_percentile_is_drawn_by_its_nines() -> None:
    found = data(curve((0.5, 1.0)))
    given = [(name, *point) for name, points in CURVES.items() for point in points]
    assert [(one["group"], one["share"], one["value"]) for one in found] == [*given, ("c", 0.5, 1)]
    assert [one["x"] for one in found[:4]] == [2.0, 10.0, 100.0, 1000.0]


def test_a_chart_without_words_says_its_ends() -> None:
    said = vega(steps())["description"]
    assert said == "t, 6 figures: ERROR, clients 500: 2,200 ms; DEBUG, clients 1: 300.0 ms."


@pytest.mark.parametrize(
    "draw",
    [
        lambda: Chart("t", Dots([], "ms")),
        lambda: curve((1.0, 3.0)),
        lambda: curve((0.5, 0.0)),
        lambda: course(a=[]),
        lambda: steps(a=[LinePoint(0, 1.0)]),
        lambda: steps(Mark(0, "m"), a=[LinePoint(1, 1.0)]),
        lambda: steps(log_y=True, a=[LinePoint(1, 0.0)]),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Chart]) -> None:
    with pytest.raises(ValueError):
        draw()
