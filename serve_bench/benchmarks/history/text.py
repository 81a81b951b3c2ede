"""A history as text: the verdict in a sentence, what changed when, a table for each row.

Rule: a line of a table is a run; steps stand in words at the run where they begin, and in a
sentence below, with the doubts. Running text is in words.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from serve_bench.analysis.history.parts import Group, History, Series
from serve_bench.benchmarks.history.words import (
    changes,
    closing,
    ends_text,
    group_title,
    headline,
    host_text,
    mark_text,
    moments,
    night_doubts,
    part_title,
    remarks,
    spread_text,
    value_text,
)
from serve_bench.benchmarks.versus.words import UNITS
from serve_bench.core.result import cell_slug
from serve_bench.report.columns import fitted, wrapped


def history_text(history: History, width: int = 80) -> str:
    """The history as text that ends with a newline."""
    out: list[str] = []
    for group in history.groups:
        out += wrapped(headline(group), width)
        out.append("")
        out += _group(group, width)
        out.append("")
    for text in closing(history):
        out += wrapped(text, width)
    return "\n".join(out) + "\n"


def _group(group: Group, width: int) -> Iterator[str]:
    yield from wrapped(f"serve-bench history: {group_title(group)}", width)
    for text in changes(group):
        yield from wrapped(f"* changed at {text}", width)
    for text in (*night_doubts(group), *group.notes):
        yield from wrapped(text, width)
    parts = groupby(group.series, lambda one: (one.variant, cell_slug(one.cell)))
    for _, some in parts:
        every = list(some)
        yield ""
        yield from wrapped(part_title(group, every[0]), width)
        for series in every:
            yield from _series(group, series, width)
    yield ""
    yield from wrapped("o: the run, |: its level, x: a run in no level; low is left", width)
    yield from wrapped(host_text(group), width)


def _series(group: Group, series: Series, width: int) -> Iterator[str]:
    found = series.found
    count = len(found.levels)
    levels = f"{count} level{'' if count == 1 else 's'}"
    spread = f", spread {spread_text(found.spread)}" if found.spread is not None else ""
    yield from wrapped(f"{series.row} ({series.client}): {levels}{spread}", width)
    names, rows = _table(group, series)
    last = len(names) - 1
    table = fitted(names, rows, (0, last - 1, last), width - 2, ("95 % interval",), fold=(last,))
    yield from (f"  {line}" for line in table.lines)
    yield from table.said(width, indent=2)
    for text in remarks(group, series):
        yield from wrapped(text, width, indent=2)


def _table(group: Group, series: Series) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and a line for each run."""
    marks = {mark.at: mark_text(series, mark) for mark in series.marks}
    interval = any(point.interval is not None for point in series.points)
    rows = []
    for at, (when, night, point, strip) in enumerate(
        zip(moments(group.nights), group.nights, series.points, strips(series), strict=True)
    ):
        said = (
            marks.get(at, ""),
            "invalid" if point.invalid else "",
            "not measured" if point.value is None else "",
            "*" if night.changed else "",
        )
        ends = [ends_text(series, point)] if interval else []
        words = " ".join(word for word in said if word)
        rows.append([when, value_text(series, point.value), *ends, strip, words])
    return ["run", UNITS[series.metric], *(["95 % interval"] if interval else []), "", ""], rows


# ------------------------------------------------------------------------------------ strips

#: The strip of a table: where a run lies between the least and the largest of its series.
STRIP: Final = 17
NARROW: Final = 1.2
"""Values within this factor of each other fill no more of a strip than their part of it: otherwise
the least noise would look like much."""


def strips(series: Series) -> list[str]:
    """A line of text for each run: `o` where it lies on a log scale, `|` its level, low is left."""
    values = [point.value for point in series.points]
    known = [value for value in values if value is not None]
    centers = [level.center for level in series.found.levels]
    logs = [math.log(value) for value in known] + centers
    low, high = min(logs), max(logs)
    room = max(0.0, math.log(NARROW) - (high - low)) / 2
    low, high = low - room, high + room

    def place(log: float) -> int:
        return round((STRIP - 1) * (log - low) / (high - low))

    level_of = {at: level for level in series.found.levels for at in level.runs}
    out = []
    for at, value in enumerate(values):
        line = [" "] * STRIP
        if at in level_of:
            line[place(level_of[at].center)] = "|"
        if value is not None:
            line[place(math.log(value))] = "x" if at not in level_of else "o"
        out.append("".join(line).rstrip())
    return out
