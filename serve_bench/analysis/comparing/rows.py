"""Rows of two sides, matched and judged.

Pure. Rule: Holm's correction runs over the rows of one metric, so rows are made first and judged
together; doubts have the last word. Pairs of rounds make ratios within each round; launches that do
not belong together are compared side by side (Welch).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.comparing.doubts import (
    Doubt,
    Letter,
    doubts_of,
    unlike_ways,
    weighed,
    worse,
)
from serve_bench.analysis.comparing.parts import Compared, ComparedRow, Effect, Slicing
from serve_bench.analysis.comparing.values import MEASURES, SLICES, Measure, SideRow
from serve_bench.analysis.comparison import FEWEST, Interval, Judged, judge, paired, unpaired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.result import Trial

Known = Mapping[str, Sequence[Warning]]
"""The doubts about each trial of a run, by its key."""


@dataclass(frozen=True)
class Match:
    """A row that both sides have. `pairs`: their rounds belong together."""

    a: SideRow
    b: SideRow
    known: tuple[Known, Known]
    pairs: bool
    variants: tuple[str, str] | None = None

    def values(self, metric: str) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """Of both sides by round; of pairs the rounds that both have."""
        a, b = self.a.values.get(metric, {}), self.b.values.get(metric, {})
        if not self.pairs:
            return a, b
        both = [round_ for round_ in a if round_ in b]
        return {at: a[at] for at in both}, {at: b[at] for at in both}

    def interval(self, metric: str) -> Interval | None:
        """None below two launches a side."""
        a, b = self.values(metric)
        if min(len(a), len(b)) < 2:
            return None
        if self.pairs:
            return paired([math.log(b[at] / a[at]) for at in a])
        return unpaired(list(a.values()), list(b.values()))


def judged_rows(
    matches: Sequence[Match], threshold: float, gate: Sequence[str], floors: Mapping[str, float]
) -> tuple[ComparedRow, ...]:
    """All rows with their verdicts."""
    doubts = [_doubts(match) for match in matches]
    by_metric = {
        of.name: judge(
            [match.interval(of.name) for match in matches],
            of.better,
            threshold,
            floors.get(of.name, 0.0),
        )
        for of in MEASURES
    }
    return tuple(
        _row(
            match,
            doubts[at],
            tuple(
                _line(match, doubts[at], of, by_metric[of.name][at], of.name in gate)
                for of in MEASURES
            ),
        )
        for at, match in enumerate(matches)
    )


def _doubts(match: Match) -> tuple[Doubt, ...]:
    return (
        *doubts_of("A", match.a, match.known[0]),
        *doubts_of("B", match.b, match.known[1]),
        *unlike_ways(match.a, match.b),
    )


def _line(
    match: Match, doubts: Sequence[Doubt], of: Measure, judged: Judged, gated: bool
) -> Compared:
    a, b = match.values(of.name)
    if judged.interval is None:
        judged = replace(judged, why=_missing(match, a, b))
        if not a and not b:
            judged = replace(judged, rounds_needed=None)
    judged = weighed(judged, of.name, match.a, match.b, doubts)
    return Compared(of.name, of.unit, of.better, a, b, judged, gated)


def _missing(match: Match, a: Mapping[int, float], b: Mapping[int, float]) -> str:
    """Why there is no interval."""
    if not a and not b:
        return "not measured"
    if match.pairs:
        return f"{len(a)} round{'' if len(a) == 1 else 's'}: a verdict takes {FEWEST}"
    if not a or not b:
        return f"not measured in {'A' if not a else 'B'}"
    count = f"{len(a)} launch{'' if len(a) == 1 else 'es'} a side"
    if len(a) != len(b):
        count = f"{len(a)} and {len(b)} launches"
    return f"{count}: a verdict takes {FEWEST}"


def _row(match: Match, doubts: tuple[Doubt, ...], lines: tuple[Compared, ...]) -> ComparedRow:
    a, b = match.a, match.b
    measured = (a.rounds, b.rounds)
    if match.pairs:
        measured = (tuple(at for at in a.rounds if at in b.rounds),) * 2
    return ComparedRow(
        cell=a.cell,
        row=a.row.label,
        client=a.row.client,
        lines=lines,
        doubts=doubts,
        effects=tuple(_effects(match)),
        slicing=_slicing(a, b),
        variants=match.variants,
        planned=(len(a.planned), len(b.planned)),
        measured=(len(measured[0]), len(measured[1])),
        worse=worse(a, b),
        rate_per_s=a.row.rate_per_s,
    )


# ------------------------------------------------------------------------------------ slices


def _effects(match: Match) -> Iterator[Effect]:
    """Slices against a steady load, of each side that has both."""
    sides: tuple[tuple[Letter, SideRow], ...] = (("A", match.a), ("B", match.b))
    for letter, row in sides:
        values, logs = row.values.get(MAIN, {}), []
        for trial in row.trials:
            steady = trial.metrics.get("steady_throughput")
            if steady is None or not steady.windows or trial.round not in values:
                continue
            rate = statistics.fmean(steady.windows)
            if rate > 0:
                logs.append(math.log(values[trial.round] / rate))
        if logs:
            interval = paired(logs) if len(logs) > 1 else None
            yield Effect(letter, math.exp(statistics.fmean(logs)), len(logs), interval)


def _slicing(a: SideRow, b: SideRow) -> Slicing | None:
    """How the row was sliced, from all its trials; None of stored runs."""
    told = [trial.client[SLICES] for trial in (*a.trials, *b.trials) if trial.client.get(SLICES)]
    if not told:
        return None
    first = told[0]
    short = {at.round for at in (*a.trials, *b.trials) if at.flags.get("short_slices")}
    return Slicing(
        method=str(first.get("method", "slices")),
        slice_s=float(first.get("slice_s") or 0.0),
        connections=first.get("connections"),
        asked_connections=first.get("asked_connections"),
        drain_s=(_drain_s(a.trials), _drain_s(b.trials)),
        slices=sum(len(one["completed"]) for one in told) // 2,
        short=len(short),
        why=first.get("why"),
    )


def _drain_s(trials: Sequence[Trial]) -> float | None:
    told = [(trial.client.get(SLICES) or {}).get("drain_s") for trial in trials]
    known = [float(one) for one in told if one is not None]
    return statistics.median(known) if known else None
