"""The charts of the ranker alone: rows/s, times with their floor, ratios, rounds over time.

Rule: a point is a median over rounds, its bar the interval that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.charts import Point, Step
from serve_bench.benchmarks.parts.pieces import NS_PER_MS, over_windows
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.ranker.summary import CALL, FORWARD, Interval, RankerLine
from serve_bench.core.document import Chart
from serve_bench.core.result import Trial


def _by_kind(lines: Sequence[RankerLine]) -> dict[str, list[RankerLine]]:
    found: dict[str, list[RankerLine]] = {}
    for line in lines:
        found.setdefault(line.kind, []).append(line)
    return found


def rate_charts(lines: Sequence[RankerLine]) -> Iterator[Chart]:
    """Rows/s over the batch size."""
    series = {
        kind: [Step(line.rows, line.rows_per_s) for line in own]
        for kind, own in _by_kind(lines).items()
    }
    if series:
        yield _over_rows("Rows a second over the batch size", series, "rows/s", False, "")


def time_charts(lines: Sequence[RankerLine]) -> Iterator[Chart]:
    """Forward with its floor, then the whole call, over the batch size."""
    own = _by_kind(lines)
    forward = {
        f"{kind}, forward": [_step(x.rows, x.forward) for x in of] for kind, of in own.items()
    }
    floors = {
        f"{kind}, floor": [Step(x.rows, 1e3 * x.floor.seconds) for x in of]
        for kind, of in own.items()
    }
    calls = {f"{kind}, call": [_step(x.rows, x.call) for x in of] for kind, of in own.items()}
    caption = "Bars: the interval that holds the median."
    if forward:
        title = "Forward and its floor"
        yield _over_rows(title, forward | floors, "ms", True, caption)
        yield _over_rows("The whole call", calls, "ms", True, caption)


def _step(rows: int, time: Interval) -> Step:
    return Step(rows, time.median / NS_PER_MS, time.low / NS_PER_MS, time.high / NS_PER_MS)


def _over_rows(
    title: str, series: dict[str, list[Step]], unit: str, log_y: bool, caption: str
) -> Chart:
    said = (
        f"{name}: {', '.join(f'{number(one.value, 3)} at {one.x:g}' for one in steps)}"
        for name, steps in series.items()
    )
    return charts.ladder(
        title,
        series,
        x_name="rows a batch",
        unit=unit,
        words=f"{title}, {unit} over rows a batch. {'; '.join(said)}.",
        log_y=log_y,
        caption=caption,
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
        said = "; ".join(f"{one.label}, {one.group}: {one.value:.2f}" for one in points)
        yield charts.intervals(
            "Time of plain over time of tuned",
            points,
            unit="plain / tuned",
            words=f"Ratios of time, above 1 tuned is faster. {said}.",
            caption="Above 1 tuned is faster. Bars: the interval that holds the median of rounds.",
        )


def round_charts(trials: Sequence[Trial]) -> Iterator[Chart]:
    """The time of a forward in each round, a chart for each batch size."""
    for rows in dict.fromkeys(int(one.cell["rows"]) for one in trials):
        series = {
            one.variant: points
            for one in trials
            if int(one.cell["rows"]) == rows
            if len(points := [(s, v / NS_PER_MS) for s, v in over_windows(one, FORWARD)]) > 1
        }
        if series:
            said = (
                f"{name}: {latency(min(v for _, v in points))} to "
                f"{latency(max(v for _, v in points))} ms"
                for name, points in series.items()
            )
            yield charts.over_time(
                f"Forward by round, {rows:,} rows",
                series,
                unit="ms",
                words=f"Time of a forward in each round, {rows:,} rows. {'; '.join(said)}.",
                caption="A point is a round, at the mean length of a round from the last.",
            )
