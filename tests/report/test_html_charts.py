"""The charts of an HTML page: what stands in them, and that Vega-Lite takes them."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve_bench.core.figures import LowerBound
from serve_bench.report.theme import LIGHT, PAGE
from serve_bench.report.vega import HEAT, WHITE_FROM, vega
from serve_bench.view.charts import AT_LEAST, Chart, Point, nines, split_lines

HOSTILE = "</script>\"'|, datum[0] ${x} \\"

POINTS = (
    Point("single client", 154.3, "default", 141.9, 166.7),
    Point("single client", 1668.0, "optimized", 1491.0, 1845.0),
    Point("100 connections", 374.6, "default"),
    Point("100 connections", 4552.0, "optimized", 3951.0, 5153.0),
)
SHARES = (
    Point("single client, limited by offered load", 69.2, "proxy"),
    Point("single client, limited by offered load", 48.6, "replica"),
    Point("100 connections", 71.5, "replica"),
    Point("100 connections", 93.9, "proxy"),
)
CURVES = (
    *(Point(nines(share), ms, "default") for share, ms in ((0.5, 252.7), (0.9, 362.1))),
    *(Point(nines(share), ms, "default") for share, ms in ((0.99, 457.4), (0.999, 629.0))),
    *(Point(nines(share), ms, "optimized") for share, ms in ((0.5, 21.2), (0.9999, 569.0))),
)
WINDOWS = (Point(0.5, 4611.0, "launch 1"), Point(1.5, 4404.0, "launch 1"), Point(0.5, 39.8, "2"))
STEPS = (
    Point(10, 1500.0, "DEBUG", 1350.0, 1620.0),
    Point(1, 300.0, "DEBUG"),
    *(Point(1, 330.0, "ERROR"), Point(500, 2200.0, "ERROR")),
)
RATIOS = (
    Point("100 connections, throughput", 0.853, "regressed", 0.83, 0.878),
    Point("100 connections, p99", 1.1, "inconclusive", 0.98, math.inf),
    Point("single client, throughput", 1.004, "same", 0.991, 1.017),
)


def dots(*points: Point, unit: str = "ms", **about: Any) -> Chart:
    return Chart("t", "dots", points, unit, **about)


def heat(values: Sequence[float]) -> Chart:
    cells = [Point(f"{at}", value, HOSTILE) for at, value in enumerate(values)]
    return Chart("t", "heat map", cells, "requests/s", HOSTILE)


def stacked(*parts: Point) -> Chart:
    return Chart("t", "bars", parts, "% of a core")


def ratios(*points: Point) -> Chart:
    return dots(*points, unit="B/A", threshold=0.05)


def curve(*points: Point) -> Chart:
    return Chart("t", "lines", points, "ms", "share", x_scale="share", log_y=True)


def course(*points: Point) -> Chart:
    return Chart("t", "lines", points, "requests/s", "seconds", x_scale="time", log_y=None)


def steps(*points: Point, **about: Any) -> Chart:
    return Chart("t", "lines", points or STEPS, "ms", "clients", x_scale="log", **about)


#: Every kind of chart, and what is unusual about its data.
CHARTS: dict[str, Callable[[], Chart]] = {
    "intervals": lambda: dots(*POINTS, unit="requests/s"),
    "one point": lambda: dots(Point("a", 3.0, "b")),
    "below zero": lambda: dots(Point("a", 1.0, "b", -1.0, 3.0)),
    "hostile": lambda: dots(Point(HOSTILE, 3.0, HOSTILE), unit=HOSTILE, caption=HOSTILE),
    "stacked": lambda: stacked(*SHARES),
    "stacked hostile": lambda: stacked(Point(HOSTILE, 3.0, HOSTILE), Point("b", 1.0, "c")),
    "ratios": lambda: ratios(*RATIOS),
    "ratio far off": lambda: ratios(Point(HOSTILE, 12.0, "inconclusive", 0.0, 900.0)),
    "heat map": lambda: heat([10.0, 55.0, 100.0]),
    "percentiles": lambda: curve(*CURVES),
    "over time": lambda: course(*WINDOWS),
    "many windows": lambda: course(*(Point(at, 10.0**at, HOSTILE) for at in range(40))),
    "ladder": lambda: steps(marks=[(10, "knee"), (500, HOSTILE)]),
    "ladder, all log": lambda: steps(log_y=True),
    "one step": lambda: steps(Point(7, 3.0, "a"), marks=[(7, "k")]),
    "dashed": lambda: steps(*STEPS, Point(2, 9.0, "y"), things={"DEBUG": "x", "ERROR": "x"}),
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
    values = data(stacked(*SHARES))
    assert [value["order"] for value in values] == [0, 1, 1, 0]
    assert [value["value"] for value in values] == [share.value for share in SHARES]
    assert values[0]["line"] == "single client, limited by\noffered load"


def test_ratios_stand_around_one() -> None:
    first, *layers = vega(ratios(*RATIOS))["layer"]
    (band,) = first["data"]["values"]
    assert (band["low"], band["high"], band["one"]) == (0.95, 1.05, 1) and layers
    ends = first["encoding"]["x"]["scale"]["domain"]
    assert ends[0] < 0.83 and ends[1] > 1.1
    unbounded = data(ratios(*RATIOS))[1]
    assert unbounded["high"] == ends[1] and unbounded["text"].endswith("1.100 B/A (0.980 to inf)")


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
    found = data(curve(*CURVES))
    assert [one["x"] for one in found] == [2.0, 10.0, 100.0, 1000.0, 2.0, 10000.0]
    assert found[-1]["text"] == "optimized, 99.99 %: 569 ms"


def test_a_chart_says_its_figures_or_of_many_the_ends() -> None:
    said = vega(steps(*STEPS[1:3]))["description"]
    assert said == "t, 2 figures: DEBUG, clients 1: 300 ms; ERROR, clients 1: 330 ms."
    said = vega(steps(*(Point(at, 100.0 + at, "a") for at in range(1, 30))))["description"]
    assert said == "t, 29 figures: a, clients 29: 129 ms; a, clients 1: 101 ms."


def test_many_lines_stand_in_several_charts_and_lower_bounds_are_explained() -> None:
    points = [Point(1, LowerBound(at) if at == 10 else at, f"s{at}") for at in range(1, 11)]
    first, second = split_lines(Chart("t", "lines", points, "ms", "clients", "c."))
    assert (first.title, second.title) == ("t, part 1 of 2", "t, part 2 of 2")
    assert [*first.series, *second.series] == [f"s{at}" for at in range(1, 11)]
    assert (first.caption, second.caption) == ("c.", f"c. {AT_LEAST}")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: dots(),
        lambda: curve(Point(2.0, 0.0, "a")),
        lambda: course(),
        lambda: steps(Point(0, 1.0, "a")),
        lambda: steps(Point(1, 1.0, "a"), marks=[(0, "m")]),
        lambda: steps(Point(1, 0.0, "a"), log_y=True),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Chart]) -> None:
    with pytest.raises(ValueError):
        draw()
