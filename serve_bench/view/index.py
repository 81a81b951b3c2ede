"""An index of runs: when, which command, what was found, newest first; the main figure of each
suite over its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from serve_bench.analysis.statistics import MAIN, summarize
from serve_bench.core.figures import counted, number
from serve_bench.core.result import Result
from serve_bench.view.about_run import command_line, moment
from serve_bench.view.charts import Chart, Point, split_lines
from serve_bench.view.document import (
    Charts,
    Column,
    Document,
    Facts,
    Finding,
    Number,
    Section,
    Table,
    TableRow,
    Text,
    sentences,
)

MINUTES: Final = 16
"""Characters of a moment without its seconds."""

COLUMNS: Final = (
    Column("begun", "UTC", number=False),
    Column("command", number=False),
    Column("records", number=False),
    Column("requests/s", "most"),
    Column("finding", number=False),
    Column("words of the command", number=False, detail=True),
)
NOTES: Final = (
    "requests/s: the most of any row; serve-bench report RECORDS shows a run, serve-bench history "
    "how rows changed from run to run",
)


@dataclass(frozen=True)
class IndexedRun:
    """A stored run: its folder as it is shown, its first finding, and where a page of the index
    finds it."""

    where: str
    link: str
    result: Result
    finding: Finding

    @property
    def most(self) -> float | None:
        """The highest requests/s of any row; None of runs that have none."""
        lines = summarize(self.result)
        rates = [line.spreads[MAIN].value for line in lines if MAIN in line.spreads]
        return max(rates, default=None)

    @property
    def row(self) -> TableRow:
        """Its line of the index."""
        run, finding, most = self.result.run, self.finding, self.most
        cells = (
            moment(run.started_at)[:MINUTES],
            run.command,
            Text(self.where, link=self.link),
            Number(number(most), most),
            Text(finding.text, finding.tone),
            command_line(run),
        )
        return TableRow(cells)


def index_runs(runs: Sequence[IndexedRun], place: str, skipped: Sequence[str] = ()) -> Document:
    """The index of the runs in a folder. `skipped`: those that cannot be read, and why."""
    newest = sorted(runs, key=lambda run: run.result.run.started_at, reverse=True)
    table = Table("Runs, newest first", COLUMNS, tuple(run.row for run in newest), NOTES)
    latest = newest[0].finding.text if newest else "nothing"
    return Document(
        title=f"runs in {place}",
        command="report",
        run=Facts(()),
        machine=Facts(()),
        findings=sentences([f"{counted(len(runs), 'run')} in {place}; the newest: {latest}"]),
        doubts=sentences([f"passed over: {why}" for why in skipped], "doubt"),
        sections=(Section("runs", "Runs", (table, Charts(partial(_series, newest))), "headline"),),
        where=place,
    )


def _series(newest: Sequence[IndexedRun]) -> Iterator[Chart]:
    """The most requests/s of each suite, run by run, beside that of its first run."""
    suites: dict[str, list[float]] = {}
    for run in reversed(newest):
        about = run.result.run
        if most := run.most:
            suites.setdefault(str(about.suite.get("name") or about.command), []).append(most)
    points = [
        Point(place, rate / rates[0], name)
        for name, rates in suites.items()
        if len(rates) > 1
        for place, rate in enumerate(rates, 1)
    ]
    if points:
        title = "The most requests/s of each suite, divided by those of its first run"
        chart = Chart(title, "lines", points, "of the first", "run, in order of time")
        yield from split_lines(chart)
