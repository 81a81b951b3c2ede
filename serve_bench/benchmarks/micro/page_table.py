"""The tables of a run of rows: figures by variant and cell with what doubts them, and in full.

Rule: the value of a Number is the one that benchmarks/micro/json_form.py prints, in its unit
(latencies in ns); its text is what the other forms show (latencies in ms). Nothing that another
form says is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.statistics import Spread
from serve_bench.benchmarks.micro.page_panels import Names
from serve_bench.benchmarks.parts.page import CellPart, Entry, Page, VariantPart
from serve_bench.benchmarks.parts.pieces import NOTHING, NS_PER_MS, errors, rate, share
from serve_bench.benchmarks.parts.texts import (
    cell_title,
    latency,
    limited_line,
    mean_and_std,
    number,
    ratio,
    remark,
)
from serve_bench.core.document import Block, Cell, Column, Finding, Number, Prose, Table, Text, Tone
from serve_bench.core.document import Row as TableRow
from serve_bench.core.result import Failure

LATENCIES: Final = ("p50", "p90", "p99", "max")

HINT: Final = "hint, "
"""What a note of the page begins with that says what to try."""


# ------------------------------------------------------------------------------- the matrix


def matrix(page: Page, names: Names) -> tuple[Block, ...]:
    """A table for each variant, its cells as groups; what failed or is doubted stands beside, how
    the figures were got below the last."""
    blocks: list[Block] = []
    if not _grouped(names) and (fixed := _fixed(page, names)):
        blocks.append(Prose((f"In every cell: {fixed}.",)))
    notes = tuple(note for note in page.notes if not note.startswith(HINT))
    for part in page.variants:
        blocks += _about(part)
        blocks.append(_variant(part, page, names, notes if part is page.variants[-1] else ()))
    return tuple(blocks)


def _grouped(names: Names) -> bool:
    """Whether cells are headings; where each has one and the same row, they are columns."""
    return not names.cells or len(names.rows) > 1


def _fixed(page: Page, names: Names) -> str:
    """The options that are the same in every cell."""
    cell = page.entries[0].line.cell if page.entries else {}
    same = {axis: value for axis, value in cell.items() if axis not in names.axes}
    return cell_title(same) if same else ""


def _about(part: VariantPart) -> Iterator[Block]:
    """What failed or is doubted of a variant as a whole."""
    failed = tuple(failed_text(one) for one in part.failures)
    if failed:
        yield Prose(failed, "bad", listed=True)
    doubts = tuple(remark(one) for one in part.warnings)
    if doubts:
        yield Prose(doubts, "doubt", listed=True)


def failed_text(failure: Failure) -> str:
    """A failure in one line."""
    return f"failed: {failure.what}: {failure.message}"


def _variant(part: VariantPart, page: Page, names: Names, notes: tuple[str, ...]) -> Table:
    flags = " ".join(part.env) or "no flags"
    rows = [row for cell in part.cells for row in _cell_rows(cell, page, names)]
    return Table(
        f"Variant {part.name}: {flags}",
        tuple(_columns(page, names)),
        tuple(rows),
        (*((part.engaged,) if part.engaged else ()), *notes),
    )


def _columns(page: Page, names: Names) -> Iterator[Column]:
    if not _grouped(names):
        yield from (Column(short, number=False) for short in names.axes.values())
    yield Column("row", number=False)
    yield Column("throughput", "requests/s")
    if any(entry.published for entry in page.entries):
        yield Column("published", "by others")
    if page.launches > 1:
        yield Column("std over launches", "requests/s (launches)")
    if page.base is not None:
        yield Column("ratio", f"to {page.base}")
    yield from (Column(name, "ms") for name in LATENCIES)
    yield Column("errors", "requests")
    if _any_limits(page):
        yield Column("limited by", number=False)


def _any_limits(page: Page) -> bool:
    return any(entry.limited for entry in page.entries)


def _cell_rows(part: CellPart, page: Page, names: Names) -> Iterator[TableRow]:
    """The rows of a cell; what struck the cell as a whole stands with the first."""
    struck = tuple(
        Finding(f"{one.what}: {one.message}", "failed", "bad", about="the whole cell")
        for one in part.failures
    )
    for at, entry in enumerate(part.entries):
        doubts = (*(struck if at == 0 else ()), *entry.findings)
        group = cell_title(part.cell) if _grouped(names) else ""
        yield TableRow(tuple(_cells(entry, page, names)), doubts, group)


def _cells(entry: Entry, page: Page, names: Names) -> Iterator[Cell]:
    """The cells of a row, in the order of the columns."""
    line = entry.line
    if not _grouped(names):
        yield from (str(line.cell.get(axis, "-")) for axis in names.axes)
    quiet: Tone = "quiet" if line.status == "profiled" else "plain"
    yield Text(entry.label, quiet, (_client(entry), *_facts(entry)))
    yield rate_figure(entry)
    if any(other.published for other in page.entries):
        known = entry.published
        yield Number(str(known or "-"), None if known is None else known.mean, "quiet")
    if page.launches > 1:
        yield over_launches(entry.rate)
    if page.base is not None:
        yield Number(ratio(line, page.base), line.ratio, "quiet" if line.ratio is None else "plain")
    yield from (share(line.distributions.get("latency"), name) for name in LATENCIES)
    yield errors_figure(entry)
    if _any_limits(page):
        yield limited_cell(entry)


def _tone(entry: Entry) -> Tone:
    if entry.line.status == "profiled":
        return "quiet"
    if entry.failures or not entry.line.trials:
        return "bad"
    return "doubt" if entry.remarks else "plain"


def _client(entry: Entry) -> str:
    row = entry.line.row
    words = [f"client {row.client}"]
    words += [f"{row.data_size} data"] if row.data_size != "small" else []
    if row.loop == "open":
        words.append(
            "open loop" + (f" at {row.rate_per_s:,g} requests/s" if row.rate_per_s else "")
        )
    return ", ".join(words)


def _facts(entry: Entry) -> Iterator[str]:
    """What is said under a row; its limit has a column, other metrics a table of their own."""
    limits = {limited_line(tuple(entry.verdicts.values()))} if entry.verdicts else set()
    yield from (fact for fact in entry.facts if fact not in limits)
    for name, spread in entry.line.spreads.items():
        if spread is not entry.rate:
            yield f"{name}: {_pair(spread)} {unit_text(spread.unit)}"


# ------------------------------------------------------------------------ figures of a row


def rate_figure(entry: Entry) -> Number:
    """`629.4 ± 5.3`; what is missing instead where nothing was measured."""
    if entry.rate is None:
        return Number(entry.gap or "-", None, _tone(entry))
    return rate(entry.rate, _tone(entry))


def over_launches(spread: Spread | None) -> Number:
    """`14.1 (3)`: the spread of the launches' means, and how many there were."""
    if spread is None or spread.launch_std is None:
        return NOTHING
    return Number(f"{number(spread.launch_std)} ({spread.launches})", spread.launch_std)


def errors_figure(entry: Entry) -> Number:
    """Failed requests of all classes; none are known of a row that was not measured."""
    return errors(entry.line.failed) if entry.line.trials else NOTHING


def limited_cell(entry: Entry) -> Cell:
    """The cause in a few words, its figures and how sure it is below."""
    if entry.limited is None:
        return "-"
    cause = entry.limited.cause
    text = limited_line(tuple(entry.verdicts.values())).removeprefix("limited by: ")
    return Text(cause, "plain", (text.removeprefix(cause).lstrip(",: "),))


def unit_text(unit: str) -> str:
    """As it is shown: nanoseconds as ms."""
    return "ms" if unit == "ns" else unit


def value_text(value: float, unit: str) -> str:
    """A figure of a metric in that unit."""
    return latency(value / NS_PER_MS) if unit == "ns" else number(value)


def _pair(spread: Spread) -> str:
    if spread.unit != "ns":
        return mean_and_std(spread)
    return f"{latency(spread.mean / NS_PER_MS)} ± {latency(spread.std / NS_PER_MS)}"
