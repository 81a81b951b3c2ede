"""Charts of lines as Vega-Lite: percentile curves, figures over time, over a growing load.

Rule: every point was measured, lines only join those that belong together. Where points are many,
some of them carry the shape that tells the series apart without its colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from serve_bench.core.figures import LowerBound
from serve_bench.report.theme import DASHES, SHAPES, Looks
from serve_bench.report.vega import (
    CHARACTER,
    Look,
    Spec,
    axis,
    ends_of,
    finite,
    harmless,
    round_to,
    wide,
)
from serve_bench.view.charts import Happenings, Lane, LinePoint, Lines, Mark, XScale

HEIGHT: Final = 260
"""Pixels of a chart of lines, without its legend."""

FEW: Final = 24
"""Points of a line that all get a shape; of more, about a dozen do."""

MARK_LINE: Final = 14
"""Pixels of a line of the words of a mark."""

PLOT: Final = 280.0
"""Pixels of the width of a plot on a phone."""

SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""Where the axis of percentiles has its ticks."""

ARROW: Final[Spec] = {
    **{"type": "point", "shape": "triangle-up", "filled": False, "size": 50, "opacity": 1},
    "yOffset": -9,
}
"""Over a figure that is only a lower bound."""


def lines(chart: Lines, width: int | None, looks: Looks, beside: Sequence[Lines] = ()) -> Spec:
    """The height, the data and the layers of a chart of lines; `beside` share its scales."""
    values = [
        datum
        for name, steps in chart.series.items()
        for datum in _values(name, steps, chart.x_scale, len(chart.series))
    ]
    scale = [chart, *beside]
    steps = [step for one in scale for line in one.series.values() for step in line]
    every = [float(one.value) for one in steps]
    every += [end for one in steps for end in (one.low, one.high) if end is not None]
    every += [end for one in scale for end in one.band or ()]
    log = wide(every) if chart.log_y is None else chart.log_y
    if log:
        every = [one for one in every if 0 < one < math.inf]
    share = chart.x_scale == "share"
    marks = [one.x for other in scale for one in other.marks]
    places = sorted({*(_nines(one.x) if share else one.x for one in steps), *marks})
    x = _x_axis(chart, places)
    y = axis("value", chart.unit, ends_of(every, log), log)
    height = HEIGHT
    if (lane := chart.lane) is not None:
        x = _lane_axis(chart.x_name, lane)
        y["axis"] |= {**LANE_EXTENT, "tickCount": 3}
        height = LANE_HEIGHT
    look = _look(chart, width, looks)
    layers = [
        *([] if lane is None else _shades(lane, x)),
        *([] if chart.band is None else _band(chart.band, y)),
        *_marks(chart.marks, x, places, chart.x_scale == "log", height),
        *_layers(chart, values, x, y, look),
    ]
    spec: Spec = {"height": height, "data": {"values": values}, "layer": layers, **look.meta}
    if chart.x_scale == "time":  # a part of the time may be shown alone: what lies beyond is cut
        spec["usermeta"] = {**spec.get("usermeta", {}), "zoom": True}
        for layer in layers:
            layer["mark"] = {**layer["mark"], "clip": True}
    return spec


LANE_HEIGHT: Final = 120
"""Pixels of a lane: five of them are seen at once."""

LANE_EXTENT: Final[Spec] = {"minExtent": 52, "maxExtent": 52}
"""Room of the figures of an axis: the plots of lanes begin below each other."""

TITLE: Final = 19
"""Pixels of the title of an axis."""

KIND_LINE: Final = 30
"""Pixels of a line of happenings, with its words above."""


def _lane_axis(name: str, lane: Lane) -> Spec:
    return axis("x", name, (0.0, max(lane.seconds, 1.0)), False, most=7)


def _shades(lane: Lane, x: Spec) -> list[Spec]:
    """The marked spans, behind all else. The first layer bears the axis of time in any case."""
    values = [{"x": begin, "end": end} for begin, end in lane.shades]
    encoding = {"x": x, "x2": {"field": "end"}}
    return [
        {
            "data": {"values": values},
            "mark": {"type": "rect", "style": "band"},
            "encoding": encoding,
        }
    ]


def happenings(chart: Happenings) -> Spec:
    """The height, the data and the layers of what happened over time."""
    kinds = list(dict.fromkeys(one.kind for one in chart.points))
    x = _lane_axis("seconds", chart.lane)
    y = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": kinds},
        "axis": {"offset": TITLE, **LANE_EXTENT, "labels": False, "ticks": False, "domain": False},
    }
    fields = [("x", "second", ".4~r"), ("kind", "what", None), ("who", "who", None)]
    point = {
        "mark": {"type": "tick", "thickness": 3, "bandSize": 10, "yOffset": 8, "clip": True},
        "encoding": {
            "x": x,
            "y": y,
            "tooltip": [
                {
                    "field": field,
                    "type": "nominal" if form is None else "quantitative",
                    "title": name,
                    **({} if form is None else {"format": form}),
                }
                for field, name, form in fields
            ],
        },
    }
    words = {
        "data": {"values": [{"kind": kind} for kind in kinds]},
        "mark": {"type": "text", "style": "note", "align": "left", "dx": 4, "dy": -5},
        "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "kind"}},
    }
    shades = [{**one, "mark": {**one["mark"], "clip": True}} for one in _shades(chart.lane, x)]
    return {
        "height": KIND_LINE * len(kinds),
        "data": {"values": [asdict(one) for one in chart.points]},
        "layer": [*shades, words, point],
        "usermeta": {"zoom": True},
    }


def _look(chart: Lines, width: int | None, looks: Looks) -> Look:
    """Colours by thing, shapes by series; dashes where several lines are of one thing."""
    names = list(chart.series)
    things = [looks.thing(name, chart.parts) for name in names]
    before = [things[:at].count(thing) for at, thing in enumerate(things)]
    dashes = [DASHES[at % len(DASHES)] for at in before] if any(before) else ()
    above = MARK_LINE * len(chart.marks) + 4 * bool(chart.marks)
    return Look("group", names, looks.of_things(things), SHAPES, width, above, dashes=dashes)


def _values(name: str, steps: Sequence[LinePoint], x_scale: XScale, series: int) -> Iterator[Spec]:
    """The data of a line. A point has `dot` where it carries the shape of its series: all of a
    load, else all of few; the many points of a line that is alone have none."""
    load = x_scale in ("linear", "log")
    ordered = sorted(steps, key=lambda step: step.x) if load else steps
    few = load or len(steps) <= FEW
    every = 1 if few else math.ceil(len(steps) / 12)
    for at, step in enumerate(ordered):
        datum = finite({"group": name, **asdict(step)})
        if x_scale == "share":
            datum |= {"x": _nines(step.x), "share": step.x}
        if at % every == 0 and (few or series > 1):
            datum["dot"] = True
        if isinstance(step.value, LowerBound):
            datum["least"] = True
        yield datum


def _nines(share: float) -> float:
    """Where a share stands: each further nine takes the same room on a log axis."""
    return round_to(1 / (1 - share))


def _x_axis(chart: Lines, places: Sequence[float]) -> Spec:
    if chart.x_scale == "time":
        return axis("x", chart.x_name, (0.0, 1.01 * places[-1] or 1.0), False, most=7)
    if chart.x_scale == "share":
        beyond = (places[-1] / places[0]) ** 0.02 if places[0] < places[-1] else 2.0
        ends = (places[0] / beyond, places[-1] * beyond)
        return {
            "field": "x",
            "type": "quantitative",
            "title": chart.x_name,
            "scale": {"type": "log", "domain": list(ends), "nice": False},
            "axis": {
                "values": [at for at in map(_nines, SHARES) if ends[0] <= at <= ends[1]],
                "labelExpr": "format(100 - 100 / datum.value, '.9~g') + ' %'",
                "labelOverlap": "greedy",
            },
        }
    log = chart.x_scale == "log"
    x = axis("x", chart.x_name, _around(places, log), log)
    steps = {step.x for line in chart.series.values() for step in line}
    if log or len(steps) <= FEW:  # of a load that was chosen; of many readings round numbers
        x["axis"]["values"] = _ticks(sorted(steps), log)
    return x


def _tooltip(chart: Lines) -> list[Spec]:
    place = {"share": ("share", "share", ".9~%"), "time": ("x", "second", ".4~r")}.get(
        chart.x_scale, ("x", chart.x_name, ",~r")
    )
    figure = (
        ("value", "ms", ",.3~r") if chart.x_scale == "share" else ("value", chart.unit, ",.4~r")
    )
    group = [{"field": "group", "type": "nominal", "title": "series"}]
    return [
        *(group if len(chart.series) > 1 else []),
        *(
            {"field": field, "type": "quantitative", "title": harmless(name), "format": form}
            for field, name, form in (place, figure)
        ),
    ]


def _layers(chart: Lines, values: Sequence[Spec], x: Spec, y: Spec, look: Look) -> Iterator[Spec]:
    """Lines, the intervals of their points, shapes at the points that have `dot`, arrows over those
    that are only lower bounds."""
    place = {"x": x, "y": y, "color": look.colour}
    whole = {"x": x, "y": y, **look.both, "tooltip": _tooltip(chart)}
    if chart.joined:
        line: Spec = {"type": "line", "strokeWidth": 2}
        if chart.lane is not None and chart.lane.stepped:
            line["interpolate"] = "step-after"
        yield {"mark": line, "encoding": {**place, **look.dash}}
    if any(one.get("low") is not None and one.get("high") is not None for one in values):
        ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        known = {"filter": "isValid(datum.low) && isValid(datum.high)"}
        rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}
        yield {"transform": [known], "mark": rule, "encoding": {**place, **ends}}
    shape = {"type": "point", "filled": True, "size": 50, "opacity": 1}
    yield {"transform": [{"filter": "datum.dot"}], "mark": shape, "encoding": whole}
    if not all(one.get("dot") for one in values):  # under the pointer they speak too
        unseen = {"type": "point", "size": 50, "opacity": 0}
        yield {"transform": [{"filter": "!datum.dot"}], "mark": unseen, "encoding": whole}
    if any("least" in one for one in values):
        yield {"transform": [{"filter": "datum.least"}], "mark": ARROW, "encoding": place}


def _around(places: Sequence[float], log: bool) -> tuple[float, float]:
    """The ends of the x axis of a load, a little beyond its steps."""
    first, last = places[0], places[-1]
    if log:
        beyond = (last / first) ** 0.04 if last > first else 2.0
        return first / beyond, last * beyond
    beyond = 0.04 * (last - first) or 1.0
    return first - beyond, last + beyond


def _ticks(places: Sequence[float], log: bool) -> list[float]:
    """The steps, but for those whose numbers would touch: one takes about a ninth of the axis. The
    last is always named."""
    at = [math.log(place) if log else place for place in places]
    apart = (at[-1] - at[0]) / 9
    kept: list[int] = []
    for one in range(len(places)):
        if not kept or at[one] - at[kept[-1]] >= apart:
            kept.append(one)
    last = len(places) - 1
    if kept[-1] != last:
        kept = [one for one in kept if at[last] - at[one] >= apart] + [last]
    return [places[one] for one in kept]


def _marks(
    marks: Sequence[Mark], x: Spec, places: Sequence[float], log: bool, height: int
) -> Iterator[Spec]:
    """Rules, and their words over the plot. All words stand on one side of their rule, and the
    farther from that side's end a rule is, the higher: so no rule goes through other words."""
    left = _left_has_room(marks, places, log)
    for at, mark in enumerate(sorted(marks, key=lambda one: one.x if left else -one.x)):
        own: Spec = {"data": {"values": [asdict(mark)]}}
        up = -8 - MARK_LINE * at
        yield {
            **own,
            "mark": {"type": "rule", "style": "mark", "strokeDash": [4, 3]},
            "encoding": {"x": x, "y": {"value": up - 5}, "y2": {"value": height}},
        }
        yield {
            **own,
            "mark": {
                "type": "text",
                "style": "note",
                "align": "right" if left else "left",
                "dx": -4 if left else 4,
            },
            "encoding": {"x": x, "y": {"value": up}, "text": {"field": "words"}},
        }


def _band(around: tuple[float, float], y: Spec) -> list[Spec]:
    own: Spec = {"data": {"values": [{"low": around[0], "high": around[1], "one": 1}]}}
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return [
        {**own, "mark": {"type": "rect", "style": "band"}, "encoding": ends},
        {
            **own,
            "mark": {"type": "rule", "style": "mark"},
            "encoding": {"y": {**y, "field": "one"}},
        },
    ]


def _left_has_room(marks: Sequence[Mark], places: Sequence[float], log: bool) -> bool:
    """Whether on a phone the words of the marks lack less room to the left than to the right."""
    first, last = places[0], places[-1]
    if first == last:
        return False

    def part(place: float) -> float:
        return (
            math.log(place / first) / math.log(last / first)
            if log
            else ((place - first) / (last - first))
        )

    ends = [(part(one.x) * PLOT, CHARACTER * len(one.words)) for one in marks]
    lack_left = max((long - at for at, long in ends), default=0.0)
    lack_right = max((at + long - PLOT for at, long in ends), default=0.0)
    return lack_left < lack_right
