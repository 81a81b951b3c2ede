"""What a run of flags says: the effect of each flag and pair, judged as versus judges. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from serve_bench.analysis.checks import checks
from serve_bench.analysis.comparing.model import ends, ratio_text
from serve_bench.analysis.comparing.values import (
    MEASURES,
    OF_ALL,
    Doubt,
    Measure,
    RowPlace,
    SideRow,
    by_key,
    doubts_of,
    rows_of,
)
from serve_bench.analysis.factorial import Fit, Round, Term, fit
from serve_bench.analysis.ratios import Hypothesis, Interval, Judged, judge
from serve_bench.benchmarks.flags.request import FlagsSuite, label
from serve_bench.benchmarks.versus.summary import SCALES
from serve_bench.core.document import Finding
from serve_bench.core.figures import counted
from serve_bench.core.result import Result

CHANGED = ("regressed", "slower", "improved", "faster")


@dataclass(frozen=True)
class TermEffect:
    """An effect of a metric, with its verdict. `better`: as of versus, on against off."""

    term: Term
    judged: Judged

    @property
    def interval(self) -> Interval | None:
        """On to off as a ratio; of a pair the ratio of two such ratios."""
        return self.judged.interval

    @property
    def matters(self) -> bool:
        """Whether it is proven to change the figure."""
        return self.judged.word in CHANGED


@dataclass(frozen=True)
class MetricEffects:
    """The effects in a metric of a row. `logs`: the log ratio of each round that has one, by its
    number; `fit`: what they say."""

    place: RowPlace
    measure: Measure
    gated: bool
    logs: dict[int, float]
    fit: Fit
    effects: tuple[TermEffect, ...]

    def of(self, size: int) -> tuple[TermEffect, ...]:
        """Those of single flags (1) or of pairs (2), the surest first."""
        some = [one for one in self.effects if len(one.term) == size]
        return tuple(sorted(some, key=lambda one: (one.judged.p is None, one.judged.p)))

    @property
    def odd(self) -> dict[int, float]:
        """Rounds that were left out, with the ratio by which they are off."""
        rounds = list(self.logs)
        return {rounds[at]: ratio for at, ratio in self.fit.odd.items()}


@dataclass(frozen=True)
class FlagEffects:
    """All that a run says. `doubts`: of its trials, each once."""

    suite: FlagsSuite
    rounds: tuple[Round, ...]
    metrics: tuple[MetricEffects, ...]
    doubts: tuple[Finding, ...]

    @property
    def gated(self) -> tuple[MetricEffects, ...]:
        """Those that are judged together."""
        return tuple(one for one in self.metrics if one.gated)

    @property
    def measured(self) -> int:
        """Rounds with a figure."""
        return max((len(one.logs) for one in self.metrics), default=0)


def effects_of(result: Result) -> FlagEffects:
    """The effects that the records of a run show. Raises FormatError for damaged records."""
    suite = FlagsSuite.from_json(result.run.suite)
    if result.last is not None:
        suite = replace(suite, versus=replace(suite.versus, rounds=result.last))
    rounds, terms = suite.rounds, suite.factorial.terms[0]
    sides = {name: rows_of(result, name) for name in {label(x) for pair in rounds for x in pair}}
    fits: dict[tuple[RowPlace, Measure], tuple[dict[int, float], Fit]] = {}
    for place in dict.fromkeys(place for rows in sides.values() for place in rows):
        for of in MEASURES:
            if of.name not in OF_ALL and not any(
                rows[place].values.get(of.name) for rows in sides.values() if place in rows
            ):
                continue
            logs = dict(_logs(rounds, sides, place, of.name))
            each = [rounds[at - 1] for at in logs]
            fits[place, of] = logs, fit(each, list(logs.values()), terms)
    judged = _judged(fits, suite)
    metrics = tuple(
        MetricEffects(
            *(place, of, of.name in suite.versus.gate, logs, whole),
            tuple(TermEffect(term, judged[place, of, term]) for term in terms),
        )
        for (place, of), (logs, whole) in fits.items()
    )
    return FlagEffects(suite, rounds, metrics, tuple(_doubts(result, sides)))


def _logs(
    rounds: Sequence[Round], sides: Mapping[str, Mapping[RowPlace, SideRow]], at: RowPlace, of: str
) -> Iterator[tuple[int, float]]:
    """The log ratio of each round that has one, by its number."""
    for number, pair in enumerate(rounds, 1):
        rows = [sides[label(point)].get(at) for point in pair]
        values = [row.values.get(of, {}).get(number) for row in rows if row is not None]
        if len(values) == 2 and values[0] and values[1]:
            yield number, math.log(values[1] / values[0])


Key: TypeAlias = tuple[RowPlace, Measure, Term]


def _judged(
    fits: Mapping[tuple[RowPlace, Measure], tuple[Mapping[int, float], Fit]], suite: FlagsSuite
) -> dict[Key, Judged]:
    """The verdicts. Judged together: single flags in what is gated, pairs there, the rest so."""
    families: dict[tuple[bool, int], dict[Key, Hypothesis]] = {}
    for (place, of), (_, whole) in fits.items():
        for one in whole.effects:
            family = families.setdefault((of.name in suite.versus.gate, len(one.term)), {})
            family[place, of, one.term] = Hypothesis(one.interval, of.better)
    return {
        key: one
        for family in families.values()
        for key, one in zip(
            family, judge(list(family.values()), suite.versus.threshold), strict=True
        )
    }


def _doubts(result: Result, sides: Mapping[str, Mapping[RowPlace, SideRow]]) -> Iterator[Finding]:
    """Each kind of doubt about a launch once, with their number."""
    known = by_key(result, checks(result))
    every: dict[str, list[Doubt]] = {}
    for rows in sides.values():
        for row in rows.values():
            for one in doubts_of("A", row, known):
                every.setdefault(one.code, []).append(one)
    for code, some in every.items():
        count = counted(sum(one.launches for one in some), "launch", "launches")
        yield Finding(f"{some[0].message} ({count})", code, "doubt", some[0].hint)


# ---------------------------------------------------------------------------- sentences


def sentences_of(effects: FlagEffects) -> Iterator[str]:
    """What matters, the surest first, of each gated metric of each row."""
    name = effects.suite.factorial.name
    several = len({one.place for one in effects.metrics}) > 1
    for of in effects.gated:
        where = f"{SCALES[of.measure.name].name}{f' of {of.place.row}' if several else ''}"
        single, pairs = of.of(1), [one for one in of.of(2) if one.matters]
        texts = [f"{name(one.term)} {ratio_words(one.interval)}" for one in single if one.matters]
        if all(one.interval is None for one in single):
            yield f"{where}: not decided: {counted(len(of.logs), 'round')} tell no effect"
            continue
        rest = len(single) - len(texts)
        if not texts:
            yield f"{where}: no flag is proven to matter"
        else:
            others = "; no other is proven" if rest else ""
            yield f"{where}: {', '.join(texts)}{others}"
        if of.fit.whole is not None and texts:
            yield f"{where}, all on against none: {ratio_words(of.fit.whole)}"
        for one in pairs:
            yield f"{where}, {name(one.term)} together: {ratio_words(one.interval)} more than alone"


def ratio_words(interval: Interval | None) -> str:
    """`2.91 x (95 %: 2.80 to 3.02)`."""
    return "-" if interval is None else f"{ratio_text(interval.ratio)} x (95 %: {ends(interval)})"
