"""Runs of one suite over time: the series of each row, where it steps, what the newest run brought.

Pure; made anew from the records each time. Rule: runs that are unlike never stand in one series
(model.py), and what is passed over has its reason. A change of Ray or of the tool is no difference:
a history is there to show it, at the run that brought it. Steps come from levels.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.comparing import RUNS_KNOWN, Spreads
from serve_bench.analysis.comparing.match import (
    software_changes,
    software_of,
    unlike,
    unlike_hosts,
    versions_of,
)
from serve_bench.analysis.comparing.model import geometric_mean
from serve_bench.analysis.comparing.values import (
    MEASURES,
    NAMES,
    Measure,
    RowPlace,
    SideRow,
    by_key,
    doubts_of,
)
from serve_bench.analysis.history.levels import LevelMark, Levels, levels_of
from serve_bench.analysis.history.model import (
    FEWEST_ALIKE,
    Chosen,
    Group,
    History,
    MeasuredRun,
    Night,
    PassedOver,
    Series,
    SeriesPoint,
    Stored,
    chosen_of,
    grouped,
    late,
    measured_of,
    no_two,
    shares,
    why_alone,
)
from serve_bench.analysis.ratios import FEWEST, THRESHOLD, RunSpread, paired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.errors import BadInput
from serve_bench.core.failed_requests import INVALID_SHARE
from serve_bench.core.result import JsonObject, Result, cell_slug

FAIL_ON: Final = ("step", "regressed")


def history_of(
    stored: Sequence[Stored],
    passed: Sequence[PassedOver] = (),
    *,
    metrics: Sequence[str] = (MAIN,),
    threshold: float = THRESHOLD,
    chosen: Chosen | None = None,
    force: bool = False,
) -> History:
    """The history of stored runs; `passed` could not be read. `force` sets hosts aside.

    Raises BadInput where no two runs are alike, where none has a value of these metrics, and for a
    variant, cell or row that no run has.
    """
    wanted, left = chosen or Chosen(), list(passed)
    in_order = sorted(stored, key=lambda one: (one.result.run.started_at, one.where))
    every = grouped(chosen_of(list(measured_of(in_order, left)), left, wanted), force)
    groups = [group for group in every if len(group) >= FEWEST_ALIKE]
    groups.sort(key=len, reverse=True)
    alone = [group[0] for group in every if len(group) < FEWEST_ALIKE]
    if not groups:
        raise BadInput(no_two(alone, left))
    left += [
        PassedOver(one.where, why_alone(groups, one), one.result.run.started_at) for one in alone
    ]
    known = {one.where: one.result for one in stored}
    shown = tuple(
        _group(group[-(wanted.last or 0) :], metrics, threshold, _own(groups[:at], group))
        for at, group in enumerate(groups)
    )
    if not any(group.series for group in shown):
        raise BadInput(f"--metric: no run has a value of {', '.join(metrics)}")
    return History(
        groups=shown,
        passed=late(groups, left, known),
        total=len(stored) + len(passed),
        threshold=threshold,
        metrics=tuple(metrics),
        forced=force,
    )


def spreads_beside(a: Result, b: Result, stored: Sequence[Stored]) -> Spreads:
    """How far runs of the suite of A and B differ from one to the next, from other runs of it that
    are alike: within levels, so that a step among them is no spread. Empty with too few."""
    others = [
        one
        for one in stored
        if one.result.run.id not in (a.run.id, b.run.id) and not [*unlike(a, one.result, ({}, {}))]
    ]
    if len(others) < RUNS_KNOWN:
        return {}
    try:
        groups = history_of(others, metrics=NAMES).groups
    except BadInput:  # no two are alike, or nothing of them was measured
        return {}
    spreads: dict[tuple[str, RowPlace], dict[str, RunSpread]] = {}
    for one in (series for group in reversed(groups) for series in group.series):
        counts = [len(point.by_launch) for point in one.points if point.judged is not None]
        if len(counts) >= RUNS_KNOWN and one.fit.spread is not None:
            spread = RunSpread(one.fit.spread, one.fit.df, fmean(counts), len(counts))
            place = RowPlace(cell_slug(one.cell), one.row, one.client)
            spreads.setdefault((one.variant, place), {})[one.metric] = spread
    return spreads


def news_of(group: Group) -> list[tuple[Series, LevelMark]]:
    """The marks that the newest run of a group brought."""
    return [(one, mark) for one in group.series for mark in one.news]


# ------------------------------------------------------------------------------- the group


def _own(before: Sequence[Sequence[MeasuredRun]], group: Sequence[MeasuredRun]) -> list[str]:
    """Why a group is one of its own, where it has a row in common with one that is shown first."""
    sharing = [other for other in before if shares(other, group[0])]
    return [f"a history of its own: {why_alone(sharing, group[0])}"] if sharing else []


def _group(
    runs: Sequence[MeasuredRun], metrics: Sequence[str], threshold: float, notes: Sequence[str]
) -> Group:
    doubts = [checks(one.result) for one in runs]
    known = [by_key(one.result, own) for one, own in zip(runs, doubts, strict=True)]
    places = _places(runs)
    measures = [of for name in metrics for of in MEASURES if of.name == name]
    series = [one for of in measures for one in _series(runs, known, places, of, threshold)]
    at = {place: rank for rank, place in enumerate(places)}
    series.sort(key=lambda one: at[one.variant, RowPlace(cell_slug(one.cell), one.row, one.client)])
    return Group(
        nights=tuple(_nights(runs, doubts)),
        series=tuple(series),
        notes=(*notes, *_names(runs)),
    )


def _places(runs: Sequence[MeasuredRun]) -> list[tuple[str, RowPlace]]:
    """All rows by variant, cell and row, each in the order in which it first appears."""
    places = dict.fromkeys(
        (variant, place) for one in runs for variant, rows in one.rows.items() for place in rows
    )
    variants = list(dict.fromkeys(variant for variant, _ in places))
    cells = list(dict.fromkeys(place.cell for _, place in places))
    return sorted(places, key=lambda at: (variants.index(at[0]), cells.index(at[1].cell)))


def _series(
    runs: Sequence[MeasuredRun],
    known: Sequence[Mapping[str, Sequence[Warning]]],
    places: Sequence[tuple[str, RowPlace]],
    of: Measure,
    threshold: float,
) -> list[Series]:
    """A metric of every row, judged together; a row that no run has a value of is none."""
    cells: dict[tuple[str, RowPlace], JsonObject] = {}
    points: dict[tuple[str, RowPlace], tuple[SeriesPoint, ...]] = {}
    for variant, place in places:
        rows = [one.rows.get(variant, {}).get(place) for one in runs]
        own = tuple(_point(row, doubts, of) for row, doubts in zip(rows, known, strict=True))
        if any(point.value is not None for point in own):
            points[variant, place] = own
            cells[variant, place] = next(row.cell for row in rows if row is not None)
    values = [[point.judged for point in own] for own in points.values()]
    fits = levels_of(values)
    before = levels_of([own[:-1] for own in values])
    return [
        Series(
            *(variant, cells[variant, place], place.row, place.client, of, points[variant, place]),
            fit=levels,
            threshold=threshold,
            news=_news(levels, former, len(runs) - 1),
            drifts=levels.drift is not None and former.drift is None,
            gap=_gap(points[variant, place]),
        )
        for (variant, place), levels, former in zip(points, fits, before, strict=True)
    ]


def _point(row: SideRow | None, known: Mapping[str, Sequence[Warning]], of: Measure) -> SeriesPoint:
    values = row.values.get(of.name, {}) if row is not None else {}
    if row is None or not values:
        failed = row is not None and row.failed_share > INVALID_SHARE
        return SeriesPoint(invalid=failed, doubts=tuple(doubts_of("B", row, known)) if row else ())
    interval = None
    if len(values) >= FEWEST:
        interval = paired([math.log(value) for value in values.values()])
    return SeriesPoint(
        value=geometric_mean(values.values()),
        by_launch=dict(values),
        interval=interval,
        invalid=row.failed_share > INVALID_SHARE,
        doubts=tuple(doubts_of("B", row, known)),
    )


def _gap(points: Sequence[SeriesPoint]) -> str:
    """Why the newest run is not judged; empty where it is, or where the run before had no value."""
    newest = points[-1]
    if newest.invalid:
        return f"more than {100 * INVALID_SHARE:g} % of its requests failed"
    if newest.value is None and points[-2].value is not None:
        return "not measured, as it was in the run before"
    return ""


def _news(fit: Levels, before: Levels, newest: int) -> tuple[LevelMark, ...]:
    """The marks that the newest run brought: a step that was not seen without it (one that it moved
    by a run was), and that it is an outlier itself."""
    seen = [step.at for step in before.steps]
    steps = [step for step in fit.steps if not any(abs(step.at - at) <= 1 for at in seen)]
    return (*steps, *(one for one in fit.outliers if one.at == newest))


def _nights(runs: Sequence[MeasuredRun], doubts: Sequence[Sequence[Warning]]) -> Iterator[Night]:
    before: MeasuredRun | None = None
    for one, own in zip(runs, doubts, strict=True):
        yield Night(
            where=one.where,
            run=one.result.run,
            versions=_versions(one),
            changed=() if before is None else tuple(_changes(before, one)),
            doubts=tuple(at for at in own if at.key is None),
        )
        before = one


def _versions(one: MeasuredRun) -> dict[str, str]:
    """What ran, as the launches of all variants prove it, and the tool."""
    by_name: dict[str, dict[str, None]] = {}
    for variant in one.rows:
        for name, value in versions_of(one.result, variant).items():
            by_name.setdefault(name, {})[value] = None
    versions = {name: " and ".join(values) for name, values in by_name.items()}
    versions["serve-bench"] = one.result.run.tool_version
    if one.result.run.git_commit:
        commit, _, changes = one.result.run.git_commit.partition("+")
        versions["serve-bench commit"] = commit[:7] + (f"+{changes}" if changes else "")
    if one.result.run.host.get("kernel"):
        versions["kernel"] = str(one.result.run.host["kernel"])
    return versions


def _changes(before: MeasuredRun, one: MeasuredRun) -> Iterator[str]:
    """What is not as in the run before; what one of them does not tell is passed over."""
    mine, theirs = _versions(before), _versions(one)
    known = [f"{name} " for name in theirs]  # Ray is among the packages too
    measured = [software_of(run.result.launches) for run in (before, one)]
    changes = [text for text in software_changes(*measured) if not text.startswith(tuple(known))]
    for name, value in theirs.items():
        if name in mine and mine[name] != value:
            yield f"{name} {mine[name]} -> {value}"
    yield from changes
    for other in unlike_hosts(before.result.run.host, one.result.run.host):
        if other.what != "kernel":  # told above
            yield f"{other.what} {other.a} -> {other.b}"


def _names(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    names = {one.result.run.host.get("id") for one in runs} - {None}
    if len(names) > 1:
        yield (
            f"the hosts of these runs have {len(names)} names (a container has another each time): "
            "how hosts of one kind differ is part of the spread"
        )
