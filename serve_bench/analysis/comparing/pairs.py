"""Which runs of two folders are compared: the newest of those that are alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class _Alike:
    """Runs of a subject that are alike, by folder, the newest first."""

    subject: Subject
    newest: Result
    sides: tuple[dict[str, Result], dict[str, Result]] = field(default_factory=lambda: ({}, {}))


def pair_runs(
    a: Mapping[str, Result], b: Mapping[str, Result], force: bool
) -> tuple[list[RunPair], list[str], list[str]]:
    """The newest runs of each subject that are alike, `force` sets aside in what they are not; a
    sentence about each that is unlike those of the other side, and about each whose subject one
    side alone has, or that is a comparison by itself."""
    groups: list[_Alike] = []
    alone: list[str] = []
    every = [(at, where, run) for at, side in enumerate((a, b)) for where, run in side.items()]
    for at, where, run in sorted(every, key=lambda one: one[2].run.started_at, reverse=True):
        if run.run.two_sided:
            alone.append(f"{where} is a run of {run.run.command}, a comparison by itself")
            continue
        subject = subject_of(run)
        group = next(
            (
                group
                for group in groups
                if group.subject == subject and (force or not _differences(group.newest, run))
            ),
            None,
        )
        if group is None:
            group = _Alike(subject, run)
            groups.append(group)
        group.sides[at][where] = run
    pairs = [_pair(group) for group in groups if all(group.sides)]
    unlike_runs: list[str] = []
    for group in groups:
        if all(group.sides):
            continue
        at = 0 if group.sides[0] else 1
        where = next(iter(group.sides[at]))
        others = [one for one in groups if one.subject == group.subject and one.sides[1 - at]]
        if not others:
            alone.append(f"{group.subject} is in {'AB'[at]} alone ({where})")
        elif at == 1 or all(map(all, (one.sides for one in others))):  # else that one says it
            other = next(iter(others[0].sides[1 - at]))
            words = "; ".join(map(str, _differences(others[0].newest, group.newest)))
            unlike_runs.append(f"{where} is unlike {other} ({group.subject}): {words}")
    return pairs, unlike_runs, alone


def _pair(group: _Alike) -> RunPair:
    (where_a, a), (where_b, b) = (next(iter(side.items())) for side in group.sides)
    notes = [
        f"{letter}: the newest of {len(side)} runs ({next(iter(side))})"
        for letter, side in zip("AB", group.sides, strict=True)
        if len(side) > 1
    ]
    return RunPair(str(group.subject), (where_a, where_b), (a, b), tuple(notes))


def _differences(a: Result, b: Result) -> list[object]:
    return [*unlike_apps(a, b), *unlike(a, b, ({}, {}))]
