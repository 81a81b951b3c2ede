"""The SLO of a run: each row met, missed or not judged, as every report and program has it.

Rule: built here once for all kinds of run, from the rows as they were planned; profiled rows are
not judged. A run without `slo` in its suite has nothing of this in any form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.slo import RowSlo, SloWord, judge
from serve_bench.analysis.statistics import LowerBound
from serve_bench.core.figures import counted
from serve_bench.core.result import Result, Run
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.view.document import Column, Finding, Number, Section, Table, TableRow, Text, Tone
from serve_bench.view.rows import NS_PER_MS, ViewRow, make_page

TONES: Final[dict[SloWord, Tone]] = {"met": "good", "missed": "bad", "not judged": "doubt"}
UNMET: Final[tuple[SloWord, ...]] = ("missed", "not judged")


def read_slo(run: Run) -> Slo | None:
    """Return the SLO that a run was given. Raises BadInput where it was edited by hand."""
    stored = run.asked.slo
    return None if stored is None else parse_slo(stored, "suite.slo")


def judge_rows(run: Run, rows: Iterable[ViewRow]) -> tuple[RowSlo, ...]:
    """Judge the rows of a run that has an SLO, in the order of the plan, without profiled ones."""
    if (slo := read_slo(run)) is None:
        return ()
    measured = (row for row in rows if row.dims["status"] != "profiled")
    return tuple(RowSlo(row.name, judge(slo, row.trials)) for row in measured)


def judged_rows(result: Result) -> tuple[RowSlo, ...]:
    """Judge the rows of a run of which nothing else is looked at."""
    return judge_rows(result.run, make_page(result).rows)


def slo_parts(run: Run, shown: Iterable[ViewRow]) -> tuple[Finding, Section] | tuple[()]:
    """Return what a document says of the SLO: behind its first finding and its first section."""
    if (slo := read_slo(run)) is None or not (rows := judge_rows(run, shown)):
        return ()
    goals = (Column(goal.name, goal.text.removeprefix(f"{goal.name} ")) for goal in slo.objectives)
    ends = Column("margin", "of the limit"), Column("SLO", number=False)
    title, columns = "Service level objectives", (Column("row", number=False), *goals, *ends)
    table = Table(title, columns, tuple(map(_table_row, rows)))
    words = f"met by {sum(row.word == 'met' for row in rows)} of {counted(len(rows), 'row')}"
    whys = {word: why for word in UNMET if (why := reasons(rows, word))}
    words = "; ".join((words, *(f"{word}: {why}" for word, why in whys.items())))
    found = Finding(f"{slo.text}: {words}.", "slo", TONES[next(iter(whys), "met")])
    return found, Section("slo", title, (table,), "headline")


def reasons(rows: Sequence[RowSlo], word: SloWord) -> str:
    """Say why this is the verdict on the first such row, and how many more there are; else ""."""
    found = [f"{row.name}: {row.worst.text}" for row in rows if row.word == word]
    more = f" (and {counted(len(found) - 1, 'more row')})" if len(found) > 1 else ""
    return f"{''.join(found[:1])}{more}"


def _table_row(row: RowSlo) -> TableRow:
    """Make the row of a table from judgements: values, margin, verdict, and doubts."""
    cells: list[Number] = []
    for judgement in row.judgements:
        unit = 1 / NS_PER_MS if judgement.objective.timed else 100
        value = None if judgement.value is None else judgement.value * unit
        tone: Tone = "plain" if judgement.met else TONES[judgement.word]
        cells.append(Number(judgement.value_text, value, tone))
    margin = row.worst.margin
    cells.append(Number(row.worst.margin_text, None if margin is None else 100 * margin))
    whys = (judgement.why_not for judgement in row.judgements if judgement.met is None)
    doubts = tuple(Finding(why, "not-judged", "doubt") for why in whys)
    return TableRow((Text(row.name), *cells, Text(row.word, TONES[row.word])), doubts)


def slo_facts(row: RowSlo) -> dict[str, Any]:
    """Return a verdict for JSON: limits and values in ns or as a share of 1; null: not known."""
    objectives = [
        {**asdict(judgement), "lower_bound": isinstance(judgement.value, LowerBound)}
        for judgement in row.judgements
    ]
    return {"verdict": row.word, "margin": row.worst.margin, "objectives": objectives}
