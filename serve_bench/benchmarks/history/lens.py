"""How a history is looked at: its rows over time, and the newest run compared with those before.

What holds for all groups of runs (runs that were passed over) stands in the last document.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.pooled import MeasuredRun
from serve_bench.analysis.history import Group, History, PassedOver, Series
from serve_bench.analysis.ratios import RUNS_KNOWN
from serve_bench.core.figures import percent
from serve_bench.core.result import cell_slug
from serve_bench.view.about_run import command_line, machine
from serve_bench.view.blocks import in_parts
from serve_bench.view.comparison import METRICS, about_sides, compare_rows, result_blocks
from serve_bench.view.csv import json_of, run_json
from serve_bench.view.document import (
    Chart,
    Charts,
    Document,
    Facts,
    Finding,
    Prose,
    Section,
    sentences,
)
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_table, row_json
from serve_bench.view.lens import FORMAT
from serve_bench.view.texts import cell_title
from serve_bench.view.verdict_words import headline

MOST_PLACES: Final = 3
"""Runs that are named of those passed over for the same reason; JSON names all."""

declare("of_first", "1", "a value over that of the first run that has a value", title="ratio")

VALUES: Final = TableSpec(
    "Each row, the last runs",
    (Field("name", "run"), Field("", "value", of="figure"), Field("mark", " ")),
    (
        "*: a version or the host differs from the run before; invalid: more than 1 % of the "
        "requests failed",
    ),
)
VERSIONS: Final = TableSpec(
    "All runs in order of time",
    (
        Field("name", "began (UTC)"),
        *(Field(name) for name in ("run", "Ray", "serve-bench", "changed", "records")),
    ),
)


def documents(history: History) -> tuple[Document, ...]:
    """A document for each group of runs, the largest group first."""
    return tuple(_document(history, group) for group in history.groups)


def late_runs(history: History) -> list[str]:
    """Runs that were passed over and are newer than those of their history."""
    return [f"{run.where}: newer, and passed over: {run.why}" for run in history.passed if run.late]


def _document(history: History, group: Group) -> Document:
    first, last = (group is history.groups[place] for place in (0, -1))
    rows, times = series_rows(group), moments(group.runs)
    shown = [row for row in rows if row.dims["number"] >= len(group.runs) - group.before]
    begun = moments([group.runs[0], group.runs[-1]])
    request = (
        ("begun", f"{begun[0]} to {begun[1]} (UTC)"),
        ("gate", ", ".join(history.metrics)),
        ("threshold", percent(history.threshold)),
        ("runs", f"{history.total} found, {len(group.runs)} in this history"),
        ("newest run as typed", command_line(group.newest)),
        *([("by force", "runs of unlike hosts are in one history")] if history.forced else []),
    )
    results = result_blocks(group.comparison, compare_rows(group.comparison))
    versions = make_table(VERSIONS, [*map(_versions, group.runs, times)])
    lines = tuple(_passed_words([run for run in history.passed if not run.late])) if last else ()
    skipped = Section("passed-over", "Skipped runs", (Prose(lines, "quiet", listed=True),), "table")
    how = Prose(("How runs are compared, with sources: docs/history.md, docs/ab.md.",), "quiet")
    return Document(
        title=f"{group.name} over {len(group.runs)} runs",
        command="history",
        run=Facts(request),
        machine=machine(group.newest),
        findings=sentences([*(_overview(history) if first else ()), *_findings(group)]),
        doubts=(
            *(
                Finding(text, "not judged", "doubt")
                for text in (*group.gaps, *(late_runs(history) if first else ()))
            ),
            *sentences((*group.comparison.warnings, *group.notes), "doubt"),
        ),
        sections=(
            Section("results", "Newest run", tuple(results), "headline"),
            Section("runs-over-time", "Runs over time", (Charts(partial(_charts, group, rows)),)),
            Section("runs", "The runs", (make_table(VALUES, shown),), "table"),
            Section("versions", "Versions", (versions,)),
            *([skipped] if lines else []),
            *([Section("method", "Method", (how,), "method")] if last else []),
        ),
        where=f"{len(group.runs)} folders, {group.runs[0].where} to {group.runs[-1].where}",
    )


def moments(runs: Sequence[MeasuredRun]) -> list[str]:
    """When the runs began (UTC), in minutes if that tells them apart: `2026-01-02 03:04`."""
    for length in (16, 19):
        texts = [run.run.started_at[:length].replace("T", " ") for run in runs]
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
        texts = " to ".join(dict.fromkeys(map(percent, (min(spreads), max(spreads)))))
        yield f"Runs before the newest spread by {texts} (standard deviation)."
    if changed := group.runs[-1].changed:
        yield f"With the newest run: {', '.join(few(changed))}."


def _passed_words(passed: Sequence[PassedOver]) -> Iterator[str]:
    """The runs that were passed over, by their reason; newer runs stand among the warnings."""
    reasons: dict[str, list[str]] = {}
    for run in passed:
        reasons.setdefault(run.why.removeprefix(f"{run.where}: "), []).append(run.where)
    for why, places in reasons.items():
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        yield f"passed over: {', '.join(places[:MOST_PLACES])}{more}: {why}"


def series_rows(group: Group) -> list[ViewRow]:
    """Each row in each run, metric by metric; as a ratio to its first value too."""
    times = moments(group.runs)
    return [row for series in group.series for row in _series_rows(group, series, times)]


def _series_rows(group: Group, series: Series, times: Sequence[str]) -> Iterator[ViewRow]:
    figure = FIGURES[METRICS[series.measure.name]]
    variants = {other.variant for other in group.series}
    cells = {cell_slug(other.cell) for other in group.series}
    title = f"{series.row} ({series.client})"
    words = [
        series.variant if len(variants) > 1 else "",
        cell_slug(series.cell) if len(cells) > 1 else "",
        title,
    ]
    heading = f"{figure.title} {figure.shown}".removeprefix("throughput ")
    about: dict[str, Any] = {"variant": series.variant, **series.cell, "row": series.row}
    about |= {"client": series.client, "metric": series.measure.name, "figure": figure.name}
    first = next(point.value for point in series.points if point.value is not None)
    for number, (run, point) in enumerate(zip(group.runs, series.points, strict=True), 1):
        mark = "invalid" if point.invalid else "*" if run.changed else ""
        dims = {**about, "run": run.run.id, "number": number, "launches": point.launches}
        values = {}
        if point.value is not None:
            value = Value(point.value)
            if point.interval is not None:
                value = Value(point.value, low=point.interval.low, high=point.interval.high)
            low, high = (None if end is None else end / first for end in (value.low, value.high))
            values[figure.name] = value
            values["of_first"] = Value(point.value / first, low=low, high=high)
        yield ViewRow(
            {**dims, "mark": mark, "cell": cell_title(series.cell), "title": title},
            values,
            times[number - 1],
            group=f"{', '.join(filter(None, words))}, {heading}",
            tones={"mark": "bad"} if point.invalid else {},
        )


def _versions(run: MeasuredRun, began: str) -> ViewRow:
    dims = {
        "run": run.run.id,
        "Ray": run.versions.get("ray"),
        "serve-bench": run.versions.get("serve-bench"),
        "changed": ", ".join(few(run.changed)) or None,
        "records": run.where,
    }
    return ViewRow(dims, name=began)


def _charts(group: Group, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Charts of each cell and metric as ratios to the first run: on one axis with values a change
    of the smaller would not be seen. Runs by number, since nights are not evenly apart."""
    parts: dict[tuple[str, ...], dict[str, list[ViewRow]]] = {}
    for row in rows:
        place = tuple(str(row.dims[name]) for name in ("variant", "cell", "figure"))
        parts.setdefault(place, {}).setdefault(row.dims["title"], []).append(row)
    times = moments(group.runs)
    caption = (
        f"The axis is near the runs, not from 0. Run 1: {times[0]}, run {len(times)}: "
        f"{times[-1]} (UTC); bars are 95 % intervals over the launches of a run."
    )
    for (variant, cell, figure), lines in parts.items():
        for _, part in in_parts(lines):
            yield from line_chart(
                f"{variant}, {cell}: {FIGURES[figure].title} to that of the first run",
                [row for line in part.values() for row in line],
                *("number", ("of_first",), "title"),
                caption=caption,
                x_name="run, in order of time",
                log_x=False,
                log_y=True,
            )


def history_json(history: History) -> str:
    """The history for programs, each group under the keys that a run has."""
    whole = {
        "format": FORMAT,
        "threshold": history.threshold,
        "metrics": list(history.metrics),
        "forced": history.forced,
        "found": history.total,
        "passed_over": [vars(run) for run in history.passed],
        "groups": [_group_json(group) for group in history.groups],
    }
    return json_of(whole)


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "command": group.newest.command,
        "suite": group.newest.suite.get("name"),
        "runs": [
            run_json(run.run, run.where)
            | {"versions": dict(run.versions), "changed": list(run.changed)}
            for run in group.runs
        ],
        "findings": [{"text": text} for text in _findings(group)],
        "rows": [row_json(row) for row in series_rows(group)],
        "points": [row_json(row) for row in about_sides(group.comparison)],
        "comparisons": [row_json(row) for row in compare_rows(group.comparison)],
        "not_judged": list(group.gaps),
        "warnings": [*group.comparison.warnings, *group.notes],
    }
