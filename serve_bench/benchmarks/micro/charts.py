"""The charts of a run of rows: throughput with intervals, latency, windows over time, CPU.

Rule: each chart says in its caption what its intervals or lines are. A panel holds no more lines
than can be distinguished; of many panels some are folded, none is left out. Profiled rows are in no
chart: the profiler slowed them down. Charts are made when a form draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from serve_bench.analysis.ratios import CONFIDENCE, FEWEST, quantile
from serve_bench.analysis.statistics import LATENCY, MAIN, Spread
from serve_bench.core.result import cell_slug
from serve_bench.view import drawn as charts
from serve_bench.view import streams
from serve_bench.view.blocks import (
    by_launch,
    course_charts,
    cpu_of_rows,
    in_parts,
    latency_curve,
    percentile_charts,
)
from serve_bench.view.document import Block, Chart, Charts, Folded, Prose
from serve_bench.view.inside import mean_by_role
from serve_bench.view.names import Names, measured
from serve_bench.view.rows import Entry, Page

OPEN: Final = 2
"""So many charts of a kind stand open; with more, those that matter do, the others are folded."""


@dataclass(frozen=True)
class Panel:
    """Rows that share a chart, each with its name there. `title` says what they have in common;
    empty where that is the whole run."""

    title: str
    rows: tuple[tuple[str, Entry], ...]

    @property
    def peak(self) -> float:
        """The highest requests/s in it."""
        return max((one.rate.mean for _, one in self.rows if one.rate is not None), default=0.0)

    def of(self, what: str) -> str:
        """The title of a chart of this panel."""
        return f"{what}: {self.title}" if self.title else what


def by_cell(
    entries: Sequence[Entry], names: Names, weight: Callable[[Entry], int] = lambda _: 1
) -> tuple[Panel, ...]:
    """A panel for each cell, its rows under all variants beside each other; where each cell has one
    and the same row, one for all. A panel with too many lines is split; `weight`:
    lines of a row."""
    apart = names.cells and len(names.rows) > 1
    panels: list[Panel] = []
    for group in _groups(entries, names, lambda one: cell_slug(one.line.cell) if apart else ""):
        title = names.full(group[0].line.cell) if apart else ""
        rows = {names.beside(one, cell=not apart, row=True): one for one in group}
        for part, own in in_parts(rows, weight):
            panels.append(Panel(f"{title}{part}".removeprefix(", "), tuple(own.items())))
    return tuple(panels)


def by_row(entries: Sequence[Entry], names: Names) -> tuple[Panel, ...]:
    """A panel for each load with all cells under it, since loads differ in rate by their nature;
    one for all loads of a single cell."""
    apart = names.cells and len(names.rows) > 1
    panels = []
    for group in _groups(entries, names, lambda one: names.row(one) if apart else ""):
        title = names.row(group[0]) if apart else ""
        rows = tuple((names.beside(one, cell=True, row=not apart), one) for one in group)
        panels.append(Panel(title, rows))
    return tuple(panels)


def _groups(
    entries: Sequence[Entry], names: Names, key: Callable[[Entry], str]
) -> list[list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for one in names.in_order(entries):
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _some_open(
    panels: Sequence[Panel],
    draw: Callable[[Panel], Iterable[Chart]],
    doubted: Callable[[Panel], bool] = lambda _: False,
) -> Iterator[Block]:
    """The charts of these panels: open all where they are few; else the one with the highest
    requests/s and, up to OPEN, those that are doubted. The others are folded."""
    if len(panels) <= OPEN:
        yield from [Charts(partial(_drawn, panels, draw))] if panels else []
        return
    fastest = max(panels, key=lambda panel: panel.peak)
    opened = [fastest, *(one for one in panels if doubted(one) and one is not fastest)][:OPEN]
    rest = [panel for panel in panels if panel not in opened]
    also = " and one with unsteady windows" if len(opened) > 1 else ""
    yield Prose((f"Open: the highest requests/s{also}; the others are folded below.",), "quiet")
    yield Charts(partial(_drawn, [panel for panel in panels if panel in opened], draw))
    title = f"The other {len(rest)} charts" if len(rest) > 1 else "The other chart"
    yield Folded(title, (Charts(partial(_drawn, rest, draw)),))


def _drawn(panels: Sequence[Panel], draw: Callable[[Panel], Iterable[Chart]]) -> Iterator[Chart]:
    return chain.from_iterable(map(draw, panels))


@dataclass(frozen=True)
class Ends:
    """An interval around a rate; `over` says of what: "launches" or "windows"."""

    low: float
    high: float
    over: str


def ends_of(spread: Spread) -> Ends | None:
    """The t interval over launches where there are FEWEST of them, else mean ± std over windows;
    None for a single window. No rate is below 0."""
    if spread.launch_std is not None and spread.launches >= FEWEST:
        t = quantile(spread.launches - 1, 0.5 + CONFIDENCE / 2)
        half, over = t * spread.launch_std / math.sqrt(spread.launches), "launches"
    elif spread.std is not None:
        half, over = spread.std, "windows"
    else:
        return None
    return Ends(max(0.0, spread.mean - half), spread.mean + half, over)


def throughput(page: Page, names: Names) -> Iterator[Block]:
    """Requests/s by cell."""
    panels = by_row(measured(page), names)
    if panels:
        yield Charts(partial(_drawn, panels, partial(_throughput, names)))


def _throughput(names: Names, panel: Panel) -> Iterator[Chart]:
    points, over = [], set()
    for name, entry in panel.rows:
        spread, variant = entry.line.spreads[MAIN], entry.line.variant
        ends = ends_of(spread)
        over.add(ends.over if ends else "none")
        low, high = (ends.low, ends.high) if ends else (None, None)
        label = name.removesuffix(f", {variant}")  # which is the colour
        points.append(charts.Point(label, variant, spread.mean, low, high))
    legend = f" In short: {names.legend}." if names.legend else ""
    caption = f"{_interval_words(over)}{legend}"
    yield charts.intervals(panel.of("Requests/s"), points, "requests/s", caption=caption)


def _interval_words(over: set[str]) -> str:
    words = {
        "launches": f"the {100 * CONFIDENCE:g} % interval of Student's t over launches, of rows "
        f"with {FEWEST} or more",
        "windows": "mean ± std over the windows within a launch: how steady it was, not how "
        "launches differ",
        "none": "none of a single window",
    }
    return f"Intervals: {'; '.join(text for name, text in words.items() if name in over)}."


def latencies(page: Page, names: Names) -> Iterator[Block]:
    """Percentile curves by cell, the histograms of all launches merged as the figures of the table
    are, of rows with two values or more."""
    known = [one for one in measured(page) if LATENCY in one.line.distributions]
    several = [one for one in known if one.line.distributions[LATENCY].count > 1]
    return _some_open(by_cell(several, names), _curves)


def _curves(panel: Panel) -> Iterator[Chart]:
    every = {name: latency_curve(entry.line.trials) for name, entry in panel.rows}
    merged = any(len(entry.line.trials) > 1 for _, entry in panel.rows)
    caption = (
        "From the moment a request was due until its response was complete"
        f"{'; histograms of all launches, merged' if merged else ''}. A curve ends where a single "
        "response lies beyond it."
    )
    curves = {name: points for name, points in every.items() if points}
    return percentile_charts(panel.of("Latency"), curves, caption, _parts(panel))


def stream_times(page: Page, names: Names) -> Iterator[Block]:
    """The same of the times of streams: TTFT, and ITL."""
    for metric in (streams.TTFT, streams.ITL):
        known = [(one, one.line.distributions.get(metric)) for one in measured(page)]
        several = [one for one, figures in known if figures is not None and figures.count > 1]
        yield from _some_open(by_cell(several, names), partial(_stream_curves, metric))


def _stream_curves(metric: str, panel: Panel) -> Iterator[Chart]:
    curves = {name: latency_curve(entry.line.trials, metric) for name, entry in panel.rows}
    drawn = {  # a log axis has no place for events that came together
        name: above
        for name, points in curves.items()
        if (above := [point for point in points if point[1] > 0])
    }
    meaning = streams.MEANINGS[metric]
    caption = f"{meaning[:1].upper()}{meaning[1:]}. Events of one read are 0 ms apart: not drawn."
    yield from percentile_charts(panel.of(streams.name(metric)), drawn, caption, _parts(panel))


def _parts(panel: Panel) -> dict[str, tuple[str, str]]:
    """The variant of each row of a panel, and which row of it."""
    return {name: (entry.line.variant, name) for name, entry in panel.rows}


def windows(page: Page, names: Names) -> Iterator[Block]:
    """Requests/s over time by cell, a line for each launch, of rows with several windows."""
    lines = {one.line.keys: len(by_launch("", one.line.trials)) for one in measured(page)}
    some = [one for one in measured(page) if lines[one.line.keys]]
    panels = by_cell(some, names, weight=lambda one: lines[one.line.keys])
    return _some_open(panels, _over_time, _unsteady)


def _unsteady(panel: Panel) -> bool:
    codes = {warning.code for _, entry in panel.rows for warning in entry.warnings}
    return not codes.isdisjoint({"unsteady-windows", "standstill"})


def _over_time(panel: Panel) -> Iterator[Chart]:
    series: dict[str, charts.Pairs] = {}
    parts: dict[str, tuple[str, str]] = {}
    for name, entry in panel.rows:
        own = by_launch(name, entry.line.trials)
        series |= own
        parts |= {key: (entry.line.variant, key) for key in own}
    lengths = sorted({trial.window_s for _, one in panel.rows for trial in one.line.trials})
    shown = " or ".join(f"{length:g} s" for length in lengths)
    caption = f"Requests completed in each window of {shown}, at its middle, after the warm-up."
    return course_charts(panel.of("Requests/s"), series, "requests/s", caption, parts)


def cpu_charts(page: Page, names: Names) -> Iterator[Block]:
    """CPU by process, stacked, by cell, with what limited each row."""
    panels = by_cell([one for one in measured(page) if mean_by_role(one.line.trials)], names)
    return _some_open(panels, _stacked)


def _stacked(panel: Panel) -> Iterator[Chart]:
    rows = [(name, entry.line.trials, entry.limited) for name, entry in panel.rows]
    return cpu_of_rows(panel.of("CPU"), rows)
