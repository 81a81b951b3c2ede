"""A history as documents, one for each group of runs: levels, steps, the runs, charts.

Pure. Figures are those of analysis/history, sentences those of summary.py. What holds for all
groups (runs that were passed over, the method) stands in the last document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.model import ends, ratio_text
from serve_bench.analysis.history.levels import LevelMark
from serve_bench.analysis.history.model import Group, History, Series
from serve_bench.analysis.ratios import Interval
from serve_bench.benchmarks.history.summary import (
    RUN_AGAIN,
    findings,
    group_name,
    judged,
    late_runs,
    mark_line,
    mark_sides,
    mark_text,
    method,
    moments,
    part_title,
    passed_over,
    row_gaps,
    run_doubts,
    series_doubts,
    series_title,
    spread_text,
)
from serve_bench.benchmarks.parts.about_run import command_line, formula_table, machine
from serve_bench.benchmarks.parts.blocks import doubt, in_parts
from serve_bench.benchmarks.parts.charts import LinePoint, Mark, ladder
from serve_bench.benchmarks.versus.document import TONES
from serve_bench.benchmarks.versus.summary import SCALES, percent, value_text
from serve_bench.core.document import (
    Cell,
    Chart,
    Charts,
    Column,
    Detail,
    Document,
    Facts,
    Finding,
    Folded,
    Number,
    Prose,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)
from serve_bench.core.result import cell_slug

WIDE: Final = 4.0
"""Rows that differ by such a factor are drawn as ratios to their first level: on one axis with the
others a step of the smaller would not be seen."""

MOST_PLACES: Final = 3
"""Runs that are named of those passed over for one reason; the others are counted."""

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
        "p = 2 * P(T > |c| / (se * f)), T with df, f^2 = (1 + r) / (1 - r) with the "
        "correlation r from one run to the next where it is more than chance; a mark where p is at "
        "most 0.0022 / n^1.25 in a history of n runs",
        "docs/history.md",
    ),
    (
        "drift",
        "ln v = a + b * run by least squares, tested as a place is; in the place of steps where "
        "n * ln(squares / n) + k * ln(n) is smaller (k: 2, of L levels 2L - 1)",
        "docs/history.md; Schwarz 1978",
    ),
    (
        "over rows",
        "the smallest p of m rows is compared with 0.05/m, the next against 0.05/(m - 1) ...; in a "
        "row with an alarm the search goes on at the level of that row",
        "docs/ab.md; Holm 1979",
    ),
    (
        "where a next run would lie",
        "exp(mean of the newest level ± t(0.975, df) * s * sqrt(1 + 1/n))",
        "docs/history.md; the t interval of a new observation",
    ),
)


def documents(history: History) -> tuple[Document, ...]:
    """A document for each group of runs, the largest group first."""
    return tuple(_document(history, at) for at in range(len(history.groups)))


def _document(history: History, at: int) -> Document:
    group = history.groups[at]
    last = at == len(history.groups) - 1
    gaps = [*row_gaps(group), *([] if at else late_runs(history))]
    draw = partial(_charts, group)
    return Document(
        title=f"{group_name(group)} over {len(group.nights)} runs",
        command="history",
        run=Facts(tuple(_request(history, group))),
        machine=machine(group.newest),
        findings=sentences(findings(group)),
        doubts=(
            *(Finding(text, "not judged", "doubt") for text in gaps),
            *run_doubts(group),
            *sentences(group.notes, "doubt"),
        ),
        sections=(*_sections(group, draw), *(_closing(history) if last else ())),
        where=f"{len(group.nights)} folders, {group.nights[0].where} to {group.nights[-1].where}",
        picture=draw,
    )


def _request(history: History, group: Group) -> Iterator[tuple[str, str]]:
    times = moments([group.nights[0], group.nights[-1]])
    yield "begun", f"{times[0]} to {times[1]} (UTC)"
    yield "metrics", ", ".join(history.metrics)
    yield "threshold", percent(history.threshold)
    used, count = sum(len(one.nights) for one in history.groups), len(history.groups)
    groups = "one history" if count == 1 else f"{count} histories, unlike each other"
    yield "runs", f"{history.total} found, {used} in {groups}"
    yield "newest run as typed", command_line(group.newest)
    if history.forced:
        yield "by force", "runs of unlike hosts are in one history"


def _sections(group: Group, draw: partial[Iterator[Chart]]) -> Iterator[Section]:
    # Without a verdict the findings say all that there is to say.
    detail: Detail = "headline" if judged(group) else "further"
    yield Section("results", "Levels and steps", (_results(group),), detail)
    if any(series.marks for series in group.series):
        yield Section("steps", "Steps and outliers", (_steps(group),), "table")
    yield Section("runs-over-time", "Runs over time", (Charts(draw),))
    times = zip(moments(group.nights), group.nights, strict=True)
    changes = [
        f"changed at {when}: {', '.join(few(night.changed))}"
        for when, night in times
        if night.changed
    ]
    if changes:
        yield Section("changes", "Changes", (Prose(tuple(changes), listed=True),), "table")
    yield Section("runs", "The runs", (_values(group), _nights(group)))


def _closing(history: History) -> Iterator[Section]:
    """What holds for all groups."""
    lines, every = (tuple(passed_over(history, most)) for most in (MOST_PLACES, None))
    if lines:
        more = Folded("All that was passed over", (Prose(every, listed=True),))
        blocks = (Prose(lines, "quiet", listed=True), *(() if lines == every else (more,)))
        yield Section("passed-over", "Skipped runs", blocks, "table")
    how = Prose(tuple(method(history)), "quiet", listed=True)
    yield Section("how", "Notes", (how,))
    yield Section("method", "Method", (formula_table(FORMULAS),), "method")


# ------------------------------------------------------------------------------------ tables


def _results(group: Group) -> Table:
    """Each series in a line: its newest level, where a next run would lie, its spread and marks."""
    parts = list(dict.fromkeys(part_title(group, one) for one in group.series))
    columns = (
        Column("row", number=False),
        Column("metric", number=False),
        Column("newest level"),
        Column("newest run"),
        Column("next run", "95 %", spare=2),
        Column("spread", spare=1),
        Column("levels", spare=3),
        Column("verdict", number=False),
    )
    rows = tuple(_result(group, one, named=len(parts) > 1) for one in group.series)
    notes = (
        "newest level: geometric mean of its runs; spread: standard deviation of logarithms within "
        "levels; next run: where one more run of the newest level would lie at 95 %",
    )
    alone = f": {parts[0]}" if len(parts) == 1 else ""
    return Table(f"Each row over {len(group.nights)} runs{alone}", columns, rows, notes)


def _result(group: Group, series: Series, named: bool) -> TableRow:
    fit, newest = series.fit, series.points[-1]
    level = fit.levels[-1].value if fit.levels else None
    cells: tuple[Cell, ...] = (
        f"{series.row} ({series.client})",
        SCALES[series.metric].heading,
        Number(value_text(series.metric, level), level),
        Number(
            value_text(series.metric, newest.value),
            newest.value,
            "bad" if newest.invalid else "plain",
        ),
        _interval(series, fit.expected),
        Number(spread_text(fit.spread), fit.spread),
        Number(str(len(fit.levels)), len(fit.levels)),
        _verdict(group, series),
    )
    doubts = tuple(series_doubts(group, series))
    return TableRow(cells, doubts, part_title(group, series) if named else "")


def _interval(series: Series, interval: Interval | None) -> str:
    """`243.9 to 256.3`, in the unit of the series."""
    if interval is None:
        return "-"
    low, high = (value_text(series.metric, end) for end in (interval.low, interval.high))
    return f"{low} to {high}" if math.isfinite(interval.high) else f"{low} or more"


def _verdict(group: Group, series: Series) -> Text:
    """The last mark; the table of steps has all."""
    if series.fit.p is None:
        return Text("too few runs", "quiet")
    if (drift := series.fit.drift) is not None:
        ratio = drift.interval.ratio
        return Text(
            f"drift {100 * (ratio - 1):+.2g} % a run, {series.word(drift)}",
            TONES[series.word(drift)],
            (f"{ratio_text(series.drifted)} x in all",),
        )
    if not series.marks:
        return Text("no step")
    last = series.marks[-1]
    before = f", after {len(series.marks) - 1} more" if len(series.marks) > 1 else ""
    return Text(
        f"{mark_text(series, last)}, {series.word(last)}",
        _tone(series, last),
        (f"at {moments(group.nights)[last.at]}{before}",),
    )


def _tone(series: Series, mark: LevelMark) -> Tone:
    return TONES[series.word(mark)] if series.is_step(mark) else "doubt"


def _steps(group: Group) -> Table:
    """All steps and outliers in order of time."""
    columns = (
        Column("run", number=False),
        Column("row", number=False),
        Column("before"),
        Column("after"),
        Column("ratio", "95 % interval"),
        Column("p", "adjusted", spare=1),
        Column("what", number=False),
    )
    marks = [(series, mark) for series in group.series for mark in series.marks]
    marks.sort(key=lambda one: one[1].at)
    notes = (
        "before, after: the levels on both sides of a step; of an outlier its level and its own "
        "value; p: adjusted for all places and rows, and a mark up to 0.05",
    )
    rows = tuple(_step(group, series, mark) for series, mark in marks)
    return Table("Where a level begins, or a run stands apart", columns, rows, notes)


def _step(group: Group, series: Series, mark: LevelMark) -> TableRow:
    before, after = mark_sides(series, mark)
    step, night = series.is_step(mark), group.nights[mark.at]
    again = () if step or mark.at < len(group.nights) - 1 else (RUN_AGAIN,)
    cells: tuple[Cell, ...] = (
        moments(group.nights)[mark.at],
        Text(series_title(group, series), below=(SCALES[series.metric].heading,)),
        Number(value_text(series.metric, before), before),
        Number(value_text(series.metric, after), after),
        Text(f"{ratio_text(mark.interval.ratio)} x", _tone(series, mark), (ends(mark.interval),)),
        Number(f"{mark.p:.2g}", mark.p),
        Text(
            f"{'step' if step else 'outlier'}, {series.word(mark)}",
            _tone(series, mark),
            (*again, *(f"with this run: {one}" for one in night.changed)),
        ),
    )
    return TableRow(cells)


def _nights(group: Group) -> Folded:
    """The runs: what ran, where their records are, and what doubts each."""
    columns = tuple(
        Column(name, number=False)
        for name in ("began (UTC)", "run", "Ray", "serve-bench", "records")
    )
    rows = tuple(
        TableRow(
            (
                when,
                night.run.id,
                night.versions.get("ray", "-"),
                night.versions.get("serve-bench", "-"),
                night.where,
            ),
            tuple(doubt(one) for one in night.doubts),
        )
        for when, night in zip(moments(group.nights), group.nights, strict=True)
    )
    return Folded(
        "Versions and records of every run", (Table("Runs in order of time", columns, rows),)
    )


def _values(group: Group) -> Table:
    """Every series run by run, each beside a drawing of where it lies."""
    interval = any(point.interval for series in group.series for point in series.points)
    columns = (
        Column("run", number=False),
        Column("value"),
        *([Column("95 % interval", spare=1)] if interval else []),
        Column("o: run, |: level", "x: in no level", drawn=True),
        Column("", number=False),
    )
    rows = tuple(row for series in group.series for row in _series_rows(group, series, interval))
    changed = any(night.changed for night in group.nights)
    notes = ("*: something changed with this run",) if changed else ()
    return Table("Every row, run by run", columns, rows, notes)


def _series_rows(group: Group, series: Series, interval: bool) -> Iterator[TableRow]:
    marks = {mark.at: mark_text(series, mark) for mark in series.marks}
    count = len(series.fit.levels)
    title = (
        f"{series_title(group, series)}, {SCALES[series.metric].heading}: "
        f"{count} level{'' if count == 1 else 's'}"
    )
    if series.fit.spread is not None:
        title = f"{title}, spread {spread_text(series.fit.spread)}"
    for at, (when, night, point, strip) in enumerate(
        zip(moments(group.nights), group.nights, series.points, strips(series), strict=True)
    ):
        remarks = (
            marks.get(at, ""),
            "invalid" if point.invalid else "",
            "not measured" if point.value is None else "",
            "*" if night.changed else "",
        )
        cells: tuple[Cell, ...] = (
            when,
            Number(value_text(series.metric, point.value), point.value),
            *([_interval(series, point.interval)] if interval else []),
            strip,
            Text(" ".join(filter(None, remarks)), "bad" if point.invalid else "plain"),
        )
        yield TableRow(cells, group=title)


STRIP: Final = 17
"""Characters of a strip: where a run lies between the least and the largest of its series."""
NARROW: Final = 1.2
"""Values within this factor of each other fill no more of a strip than their part of it: otherwise
the least noise would look like much."""


def strips(series: Series) -> list[str]:
    """A strip for each run: `o` where it lies on a log scale, `|` its level, low is left."""
    logs = [None if one.value is None else math.log(one.value) for one in series.points]
    drift = series.fit.drift
    levels = {
        at: level.center if drift is None else drift.at(at)
        for level in series.fit.levels
        for at in level.runs
    }
    every = [*(log for log in logs if log is not None), *levels.values()]
    low, high = min(every), max(every)
    room = max(0.0, math.log(NARROW) - (high - low)) / 2
    low, high = low - room, high + room

    def place(log: float) -> int:
        return round((STRIP - 1) * (log - low) / (high - low))

    drawn = []
    for at, log in enumerate(logs):
        line = [" "] * STRIP
        if at in levels:
            line[place(levels[at])] = "|"
        if log is not None:
            line[place(log)] = "o" if at in levels else "x"
        drawn.append("".join(line))
    return drawn


# ------------------------------------------------------------------------------------ charts


def _charts(group: Group) -> Iterator[Chart]:
    """Charts of each cell and metric; runs by number, since nights are not evenly apart."""
    parts: dict[tuple[str, str, str], dict[str, Series]] = {}
    for one in group.series:
        part = parts.setdefault((one.variant, cell_slug(one.cell), one.metric), {})
        part[f"{one.row} ({one.client})"] = one
    for part in parts.values():
        for _, some in in_parts(part):
            yield _chart(group, some)


def _chart(group: Group, series: Mapping[str, Series]) -> Chart:
    first = next(iter(series.values()))
    scale = SCALES[first.metric]
    values = [
        point.value for one in series.values() for point in one.points if point.value is not None
    ]
    relative = max(values) / min(values) >= WIDE
    lines: dict[str, list[LinePoint]] = {}
    rules: dict[int, list[str]] = {}
    texts: list[str] = []
    for name, one in series.items():
        unit = one.fit.levels[0].value if relative and one.fit.levels else scale.size
        lines[name] = [
            LinePoint(
                at + 1,
                point.value / unit,
                None if point.interval is None else point.interval.low / unit,
                None if point.interval is None else point.interval.high / unit,
            )
            for at, point in enumerate(one.points)
            if point.value is not None
        ]
        for mark in one.marks:
            label = f"{one.row}: " if len(series) > 1 else ""
            rules.setdefault(mark.at, []).append(f"{label}{mark_text(one, mark)}")
            texts.append(mark_line(group, one, mark))
    times = moments(group.nights)
    shown = f"{scale.axis.split(',')[0]} to that of the first level" if relative else scale.axis
    return ladder(
        f"{part_title(group, first)}: {shown}",
        lines,
        "run, in order of time",
        "ratio" if relative else scale.axis,
        f"{shown} of {len(group.nights)} runs, {len(series)} rows. "
        + ("; ".join(texts) if texts else "No step."),
        marks=[Mark(at + 1, ", ".join(words)) for at, words in sorted(rules.items())],
        log_x=False,
        log_y=True,
        caption="The axis is near the runs, not from 0. "
        f"Run 1: {times[0]}, run {len(times)}: {times[-1]} (UTC). A line where a level begins, or "
        "a run is an outlier; bars are 95 % intervals over the launches of a run.",
    )
