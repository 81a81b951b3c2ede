"""The tables of a history on an HTML page: levels and steps, the runs, every figure.

Rule: a figure is the number of json_form.py; words come from words.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.comparing.parts import ratio_text
from serve_bench.analysis.comparison import Interval
from serve_bench.analysis.history.levels import Mark
from serve_bench.analysis.history.parts import Group, Series
from serve_bench.benchmarks.history.json_form import level_of
from serve_bench.benchmarks.history.words import (
    mark_line,
    mark_text,
    moments,
    part_title,
    remarks,
    series_title,
    spread_text,
    value_text,
)
from serve_bench.benchmarks.versus.words import UNITS
from serve_bench.core.document import (
    Cell,
    Column,
    Folded,
    Number,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)

TONES: Final[dict[str, Tone]] = {"regressed": "bad", "improved": "good"}


def results_table(group: Group) -> Table:
    """Each series in a line: its newest level, where a next run would lie, its spread and marks."""
    columns = (
        Column("row", number=False),
        Column("metric", number=False),
        Column("newest level"),
        Column("newest run"),
        Column("next run from"),
        Column("to"),
        Column("spread"),
        Column("levels"),
        Column("verdict", number=False),
    )
    rows = tuple(_result(group, series) for series in group.series)
    notes = (
        "newest level: geometric mean of its runs; spread: standard deviation of logarithms within "
        "levels; a next run of the newest level would lie within the two ends at 95 %",
    )
    return Table("Each row over all runs", columns, rows, notes)


def _result(group: Group, series: Series) -> TableRow:
    found = series.found
    level = found.levels[-1].value if found.levels else None
    newest = series.points[-1]
    cells: tuple[Cell, ...] = (
        f"{series.row} ({series.client})",
        UNITS[series.metric],
        Number(value_text(series, level), level),
        Number(
            value_text(series, newest.value), newest.value, "bad" if newest.invalid else "plain"
        ),
        *_ends(series, found.expected),
        Number(spread_text(found.spread), found.spread),
        Number(str(len(found.levels)), len(found.levels)),
        _verdict(group, series),
    )
    told = {mark_line(group, series, mark) for mark in series.marks}
    doubts = [text.removeprefix("! ") for text in remarks(group, series) if text not in told]
    return TableRow(cells, sentences(doubts, "doubt"), part_title(group, series))


def _ends(series: Series, interval: Interval | None) -> tuple[Number, Number]:
    if interval is None:
        return Number("-", None), Number("-", None)
    high = interval.high if math.isfinite(interval.high) else None
    return (
        Number(value_text(series, interval.low), interval.low),
        Number("-" if high is None else value_text(series, high), high),
    )


def _verdict(group: Group, series: Series) -> Text:
    if series.found.p is None:
        return Text("too few runs", "quiet")
    times = moments(group.nights)
    marks = series.marks
    if not marks:
        return Text("no step")
    last = marks[-1]
    return Text(
        f"{mark_text(series, last)}, {series.word(last)}",
        TONES[series.word(last)] if series.is_step(last) else "doubt",
        tuple(f"{mark_text(series, one)} at {times[one.at]}" for one in marks)
        if len(marks) > 1
        else (f"at {times[last.at]}",),
    )


def steps_table(group: Group) -> Table:
    """All steps and outliers in order of time."""
    columns = (
        Column("run", number=False),
        Column("row", number=False),
        Column("before"),
        Column("after"),
        Column("ratio"),
        Column("low", "95 %"),
        Column("high", "95 %"),
        Column("p", "adjusted"),
        Column("what", number=False),
    )
    marks = [(series, mark) for series in group.series for mark in series.marks]
    marks.sort(key=lambda one: one[1].at)
    rows = tuple(_step(group, series, mark) for series, mark in marks)
    notes = (
        "of a step the levels before and after it, of an outlier its level and its own value; p is "
        "adjusted for all places and rows, and a mark up to 0.05",
    )
    return Table("Steps and outliers", columns, rows, notes)


def _step(group: Group, series: Series, mark: Mark) -> TableRow:
    interval = mark.interval
    high = interval.high if math.isfinite(interval.high) else None
    before, after = _sides(series, mark)
    step = series.is_step(mark)
    word = series.word(mark)
    cells: tuple[Cell, ...] = (
        moments(group.nights)[mark.at],
        Text(series_title(group, series), below=(UNITS[series.metric],)),
        Number(value_text(series, before), before),
        Number(value_text(series, after), after),
        Number(f"{ratio_text(interval.ratio)} x", interval.ratio, TONES[word] if step else "doubt"),
        Number(ratio_text(interval.low), interval.low),
        Number("-" if high is None else ratio_text(high), high),
        Number(f"{mark.p:.2g}", mark.p),
        Text(
            f"{'step' if step else 'outlier'}, {word}",
            TONES[word] if step else "doubt",
            tuple(f"with this run: {one}" for one in group.nights[mark.at].changed),
        ),
    )
    return TableRow(cells)


def _sides(series: Series, mark: Mark) -> tuple[float, float | None]:
    """The figures of both sides of a mark."""
    levels = series.found.levels
    if series.is_step(mark):
        after = next(at for at, one in enumerate(levels) if mark.at in one.runs)
        return levels[after - 1].value, levels[after].value
    own = next((one for one in reversed(levels) if one.runs[0] < mark.at), levels[0])
    return own.value, series.points[mark.at].value


def nights_table(group: Group) -> Table:
    """The runs, their versions, what changed and what doubts them."""
    columns = tuple(
        Column(name, number=False)
        for name in ("run", "began (UTC)", "Ray", "serve-bench", "changed", "records")
    )
    rows = tuple(
        TableRow(
            (
                night.run.id,
                when,
                night.versions.get("ray", "-"),
                night.versions.get("serve-bench", "-"),
                ", ".join(night.changed) or "-",
                night.where,
            ),
            sentences(night.doubts, "doubt"),
        )
        for when, night in zip(moments(group.nights), group.nights, strict=True)
    )
    return Table("Runs in order of time", columns, rows)


def values_table(group: Group) -> Iterator[Folded]:
    """Every figure, folded away."""
    columns = (
        Column("run", number=False),
        Column("value"),
        Column("low", "95 %"),
        Column("high", "95 %"),
        Column("launches"),
        Column("level"),
        Column("mark", number=False),
    )
    rows = []
    for series in group.series:
        marks = {mark.at: mark_text(series, mark) for mark in series.marks}
        head = f"{series_title(group, series)}, {UNITS[series.metric]}"
        for at, (when, point) in enumerate(zip(moments(group.nights), series.points, strict=True)):
            level = level_of(series, at)
            cells: tuple[Cell, ...] = (
                when,
                Number(value_text(series, point.value), point.value),
                *_ends(series, point.interval),
                str(len(point.by_launch)),
                "-" if level is None else str(level + 1),
                Text("invalid", "bad") if point.invalid else marks.get(at, ""),
            )
            rows.append(TableRow(cells, group=head))
    yield Folded("Every figure", (Table("Every row in every run", columns, tuple(rows)),))
