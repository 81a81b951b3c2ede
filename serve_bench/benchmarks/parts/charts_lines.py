"""Charts of lines: percentile curves, windows over time, figures over a growing load.

Rule: every point was measured, lines only join them. Where points are many, some of them carry the
shape that tells the series apart without its colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from serve_bench.analysis.statistics import LowerBound
from serve_bench.benchmarks.parts.charts_parts import (
    CHARACTER,
    PHONE,
    Mark,
    Spec,
    Step,
    axis,
    by_group,
    chart,
    ends_of,
    finite,
    harmless,
    round_to,
    wide,
)
from serve_bench.core.document import Chart

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

AT_LEAST: Final = "Arrow: at least so much, since some requests had no answer."

ARROW: Final[Spec] = {
    **{"type": "point", "shape": "triangle-up", "filled": False, "size": 50, "opacity": 1},
    "yOffset": -9,
}
"""Over a figure that is only a lower bound."""


def percentile_curves(
    title: str,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    words: str,
    caption: str = "",
) -> Chart:
    """Latency in ms (log) over the share of requests that were no slower, (share, ms). The share is
    drawn as 1 / (1 - share) on a log axis: each further nine takes the same room. A share of 1, the
    maximum, has no place on it and is left out. Raises ValueError without a point, and for a
    latency of 0."""
    values: list[Spec] = [
        {"group": name, "share": share, "x": _nines(share), "value": value, **dot}
        for name, points in curves.items()
        for (share, value), dot in _dotted([one for one in points if one[0] < 1], len(curves))
    ]
    every = _known(values, "percentile_curves", log=True)
    places = [float(one["x"]) for one in values]
    beyond = (max(places) / min(places)) ** 0.02 if min(places) < max(places) else 2.0
    ends = (min(places) / beyond, max(places) * beyond)
    x: Spec = {
        "field": "x",
        "type": "quantitative",
        "title": "share of requests that were no slower",
        "scale": {"type": "log", "domain": list(ends), "nice": False},
        "axis": {
            "values": [at for at in map(_nines, SHARES) if ends[0] <= at <= ends[1]],
            "labelExpr": "format(100 - 100 / datum.value, '.9~g') + ' %'",
            "labelOverlap": "greedy",
        },
    }
    said = [_said("share", "share", ".9~%"), _said("value", "ms", ",.3~r")]
    y = axis("value", "latency, ms", ends_of(every, True), True)
    return chart(title, _lines(list(curves), values, x, y, said), words, caption, HEIGHT)


def over_time(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    unit: str,
    words: str,
    caption: str = "",
) -> Chart:
    """A figure over time, (seconds, value), from zero; on a log axis where values differ by a
    factor of 100. Raises ValueError without a point."""
    values: list[Spec] = [
        {"group": name, "x": second, "value": value, **dot}
        for name, points in series.items()
        for (second, value), dot in _dotted(points, len(series))
    ]
    every = _known(values, "over_time")
    places = [float(one["x"]) for one in values]
    x = axis("x", "seconds", (0.0, 1.01 * max(places) or 1.0), False, most=7)
    log = wide(every)
    y = axis("value", unit, ends_of(every, log), log)
    said = [_said("x", "second", ".4~r"), _said("value", unit, ",.4~r")]
    return chart(title, _lines(list(series), values, x, y, said), words, caption, HEIGHT)


def ladder(
    title: str,
    series: Mapping[str, Sequence[Step]],
    x_name: str,
    unit: str,
    words: str,
    marks: Sequence[Mark] = (),
    log_x: bool = True,
    log_y: bool = False,
    caption: str = "",
    around: tuple[float, float] | None = None,
) -> Chart:
    """A figure over a growing load: points with their intervals, joined by lines, from zero unless
    `log_y`; each mark is a rule with its words over the plot. A LowerBound has an arrow, which the
    caption explains. `around`: the ends of a band behind the lines, with a rule at 1. Raises
    ValueError without a step, and for a value that has no place on a log axis."""
    steps = [one for points in series.values() for one in points]
    values = [
        finite({"group": name, **asdict(one), "dot": True, **_least(one)})
        for name, points in series.items()
        for one in sorted(points, key=lambda step: step.x)
    ]
    every = _known(values, "ladder", log=log_y)
    every += [end for one in steps for end in (one.low, one.high) if end is not None]
    every += around or ()
    if log_y:
        every = [one for one in every if 0 < one < math.inf]
    places = sorted({*(one.x for one in steps), *(one.x for one in marks)})
    if log_x and places[0] <= 0:
        raise ValueError(f"ladder: {x_name} of 0 or less on a log axis")
    x = axis("x", x_name, _around(places, log_x), log_x)
    x["axis"]["values"] = _ticks(sorted({one.x for one in steps}), log_x)
    y = axis("value", unit, ends_of(every, log_y), log_y)
    said = [_said("x", x_name, ",~r"), _said("value", unit, ",.4~r")]
    above = MARK_LINE * len(marks) + 4 * bool(marks)
    spec = _lines(list(series), values, x, y, said, above)
    band = [] if around is None else _band(around, y)
    spec["layer"] = [*band, *_marks(marks, x, places, log_x), *spec["layer"]]
    if any("least" in one for one in values):
        place = {name: spec["layer"][-1]["encoding"][name] for name in ("x", "y", "color")}
        spec["layer"].append(
            {"transform": [{"filter": "datum.least"}], "mark": ARROW, "encoding": place}
        )
        caption = f"{caption} {AT_LEAST}".strip()
    return chart(title, spec, words, caption, HEIGHT)


def _least(step: Step) -> Spec:
    """Where the figure of a step is only a lower bound."""
    return {"least": True} if isinstance(step.value, LowerBound) else {}


def _nines(share: float) -> float:
    return round_to(1 / (1 - share))


def _dotted(
    points: Sequence[tuple[float, float]], series: int
) -> Iterator[tuple[tuple[float, float], dict[str, bool]]]:
    """Each point, and whether it carries the shape of its series; the many points of a line that is
    alone have none."""
    few = len(points) <= FEW
    every = 1 if few else math.ceil(len(points) / 12)
    for at, one in enumerate(points):
        yield one, {"dot": True} if at % every == 0 and (few or series > 1) else {}


def _known(values: Sequence[Spec], name: str, log: bool = False) -> list[float]:
    """The values of a chart, at least one, each with a place on its axis."""
    every = [float(one["value"]) for one in values]
    if not every:
        raise ValueError(f"{name}: no points")
    if log and min(every) <= 0:
        raise ValueError(f"{name}: a value of 0 or less on a log axis")
    return every


def _said(field: str, name: str, form: str) -> Spec:
    """A figure in a tooltip."""
    return {"field": field, "type": "quantitative", "title": harmless(name), "format": form}


def _lines(
    groups: Sequence[str],
    values: Sequence[Spec],
    x: Spec,
    y: Spec,
    said: Sequence[Spec],
    above: int = 0,
) -> Spec:
    """Lines with shapes at the points that have `dot`, and their intervals. `above`: pixels between
    the plot and the legend."""
    look = by_group(groups, beside=PHONE - PLOT, above=above)
    place = {"x": x, "y": y, "color": look["color"]}
    told = [{"field": "group", "type": "nominal", "title": "series"}] if len(groups) > 1 else []
    whole = {**place, "shape": look["shape"], "tooltip": [*told, *said]}
    layers: list[Spec] = [{"mark": {"type": "line", "strokeWidth": 2}, "encoding": place}]
    if any(one.get("low") is not None and one.get("high") is not None for one in values):
        ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        known = {"filter": "isValid(datum.low) && isValid(datum.high)"}
        rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}
        layers.append({"transform": [known], "mark": rule, "encoding": {**place, **ends}})
    shape = {"type": "point", "filled": True, "size": 50, "opacity": 1}
    layers.append({"transform": [{"filter": "datum.dot"}], "mark": shape, "encoding": whole})
    if not all(one.get("dot") for one in values):  # under the pointer they speak too
        unseen = {"type": "point", "size": 50, "opacity": 0}
        layers.append({"transform": [{"filter": "!datum.dot"}], "mark": unseen, "encoding": whole})
    return {"data": {"values": list(values)}, "layer": layers}


def _around(places: Sequence[float], log: bool) -> tuple[float, float]:
    """The ends of the x axis of a ladder, a little beyond its steps."""
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


def _marks(marks: Sequence[Mark], x: Spec, places: Sequence[float], log: bool) -> Iterator[Spec]:
    """Rules, and their words over the plot. All words stand on one side of their rule, and the
    farther from that side's end a rule is, the higher: so no rule goes through other words."""
    left = _left_has_room(marks, places, log)
    for at, mark in enumerate(sorted(marks, key=lambda one: one.x if left else -one.x)):
        own: Spec = {"data": {"values": [asdict(mark)]}}
        up = -8 - MARK_LINE * at
        yield {
            **own,
            "mark": {"type": "rule", "style": "mark", "strokeDash": [4, 3]},
            "encoding": {"x": x, "y": {"value": up - 5}, "y2": {"value": HEIGHT}},
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
    """A band over the whole width, and the rule of 1."""
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
