"""The report of a scale run as text: what was asked, each variant with its sizes, doubts, nodes.

Rule: an invalid result says so before any figure; doubts, failures and what was not measured stand
right below the figures that they are about. Tables are in tables.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.parts.texts import cell_title, remark
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, ScaleVariant, scale_page
from serve_bench.benchmarks.scale.tables import (
    compared_rows,
    curve_rows,
    graph_rows,
    growth_rows,
    metrics_rows,
    node_lines,
    rows_rows,
)
from serve_bench.benchmarks.scale.words import asked, compared_note, flags_of, notes, replicas_words
from serve_bench.core.result import Result
from serve_bench.report.columns import Texts, fitted, wrapped


def scale_text(
    result: Result, published: bool = False, where: str | None = None, width: int = 80
) -> str:
    """The run as text that ends with a newline. `published` sets Ray's figures beside."""
    page = scale_page(result, published, where)
    out = wrapped(page.title, width, hang=0)
    for line in (*page.invalid, *asked(page.run.suite, page.workload)):
        out += wrapped(line, width)
    for part in page.variants:
        out += ["", *_variant(page, part, width)]
    if not page.variants:
        out += ["", "nothing was planned"]
    if len(page.variants) > 1 and any(entry.measured for entry in page.entries):
        first = page.variants[0].name
        out += ["", *wrapped(f"COMPARED: ratio of requests/s to {first}", width)]
        out += _table(compared_rows(page), width, ("p50 ms", "p99 ms"))
    out.append("")
    for line in _closing(page):
        out += wrapped(line, width)
    if where is not None:
        out.append(f"records: {where}")
    return "\n".join(out) + "\n"


def _variant(page: ScalePage, part: ScaleVariant, width: int) -> Iterator[str]:
    flags = flags_of(part.name, part.env)
    engaged = f"; {part.engaged}" if part.engaged else ""
    yield from wrapped(f"VARIANT {part.name}: {flags}{engaged}", width)
    for warning in part.warnings:
        yield from wrapped(f"! {remark(warning)}", width)
    for one in part.failures:
        yield from wrapped(f"failed: {one.what}: {one.message}", width)
    for line in part.unloaded:
        yield from wrapped(line, width)
    if page.workload == "curve":
        yield from _curve(part, width)
        return
    for entry in part.entries:
        yield ""
        yield from _size(page, entry, width)


def _heading(page: ScalePage, entry: ScaleEntry) -> str:
    cell = {name: value for name, value in entry.size.cell.items() if name != "workload"}
    count = len(entry.size.launches)
    launches = f"; {count} launches" if count > 1 else ""
    broken = " (INVALID)" if entry.size.invalid else ""
    return f"{page.workload.upper()}{broken} {cell_title(cell)}{launches}"


def _size(page: ScalePage, entry: ScaleEntry, width: int) -> Iterator[str]:
    """The metrics of a size, its rows or nodes, and what doubts them."""
    yield from wrapped(_heading(page, entry), width)
    if entry.measured:
        rows = graph_rows(page, entry.size) if page.graph else metrics_rows(page, entry.size)
        yield from _table(rows, width, ("published", "±"))
        if page.graph:
            rows = rows_rows(entry.size)
            yield from ("", *_table(rows, width, ("p90 ms", "requests")))
        if entry.size.nodes:
            yield from ("", *node_lines(entry, width))
    yield from _doubts(entry, width)


def _doubts(entry: ScaleEntry, width: int, title: str = "") -> Iterator[str]:
    for text in entry.remarks:
        yield from wrapped(f"! {title}{text}", width)
    for text in entry.limits:
        yield from wrapped(f"{title}{text}", width)


def _curve(part: ScaleVariant, width: int) -> Iterator[str]:
    if any(entry.measured for entry in part.entries):
        rows = curve_rows(part)
        yield from ("", *_table(rows, width, ("teardown", "loop", "p50")))
    if part.grown:
        rows = growth_rows(part)
        yield from ("", *_table(rows, width, left=(0, 4)))
    said = [
        line
        for entry in part.entries
        for line in _doubts(entry, width, f"{replicas_words(entry.size.replicas)}: ")
    ]
    if said:
        yield from ("", *said)


def _table(
    rows: Sequence[Texts], width: int, spare: Sequence[str] = (), left: Sequence[int] = (0,)
) -> Iterator[str]:
    """Rows whose first has the names; and what was left out where `width` is not enough."""
    table = fitted(rows[0], rows[1:], left, width, spare)
    yield from (*table.lines, *table.said(width))


def _closing(page: ScalePage) -> Iterator[str]:
    """What is about the whole run: failures, doubts, CPU, how to read it, host."""
    for one in page.failures:
        where = "" if one.variant is None else f" of {one.variant}"
        yield f"failed: {one.what}{where}: {one.message}"
    for warning in page.warnings:
        yield f"! {remark(warning)}"
    for name, use in page.uses:
        yield f"CPU, % of a core{f', {name}' if name else ''}: {use.words}"
    yield from page.notes
    if any(entry.measured for entry in page.entries):
        yield from notes(page.workload, str(page.run.suite.get("client")), page.sampled)
        if len(page.variants) > 1:
            yield compared_note()
    yield f"host: {page.host}"
