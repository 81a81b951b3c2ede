"""The report on a history: its rows over time, and the newest run compared with those before.

What holds for all groups of runs (runs that were passed over) stands in the first document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.history import Group, History
from serve_bench.view.charts import Chart
from serve_bench.view.comparison import (
    METRICS,
    comparison_document,
    comparison_json,
    interval_value,
    scale_value,
)
from serve_bench.view.csv import pick, run_json
from serve_bench.view.document import Document, Facts, Finding, Later, Prose, Section, sentences
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import Field, TableSpec, differ, line_chart, make_table, row_json
from serve_bench.view.lens import FORMAT
from serve_bench.view.rows import ViewRow

declare(("of_first", "1", "a value over that of the first run that has a value", "ratio"))

VALUES: Final = TableSpec(
    "Each row, the last runs",
    (Field("name", "run"), Field("", "value", of="figure"), Field("changed", " ")),
    ("Behind a run: what differs from the run before; invalid: too many requests failed.",),
)


def documents(history: History) -> Iterator[Document]:
    """Yield a document for each group of runs, the largest group first."""
    first, *others = (_make_document(history, group) for group in history.groups)
    words = "; ".join(f"{group.name}: {group.comparison.word}" for group in history.groups)
    overview = [f"{len(history.groups)} histories: {words}"] if others else []
    passed = [run for run in history.passed if not run.late]
    lines = tuple(f"{run.where}: {run.why.removeprefix(f'{run.where}: ')}" for run in passed)
    skipped = Prose(lines, "quiet", listed=True)
    late = (Finding(text, "not judged", "doubt") for text in late_runs(history))
    yield replace(
        first,
        findings=(*sentences(overview), *first.findings),
        doubts=(*late, *first.doubts),
        sections=(*first.sections, Section("passed-over", "Skipped runs", (skipped,))),
    )
    yield from others


def late_runs(history: History) -> list[str]:
    """Name the runs that were passed over and are newer than those of their history."""
    return [f"{run.where}: newer, and passed over: {run.why}" for run in history.passed if run.late]


def _make_document(history: History, group: Group) -> Document:
    """Make the document of a group: its comparison, with the runs over time."""
    compared, rows = comparison_document(group.comparison), [*series_rows(group)]
    shown = [row for row in rows if row.dims["number"] >= len(group.runs) - group.before]
    request = [("runs", f"{history.total} found, {len(group.runs)} in this history")]
    request += [("folders", f"{group.runs[0].where} to {group.runs[-1].where}")]
    request += [("by force", "runs of unlike hosts are in one history")] if history.forced else []
    asked, host = compared.about()
    about = Facts((*request, *asked.pairs[1:])), host  # A is several runs
    gaps = (Finding(text, "not judged", "doubt") for text in group.gaps)
    notes = (Finding(text, tone="doubt") for text in group.notes)
    return replace(
        compared,
        title=f"{group.name} over {len(group.runs)} runs",
        about=lambda: about,
        doubts=(*gaps, *compared.doubts, *notes),
        sections=(
            compared.sections[0],
            Section("runs-over-time", "Runs over time", (Later(partial(_draw, rows)),)),
            Section("runs", "The runs", (make_table(VALUES, shown),), "table"),
            *compared.sections[1:],
        ),
    )


def series_rows(group: Group) -> Iterator[ViewRow]:
    """Yield each row in each run, metric by metric, named by when the run began (UTC)."""
    times = [run.run.started_at.replace("T", " ") for run in group.runs]
    digits = 16 if len({time[:16] for time in times}) == len(times) else 19  # to minutes, seconds
    pairs = (series.place for series in group.series)
    named = ({"variant": name, **pick(row, "cell", "row", "client")} for name, row in pairs)
    places = [*map(ViewRow, named)]
    parts = differ(places, ("variant", "cell", "row", "client")) or ["row"]
    for series, place in zip(group.series, places, strict=True):
        title = ", ".join(place.dims[part] for part in parts)
        figure = FIGURES[METRICS[series.measure.name]]
        label = f"{title}, " + f"{figure.title} {figure.shown}".removeprefix("throughput ")
        first = next(point.value for point in series.points if point.value is not None)
        for number, (run, point) in enumerate(zip(group.runs, series.points, strict=True), 1):
            values: dict[str, Value] = {}
            if point.value is not None:
                values[figure.name] = value = interval_value(point.interval, point.value)
                values["of_first"] = scale_value(value, 1 / first)
            dims = {**series.cell, **place.dims, "cell": None, "title": title}
            dims |= {"metric": series.measure.name, "figure": figure.name, "run": run.run.id}
            dims |= {"number": number, "launches": point.launches}
            dims["changed"] = "invalid" if point.invalid else ", ".join(few(run.changed))
            row = ViewRow(dims, values, times[number - 1][:digits] or run.run.id, label)
            yield replace(row, tones={"changed": "bad"} if point.invalid else {})


def _draw(rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """Chart each metric as ratios to the first run. Runs are by number: nights are uneven."""
    # On one axis with values a change of the smaller would not be seen.
    ends = [f"run {row.dims['number']}: {row.name}" for row in (*rows[:1], *rows[-1:])]
    for figure in dict.fromkeys(row.dims["figure"] for row in rows):
        yield from line_chart(
            f"{FIGURES[figure].title} to that of the first run",
            [row for row in rows if row.dims["figure"] == figure],
            *("number", ("of_first",), "title"),
            caption=f"The axis is near the runs, not from 0; {', '.join(ends)} (UTC). Bars are "
            "95 % intervals over launches.",
            x_name="run, in order of time",
            x_scale="linear",
            log_y=True,
        )


def history_json(history: History) -> dict[str, Any]:
    """Return the history for programs, each group under the keys that a run has."""
    groups = [
        comparison_json(group.comparison)
        | {
            "name": group.name,
            "command": group.newest.command,
            "suite": group.newest.asked.name or None,
            "runs": [
                run_json(run.run, run.where) | pick(run, "versions", "changed")
                for run in group.runs
            ],
            "rows": [row_json(row) for row in series_rows(group)],
            "not_judged": group.gaps,
            "warnings": (*group.comparison.warnings, *group.notes),
        }
        for group in history.groups
    ]
    judged, passed = history.groups[0].comparison, history.passed
    about = {"threshold": judged.threshold, "metrics": judged.gate, "forced": history.forced}
    found = {"format": FORMAT, "found": history.total, "passed_over": passed}
    return {**found, **about, "groups": groups}
