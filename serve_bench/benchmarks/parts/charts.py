"""The charts of an HTML page: Vega-Lite made of figures, the same kinds for all runs.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, gaps), and at widths of 340 to 1,100 pixels. What they share is in
charts_parts.py, their look in frame.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from serve_bench.analysis.comparing.parts import ratio_text
from serve_bench.benchmarks.parts.charts_lines import ladder as ladder
from serve_bench.benchmarks.parts.charts_lines import over_time as over_time
from serve_bench.benchmarks.parts.charts_lines import percentile_curves as percentile_curves
from serve_bench.benchmarks.parts.charts_parts import (
    LINE,
    PLAIN,
    Rows,
    Spec,
    axis,
    by_group,
    chart,
    ends_of,
    figures_column,
    finite,
    interval_rule,
    legend_of,
    ordered,
    shown,
    tooltip,
    wide,
)
from serve_bench.benchmarks.parts.charts_parts import Mark as Mark
from serve_bench.benchmarks.parts.charts_parts import Point as Point
from serve_bench.benchmarks.parts.charts_parts import Ratio as Ratio
from serve_bench.benchmarks.parts.charts_parts import Share as Share
from serve_bench.benchmarks.parts.charts_parts import Step as Step
from serve_bench.core.document import Chart

# --------------------------------------------------------------------------------------------------
# Dots with their intervals: figures of rows by group, and ratios of A and B by verdict.

VERDICTS: Final = {
    "regressed": ("#d1570c", "triangle-down"),
    "improved": ("#0c8f6e", "triangle-up"),
    "same": ("#3a82c0", "circle"),
    "inconclusive": ("#858c96", "diamond"),
}
"""Colour and shape of each verdict. The hues are those of Okabe and Ito, told apart by people of
any colour vision; each has a contrast of 3 or more with a white and with a dark page (WCAG
1.4.11)."""

DOT: Final = {"type": "point", "filled": True, "size": 75, "opacity": 1}


def intervals(
    title: str, points: Sequence[Point], unit: str, words: str, caption: str = ""
) -> Chart:
    """A dot with its interval for each point, coloured by group, its figure to the right. From
    zero; on a log axis where the values differ by a factor of 100. Raises ValueError without
    points."""
    if not points:
        raise ValueError("intervals: no points")
    rows = Rows([(one.label, "") for one in points])
    ends = [end for one in points for end in (one.value, one.low, one.high) if end is not None]
    log = wide(ends)
    values = [
        finite(
            {
                "line": rows.keys[at],
                **asdict(points[at]),
                "shown": shown(points[at].value, unit),
                "between": _between(points[at], unit),
            }
        )
        for at in rows.order
    ]
    x = axis("value", unit, ends_of(ends, log), log)
    look = by_group(ordered(one.group for one in points), beside=rows.beside)
    said = (("label", "row"), ("group", "group"), ("shown", unit), ("between", "interval"))
    spec: Spec = {
        "data": {"values": values},
        "layer": [
            *rows.words(),
            interval_rule(x, "low", "high", look["color"], rows.y),
            {"mark": DOT, "encoding": {"y": rows.y, "x": x, **look, "tooltip": tooltip(*said)}},
            figures_column([one["shown"] for one in values], rows.y),
        ],
    }
    return chart(title, spec, words, caption, rows.height)


def _between(point: Point, unit: str) -> str:
    if point.low is None or point.high is None:
        return "-"
    return f"{shown(point.low, unit)} to {shown(point.high, unit)}"


def ratios(
    title: str, ratios: Sequence[Ratio], threshold: float, words: str, caption: str = ""
) -> Chart:
    """B/A of each metric with its interval on one log axis, around 1 and a band of 1 ± `threshold`
    (a share); verdicts by colour and shape. An end of an interval that is 0 or infinite is drawn to
    the end of the axis. Raises ValueError without ratios."""
    if not ratios:
        raise ValueError("ratios: no ratios")
    rows = Rows([(one.label, one.metric) for one in ratios])
    ends = [end for one in ratios for end in (one.ratio, one.low, one.high) if 0 < end < math.inf]
    low, high = min(*ends, 1 - threshold), max(*ends, 1 + threshold)
    beyond = (high / low) ** 0.04
    low, high = low / beyond, high * beyond
    values = [
        finite(
            {
                "line": rows.keys[at],
                **asdict(one),
                "from": max(one.low, low),
                "to": min(one.high, high),
                "shown": f"{ratio_text(one.ratio)} x",
                "between": f"{ratio_text(one.low)} to {ratio_text(one.high)}",
            }
        )
        for at, one in ((at, ratios[at]) for at in rows.order)
    ]
    x = axis("ratio", "B/A", (low, high), True)
    x["axis"]["labelExpr"] = f"{PLAIN} + ' x'"
    look = _by_verdict([word for word in VERDICTS if any(one.word == word for one in ratios)], rows)
    said = (
        *(("label", "row"), ("metric", "metric"), ("shown", "B/A")),
        *(("between", "interval"), ("word", "verdict")),
    )
    spec: Spec = {
        "data": {"values": values},
        "layer": [
            *_around_one(rows, x, threshold),
            *rows.words(),
            interval_rule(x, "from", "to", look["color"], rows.y),
            {"mark": DOT, "encoding": {"y": rows.y, "x": x, **look, "tooltip": tooltip(*said)}},
            figures_column([one["shown"] for one in values], rows.y),
        ],
    }
    return chart(title, spec, words, caption, rows.height)


def _around_one(rows: Rows, x: Spec, threshold: float) -> list[Spec]:
    """The band and the rule of 1, line by line, so that neither goes through the words between."""
    band = [
        {"line": key, "from": 1 - threshold, "to": 1 + threshold, "one": 1} for key in rows.keys
    ]
    return [
        {
            "data": {"values": band},
            "mark": {"type": "rect", "style": "band"},
            "encoding": {"y": rows.y, "x": {**x, "field": "from"}, "x2": {"field": "to"}},
        },
        {
            "data": {"values": band},
            "mark": {"type": "tick", "style": "mark", "thickness": 1, "bandSize": LINE},
            "encoding": {"y": rows.y, "x": {**x, "field": "one"}},
        },
    ]


def _by_verdict(used: Sequence[str], rows: Rows) -> Spec:
    """Colour and shape of the verdicts that occur."""
    return {
        channel: {
            "field": "word",
            "type": "nominal",
            "scale": {"domain": list(used), "range": [VERDICTS[word][at] for word in used]},
            "legend": legend_of(used, rows.beside),
        }
        for at, channel in enumerate(("color", "shape"))
    }


# --------------------------------------------------------------------------------------------------
# Bars made of parts, such as the CPU of each process.

SAID = 0.12
"""A part that takes such a share of the longest bar has its figure in it; less has no room."""


def stacked(title: str, shares: Sequence[Share], unit: str, words: str, caption: str = "") -> Chart:
    """A bar for each label, by part, from zero, its sum behind it and its note under it. Raises
    ValueError without shares, and for a share below zero."""
    if not shares:
        raise ValueError("stacked: no shares")
    if any(one.value < 0 for one in shares):
        raise ValueError("stacked: a share below zero")
    parts = ordered(one.part for one in shares)
    labels = ordered(one.label for one in shares)
    bars = [[one for one in shares if one.label == label] for label in labels]
    notes = [" ".join(ordered(one.note for one in bar if one.note)) for bar in bars]
    rows = Rows([(label, "") for label in labels], notes)
    sums = [sum(one.value for one in bar) for bar in bars]
    longest = max(sums) or 1.0
    # Behind the longest bar there is room for its sum.
    x = axis("start", unit, (0.0, 1.16 * longest), False)
    values = [
        datum
        for key, bar in zip(rows.keys, bars, strict=True)
        for datum in _bar(key, sorted(bar, key=lambda one: parts.index(one.part)), unit)
    ]
    totals = [
        {"line": key, "total": total, "shown": shown(total, unit)}
        for key, total in zip(rows.keys, sums, strict=True)
    ]
    colour = by_group(parts, ("color",), beside=rows.beside)
    said = tooltip(("label", "row"), ("part", "part"), ("shown", unit))
    spec: Spec = {
        "data": {"values": values},
        "layer": [
            *rows.words(),
            {
                # A pixel is left free at the end of each part: parts are told apart without colour.
                "mark": {"type": "bar", "height": LINE - 4, "x2Offset": -1},
                "encoding": {
                    "y": rows.y,
                    "x": x,
                    "x2": {"field": "end"},
                    **colour,
                    "tooltip": said,
                },
            },
            {
                "transform": [{"filter": f"datum.value >= {SAID * longest!r}"}],
                "mark": {"type": "text", "style": "segment", "tooltip": None},
                "encoding": {
                    "y": rows.y,
                    "x": {**x, "field": "middle"},
                    "text": {"field": "shown"},
                },
            },
            {
                "data": {"values": totals},
                "mark": {"type": "text", "style": "value", "align": "left", "dx": 5},
                "encoding": {
                    "y": rows.y,
                    "x": {**x, "field": "total"},
                    "text": {"field": "shown"},
                },
            },
        ],
    }
    return chart(title, spec, words, caption, rows.height)


def _bar(key: str, bar: Sequence[Share], unit: str) -> Iterator[Spec]:
    """The parts of a bar, one behind the other."""
    at = 0.0
    for one in bar:
        yield {
            "line": key,
            "label": one.label,
            "group": one.part,
            **asdict(one),
            "shown": shown(one.value, unit),
            "start": at,
            "middle": at + one.value / 2,
            "end": at + one.value,
        }
        at += one.value


# --------------------------------------------------------------------------------------------------
