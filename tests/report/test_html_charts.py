"""The charts of an HTML page: what stands in them, and that Vega-Lite takes them."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve_bench.report.theme import LIGHT, PAGE
from serve_bench.report.vega import HEAT, WHITE_FROM, vega
from serve_bench.view.charts import Bars, Dots, HeatCell
from serve_bench.view.document import Chart
from serve_bench.view.drawn import (
    BarPart,
    LinePoint,
    Mark,
    Point,
    heat_map,
    intervals,
    ladder,
    over_time,
    percentile_curves,
)

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
    return heat_map("t", cells, HOSTILE, "requests/s")


def stacked(parts: Sequence[BarPart]) -> Chart:
    return Chart("t", Bars(parts, "% of a core"), "w")


#: Every kind of chart, and what is unusual about its data.
CHARTS: dict[str, Callable[[], Chart]] = {
    "intervals": lambda: intervals("t", POINTS, "requests/s", "w"),
    "one point": lambda: intervals("t", [Point("a", "b", 3.0)], "ms", "w"),
    "below zero": lambda: intervals("t", [Point("a", "b", 1.0, -1.0, 3.0)], "ms", "w"),
    "hostile": lambda: intervals("t", [Point(HOSTILE, HOSTILE, 3.0)], HOSTILE, HOSTILE),
    "stacked": lambda: stacked(SHARES),
    "stacked hostile": lambda: stacked(
        [BarPart(HOSTILE, HOSTILE, 3.0, HOSTILE), BarPart("b", "c", 1.0)]
    ),
    "ratios": lambda: Chart("t", Dots(RATIOS, "B/A", 0.05), "w"),
    "ratio far off": lambda: Chart(
        "t", Dots([Point(HOSTILE, "inconclusive", 12.0, 0.0, 900.0)], "B/A", 0.05), "w"
    ),
    "heat map": lambda: heat([10.0, 55.0, 100.0]),
    "percentiles": lambda: percentile_curves("t", CURVES, "w"),
    "over time": lambda: over_time("t", WINDOWS, "requests/s", "w"),
    "many windows": lambda: over_time(
        "t", {HOSTILE: [(at, 10.0**at) for at in range(40)], "b": [(1, 2.0)]}, "ms", "w"
    ),
    "ladder": lambda: ladder(
        "t", STEPS, "clients", "requests/s", "w", [Mark(10, "knee"), Mark(500, HOSTILE)]
    ),
    "ladder, all log": lambda: ladder("t", STEPS, "clients", "ms", "w", log_y=True),
    "one step": lambda: ladder(
        "t", {"a": [LinePoint(7, 3.0)]}, "clients", "ms", "w", [Mark(7, "k")]
    ),
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
    chart = Chart("t", Dots(RATIOS, "B/A", 0.05), "w")
    (band,) = vega(chart)["layer"][0]["data"]["values"]
    assert (band["low"], band["high"], band["one"]) == (0.95, 1.05, 1)
    x = vega(chart)["layer"][0]["encoding"]["x"]
    ends = x["scale"]["domain"]
    assert ends[0] < 0.83 and ends[1] > 1.1
    unbounded = data(chart)[1]
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
    chart = percentile_curves("t", {**CURVES, "c": [(0.5, 1.0), (1.0, 9.0)]}, "w")
    given = [(name, *point) for name, points in CURVES.items() for point in points]
    found = [(one["group"], one["share"], one["value"]) for one in data(chart)]
    assert found == [*given, ("c", 0.5, 1.0)]  # a share of 1 has no place
    assert [one["x"] for one in data(chart)[:4]] == [2.0, 10.0, 100.0, 1000.0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: intervals("t", [], "ms", "w"),
        lambda: percentile_curves("t", {"a": [(1.0, 3.0)]}, "w"),
        lambda: percentile_curves("t", {"a": [(0.5, 0.0)]}, "w"),
        lambda: over_time("t", {}, "ms", "w"),
        lambda: ladder("t", {"a": []}, "clients", "ms", "w"),
        lambda: ladder("t", {"a": [LinePoint(0, 1.0)]}, "clients", "ms", "w"),
        lambda: ladder("t", {"a": [LinePoint(1, 1.0)]}, "clients", "ms", "w", [Mark(0, "m")]),
        lambda: ladder("t", {"a": [LinePoint(1, 0.0)]}, "clients", "ms", "w", log_y=True),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Chart]) -> None:
    with pytest.raises(ValueError):
        draw()
