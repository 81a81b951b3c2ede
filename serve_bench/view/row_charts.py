"""Charts of rows: throughput, percentile curves, windows over time, CPU.

Rows under one heading share a chart; of many headings those with the highest requests/s stand open,
the others are folded. Profiled rows are in no chart: the profiler slowed them down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import LATENCY, MAIN, merged
from serve_bench.core.figures import number
from serve_bench.core.histogram import Histogram, bounded, slot_middle
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.result import Trial
from serve_bench.view.charts import Chart, Point, nines, split_lines, stack_bars
from serve_bench.view.document import (
    Block,
    Column,
    Folded,
    Later,
    Number,
    Section,
    Table,
    TableRow,
    Text,
)
from serve_bench.view.figures import FIGURES
from serve_bench.view.frame import BARS, ViewRow, differ
from serve_bench.view.inside import OTHERS, mean_by_role, others_percent
from serve_bench.view.rows import NS_PER_MS

Draw: TypeAlias = Callable[[str, Sequence[ViewRow]], Iterable[Chart]]
"""Makes the charts of rows under a title; none where they have nothing to show."""

PARTS_OF_LATENCY: Final = ("service_time", "send_lag")
"""Of an open loop: from the moment a request was sent, and until then."""

OPEN: Final = 2  # headings of a section that have their charts open


def chart_sections(rows: Sequence[ViewRow]) -> list[Section]:
    """Return the charts of rows that were measured without a profiler. A variant has a colour."""
    curves: Iterator[tuple[str, str, str, Draw]] = (
        (time, f"{title} by percentile", title, partial(_draw_curves, time))
        for time, title in ((LATENCY, "Latency"), ("ttft", "TTFT"), ("itl", "ITL"))
    )
    return [
        Section(name, heading, (Later(partial(_fold, rows, title, draw)),))
        for name, heading, title, draw in (
            ("throughput", "Throughput by row", "Requests/s", _draw_rates),
            *curves,
            ("windows", "Windows over time", "Requests/s", _draw_windows),
            ("cpu-charts", "CPU by process", "CPU", _draw_cpu),
        )
    ]


def _fold(rows: Sequence[ViewRow], title: str, draw: Draw) -> Iterator[Block]:
    """Yield the charts of each heading that has any; those of the fastest are open."""
    groups: dict[str, list[ViewRow]] = {}
    for row in rows:
        if MAIN in row.values and row.dims.get("status") != "profiled":
            groups.setdefault(row.group, []).append(row)
    fastest = sorted(groups, key=lambda name: -max(row.values[MAIN].value for row in groups[name]))
    titles = {name: f"{title}: {name}" if name else title for name in fastest}
    charts = [made for name in fastest if (made := tuple(draw(titles[name], groups[name])))]
    yield from chain(*charts[:OPEN])
    if rest := charts[OPEN:]:
        yield Folded(f"The other charts ({len(rest)})", tuple(chain(*rest)))


def _draw_rates(title: str, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Yield requests/s of all rows, as a heat map or as dots.

    A heat map if cells differ in several axes and fill half of it: the axis with the most values is
    across, the others and the variant are down. Dots have the variants of a load side by side."""
    cells = [row.line.cell for row in rows]
    axes = differ(rows, dict.fromkeys(chain(*cells)))
    sizes = {axis: len({str(row.dims.get(axis)) for row in rows}) for axis in axes}
    across = max(axes, key=sizes.__getitem__, default="")
    down = [axis for axis in (*axes, *differ(rows, ["variant"])) if axis != across]
    dots, matrix = [], []
    for row in rows:
        variant, value = str(row.dims["variant"]), row.values[MAIN]
        label = row.name.removesuffix(f", {variant}")
        dots.append(Point(label, value.value, variant, *value.ends))
        names = (f"{axis} {row.dims.get(axis, '-')}".removeprefix("variant ") for axis in down)
        matrix.append(Point(str(row.dims.get(across, "-")), value.value, ", ".join(names)))
    unit = FIGURES[MAIN].shown
    caption = f"The darker, the more {unit}. Empty: not measured."
    chart = Chart(title, "heat map", matrix, unit, across, caption)
    filled = 2 * len(matrix) >= len(chart.series) * len({point.x for point in matrix})
    yield chart if axes[1:] and filled else Chart(title, "dots", dots, unit, caption=BARS)


def _draw_curves(metric: str, title: str, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Yield percentile curves of a time. A log axis has no place for events that came together."""
    points = [
        Point(nines(share), ms, row.name)
        for row in rows
        for share, ms in latency_curve(row.trials, metric)
        if ms > 0
    ]
    meaning = FIGURES[f"{metric}_p50"].meaning.partition(": ")[2]
    caption = f"Time {meaning}; a curve ends where one response is beyond."
    things = {row.name: str(row.dims["variant"]) for row in rows}
    look = partial(Chart, x_scale="share", log_y=True, things=things)
    x_name = "share of requests that were no slower"
    return split_lines(look(title, "lines", points, "ms", x_name, caption))


#: Shares of a percentile curve, up to the one that the slowest of 100,000 stands for.
_SHARES: Final = (
    *(0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.98),
    *(0.99, 0.9925, 0.995, 0.9965, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999),
)


def latency_curve(trials: Sequence[Trial], name: str = LATENCY) -> list[tuple[float, float]]:
    """Return (share, ms) of a time of all requests of the windows.

    Up to the last share that a value lies beyond. It ends where requests without an answer leave it
    open."""
    answered, censored = merged(trials, name), merged(trials, CENSORED_BY.get(name, ""))
    total = answered.count + censored.count
    shares = [share for share in _SHARES if (1 - share) * total >= 1 - 1e-9]
    ends = zip(shares, bounded(answered, censored, shares), strict=True)
    return [
        (share, ns / NS_PER_MS) for share, (ns, is_open) in ends if ns is not None and not is_open
    ]


def _draw_windows(title: str, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Yield requests/s over time, a line for each launch."""
    things: dict[str, str] = {}
    points: list[Point] = []
    for row in rows:
        for trial in row.trials:
            metric = trial.metrics.get(MAIN)
            windows = (metric and metric.windows) or ()
            name = f"{row.name}, launch {trial.round}" if row.trials[1:] else row.name
            if len(windows) > 1:  # one alone is no course
                things[name] = str(row.dims["variant"])
                course = enumerate(windows)
                points += [Point((n + 0.5) * trial.window_s, rate, name) for n, rate in course]
    caption = "Requests completed in each window, at its middle, after the warm-up."
    look = partial(Chart, x_scale="time", log_y=None, things=things)
    return split_lines(look(title, "lines", points, FIGURES[MAIN].shown, "seconds", caption))


def _draw_cpu(title: str, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Yield CPU by role and of the other processes, mean over launches, with each row's limit."""
    bars = {}
    for row in rows:
        limit = f", limit: {row.dims['limit']}" if row.dims.get("limit") else ""
        uses = mean_by_role(row.trials)
        parts = {role.replace("_", " "): use.cpu_percent for role, use in uses.items()}
        bars[f"{row.name}{limit}"] = parts | {OTHERS: others_percent(row.trials)}
    return stack_bars(title, bars, "% of a core")


BUCKETS: Final = 5
LONGEST: Final = 40  # signs of the longest bar of a histogram


def draw_histogram(histogram: Histogram) -> Iterator[Table]:
    """Yield a table of a latency in ms as bars of signs, of equal width.

    The last is open up to the maximum. None without two values that differ."""
    least, most, last = histogram.min, histogram.percentile(0.99), histogram.max
    if least is None or most is None or last is None or most <= least:
        return
    width, counts = (most - least) / (BUCKETS - 1), [0] * BUCKETS
    for index, count in histogram.occupied():
        place = math.ceil((slot_middle(index) - least) / width) - 1
        counts[min(max(place, 0), BUCKETS - 1)] += count
    rows = []
    for place, count in enumerate(counts, 1):
        end = last if place == BUCKETS else least + width * place
        bar = "■" * math.ceil(LONGEST * count / max(counts))
        name = f"to {number(end / NS_PER_MS, 3)} ms"
        rows.append(TableRow((Text(name), Number(f"{count:,}", count), Text(bar))))
    yield Table("", (Column(""), Column(""), Column("", number=False)), tuple(rows))
