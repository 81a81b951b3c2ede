"""A run of rows in full, folded: every metric, requests, CPU, verdicts, last lines of failures.

Rule: as in page_table.py, a Figure's value is the number that benchmarks/micro/json_form.py prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from serve_bench.analysis.statistics import Distribution, Spread
from serve_bench.benchmarks.micro.page_panels import Names
from serve_bench.benchmarks.micro.page_table import (
    HINT,
    LATENCIES,
    errors_figure,
    failed_text,
    unit_text,
    value_text,
)
from serve_bench.benchmarks.parts.page import CellPart, Entry, Page
from serve_bench.benchmarks.parts.pieces import count
from serve_bench.benchmarks.parts.texts import cell_title
from serve_bench.core.document import Block, Cell, Code, Column, Folded, Number, Prose, Table, Text
from serve_bench.core.document import Row as TableRow
from serve_bench.core.result import Failure


def details(page: Page, names: Names) -> tuple[Block, ...]:
    """Folded: every metric of every row, its requests, and what failed with its last lines."""
    measured = [entry for entry in page.entries if entry.line.trials]
    blocks: list[Block] = []
    if measured:
        every = (metrics_table(measured, names), requests_table(measured, names))
        blocks.append(Folded("Every metric, and the requests of each row", every))
    inside = [
        Code(f"{names.whole(entry)}, launch {trial.launch}\n{_plain(trial.serve_metrics)}")
        for entry in measured
        for trial in entry.line.trials
        if trial.serve_metrics and trial.serve_metrics.get("status") != "absent"
    ]
    if inside:
        blocks.append(Folded("Serve's own metrics around each trial", tuple(inside)))
    return (*blocks, *failures(page))


def _plain(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False)


_METRICS: Final = (
    Column("metric", number=False),
    Column("mean"),
    Column("std"),
    *(Column(name) for name in LATENCIES),
    Column("over", number=False),
)


def metrics_table(entries: Sequence[Entry], names: Names) -> Table:
    """Each metric of each row: by windows with the std over them, or as a histogram."""
    rows = []
    for entry in entries:
        name = _named(entry, names)
        for metric, spread in entry.line.spreads.items():
            rows.append(
                TableRow((_metric(metric, spread.unit), *_spread_cells(spread)), group=name)
            )
        for metric, found in entry.line.distributions.items():
            rows.append(
                TableRow((_metric(metric, found.unit), *_histogram_cells(found)), group=name)
            )
    return Table("Every metric", _METRICS, tuple(rows), ("Times are shown in ms.",))


def _metric(name: str, unit: str) -> Text:
    return Text(name.replace("_", " "), "plain", (unit_text(unit),))


def _spread_cells(spread: Spread) -> Iterator[Cell]:
    yield from (Number(value_text(v, spread.unit), v) for v in (spread.mean, spread.std))
    yield from ["-"] * len(LATENCIES)
    launches = f" in {spread.launches} launches" if spread.launches > 1 else ""
    yield f"{spread.windows:,} window{'s' if spread.windows != 1 else ''}{launches}"


def _histogram_cells(found: Distribution) -> Iterator[Cell]:
    for name in ("mean", "std", *LATENCIES):
        value = getattr(found, name)
        yield Number(value_text(value, found.unit), value)
    yield f"{found.count:,} values"


def requests_table(entries: Sequence[Entry], names: Names) -> Table:
    """What came of the requests of each row; warm-up is counted only by the replicas."""
    rows = []
    for entry in entries:
        line = entry.line
        served = "; ".join(
            ", ".join(f"{name}: {count:,}" for name, count in trial.served.items())
            for trial in line.trials
            if trial.served
        )
        classes = ", ".join(f"{name} {count:,}" for name, count in line.failed.items())
        cells = (count(line.completed), errors_figure(entry), classes or "none", served or "-")
        rows.append(TableRow((_named(entry, names), *cells)))
    columns = (
        Column("row", number=False),
        Column("completed", "requests"),
        Column("failed", "requests"),
        Column("by class", number=False),
        Column("taken by replicas, warm-up included", number=False),
    )
    return Table("Requests", columns, tuple(rows))


def _named(entry: Entry, names: Names) -> str:
    mark = " (profiled)" if entry.line.status == "profiled" else ""
    return names.whole(entry) + mark


def failures(page: Page) -> tuple[Block, ...]:
    """The failures whose last lines are known, folded; the messages alone stand where they
    struck."""
    every = [one for one in all_failures(page) if one.detail]
    if not every:
        return ()
    blocks: list[Block] = []
    for one in every:
        blocks += [Prose((failed_text(one),), "bad"), Code("\n".join(one.detail))]
    return (Folded("What failed, with the last lines of its log", tuple(blocks)),)


def all_failures(page: Page) -> Iterable[Failure]:
    """Those of the run, then of each variant with its cells and rows."""
    yield from page.failures
    for part in page.variants:
        yield from part.failures
        for cell in part.cells:
            yield from cell.failures
            for entry in cell.entries:
                yield from entry.failures


# --------------------------------------------------------------------------------- CPU


def cpu_tables(page: Page) -> tuple[Block, ...]:
    """CPU by process and memory of each cell, folded; the figures of the chart and the host's."""
    tables = [
        _cpu(cell, f"Variant {part.name}: {cell_title(cell.cell)}")
        for part in page.variants
        for cell in part.cells
        if cell.usage is not None
    ]
    return (Folded("CPU and memory by process, in figures", tuple(tables)),) if tables else ()


def _cpu(part: CellPart, caption: str) -> Table:
    assert part.usage is not None
    columns = (
        Column("process", number=False),
        *(Column(name, "% of a core (the busiest)") for name in part.usage.columns),
        Column("memory", "MB"),
    )
    return Table(caption, columns, tuple(TableRow(tuple(line)) for line in part.usage.lines))


def evidence(page: Page, names: Names) -> tuple[Block, ...]:
    """What each verdict rests on, by launch, folded; and what to try, by cause."""
    rows = [
        TableRow(
            (
                names.whole(entry),
                launch,
                Text(one.cause, "plain", (one.text,)),
                "; ".join(one.reasons) or "-",
                "; ".join(one.unseen) or "-",
            )
        )
        for entry in page.entries
        for launch, one in entry.verdicts.items()
    ]
    hints = [note.removeprefix(HINT) for note in page.notes if note.startswith(HINT)]
    blocks: list[Block] = []
    if hints:
        blocks += [Prose(("What to try, by cause:",)), Prose(tuple(hints), listed=True)]
    if rows:
        names_of = ("row", "launch", "limited by", "reasons", "not seen")
        columns = tuple(Column(name, number=False) for name in names_of)
        table = Table("What limited each row", columns, tuple(rows))
        blocks.append(Folded("What each verdict rests on", (table,)))
    return tuple(blocks)
