"""The charts of a scale run: rates, growth over replicas, percentiles, nodes, windows, CPU.

Rule: a point is a figure of a size over its launches, and its bar their lowest and highest; lines
only join sizes that were measured. Values that differ much stand on a log axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.charts import Point, Share, Step
from serve_bench.benchmarks.parts.pieces import (
    busiest_words,
    by_launch,
    curve_words,
    in_parts,
    latency_curve,
    span_words,
)
from serve_bench.benchmarks.parts.texts import bounded_number, number
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, usages_of
from serve_bench.benchmarks.scale.nodes import NodeUse, nodes_of, use_of
from serve_bench.benchmarks.scale.page_rows import node_name
from serve_bench.benchmarks.scale.summary import Figure, Grown
from serve_bench.benchmarks.scale.words import replicas_words, short_label
from serve_bench.core.document import Chart

LOG_Y: Final = 5.0
"""From so many times the least value on, an axis is logarithmic; on a narrower one the scatter of a
quantity that does not change would look like growth."""

FIGURES: Final = re.compile(r",? \d")
"""Where the figures of a limit begin: `host CPU 195 of 200 %`, `offered load, 1 connection`."""

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


def _named(page: ScalePage, entry: ScaleEntry, line: Line) -> str:
    """What tells a row from the others of the page."""
    names = [entry.size.variant] if len(page.variants) > 1 else []
    if len({one.size.replicas for one in page.entries}) > 1:
        names.append(replicas_words(entry.size.replicas))
    names += [short_label(line)] if len(entry.size.lines) > 1 else []
    return ", ".join(names) or entry.size.variant


def rate_charts(page: ScalePage) -> Iterator[Chart]:
    """Requests/s of every row that has a throughput, where there are several; not of a curve."""
    points = []
    for entry in page.entries if page.workload != "curve" else ():
        for line in entry.size.lines:
            spread = line.spreads.get(MAIN)
            if spread is None or line.row.requests_each is not None:
                continue
            rates = [throughput_of(trial) for trial in line.trials if MAIN in trial.metrics]
            low, high = max(0.0, spread.mean - spread.std), spread.mean + spread.std
            if len(rates) > 1:
                low, high = min(rates), max(rates)
            name = _named(page, entry, line)
            points.append(Point(name, entry.size.variant, spread.mean, low, high))
    if len(points) > 1:
        said = "; ".join(f"{one.label}: {number(one.value)}" for one in points)
        yield charts.intervals(
            "Requests/s",
            points,
            unit="requests/s",
            words=f"Requests/s of {len(points)} rows. {said}.",
            caption="Bars: lowest and highest launch; of one launch ± the std of its windows.",
        )


# -------------------------------------------------------------------------------------- growth


def growth_charts(page: ScalePage) -> Iterator[Chart]:
    """Each quantity of a curve over the number of replicas, with the exponents of its fits."""
    for title, shared in _PANELS.items():
        series: dict[str, list[Step]] = {}
        fits, unit = [], ""
        for part in page.variants:
            for grown in part.grown:
                word = shared.get(grown.quantity.name)
                if word is None:
                    continue
                names = [part.name] if len(page.variants) > 1 else []
                name = ", ".join([*names, *([word] if word else [])]) or part.name
                steps = [_step(*point) for point in grown.points if (point[1].mean or 0.0) > 0]
                if steps:
                    series[name], unit = steps, grown.quantity.unit
                    fits.append(_fit(name, grown))
        every = [step.value for steps in series.values() for step in steps]
        if not every:
            continue
        said = (
            f"{name}: {bounded_number(steps[0].value)} at {steps[0].x:g}, "
            f"{bounded_number(steps[-1].value)} at {steps[-1].x:g}"
            for name, steps in series.items()
        )
        yield charts.ladder(
            title,
            series,
            x_name="replicas",
            unit=unit,
            words=f"{title} over replicas, in {unit}. {'; '.join(said)}.",
            log_y=max(every) >= LOG_Y * min(every),
            caption=f"{'; '.join(fits)}.",
        )


def _step(replicas: int, figure: Figure) -> Step:
    low, high = min(figure.known), max(figure.known)
    several = figure.count > 1
    return Step(replicas, figure.mean or 0.0, low if several else None, high if several else None)


def _fit(name: str, grown: Grown) -> str:
    fit = grown.fit
    if fit is None:
        return f"{name}: too few sizes for an exponent"
    return f"{name}: n^{fit.text} (95 %: {fit.low:.2f} to {fit.high:.2f}), {fit.words}"


# --------------------------------------------------------------------------------- percentiles


def percentile_charts(page: ScalePage) -> Iterator[Chart]:
    """All requests of each row; of a curve a chart for each variant."""
    for title, own in _apart(page):
        curves: dict[str, list[tuple[float, float]]] = {}
        for entry, line in own:
            if points := latency_curve(line.trials):
                curves[_named(page, entry, line)] = points
        for part, shown in in_parts(curves):
            said = (curve_words(*pair) for pair in shown.items())
            yield charts.percentile_curves(
                f"Latency{title}{part}",
                shown,
                words=f"Percentiles of the latency. {'; '.join(said)}.",
                caption="Launches and nodes merged; each curve ends where one request is slower.",
            )


def _apart(page: ScalePage) -> Iterator[tuple[str, list[tuple[ScaleEntry, Line]]]]:
    """The rows that share a chart, with what its title says of them."""
    parts = page.variants if page.workload == "curve" else ()
    for part in parts:
        name = f", variant {part.name}" if len(parts) > 1 else ""
        yield name, [(entry, line) for entry in part.entries for line in entry.size.lines]
    if not parts:
        yield "", [(entry, line) for entry in page.entries for line in entry.size.lines]


def window_charts(page: ScalePage) -> Iterator[Chart]:
    """Requests/s of the windows of each row that has several; of a curve a chart a variant."""
    for title, own in _apart(page):
        series: dict[str, list[tuple[float, float]]] = {}
        for entry, line in own:
            series |= by_launch(_named(page, entry, line), line.trials)
        for part, shown in in_parts(series):
            said = (span_words(*pair) for pair in shown.items())
            yield charts.over_time(
                f"Requests/s, window by window{title}{part}",
                shown,
                unit="requests/s",
                words=f"Requests/s of each window. {'; '.join(said)}.",
                caption="Seconds since the first window, each point at the middle of its window.",
            )


# --------------------------------------------------------------------------------------- nodes


def node_charts(page: ScalePage) -> Iterator[Chart]:
    """Requests/s of each node, where several loaded."""
    points = []
    for entry in page.entries:
        for node in entry.size.nodes:
            if node.rate is not None:
                label = node_name(node, entry.size)
                points.append(Point(label, _of_node(page, entry, node.launch), node.rate))
    if len({one.label for one in points}) > 1:
        ordered = sorted(points, key=lambda one: one.label)
        said = "; ".join(f"{one.label}, {one.group}: {number(one.value)}" for one in ordered)
        yield charts.intervals(
            "Requests/s of each node",
            ordered,
            unit="requests/s",
            words=f"Requests/s of each node. {said}.",
            caption="Nodes that were lost have no rate.",
        )


def _of_node(page: ScalePage, entry: ScaleEntry, launch: int) -> str:
    names = [entry.title if len(page.entries) > 1 else entry.size.variant]
    names += [f"launch {launch}"] if len(entry.size.launches) > 1 else []
    return ", ".join(names)


# ----------------------------------------------------------------------------------------- CPU


def cpu_charts(page: ScalePage) -> Iterator[Chart]:
    """CPU by process of each row that was sampled on one machine, then on each node of several."""
    rows, nodes = [], []
    for entry in page.entries:
        for line in entry.size.lines:
            if all(len(nodes_of(trial)) < 2 for trial in line.trials):
                use = use_of([one for trial in line.trials for one in usages_of(trial)])
                label, note = _named(page, entry, line), _limit(entry, line)
                rows += [] if use is None else _shares(label, use, note)
        for node in entry.size.nodes:
            use = use_of([node.usage]) if node.usage else None
            label = f"{node_name(node, entry.size)}, {_of_node(page, entry, node.launch)}"
            nodes += [] if use is None else _shares(label, use, "")
    caption = "100 % is one core; others: raylet, load, the tool. Mean over launches."
    if rows:
        yield _stacked("CPU by process", rows, caption)
    if len({one.label for one in nodes}) > 1 and page.workload != "curve":
        yield _stacked("CPU by process on each node", nodes, caption)


def _shares(label: str, use: NodeUse, note: str) -> list[Share]:
    found = {name: getattr(use, name) for name in ("proxy", "replicas", "controller", "others")}
    return [Share(label, name, value, note) for name, value in found.items() if value is not None]


def _limit(entry: ScaleEntry, line: Line) -> str:
    """What limited a row, in few words: its figures stand in a list below the chart."""
    before = f"{short_label(line)}: " if len(entry.size.lines) > 1 else ""
    for text in entry.limits:
        if text.startswith(f"{before}limited by: "):
            what = text.removeprefix(f"{before}limited by: ").partition(" (")[0]
            return f"limited by {FIGURES.split(what)[0]}"
    return ""


def _stacked(title: str, shares: Sequence[Share], caption: str) -> Chart:
    return charts.stacked(
        title, shares, unit="% of a core", words=busiest_words(shares), caption=caption
    )
