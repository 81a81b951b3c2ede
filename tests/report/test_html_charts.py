"""The charts of an HTML page: what stands in them, and that Vega-Lite takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from serve_bench.report.theme import DARK, LIGHT
from serve_bench.report.vega import vega
from serve_bench.view.charts import Bars
from serve_bench.view.document import Chart
from serve_bench.view.drawn import (
    BarPart,
    LinePoint,
    Mark,
    Point,
    Ratio,
    intervals,
    ladder,
    over_time,
    percentile_curves,
    ratios,
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
    Ratio("100 connections", "throughput", 0.853, 0.83, 0.878, "regressed"),
    Ratio("100 connections", "p99", 1.1, 0.98, math.inf, "inconclusive"),
    Ratio("single client", "throughput", 1.004, 0.991, 1.017, "same"),
)


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
    "ratios": lambda: ratios("t", RATIOS, 0.05, "w"),
    "ratio far off": lambda: ratios(
        "t", [Ratio(HOSTILE, HOSTILE, 12.0, 0.0, 900.0, "inconclusive")], 0.05, "w"
    ),
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


def everything(part: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf of a spec with the name of its field."""
    if isinstance(part, dict):
        for name, one in part.items():
            yield from everything(one, name)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from everything(one, key)
    else:
        yield key, part


@pytest.mark.parametrize("name", CHARTS)
def test_vega_lite_compiles_it(name: str) -> None:
    import vl_convert

    chart = CHARTS[name]()
    for theme in (LIGHT, DARK):
        compiled = vl_convert.vegalite_to_vega({**vega(chart), "config": theme})
        assert compiled["marks"]
    svg = vl_convert.vegalite_to_svg({**vega(chart), "width": 340, "config": LIGHT})
    assert "NaN" not in svg and "undefined" not in svg and "Infinity" not in svg


@pytest.mark.parametrize("name", CHARTS)
def test_texts_stand_in_data_and_never_in_an_expression(name: str) -> None:
    chart = CHARTS[name]()
    code = [
        str(leaf)
        for key, leaf in everything(vega(chart))
        if key in ("expr", "labelExpr", "filter", "calculate")
    ]
    assert code
    assert not any(part in one for one in code for part in ("script", "${x}", "variant"))
    json.dumps(vega(chart), allow_nan=False)


def test_a_bar_is_made_of_its_parts_in_one_order() -> None:
    chart = stacked(SHARES)
    assert [value["part"] for value in data(chart)] == ["proxy", "replica"] * 2
    for proxy, replica in (data(chart)[:2], data(chart)[2:]):
        assert proxy["start"] == 0.0
        assert proxy["end"] == proxy["value"] == replica["start"]
        assert replica["end"] == pytest.approx(proxy["value"] + replica["value"])
    totals = [one["total"] for one in vega(chart)["layer"][-1]["data"]["values"]]
    assert totals == pytest.approx([117.8, 165.4])


def test_ratios_stand_around_one() -> None:
    chart = ratios("t", RATIOS, 0.05, "w")
    band = vega(chart)["layer"][0]["data"]["values"]
    assert {(one["from"], one["to"], one["one"]) for one in band} == {(0.95, 1.05, 1)}
    axes = (layer["encoding"].get("x", {}) for layer in vega(chart)["layer"])
    x = next(axis for axis in axes if axis.get("type") == "quantitative")
    ends = x["scale"]["domain"]
    assert ends[0] < 0.83 and ends[1] > 1.1 and 1 in x["axis"]["values"]
    unbounded = data(chart)[1]
    assert unbounded["high"] is None and unbounded["to"] == ends[1]
    assert unbounded["between"] == "0.980 to inf"


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
        lambda: stacked([]),
        lambda: stacked([BarPart("a", "b", -1.0)]),
        lambda: ratios("t", [], 0.05, "w"),
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
