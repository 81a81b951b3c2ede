"""The charts of a comparison: intervals of ratios, ratios by round, figures of each side.

Pure. Figures are in the units of SCALES; what has no interval has none drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from serve_bench.analysis.comparing.model import Comparing, ends, geometric_mean, row_title
from serve_bench.analysis.ratios import FEWEST, paired
from serve_bench.benchmarks.parts.blocks import in_parts
from serve_bench.benchmarks.parts.charts import LinePoint, Point, Ratio, intervals, ladder, ratios
from serve_bench.benchmarks.versus.summary import SCALES, raised_thresholds, span_text
from serve_bench.core.document import Chart
from serve_bench.core.figures import percent, ratio_text


def ratio_chart(comparing: Comparing) -> Iterator[Chart]:
    """All intervals of B/A on one axis."""
    points, texts = [], []
    for row in comparing.rows:
        for line in row.lines:
            interval, word = line.judged.interval, line.judged.word
            if line.ratio is None or interval is None:
                continue
            label, name = row_title(comparing, row), SCALES[line.metric].name
            points.append(Ratio(label, name, line.ratio, interval.low, interval.high, word))
            texts.append(f"{label}, {name}: {ratio_text(line.ratio)} ({ends(interval)}), {word}")
    if not points:
        return
    raised = "".join(
        f" Of {SCALES[name].name} the threshold is {percent(value)}, by the noise floor."
        for name, value in raised_thresholds(comparing).items()
    )
    yield ratios(
        "B/A with its 95 % interval",
        points,
        comparing.threshold,
        "; ".join(texts),
        f"The band is 1 ± {percent(comparing.threshold)}: same where a whole interval lies in it, "
        f"regressed or improved where it lies beyond. Latency and CPU: lower is better.{raised}",
    )


def round_charts(comparing: Comparing) -> Iterator[Chart]:
    """B/A of the metrics in the gate in each round; none of runs whose launches are no pairs."""
    for metric in comparing.gate if comparing.paired else ():
        lines = {
            row_title(comparing, row): [
                LinePoint(at, line.b_values[at] / value) for at, value in line.a_values.items()
            ]
            for row in comparing.rows
            for line in row.lines
            if line.metric == metric and line.a_values
        }
        for _, some in in_parts(lines):
            texts = [
                f"{label}: {span_text([one.value for one in points])} in {len(points)} rounds"
                for label, points in some.items()
            ]
            yield ladder(
                f"B/A of {SCALES[metric].name} in each round",
                some,
                "round",
                "B/A",
                "; ".join(texts),
                log_x=False,
                log_y=True,
                caption="A round is a fresh launch of both sides: rounds are what is repeated, and "
                "how far they lie from each other is the width of the interval. The band is that "
                "of the verdict.",
                around=(1 - comparing.threshold, 1 + comparing.threshold),
            )


def side_charts(comparing: Comparing, *metrics: str) -> Iterator[Chart]:
    """What each side did by itself: geometric means with an interval over its launches."""
    for metric in metrics:
        scale = SCALES[metric]
        points = [
            _point(row_title(comparing, row), f"{letter} {side}", values, scale.size)
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
        wider = ": wider than that of B/A, in which what both sides share cancels"
        caption = (
            f"Geometric means; bars are 95 % intervals over the launches of a side, from {FEWEST} "
            f"on{wider if comparing.paired else ''}."
        )
        head = scale.name if metric in ("p50", "p99") else scale.name[0].upper() + scale.name[1:]
        yield intervals(
            f"{head} of A and B",
            points,
            scale.unit,
            "; ".join(f"{one.label}, {one.group}: {one.value:,.4g} {scale.unit}" for one in points),
            "" if metric == "p99" else caption,
        )


def _point(label: str, group: str, values: Mapping[int, float], size: float) -> Point:
    center = geometric_mean(values.values()) or 0.0
    if len(values) < FEWEST:
        return Point(label, group, center / size)
    own = paired([math.log(value) for value in values.values()])
    high = own.high / size if math.isfinite(own.high) else None
    return Point(label, group, center / size, own.low / size, high)
