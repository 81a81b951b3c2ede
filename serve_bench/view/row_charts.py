"""Charts of rows: throughput, percentile curves, windows over time, CPU.

Rows under one heading share a chart; of many headings those with the highest requests/s stand open,
the others are folded. Profiled rows are in no chart: the profiler slowed them down. Charts are made
when a form draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.view.blocks import (
    by_launch,
    course_charts,
    cpu_of_rows,
    latency_curve,
    percentile_charts,
    section,
)
from serve_bench.view.charts import Chart, Dots, HeatCell, HeatMap, Pairs, Point
from serve_bench.view.document import Block, Charts, Folded, Section
from serve_bench.view.figures import FIGURES, name_time
from serve_bench.view.frame import BARS, ViewRow, differ
from serve_bench.view.inside import mean_by_role

OPEN: Final = 2
"""So many headings of a section have their charts open."""

PARTS_OF_LATENCY: Final = ("service_time", "send_lag")
"""Of an open loop: from the moment a request was sent, and until then."""

Panel: TypeAlias = tuple[str, Sequence[ViewRow]]
"""A heading, and the rows below it."""


def chart_sections(rows: Sequence[ViewRow]) -> Iterator[Section]:
    """The charts of rows that were measured without a profiler. A variant has a colour."""
    measured = [row for row in rows if MAIN in row.values and row.dims.get("status") != "profiled"]
    rates = Charts(partial(_draw_rates, measured))
    yield from section("throughput", "Throughput by row", [rates] if measured else [])
    for metric in (LATENCY, "ttft", "itl"):
        shown = [row for row in measured if (row.value(f"{metric}_count") or 0) > 1]
        name = name_time(metric)
        title = f"{name[0].upper()}{name[1:]}"
        draw = partial(_draw_curves, metric, title)
        yield from section(metric, f"{title} by percentile", _fold(shown, draw))
    courses = [row for row in measured if by_launch("", row.trials)]
    yield from section("windows", "Windows over time", _fold(courses, _draw_windows))
    sampled = [row for row in measured if mean_by_role(row.trials)]
    yield from section("cpu-charts", "CPU by process", _fold(sampled, _draw_cpu))


def _fold(rows: Sequence[ViewRow], draw: Callable[[Panel], Iterable[Chart]]) -> Iterator[Block]:
    """A chart for each heading of the rows; those of the fastest are open."""
    groups: dict[str, list[ViewRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    fastest = {group: max(row.values[MAIN].value for row in rows) for group, rows in groups.items()}
    panels = sorted(groups.items(), key=lambda panel: -fastest[panel[0]])
    shown, rest = panels[:OPEN], panels[OPEN:]
    if shown:
        yield Charts(lambda: [chart for panel in shown for chart in draw(panel)])
    if rest:
        charts = Charts(lambda: [chart for panel in rest for chart in draw(panel)])
        yield Folded(f"The other charts ({len(rest)})", (charts,))


def _titled(what: str, heading: str) -> str:
    return f"{what}: {heading}" if heading else what


def _draw_rates(rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Requests/s of all rows: as a matrix where cells differ in several axes, else as dots. Loads
    differ in rate by their nature, so that each has a chart where there are several cells."""
    cells = [{} if row.entry is None else row.entry.line.cell for row in rows]
    axes = differ(rows, dict.fromkeys(axis for cell in cells for axis in cell))
    apart = differ(rows, ["row"]) and (len(axes) > 1 or len({row.group for row in rows}) > 1)
    for load in dict.fromkeys(str(row.dims["row"]) if apart else "" for row in rows):
        loaded = [row for row in rows if load in ("", row.dims["row"])]
        title = _titled("Requests/s", load)
        if len(axes) > 1 and (matrix := [*_draw_matrix(title, loaded, axes)]):
            yield from matrix
            continue
        points = []
        for row in loaded:
            variant, value = str(row.dims["variant"]), row.values[MAIN]
            label = (row.group if apart else row.name).removesuffix(f", {variant}")
            points.append(Point(label, variant, value.value, *value.ends))
        yield Chart(title, Dots(points, FIGURES[MAIN].shown), caption=BARS)


def _draw_matrix(title: str, rows: Sequence[ViewRow], axes: Sequence[str]) -> Iterator[Chart]:
    """Requests/s as a heat map: the axis with the most values is across, the others and the variant
    are down. Nothing where most cells would be empty."""
    across = max(axes, key=lambda axis: len({str(row.dims.get(axis)) for row in rows}))
    down = [axis for axis in axes if axis != across]
    cells = []
    for row in rows:
        names = [f"{axis} {row.dims.get(axis, '-')}" for axis in down]
        names += [str(row.dims["variant"])] if differ(rows, ["variant"]) else []
        x = str(row.dims.get(across, "-"))
        cells.append(HeatCell(x, ", ".join(names), row.values[MAIN].value, row.text(MAIN)))
    if 2 * len(cells) >= len({cell.x for cell in cells}) * len({cell.y for cell in cells}):
        unit = FIGURES[MAIN].shown
        caption = f"The darker, the more {unit}. Empty: not measured."
        yield Chart(title, HeatMap(cells, across, unit), caption=caption)


def _draw_curves(metric: str, name: str, panel: Panel) -> Iterator[Chart]:
    """Percentile curves: the metric of each row; of a single open loop what its latency is made of
    too. A log axis has no place for a lag of 0, and events that came together."""
    heading, rows = panel
    times = {row.name: (row, metric) for row in rows}
    if metric == LATENCY and len(rows) == 1 and rows[0].dims.get("loop") == "open":
        times = {name_time(time): (rows[0], time) for time in (LATENCY, *PARTS_OF_LATENCY)}
    curves = {
        line: above
        for line, (row, time) in times.items()
        if (above := [point for point in latency_curve(row.trials, time) if point[1] > 0])
    }
    _, _, meaning = FIGURES[f"{metric}_p50"].meaning.partition(": ")
    merged = "; histograms of all launches, merged" if len(rows[0].trials) > 1 else ""
    caption = f"{meaning[0].upper()}{meaning[1:]}{merged}. "
    caption += "A curve ends where a single response lies beyond it."
    parts = {line: (str(row.dims["variant"]), line) for line, (row, _) in times.items()}
    yield from percentile_charts(_titled(name, heading), curves, caption, parts)


def _draw_windows(panel: Panel) -> Iterator[Chart]:
    """Requests/s over time, a line for each launch."""
    heading, rows = panel
    lines: dict[str, Pairs] = {}
    parts: dict[str, tuple[str, str]] = {}
    for row in rows:
        for name, points in by_launch(row.name, row.trials).items():
            lines[name], parts[name] = points, (str(row.dims["variant"]), name)
    lengths = sorted({trial.window_s for row in rows for trial in row.trials})
    shown = " or ".join(f"{length:g} s" for length in lengths)
    caption = f"Requests completed in each window of {shown}, at its middle, after the warm-up."
    yield from course_charts(_titled("Requests/s", heading), lines, "requests/s", caption, parts)


def _draw_cpu(panel: Panel) -> Iterator[Chart]:
    heading, rows = panel
    used = [(row.name, row.trials, row.entry.limited) for row in rows if row.entry is not None]
    yield from cpu_of_rows(_titled("CPU", heading), used)
