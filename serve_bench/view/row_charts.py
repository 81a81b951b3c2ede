"""Charts of rows: throughput with intervals, percentile curves, windows over time, CPU.

Rows under one heading share a chart; of many headings the one with the highest requests/s and one
with unsteady windows stand open, the others are folded. Profiled rows are in no chart: the profiler
slowed them down. Charts are made when a form draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from serve_bench.analysis.ratios import CONFIDENCE, FEWEST, quantile
from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.view import drawn, streams
from serve_bench.view.blocks import (
    by_launch,
    course_charts,
    cpu_of_rows,
    in_parts,
    latency_curve,
    percentile_charts,
    section,
)
from serve_bench.view.charts import Chart, Point
from serve_bench.view.document import Block, Charts, Folded, Section
from serve_bench.view.figures import Value
from serve_bench.view.frame import ViewRow
from serve_bench.view.inside import mean_by_role

OPEN: Final = 2
"""So many charts of a kind stand open; the others are folded."""

Panel: TypeAlias = tuple[str, Sequence[ViewRow]]
"""A heading, and the rows below it."""


def chart_sections(rows: Sequence[ViewRow], base: str = "variant") -> Iterator[Section]:
    """The charts of rows that were measured without a profiler. `base`: the dimension that has a
    colour."""
    measured = [row for row in rows if MAIN in row.values and row.dims.get("status") != "profiled"]
    dots = Charts(partial(_throughput, measured, base))
    yield from section("throughput", "Throughput by row", [dots] if measured else [])
    for name, title, draw, shows in (
        ("latency", "Latency by percentile", partial(_curves, LATENCY), _has(LATENCY)),
        ("ttft", "TTFT by percentile", partial(_curves, streams.TTFT), _has(streams.TTFT)),
        ("itl", "ITL by percentile", partial(_curves, streams.ITL), _has(streams.ITL)),
        ("windows", "Windows over time", _windows, _has_course),
        ("cpu-charts", "CPU by process", _cpu, _is_sampled),
    ):
        shown = [row for row in measured if shows(row)]
        yield from section(name, title, _blocks(_panels(shown), draw))


def _panels(rows: Sequence[ViewRow]) -> list[Panel]:
    """The rows of each heading, in parts that a chart has room for."""
    groups: dict[str, dict[str, ViewRow]] = {}
    for row in rows:
        groups.setdefault(row.group, {})[row.name] = row
    return [
        (f"{group}{part}".removeprefix(", "), list(part_rows.values()))
        for group, named in groups.items()
        for part, part_rows in in_parts(named)
    ]


def _blocks(panels: Sequence[Panel], draw: Callable[[Panel], Iterable[Chart]]) -> Iterator[Block]:
    if len(panels) <= OPEN:
        yield from [Charts(partial(_drawn, panels, draw))] if panels else []
        return
    fastest = max(panels, key=lambda panel: max(row.values[MAIN].value for row in panel[1]))
    opened = [fastest, *(panel for panel in panels if panel is not fastest and _is_unsteady(panel))]
    shown = opened[:OPEN]
    rest = [panel for panel in panels if panel not in shown]
    yield Charts(partial(_drawn, shown, draw))
    yield Folded(f"The other charts ({len(rest)})", (Charts(partial(_drawn, rest, draw)),))


def _drawn(panels: Sequence[Panel], draw: Callable[[Panel], Iterable[Chart]]) -> Iterator[Chart]:
    return chain.from_iterable(map(draw, panels))


def _is_unsteady(panel: Panel) -> bool:
    codes = {warning.code for row in panel[1] for warning in row.warnings}
    return not codes.isdisjoint({"unsteady-windows", "standstill"})


def _titled(what: str, panel: Panel) -> str:
    return f"{what}: {panel[0]}" if panel[0] else what


def interval_of(value: Value) -> tuple[float, float, str] | None:
    """The t interval over launches where there are FEWEST of them, else mean ± std over windows;
    with what it is over. None for a single window. No rate is below 0."""
    launches, spread = len(value.launches), value.launch_std
    if spread is not None and launches >= FEWEST:
        half = quantile(launches - 1, 0.5 + CONFIDENCE / 2) * spread / math.sqrt(launches)
        return max(0.0, value.value - half), value.value + half, "launches"
    if value.std is None:
        return None
    return max(0.0, value.value - value.std), value.value + value.std, "windows"


_INTERVALS: Final = {
    "launches": f"the {100 * CONFIDENCE:g} % interval of Student's t over launches, of rows with "
    f"{FEWEST} or more",
    "windows": "mean ± std over the windows within a launch: how steady it was, not how launches "
    "differ",
    "none": "none of a single window",
}


def _throughput(rows: Sequence[ViewRow], base: str) -> Iterator[Chart]:
    """Requests/s with intervals: loads differ in rate by their nature, so that each has a chart."""
    loads = dict.fromkeys(row.dims["row"] for row in rows)
    several = len(loads) > 1 and len({row.group for row in rows}) > 1
    for load in loads if several else [""]:
        points, over = [], set()
        for row in rows:
            if several and row.dims["row"] != load:
                continue
            interval = interval_of(row.values[MAIN])
            low, high, word = interval or (None, None, "none")
            over.add(word)
            label = (row.group if several else row.name).removesuffix(f", {row.dims[base]}")
            points.append(Point(label, str(row.dims[base]), row.values[MAIN].value, low, high))
        words = "; ".join(text for word, text in _INTERVALS.items() if word in over)
        title = _titled("Requests/s", (str(load), ()))
        yield drawn.intervals(title, points, "requests/s", caption=f"Intervals: {words}.")


def _has(metric: str) -> Callable[[ViewRow], bool]:
    """Whether a row has several values of a metric."""
    return lambda row: (row.value(f"{metric}_count") or 0) > 1


def _curves(metric: str, panel: Panel) -> Iterator[Chart]:
    """Percentile curves; a log axis has no place for events that came together."""
    curves = {
        row.name: above
        for row in panel[1]
        if (above := [point for point in latency_curve(row.trials, metric) if point[1] > 0])
    }
    merged = any(len(row.trials) > 1 for row in panel[1])
    caption = {
        LATENCY: "From the moment a request was due until its response was complete",
        streams.TTFT: "From the moment it was due until its first event",
        streams.ITL: "From one event to the next; those of one read are 0 ms apart: not drawn",
    }[metric]
    caption += "; histograms of all launches, merged" if merged else ""
    caption += ". A curve ends where a single response lies beyond it."
    title = _titled("Latency" if metric == LATENCY else metric.upper(), panel)
    yield from percentile_charts(title, curves, caption, _parts(panel))


def _parts(panel: Panel) -> dict[str, tuple[str, str]]:
    return {row.name: (str(row.dims["variant"]), row.name) for row in panel[1]}


def _has_course(row: ViewRow) -> bool:
    return bool(by_launch("", row.trials))


def _windows(panel: Panel) -> Iterator[Chart]:
    """Requests/s over time, a line for each launch."""
    courses = {
        name: (points, row)
        for row in panel[1]
        for name, points in by_launch(row.name, row.trials).items()
    }
    lengths = sorted({trial.window_s for row in panel[1] for trial in row.trials})
    shown = " or ".join(f"{length:g} s" for length in lengths)
    caption = f"Requests completed in each window of {shown}, at its middle, after the warm-up."
    parts = {name: (str(row.dims["variant"]), name) for name, (_, row) in courses.items()}
    lines = {name: points for name, (points, _) in courses.items()}
    yield from course_charts(_titled("Requests/s", panel), lines, "requests/s", caption, parts)


def _is_sampled(row: ViewRow) -> bool:
    return bool(mean_by_role(row.trials))


def _cpu(panel: Panel) -> Iterator[Chart]:
    rows = [(row.name, row.trials, row.entry.limited) for row in panel[1] if row.entry is not None]
    yield from cpu_of_rows(_titled("CPU", panel), rows)
