"""A run of rows (micro, noop, run, load) as a comment: a row for each load of each cell under each
variant; and what the comments of all runs with a Page have in common.

Rule: every doubt stands by its code in the row that it is about, in whole words under the fold.
Axes that do not vary are said there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from serve_bench.benchmarks.micro import document as of_page
from serve_bench.benchmarks.micro import page_found as of_page_found
from serve_bench.benchmarks.micro.own_app_text import best_text
from serve_bench.benchmarks.micro.page_panels import Names, names_of
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, command_line
from serve_bench.benchmarks.parts.page import (
    CellPart,
    Entry,
    Page,
    VariantPart,
    cell_title,
    latency,
    mean_and_std,
    number,
    page_of,
    ratio,
    remark,
)
from serve_bench.core.result import Result, Row, cell_slug
from serve_bench.report.columns import markdown_table
from serve_bench.report.comment import (
    BROKEN_OFF,
    MOST_COLUMNS,
    Found,
    Part,
    broken_off,
    bullets,
    comment,
    doubts,
    folded,
    formulas,
    records,
    remarks,
    split,
)


def rows_comment(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page = page_of(result, published=published, where=where)
    names = names_of(page)
    own = result.run.command == of_page.OWN
    found = _found(result, page, names)
    best = best_text(page) if own else None
    return comment(
        found.first,
        _table(page, names),
        (
            *about(page, found),
            bullets(fixed(page, names)),
            bullets(_load_alone(names)),
            bullets([best] if best is not None else []),
            bullets(struck(page)),
            remarks(told(page, names)),
            *closing(page),
            *every_figure(page, names),
            *usages(page),
            formulas((*GENERAL_FORMULAS, *_formulas(result, page))),
        ),
        where,
    )


def _found(result: Result, page: Page, names: Names) -> Found:
    return split(result, of_page_found.found(page, names), page.warnings)


def _formulas(result: Result, page: Page) -> Iterator[tuple[str, str, str]]:
    yield from of_page.formulas(page, result.run.command == of_page.OWN)


# --------------------------------------------------------------------------------- the table


class Column(NamedTuple):
    """A column: its name, the text of an entry in it, and whether it is flush left."""

    name: str
    text: Callable[[Entry], str]
    left: bool = False


def table_of(columns: Sequence[Column], entries: Sequence[Entry]) -> list[str]:
    """The entries as a table of Markdown."""
    left = [at for at, column in enumerate(columns) if column.left]
    rows = [[column.text(entry) for column in columns] for entry in entries]
    return markdown_table([column.name for column in columns], rows, left)


def _table(page: Page, names: Names) -> list[str]:
    if not page.entries:
        return []
    marks = {id(one): mark for part in page.variants for one, mark in _doubted(part)}
    figures = [
        Column("requests/s", _rate),
        *([Column(f"ratio to {page.base}", lambda one: _ratio(one, page))] if page.base else []),
        *_latencies(),
        Column("errors", lambda one: str(one.line.errors) if one.line.trials else "-"),
    ]
    if any(one.published for one in page.entries):
        figures.append(Column("published requests/s", lambda one: str(one.published or "-")))
    if any(one.limited for one in page.entries):
        figures.append(Column("limited by", _cause, left=True))
    if any(marks.values()):
        figures.append(Column("doubts", lambda one: marks[id(one)], left=True))
    heads = _heads(page, names, MOST_COLUMNS - len(figures))
    if len(heads) + len(figures) > MOST_COLUMNS:
        at = figures.index(next(one for one in figures if one.name == "p50 ms"))
        figures[at : at + 2] = [Column("p50 / p99 ms", _both)]
    order = {place: at for at, place in enumerate(names.places)}
    entries = sorted(page.entries, key=lambda one: order[_place(one)])
    return table_of((*heads, *figures), entries)


def _place(entry: Entry) -> tuple[str, Row]:
    return cell_slug(entry.line.cell), entry.line.row


def _heads(page: Page, names: Names, room: int) -> list[Column]:
    """What names a row: its axes in columns of their own where there is room for them, else in one
    with the load; the variant where there are several."""
    several = len(names.rows) > 1
    load = Column("row", lambda one: _load(one, names), left=True)
    variant = [Column("variant", lambda one: one.line.variant, left=True)] * names.variants
    axes = [Column(short, _axis(axis)) for axis, short in names.axes.items()]
    apart = [*axes, *([load] if several or not axes else []), *variant]
    if len(apart) <= room or len(axes) == 0:
        return apart
    return [Column("row", lambda one: _named(one, names), left=True), *variant]


def _axis(axis: str) -> Callable[[Entry], str]:
    return lambda one: str(one.line.cell.get(axis, "-"))


def _load(entry: Entry, names: Names) -> str:
    profiled = " (profiled)" if entry.line.status == "profiled" else ""
    return names.row(entry) + profiled


def _named(entry: Entry, names: Names) -> str:
    """`bs1, mcq10000, rep8: 8 clients`."""
    words = [names.cell(entry.line.cell)] if names.cells else []
    words += [_load(entry, names)] if len(names.rows) > 1 or not words else []
    return ": ".join(words)


def _rate(entry: Entry) -> str:
    return entry.gap or "-" if entry.rate is None else mean_and_std(entry.rate)


def _ratio(entry: Entry, page: Page) -> str:
    return ratio(entry.line, page.base)


def _latencies() -> Iterator[Column]:
    yield Column("p50 ms", lambda one: latency(one.latency_ms("p50")))
    yield Column("p99 ms", lambda one: latency(one.latency_ms("p99")))


def _both(entry: Entry) -> str:
    return " / ".join(latency(entry.latency_ms(name)) for name in ("p50", "p99"))


def _cause(entry: Entry) -> str:
    return "-" if entry.limited is None else entry.limited.cause


def _doubted(part: VariantPart) -> Iterator[tuple[Entry, str]]:
    """The last column: of each row its gap, that it failed, the codes of its doubts and of those of
    its variant."""
    shared = [one.code for one in part.warnings]
    for cell in part.cells:
        for entry in cell.entries:
            codes = [BROKEN_OFF] if any(map(broken_off, entry.line.trials)) else []
            codes += [one.code for one in entry.warnings]
            gap = entry.gap if entry.line.status == "partly measured" else None
            failed = entry.failures or cell.failures or part.failures
            yield entry, doubts([*codes, *shared], gap, failed)


# ------------------------------------------------------------------------------ under the fold


def about(page: Page, found: Found) -> Iterator[Part]:
    """What else was found, which run it is, each variant with its flags and what is in force."""
    yield bullets(found.further)
    yield bullets([page.title, f"command: {command_line(page.run)}"])
    for part in page.variants:
        flags = " ".join(part.env) or "no flags"
        engaged = f"; {part.engaged}" if part.engaged else ""
        yield bullets([f"variant {part.name}: {flags}{engaged}"])


def fixed(page: Page, names: Names) -> Iterator[str]:
    """The axes that do not vary, and what the short names of the others stand for."""
    cell = page.entries[0].line.cell if page.entries else {}
    same = {axis: value for axis, value in cell.items() if axis not in names.axes}
    if same:
        yield f"in every cell: {cell_title(same)}"
    if names.legend:
        yield names.legend


def _load_alone(names: Names) -> Iterator[str]:
    """The load of all rows where there is one, which has no column then."""
    if len(names.rows) == 1 and names.axes:
        yield f"every row: {next(iter(names.rows.values()))}"


def struck(page: Page) -> Iterator[str]:
    """What failed and what is doubted of the run, of each variant, of each cell."""
    yield from (f"failed: {one.what}: {one.message}" for one in page.failures)
    yield from (remark(one) for one in page.warnings)
    for part in page.variants:
        yield from (f"failed, {part.name}: {one.what}: {one.message}" for one in part.failures)
        yield from (remark(one) for one in part.warnings)
        for cell in part.cells:
            where = f"{part.name}, {cell_title(cell.cell)}"
            yield from (f"failed, {where}: {one.what}: {one.message}" for one in cell.failures)


def told(page: Page, names: Names) -> Iterator[tuple[str, str]]:
    """Of each row what is missing, what failed, what is doubted, what limited it, with its name."""
    for entry in page.entries:
        profiled = " (profiled)" if entry.line.status == "profiled" else ""
        name = f"{names.whole(entry)}{profiled}"
        yield from ((name, text) for text in (*entry.remarks, *entry.facts))


def closing(page: Page) -> Iterator[Part]:
    """How it was measured, hints, what was published, the host, the records."""
    yield bullets((*page.notes, f"host: {page.host}"))
    yield records(page.where)


_PERCENTILES: Final = ("p50", "p90", "p99", "max")


def every_figure(page: Page, names: Names) -> Iterator[Part]:
    """A table for each variant, with clients, all percentiles and the spread over launches."""
    columns = [Column(axis, _axis(axis)) for axis in names.axes]
    columns.append(Column("row", lambda one: one.label, left=True))
    columns.append(Column("client", lambda one: one.line.row.client, left=True))
    columns.append(Column("requests/s", _rate))
    if page.launches > 1:
        columns.append(Column("std over launches", _over_launches))
    columns += [Column(f"{name} ms", _percentile(name)) for name in _PERCENTILES]
    for part in page.variants:
        yield folded(f"Every figure, variant {part.name}", table_of(columns, part.entries))


def _percentile(name: str) -> Callable[[Entry], str]:
    return lambda one: latency(one.latency_ms(name))


def _over_launches(entry: Entry) -> str:
    rate = entry.rate
    if rate is None or rate.launch_std is None:
        return "-"
    return f"{number(rate.launch_std)} ({rate.launches})"


def usages(page: Page) -> Iterator[Part]:
    """CPU by process of each cell under each variant."""
    for part in page.variants:
        for cell in part.cells:
            where = f"{part.name}, {cell_title(cell.cell)}"
            yield folded(f"CPU by process: {where}", _usage(cell), "CPU by process")


def _usage(part: CellPart) -> list[str]:
    if part.usage is None:
        return []
    names = ("CPU, % of a core", *part.usage.columns, "MB")
    return markdown_table(names, part.usage.lines, (0,))
