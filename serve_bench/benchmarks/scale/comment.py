"""A scale run as a comment: a row for each metric with a column for each variant; of a curve a row
for each size; nodes, rows and growth under the fold.

Rule: figures and sentences are those of the text. What doubts a size stands by its code in the last
row of its metrics, or in the last column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, command_line
from serve_bench.benchmarks.parts.texts import cell_title, remark
from serve_bench.benchmarks.scale import document as of_scale
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, ScaleVariant, scale_page
from serve_bench.benchmarks.scale.page_found import found as found_of
from serve_bench.benchmarks.scale.summary import Figure
from serve_bench.benchmarks.scale.tables import (
    NODE_COLUMNS,
    compared_rows,
    curve_rows,
    figure_text,
    growth_rows,
    node_rows,
    published_text,
    rows_rows,
    spread_text,
)
from serve_bench.benchmarks.scale.words import asked, compared_note, flags_of, notes
from serve_bench.core.result import Result
from serve_bench.report.columns import Texts, markdown_table
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
    without_gaps,
)

MOST_HEADLINES = 2
"""Of a graph each variant has a sentence; so many of them stand first."""


def scale_comment(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page = scale_page(result, published, where)
    found = _found(result, page)
    curve = page.workload == of_scale.CURVE
    return comment(
        found.first,
        _curve(page) if curve else _metrics(page),
        (
            bullets(found.further),
            bullets(
                [
                    page.title,
                    f"command: {command_line(page.run)}",
                    *page.invalid,
                    *asked(page.run.suite, page.workload),
                ]
            ),
            bullets(_variants(page)),
            bullets(_struck(page)),
            remarks(_remarks(page)),
            bullets(_uses(page), "CPU by process"),
            bullets(_notes(page)),
            bullets([f"host: {page.host}"]),
            records(where),
            *(_curves(page) if curve else ()),
            *_rows(page),
            *_nodes(page),
            formulas((*GENERAL_FORMULAS, *of_scale.formulas_of(page), *of_scale.INVALID)),
        ),
        where,
    )


def _found(result: Result, page: ScalePage) -> Found:
    measured = sum(one.measured for one in page.entries)
    return split(
        result,
        found_of(page),
        page.warnings,
        before=1 if page.invalid else 0,
        most=max(1, min(measured, MOST_HEADLINES)) if page.graph else 1,
    )


# --------------------------------------------------------------------------------- the table


def _metrics(page: ScalePage) -> list[str]:
    """Every metric of every size, by variant; in a column of its own what Ray publishes."""
    if not page.entries:
        return []
    variants = [part.name for part in page.variants]
    sizes = list(dict.fromkeys(_size(one) for one in page.entries))
    by_place = {(_size(one), one.size.variant): one for one in page.entries}
    beside = ["size"] if len(sizes) > 1 else []
    last = ["published"] if page.published else []
    apart = 1 + len(beside) + len(variants) + len(last) > MOST_COLUMNS
    names = ["metric", *beside, *(["variant", "value"] if apart else variants), *last]
    rows: list[Texts] = []
    for size in sizes:
        own = [by_place.get((size, name)) for name in variants]
        said = [size] if beside else []
        for metric in dict.fromkeys(name for one in own if one for name in one.size.figures):
            values = [_value(one.size.figures.get(metric) if one else None) for one in own]
            told = [published_text(page.published.get(metric))] if page.published else []
            if apart:
                shown = list(zip(variants, values, strict=True))
                rows += [(f"`{metric}`", *said, *pair, *told) for pair in shown]
            else:
                rows.append((f"`{metric}`", *said, *values, *told))
        codes = [_codes(page, one) if one else "" for one in own]
        if apart:
            shown = [pair for pair in zip(variants, codes, strict=True) if pair[1]]
            rows += [("doubts", *said, *pair, *(["-"] if last else [])) for pair in shown]
        elif any(codes):
            rows.append(("doubts", *said, *codes, *(["-"] if last else [])))
    return markdown_table(names, rows, range(1 + len(beside) + apart))


def _size(entry: ScaleEntry) -> str:
    cell = {name: value for name, value in entry.size.cell.items() if name != "workload"}
    return cell_title(cell)


def _value(figure: Figure | None) -> str:
    if figure is None or figure.mean is None:
        return "-"
    spread = "" if figure.std is None else f" ± {spread_text(figure)}"
    return figure_text(figure, figure.mean) + spread


def _codes(page: ScalePage, entry: ScaleEntry) -> str:
    """What is missing, invalid, lost, failed and doubted of a size, shortly."""
    part = next(one for one in page.variants if one.name == entry.size.variant)
    bound = any(one.client_bound for one in entry.size.nodes)
    codes = [
        *(["INVALID"] if entry.size.invalid else []),
        *([BROKEN_OFF] if any(map(broken_off, entry.size.trials)) else []),
        *(["node lost"] if entry.size.lost else []),
        *(one.code for one in entry.warnings),
        *(["client-bound"] if bound else []),
        *(one.code for one in part.warnings),
    ]
    return doubts(codes, entry.gap, entry.failures or part.failures)


_SHOWN = 6
"""Quantities of a curve that there is room for: up to the CPU of a request."""


def _curve(page: ScalePage) -> list[str]:
    """A row for each size under each variant."""
    if not page.entries:
        return []
    several = len(page.variants) > 1
    rows: list[Texts] = []
    for part in page.variants:
        names, *own = _named(part)
        for entry, row in zip(part.entries, own, strict=True):
            texts = row if len(row) > 1 else [row[0], *["-"] * _SHOWN]
            variant = [part.name] if several else []
            rows.append([texts[0], *variant, *texts[1 : _SHOWN + 1], _codes(page, entry)])
    heads = [names[0], *(["variant"] if several else []), *names[1 : _SHOWN + 1], "doubts"]
    return markdown_table(heads, rows, (*((1,) if several else ()), len(heads) - 1))


def _named(part: ScaleVariant) -> list[Texts]:
    """The rows of a curve under names in one line: `deploy s`."""
    above, below, *rows = curve_rows(part)
    return [[f"{one} {unit}".strip() for one, unit in zip(above, below, strict=True)], *rows]


# ------------------------------------------------------------------------------ under the fold


def _variants(page: ScalePage) -> Iterator[str]:
    for part in page.variants:
        engaged = f"; {part.engaged}" if part.engaged else ""
        yield f"variant {part.name}: {flags_of(part.name, part.env)}{engaged}"
        yield from part.unloaded


def _struck(page: ScalePage) -> Iterator[str]:
    yield from (f"failed: {one.what}: {one.message}" for one in page.failures)
    yield from (remark(one) for one in page.warnings)
    for part in page.variants:
        yield from (f"failed: {part.name}: {one.what}: {one.message}" for one in part.failures)
        yield from (f"{part.name}: {remark(one)}" for one in part.warnings)


def _remarks(page: ScalePage) -> Iterator[tuple[str, str]]:
    for entry in page.entries:
        yield from ((entry.title, text) for text in (*entry.remarks, *entry.limits))


def _uses(page: ScalePage) -> Iterator[str]:
    for name, use in page.uses:
        yield f"CPU, % of a core{f', {name}' if name else ''}: {use.words}"


def _notes(page: ScalePage) -> Iterator[str]:
    yield from page.notes
    if any(entry.measured for entry in page.entries):
        yield from notes(page.workload, str(page.run.suite.get("client")), page.sampled)
        if len(page.variants) > 1 and page.workload != of_scale.CURVE:
            yield compared_note()


def _curves(page: ScalePage) -> Iterator[Part]:
    for part in page.variants:
        names, *rows = _named(part)
        table = markdown_table(names, without_gaps(len(names), rows), (0,))
        yield folded(f"Every size, {part.name}", table)
        if part.grown:
            head, *grown = growth_rows(part)
            table = markdown_table([*head[:-1], "in words"], grown, (0, 4))
            yield folded(f"How it grows, {part.name}", table)


def _rows(page: ScalePage) -> Iterator[Part]:
    """Of a graph each row; of several variants their rates against each other."""
    for entry in page.entries if page.graph else ():
        yield _table(f"Rows, {entry.title}", rows_rows(entry.size))
    if len(page.variants) > 1 and page.workload != of_scale.CURVE:
        yield _table(f"Compared: requests/s to {page.variants[0].name}", compared_rows(page))


def _table(title: str, found: Sequence[Texts]) -> Part:
    names, *rows = found
    if not rows:
        return Part(())
    return folded(title, markdown_table(names, without_gaps(len(names), rows), (0,)))


def _nodes(page: ScalePage) -> Iterator[Part]:
    for entry in (one for one in page.entries if one.size.nodes):
        rows = without_gaps(len(NODE_COLUMNS), node_rows(entry.size))
        yield folded(f"Nodes, {entry.title}", markdown_table(NODE_COLUMNS, rows, (0, 1)))
