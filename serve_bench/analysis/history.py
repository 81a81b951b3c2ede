"""Runs over time: the series of each row, and the newest run compared with those before it.

Pure; made anew from the records each time. Rule: runs of two subjects, or that are unlike
(analysis/comparing/match.py), never stand in one series, and each run that is passed over has a
reason. A change of Ray or of the tool is no difference: a history shows it at the run that brought
it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Final

from serve_bench.analysis.comparing import match
from serve_bench.analysis.comparing.model import Comparing, geometric_mean
from serve_bench.analysis.comparing.pooled import MeasuredRun, Place, compare_newest, read_run
from serve_bench.analysis.comparing.values import MEASURES, Measure, RowPlace
from serve_bench.analysis.ratios import FEWEST, THRESHOLD, Interval, paired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.failed_requests import INVALID_SHARE
from serve_bench.core.figures import counted
from serve_bench.core.result import JsonObject, Result, Run, cell_slug

FEWEST_ALIKE: Final = 2  # runs that make a history

LAST: Final = 10
"""Runs before the newest that it is compared with: of 4 an interval is 1.4 times as wide, of 30 it
is narrower by a tenth, and levels of long ago would be in it."""


@dataclass(frozen=True)
class PassedOver:
    """A folder that is in no series."""

    where: str
    why: str  # in one line
    started_at: str = ""  # of an unreadable file its last change; empty: no matter
    # Newer than the runs where it would stand: the newest of those is not the last one measured.
    late: bool = False


def _names(place: Place) -> dict[str, str]:
    """Return what a person chooses a row by; `cell` as in names of trials: bs1-ongoing1-rep1."""
    return {"variant": place[0], "cell": place[1].cell, "row": place[1].row}


@dataclass(frozen=True)
class HistoryPoint:
    """A run in a series."""

    value: float | None = None  # geometric mean over its launches, None where not measured
    launches: int = 0
    # Of `value` at 95 %, its ends as values; None below three launches.
    interval: Interval | None = None
    invalid: bool = False  # more than 1 % of the requests failed


@dataclass(frozen=True)
class Series:
    """A metric of a row over the runs of its history; `points` has one for each run."""

    place: Place
    cell: JsonObject
    measure: Measure
    points: tuple[HistoryPoint, ...]


@dataclass(frozen=True)
class Group:
    """The runs of one subject on one host, the series of their rows, and the newest compared."""

    name: str  # no other group has it
    runs: tuple[MeasuredRun, ...]  # in order of time
    series: tuple[Series, ...]
    comparison: Comparing
    before: int  # how many runs before the newest it is compared with
    gaps: tuple[str, ...] = ()  # what of the newest could not be judged, and why
    notes: tuple[str, ...] = ()

    @property
    def newest(self) -> Run:
        return self.runs[-1].run


@dataclass(frozen=True)
class History:
    """All groups of two runs and more, the largest first, and what was passed over."""

    groups: tuple[Group, ...]
    total: int
    passed: tuple[PassedOver, ...] = field(default=())
    forced: bool = False


def build_history(
    stored: Mapping[str, Result],
    passed: Sequence[PassedOver] = (),
    *,
    metrics: Sequence[str] = (MAIN,),
    threshold: float = THRESHOLD,
    chosen: Mapping[str, str] | None = None,
    last: int = LAST,
    force: bool = False,
) -> History:
    """Build the history of stored runs, by folder; `passed` could not be read.

    `chosen`: the variant, cell or row to show alone; `last`: runs before the newest that it is
    compared with; `force` ignores hosts.

    Raises BadInput where no two runs are alike, where none has a value of these metrics, and for a
    variant, cell or row that no run has."""
    left = list(passed)
    in_order = sorted(stored.items(), key=lambda item: item[1].run.started_at)
    all_groups = _grouped(_chosen([*_measured(in_order, left)], left, chosen or {}), force)
    groups = [group for group in all_groups if len(group) >= FEWEST_ALIKE]
    groups.sort(key=len, reverse=True)
    alone = [group[0] for group in all_groups if len(group) < FEWEST_ALIKE]
    if not groups:
        raise BadInput(_no_two(alone, left))
    for run in alone:
        others = [[other] for other in alone if other is not run]
        why = _why_alone([*groups, *others], run)
        left.append(PassedOver(run.where, why, run.run.started_at))
    made = []
    for number, group in enumerate(groups):
        alike = [other for other in groups[:number] if other[0].subject == group[0].subject]
        made.append(_group(group, alike, metrics, threshold, last))
    if not any(group.series for group in made):
        raise BadInput(f"--metric: no run has a value of {', '.join(metrics)}")
    late = tuple(_mark_late(groups, left, stored))
    return History(tuple(made), len(stored) + len(passed), late, force)


def _group(
    runs: Sequence[MeasuredRun],
    alike: Sequence[Sequence[MeasuredRun]],
    metrics: Sequence[str],
    threshold: float,
    last: int,
) -> Group:
    """Build a group; `alike`: larger groups of the same subject."""
    before = runs[-1 - last : -1]
    comparison = compare_newest(before, runs[-1], threshold, metrics)
    measures = [measure for name in metrics for measure in MEASURES if measure.name == name]
    pairs = product(_places(runs).items(), measures)
    lines = (Series(place, cell, of, _points(runs, place, of)) for (place, cell), of in pairs)
    series = [line for line in lines if any(point.value is not None for point in line.points)]
    apart = [f"{found.what} {found.b}" for found in _unlike(alike[0], runs[0])] if alike else []
    name = ", ".join([str(runs[0].subject), *match.few(apart)])
    later = (replace(run, changed=tuple(_changes(old, run))) for old, run in pairwise(runs))
    return Group(
        name=name,
        runs=(runs[0], *later),
        series=tuple(series),
        comparison=replace(comparison, of=name),
        before=len(before),
        gaps=tuple(_gaps(series, comparison)),
        notes=(f"a history of its own: {_why_alone(alike, runs[0])}",) if alike else (),
    )


def _places(runs: Sequence[MeasuredRun]) -> dict[Place, JsonObject]:
    """Return all rows and their cells by variant, cell and row, in order of their first runs."""
    cells = {place: row.cell for run in runs for place, row in run.rows.items()}
    variants = list(dict.fromkeys(variant for variant, _ in cells))
    slugs = list(dict.fromkeys(place.cell for _, place in cells))
    ordered = sorted(cells, key=lambda key: (variants.index(key[0]), slugs.index(key[1].cell)))
    return {place: cells[place] for place in ordered}


def _points(
    runs: Sequence[MeasuredRun], place: Place, measure: Measure
) -> tuple[HistoryPoint, ...]:
    points = []
    for row in (run.rows.get(place) for run in runs):
        values = [] if row is None else [*row.values.get(measure.name, {}).values()]
        interval = paired([*map(math.log, values)]) if len(values) >= FEWEST else None
        invalid = row is not None and row.failed_share > INVALID_SHARE
        points.append(HistoryPoint(geometric_mean(values), len(values), interval, invalid))
    return tuple(points)


def _gaps(series: Sequence[Series], comparison: Comparing) -> Iterator[str]:
    """Yield why rows of the newest run are not judged, each row once; worse ones are judged."""
    judged, only = set(), comparison.sides[1].variant
    for row in (row for row in comparison.rows if row.worse):
        place = RowPlace(cell_slug(row.cell), row.row, row.client)
        judged.add((row.variants[1] if row.variants else only, place))
    for line in series:
        newest, before, why = line.points[-1], line.points[-2], ""
        if newest.invalid:
            why = f"more than {100 * INVALID_SHARE:g} % of its requests failed"
        elif newest.value is None and before.value is not None:
            why = f"{line.measure.name} was not measured; the run before has it"
        if why and line.place not in judged:
            judged.add(line.place)
            variant, place = line.place
            yield f"{place.row} ({place.client}) of {variant}, {place.cell}: {why}"


def _changes(before: MeasuredRun, run: MeasuredRun) -> Iterator[str]:
    """Yield what is not as in the run before; what one of them does not record is passed over."""
    old, new = before.versions, run.versions
    for name, value in new.items():
        if name in old and old[name] != value:
            yield f"{name} {old[name]} -> {value}"
    prefixes = tuple(f"{name} " for name in new)  # Ray is among the packages too
    measured = [match.read_software(changed.result.launches) for changed in (before, run)]
    yield from (text for text in match.software_changes(*measured) if not text.startswith(prefixes))
    for other in match.unlike_hosts(before.run.host, run.run.host):
        if other.what != "kernel":  # reported above
            yield f"{other.what} {other.a} -> {other.b}"


def _measured(
    stored: Sequence[tuple[str, Result]], left: list[PassedOver]
) -> Iterator[MeasuredRun]:
    """Yield the runs that measured anything, each once: of copies the one with the most trials."""
    for where, result in stored:
        copies = [item for item in stored if item[1].run == result.run]
        kept, longest = max(copies, key=lambda item: len(item[1].trials))
        if kept != where:
            more = len(longest.trials) - len(result.trials)
            cut = f", which has {counted(more, 'trial')} more" if more else ""
            left.append(PassedOver(where, f"the same run as {kept}{cut}"))
            continue
        try:
            run = read_run(where, result)
        except FormatError as error:
            left.append(PassedOver(where, str(error), result.run.started_at))
            continue
        if run.places:
            yield run
            continue
        reason = f": {result.failures[0].message}" if result.failures else ""
        why = f"empty: no row was measured{reason}"
        if failed := sum(trial.counts.failed_total for trial in result.trials):
            why = f"no request succeeded: all {failed:,} failed"
        if any(trial.counts.completed for trial in result.trials):
            why = f"every row of it broke{reason}"
        left.append(PassedOver(where, why, result.run.started_at))


def _chosen(
    runs: Sequence[MeasuredRun], left: list[PassedOver], chosen: Mapping[str, str]
) -> Iterator[MeasuredRun]:
    """Yield the runs with only the chosen rows. Raises BadInput where no run has any."""
    words = " ".join(f"--{name} {value!r}" for name, value in chosen.items())
    names = [_names(place) for run in runs for place in sorted(run.places, key=str)]
    if names and not any(chosen.items() <= names_of.items() for names_of in names):
        for name, value in chosen.items():
            values = dict.fromkeys(names_of[name] for names_of in names)
            if value not in values:
                raise BadInput(f"--{name}: no run has {value!r}; they have {', '.join(values)}")
        raise BadInput(f"no run has {words} together")
    for run in runs:
        places = [place for place in run.rows if chosen.items() <= _names(place).items()]
        rows = {place: run.rows[place] for place in places}
        if any(row.values for row in rows.values()):
            yield MeasuredRun(run.where, run.result, rows)
        else:
            why = f"nothing of {words} was measured"
            left.append(PassedOver(run.where, why, run.run.started_at))


def _grouped(runs: Iterable[MeasuredRun], force: bool) -> list[list[MeasuredRun]]:
    """Group runs in order of time by what they are alike in; `force` ignores hosts."""
    groups: list[list[MeasuredRun]] = []
    for run in runs:
        for group in groups:
            hosts = [*match.unlike_hosts(group[0].run.host, run.run.host)] if force else []
            if _shares(group, run) and all(found in hosts for found in _unlike(group, run)):
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _shares(group: Sequence[MeasuredRun], run: MeasuredRun) -> bool:
    """Return whether a run has the subject of a group, and a measured row in common with it."""
    return group[0].subject == run.subject and any(other.places & run.places for other in group)


def _unlike(group: Sequence[MeasuredRun], run: MeasuredRun) -> list[match.Difference]:
    """List in what a run is unlike a group; Ray's version is left out."""
    differences = match.list_differences(group[0].result, run.result)
    for other in (group[0], group[-1]):
        differences += match.unlike_rows(other.rows, run.rows)
    return list(dict.fromkeys(differences))


def _why_alone(groups: Sequence[Sequence[MeasuredRun]], run: MeasuredRun) -> str:
    """Say why a run is in none of the groups, by the one that it is most like."""
    alike = [group for group in groups if group[0].subject == run.subject]
    if not alike:
        return f"the only run of {run.subject}"
    nearest = min(alike, key=lambda group: (not _shares(group, run), len(_unlike(group, run))))
    differences = [*map(str, _unlike(nearest, run))]
    hosts = {*map(str, match.unlike_hosts(nearest[0].run.host, run.run.host))}
    hint = " (--force sets hosts aside)" if hosts and hosts >= set(differences) else ""
    differences += [] if _shares(nearest, run) else ["no row in common"]
    return f"unlike {nearest[0].where}: {'; '.join(differences)}{hint}"


def _no_two(alone: Sequence[MeasuredRun], left: Sequence[PassedOver]) -> str:
    if len(alone) >= FEWEST_ALIKE:
        earlier = [[run] for run in alone[:-1]]
        return f"no two runs are alike: {alone[-1].where} is {_why_alone(earlier, alone[-1])}"
    usable = f"one run alone, {alone[0].where}" if alone else "no run that can be used"
    passed = f"; passed over: {left[0].where}: {left[0].why}" if left else ""
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return f"a history takes {FEWEST_ALIKE} runs: {usable}{passed}{more}"


def _mark_late(
    groups: Sequence[Sequence[MeasuredRun]],
    left: Iterable[PassedOver],
    stored: Mapping[str, Result],
) -> Iterator[PassedOver]:
    """Yield what was passed over, marked where it is newer than the runs of its subject.

    Of these count those that it is alike with, if any; what cannot be read may be of all."""
    for run in left:
        places, alike = [*groups], []
        if (result := stored.get(run.where)) is not None:
            subject = match.subject_of(result)
            places = [group for group in groups if group[0].subject == subject]
            alike = [
                runs for runs in places if not any(match.unlike(runs[0].result, result, ({}, {})))
            ]
        newest = [other.run.started_at for group in alike or places for other in group]
        yield replace(run, late=bool(newest) and run.started_at > max(newest) > "")
