"""Lenses: how a kind of run is looked at. Documents and JSON of all kinds are made here, once.

A kind has one Lens (found by `benchmarks/registry.py`): the figures that only its rows have, and a
function that builds a View. `Lens.look` gives a RunLook, which makes document and JSON of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

from serve_bench.analysis.checks import unfair_sentences
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import Failure, PlannedTrial, Result, Trial
from serve_bench.core.traffic import Row
from serve_bench.view import about_run, waterfall
from serve_bench.view.about_run import EXECUTION
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import (
    Block,
    Document,
    Finding,
    Later,
    Prose,
    ReportOptions,
    Section,
    Table,
    sentences,
    statement,
)
from serve_bench.view.frame import ViewRow, make_tiles, row_json, trial_json
from serve_bench.view.rows import Page, RowRules, make_page, warning_finding
from serve_bench.view.slo import judge_rows, slo_facts, slo_parts

FORMAT: Final = 2  # of the JSON and of records


@dataclass(frozen=True)
class View:
    """What a kind of run makes of its rows."""

    rows: Sequence[ViewRow]  # the loads
    points: Sequence[ViewRow] = ()  # derived from the loads
    comparisons: Sequence[ViewRow] = ()  # of two points each
    alarms: Sequence[str] = ()  # why no figure is to be trusted
    findings: Sequence[str] = ()  # sentences, the headline first
    sections: Sequence[Section] = ()  # of tables
    charts: Sequence[Section] = ()  # of charts
    traced: Sequence[ViewRow] = ()  # the rows whose hops are shown
    facts: Sequence[tuple[str, str]] = ()  # of the request, beside what every run says
    definitions: Sequence[str] = ()  # what columns mean
    notes: Sequence[str] | None = None  # in place of those of the page
    title: str = ""  # without the id of the run
    lead: ViewRow | None = None  # the row whose figures are seen first
    tiles: Callable[[], Table] | None = None  # in place of `lead`
    # (missing, planned, what), where rows do not show it; nothing is said of 0 planned.
    planned: tuple[int, int, str] | None = None
    faults: Sequence[str] = ()  # why its gate is broken


@dataclass(frozen=True)
class Lens(RowRules):
    """How a kind of run is looked at."""

    build: Callable[[Page], View]
    classic: Callable[[Page, View], str] | None = None  # its published form
    # The run with the rows that are shown, where its trials are no rows.
    condense: Callable[[Result], Result] = lambda result: result
    # The run with the rows that `compare` and `history` read.
    compared: Callable[[Result], Result] = lambda result: result

    def look(self, result: Result, options: ReportOptions) -> RunLook:
        """Look at a run through this lens. Raises BadInput, FormatError for damaged records."""
        shown, rules = self.condense(result), replace(self, figures=(*EXECUTION, *self.figures))
        page = replace(make_page(shown, rules), result=result, options=options)
        slo = slo_parts(result.run, page.rows) if result.run.asked.slo else ()
        return RunLook(shown, self, page, self.build(page), slo)


@dataclass(frozen=True)
class RunLook:
    """A run seen through its lens. It is made once, and all forms are made of it."""

    result: Result  # with the rows that are shown; that of `page` is as recorded
    lens: Lens
    page: Page
    view: View
    slo: tuple[Finding, Section] | tuple[()]  # what is said of the SLO, if the run has one

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is missing or failed, then the headline, the SLO, and all other findings."""
        states = [row.dims["status"] for row in self.view.rows if row.dims["status"] != "profiled"]
        left = len(states) - states.count("measured")
        missing, planned, nouns = self.view.planned or (left, len(states), "rows")
        words, of_all = [], f"of {planned} {nouns}"
        if missing:
            which = f"{missing} {of_all}" if planned > 1 else "The run"
            words.append(f"{which} {'was' if missing == 1 else 'were'} incomplete")
        if failed := [failure.message for failure in self.page.all_failures]:
            message, more = failed[0], len(set(failed)) - 1
            lead = "the run was" if message.startswith("interrupted") else "something failed:"
            if planned > 1 and message.startswith("no request succeeded"):
                # Of some rows it may be true beside a rate of others.
                lead += f" in {failed.count(message)} {of_all}"
            words.append(f"{lead} {message}" + (f" (and {more} more)" if more else ""))
        gaps = words if planned or not self.view.planned else []
        bad = [*unfair_sentences(self.result.trials), *self.view.alarms]
        bad += [statement("; ".join(gaps))] if gaps else []
        found = sentences(self.view.findings)
        return (*sentences(bad, "bad"), *found[:1], *self.slo[:1], *found[1:])

    @cached_property
    def document(self) -> Document:
        """The run for people: its doubts concern no single row; details are made when shown."""
        run, view, page, where = self.result.run, self.view, self.page, self.page.options.where
        doubts = []
        for failure in page.failures:
            what = failure.what + ("" if failure.variant is None else f" of {failure.variant}")
            doubts.append(Finding(f"{what}: {failure.message}", "failed", "bad"))
        doubts += dict.fromkeys(map(warning_finding, page.warnings))
        none = (Prose(("Nothing was measured.",), "doubt"),)
        nothing = Section("results", "Results", none, "headline")
        first, *others = [part for part in view.sections if part.blocks] or [nothing]
        if page.all_failures:
            failed = tuple(about_run.failure_blocks(page))
            others.append(Section("failures", "Failures", failed, "table"))
        traced = waterfall.read_rows(view.traced)
        inside, profiles, method = (
            (Later(partial(make, page, view.rows)),)
            for make in (about_run.inside_blocks, about_run.flamegraphs, about_run.method)
        )
        sections = (
            *(first, *self.slo[1:], *others),
            Section("how", "Notes", (Later(self._make_notes),)),
            *view.charts,
            Section("cpu", "CPU by process, and limits", inside),
            *([waterfall.make_section(traced)] if traced else []),
            Section("profiles", "Flamegraphs", profiles),
            Section("method", "Method", method),
        )
        return Document(
            title=f"{view.title or f'serve-bench {run.command}'}, run {run.id}",
            command=run.command,
            findings=self.findings,
            doubts=tuple(doubts),
            sections=sections,
            records=() if where is None else (where,),
            about=partial(about_run.describe, run, view.facts),
            tiles=view.tiles or partial(make_tiles, [view.lead] if view.lead else ()),
        )

    def _make_notes(self) -> Iterator[Block]:
        notes = self.page.notes if self.view.notes is None else self.view.notes
        yield Prose((*self.view.definitions, *notes), "quiet", listed=True)

    def json_text(self) -> str:
        """Render the run for programs: figures unrounded, with their units."""
        view, page, result = self.view, self.page, self.result
        launches = [pick(launch, "id", "variant", "round", "proof") for launch in result.launches]
        deploys = [pick(deploy, "launch", "cell", "settled", "proof") for deploy in result.deploys]
        return json_of(
            {
                "format": FORMAT,
                "run": run_json(result.run, page.options.where),
                "host": result.run.host,
                "launches": launches,
                "deploys": deploys,
                "findings": self.findings,
                "rows": [*map(self._row_json, view.rows)],
                "points": [*map(row_json, view.points)],
                "comparisons": [*map(row_json, view.comparisons)],
                **pick(page, "variants", "warnings", "failures", "notes"),
            }
        )

    def _row_json(self, row: ViewRow) -> dict[str, Any]:
        data = row_json(row)
        if row.line.keys:
            if self.slo and (slo := judge_rows(self.result.run, [row])):
                data["slo"] = slo_facts(slo[0])
            data |= pick(row.line, "row", "keys") | pick(row, "failures")
            data["trials"] = {trial.launch: trial_json(trial) for trial in row.trials}
        return data

    def classic_text(self) -> str:
        """Render the run in its published form."""
        assert self.lens.classic is not None
        return self.lens.classic(self.page, self.view)


def plan_row(part: PlannedTrial | Trial, row: Row) -> PlannedTrial:
    """Return a planned trial of `row` in the place of this one, for runs that are condensed."""
    return plan_trial(part.variant, part.round, part.cell, row)


def replace_rows(
    result: Result,
    plan: Iterable[PlannedTrial],
    trials: Iterable[Trial],
    failures: Iterable[Failure] = (),
    without: str = "",
) -> Result:
    """Return the run with these rows, each planned once.

    `without`: the suite's key for how they were measured, which is no setting of them."""
    suite = {name: value for name, value in result.run.suite.items() if name != without}
    rows = {row.key: row for row in plan}
    return replace(
        result,
        run=replace(result.run, suite=suite, plan=tuple(rows.values())),
        resumes=tuple(replace(resume, plan=()) for resume in result.resumes),
        trials=tuple(trials),
        failures=(*result.failures, *failures),
    )
