"""An index of runs: when, which command, what was found, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.statistics import MAIN, summarize
from serve_bench.core.figures import counted, number
from serve_bench.core.result import Result
from serve_bench.view.about_run import command_line, moment
from serve_bench.view.document import (
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
    def row(self) -> TableRow:
        """Its line of the index."""
        run, finding, lines = self.result.run, self.finding, summarize(self.result)
        rates = [line.spreads[MAIN].mean for line in lines if MAIN in line.spreads]
        most = max(rates, default=None)
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
        sections=(Section("runs", "Runs", (table,), "headline"),),
        where=place,
    )
