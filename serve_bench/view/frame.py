"""The frame of a run: rows with dimensions (where), values (what) and warnings, and their tables.

A row is a load that was measured, or what a kind of run derives from some (a knee, a capacity). A
table, an object of JSON and a point of a chart are views of rows, and know no kind of run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from msgspec import to_builtins

from serve_bench.analysis.statistics import LATENCY, MAIN, LowerBound
from serve_bench.core.result import Trial
from serve_bench.view.charts import Chart, Point, split_lines
from serve_bench.view.csv import pick
from serve_bench.view.document import Cell, Column, Detail, Number, Section, Table, TableRow, Text
from serve_bench.view.figures import FACTORS, FIGURES, Value
from serve_bench.view.rows import ViewRow as ViewRow


def describe_figures(row: ViewRow) -> str:
    """Render `889.0 ± 14.0 requests/s, p50 8.55 ms, p99 10.7 ms`, as far as they are known.

    Of streams also `740.0 events/s, TTFT p50 5.21 ms, TTFT p99 6.33 ms` and the same of ITL."""
    words = [f"{row.text(MAIN)} requests/s"]
    words += [f"{row.text('events')} events/s"] if "events" in row.values else []
    times = [f"{time}_{share}" for time in (LATENCY, "ttft", "itl") for share in ("p50", "p99")]
    words += [f"{FIGURES[name].title} {row.text(name)} ms" for name in times if name in row.values]
    return ", ".join(words)


@dataclass(frozen=True)
class Field:
    """A column: a figure or a dimension, also with another title or unit than it has.

    The name `name` is that of the row; its notes are below it, or below a `noted` dimension."""

    name: str
    title: str = ""
    unit: str = ""
    detail: bool = False  # a terminal shows it only with --verbose
    head: str = ""  # under the title in place of the unit
    noted: bool = False
    of: str = ""  # a dimension that names the figure of each row; the column has its member `name`

    def column(self, cells: Sequence[Cell]) -> Column:
        """Return the head of these cells. What is bad is a detail where it is 0 in all of them."""
        family, _, member = self.name.partition(".")
        figure = FIGURES.get(family)
        usual = f"{figure.title} {member}".strip() if figure else self.name.replace("_", " ")
        title = self.title or usual
        unit = self.head or self.unit or (figure.shown.removeprefix("1") if figure else "")
        seen = [cell for cell in cells if isinstance(cell, Number)]
        if " %" not in unit and any(cell.interval for cell in seen):
            unit = f"{unit} (95 %)".strip()
        is_bad = figure is not None and figure.tone == "bad"
        detail = self.detail or (is_bad and not any(cell.value for cell in seen))
        return Column(title, unit, bool(seen), detail)

    def cell(self, row: ViewRow) -> Cell:
        """Return the cell of a row; `-` where it has no such figure or dimension."""
        name = f"{row.dims[self.of]}.{self.name}".removesuffix(".") if self.of else self.name
        figure, value = FIGURES.get(name.partition(".")[0]), row.values.get(name)
        if figure is None or (value is None and name in row.dims):
            dim: Any = row.name if self.name == "name" else row.dims.get(self.name)
            is_number = isinstance(dim, int | float) and not isinstance(dim, bool)
            text = "-" if dim is None else f"{dim:,}" if is_number else str(dim)
            tone, noted = row.tones.get(self.name, "plain"), self.noted or self.name == "name"
            if self.name == "users" and row.dims.get("run", 1) > 1:
                text += f" (run {row.dims['run']})"
            if is_number and not noted:
                return Number(text, dim, tone)
            return Text(text, tone, row.notes if noted else ())
        if value is None:
            return Number("-", None)
        unit, seen = self.unit or figure.shown, len(value.launches)
        tone = row.tones.get(name) or (figure.tone if value.value else "plain")
        several = f", {seen} of {seen + value.missing}" if value.missing else ""
        shown = value.value * FACTORS.get((figure.unit, unit), 1.0)
        interval = bool(figure.digits) and None not in (value.low, value.high)
        return Number(f"{figure.show(value, unit)}{several}", shown, tone, interval)


@dataclass(frozen=True)
class TableSpec:
    """A table of rows: its caption, its columns, and how the figures were got."""

    caption: str
    fields: tuple[Field, ...]
    notes: tuple[str, ...] = ()


def make_spec(
    caption: str, names: str, details: str = "", row: str = "", notes: tuple[str, ...] = ()
) -> TableSpec:
    """Return a table with columns of these names, those that are details last.

    `row`: the title of the names of the rows, where they stand first."""
    first = [Field("name", row)] if row else []
    hidden = (Field(name, detail=True) for name in details.split())
    return TableSpec(caption, (*first, *map(Field, names.split()), *hidden), notes)


def make_table(spec: TableSpec, rows: Sequence[ViewRow], bare: bool = False) -> Table:
    """Make a table, without the columns that hold nothing.

    What is missing of a row stands in place of its first figure. `bare`: no warnings and notes."""
    rows = [replace(row, warnings=(), notes=()) for row in rows] if bare else rows
    names = (item.name for item in spec.fields)
    main = next((name for name in names if name.partition(".")[0] in FIGURES), "")
    kept: list[tuple[Column, list[Cell]]] = []
    for item in spec.fields:
        gaps = ["" if item.name != main or main in row.values else row.gap for row in rows]
        pairs = zip(rows, gaps, strict=True)
        cells = [Text(gap, "doubt") if gap else item.cell(row) for row, gap in pairs]
        if any(cell.text not in ("-", "") or cell.below for cell in cells):
            kept.append((item.column(cells), cells))
    by_row = zip(rows, zip(*(cells for _, cells in kept), strict=True), strict=False)
    lines = tuple(TableRow(cells, row.warnings, row.group) for row, cells in by_row)
    return Table(spec.caption, tuple(column for column, _ in kept), lines, spec.notes)


def table_section(
    name: str,
    title: str,
    spec: TableSpec,
    rows: Sequence[ViewRow],
    detail: Detail = "further",
    *,
    bare: bool = False,
) -> Section:
    """Return a section of a table; nothing in it without a row."""
    return Section(name, title, (make_table(spec, rows, bare),) if rows else (), detail)


def make_tiles(rows: Iterable[ViewRow], names: str = f"{MAIN} latency_p99") -> Table:
    """Make the table that is seen first: these figures and dimensions, and what limited a row."""
    known = [replace(row, group=row.name) for row in rows if row.values]
    fields = (*map(Field, names.split()), Field("limit", "limited by"))
    return make_table(TableSpec("", fields), known, bare=True)


def differ(rows: Sequence[ViewRow], dims: Iterable[str]) -> list[str]:
    """List the dimensions of which the rows have several values, in their order."""
    return [dim for dim in dims if len({str(row.dims.get(dim)) for row in rows}) > 1]


def row_json(row: ViewRow) -> dict[str, Any]:
    """Return a row for JSON: dimensions, and figures unrounded with their units.

    Of a load also what limited it, and its failed requests."""
    data: dict[str, Any] = {
        **pick(row, "name", "group", "warnings", "notes"),
        "dims": {name: value for name, value in row.dims.items() if value is not None},
        "figures": {name: value_json(name, value) for name, value in row.values.items()},
    }
    if row.line.keys:
        data |= {"limited_by": row.verdicts, "failed": row.line.failed}
    return data


def value_json(name: str, value: Value) -> dict[str, Any]:
    """Return a value for JSON, without what it has not."""
    data = {"unit": FIGURES[name.partition(".")[0]].unit, **vars(value)}
    data |= {"launch_std": value.launch_std, "launches": value.launches or None}
    data |= {"lower_bound": True if isinstance(value.value, LowerBound) else None}
    return {key: number for key, number in data.items() if number is not None}


def trial_json(trial: Trial) -> dict[str, Any]:
    """Return a trial for JSON: the account of its requests, its windows, and what was seen.

    Each request of the windows is followed to its end (carried_in + sent = completed + failed +
    in_flight). `not_sent`: due, and still waiting for a free connection at the end of the drain. Of
    streams `events` within the windows, and `merged`: those that came in the same read as the one
    before."""
    counts, client = trial.counts, trial.client
    beside = pick(trial, "usage", "served", "serve_metrics", "waterfall")
    windows = {name: metric.windows for name, metric in trial.metrics.items()}
    return {
        "key": trial.key,
        "requests": {
            **pick(counts, "carried_in", "sent", "completed", "failed", "in_flight"),
            "not_sent": counts.unsent,
            "unanswered": trial.unanswered,
            **pick(client, "in_windows", "mean_in_flight", "status_codes"),
            **(pick(client, "events", "merged", "tokens") if trial.row.traffic.streams else {}),
        },
        "windows": {name: seen for name, seen in windows.items() if seen is not None},
        **{name: seen for name, seen in beside.items() if to_builtins(seen)},
        **({"nodes": client.nodes} if client.nodes else {}),
        "profiles": trial.profiles,
    }


def line_chart(
    title: str, rows: Sequence[ViewRow], x: str, figures: Sequence[str], series: str, **looks: Any
) -> Iterator[Chart]:
    """Yield charts of figures of one unit over the dimension `x`; nothing without a point.

    A line is a value of the dimension `series` and a figure. Unless `looks` say otherwise, x is
    logarithmic, and so are times, and points that are not joined."""
    first, names = FIGURES[figures[0]], list(dict.fromkeys(str(row.dims[series]) for row in rows))
    log_y = looks.setdefault("log_y", first.shown == "ms" or not looks.get("joined", True))
    points: list[Point] = []
    things: dict[str, str] = {}
    for name, figure in product(names, map(FIGURES.__getitem__, figures)):
        words = [name] if len(names) > 1 or len(figures) == 1 else []
        label = ", ".join([*words, figure.title] if len(figures) > 1 else words)
        things[label] = name
        for row in (row for row in rows if str(row.dims[series]) == name):
            value = row.values.get(figure.name)
            if value is not None and (value.value > 0 or not log_y):
                shown, low, high = figure.place(value)
                ends = (None, None) if figure.unit == "ns" else (low, high)
                points.append(Point(float(row.dims[x]), shown, label, *ends))
    unit = first.title if first.shown == "1" else first.shown
    looks = {"x_name": x, "x_scale": "log", "things": things, **looks}
    return split_lines(Chart(title, "lines", points, unit, **looks))


BARS: Final = "Bars: the lowest and highest launch; of a single one ± the std of its windows."
