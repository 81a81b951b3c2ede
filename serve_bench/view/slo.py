"""The SLO of a run: each row met, missed or not judged, as every report and program has it.

Rule: built here once for all kinds of run, from the rows as they were planned; profiled rows are
not judged. A run without `slo` in its suite has nothing of this in any form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from serve_bench.analysis.slo import Judgement, RowSlo, SloWord, judge
from serve_bench.analysis.statistics import Line, LowerBound, summarize
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.core.result import Result, Run
from serve_bench.core.slo import Objective, Slo, parse_slo, share_text, time_text
from serve_bench.view.document import (
    Cell,
    Column,
    Finding,
    Number,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
)
from serve_bench.view.rows import NS_PER_MS
from serve_bench.view.texts import cell_title

TONES: Final[dict[SloWord, Tone]] = {"met": "good", "missed": "bad", "not judged": "doubt"}


def slo_of(run: Run) -> Slo | None:
    """The SLO that a run was given. FormatError where a hand has changed it."""
    stored = run.suite.get("slo")
    try:
        return None if stored is None else parse_slo(str(stored), "suite.slo")
    except BadInput as error:
        raise FormatError(str(error)) from None


def judged_rows(result: Result) -> tuple[RowSlo, ...]:
    """The rows of a run that has an SLO, in the order of the plan; else none."""
    slo = slo_of(result.run)
    if slo is None:
        return ()
    lines = summarize(replace(result, profiled=()))
    pairs = zip(_names(lines), lines, strict=True)
    return tuple(RowSlo(name, judge(slo, line.trials)) for name, line in pairs)


def _names(lines: Sequence[Line]) -> Iterator[str]:
    """`8 clients, num_replicas 2, optimized`: what tells a row apart from the others."""
    axes = dict.fromkeys(name for line in lines for name in line.cell)
    varied = [name for name in axes if len({repr(line.cell.get(name)) for line in lines}) > 1]
    several = len({line.variant for line in lines}) > 1
    for line in lines:
        cell = {name: line.cell[name] for name in varied if name in line.cell}
        words = [line.row.label, *([cell_title(cell)] if cell else [])]
        yield ", ".join([*words, *([line.variant] if several else [])])


def with_slo(
    result: Result, findings: Sequence[Finding], sections: Sequence[Section]
) -> tuple[tuple[Finding, ...], tuple[Section, ...]]:
    """Findings and sections of a document, with the SLO behind the first of each."""
    slo, rows = slo_of(result.run), judged_rows(result)
    if slo is None or not rows:
        return tuple(findings), tuple(sections)
    section = Section("slo", "Service level objectives", (_table(slo, rows),), "headline")
    return (
        (*findings[:1], slo_finding(slo, rows), *findings[1:]),
        (*sections[:1], section, *sections[1:]),
    )


def slo_finding(slo: Slo, rows: Sequence[RowSlo]) -> Finding:
    """`slo: p99 <= 50 ms, errors <= 1 % (default): met by 3 of 4 rows; missed by 8 clients: p99
    61.2 ms is above 50 ms (-22.4 %)`."""
    met = sum(one.word == "met" for one in rows)
    words = [] if len(rows) == 1 and not met else [f"met by {met} of {counted(len(rows), 'row')}"]
    if met == len(rows):
        least, several = min(rows, key=lambda one: one.worst.margin or 0.0), len(rows) > 1
        which = f" by all {met} rows" if several else ""
        name = f"{least.name}: " if several else ""
        words = [f"met{which}; least margin: {name}{least.worst.text}"]
    missed, not_judged = reasons(rows, "missed"), reasons(rows, "not judged")
    words += [f"missed by {missed}"] if missed else []
    words += [f"not judged: {not_judged}"] if not_judged else []
    word: SloWord = "missed" if missed else "not judged" if not_judged else "met"
    return Finding(f"{slo.text}: {'; '.join(words)}.", "slo", TONES[word])


def reasons(rows: Sequence[RowSlo], word: SloWord) -> str:
    """The first row of which this is the verdict, with its reason, and how many more there are;
    empty without one."""
    those = [one for one in rows if one.word == word]
    if not those:
        return ""
    more = f" (and {counted(len(those) - 1, 'more row')})" if len(those) > 1 else ""
    return f"{those[0].name}: {those[0].worst.text}{more}"


def _table(slo: Slo, rows: Sequence[RowSlo]) -> Table:
    columns = (
        Column("row", number=False),
        *(Column(one.name, _limit(one)) for one in slo.objectives),
        Column("margin"),
        Column("SLO", number=False),
    )
    notes = (
        "margin: what is left of the limit, the least of all objectives; of goodput, points above "
        "the limit",
    )
    caption = "Service level objectives"
    return Table(caption, columns, tuple(_table_row(one) for one in rows), notes)


def _limit(one: Objective) -> str:
    if one.timed:
        return f"<= {time_text(one.limit)}"
    within = "" if one.within_ns is None else f" in {time_text(one.within_ns)}"
    return f"{'<=' if one.kind == 'errors' else '>='} {share_text(one.limit)}{within}"


def _table_row(row: RowSlo) -> TableRow:
    def value(one: Judgement) -> Cell:
        value = one.value
        if value is not None:
            value = value / NS_PER_MS if one.objective.timed else 100 * value
        return Number(one.value_text, value, "plain" if one.met else TONES[one.word])

    worst = row.worst.margin
    margin = Number(row.worst.margin_text, None if worst is None else 100 * worst)
    doubts = tuple(
        Finding(one.why_not, "not-judged", "doubt") for one in row.judgements if one.met is None
    )
    cells = (row.name, *map(value, row.judgements), margin, Text(row.word, TONES[row.word]))
    return TableRow(cells, doubts)


def slo_json(run: Run, line: Line) -> dict[str, Any]:
    """The key `slo` of a row; empty where the run has no SLO, or the row was profiled."""
    slo = slo_of(run)
    if slo is None or line.status == "profiled":
        return {}
    return {"slo": slo_facts(RowSlo("", judge(slo, line.trials)))}


def slo_facts(row: RowSlo) -> dict[str, Any]:
    """A verdict as JSON has it: limits and values in ns or as a share of 1; what is not known is
    null."""
    objectives = [
        {**asdict(one), "lower_bound": isinstance(one.value, LowerBound)} for one in row.judgements
    ]
    return {"verdict": row.word, "margin": row.worst.margin, "objectives": objectives}
