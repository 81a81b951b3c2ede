"""The words of a history: a run in it, a series of runs, a group of runs that are alike.

Pure; plain, frozen content. Rule: what has no value has its place too: a run in which a row was not
measured, a figure that is invalid, a run that was passed over. Groups are made in the package
itself, levels in levels.py; the reports draw it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.comparing.match import Difference, unlike, unlike_hosts, unlike_rows
from serve_bench.analysis.comparing.values import Doubt, Measure, RowPlace, SideRow, rows_of
from serve_bench.analysis.history.levels import Drift, LevelMark, Levels
from serve_bench.analysis.ratios import THRESHOLD, Interval
from serve_bench.analysis.statistics import variants
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.result import JsonObject, Result, Run

# --------------------------------------------------------------------------------------------------
# Which stored runs are alike, and may stand in one series; why the others do not.
#
# Pure. Rule: what makes runs unlike is analysis/comparing/match.py's affair; a run is held against
# the first of a group. Ray's version and the tool's are no difference here: that they change is
# told.

Rows: TypeAlias = Mapping[str, Mapping[RowPlace, SideRow]]
"""Of a run, by variant."""


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its rows."""

    where: str
    result: Result
    rows: Rows

    @property
    def places(self) -> frozenset[tuple[str, RowPlace]]:
        """What of it was measured."""
        return frozenset(
            (variant, place)
            for variant, rows in self.rows.items()
            for place, row in rows.items()
            if row.values
        )


def measured_of(stored: Sequence[Stored], left: list[PassedOver]) -> Iterator[MeasuredRun]:
    """Runs that measured anything, each once: of copies the one with the most trials."""
    longest: dict[str, list[Stored]] = {}
    for one in stored:
        same = longest.setdefault(one.result.run.id, [])
        at = next((at for at, other in enumerate(same) if other.result.run == one.result.run), None)
        if at is None:
            same.append(one)
        elif len(one.result.trials) > len(same[at].result.trials):
            same[at] = one
    for one in stored:
        run = one.result.run
        kept = next(other for other in longest[run.id] if other.result.run == run)
        if kept is not one:
            left.append(PassedOver(one.where, _why_copy(one, kept)))
            continue
        try:
            rows = {name: rows_of(one.result, name) for name in variants(one.result)}
        except FormatError as error:
            left.append(PassedOver(one.where, str(error), run.started_at))
            continue
        measured = MeasuredRun(one.where, one.result, rows)
        if measured.places:
            yield measured
        else:
            left.append(PassedOver(one.where, _why_empty(one.result), run.started_at))


def _why_copy(one: Stored, kept: Stored) -> str:
    """Why a copy of a run is not the one that counts."""
    more = len(kept.result.trials) - len(one.result.trials)
    cut = f", which has {more} trial{'' if more == 1 else 's'} more" if more else ""
    return f"the same run as {kept.where}{cut}"


def _why_empty(result: Result) -> str:
    """Why a run has no figure."""
    reason = f": {result.failures[0].message}" if result.failures else ""
    if any(one.counts.completed for one in result.trials):
        return f"every row of it broke{reason}"
    failed = sum(trial.counts.failed_total for trial in result.trials)
    if failed:
        return f"no request succeeded: all {failed:,} failed"
    return f"empty: no row was measured{reason}"


def chosen_of(
    measured: Sequence[MeasuredRun], left: list[PassedOver], chosen: Chosen
) -> Iterator[MeasuredRun]:
    """Runs with the rows that were chosen alone. BadInput where no run has any."""

    def wanted(variant: str, place: RowPlace) -> bool:
        return all(
            wanted is None or wanted == own
            for wanted, own in zip(
                (chosen.variant, chosen.cell, chosen.row),
                (variant, place.cell, place.row),
                strict=True,
            )
        )

    any_has = False
    for one in measured:
        rows = {
            name: {place: row for place, row in rows.items() if wanted(name, place)}
            for name, rows in one.rows.items()
        }
        own = replace(one, rows={name: some for name, some in rows.items() if some})
        if own.places:
            any_has = True
            yield own
        else:
            why = f"nothing of {_asked(chosen)} was measured"
            left.append(PassedOver(one.where, why, one.result.run.started_at))
    if measured and not any_has:
        raise BadInput(_nothing_of(measured, chosen))


def _asked(chosen: Chosen) -> str:
    """`--cell bs1-ongoing1-rep1 --row '8 clients'`."""
    flags = (("variant", chosen.variant), ("cell", chosen.cell), ("row", chosen.row))
    return " ".join(f"--{name} {value!r}" for name, value in flags if value is not None)


def _nothing_of(measured: Sequence[MeasuredRun], chosen: Chosen) -> str:
    places = [at for one in measured for at in sorted(one.places, key=str)]
    have = (
        ("variant", chosen.variant, [variant for variant, _ in places]),
        ("cell", chosen.cell, [place.cell for _, place in places]),
        ("row", chosen.row, [place.row for _, place in places]),
    )
    for name, value, known in have:
        if value is not None and value not in known:
            allowed = ", ".join(dict.fromkeys(known))
            return f"--{name}: no run has {value!r}; they have {allowed}"
    return f"no run has {_asked(chosen)} together"


# --------------------------------------------------------------------------- what is alike


def late(
    groups: Sequence[Sequence[MeasuredRun]], left: Iterable[PassedOver], known: Mapping[str, Result]
) -> tuple[PassedOver, ...]:
    """What was passed over, with those marked that are newer than the runs which they are alike
    with; what is alike with none, or cannot be read, is held against all. `known`: by place."""
    marked = []
    for one in left:
        own = known.get(one.where)
        alike = [
            group for group in groups if own and not list(unlike(group[0].result, own, ({}, {})))
        ]
        newest = max(run.result.run.started_at for group in alike or groups for run in group)
        marked.append(replace(one, late=one.started_at > newest))
    return tuple(marked)


def grouped(measured: Iterable[MeasuredRun], force: bool) -> list[list[MeasuredRun]]:
    """Runs in order of time by what they are alike in. `force` sets hosts aside."""
    groups: list[list[MeasuredRun]] = []
    for one in measured:
        for group in groups:
            hosts_aside = {str(at) for at in _hosts(group, one)} if force else set()
            if shares(group, one) and all(str(at) in hosts_aside for at in _unlike(group, one)):
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def why_alone(groups: Sequence[Sequence[MeasuredRun]], one: MeasuredRun) -> str:
    """Why a run is in none of the groups, by the one that it is most like."""
    sharing = [group for group in groups if shares(group, one)]
    if not sharing:
        return "no row in common with the others"
    nearest = min(sharing, key=lambda group: len(_unlike(group, one)))
    return f"unlike {nearest[0].where}: {_words(nearest, one)}"


def no_two(alone: Sequence[MeasuredRun], left: Sequence[PassedOver]) -> str:
    """That there is no history, in one line."""
    if len(alone) >= FEWEST_ALIKE:
        return f"no two runs are alike: {alone[1].where} is {why_alone([[alone[0]]], alone[1])}"
    usable = f"one run alone, {alone[0].where}" if alone else "no run that can be used"
    passed = f"; passed over: {left[0].where}: {left[0].why}" if left else ""
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return f"a history takes {FEWEST_ALIKE} runs: {usable}{passed}{more}"


def shares(group: Sequence[MeasuredRun], one: MeasuredRun) -> bool:
    """Whether a run has a measured row in common with a group."""
    return any(other.places & one.places for other in group)


def _unlike(group: Sequence[MeasuredRun], one: MeasuredRun) -> list[Difference]:
    """In what a run is unlike a group; Ray's version is left out."""
    differences = list(unlike(group[0].result, one.result, ({}, {})))
    for other in (group[0], group[-1]):
        for variant, rows in other.rows.items():
            differences += unlike_rows(rows, one.rows.get(variant, {}))
    return list({str(at): at for at in differences}.values())


def _hosts(group: Sequence[MeasuredRun], one: MeasuredRun) -> list[Difference]:
    return list(unlike_hosts(group[0].result.run.host, one.result.run.host))


def _words(group: Sequence[MeasuredRun], one: MeasuredRun) -> str:
    """The differences, and a hint where hosts are all of them."""
    differences = [str(at) for at in _unlike(group, one)]
    hosts = {str(at) for at in _hosts(group, one)}
    hint = " (--force sets hosts aside)" if hosts and hosts >= set(differences) else ""
    return "; ".join(differences) + hint


# --------------------------------------------------------------------------------------------------

FEWEST_ALIKE: Final = 2
"""Runs that make a history; how many a step takes, levels.py says."""

Word: TypeAlias = Literal["regressed", "slower", "improved", "faster"]


@dataclass(frozen=True)
class Stored:
    """A stored run and its folder."""

    where: str
    result: Result


@dataclass(frozen=True)
class PassedOver:
    """A folder that is in no series, with the reason in one line.

    `started_at`: of the run, of a file that cannot be read when it was last written; empty where it
    does not matter. `late`: it is newer than the runs of the history where it would stand, so that
    the newest of those is not the last that was measured.
    """

    where: str
    why: str
    started_at: str = ""
    late: bool = False


@dataclass(frozen=True)
class Chosen:
    """What a person wants to see alone; None: all. `cell` as in the names of trials, such as
    bs1-ongoing1-rep1; `last`: so many runs of each group, the newest."""

    variant: str | None = None
    cell: str | None = None
    row: str | None = None
    last: int | None = None


@dataclass(frozen=True)
class Night:
    """A run of a history. `changed`: what is not as in the run before, `ray 2.59.0 -> 2.60.0`;
    `doubts`: about the run as a whole."""

    where: str
    run: Run
    versions: Mapping[str, str]
    changed: tuple[str, ...] = ()
    doubts: tuple[Warning, ...] = ()


@dataclass(frozen=True)
class SeriesPoint:
    """A run in a series. `value`: geometric mean over its launches, None where it was not measured;
    `interval`: of that mean at 95 %, its ends as values, None below three launches; `invalid`: more
    than 1 % of the requests failed, so that the value is in no level."""

    value: float | None = None
    by_launch: Mapping[int, float] = field(default_factory=dict)
    interval: Interval | None = None
    invalid: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def judged(self) -> float | None:
        """The value, where it may enter a level."""
        return None if self.invalid else self.value


@dataclass(frozen=True)
class Series:
    """A metric of a row over the runs of its history; `points` has one for each run. `news`: the
    marks that are there with the newest run and were not without it; `drifts`: a drift is;
    `gap`: why the newest run cannot be judged, where the one before could or requests failed; else
    empty. `threshold`: the size from which on a change matters."""

    variant: str
    cell: JsonObject
    row: str
    client: str
    measure: Measure
    points: tuple[SeriesPoint, ...]
    fit: Levels
    threshold: float = THRESHOLD
    news: tuple[LevelMark, ...] = ()
    drifts: bool = False
    gap: str = ""

    @property
    def metric(self) -> str:
        """Its name."""
        return self.measure.name

    @property
    def marks(self) -> tuple[LevelMark, ...]:
        """Steps and outliers in order of time."""
        return tuple(sorted((*self.fit.steps, *self.fit.outliers), key=lambda one: one.at))

    def word(self, mark: LevelMark | Drift) -> Word:
        """Whether a change is for the worse or the better, and whether its size matters."""
        better = (mark.interval.center > 0) == (self.measure.better == "higher")
        ratio = mark.interval.ratio if isinstance(mark, LevelMark) else self.drifted
        if 1 - self.threshold < ratio < 1 + self.threshold:
            return "faster" if better else "slower"
        return "improved" if better else "regressed"

    @property
    def drifted(self) -> float:
        """What a drift makes of a value from the first run of the series to the last: a ratio."""
        drift = self.fit.drift
        runs = [at for at, point in enumerate(self.points) if point.judged is not None]
        return 1.0 if drift is None else math.exp(drift.slope * (runs[-1] - runs[0]))

    def is_step(self, mark: LevelMark) -> bool:
        """A step, not an outlier."""
        return mark in self.fit.steps


@dataclass(frozen=True)
class Group:
    """The runs of one suite on one host, in order of time, and the series of all their rows."""

    nights: tuple[Night, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Run:
        """Its oldest run."""
        return self.nights[0].run

    @property
    def newest(self) -> Run:
        """Its newest run."""
        return self.nights[-1].run


@dataclass(frozen=True)
class History:
    """All groups of two runs and more, the largest first, and what was passed over."""

    groups: tuple[Group, ...]
    passed: tuple[PassedOver, ...]
    total: int
    threshold: float
    metrics: tuple[str, ...]
    forced: bool = False
