"""Charts of rows: throughput, percentile curves, windows over time, CPU.

Rows under one heading share a chart; of many headings those with the highest requests/s stand open,
the others are folded. Profiled rows are in no chart: the profiler slowed them down. Charts are made
when a form draws them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.view.blocks import by_launch, latency_curve, section
from serve_bench.view.charts import MOST_LINES, Chart, Point, nines, split_lines
from serve_bench.view.document import Block, Charts, Folded, Section
from serve_bench.view.figures import FIGURES, name_time
from serve_bench.view.frame import BARS, ViewRow, differ
from serve_bench.view.inside import OTHERS, REST, SHOWN_PERCENT, mean_by_role, others_percent

OPEN: Final = 2
"""So many headings of a section have their charts open."""

PARTS_OF_LATENCY: Final = ("service_time", "send_lag")
"""Of an open loop: from the moment a request was sent, and until then."""


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


def _fold(
    rows: Sequence[ViewRow], draw: Callable[[Sequence[ViewRow]], Iterable[Chart]]
) -> Iterator[Block]:
    """A chart for each heading of the rows; those of the fastest are open."""
    groups: dict[str, list[ViewRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    panels = sorted(groups.values(), key=lambda rows: -max(row.values[MAIN].value for row in rows))
    shown, rest = panels[:OPEN], panels[OPEN:]
    if shown:
        yield Charts(lambda: [chart for panel in shown for chart in draw(panel)])
    if rest:
        charts = Charts(lambda: [chart for panel in rest for chart in draw(panel)])
        yield Folded(f"The other charts ({len(rest)})", (charts,))


def _titled(what: str, rows: Sequence[ViewRow]) -> str:
    return f"{what}: {rows[0].group}" if rows[0].group else what


def _draw_rates(rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Requests/s of all rows: as a matrix where cells differ in several axes, else as dots. Loads
    differ in rate by their nature, so that each has a chart where there are several cells."""
    cells = [{} if row.entry is None else row.entry.line.cell for row in rows]
    axes = differ(rows, dict.fromkeys(axis for cell in cells for axis in cell))
    apart = differ(rows, ["row"]) and (len(axes) > 1 or len({row.group for row in rows}) > 1)
    for load in dict.fromkeys(str(row.dims["row"]) if apart else "" for row in rows):
        loaded = [row for row in rows if load in ("", row.dims["row"])]
        title = f"Requests/s: {load}" if load else "Requests/s"
        if len(axes) > 1 and (matrix := [*_draw_matrix(title, loaded, axes)]):
            yield from matrix
            continue
        points = []
        for row in loaded:
            variant, value = str(row.dims["variant"]), row.values[MAIN]
            label = (row.group if apart else row.name).removesuffix(f", {variant}")
            points.append(Point(label, value.value, variant, *value.ends))
        yield Chart(title, "dots", points, FIGURES[MAIN].shown, caption=BARS)


def _draw_matrix(title: str, rows: Sequence[ViewRow], axes: Sequence[str]) -> Iterator[Chart]:
    """Requests/s as a heat map: the axis with the most values is across, the others and the variant
    are down. Nothing where most cells would be empty."""
    across = max(axes, key=lambda axis: len({str(row.dims.get(axis)) for row in rows}))
    down = [axis for axis in axes if axis != across]
    points = []
    for row in rows:
        names = [f"{axis} {row.dims.get(axis, '-')}" for axis in down]
        names += [str(row.dims["variant"])] if differ(rows, ["variant"]) else []
        x = str(row.dims.get(across, "-"))
        points.append(Point(x, row.values[MAIN].value, ", ".join(names)))
    unit = FIGURES[MAIN].shown
    caption = f"The darker, the more {unit}. Empty: not measured."
    chart = Chart(title, "heat map", points, unit, across, caption)
    if 2 * len(points) >= len(chart.series) * len({point.x for point in points}):
        yield chart


def _draw_curves(metric: str, name: str, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Percentile curves: the metric of each row; of a single open loop what its latency is made of
    too. A log axis has no place for a lag of 0, and events that came together."""
    lines = [(row.name, row, metric) for row in rows]
    if metric == LATENCY and len(rows) == 1 and rows[0].dims.get("loop") == "open":
        lines = [(name_time(time), rows[0], time) for time in (LATENCY, *PARTS_OF_LATENCY)]
    points = [
        Point(nines(share), ms, line)
        for line, row, time in lines
        for share, ms in latency_curve(row.trials, time)
        if ms > 0
    ]
    _, _, meaning = FIGURES[f"{metric}_p50"].meaning.partition(": ")
    caption = f"{meaning[0].upper()}{meaning[1:]}. A curve ends where one response is beyond."
    things = {line: str(row.dims["variant"]) for line, row, _ in lines}
    title, x_name = _titled(name, rows), "share of requests that were no slower"
    look = partial(Chart, x_scale="share", log_y=True, things=things)
    if points:
        yield from split_lines(look(title, "lines", points, "ms", x_name, caption))


def _draw_windows(rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Requests/s over time, a line for each launch."""
    things: dict[str, str] = {}
    points: list[Point] = []
    for row in rows:
        for name, course in by_launch(row.name, row.trials).items():
            things[name] = str(row.dims["variant"])
            points += [Point(second, value, name) for second, value in course]
    lengths = sorted({trial.window_s for row in rows for trial in row.trials})
    shown = " or ".join(f"{length:g} s" for length in lengths)
    caption = f"Requests completed in each window of {shown}, at its middle, after the warm-up."
    title, unit = _titled("Requests/s", rows), FIGURES[MAIN].shown
    look = partial(Chart, x_scale="time", log_y=None, things=things)
    yield from split_lines(look(title, "lines", points, unit, "seconds", caption))


def _draw_cpu(rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """CPU by role, mean over launches, with what limited each row."""
    used, most = [(row, mean_by_role(row.trials)) for row in rows], Counter[str]()
    for _, uses in used:
        most |= Counter({role: use.cpu_percent for role, use in uses.items()})
    large = [role for role, percent in most.most_common() if percent >= SHOWN_PERCENT]
    shown, points = large[: MOST_LINES - 1], list[Point]()
    for row, uses in used:
        bar = f"{row.name}, limit: {limit}" if (limit := row.dims.get("limit")) else row.name
        parts = {role: max(0.0, uses[role].cpu_percent) for role in shown if role in uses}
        rest = sum(use.cpu_percent for role, use in uses.items() if role not in shown)
        others = others_percent([trial.usage for trial in row.trials])
        parts |= {name: value for name, value in ((REST, rest), (OTHERS, others)) if value > 0}
        points += [Point(bar, value, name.replace("_", " ")) for name, value in parts.items()]
    caption = f"100 % is one core. The rest: all roles but the {MOST_LINES - 1} largest, and those "
    caption += f"below {SHOWN_PERCENT:g} %. Others: what the host used beyond."
    if points:
        yield Chart(_titled("CPU", rows), "bars", points, "% of a core", caption=caption)
