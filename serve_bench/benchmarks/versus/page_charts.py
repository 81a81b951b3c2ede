"""The charts of a comparison: intervals of ratios, ratios by round, figures of each side.

Rule: figures are those of json_form.py, in the unit that they are read in; what has no interval
has none drawn. How a chart looks is benchmarks/parts/charts.py's affair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.analysis.comparing.parts import Comparing, geometric_mean, ratio_text, row_title
from serve_bench.analysis.comparison import FEWEST, paired
from serve_bench.benchmarks.parts.charts import LinePoint, Point, Ratio, intervals, ladder, ratios
from serve_bench.benchmarks.versus.words import percent
from serve_bench.core.document import Chart

#: What the metrics are called in charts, with the unit that they are drawn in and how much of the
#: unit of their values it holds.
DRAWN: Final = {
    "throughput": ("throughput", "requests/s", 1.0),
    "p50": ("p50", "ms", 1e6),
    "p99": ("p99", "ms", 1e6),
    "cpu": ("CPU a request", "us", 1e3),
}

MOST_LINES: Final = 8
"""Of one chart: more colours than that are not told apart."""


def ratio_chart(comparing: Comparing) -> Iterator[Chart]:
    """All intervals on one axis."""
    points = [
        Ratio(
            row_title(comparing, row),
            DRAWN[line.metric][0],
            line.ratio,
            line.judged.interval.low,
            line.judged.interval.high,
            line.judged.word,
        )
        for row in comparing.rows
        for line in row.lines
        if line.ratio is not None and line.judged.interval is not None
    ]
    if not points:
        return
    said = [
        f"{one.label}, {one.metric}: {ratio_text(one.ratio)} ({ratio_text(one.low)} to "
        f"{ratio_text(one.high)}), {one.word}"
        for one in points
    ]
    raised = {
        line.metric: line.judged.threshold
        for line in comparing.lines
        if line.judged.threshold > comparing.threshold
    }
    more = "".join(
        f" Of {DRAWN[name][0]} the threshold is {percent(value)}, by the noise floor."
        for name, value in raised.items()
    )
    yield ratios(
        "B/A with its 95 % interval",
        points,
        comparing.threshold,
        "; ".join(said),
        f"The band is 1 ± {percent(comparing.threshold)}: same where a whole interval lies in it, "
        f"regressed or improved where it lies beyond. Latency and CPU: lower is better.{more}",
    )


def round_chart(comparing: Comparing, metric: str) -> Iterator[Chart]:
    """B/A of a metric in each round."""
    name = DRAWN[metric][0]
    lines = {
        row_title(comparing, row): [
            LinePoint(round_, line.b_values[round_] / value)
            for round_, value in line.a_values.items()
        ]
        for row in comparing.rows
        for line in row.lines
        if line.metric == metric and line.a_values
    }
    names = list(lines)
    for first in range(0, len(names), MOST_LINES):
        some = {label: lines[label] for label in names[first : first + MOST_LINES]}
        told = [
            f"{label}: {ratio_text(min(own))} to {ratio_text(max(own))} in {len(own)} rounds"
            for label, steps in some.items()
            if (own := [step.value for step in steps])
        ]
        yield ladder(
            f"B/A of {name} in each round",
            some,
            "round",
            "B/A",
            "; ".join(told),
            log_x=False,
            log_y=True,
            caption="A round is a fresh launch of both sides: rounds are what is repeated, and how "
            "far they lie from each other is the width of the interval. The band is that of "
            "the verdict.",
            around=(1 - comparing.threshold, 1 + comparing.threshold),
        )


def rate_charts(comparing: Comparing, metrics: Sequence[str]) -> Iterator[Chart]:
    """What each side did by itself: geometric means with an interval over its launches."""
    for metric in metrics:
        name, unit, size = DRAWN[metric]
        points = [
            _point(row_title(comparing, row), f"{letter} {side}", values, size)
            for row in comparing.rows
            for line in row.lines
            if line.metric == metric
            for letter, side, values in zip(
                "AB", comparing.names, (line.a_values, line.b_values), strict=True
            )
            if values
        ]
        if not points:
            continue
        told = [f"{one.label}, {one.group}: {one.value:,.4g} {unit}" for one in points]
        wider = ": wider than that of B/A, in which what both sides share cancels"
        caption = (
            f"Geometric means; bars are 95 % intervals over the launches of a side, from {FEWEST} "
            f"on{wider if comparing.paired else ''}."
        )
        head = name if metric in ("p50", "p99") else f"{name[0].upper()}{name[1:]}"
        words = "; ".join(told)
        yield intervals(
            f"{head} of A and B", points, unit, words, "" if metric == "p99" else caption
        )


def _point(label: str, group: str, values: Mapping[int, float], size: float) -> Point:
    center = geometric_mean(values.values()) or 0.0
    if len(values) < FEWEST:
        return Point(label, group, center / size)
    own = paired([math.log(value) for value in values.values()])
    high = own.high / size if math.isfinite(own.high) else None
    return Point(label, group, center / size, own.low / size, high)
