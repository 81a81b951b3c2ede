"""A history as an HTML page: each group of runs is a sheet of it.

Rule: figures are those of json_form.py, words those of words.py; how a page looks is
report/page.py's affair, which is loaded only where a page is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from serve_bench.analysis.history.parts import Group, History, Series
from serve_bench.benchmarks.history.page_tables import (
    nights_table,
    results_table,
    steps_table,
    values_table,
)
from serve_bench.benchmarks.history.words import (
    closing,
    gap_lines,
    headline,
    mark_line,
    mark_text,
    moments,
    name_of,
    night_doubts,
    part_title,
    spread_text,
    tally,
)
from serve_bench.benchmarks.parts.about_run import command_line, machine
from serve_bench.benchmarks.parts.charts import LinePoint, ladder
from serve_bench.benchmarks.parts.charts import Mark as Rule
from serve_bench.benchmarks.versus.words import percent
from serve_bench.core.document import (
    Block,
    Chart,
    Column,
    Document,
    Facts,
    Finding,
    Prose,
    Section,
    Table,
    TableRow,
    sentences,
)
from serve_bench.core.result import cell_slug

#: Metrics that are drawn in another unit than they are kept in: the unit, and how much it holds.
DRAWN: Final = {
    "throughput": ("requests/s", 1.0),
    "p50": ("p50, ms", 1e6),
    "p99": ("p99, ms", 1e6),
    "cpu": ("CPU a request, us", 1e3),
}

MOST_LINES: Final = 8
"""Of one chart: more colours than that are not told apart."""

WIDE: Final = 4.0
"""Rows that differ by such a factor are drawn as ratios to their first level: on one axis with the
others a step of the smaller would not be seen."""

FORMULAS: Final = (
    (
        "value of a run",
        "v = exp(mean of ln(x) over its launches); its 95 % interval, from three launches on: "
        "exp(m ± t(0.975, k - 1) * s / sqrt(k)), with m and s (ddof 1) of the k logarithms",
        "docs/ab.md; Fleming and Wallace 1986, Student 1908",
    ),
    (
        "a stretch of runs against the others of its level",
        "c = mean of their ln(v) - mean of the others'; se = s * sqrt(1/n_1 + 1/n_2), s^2 = sum of "
        "squares within all levels / df, df = runs - levels",
        "docs/history.md; Student 1908, Scott and Knott 1974, Olshen et al. 2004",
    ),
    (
        "p of a place",
        "p = 2 * P(T > (distance of c beyond ln(1 ± threshold)) / se), T with df; times the places "
        "of its kind, over the share of that kind (lasting steps 1/2, the last run 1/4, runs and "
        "stretches that stand apart 1/4)",
        "docs/ab.md, docs/history.md; Bonferroni",
    ),
    (
        "over rows",
        "the smallest p of m rows is held against 0.05/m, the next against 0.05/(m - 1) ...; in a "
        "row with an alarm the search goes on at the level of that row",
        "docs/ab.md; Holm 1979",
    ),
    (
        "where a next run would lie",
        "exp(mean of the newest level ± t(0.975, df) * s * sqrt(1 + 1/n))",
        "docs/history.md; the t interval of a new observation",
    ),
)


def history_html(history: History) -> str:
    """The whole page. BadInput where the library of its charts is missing."""
    from serve_bench.report.page import html_text

    return html_text(history_sheets(history))


def history_sheets(history: History) -> tuple[Document, ...]:
    """A sheet for each group of runs."""
    return tuple(history_sheet(history, group) for group in history.groups)


def history_sheet(history: History, group: Group) -> Document:
    """The sheet of one group of runs."""
    return Document(
        title=f"{name_of(group)} over {len(group.nights)} runs",
        command="history",
        run=Facts(tuple(_asked(history, group))),
        machine=machine(group.newest),
        findings=sentences(_found(group)),
        doubts=(
            *(Finding(text, "not judged", "doubt") for text in gap_lines(history)),
            *sentences(
                (text.removeprefix("! ") for text in (*night_doubts(group), *group.notes)), "doubt"
            ),
        ),
        sections=tuple(_sections(history, group)),
        where=f"{len(group.nights)} folders, {group.nights[0].where} to {group.nights[-1].where}",
        picture=lambda: _charts(group),
    )


def _asked(history: History, group: Group) -> Iterator[tuple[str, str]]:
    times = moments([group.nights[0], group.nights[-1]])
    yield "begun", f"{times[0]} to {times[1]} (UTC)"
    yield "metrics", ", ".join(history.metrics)
    yield "threshold", percent(history.threshold)
    yield "runs", f"{len(group.nights)} of {history.found} that were found"
    yield "the newest as typed", command_line(group.newest)
    if history.forced:
        yield "by force", "runs of unlike hosts are in one history"


def _found(group: Group) -> Iterator[str]:
    yield f"{headline(group)}."
    spreads = [one.found.spread for one in group.series if one.found.spread is not None]
    if spreads:
        texts = dict.fromkeys((spread_text(min(spreads)), spread_text(max(spreads))))
        words = f"; of the steps {tally(group)}" if tally(group) else ""
        yield f"Runs of one level spread by {' to '.join(texts)}{words}."
    changed = [at for at, night in enumerate(group.nights) if night.changed]
    if changed:
        stepped = {mark.at for one in group.series for mark in one.found.steps}
        both = len(stepped.intersection(changed))
        where = "none of them where a row steps" if not both else f"at {both} a row steps"
        yield (
            f"Versions or the host changed with {len(changed)} of {len(group.nights)} runs"
            f"{f'; {where}' if stepped else ''}."
        )


def _sections(history: History, group: Group) -> Iterator[Section]:
    yield Section("results", "Levels and steps", (results_table(group),))
    if any(series.marks for series in group.series):
        yield Section("steps", "Where it steps", (steps_table(group),))
    yield Section("runs-over-time", "Runs over time", tuple(_charts(group)))
    yield Section("runs", "The runs", (nights_table(group), *values_table(group)))
    if history.passed:
        lines = [f"{one.where}: {one.why}" for one in history.passed]
        yield Section("passed-over", "Passed over", (Prose(tuple(lines), "quiet", listed=True),))
    yield Section("method", "Method", tuple(_method(history)))


# --------------------------------------------------------------------------------- charts


def _charts(group: Group) -> Iterator[Block]:
    """A chart for each cell and metric; its runs by number, since nights are not evenly apart."""
    every = sorted(group.series, key=lambda one: (one.variant, cell_slug(one.cell), one.metric))
    order = {id(one): at for at, one in enumerate(group.series)}
    parts = [
        list(some)
        for _, some in groupby(every, lambda one: (one.variant, cell_slug(one.cell), one.metric))
    ]
    parts.sort(key=lambda some: min(order[id(one)] for one in some))
    for some in parts:
        some.sort(key=lambda one: order[id(one)])
        for first in range(0, len(some), MOST_LINES):
            yield _chart(group, some[first : first + MOST_LINES])


def _chart(group: Group, some: Sequence[Series]) -> Chart:
    unit, size = DRAWN[some[0].metric]
    values = [point.value for one in some for point in one.points if point.value is not None]
    relative = max(values) / min(values) >= WIDE
    lines = {}
    for one in some:
        of = one.found.levels[0].value if relative and one.found.levels else size
        lines[f"{one.row} ({one.client})"] = [
            LinePoint(
                at + 1,
                point.value / of,
                None if point.interval is None else point.interval.low / of,
                None if point.interval is None else point.interval.high / of,
            )
            for at, point in enumerate(one.points)
            if point.value is not None
        ]
    rules: dict[int, list[str]] = {}
    for one in some:
        for mark in one.marks:
            label = f"{one.row}: " if len(some) > 1 else ""
            rules.setdefault(mark.at, []).append(f"{label}{mark_text(one, mark)}")
    told = [mark_line(group, one, mark) for one in some for mark in one.marks]
    times = moments(group.nights)
    shown = f"{unit.split(',')[0]} to that of the first level" if relative else unit
    return ladder(
        f"{part_title(group, some[0])}: {shown}",
        lines,
        "run, in order of time",
        "ratio" if relative else unit,
        f"{shown} of {len(group.nights)} runs, {len(some)} rows. "
        + ("; ".join(told) if told else "No step."),
        marks=[Rule(at + 1, ", ".join(words)) for at, words in sorted(rules.items())],
        log_x=False,
        caption=f"Run 1: {times[0]}, run {len(times)}: {times[-1]} (UTC). A line where a level "
        "begins, or a run is an outlier; bars are 95 % intervals over the launches of a run.",
    )


def _method(history: History) -> Iterator[Block]:
    yield Prose(tuple(closing(history)), listed=True)
    columns = tuple(Column(name, number=False) for name in ("name", "formula", "source"))
    yield Table("Formulas", columns, tuple(TableRow(one) for one in FORMULAS))
