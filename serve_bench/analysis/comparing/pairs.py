"""Which runs of two folders are compared: the newest of those that are alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serve_bench.analysis.comparing.match import Subject, subject_of, unlike, unlike_apps
from serve_bench.core.result import Result


@dataclass(frozen=True)
class RunPair:
    """Two runs that are compared, and the folder of each. `of`: what both measured, where there
    are several pairs; `notes`: of which runs they are the newest."""

    of: str
    where: tuple[str, str]
    runs: tuple[Result, Result]
    notes: tuple[str, ...]


def pair_runs(
    a: Mapping[str, Result], b: Mapping[str, Result], force: bool
) -> tuple[list[RunPair], list[str], list[str]]:
    """The newest runs of each subject that are alike, `force` sets aside in what they are not; a
    sentence about each subject of which no two are alike, and about each that one side alone has,
    or that is a comparison by itself."""
    sides = [_newest_first(side) for side in (a, b)]
    unlike_runs = []
    alone = [
        f"{where} is a run of {run.run.command}, a comparison by itself"
        for side in sides
        for where, run in side.items()
        if run.run.two_sided
    ]
    by_subject: dict[Subject, tuple[dict[str, Result], dict[str, Result]]] = {}
    for at, side in enumerate(sides):
        for where, run in side.items():
            if not run.run.two_sided:
                by_subject.setdefault(subject_of(run), ({}, {}))[at][where] = run
    pairs: list[RunPair] = []
    for subject, (first, second) in by_subject.items():
        if not first or not second:
            (where, *_), letter = first or second, "A" if first else "B"
            alone.append(f"{subject} is in {letter} alone ({where})")
            continue
        found = list(_pairs(subject, first, second, force))
        if not found:
            (where, run), (other, newest) = next(iter(first.items())), next(iter(second.items()))
            words = "; ".join(map(str, _differences(run, newest)))
            unlike_runs.append(f"{where} and {other} ({subject}) are unlike: {words}")
        pairs += found
    return pairs, unlike_runs, alone


def _pairs(
    subject: Subject, first: Mapping[str, Result], second: Mapping[str, Result], force: bool
) -> Iterator[RunPair]:
    """One for each kind of alike runs, in order of the newest of B."""
    rest = dict(second)
    while rest:
        where, run = next(iter(rest.items()))
        alike = {other: one for other, one in rest.items() if force or not _differences(run, one)}
        base = {other: one for other, one in first.items() if force or not _differences(run, one)}
        rest = {other: one for other, one in rest.items() if other not in alike}
        if base:
            other, newest = next(iter(base.items()))
            notes = [
                f"{letter}: the newest of {len(runs)} runs ({place})"
                for letter, runs, place in (("A", base, other), ("B", alike, where))
                if len(runs) > 1
            ]
            yield RunPair(str(subject), (other, where), (newest, run), tuple(notes))


def _newest_first(runs: Mapping[str, Result]) -> dict[str, Result]:
    return dict(sorted(runs.items(), key=lambda item: item[1].run.started_at, reverse=True))


def _differences(a: Result, b: Result) -> list[object]:
    return [*unlike_apps(a, b), *unlike(a, b, ({}, {}))]
