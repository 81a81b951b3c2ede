"""An index of runs: when, which command, the first finding, and the main figure of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.core.figures import counted, number
from serve_bench.view.about_run import command_line, moment
from serve_bench.view.charts import Chart, Point, split_lines
from serve_bench.view.document import (
    Column,
    Document,
    Finding,
    Later,
    Number,
    Section,
    Table,
    TableRow,
    Text,
    cell_text,
    sentences,
)
from serve_bench.view.lens import RunLook

COLUMNS: Final = (
    Column("begun", "UTC", number=False),
    Column("command", number=False),
    Column("records", number=False),
    Column("requests/s", "most"),
    Column("finding", number=False),
    Column("words of the command", number=False, detail=True),
)


def index_row(look: RunLook, where: str, link: str) -> tuple[str, TableRow]:
    """Return the suite of a run, and its line. Raises FormatError for damaged records.

    `where`: its folder as it is shown; `link`: where a page finds it."""
    run, lead = look.result.run, look.document.lead
    finding = lead[-1] if lead else Finding("nothing was found")
    most = max((rate for row in look.view.rows if (rate := row.value(MAIN))), default=None)
    cells = (
        Text(moment(run.started_at)[:16]),  # no seconds
        *(Text(run.command), Text(where, link=link), Number(number(most), most)),
        *(Text(finding.text, finding.tone), Text(command_line(run))),
    )
    return run.asked.name or run.command, TableRow(cells)


def index_runs(runs: list[tuple[str, TableRow]], place: str, skipped: Sequence[str]) -> Document:
    """Make the index of the runs in a folder, newest first. `skipped`: why others are not in it."""
    note = "requests/s: the most of any row; serve-bench report RECORDS shows a run"
    table = Table("Runs, newest first", COLUMNS, tuple(row for _, row in runs), (note,))
    newest = cell_text(table.rows[0].cells[4]) if runs else "nothing"
    return Document(
        title=f"runs in {place}",
        command="report",
        findings=sentences([f"{counted(len(runs), 'run')} in {place}; the newest: {newest}"]),
        doubts=tuple(Finding(f"passed over: {why}", tone="doubt") for why in skipped),
        sections=(
            Section("runs", "Runs", (table,), "headline"),
            Section("course", "Run by run", (Later(partial(_draw, runs)),)),
        ),
    )


def _draw(runs: Sequence[tuple[str, TableRow]]) -> Iterator[Chart]:
    """Yield charts of the most requests/s of each suite, run by run, over that of its first run."""
    suites: dict[str, list[float]] = {}
    for suite, row in reversed(runs):
        if isinstance(most := row.cells[3], Number) and most.value:
            suites.setdefault(suite, []).append(most.value)
    series = ((suite, rates) for suite, rates in suites.items() if len(rates) > 1)
    points = list[Point]()
    for suite, rates in series:
        points += (Point(place, rate / rates[0], suite) for place, rate in enumerate(rates, 1))
    title = "The most requests/s of each suite, divided by those of its first run"
    return split_lines(Chart(title, "lines", points, "of the first", "run, by time"))
