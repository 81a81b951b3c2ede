"""The frame of a run: rows with dimensions (where), values (what) and warnings, and their tables.

A row is a load that was measured, or what a kind of run derives from some (a knee, a capacity). A
table, an object of JSON and a point of a chart are views of rows, and know no kind of run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN, LowerBound
from serve_bench.core.result import Trial
from serve_bench.view.charts import Chart, Point, split_lines
from serve_bench.view.csv import pick
from serve_bench.view.document import (
    Cell,
    Column,
    Finding,
    Number,
    Table,
    TableRow,
    Text,
    Tile,
    Tone,
    cell_text,
)
from serve_bench.view.figures import FIGURES, ROW_FIGURES, Value, compute_values, find_figure, scale
from serve_bench.view.rows import Entry, Page, warning_finding


@dataclass(frozen=True)
class ViewRow:
    """What was observed somewhere. `dims`: what tells it from the others; `name`: the same in few
    words; `group`: a heading over it and others. `gap`: what is missing of it; `notes`: small
    print. `entry`: the load that it is of, or the one that a derived row stands for."""

    dims: Mapping[str, Any]
    values: Mapping[str, Value] = field(default_factory=dict)
    name: str = ""
    group: str = ""
    warnings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    gap: str = ""
    tones: Mapping[str, Tone] = field(default_factory=dict)
    entry: Entry | None = None

    def value(self, figure: str) -> float | None:
        """A figure; None where it was not seen."""
        return self.values[figure].value if figure in self.values else None

    def text(self, figure: str, unit: str = "") -> str:
        """A figure in words."""
        return FIGURES[figure].show(self.values.get(figure), unit)

    @property
    def trials(self) -> Sequence[Trial]:
        """What was measured."""
        return () if self.entry is None else self.entry.line.trials


def make_rows(
    page: Page, figures: Sequence[str], codes: Collection[str] | None = None
) -> list[ViewRow]:
    """The loads of a run, planned ones that were not measured too. `figures`: beside those that
    every load has. Their warnings: what is missing in part, what failed, what is doubted (of these
    `codes` alone, if any are given); of several launches, in which."""
    rows = []
    for entry in page.entries:
        line, gap, warnings = entry.line, "", []
        if line.status == "not measured":
            gap = "not measured"
        elif line.status == "partly measured":
            gap = f"{len(line.trials)} of {len(line.keys)} launches measured"
            warnings.append(Finding("", gap, "doubt"))
        warnings += [Finding(failure.message, "failed", "bad") for failure in entry.failures]
        several = len(line.keys) > 1
        launch = {trial.key: f"launch {trial.round}" for trial in line.trials if several}
        warnings += [
            warning_finding(seen, launch.get(str(seen.key), ""))
            for seen in entry.warnings
            if codes is None or seen.code in codes
        ]
        dims = {
            "variant": line.variant,
            **line.cell,
            "row": line.row.label,
            **pick(line.row, "client", "loop", "connections", "rate_per_s", "run"),
            "status": line.status,
            "limit": entry.limited.cause if entry.limited else None,
        }
        values = dict(compute_values(line, (*ROW_FIGURES, *figures)))
        name = f"{line.row.label}{' (profiled)' if line.status == 'profiled' else ''}"
        row = ViewRow(dims, values, name, warnings=tuple(warnings), gap=gap, entry=entry)
        rows.append(replace(row, notes=entry.facts))
    return rows


def describe_figures(row: ViewRow) -> str:
    """`889.0 ± 14.0 requests/s, p50 8.55 ms, p99 10.7 ms`, as far as they are known; of streams
    also `740.0 events/s, TTFT p50 5.21 ms, TTFT p99 6.33 ms` and the same of ITL."""
    words = [f"{row.text(MAIN)} requests/s"]
    words += [f"{row.text('events')} events/s"] if "events" in row.values else []
    for time in (LATENCY, "ttft", "itl"):
        for name in (f"{time}_p50", f"{time}_p99"):
            if name in row.values:
                words.append(f"{FIGURES[name].title} {row.text(name)} ms")
    return ", ".join(words)


LEADING: Final = (MAIN, "latency_p99")
"""Of a row, the figures that are seen first."""


def make_tiles(row: ViewRow | None, figures: Sequence[str] = LEADING) -> Iterator[Tile]:
    """Figures of a row that are seen first, then what limited it. A name that is none of a figure
    is that of a dimension, which is shown as words."""
    if row is None:
        return
    for name in figures:
        figure = find_figure(name)
        if figure is not None and name in row.values:
            text = figure.show(row.values[name])
            yield Tile(figure.title, text, figure.shown.removeprefix("1"), row.name)
        elif figure is None and row.dims.get(name):
            tone = row.tones.get(name, "plain")
            yield Tile(name.replace("_", " "), str(row.dims[name]), note=row.name, tone=tone)
    limit = None if row.entry is None else row.entry.limited
    if limit is not None:
        known = f"{limit.figures} ({limit.confidence})"
        reasons = "; ".join(limit.reasons[:1])
        yield Tile("limited by", limit.cause, note=reasons if limit.cause == "unclear" else known)


# Tables.


@dataclass(frozen=True)
class Field:
    """A column: a figure or a dimension, under another title or in another unit than its own.
    `head`: what stands under the title in place of the unit. `detail`: a terminal shows it with
    --verbose alone. The name `name` is that of the row; its notes stand below it, or below the
    dimension that is `noted`. `quiet`: a detail where it is 0 in all rows. `of`: the dimension that
    names the figure of each row, of which the column has the member `name`, if it has a name."""

    name: str
    title: str = ""
    unit: str = ""
    detail: bool = False
    head: str = ""
    noted: bool = False
    quiet: bool = False
    of: str = ""

    def column(self, rows: Sequence[ViewRow]) -> Column:
        """The column of a document; dimensions that are numbers are set as figures."""
        figure = find_figure(self.name)
        if figure is not None:
            unit = self.head or self.unit or figure.shown.removeprefix("1")
            silent = self.quiet and not any(row.value(self.name) for row in rows)
            return Column(self.title or figure.title, unit, detail=self.detail or silent)
        title = self.title or self.name.replace("_", " ")
        known = [row.dims.get(self.name) for row in rows]
        numbers = bool(self.of) or (not self.noted and any(map(_is_number, known)))
        return Column(title, self.head or self.unit, number=numbers, detail=self.detail)

    def cell(self, row: ViewRow) -> Cell:
        """The cell of a row."""
        if self.of:
            name = f"{row.dims[self.of]}.{self.name}".removesuffix(".")
            return Field(name, unit=self.unit).cell(row)
        figure, value = find_figure(self.name), row.values.get(self.name)
        tone = row.tones.get(self.name, "plain")
        if figure is None or (value is None and self.name in row.dims):
            dim = row.name if self.name == "name" else row.dims.get(self.name)
            text = "-" if dim is None else f"{dim:,}" if _is_number(dim) else str(dim)
            if self.name == "name" or self.noted:
                return Text(text, tone, row.notes)
            if self.name == "users" and row.dims.get("run", 1) > 1:
                text += f" (run {row.dims['run']})"
            if isinstance(dim, int | float) and not isinstance(dim, bool):
                return Number(text, dim, tone)
            return Text(text, tone)
        if value is None:
            return Number("-", None)
        unit = self.unit or figure.shown
        tone = row.tones.get(self.name) or (figure.tone if value.value else "plain")
        shown = value.value * scale(figure.unit, unit)
        seen = len(value.launches)
        several = f", {seen} of {seen + value.missing}" if value.missing else ""
        return Number(f"{figure.show(value, unit)}{several}", shown, tone)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class TableSpec:
    """A table of rows: its caption, its columns, and how the figures were got."""

    caption: str
    fields: tuple[Field, ...]
    notes: tuple[str, ...] = ()


def make_spec(
    caption: str, names: str, details: str = "", row: str = "", notes: tuple[str, ...] = ()
) -> TableSpec:
    """A table with columns of these names, those that are details last. `row`: the title of the
    names of the rows, where they stand first."""
    first = [Field("name", row)] if row else []
    hidden = (Field(name, detail=True) for name in details.split())
    return TableSpec(caption, (*first, *map(Field, names.split()), *hidden), notes)


def make_table(spec: TableSpec, rows: Sequence[ViewRow], bare: bool = False) -> Table:
    """A table without the columns that hold nothing. What is missing of a row stands in place of
    its first figure. `bare`: without what is said of each row."""
    rows = [replace(row, warnings=(), notes=()) for row in rows] if bare else rows
    main = next((item.name for item in spec.fields if find_figure(item.name)), "")

    def cell(item: Field, row: ViewRow) -> Cell:
        missing = item.name == main and row.gap and main not in row.values
        return Text(row.gap, "doubt") if missing else item.cell(row)

    columns = [(item, [cell(item, row) for row in rows]) for item in spec.fields]
    kept = [pair for pair in columns if any(cell_text(at) not in ("-", "") for at in pair[1])]
    by_row = zip(*(cells for _, cells in kept), strict=True)
    pairs = zip(rows, by_row, strict=False)
    lines = (TableRow(cells, row.warnings, row.group) for row, cells in pairs)
    heads = tuple(item.column(rows) for item, _ in kept)
    return Table(spec.caption, heads, tuple(lines), spec.notes)


def figure_table(
    caption: str,
    rows: Sequence[ViewRow],
    figures: Sequence[str],
    notes: Sequence[str] = (),
    group: Callable[[str], str] = lambda figure: "",
) -> Table:
    """A line for each figure, which may be many, and a column for each row."""
    heads = (Column("figure", number=False), Column("unit", number=False, detail=True))
    shown = (name for name in figures if any(name in row.values for row in rows))
    lines = []
    for figure in map(FIGURES.__getitem__, shown):
        cells = (Field(figure.name).cell(row) for row in rows)
        head = (figure.title, figure.shown or figure.unit)
        lines.append(TableRow((*head, *cells), group=group(figure.name)))
    columns = (*heads, *(Column(row.name) for row in rows))
    return Table(caption, columns, tuple(lines), tuple(notes), unlike=True)


def differ(rows: Sequence[ViewRow], dims: Iterable[str]) -> list[str]:
    """The dimensions of which the rows have several values, in their order."""
    return [dim for dim in dims if len({str(row.dims.get(dim)) for row in rows}) > 1]


# For programs.


def row_json(row: ViewRow) -> dict[str, Any]:
    """A row: dimensions, figures unrounded with their units, what limited it, and, of a load, the
    account of its requests and what was seen beside."""
    data: dict[str, Any] = {
        "name": row.name,
        "group": row.group,
        "dims": {name: value for name, value in row.dims.items() if value is not None},
        "figures": {name: value_json(name, value) for name, value in row.values.items()},
        "warnings": list(row.warnings),
        "notes": list(row.notes),
    }
    if row.entry is not None:
        data["limited_by"] = row.entry.verdicts
        data["failed"] = row.entry.line.failed
    return data


def value_json(name: str, value: Value) -> dict[str, Any]:
    """A value as it stands in JSON, without what it has not."""
    figure = find_figure(name)
    data: dict[str, Any] = {"unit": "" if figure is None else figure.unit, "value": value.value}
    if isinstance(value.value, LowerBound):
        data["lower_bound"] = True
    for key in ("std", "windows", "launch_std", "low", "high", "of", "missing"):
        if (number := getattr(value, key)) is not None:
            data[key] = number
    if value.launches:
        data["launches"] = {str(launch): number for launch, number in value.launches.items()}
    return data


IN_CLIENT = ("in_windows", "mean_in_flight", "status_codes")
OF_STREAMS = ("events", "merged", "tokens")
SEEN = ("usage", "served", "serve_metrics", "waterfall")


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial: the account of the requests of its windows, each followed to its end (carried_in +
    sent = completed + failed + in_flight), its windows, and what was seen beside.

    `not_sent`: due, and still waiting for a free connection at the end of the drain. `in_windows`:
    what happened within the windows. `status_codes`: of whole responses. Of streams: `events`
    within the windows, `merged`: those that came in the same read as the one before, `tokens`: as
    the service counts them.
    """
    counts = trial.counts
    return {
        "key": trial.key,
        "requests": {
            **pick(counts, "carried_in", "sent", "completed", "failed", "in_flight"),
            "not_sent": counts.unsent,
            "unanswered": trial.unanswered,
            **{name: trial.client.get(name) for name in IN_CLIENT},
            **{name: trial.client[name] for name in OF_STREAMS if name in trial.client},
        },
        "windows": {
            name: metric.windows
            for name, metric in trial.metrics.items()
            if metric.windows is not None
        },
        **{name: value for name in SEEN if (value := getattr(trial, name))},
        **({"nodes": list(nodes)} if (nodes := trial.client.get("nodes")) else {}),
        "profiles": list(trial.profiles),
    }


# Charts.


def line_chart(
    title: str,
    rows: Sequence[ViewRow],
    x: str,
    figures: Sequence[str],
    series: str,
    *,
    marks: Sequence[tuple[float, str]] = (),
    caption: str = "",
    more: Sequence[Point] = (),
    x_name: str = "",
    log_x: bool = True,
    log_y: bool | None = None,
    joined: bool = True,
) -> Iterator[Chart]:
    """Figures of one unit over the dimension `x`, a line for each value of the dimension `series`
    and each figure; nothing without a point. `more`: further lines, such as published ones. Points
    that are not `joined` stand on a logarithmic axis, and so do times, unless `log_y` says
    otherwise."""
    first = FIGURES[figures[0]]
    usual = first.shown == "ms" or bool(more) or not joined
    logarithmic = usual if log_y is None else log_y
    points: list[Point] = []
    things: dict[str, str] = {}
    names = list(dict.fromkeys(str(row.dims[series]) for row in rows))
    for name in names:
        for figure in figures:
            words = [name] if len(names) > 1 or len(figures) == 1 else []
            words += [FIGURES[figure].title] if len(figures) > 1 else []
            label = ", ".join(words)
            things[label] = name
            points += [
                _point(row, x, figure, label)
                for row in rows
                if str(row.dims[series]) == name
                and (value := row.value(figure)) is not None
                and (value > 0 or not logarithmic)
            ]
    if points:
        chart = Chart(
            title,
            "lines",
            [*points, *more],
            first.title if first.shown == "1" else first.shown,
            x_name or x,
            caption,
            x_scale="log" if log_x else "linear",
            log_y=logarithmic,
            marks=marks,
            joined=joined,
            things=things,
        )
        yield from split_lines(chart)


def _point(row: ViewRow, x: str, name: str, series: str) -> Point:
    shown, *ends = FIGURES[name].place(row.values[name])
    low, high = (None, None) if FIGURES[name].unit == "ns" else ends
    return Point(float(row.dims[x]), shown, series, low, high)


FAR: Final = 20.0
"""An axis whose largest value is so many times its smallest is logarithmic."""

BARS: Final = "Bars: the lowest and highest launch; of a single one ± the std of its windows."


def draw_over(
    title: str, rows: Sequence[ViewRow], x: str, figures: Sequence[str], series: str
) -> Iterator[Chart]:
    """Figures over the dimension `x`: lines where it has several numbers, all above 0. Else the
    first of them as a dot for each row, a colour for each value of the dimension `series`; its bar
    is its interval, or reaches up to the last figure of several."""
    name, *further = figures
    xs = [row.dims[x] for row in rows]
    if len(set(map(str, xs))) > 1 and all(_is_number(value) and value > 0 for value in xs):
        caption, log_x = "" if further else BARS, max(xs) >= FAR * min(xs)
        yield from line_chart(title, rows, x, figures, series, caption=caption, log_x=log_x)
        return
    points = []
    for row in rows:
        if (value := row.values.get(name)) is not None:
            if further:
                value = replace(value, low=value.value, high=row.value(further[-1]))
            shown, low, high = FIGURES[name].place(value)
            points.append(Point(f"{x} {row.dims[x]}", shown, str(row.dims[series]), low, high))
    caption = f"Bars reach up to {FIGURES[further[-1]].title}." if further else BARS
    if points:
        yield Chart(title, "dots", points, FIGURES[name].shown, caption=caption)
