"""The charts of pages and pictures: what is drawn, and where."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from serve_bench.core.figures import LowerBound
from serve_bench.report.drawing import draw
from serve_bench.report.theme import list_looks, list_series
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
    "long names": lambda: Chart("t", "heat map", [Point(3 * HOSTILE, 2.0, "s")], HOSTILE, HOSTILE),
    "percentiles": lambda: curve(*CURVES),
    "over time": lambda: course(*WINDOWS),
    "many windows": lambda: course(*(Point(at, 10.0**at, HOSTILE) for at in range(40))),
    "ladder": lambda: steps(marks=[(10, "knee"), (500, HOSTILE)]),
    "ladder, all log": lambda: steps(log_y=True),
    "one step": lambda: steps(Point(7, 3.0, "a"), marks=[(7, "k")]),
    "dashed": lambda: steps(*STEPS, Point(2, 9.0, "y"), things={"DEBUG": "x", "ERROR": "x"}),
}


def drawn(chart: Chart) -> ET.Element:
    """Read the plot, which no text of the chart has broken."""
    return ET.fromstring(f"<svg>{draw(chart, list_series(chart, list_looks([chart]))).plot}</svg>")


def places(found: Iterable[ET.Element], name: str) -> list[float]:
    """Read an attribute of elements, as a number."""
    return [float(element.attrib[name].rstrip("%")) for element in found]


def titles(found: ET.Element, tag: str = "use") -> list[str]:
    """Read what the points, or the parts of bars, say under the pointer."""
    return [element.findtext("title", "") for element in found.iter(tag)]


@pytest.mark.parametrize("name", CHARTS)
def test_it_is_drawn_whole_and_within_its_place(name: str) -> None:
    chart = CHARTS[name]()
    found = drawn(chart)
    numbers = [text for part in found.iter() for text in part.attrib.values()]
    assert not any(text in ("nan", "inf", "-inf", "nan%", "inf%") for text in numbers)
    across = [text for text in numbers if text.endswith("%")]
    assert all(0 <= float(text[:-1]) <= 100 for text in across)
    assert sum(len(titles(found, tag)) for tag in ("use", "rect")) >= len(chart.points)


def test_a_bar_is_made_of_its_parts_in_one_order() -> None:
    parts = [*drawn(stacked(*SHARES)).iter("rect")]
    x, width = places(parts, "x"), places(parts, "width")
    assert x[:2] == [0, 0], "the proxy is the first of both"
    assert x[2:] == pytest.approx([width[0], width[1]], abs=0.02)
    ratio = [part / width[0] for part in width]
    assert ratio == pytest.approx([1, 93.9 / 69.2, 48.6 / 69.2, 71.5 / 69.2], rel=0.001)


def test_ratios_stand_around_one() -> None:
    found = drawn(ratios(*RATIOS))
    band, *_ = found.iter("rect")
    (low,), (width,) = places([band], "x"), places([band], "width")
    points = dict(zip(titles(found), places(found.iter("use"), "x"), strict=True))
    same = next(x for title, x in points.items() if "same" in title)
    regressed = next(x for title, x in points.items() if "regressed" in title)
    assert regressed < low < same < low + width
    assert any(title.endswith("1.100 B/A (0.980 to inf)") for title in points)
    assert 100 in places(found.iter("line"), "x2"), "an interval without an end"


def test_a_matrix_has_its_figures_on_colours_that_they_can_be_read_on() -> None:
    figures = [10.0, 11.0, 30.0, 55.0, 69.0, 71.0, 100.0]
    found = drawn(heat(figures))
    grounds = [cell.attrib["fill"] for cell in found.iter("rect")]
    inks = {text.text: text.attrib.get("fill") for text in found.iter("text")}
    assert drawn(heat([1.0, 10.0, 100.0])).findall("rect")[1].attrib["fill"] == grounds[3], "log"
    shown = ("10.00", "11.00", "30.00", "55.00", "69.00", "71.00", "100.0")
    for figure, ground in zip(shown, grounds, strict=True):
        linear = [((int(part) / 255 + 0.055) / 1.055) ** 2.4 for part in re.findall(r"\d+", ground)]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        contrast = 1.05 / light if inks[figure] == "#ffffff" else light / 0.05
        assert contrast > 4.5, figure  # WCAG 1.4.3


def test_a_percentile_is_drawn_by_its_nines() -> None:
    found = drawn(curve(*CURVES))
    assert titles(found)[-1] == "optimized, 99.99 %: 569 ms"
    half, ninety, two, three, *_ = places(found.iter("use"), "x")
    assert three - two == pytest.approx(two - ninety, abs=0.1) and ninety > half
    assert {"90 %", "99 %", "99.9 %"} <= {text.text for text in found.iter("text")}


def test_a_line_joins_its_points_in_their_order_and_those_of_a_thing_differ_by_dashes() -> None:
    found = drawn(CHARTS["dashed"]())
    lines = [*found.iter("polyline")]
    assert len({line.attrib["stroke-dasharray"] for line in lines[:2]}) == 2
    first = [float(at.split(",")[0]) for at in lines[0].attrib["points"].split()]
    assert first == sorted(first)
    assert not [*drawn(steps(joined=False)).iter("polyline")]


def test_many_lines_stand_in_several_charts_and_lower_bounds_are_explained() -> None:
    points = [Point(1, LowerBound(at) if at == 10 else at, f"s{at}") for at in range(1, 11)]
    first, second = split_lines(Chart("t", "lines", points, "ms", "clients", "c."))
    assert (first.title, second.title) == ("t, part 1 of 2", "t, part 2 of 2")
    assert [*first.series, *second.series] == [f"s{at}" for at in range(1, 11)]
    assert (first.caption, second.caption) == ("c.", f"c. {AT_LEAST}")
