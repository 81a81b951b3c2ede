"""Charts of a run of rpc: the four metrics over the x axis, percentiles, episodes, CPU.

Rule: lines join worlds only where the x axis has numbers; else each world has a row of its own. The
four metrics are drawn of a `Curve`, so that a stored report is drawn like a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.analysis.statistics import merged
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.charts import BarPart, LinePoint, Point
from serve_bench.benchmarks.parts.pieces import (
    MOST_LINES,
    busiest_words,
    by_launch,
    curve_of,
    curve_words,
    in_parts,
    span_words,
)
from serve_bench.benchmarks.parts.published import rpc_example
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.rpc.summary import (
    AGENT_LATENCY,
    NAMES,
    OBSERVER_LATENCY,
    PERCENTILES,
    Curve,
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


def example_curve(x_axis: str, batched: frozenset[bool]) -> Curve | None:
    """The published example; None where it is not alike (x axis world_size, batch True)."""
    example = rpc_example(x_axis, batched)
    if not example:
        return None
    keys = {name: name.removesuffix(" (seconds)").replace(" ", "_") for name in NAMES}
    return Curve(
        PUBLISHED,
        {
            str(one["world_size"]): {
                name: dict(zip(PERCENTILES, one[key], strict=True)) for name, key in keys.items()
            }
            for one in example
        },
    )


def metric_charts(
    curves: Sequence[Curve], x_axis: str, example: Curve | None = None
) -> Iterator[Chart]:
    """The four metrics over the x axis: the median of each, with a bar up to p95; latencies in
    ms."""
    every = [*([example] if example is not None else []), *curves]
    for name in NAMES:
        per = 1e3 if "latency" in name else 1.0
        series: dict[str, dict[str, Value]] = {}
        for curve in every:
            shares = {x: metrics[name] for x, metrics in curve.points.items()}
            series[curve.name] = {
                x: (per * own[50], per * own[50], per * own[95]) for x, own in shares.items()
            }
        title = name.removesuffix(" (seconds)").capitalize()
        unit = "ms" if "latency" in name else "requests/s"
        yield from _over_x(title, x_axis, series, unit, "The median; bars reach up to p95.")


def rate_chart(summary: RpcSummary) -> Iterator[Chart]:
    """Calls/s of all observers, by their mean over episodes."""
    series: dict[str, dict[str, Value]] = {}
    for one in summary.points:
        if (rate := one.rate) is not None:
            value = (rate.mean, max(0.0, rate.mean - rate.std), rate.mean + rate.std)
            series.setdefault(one.backend, {})[one.x] = value
    caption = "Bars: ± the std over episodes (ddof 0)."
    yield from _over_x("Calls of all observers", summary.x_axis, series, "requests/s", caption)


def _over_x(
    title: str, x_axis: str, series: Mapping[str, Mapping[str, Value]], unit: str, caption: str
) -> Iterator[Chart]:
    """A figure by series and point of the x axis: lines over numbers, else rows."""
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
    every = [value[0] for own in series.values() for value in own.values()]
    if len(measured) > 1 and all(map(_is_number, measured)):
        steps = {
            name: [LinePoint(float(x), *value) for x, value in own.items()]
            for name, own in series.items()
        }
        places = [one.x for own in steps.values() for one in own]
        yield charts.ladder(
            title,
            steps,
            x_name=x_axis,
            unit=unit,
            words=words,
            log_x=_far(places, LOG_X),
            log_y=_far(every, LOG_Y),
            caption=caption,
        )
        return
    xs = dict.fromkeys([*measured, *(x for own in series.values() for x in own)])
    rows = [
        Point(f"{x_axis} {x}", name, *own[x])
        for x in xs
        for name, own in series.items()
        if x in own
    ]
    yield charts.intervals(title, rows, unit=unit, words=words, caption=caption)


def _is_number(x: str) -> bool:
    """Whether a point has a place on an axis of numbers above 0."""
    return x.isascii() and x.isdigit() and int(x) > 0


def _far(values: Sequence[float], factor: float) -> bool:
    """Whether an axis of these values is logarithmic."""
    return min(values) > 0 and max(values) >= factor * min(values)


def percentile_charts(summary: RpcSummary) -> Iterator[Chart]:
    """All calls and all batches of each world, a chart for each point of the x axis."""
    for title, name in (("Observer latency", OBSERVER_LATENCY), ("Agent latency", AGENT_LATENCY)):
        for x in summary.xs:
            curves = {
                one.backend: points
                for one in summary.at(x)
                if (points := curve_of(merged(one.trials, name)))
            }
            if not curves:
                continue
            where = f"{summary.x_axis} {x}"
            ends = "; ".join(curve_words(*pair) for pair in curves.items())
            yield charts.percentile_curves(
                f"{title}, {where}",
                curves,
                words=f"Percentiles of the {title.lower()} with {where}. {ends}.",
            )


def episode_charts(summary: RpcSummary) -> Iterator[Chart]:
    """Calls/s of each episode, a chart for each point of the x axis; for each backend too where
    that would be more lines than are told apart."""
    for x in summary.xs:
        series = {one.backend: by_launch(one.backend, one.trials) for one in summary.at(x)}
        where = f"{summary.x_axis} {x}"
        together = {name: points for own in series.values() for name, points in own.items()}
        if len(together) <= MOST_LINES:
            yield from _episodes(where, together)
            continue
        for backend, own in series.items():
            yield from _episodes(f"{backend}, {where}", own)


def _episodes(where: str, series: dict[str, list[tuple[float, float]]]) -> Iterator[Chart]:
    for part, own in in_parts(series):
        spans = "; ".join(span_words(*pair) for pair in own.items())
        yield charts.over_time(
            f"Calls of all observers by episode, {where}{part}",
            own,
            unit="requests/s",
            words=f"Requests/s of each episode with {where}. {spans}.",
            caption="A point is an episode, at the mean length of an episode from the last.",
        )


def cpu_chart(summary: RpcSummary) -> Iterator[Chart]:
    """CPU of agent, observers and all others, with what was full."""
    shares = []
    for one in summary.by_x:
        label = one.title if len(summary.backends) > 1 else f"{one.x_axis} {one.x}"
        note = f"limited by {one.use.limited}" if one.use.limited else ""
        parts = {
            "agent": one.use.agent,
            "observers": one.use.observers,
            "others": one.use.others,
        }
        shares += [
            BarPart(label, part, value, note) for part, value in parts.items() if value is not None
        ]
    if shares:
        yield charts.stacked(
            "CPU by process",
            shares,
            unit="% of a core",
            words=busiest_words(shares),
            caption="100 % is one core; others: raylet, controller, the tool. Mean over launches.",
        )
