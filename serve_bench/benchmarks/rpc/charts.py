"""Charts of a run of rpc: the four metrics over the x axis, percentiles, CPU.

Rule: lines join worlds only where the x axis has numbers; else each world has a row of its own. The
four metrics are drawn of a `MetricCurve`, so that a stored report is drawn like a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.analysis.statistics import merged
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.blocks import cpu_charts, curve_of, percentile_charts
from serve_bench.benchmarks.parts.charts import LinePoint, Point
from serve_bench.benchmarks.parts.published import RPC, reference
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.rpc.summary import (
    AGENT_LATENCY,
    NAMES,
    OBSERVER_LATENCY,
    PERCENTILES,
    MetricCurve,
    RpcSummary,
)
from serve_bench.core.document import Chart

LOG_X: Final = 20.0
LOG_Y: Final = 12.0
"""An axis whose largest value is so many times its smallest is logarithmic: on a linear one the
small half could not be read."""

PUBLISHED: Final = "PUBLISHED, not measured here; hardware not named"
"""The series of the published example."""

Value = tuple[float, float | None, float | None]
"""A figure with the ends of its bar."""


def example_curve(x_axis: str, batched: frozenset[bool]) -> MetricCurve | None:
    """The published example; None where it is not alike (x axis world_size, batch True)."""
    if x_axis != "world_size" or batched != {True}:
        return None
    keys = {name: name.removesuffix(" (seconds)").replace(" ", "_") for name in NAMES}
    return MetricCurve(
        PUBLISHED,
        {
            str(row["world_size"]): {
                name: dict(zip(PERCENTILES, row[key], strict=True)) for name, key in keys.items()
            }
            for row in reference(RPC)["example"]
        },
    )


def metric_charts(
    curves: Sequence[MetricCurve], x_axis: str, example: MetricCurve | None = None
) -> Iterator[Chart]:
    """The four metrics over the x axis: the median of each, with a bar up to p95; latencies in
    ms."""
    every = [*([example] if example is not None else []), *curves]
    for name in NAMES:
        of_latency = "latency" in name
        per = 1e3 if of_latency else 1.0
        series: dict[str, dict[str, Value]] = {
            curve.name: {
                x: (per * own[name][50], per * own[name][50], per * own[name][95])
                for x, own in curve.points.items()
            }
            for curve in every
        }
        title = name.removesuffix(" (seconds)").capitalize()
        unit = "ms" if of_latency else "requests/s"
        yield from _over_x(title, x_axis, series, unit, "The median; bars reach up to p95.")


def rate_chart(summary: RpcSummary) -> Iterator[Chart]:
    """Calls/s of all observers, by their mean over episodes."""
    series: dict[str, dict[str, Value]] = {}
    for high in summary.points:
        if (rate := high.rate) is not None:
            series.setdefault(high.backend, {})[high.x] = (rate.mean, *rate.ends)
    caption = "Mean ± std over episodes (ddof 0)."
    yield from _over_x("Calls of all observers", summary.x_axis, series, "requests/s", caption)


def _over_x(
    title: str, x_axis: str, series: Mapping[str, Mapping[str, Value]], unit: str, caption: str
) -> Iterator[Chart]:
    """A figure by series and point of the x axis: lines over numbers above 0, else rows."""
    measured = list(dict.fromkeys(x for name in series if name != PUBLISHED for x in series[name]))
    if not measured:
        return
    text = latency if unit == "ms" else number
    points = "; ".join(
        f"{name}, {x_axis} {x}: {text(value[0])}"
        for name, own in series.items()
        for x, value in own.items()
    )
    words = f"{title} over {x_axis}, {unit}. {points}."
    if len(measured) == 1 or not all(x.isascii() and x.isdigit() and int(x) for x in measured):
        xs = dict.fromkeys([*measured, *(x for own in series.values() for x in own)])
        rows = [
            Point(f"{x_axis} {x}", name, *own[x])
            for x in xs
            for name, own in series.items()
            if x in own
        ]
        yield charts.intervals(title, rows, unit, words, caption)
        return
    lines = {
        name: [LinePoint(float(x), *value) for x, value in own.items()]
        for name, own in series.items()
    }
    every = [one for own in lines.values() for one in own]
    yield charts.ladder(
        title,
        lines,
        x_name=x_axis,
        unit=unit,
        words=words,
        log_x=_far([one.x for one in every], LOG_X),
        log_y=_far([one.value for one in every], LOG_Y),
        caption=caption,
    )


def _far(values: Sequence[float], factor: float) -> bool:
    """Whether an axis of these values is logarithmic."""
    return min(values) > 0 and max(values) >= factor * min(values)


def latency_charts(summary: RpcSummary) -> Iterator[Chart]:
    """Percentiles of all calls and of all batches, a chart for each point of the x axis."""
    for title, name in (("Observer latency", OBSERVER_LATENCY), ("Agent latency", AGENT_LATENCY)):
        for x in summary.xs:
            curves = {
                one.backend: points
                for one in summary.at(x)
                if (points := curve_of(merged(one.trials, name)))
            }
            where = f"{summary.x_axis} {x}"
            yield from percentile_charts(f"{title}, {where}", curves)


def cpu_chart(summary: RpcSummary) -> Iterator[Chart]:
    """CPU by process of each world, with what was full."""
    several = len(summary.backends) > 1
    rows = [
        (
            one.title if several else f"{one.x_axis} {one.x}",
            [trial.usage for trial in one.trials],
            f"limited by {one.limited}" if one.limited else "",
        )
        for one in summary.by_x
    ]
    caption = "100 % is one core; all processes of a role together, mean over launches."
    yield from cpu_charts("CPU by process", rows, caption)
