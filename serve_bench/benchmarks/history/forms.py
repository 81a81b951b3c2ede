"""A history in any form: as Markdown, as CSV, or by the module that knows the form.

Rule: Markdown is a sentence and one table for each group, all else folded away. CSV has a line for
each run of each series, not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from serve_bench.analysis.history.parts import Group, History, Series
from serve_bench.benchmarks.history.json_form import history_json, level_of
from serve_bench.benchmarks.history.text import history_text
from serve_bench.benchmarks.history.words import (
    changes,
    closing,
    group_title,
    headline,
    host_text,
    mark_text,
    moments,
    night_doubts,
    remarks,
    series_title,
    spread_text,
    value_text,
)
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.versus.words import UNITS
from serve_bench.core.errors import BadInput, visible
from serve_bench.core.result import cell_slug
from serve_bench.report.columns import markdown_table

FORMS: Final = ("table", "markdown", "csv", "json", "html")


def render_history(history: History, format: str = "table", width: int = 80) -> str:
    """A history as text that ends with a newline. BadInput for a form that it does not have."""
    if format not in FORMS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMS)}")
    if format == "html":
        from serve_bench.benchmarks.history.document import history_html

        return history_html(history)
    if format == "json":
        return visible(history_json(history))
    if format == "csv":
        return history_csv(history)
    markdown = format == "markdown"
    return visible(history_markdown(history) if markdown else history_text(history, width))


def history_markdown(history: History) -> str:
    """The history as Markdown."""
    lines: list[str] = []
    for group in history.groups:
        names = ("row", "metric", "level", "spread", "newest run", "steps and outliers")
        rows = [_texts(group, series) for series in group.series]
        lines += [f"**{headline(group)}**", "", *markdown_table(names, rows, (0, 1, 5)), ""]
        lines += ["<details><summary>The runs, and what doubts them</summary>", ""]
        lines.append(f"- {group_title(group)}")
        lines += [f"- changed at {text}" for text in changes(group)]
        lines += [f"- {text}" for text in (*night_doubts(group), *group.notes)]
        for series in group.series:
            told = list(remarks(group, series))
            if told:
                lines.append(f"- {series_title(group, series)}, {series.metric}")
                lines += [f"  - {text}" for text in told]
        lines += [f"- {host_text(group)}", "", "</details>", ""]
    lines += [f"- {text}" for text in closing(history)]
    return "\n".join(lines) + "\n"


def _texts(group: Group, series: Series) -> tuple[str, ...]:
    times = moments(group.nights)
    newest = series.points[-1].value
    marks = [f"{mark_text(series, mark)} at {times[mark.at]}" for mark in series.marks]
    levels = series.found.levels
    return (
        series_title(group, series),
        UNITS[series.metric],
        value_text(series, levels[-1].value if levels else None),
        spread_text(series.found.spread),
        value_text(series, newest),
        ", ".join(marks) or ("none" if series.found.p is not None else "too few runs"),
    )


_COLUMNS: Final = (
    *("command", "run", "started_at", "records", "ray", "tool_version", "changed"),
    *("variant", "cell", "row", "client", "metric", "unit", "better"),
    *("value", "low", "high", "launches", "invalid", "level", "level_value"),
    *("mark", "word", "ratio", "ratio_low", "ratio_high", "p_adjusted", "spread", "doubts"),
)


def history_csv(history: History) -> str:
    """The history as CSV, a header first. `level` counts from 1; `spread` is a standard deviation
    of logarithms."""
    every = [(group, series) for group in history.groups for series in group.series]
    return csv_of(_COLUMNS, (row for group, series in every for row in _rows(group, series)))


def _rows(group: Group, series: Series) -> Iterator[dict[str, Any]]:
    marks = {mark.at: mark for mark in series.marks}
    about = {
        "variant": series.variant,
        "cell": cell_slug(series.cell),
        "row": series.row,
        "client": series.client,
        "metric": series.metric,
        "unit": series.measure.unit,
        "better": series.measure.better,
        "spread": series.found.spread,
    }
    for at, (night, point) in enumerate(zip(group.nights, series.points, strict=True)):
        level, mark = level_of(series, at), marks.get(at)
        row = {
            "command": night.run.command,
            "run": night.run.id,
            "started_at": night.run.started_at,
            "records": night.where,
            "ray": night.versions.get("ray"),
            "tool_version": night.run.tool_version,
            "changed": "; ".join(night.changed),
            "value": point.value,
            "low": point.interval.low if point.interval else None,
            "high": point.interval.high if point.interval else None,
            "launches": len(point.by_launch),
            "invalid": point.invalid,
            "level": None if level is None else level + 1,
            "level_value": None if level is None else series.found.levels[level].value,
            "doubts": "; ".join(one.code for one in point.doubts),
        }
        if mark is not None:
            row |= {
                "mark": "step" if series.is_step(mark) else "outlier",
                "word": series.word(mark),
                "ratio": mark.interval.ratio,
                "ratio_low": mark.interval.low,
                "ratio_high": mark.interval.high,
                "p_adjusted": mark.p,
            }
        yield {**about, **row}
