"""The charts of an HTML page: what stands in them, and that Vega-Lite takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from serve_bench.benchmarks.parts.charts import (
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
    stacked,
)
from serve_bench.core.document import Chart
from serve_bench.report.theme import DARK, LIGHT, looks_of
from serve_bench.report.vega import FITS, LINE, VERDICTS, broken, siblings, vega
from tests.html_sample import contrast

HOSTILE = "</script>\"'|, datum[0] ${x} \\"
LONG = "max_batch_size 1, max_ongoing_requests 10000, num_replicas 1, log_level DEBUG"

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


def name_of(number: int) -> str:
    return f"variant {number} with HTTP options"


#: Every kind of chart, and what is unusual about its data.
CHARTS: dict[str, Callable[[], Chart]] = {
    "intervals": lambda: intervals("t", POINTS, "requests/s", "w"),
    "one point": lambda: intervals("t", [Point("a", "b", 3.0)], "ms", "w"),
    "no interval, zero": lambda: intervals("t", [Point("a", "b", 0.0)], "requests/s", "w"),
    "below zero": lambda: intervals("t", [Point("a", "b", 1.0, -1.0, 3.0)], "ms", "w"),
    "8 groups": lambda: intervals(
        "t", [Point("a", name_of(at), 10.0 * at) for at in range(1, 9)], "ms", "w"
    ),
    "four orders": lambda: intervals(
        "t", [Point(LONG, "a", 10.0**at) for at in range(5)], "requests/s", "w"
    ),
    "hostile": lambda: intervals("t", [Point(HOSTILE, HOSTILE, 3.0)], HOSTILE, HOSTILE),
    "stacked": lambda: stacked("t", SHARES, "% of a core", "w"),
    "stacked hostile": lambda: stacked(
        "t", [BarPart(HOSTILE, HOSTILE, 3.0, HOSTILE), BarPart("b", "c", 1.0)], "%", "w"
    ),
    "all idle": lambda: stacked("t", [BarPart("a", "b", 0.0)], "%", "w"),
    "ratios": lambda: ratios("t", RATIOS, 0.05, "w"),
    "ratio far off": lambda: ratios(
        "t", [Ratio(HOSTILE, HOSTILE, 12.0, 0.0, 900.0, "inconclusive")], 0.05, "w"
    ),
    "percentiles": lambda: percentile_curves("t", CURVES, "w"),
    "one percentile": lambda: percentile_curves("t", {"a": [(0.5, 3.0)]}, "w"),
    "many percentiles": lambda: percentile_curves(
        "t", {HOSTILE: [(at / 100, 1.0 + at) for at in range(100)], "b": [(0.5, 1.0)]}, "w"
    ),
    "over time": lambda: over_time("t", WINDOWS, "requests/s", "w"),
    "one window": lambda: over_time("t", {"a": [(0.5, 0.0)]}, "requests/s", "w"),
    "many windows": lambda: over_time(
        "t", {HOSTILE: [(at, 10.0**at) for at in range(40)], "b": [(1, 2.0)]}, "ms", "w"
    ),
    "ladder": lambda: ladder(
        "t", STEPS, "clients", "requests/s", "w", [Mark(10, "knee"), Mark(500, HOSTILE)]
    ),
    "ladder, all linear": lambda: ladder(
        "t", {"a": [LinePoint(0, 1.0), LinePoint(3, 2.0)]}, "nodes", "s", "w", log_x=False
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


@pytest.mark.parametrize("name", CHARTS)
def test_the_page_gives_size_and_colours(name: str) -> None:
    chart = CHARTS[name]()
    assert chart.title == "t"
    assert vega(chart)["width"] == "container"
    assert vega(chart)["height"] >= LINE
    assert vega(chart)["description"] == chart.words
    colours = [leaf for key, leaf in everything(vega(chart)) if str(leaf).startswith("#")]
    assert set(colours) <= {colour for colour, _ in VERDICTS.values()}


# ------------------------------------------------------------------------------ what is drawn


def test_intervals_hold_the_points_as_they_were_given() -> None:
    chart = intervals("t", POINTS, "requests/s", "w", "cap")
    fields = ("label", "group", "value", "low", "high")
    assert [Point(**{name: one[name] for name in fields}) for one in data(chart)] == list(POINTS)
    assert [one["shown"] for one in data(chart)] == ["154.3", "1,668", "374.6", "4,552"]
    assert [one["between"] for one in data(chart)][1:3] == ["1,491 to 1,845", "-"]
    assert chart.caption == "cap"
    assert vega(chart)["height"] == (2 + 4) * LINE  # a heading for each label


def test_rows_of_one_label_stand_together() -> None:
    mixed = intervals("t", [POINTS[0], POINTS[2], POINTS[1]], "", "w")
    assert [one["value"] for one in data(mixed)] == [154.3, 1668.0, 374.6]


def test_short_labels_stand_beside_their_line_and_long_ones_above() -> None:
    short = intervals("t", [Point("a", "g", 1.0), Point("b", "g", 2.0)], "ms", "w")
    assert [one["line"] for one in data(short)] == ["0|a", "1|b"]
    assert vega(short)["height"] == 2 * LINE
    long = intervals("t", [Point(LONG, "g", 1.0)], "ms", "w")
    words = [one["words"] for one in vega(long)["layer"][0]["data"]["values"]]
    assert " ".join(words) == LONG
    assert vega(long)["height"] == (len(words) + 1) * LINE


def test_long_words_are_broken_behind_commas() -> None:
    assert broken(LONG) == [
        "max_batch_size 1, max_ongoing_requests 10000,",
        "num_replicas 1, log_level DEBUG",
    ]
    assert all(len(line) <= FITS + 1 for line in broken("x" * 200))
    assert broken("bs1-ongoing10000-rep8") == ["bs1-ongoing10000-rep8"]
    assert broken("") == []


def x_of(chart: Chart) -> dict[str, Any]:
    return next(
        layer["encoding"]["x"]
        for layer in vega(chart)["layer"]
        if layer["encoding"].get("x", {}).get("type") == "quantitative"
    )


def y_of(chart: Chart) -> dict[str, Any]:
    y: dict[str, Any] = vega(chart)["layer"][-1]["encoding"]["y"]
    return y


def test_values_that_differ_by_a_factor_of_100_have_a_log_axis_others_begin_at_zero() -> None:
    far = x_of(intervals("t", [Point("a", "g", 1.0), Point("b", "g", 100.0)], "requests/s", "w"))
    assert far["scale"]["type"] == "log"
    assert far["title"] == "requests/s (log)"
    assert far["scale"]["domain"][0] < 1.0 and far["scale"]["domain"][1] > 100.0
    near = x_of(intervals("t", [Point("a", "g", 1.0), Point("b", "g", 99.0)], "requests/s", "w"))
    assert near["scale"]["type"] == "linear" and near["scale"]["domain"][0] == 0.0
    assert y_of(over_time("t", {"a": [(0, 1.0), (1, 200.0)]}, "ms", "w"))["title"] == "ms (log)"
    assert y_of(over_time("t", {"a": [(0, 0.0), (1, 200.0)]}, "ms", "w"))["title"] == "ms"


def test_a_bar_is_made_of_its_parts_in_one_order() -> None:
    chart = stacked("t", SHARES, "% of a core", "w")
    bars = [(one["label"], one["part"], one["value"]) for one in data(chart)]
    assert bars == [
        ("single client", "proxy", 69.2),
        ("single client", "replica", 48.6),
        ("100 connections", "proxy", 93.9),
        ("100 connections", "replica", 71.5),
    ]
    for proxy, replica in (data(chart)[:2], data(chart)[2:]):
        assert proxy["start"] == 0.0
        assert proxy["end"] == proxy["value"] == replica["start"]
        assert replica["end"] == pytest.approx(proxy["value"] + replica["value"])
    assert [one["shown"] for one in data(chart)] == ["69", "49", "94", "72"]
    notes = [
        one["words"]
        for layer in vega(chart)["layer"]
        if layer["mark"].get("style") == "note"
        for one in layer["data"]["values"]
    ]
    assert notes == ["limited by offered load", "limited by proxy"]
    totals = [one["total"] for one in vega(chart)["layer"][-1]["data"]["values"]]
    assert totals == pytest.approx([117.8, 165.4])


def test_ratios_stand_around_one() -> None:
    chart = ratios("t", RATIOS, 0.05, "w")
    fields = ("label", "metric", "ratio", "low", "word")
    given = [tuple(getattr(one, name) for name in fields) for one in RATIOS]
    assert [tuple(one[name] for name in fields) for one in data(chart)] == given
    band = vega(chart)["layer"][0]["data"]["values"]
    assert {(one["from"], one["to"], one["one"]) for one in band} == {(0.95, 1.05, 1)}
    ends = x_of(chart)["scale"]["domain"]
    assert ends[0] < 0.83 and ends[1] > 1.1
    assert 1 in x_of(chart)["axis"]["values"]
    unbounded = data(chart)[1]
    assert unbounded["high"] is None and unbounded["to"] == ends[1]
    assert unbounded["between"] == "0.980 to inf"
    assert data(chart)[0]["shown"] == "0.853 x"


def test_verdicts_are_told_apart_by_colour_and_by_shape() -> None:
    colours, shapes = zip(*VERDICTS.values(), strict=True)
    assert len(set(colours)) == len(set(shapes)) == len(VERDICTS) == 6
    look = vega(ratios("t", RATIOS, 0.05, "w"))["layer"][-2]["encoding"]
    for channel, at in (("color", 0), ("shape", 1)):
        named = dict(
            zip(look[channel]["scale"]["domain"], look[channel]["scale"]["range"], strict=True)
        )
        assert named == {word: VERDICTS[word][at] for word in ("regressed", "same", "inconclusive")}


def test_a_percentile_is_drawn_by_its_nines() -> None:
    chart = percentile_curves("t", {**CURVES, "c": [(0.5, 1.0), (1.0, 9.0)]}, "w")
    given = [(name, *point) for name, points in CURVES.items() for point in points]
    found = [(one["group"], one["share"], one["value"]) for one in data(chart)]
    assert found == [*given, ("c", 0.5, 1.0)]  # a share of 1 has no place
    assert [one["x"] for one in data(chart)[:4]] == [2.0, 10.0, 100.0, 1000.0]
    x = x_of(chart)
    low, high = x["scale"].pop("domain")
    assert x["scale"] == {"type": "log", "nice": False}
    assert 1.5 < low < 2.0 and 10_000 < high < 14_000, "the ends stand off the axis"
    assert x["axis"]["values"] == [2.0, 10.0, 100.0, 1000.0, 10000.0]
    assert y_of(chart)["scale"]["type"] == "log"


def test_windows_and_steps_stand_as_they_were_given() -> None:
    chart = over_time("t", WINDOWS, "requests/s", "w")
    given = [(name, *point) for name, points in WINDOWS.items() for point in points]
    assert [(one["group"], one["x"], one["value"]) for one in data(chart)] == given
    chart = ladder("t", STEPS, "clients", "requests/s", "w")
    fields = ("x", "value", "low", "high")
    found = [LinePoint(**{name: one[name] for name in fields}) for one in data(chart)[:3]]
    assert found == sorted(STEPS["DEBUG"], key=lambda step: step.x)
    assert x_of(chart)["axis"]["values"] == [1, 10, 500]
    assert y_of(chart)["scale"]["domain"][0] == 0.0


def test_time_begins_at_zero() -> None:
    chart = over_time("t", {"a": [(0.5, 1.0), (1.5, 2.0)]}, "ms", "w")
    low, high = x_of(chart)["scale"]["domain"]
    assert low == 0.0 and 1.5 <= high < 1.6


def test_of_many_points_a_dozen_have_a_shape_and_all_speak() -> None:
    line = [(at, 1.0) for at in range(150)]
    alone = over_time("t", {"a": line}, "ms", "w")
    assert not any("dot" in one for one in data(alone)), "there is nothing to tell it from"
    chart = over_time("t", {"a": line, "b": line}, "ms", "w")
    assert sum("dot" in one for one in data(chart)) == 2 * 12
    said = [layer for layer in vega(chart)["layer"] if "tooltip" in layer["encoding"]]
    assert [layer["transform"][0]["filter"] for layer in said] == ["datum.dot", "!datum.dot"]


def test_many_readings_over_requests_stand_over_round_numbers() -> None:
    """Of a soak: its readings are no steps that anyone chose."""
    readings = {"a": [LinePoint(0.0017 * (at + 1), 1.0) for at in range(60)]}
    axis = x_of(ladder("t", readings, "million requests", "MB", "w", log_x=False))["axis"]
    assert "values" not in axis and axis["tickCount"] > 2


def test_a_ladder_names_its_last_step_and_none_twice() -> None:
    steps = [LinePoint(x, 1.0) for x in (1, 10, 20, 50, 100, 200, 500, 1000, 1500, 2000, 3000)]
    ticks = x_of(ladder("t", {"a": steps}, "clients", "ms", "w"))["axis"]["values"]
    assert ticks[0] == 1 and ticks[-1] == 3000
    apart = [math.log(two / one) for one, two in pairwise(ticks)]
    assert min(apart) >= math.log(3000) / 9


@pytest.mark.parametrize("places", [(1, 2, 20), (50, 300, 500, 20)])
def test_no_rule_of_a_mark_goes_through_the_words_of_another(places: tuple[int, ...]) -> None:
    marks = [Mark(x, "words") for x in places]
    drawn = vega(ladder("t", STEPS, "clients", "requests/s", "w", marks))["layer"]
    own = drawn[: 2 * len(marks)]
    rules = {one["data"]["values"][0]["x"]: one["encoding"]["y"]["value"] for one in own[::2]}
    texts = {
        one["data"]["values"][0]["x"]: (one["encoding"]["y"]["value"], one["mark"]["align"])
        for one in own[1::2]
    }
    assert set(texts) == set(places)
    (align,) = {align for _, align in texts.values()}
    assert align == ("left" if max(places) < 100 else "right")  # towards the side with room
    for x, (up, _) in texts.items():
        beside = [other for other in places if (other > x if align == "left" else other < x)]
        assert all(rules[other] > up for other in beside)  # ends below these words


def test_one_series_needs_no_legend() -> None:
    alone, several = (over_time("t", series, "ms", "w") for series in ({"a": [(0, 1.0)]}, WINDOWS))
    assert vega(alone, 470)["layer"][0]["encoding"]["color"]["legend"] is None
    assert vega(several, 470)["layer"][0]["encoding"]["color"]["legend"]["orient"] == "top"
    assert vega(alone)["usermeta"] == {"zoom": True}
    meta = vega(several)["usermeta"]["legend"]
    assert [one["name"] for one in meta["entries"]] == list(WINDOWS) and not meta["fixed"]
    colour = vega(several)["layer"][0]["encoding"]["color"]
    assert colour["scale"]["domain"] == ["launch 1", "launch 2"]
    assert colour["legend"] is None, "the page has its own"


def test_charts_beside_each_other_share_a_scale_unless_one_would_be_lost_on_it() -> None:
    def line(top: float, unit: str = "ms") -> Chart:
        return over_time("t", {"a": [(0.0, 1.0), (9.0, top)]}, unit, "w")

    def end(chart: Chart, beside: list[Chart]) -> float:
        y = vega(chart, beside=beside)["layer"][0]["encoding"]["y"]
        high: float = y["scale"]["domain"][1]
        return high

    near, far, other = [line(10.0), line(20.0)], [line(10.0), line(41.0)], [line(1.0), line(9, "s")]
    assert siblings(near) == [[near[1]], [near[0]]]
    assert siblings(far) == [[], []] and siblings(other) == [[], []]
    assert end(near[0], [near[1]]) == end(near[1], [near[0]]) > 20 > end(near[0], [])


def test_a_name_has_one_colour_in_all_charts_and_dashes_tell_its_rows_apart() -> None:
    parts = {"a, p50": ("a", "p50"), "a, p99": ("a", "p99"), "b, p50": ("b", "p50")}
    lines = percentile_curves("t", {name: [(0.5, 1.0)] for name in parts}, "w", parts=parts)
    dots = intervals("t", [Point("row", name, 1.0) for name in ("b", "a")], "requests/s")
    looks = looks_of([dots.drawing, lines.drawing])
    assert looks.things == ["b", "a"]
    scale = vega(lines, looks=looks)["layer"][0]["encoding"]
    colours = dict(
        zip(scale["color"]["scale"]["domain"], scale["color"]["scale"]["range"], strict=True)
    )
    own = vega(dots, looks=looks)["layer"][-2]["encoding"]["color"]["scale"]
    assert (
        colours["a, p50"]
        == colours["a, p99"]
        == dict(zip(own["domain"], own["range"], strict=True))["a"]
    )
    assert colours["b, p50"] != colours["a, p50"]
    dashes = scale["strokeDash"]["scale"]["range"]
    assert dashes[0] != dashes[1] and dashes[0] == dashes[2]
    # A page with but one thing: its parts have the colours.
    alone = percentile_curves("t", {"p50": [(0.5, 1.0)]}, "w", parts={"p50": ("a", "p50")})
    assert looks_of([alone.drawing]).things == ["p50"]


def test_more_names_than_colours_share_none_within_a_chart() -> None:
    charts = [
        over_time("t", {f"{first + at}": [(0.0, 1.0)] for at in range(0, 16, 4)}, "ms", "w")
        for first in (0, 1)
    ]
    looks = looks_of(one.drawing for one in charts)
    for one in charts:
        colours = vega(one, looks=looks)["layer"][0]["encoding"]["color"]["scale"]["range"]
        assert len(set(colours)) == 4


@pytest.mark.parametrize(
    "draw",
    [
        lambda: intervals("t", [], "ms", "w"),
        lambda: stacked("t", [], "%", "w"),
        lambda: stacked("t", [BarPart("a", "b", -1.0)], "%", "w"),
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


# ------------------------------------------------------------------------------------- theme


@pytest.mark.parametrize(("theme", "page"), [(LIGHT, "#ffffff"), (DARK, "#15171b")])
def test_all_is_seen_on_a_light_and_on_a_dark_page(theme: dict[str, Any], page: str) -> None:
    for colour, _ in VERDICTS.values():
        assert contrast(colour, page) >= 3
    for colour in theme["range"]["category"]:
        assert contrast(colour, page) >= 4.5
        assert contrast(colour, theme["style"]["segment"]["color"]) >= 4.5
    for words in (theme["text"]["color"], theme["axis"]["labelColor"]):
        assert contrast(words, page) >= 4.5
    assert len(set(theme["range"]["category"])) == 8


def test_both_themes_have_the_same_fields_and_the_styles_that_charts_name() -> None:
    assert [key for key, _ in everything(LIGHT)] == [key for key, _ in everything(DARK)]
    used = {
        leaf for draw in CHARTS.values() for key, leaf in everything(vega(draw())) if key == "style"
    }
    assert used == set(LIGHT["style"])
