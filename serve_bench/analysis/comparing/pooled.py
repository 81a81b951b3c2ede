"""The newest run of a suite compared with earlier ones, and the spread between runs of a suite.

Pure. Rule: a run counts once, however many launches it had (ratios.against_runs says why); rows of
a run of which too many requests failed are no base."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from serve_bench.analysis.checks import Warning, checks, unfair_sentences
from serve_bench.analysis.comparing import (
    Match,
    Spreads,
    describe_failures,
    describe_run_warnings,
    judge_rows,
)
from serve_bench.analysis.comparing.match import Subject, read_versions, subject_of, unlike
from serve_bench.analysis.comparing.model import About, Alone, Comparing
from serve_bench.analysis.comparing.values import RowPlace, SideRow, group_by_key, rows_of
from serve_bench.analysis.ratios import ASSUMED, RUNS_KNOWN, RunSpread
from serve_bench.analysis.statistics import variants
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import INVALID_SHARE
from serve_bench.core.result import Result, Run, Trial

Place: TypeAlias = tuple[str, RowPlace]
"""A variant, and a row of it."""


@dataclass(frozen=True)
class MeasuredRun:
    """A stored run with its rows."""

    where: str  # its folder
    result: Result
    rows: Mapping[Place, SideRow]
    changed: tuple[str, ...] = ()  # unlike the run before in a history: `ray 2.59.0 -> 2.60.0`

    @property
    def run(self) -> Run:
        return self.result.run

    @cached_property
    def warnings(self) -> tuple[Warning, ...]:
        """The warnings about its figures."""
        return checks(self.result)

    @cached_property
    def subject(self) -> Subject:
        """What it measured."""
        return subject_of(self.result)

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """The versions of what ran, as launches of all variants prove it, and of the tool."""
        versions = read_versions(self.result, *variants(self.result))
        versions["serve-bench"] = self.run.tool_version
        if kernel := self.run.host.kernel:
            versions["kernel"] = kernel
        return versions

    @property
    def places(self) -> set[Place]:
        """The rows of which anything was measured."""
        return {place for place, row in self.rows.items() if row.values}


def read_run(where: str, result: Result) -> MeasuredRun:
    """Read the rows of all variants of a run; FormatError where a record cannot be read."""
    of_variants = ((name, rows_of(result, name)) for name in variants(result))
    rows = {(name, place): row for name, found in of_variants for place, row in found.items()}
    return MeasuredRun(where, result, rows)


def compare_newest(
    earlier: Sequence[MeasuredRun], newest: MeasuredRun, threshold: float, gate: Sequence[str]
) -> Comparing:
    """Compare the newest run with the earlier ones, and list rows of one side alone."""
    seen = enumerate((group_by_key(run.result, run.warnings) for run in earlier), 1)
    known = {f"{number}/{key}": doubts for number, found in seen for key, doubts in found.items()}
    known_newest = group_by_key(newest.result, newest.warnings)
    names = list(dict.fromkeys(variant for variant, _ in newest.rows))
    several = len(names) > 1
    matches, alone, invalid = [], [], []
    for place, row in newest.rows.items():
        measured = {n: run.rows[place] for n, run in enumerate(earlier, 1) if place in run.places}
        base = {n: old for n, old in measured.items() if old.failed_share <= INVALID_SHARE}
        if base:
            names_of = (place[0], place[0]) if several else None
            sides, both_known = (pool_rows(base), row), (known, known_newest)
            of_runs = tuple(base.values())
            matches.append(Match(*sides, both_known, pairs=False, variants=names_of, base=of_runs))
            continue
        variant = place[0] if several else None
        only = Alone("B", variant, row.cell, place[1].row, place[1].client)
        if measured:
            invalid.append(f"{only}: of the runs before too many requests failed")
        else:
            alone.append(only)
    for place, row in earlier[-1].rows.items():
        if row.values and place not in newest.rows:
            variant = place[0] if several else None
            alone.append(Alone("A", variant, row.cell, place[1].row, place[1].client))
    count, assumed = len(earlier), f"the spread between runs is assumed, {100 * ASSUMED.sd:g} %"
    assumed += f", since fewer than {RUNS_KNOWN} runs lie before the newest"
    name = "the run before" if count == 1 else f"the {count} runs before"
    before, run = earlier[-1].result, newest.result
    return Comparing(
        kind="history",
        sides=(
            About(name, ", ".join(names), before.run, before.launches, letter="A"),
            About(run.run.id, ", ".join(names), run.run, run.launches),
        ),
        rows=judge_rows(matches, threshold, gate, {}, fewest=1),
        threshold=threshold,
        gate=tuple(gate),
        alone=tuple(alone),
        failures=tuple(describe_failures(run, names)),
        warnings=(
            *([assumed] if count < RUNS_KNOWN else []),
            *(f"not compared: {text}" for text in invalid),
            *describe_run_warnings(newest.warnings),
        ),
        unfair=tuple(unfair_sentences(run.trials)),
    )


def pool_rows(runs: Mapping[int, SideRow]) -> SideRow:
    """Pool a row of several runs, by number, into one side.

    Launches are numbered through, and the values are those of runs."""
    trials: list[Trial] = []
    planned: list[int] = []
    broken: list[int] = []
    values: dict[str, dict[int, float]] = {}
    for number, row in runs.items():
        first = len(planned)
        numbers = {round_: first + n for n, round_ in enumerate(row.planned, 1)}
        planned += numbers.values()
        broken += (numbers[round_] for round_ in row.broken)
        for trial in row.trials:
            key, round_ = f"{number}/{trial.key}", numbers[trial.round]
            trials.append(replace(trial, key=key, round=round_))
        for name, of_launches in row.values.items():
            values.setdefault(name, {})[number] = statistics.geometric_mean(of_launches.values())
    newest = list(runs.values())[-1]
    return SideRow(newest.cell, newest.row, tuple(planned), tuple(trials), tuple(broken), values)


# How far runs of a suite differ, for two stored runs that are compared.


def measure_spreads(a: Result, b: Result, others: Sequence[Result]) -> Spreads:
    """Estimate how far runs of the suite of A and B differ, by row and metric.

    From other runs that are alike; nothing of what fewer than RUNS_KNOWN of them measured."""
    further = (other for other in others if other.run.id not in (a.run.id, b.run.id))
    alike = [other for other in further if not any(unlike(a, other, ({}, {})))]
    alike.sort(key=lambda other: other.run.started_at)
    logs: dict[tuple[Place, str], list[list[float]]] = {}
    for other in alike:
        try:
            rows = read_run("", other).rows
        except FormatError:  # its own report says why
            continue
        for place, row in rows.items():
            if row.failed_share > INVALID_SHARE:
                continue
            for name, values in row.values.items():
                logs.setdefault((place, name), []).append([*map(math.log, values.values())])
    spreads: dict[Place, dict[str, RunSpread]] = {}
    for (place, name), runs in logs.items():
        if len(runs) >= RUNS_KNOWN:
            launches = statistics.fmean(map(len, runs))
            spread = estimate_spread([*map(statistics.fmean, runs)], launches)
            spreads.setdefault(place, {})[name] = spread
    return spreads


def estimate_spread(logs: Sequence[float], launches: float) -> RunSpread:
    """Estimate the spread of runs from their logarithms in order of time.

    By the mean square successive difference (von Neumann, Kent, Bellinson, Hart, Annals of
    Mathematical Statistics 12, 1941), into which a slow drift hardly enters and a step once. It has
    as many degrees of freedom as its variance has for normal values."""
    n = len(logs)
    squares = [(after - before) ** 2 for before, after in pairwise(logs)]
    df = 2 * (n - 1) ** 2 / (3 * n - 4)
    return RunSpread(math.sqrt(statistics.fmean(squares) / 2), df, launches, n)
