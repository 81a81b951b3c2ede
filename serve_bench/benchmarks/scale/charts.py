"""Charts of a scale run: rates, growth over replicas, percentiles, nodes, CPU.

Rule: a point is a figure of a size over its launches, and its bar their lowest and highest; lines
only join sizes that were measured. Values that differ much stand on a log axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.analysis.verdict import prevailing
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.blocks import (
    cpu_charts,
    latency_curve,
    limit_note,
    percentile_charts,
)
from serve_bench.benchmarks.parts.charts import LinePoint, Point
from serve_bench.benchmarks.parts.texts import bounded_number
from serve_bench.benchmarks.scale.figures import Figure
from serve_bench.benchmarks.scale.growth import Grown
from serve_bench.benchmarks.scale.nodes import ScaleNode
from serve_bench.benchmarks.scale.summary import ScaleSize, ScaleSummary, short_label, usages_of
from serve_bench.core.document import Chart
from serve_bench.core.figures import counted

LOG_Y: Final = 5.0
"""From so many times the least value on, an axis is logarithmic; on a narrower one the scatter of a
quantity that does not change would look like growth."""

_PANELS: Final[Mapping[str, Mapping[str, str]]] = {
    "Throughput": {"throughput": ""},
    "Latency": {"latency_p50": "p50", "latency_p99": "p99"},
    "Deploy time": {"deploy_time": ""},
    "Memory of a replica": {"memory_per_replica": ""},
    "CPU of a request": {"cpu_per_request": ""},
    "The controller's loop": {"controller_loop": ""},
    "Teardown time": {"teardown_time": ""},
}
"""Quantities of a curve that share a chart, and what each is called in it."""


def row_name(summary: ScaleSummary, size: ScaleSize, line: Line) -> str:
    """What tells a row from the others of the run."""
    names = [size.variant] if len(summary.variants) > 1 else []
    if len({one.replicas for one in summary.sizes}) > 1:
        names.append(counted(size.replicas, "replica"))
    names += [short_label(line.row.label)] if len(size.lines) > 1 else []
    return ", ".join(names) or size.variant


def node_name(node: ScaleNode, size: ScaleSize) -> str:
    """A node by its address; where several have one, with the beginning of its id."""
    same = (one for one in size.nodes if (one.launch, one.ip) == (node.launch, node.ip))
    others = [one.node for one in same if one.node != node.node]
    return f"{node.ip} {node.node[:6]}" if others else node.ip


def rate_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Requests/s of every row that has a throughput, where there are several; not of a curve."""
    points = []
    for size in () if summary.curve else summary.sizes:
        for line in size.lines:
            spread = line.spreads.get(MAIN)
            if spread is None or line.row.requests_each is not None:
                continue
            rates = [throughput_of(trial) for trial in line.trials if MAIN in trial.metrics]
            low, high = (min(rates), max(rates)) if len(rates) > 1 else spread.ends
            name = row_name(summary, size, line)
            points.append(Point(name, size.variant, spread.mean, low, high))
    if len(points) > 1:
        caption = "Bars: lowest and highest launch; of one launch ± the std of its windows."
        yield charts.intervals("Requests/s", points, "requests/s", caption=caption)


def growth_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Each quantity of a curve over the number of replicas, with the exponents of its fits."""
    several = len(summary.variants) > 1
    for title, shared in _PANELS.items():
        series: dict[str, list[LinePoint]] = {}
        fits, unit = [], ""
        for part in summary.variants:
            for grown in (one for one in part.grown if one.quantity.name in shared):
                word = shared[grown.quantity.name]
                names = [part.name] if several or not word else []
                name = ", ".join([*names, *([word] if word else [])])
                if grown.usable:
                    positive = (one for one in grown.points if (one[1].mean or 0.0) > 0)
                    series[name] = [_step(*point) for point in positive]
                    unit = grown.quantity.unit
                    fits.append(_fit(name, grown))
        values = [step.value for steps in series.values() for step in steps]
        if not values:
            continue
        ends = "; ".join(
            f"{name}: {bounded_number(steps[0].value)} at {steps[0].x:g}, "
            f"{bounded_number(steps[-1].value)} at {steps[-1].x:g}"
            for name, steps in series.items()
        )
        yield charts.ladder(
            title,
            series,
            x_name="replicas",
            unit=unit,
            words=f"{title} over replicas, in {unit}. {ends}.",
            log_y=max(values) >= LOG_Y * min(values),
            caption=f"{'; '.join(fits)}.",
        )


def _step(replicas: int, figure: Figure) -> LinePoint:
    low, high = min(figure.known), max(figure.known)
    several = figure.count > 1
    return LinePoint(
        replicas, figure.mean or 0.0, low if several else None, high if several else None
    )


def _fit(name: str, grown: Grown) -> str:
    fit = grown.fit
    if fit is None:
        return f"{name}: too few sizes for an exponent"
    return f"{name}: n^{fit.text} (95 %: {fit.low:.2f} to {fit.high:.2f}), {fit.words}"


def latency_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Percentiles of all requests of each row; of a curve a chart for each variant."""
    caption = "Launches and nodes merged; each curve ends where one request is slower."
    for title, own in _apart(summary):
        curves = {name: points for name, line in own if (points := latency_curve(line.trials))}
        yield from percentile_charts(f"Latency{title}", curves, caption)


def _apart(summary: ScaleSummary) -> Iterator[tuple[str, list[tuple[str, Line]]]]:
    """The rows that share a chart by name, with what its title says of them."""
    parts = [part.sizes for part in summary.variants] if summary.curve else [summary.sizes]
    for sizes in parts:
        title = f", variant {sizes[0].variant}" if len(parts) > 1 else ""
        yield (title, [(row_name(summary, one, line), line) for one in sizes for line in one.lines])


def node_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Requests/s of each node, where several loaded."""
    points = [
        Point(node_name(node, size), _of_node(summary, size, node.launch), node.rate)
        for size in summary.sizes
        for node in size.nodes
        if node.rate is not None
    ]
    if len({one.label for one in points}) > 1:
        points.sort(key=lambda one: one.label)
        caption = "Nodes that were lost have no rate."
        yield charts.intervals("Requests/s of each node", points, "requests/s", caption=caption)


def _of_node(summary: ScaleSummary, size: ScaleSize, launch: int) -> str:
    name = size.title if len(summary.sizes) > 1 else size.variant
    return f"{name}, launch {launch}" if len(size.launches) > 1 else name


def usage_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """CPU by process of each row that was sampled on one machine."""
    caption = "100 % is one core; all processes of a role together, mean over launches."
    rows = [
        (
            row_name(summary, row.size, row.line),
            [usage for trial in row.line.trials for usage in usages_of(trial)],
            limit_note(prevailing(row.verdicts)) if row.verdicts else "",
        )
        for row in summary.sampled
    ]
    yield from cpu_charts("CPU by process", rows, caption)
