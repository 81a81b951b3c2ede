"""A history as documents, one for each group of runs: the verdict, charts, the runs.

Pure. Figures are those of analysis/history.py; the verdict is told as that of any comparison. What
holds for all groups (runs that were passed over, the method) stands in the last document.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.model import alone_words
from serve_bench.analysis.comparing.pooled import MeasuredRun
from serve_bench.analysis.history import Group, History, PassedOver, Series
from serve_bench.analysis.ratios import RUNS_KNOWN
from serve_bench.benchmarks.versus.document import FORMULAS as VERDICT_FORMULAS
from serve_bench.benchmarks.versus.document import verdict_table
from serve_bench.benchmarks.versus.summary import SCALES, span_text, value_text
from serve_bench.benchmarks.versus.words import headline
from serve_bench.core.figures import percent
from serve_bench.core.result import cell_slug
from serve_bench.view.about_run import command_line, formula_table, machine
from serve_bench.view.blocks import in_parts
from serve_bench.view.document import (
    Chart,
    Charts,
    Column,
    Document,
    Facts,
    Finding,
    Number,
    Prose,
    Section,
    Table,
    TableRow,
    Text,
    sentences,
)
from serve_bench.view.drawn import LinePoint, ladder
from serve_bench.view.texts import cell_title

MOST_PLACES: Final = 3
"""Runs that are named of those passed over for one reason; JSON names all."""

FORMULAS: Final = (
    (
        "value of a run",
        "m = mean of ln(x) over its launches; its 95 % interval, from three launches on: "
        "exp(m ± t(0.975, k - 1) * s / sqrt(k)), with s (ddof 1) of the k logarithms",
        "docs/ab.md; Fleming and Wallace 1986, Student 1908",
    ),
    (
        "newest run against those before",
        "exp(m_new - mean(m_i)) of n runs, 95 % interval exp(m_new - mean(m_i) ± t(0.975, n - 1) *"
        " s * sqrt(1 + 1/n)), s (ddof 1) of the m_i; below 4 runs s = 6 % is assumed; a newest run "
        "of fewer launches k than K has v * (1/k - 1/K) more variance, v of the launches",
        "docs/history.md; prediction interval, Hahn and Meeker 1991",
    ),
    *(row for row in VERDICT_FORMULAS if row[0] in ("verdict", "several figures")),
)


def documents(history: History) -> tuple[Document, ...]:
    """A document for each group of runs, the largest group first."""
    return tuple(_document(history, at) for at in range(len(history.groups)))


def late_runs(history: History) -> list[str]:
    """Runs that were passed over and are newer than those of their history."""
    return [f"{run.where}: newer, and passed over: {run.why}" for run in history.passed if run.late]


def _document(history: History, at: int) -> Document:
    group = history.groups[at]
    last = at == len(history.groups) - 1
    gaps = [*group.gaps, *([] if at else late_runs(history))]
    draw = partial(_charts, group)
    times = moments(group.runs)
    begun = moments([group.runs[0], group.runs[-1]])
    request = (
        ("begun", f"{begun[0]} to {begun[1]} (UTC)"),
        ("gate", ", ".join(history.metrics)),
        ("threshold", percent(history.threshold)),
        ("runs", f"{history.total} found, {len(group.runs)} in this history"),
        ("newest run as typed", command_line(group.newest)),
        *([("by force", "runs of unlike hosts are in one history")] if history.forced else []),
    )
    return Document(
        title=f"{group.name} over {len(group.runs)} runs",
        command="history",
        run=Facts(request),
        machine=machine(group.newest),
        findings=sentences([*([] if at else _overview(history)), *_findings(group)]),
        doubts=(
            *(Finding(text, "not judged", "doubt") for text in gaps),
            *sentences((*group.comparison.warnings, *group.notes), "doubt"),
        ),
        sections=(
            Section("results", "Newest run", tuple(_results(group)), "headline"),
            Section("runs-over-time", "Runs over time", (Charts(draw),)),
            Section("runs", "The runs", (_values(group, times),), "table"),
            Section("versions", "Versions", (_versions(group, times),)),
            *(_closing(history) if last else ()),
        ),
        where=f"{len(group.runs)} folders, {group.runs[0].where} to {group.runs[-1].where}",
    )


def moments(runs: Sequence[MeasuredRun]) -> list[str]:
    """When the runs began (UTC), in minutes if that tells them apart: `2026-01-02 03:04`."""
    for length in (16, 19):
        texts = [one.run.started_at[:length].replace("T", " ") for one in runs]
        if len(set(texts)) == len(texts):
            return texts
    return texts


def _overview(history: History) -> Iterator[str]:
    if len(history.groups) > 1:
        words = "; ".join(f"{group.name}: {group.comparison.word}" for group in history.groups)
        yield f"{len(history.groups)} histories: {words}."


def _findings(group: Group) -> Iterator[str]:
    yield f"{group.name}: {headline(group.comparison)}."
    spreads = [
        statistics.stdev(map(math.log, line.a_values.values()))
        for line in group.comparison.gated
        if len(line.a_values) >= RUNS_KNOWN
    ]
    if spreads:
        texts = span_text(spreads, percent)
        yield f"Runs before the newest spread by {texts} (standard deviation)."
    if changed := group.runs[-1].changed:
        yield f"With the newest run: {', '.join(few(changed))}."


def _results(group: Group) -> Iterator[Table | Prose]:
    comparison = group.comparison
    yield verdict_table(comparison)
    texts = [
        *(f"failed: {text}" for text in comparison.failures),
        *(f"not compared: {alone_words(row)}" for row in comparison.alone),
    ]
    if texts:
        yield Prose(tuple(texts), "doubt", listed=True)


def _closing(history: History) -> Iterator[Section]:
    # Newer runs stand among the warnings.
    if lines := tuple(_passed_over([run for run in history.passed if not run.late])):
        blocks = (Prose(lines, "quiet", listed=True),)
        yield Section("passed-over", "Skipped runs", blocks, "table")
    yield Section("method", "Method", (formula_table(FORMULAS),), "method")


def _passed_over(passed: Sequence[PassedOver]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for run in passed:
        reasons.setdefault(run.why.removeprefix(f"{run.where}: "), []).append(run.where)
    for why, places in reasons.items():
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        yield f"passed over: {', '.join(places[:MOST_PLACES])}{more}: {why}"


def _title(group: Group, series: Series) -> str:
    """The row, with variant and cell where the group has several."""
    words = [
        series.variant if len({one.variant for one in group.series}) > 1 else None,
        cell_slug(series.cell) if len({cell_slug(one.cell) for one in group.series}) > 1 else None,
        f"{series.row} ({series.client})",
    ]
    return ", ".join(word for word in words if word)


def _values(group: Group, times: Sequence[str]) -> Table:
    shown = slice(-1 - group.before, None)
    columns = (
        Column("run", number=False),
        Column("value"),
        Column("95 % interval", detail=True),
        Column("", number=False),
    )
    rows = tuple(
        TableRow(
            (
                when,
                Number(value_text(series.measure.name, point.value), point.value),
                "-"
                if point.interval is None
                else _ends(series, point.interval.low, point.interval.high),
                Text("invalid", "bad") if point.invalid else Text("*" if run.changed else ""),
            ),
            group=f"{_title(group, series)}, {SCALES[series.measure.name].heading}",
        )
        for series in group.series
        for when, run, point in zip(
            *(part[shown] for part in (times, group.runs, series.points)), strict=True
        )
    )
    notes = (
        "*: a version or the host differs from the run before; invalid: more than 1 % of the "
        "requests failed",
    )
    return Table(f"Each row, the last {group.before + 1} runs", columns, rows, notes)


def _ends(series: Series, low: float, high: float) -> str:
    return " to ".join(value_text(series.measure.name, end) for end in (low, high))


def _versions(group: Group, times: Sequence[str]) -> Table:
    names = ("began (UTC)", "run", "Ray", "serve-bench", "changed", "records")
    rows = tuple(
        TableRow(
            (
                when,
                run.run.id,
                run.versions.get("ray", "-"),
                run.versions.get("serve-bench", "-"),
                ", ".join(few(run.changed)) or "-",
                run.where,
            )
        )
        for when, run in zip(times, group.runs, strict=True)
    )
    columns = tuple(Column(name, number=False) for name in names)
    return Table("All runs in order of time", columns, rows)


def _charts(group: Group) -> Iterator[Chart]:
    """Charts of each cell and metric; runs by number, since nights are not evenly apart."""
    parts: dict[tuple[str, str, str], dict[str, Series]] = {}
    for series in group.series:
        part = parts.setdefault((series.variant, cell_slug(series.cell), series.measure.name), {})
        part[f"{series.row} ({series.client})"] = series
    for part in parts.values():
        for _, rows in in_parts(part):
            yield _chart(group, rows)


def _chart(group: Group, rows: Mapping[str, Series]) -> Chart:
    """Rows as ratios to their first run: on one axis with values a change of the smaller would not
    be seen."""
    first = next(iter(rows.values()))
    lines: dict[str, list[LinePoint]] = {}
    for name, series in rows.items():
        unit = next(point.value for point in series.points if point.value is not None)
        lines[name] = [
            LinePoint(
                at,
                point.value / unit,
                None if point.interval is None else point.interval.low / unit,
                None if point.interval is None else point.interval.high / unit,
            )
            for at, point in enumerate(series.points, 1)
            if point.value is not None
        ]
    times = moments(group.runs)
    axis = SCALES[first.measure.name].axis.split(",")[0]
    return ladder(
        f"{first.variant}, {cell_title(first.cell)}: {axis} to that of the first run",
        lines,
        "run, in order of time",
        "ratio",
        log_x=False,
        log_y=True,
        caption="The axis is near the runs, not from 0. "
        f"Run 1: {times[0]}, run {len(times)}: {times[-1]} (UTC); bars are 95 % intervals over the "
        "launches of a run.",
    )
