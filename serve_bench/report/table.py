"""The table for a terminal: one for each variant, its cells as headings, doubts under their row.

Rule: it fits the width it is given. When columns must go it says which; what doubts a row, errors
and the client never go. Colour only repeats what words say. `rich` is used here and in cli/ only.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from serve_bench.benchmarks.parts.inside import UsageTable
from serve_bench.benchmarks.parts.page import Entry, Page, VariantPart
from serve_bench.benchmarks.parts.texts import (
    cell_title,
    latency,
    mean_and_std,
    number,
    ratio,
    remark,
)
from serve_bench.core.errors import visible
from serve_bench.core.result import Failure
from serve_bench.report.columns import Fitted, fitted
from serve_bench.report.widths import padded, width_of, wrapped

#: Columns that may go when there is no room, the first first.
DROP: Final = ("p90", "max", "std over launches", "p50", "published")

INDENT: Final = 2
"""Of rows below the heading of their cell."""

_HEADING, _DOUBT, _FAILED, _FAINT = "bold", "yellow", "red", "dim"


def table(page: Page, *, width: int = 80, color: bool = False) -> str:
    """The whole run as text; no line is wider than `width`, but for the place of the records."""
    rows = _rows(page, width - INDENT)
    lines: list[Text] = [*_wrapped(page.title, width, style=_HEADING), Text()]
    first = 0
    for part in page.variants:
        own = rows.blocks[1 + first : 1 + first + len(part.entries)]
        lines += [*_variant(part, rows.blocks[0], iter(own), width), Text()]
        first += len(part.entries)
    lines += _failures(page.failures, width)
    for warning in page.warnings:
        lines += _wrapped(f"! {remark(warning)}", width, hang=2, style=_DOUBT)
    lines += (Text(line, style=_FAINT) for line in rows.said(width))
    for note in (*page.notes, f"host: {page.host}"):
        lines += _wrapped(note, width, hang=2, style=_FAINT)
    if page.where is not None:
        lines.append(Text(f"records: {page.where}"))
    return _drawn(lines, width, color)


def _rows(page: Page, width: int) -> Fitted:
    """The names of the columns and the rows of all variants, all of one layout."""
    entries = page.entries
    every: list[tuple[str, list[str]]] = [
        ("row", [_label(entry) for entry in entries]),
        ("requests/s", [_rate(entry) for entry in entries]),
    ]
    if page.launches > 1:
        every.append(("std over launches", [_over_launches(entry) for entry in entries]))
    for name in ("p50", "p90", "p99", "max"):
        every.append((name, [latency(entry.latency_ms(name)) for entry in entries]))
    every.append(
        ("errors", [str(entry.line.errors) if entry.line.trials else "-" for entry in entries])
    )
    every.append(("client", [entry.line.row.client for entry in entries]))
    if page.base is not None:
        every.append(("ratio", [ratio(entry.line, page.base) for entry in entries]))
    if any(entry.published for entry in entries):
        every.append(("published", [str(entry.published or "-") for entry in entries]))
    names = [name for name, _ in every]
    left = (0, names.index("client"))
    rows = list(zip(*(texts for _, texts in every), strict=True))
    return fitted(names, rows, left, width, DROP, fold=(0,))


def _label(entry: Entry) -> str:
    """The name of the row; a profiled one stands right below the row it repeats."""
    return "  profiled" if entry.line.status == "profiled" else entry.line.row.label


def _rate(entry: Entry) -> str:
    return entry.gap or "-" if entry.rate is None else mean_and_std(entry.rate)


def _over_launches(entry: Entry) -> str:
    rate = entry.rate
    if rate is None or rate.launch_std is None:
        return "-"
    return f"{number(rate.launch_std)} ({rate.launches})"


def _variant(
    part: VariantPart, names: list[str], rows: Iterator[list[str]], width: int
) -> Iterator[Text]:
    """The table of a variant, `rows` the lines of each of its entries."""
    flags = " ".join(part.env) or "no flags"
    yield from _wrapped(f"variant {part.name}: {flags}", width, hang=2, style=_HEADING)
    if part.engaged:
        yield from _wrapped(part.engaged, width, indent=2, style=_FAINT)
    yield from _failures(part.failures, width)
    for warning in part.warnings:
        yield from _wrapped(f"! {remark(warning)}", width, hang=2, style=_DOUBT)
    yield from _indented(names, _FAINT)
    for cell in part.cells:
        yield from _wrapped(cell_title(cell.cell), width, hang=2)
        yield from _failures(cell.failures, width, indent=2)
        for entry in cell.entries:
            yield from _indented(next(rows), _FAILED if entry.rate is None else "")
            for text in _remarks(entry):
                yield from _wrapped(f"! {text}", width, indent=4, hang=2, style=_DOUBT)
            for text in entry.facts:
                yield from _wrapped(text, width, indent=4, hang=2, style=_FAINT)
        if cell.usage is not None:
            yield from _usage(cell.usage, width)


def _usage(usage: UsageTable, width: int) -> Iterator[Text]:
    """CPU by process, right-aligned under the names of the rows; memory last."""
    names = ("CPU by process, % of a core", *usage.columns, "MB")
    texts = [names, *usage.lines]
    widths = [max(width_of(line[at]) for line in texts) for at in range(len(names))]
    if INDENT + sum(widths) + 2 * (len(names) - 1) > width:  # too many rows of load: one by one
        for at, column in enumerate(usage.columns, 1):
            told = ", ".join(f"{line[0]} {line[at]}" for line in usage.lines)
            yield from _wrapped(f"CPU, % of a core, {column}: {told}", width, 4, 2, _FAINT)
        return
    for line in texts:
        cells = [padded(line[0], widths[0], left=True)]
        cells += [padded(text, wide) for text, wide in zip(line[1:], widths[1:], strict=True)]
        yield Text(f"  {'  '.join(cells)}".rstrip(), style=_FAINT)


def _remarks(entry: Entry) -> Iterator[str]:
    """What is to be said under a row: doubts, failures, and metrics that have no column."""
    yield from entry.remarks
    for name, figures in entry.line.spreads.items():
        if figures is not entry.rate:
            yield f"{name}: {mean_and_std(figures)} {figures.unit}"


def _indented(lines: Iterable[str], style: str) -> Iterator[Text]:
    return (Text(f"{' ' * INDENT}{line}", style=style) for line in lines)


def _failures(failures: Iterable[Failure], width: int, indent: int = 0) -> Iterator[Text]:
    for failure in failures:
        said = f"failed: {failure.what}: {failure.message}"
        yield from _wrapped(said, width, indent, hang=2, style=_FAILED)
        for line in failure.detail:
            yield from _wrapped(line, width, indent + 2, hang=2, style=_FAINT)


def _wrapped(
    text: str, width: int, indent: int = 0, hang: int = 0, style: str = ""
) -> Iterator[Text]:
    """Lines of running text; those after the first are indented by `hang` more."""
    return (Text(line, style=style) for line in wrapped(text, width, indent, hang))


def _drawn(lines: Iterable[Text], width: int, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
    )
    for line in lines:
        line.plain = visible(line.plain)
        console.print(line, soft_wrap=True, highlight=False)
    return out.getvalue()
