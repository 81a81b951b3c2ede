"""The charts of the ranker alone: rows/s, times with their floor, ratios, rounds over time.

Rule: a point is a median over rounds, its bar the interval that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.blocks import NS_PER_MS, course_charts, over_windows
from serve_bench.benchmarks.parts.charts import LinePoint, Point
from serve_bench.benchmarks.ranker.summary import (
    CALL,
    FORWARD,
    MedianInterval,
    RankerLine,
    batch_size,
)
from serve_bench.core.document import Chart
from serve_bench.core.result import Trial

BARS = "Bars: the interval that holds the median."


def rate_charts(lines: Sequence[RankerLine]) -> Iterator[Chart]:
    """Rows/s over the batch size."""
    rates = _series(lines, "", lambda one: LinePoint(one.rows, one.rows_per_s))
    yield from _over_rows("Rows a second over the batch size", rates, "rows/s")


def time_charts(lines: Sequence[RankerLine]) -> Iterator[Chart]:
    """Forward with its floor, then the whole call, over the batch size."""
    forward = _series(lines, ", forward", lambda one: _step(one.rows, one.forward))
    floors = _series(lines, ", floor", lambda one: LinePoint(one.rows, 1e3 * one.floor.seconds))
    calls = _series(lines, ", call", lambda one: _step(one.rows, one.call))
    names = (", forward", ", floor", ", call")
    parts = {f"{line.kind}{of}": (line.kind, of) for line in lines for of in names}
    yield from _over_rows("Forward and its floor", forward | floors, "ms", BARS, parts)
    yield from _over_rows("The whole call", calls, "ms", BARS, parts)


def _series(
    lines: Sequence[RankerLine], of: str, step: Callable[[RankerLine], LinePoint]
) -> dict[str, list[LinePoint]]:
    """A step for each line, by ranker."""
    series: dict[str, list[LinePoint]] = {}
    for line in lines:
        series.setdefault(f"{line.kind}{of}", []).append(step(line))
    return series


def _step(rows: int, time: MedianInterval) -> LinePoint:
    return LinePoint(rows, time.median / NS_PER_MS, time.low / NS_PER_MS, time.high / NS_PER_MS)


def _over_rows(
    title: str,
    series: dict[str, list[LinePoint]],
    unit: str,
    caption: str = "",
    parts: charts.Parts = charts.NO_PARTS,
) -> Iterator[Chart]:
    if not series:
        return
    log_y = unit == "ms"
    yield charts.ladder(
        title, series, "rows a batch", unit, log_y=log_y, caption=caption, parts=parts
    )


def ratio_charts(lines: Sequence[RankerLine]) -> Iterator[Chart]:
    """plain / tuned of forward and call at each batch size, with its interval."""
    points = [
        Point(f"{line.rows:,} rows", name, ratio.median, ratio.low, ratio.high)
        for line in lines
        for name, ratio in ((FORWARD, line.forward_ratio), (CALL, line.call_ratio))
        if ratio is not None
    ]
    if points:
        caption = "Above 1 tuned is faster. Bars: the interval that holds the median of rounds."
        title = "Time of plain over time of tuned"
        yield charts.intervals(title, points, "plain / tuned", caption=caption)


def round_charts(trials: Sequence[Trial]) -> Iterator[Chart]:
    """The time of a forward in each round, in ms, a chart for each batch size."""
    for rows in dict.fromkeys(batch_size(one.cell) for one in trials):
        series = {
            one.variant: points
            for one in trials
            if batch_size(one.cell) == rows
            if len(points := [(s, v / NS_PER_MS) for s, v in over_windows(one, FORWARD)]) > 1
        }
        yield from course_charts(
            f"Forward by round, {rows:,} rows",
            series,
            "ms",
            "A point is a round, at the mean length of a round from the last.",
        )
