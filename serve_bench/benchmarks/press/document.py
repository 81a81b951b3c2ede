"""The page of a press run: settings held against each other, every row, throughput over clients.

Rule: figures are those of press_json, the published columns keep their names and units; what was
published stands beside in columns of its own, and is never called measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from serve_bench.benchmarks.ladder.page_charts import (
    curves_of,
    latency_charts,
    measured,
    throughput_charts,
)
from serve_bench.benchmarks.ladder.page_knees import cpu_chart, knee_curves
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, asked, machine, method
from serve_bench.benchmarks.parts.page import Page, page_of
from serve_bench.benchmarks.parts.pieces import distinct, page_doubts, section
from serve_bench.benchmarks.parts.published import published_notes
from serve_bench.benchmarks.press.compare import comparisons
from serve_bench.benchmarks.press.page_found import found
from serve_bench.benchmarks.press.page_rows import (
    ratios_tables,
    rows_table,
    settings_table,
    use_table,
)
from serve_bench.benchmarks.press.summary import Setting, settings_of
from serve_bench.benchmarks.press.tables import LIMITS
from serve_bench.benchmarks.press.text import asked as asked_lines
from serve_bench.benchmarks.press.text import told
from serve_bench.core.document import (
    Block,
    Document,
    Facts,
    Folded,
    Prose,
    ReportOptions,
    Section,
    sentences,
)
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import Result

FORMULAS: Final = (
    (
        "aveTime",
        "the mean latency of the completed requests",
        "docs/press.md, as published: recommand press test results, 2018-03-02",
    ),
    (
        "totalTime",
        "from the first connect begun to the end of the last request; a row that time ends is cut",
        "docs/press.md, as published: recommand press test results, 2018-03-02",
    ),
    (
        "qps",
        "completed requests / totalTime; published: clients x requests of each / totalTime, which "
        "is the same where none failed and none was cut",
        "docs/press.md, as published: recommand press test results, 2018-03-02",
    ),
    (
        "accounting of a row",
        "clients x requests of each = completed + failed, by class + cut",
        "docs/press.md",
    ),
    (
        "knee",
        f"the fewest clients with qps >= {KNEE:g} x the best",
        "docs/press.md; serve_bench/core/ladder.py",
    ),
    (
        "collapse",
        f"more clients than the best, and qps < {COLLAPSE:g} x the best; a row counts by the "
        "median of its runs",
        "docs/press.md; serve_bench/core/ladder.py",
    ),
    (
        "settings compared",
        "the best qps of one over the best of the other within a launch; a direction is claimed "
        "where all of n launches have it, which chance brings 1 time in 2^(n - 1)",
        "serve_bench/benchmarks/press/compare.py",
    ),
    (
        "CPU",
        "of all processes of the service, % of a core, without the client; the mean over launches",
        "docs/press.md",
    ),
)
"""Beside those that hold for all runs."""

FEW_ROWS: Final = 12
"""Rows of a table that stands open although a chart shows the same."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a press run says, with the published figures in columns of their own, if wanted."""
    where, published = options.where, options.published
    run, page, settings = result.run, page_of(result, where=where), settings_of(result)
    return Document(
        title=f"serve-bench press, run {run.id}",
        command=run.command,
        run=Facts((*asked(run).pairs, *_pairs(asked_lines(result)))),
        machine=machine(run),
        findings=sentences(found(page, settings)),
        doubts=tuple(page_doubts(page)),
        sections=tuple(_sections(result, page, settings, published)),
        where=where,
        argv=run.argv,
    )


def _pairs(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """`service: a, b` as a name and what it stands for."""
    for line in lines:
        name, _, text = line.partition(": ")
        yield name, text


def _sections(
    result: Result, page: Page, settings: Sequence[Setting], published: bool
) -> Iterator[Section]:
    yield from section("results", "Results", _results(page, settings, published))
    names = distinct([one.name for one in settings])
    shown = measured(curves_of(names, [one.ladder for one in settings]))
    if shown:
        rates = throughput_charts("Requests/s over clients", shown)
        yield from section("throughput", "Throughput over clients", rates)
        waits = (*latency_charts("Latency over clients", shown), *knee_curves(shown))
        yield from section("latency", "Latency", waits)
    yield from section("cpu", "CPU and GPU, and what limited each row", _use(names, settings))
    yield method(result, (*GENERAL_FORMULAS, *FORMULAS))


def _results(page: Page, settings: Sequence[Setting], published: bool) -> Iterator[Block]:
    if not settings:
        yield Prose(("Nothing was measured.",), "doubt")
        return
    yield settings_table(page, settings, published)
    compared = comparisons(settings)
    if compared:
        yield Prose(tuple(one.sentence for one in compared), listed=True)
        yield from ratios_tables(compared)
    for one in settings:
        yield rows_table(page, one, published)
        yield Prose(tuple(line.strip() for line in told(one)), listed=True)
    if any(one.visible for one in settings):
        yield Prose((LIMITS,), "quiet")
    if published:
        notes = published_notes("press")
        yield Folded("Published, not measured here", (Prose(notes, "quiet", listed=True),))


def _use(names: Sequence[str], settings: Sequence[Setting]) -> Iterator[Block]:
    for name, setting in zip(names, settings, strict=True):
        rows = [
            (row.line.row.label, row.line.trials, row.limited)
            for row in setting.rows
            if any(trial.usage for trial in row.line.trials)
        ]
        title = "CPU by process" if len(settings) == 1 else f"CPU by process: {name}"
        yield from cpu_chart(title, rows)
    if table := use_table(settings):
        yield Folded(table.caption, (table,)) if len(table.rows) > FEW_ROWS else table
