"""The charts of a run of rows: throughput with intervals, latency, windows over time, CPU.

Rule: data of the page in, sections out; each chart says in its caption what its intervals or lines
are. What cannot be told apart in one chart is folded, never left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.comparison import CONFIDENCE, FEWEST, quantile
from serve_bench.analysis.statistics import MAIN, Spread
from serve_bench.benchmarks.micro.page_panels import (
    MOST,
    Names,
    Panel,
    by_cell,
    by_row,
    folding,
    measured,
    open_first,
)
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.inside import REST, SHOWN_PERCENT, mean_by_role
from serve_bench.benchmarks.parts.page import Page
from serve_bench.benchmarks.parts.pieces import (
    busiest_words,
    by_launch,
    cpu_shares,
    latency_curve,
    limit_note,
)
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.document import Block, Chart, Prose, Section

UNIT: Final = "requests/s"


# -------------------------------------------------------------------------------- throughput


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
    elif spread.windows > spread.launches:
        half, over = spread.std, "windows"
    else:
        return None
    return Ends(max(0.0, spread.mean - half), spread.mean + half, over)


def throughput(page: Page, names: Names) -> Section | None:
    """Requests/s by cell; None where nothing was measured."""
    panels = by_row(measured(page), names)
    if not panels:
        return None
    drawn = tuple(_throughput(panel, names) for panel in panels)
    return Section("throughput", "Throughput by cell", drawn)


def _throughput(panel: Panel, names: Names) -> Chart:
    points, over = [], set()
    for name, entry in panel.rows:
        spread, variant = entry.line.spreads[MAIN], entry.line.variant
        ends = ends_of(spread)
        over.add(ends.over if ends else "none")
        low, high = (ends.low, ends.high) if ends else (None, None)
        label = name.removesuffix(f", {variant}")  # which is the colour
        points.append(charts.Point(label, variant, spread.mean, low, high))
    most = max(points, key=lambda point: point.value)
    least = min(points, key=lambda point: point.value)
    words = (
        f"requests/s of {len(points)} rows: the most {number(most.value)} ({most.label}, "
        f"{most.group}), the fewest {number(least.value)} ({least.label}, {least.group})"
    )
    legend = f" In short: {names.legend}." if names.legend else ""
    caption = f"{_interval_words(over)}{legend}"
    return charts.intervals(panel.of("Requests/s"), points, UNIT, words, caption)


def _interval_words(over: set[str]) -> str:
    """What the intervals of a chart are."""
    told = {
        "launches": f"the {100 * CONFIDENCE:g} % interval of Student's t over launches, of rows "
        f"with {FEWEST} or more",
        "windows": "mean ± std over the windows within a launch: how steady it was, not how "
        "launches differ",
        "none": "none of a single window",
    }
    return f"Intervals: {'; '.join(text for name, text in told.items() if name in over)}."


# ----------------------------------------------------------------------------------- latency


def latencies(page: Page, names: Names) -> Section | None:
    """Percentile curves by cell, the histograms of all launches merged as the figures of the table
    are; None where no histogram holds two values or more."""
    every = {one.line.keys: latency_curve(one.line.trials) for one in measured(page)}
    panels = by_cell([one for one in measured(page) if every[one.line.keys]], names)
    if not panels:
        return None

    def draw(panel: Panel) -> Chart:
        curves = {name: every[entry.line.keys] for name, entry in panel.rows}
        told = (
            f"{name} from {latency(points[0][1])} ms at {100 * points[0][0]:g} % to "
            f"{latency(points[-1][1])} ms at {100 * points[-1][0]:g} %"
            for name, points in curves.items()
        )
        several = any(len(entry.line.trials) > 1 for _, entry in panel.rows)
        caption = (
            "From the moment a request was due until its response was whole"
            f"{'; histograms of all launches, merged' if several else ''}. A curve ends where a "
            "single response lies beyond it."
        )
        words = f"latency by percentile: {'; '.join(told)}"
        return charts.percentile_curves(panel.of("Latency"), curves, words, caption)

    return Section("latency", "Latency by percentile", _some_open(panels, draw))


# ----------------------------------------------------------------------------------- windows


def windows(page: Page, names: Names) -> Section | None:
    """Requests/s over time by cell, a line for each launch; None where no trial has several
    windows."""
    lines = {one.line.keys: len(by_launch("", one.line.trials)) for one in measured(page)}
    panels = by_cell(
        [one for one in measured(page) if lines[one.line.keys]],
        names,
        weight=lambda one: lines[one.line.keys],
    )
    if not panels:
        return None
    return Section("windows", "Windows over time", _some_open(panels, _over_time, _unsteady))


def _unsteady(panel: Panel) -> bool:
    return any(one.code == "unsteady-windows" for _, entry in panel.rows for one in entry.warnings)


def _over_time(panel: Panel) -> Chart:
    series = {
        key: points
        for name, entry in panel.rows
        for key, points in by_launch(name, entry.line.trials).items()
    }
    told = (
        f"{name} {number(min(v for _, v in points))} to {number(max(v for _, v in points))}"
        for name, points in series.items()
    )
    lengths = sorted({trial.window_s for _, one in panel.rows for trial in one.line.trials})
    shown = " or ".join(f"{length:g} s" for length in lengths)
    caption = f"Requests completed in each window of {shown}, at its middle, after the warm-up."
    words = f"requests/s over time: {'; '.join(told)}"
    return charts.over_time(panel.of("Requests/s"), series, UNIT, words, caption)


# --------------------------------------------------------------------------------------- CPU


def cpu_charts(page: Page, names: Names) -> tuple[Block, ...]:
    """CPU by process, stacked, by cell, with what limited each row; empty if none was sampled."""
    panels = by_cell([one for one in measured(page) if mean_by_role(one.line.trials)], names)
    return _some_open(panels, _stacked) if panels else ()


def _stacked(panel: Panel) -> Chart:
    rows = [(name, entry.line.trials, limit_note(entry.limited)) for name, entry in panel.rows]
    shares = largest(cpu_shares(rows))
    several = any(len(trials) > 1 for _, trials, _ in rows)
    caption = (
        f"100 % is one core; all processes of a role{', means over launches' if several else ''}. "
        f"The rest: roles below {SHOWN_PERCENT:g} % in every row, and all but the {MOST - 1} "
        "largest."
    )
    return charts.stacked(panel.of("CPU"), shares, "% of a core", busiest_words(shares), caption)


def largest(shares: Sequence[charts.Share]) -> list[charts.Share]:
    """The same bars of at most MOST parts: those that are largest in any bar, the others added to
    the rest."""
    most: dict[str, float] = {}
    for one in shares:
        if one.part != REST:
            most[one.part] = max(one.value, most.get(one.part, 0.0))
    if len({one.part for one in shares}) <= MOST:
        return list(shares)
    kept = sorted(most, key=lambda part: -most[part])[: MOST - 1]
    out = []
    for label in dict.fromkeys(one.label for one in shares):
        bar = [one for one in shares if one.label == label]
        rest = sum(one.value for one in bar if one.part not in kept)
        out += [one for one in bar if one.part in kept]
        out += [charts.Share(label, REST, rest, bar[0].note)] if rest else []
    return out


# ------------------------------------------------------------------------------------ shared


def _some_open(
    panels: Sequence[Panel],
    draw: Callable[[Panel], Chart],
    unsteady: Callable[[Panel], bool] = lambda _: False,
) -> tuple[Block, ...]:
    """The charts of these panels; where they are many, it is said which stand open."""
    opened = open_first(panels, unsteady)
    if len(opened) == len(panels):
        return folding(panels, opened, draw)
    also = " and one with unsteady windows" if len(opened) > 1 else ""
    said = f"Open: the highest requests/s{also}; the other cells are folded below."
    return (Prose((said,), "quiet"), *folding(panels, opened, draw))
