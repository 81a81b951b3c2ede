"""B against A, of a run of versus or of two stored runs: rows matched and judged, and the gate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from serve_bench.analysis import ratios
from serve_bench.analysis.checks import Warning, checks, unfair_sentences
from serve_bench.analysis.comparing.match import (
    doubtful,
    few,
    matched,
    unlike,
    unlike_hosts,
    unlike_rows,
    versions_of,
)
from serve_bench.analysis.comparing.model import (
    GATE,
    About,
    Alone,
    Compared,
    ComparedRow,
    Comparing,
    Effect,
    RowSlices,
    alone_words,
    figures,
    row_title,
)
from serve_bench.analysis.comparing.values import (
    MEASURES,
    OF_ALL,
    SLICES,
    Doubt,
    Letter,
    Measure,
    RowPlace,
    SideRow,
    by_key,
    doubts_of,
    odd_launches,
    rows_of,
    weighed,
    worse,
)
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.waterfall import shifts
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.result import JsonObject, Result, Trial

# Rows of two sides, matched and judged.
#
# Pure. Rule: Holm's correction runs over the rows of one metric, so rows are made first and judged
# together; doubts have the last word. Pairs of rounds make ratios within each round; launches that
# do not belong together are compared side by side (Welch).

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
    planned: int | None = None  # the rounds of a run that is judged after each
    spreads: Mapping[str, ratios.RunSpread] | None = None  # between runs, by metric; None: one run
    base: tuple[SideRow, ...] = ()  # the row of each run, where A is several

    def values(self, metric: str) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """Of both sides by round; of pairs the rounds that both have."""
        a, b = self.a.values.get(metric, {}), self.b.values.get(metric, {})
        if not self.pairs:
            return a, b
        both = [round_ for round_ in a if round_ in b]
        return {at: a[at] for at in both}, {at: b[at] for at in both}

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is compared of the row."""
        streams = self.a.row.traffic.streams or self.b.row.traffic.streams
        return tuple(one for one in MEASURES if streams or one.name in OF_ALL)

    def interval(self, metric: str) -> ratios.Interval | None:
        """None below two launches a side; of several runs as against_runs says."""
        a, b = self.values(metric)
        if self.base:
            runs = [list(of.values()) for row in self.base if (of := row.values.get(metric))]
            return ratios.against_runs(runs, list(b.values())) if runs and b else None
        if min(len(a), len(b)) < 2:
            return None
        if self.pairs:
            return ratios.paired([math.log(b[at] / a[at]) for at in a], self.planned)
        spread = None if self.spreads is None else self.spreads.get(metric, ratios.ASSUMED)
        return ratios.unpaired(list(a.values()), list(b.values()), spread)


def judged_rows(
    matches: Sequence[Match],
    threshold: float,
    gate: Sequence[str],
    floors: Mapping[str, float],
    fewest: int = ratios.FEWEST,
) -> tuple[ComparedRow, ...]:
    """All rows with their verdicts. What is gated is judged together, what is not likewise.
    `fewest`: launches a side that a verdict takes."""
    doubts = [
        (
            *doubts_of("A", match.a, match.known[0]),
            *doubts_of("B", match.b, match.known[1]),
            *(_odd(match) if match.pairs else ()),
        )
        for match in matches
    ]
    measures = [match.measures for match in matches]
    judged: dict[tuple[int, str], ratios.Judged] = {}
    for gated in (True, False):
        family = {
            (at, of.name): ratios.Hypothesis(
                match.interval(of.name), of.better, floors.get(of.name, 0.0)
            )
            for at, match in enumerate(matches)
            for of in measures[at]
            if (of.name in gate) is gated
        }
        judged |= zip(family, ratios.judge(list(family.values()), threshold, fewest), strict=True)
    return tuple(
        _row(
            match,
            doubts[at],
            tuple(
                _line(match, doubts[at], of, judged[at, of.name], of.name in gate)
                for of in measures[at]
            ),
        )
        for at, match in enumerate(matches)
    )


def _odd(match: Match) -> Iterator[Doubt]:
    """Odd launches, each once: by the first metric that shows it."""
    every = [one for of in MEASURES for one in odd_launches(of.name, *match.values(of.name))]
    yield from {(one.side, one.message.partition(":")[0]): one for one in reversed(every)}.values()


def _line(
    match: Match, doubts: Sequence[Doubt], of: Measure, judged: ratios.Judged, gated: bool
) -> Compared:
    a, b = match.values(of.name)
    if judged.interval is None:
        judged = replace(judged, why=_missing(match, a, b))
        if not a and not b:
            judged = replace(judged, rounds_needed=None)
    judged = weighed(judged, of.name, match.a, match.b, doubts)
    return Compared(of.name, of.unit, of.better, a, b, judged, gated)


def _missing(match: Match, a: Mapping[int, float], b: Mapping[int, float]) -> str:
    if not a and not b:
        return "not measured"
    if match.pairs:
        return f"{len(a)} round{'' if len(a) == 1 else 's'}: a verdict takes {ratios.FEWEST}"
    if not a or not b:
        return f"not measured in {'A' if not a else 'B'}"
    if match.base:
        runs = f"{len(a)} run{'' if len(a) == 1 else 's'} before"
        return f"{runs}: a verdict takes {ratios.RUNS_KNOWN}, or {ratios.FEWEST} launches a side"
    count = f"{len(a)} launch{'' if len(a) == 1 else 'es'} a side"
    if len(a) != len(b):
        count = f"{len(a)} and {len(b)} launches"
    return f"{count}: a verdict takes {ratios.FEWEST}"


def _row(match: Match, doubts: tuple[Doubt, ...], lines: tuple[Compared, ...]) -> ComparedRow:
    a, b = match.a, match.b
    measured, pairs = (a.rounds, b.rounds), match.pairs
    if pairs:
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
        hops=shifts(_falls(a), _falls(b), pairs),
    )


def _falls(side: SideRow) -> dict[int, JsonObject]:
    return {one.round: one.waterfall for one in side.trials}


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
            interval = ratios.paired(logs) if len(logs) > 1 else None
            yield Effect(letter, math.exp(statistics.fmean(logs)), len(logs), interval)


def _slicing(a: SideRow, b: SideRow) -> RowSlices | None:
    """How the row was sliced, from all its trials; None of stored runs."""
    sliced = [trial.client[SLICES] for trial in (*a.trials, *b.trials) if trial.client.get(SLICES)]
    if not sliced:
        return None
    first = sliced[0]
    short = {at.round for at in (*a.trials, *b.trials) if at.flags.get("short_slices")}
    return RowSlices(
        method=first["method"],
        slice_s=first["slice_s"],
        connections=first["connections"],
        drain_s=(_drain_s(a.trials), _drain_s(b.trials)),
        slices=sum(len(one["completed"]) for one in sliced) // 2,
        short=len(short),
        why=first["why"],
    )


def _drain_s(trials: Sequence[Trial]) -> float | None:
    drains = [(trial.client.get(SLICES) or {}).get("drain_s") for trial in trials]
    known = [float(one) for one in drains if one is not None]
    return statistics.median(known) if known else None


# B against A: of one run of versus, or of two stored runs; and what breaks a gate.
#
# Pure; made anew from the records each time. Rule: runs that are unlike are refused, naming each
# difference, unless that is forced; what is in one side alone is listed, never dropped. Values of
# launches come from values.py, rows from above, verdicts from analysis/ratios.py.


def of_versus(
    result: Result,
    threshold: float | None = None,
    gate: Sequence[str] | None = None,
    noise: Comparing | None = None,
) -> Comparing:
    """The comparison that a run of versus is; what is not given is as the run recorded it.

    Raises FormatError where the records cannot be read.
    """
    suite = result.run.suite
    labels, settings = _sides(suite)
    known = by_key(result, checks(result))
    first, second = (rows_of(result, label) for label in labels)
    rounds = suite.get("rounds") if suite.get("looks") is True else None
    matches = []
    for place, row in {**first, **second}.items():
        missing = SideRow(row.cell, row.row)
        sides = first.get(place, missing), second.get(place, missing)
        matches.append(Match(*sides, (known, known), pairs=True, planned=rounds))
    floors = floors_of(noise) if noise is not None else dict(suite.get("floors") or {})
    holds = (
        threshold if threshold is not None else float(suite.get("threshold") or ratios.THRESHOLD)
    )
    gated = tuple(gate if gate is not None else suite.get("gate") or GATE)
    a, b = (
        About(label, label, result.run, _launches(result, label), own)
        for label, own in zip(labels, settings, strict=True)
    )
    return Comparing(
        kind="versus",
        sides=(a, b),
        rows=judged_rows(matches, holds, gated, floors),
        threshold=holds,
        gate=gated,
        floors=floors,
        noise=noise.sides[0].run.id if noise is not None else suite.get("noise"),
        stop=result.stop,
    )


def _sides(suite: JsonObject) -> tuple[list[str], list[JsonObject]]:
    """Labels of A and B, and what each sets; FormatError where the suite does not say."""
    try:
        sides: list[Mapping[str, Any]] = list(suite["sides"])
        labels = [str(side["label"]) for side in sides]
        if len(labels) != 2:
            raise ValueError(f"{len(labels)} sides")
        return labels, [dict(side.get("settings") or {}) for side in sides]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"line 1: the suite of the run names no two sides: {error!r}") from None


def of_runs(
    a: Result,
    b: Result,
    threshold: float = ratios.THRESHOLD,
    gate: Sequence[str] = GATE,
    noise: Comparing | None = None,
    *,
    force: bool = False,
    chosen: tuple[str | None, str | None] = (None, None),
    where: tuple[str, str] = ("RUN_A", "RUN_B"),
    spreads: Spreads | None = None,
) -> Comparing:
    """Two stored runs held against each other, `chosen` variants of them if given.

    `spreads`: how far runs of their suite differ, where that is known; else it is assumed.

    `where` names the runs in errors. Raises BadInput: for runs of versus, without a variant to
    match, and for unlike runs unless `force`; FormatError where the records cannot be read.
    """
    for result, name in ((a, where[0]), (b, where[1])):
        if result.run.two_sided:
            raise BadInput(
                f"{name}: is a run of {result.run.command}, a comparison by itself: "
                "serve-bench report"
            )
        if not result.trials:
            raise BadInput(f"{name}: no row was measured: nothing to compare")
    pairs, notes = matched(a, b, chosen, where)
    alike = a.run == b.run
    mine = {(pair, at): row for pair in pairs for at, row in _rows(a, pair[0], where[0])}
    theirs = {(pair, at): row for pair in pairs for at, row in _rows(b, pair[1], where[1])}
    differences, doubts = ((), ()) if alike else _checked(a, b, pairs, (mine, theirs), where, force)
    doubts_a, doubts_b = checks(a), checks(b)
    known = by_key(a, doubts_a), by_key(b, doubts_b)
    several = len(pairs) > 1
    matches = [
        Match(
            row,
            theirs[pair, place],
            known,
            alike,
            pair if several else None,
            spreads=None if alike else (spreads or {}).get((pair[0], place), {}),
        )
        for (pair, place), row in mine.items()
        if (pair, place) in theirs
    ]
    alone = (*_alone("A", mine, theirs, several), *_alone("B", theirs, mine, several))
    if not matches:
        lines = few([alone_words(one) for one in alone])
        raise BadInput(
            f"{where[0]} and {where[1]} have no row in common (cell, row and client): "
            + "; ".join(lines)
        )
    floors = floors_of(noise) if noise is not None else {}
    names = [tuple(dict.fromkeys(pair[at] for pair in pairs)) for at in (0, 1)]
    labels = (a.run.id, b.run.id) if a.run.id != b.run.id else ("A", "B")
    if not several and pairs[0][0] != pairs[0][1]:
        labels = pairs[0]
    assumed = not alike and any(MAIN not in (match.spreads or {}) for match in matches)
    return Comparing(
        kind="compare",
        sides=(
            About(labels[0], ", ".join(names[0]), a.run, _launches(a, *names[0])),
            About(labels[1], ", ".join(names[1]), b.run, _launches(b, *names[1])),
        ),
        rows=judged_rows(matches, threshold, gate, floors),
        threshold=threshold,
        gate=tuple(gate),
        floors=floors,
        noise=noise.sides[0].run.id if noise is not None else None,
        alone=alone,
        failures=_told_twice(describe_failures(a, names[0]), describe_failures(b, names[1])),
        unlike=differences,
        warnings=(
            *describe_noise(b, noise),
            *([ASSUMED_TEXT] if assumed else []),
            *doubts,
            *_told_twice(describe_run_warnings(doubts_a), describe_run_warnings(doubts_b)),
        ),
        notes=tuple(notes),
        unfair=(*unfair_sentences(a.trials, labels[0]), *unfair_sentences(b.trials, labels[1])),
    )


PairedRows: TypeAlias = Mapping[tuple[tuple[str, str], RowPlace], SideRow]
"""The rows of a side, each with the variants of A and B that are compared."""

Spreads = Mapping[tuple[str, RowPlace], Mapping[str, ratios.RunSpread]]
"""How far runs of a suite differ, by variant and row, then metric."""

ASSUMED_TEXT: Final = (
    f"the spread between runs is assumed, {100 * ratios.ASSUMED.sd:g} %, since fewer than "
    f"{ratios.RUNS_KNOWN} other runs of this suite lie beside these two "
    "(set it with --session-sd 3%)"
)


def _checked(
    a: Result,
    b: Result,
    pairs: Sequence[tuple[str, str]],
    rows: tuple[PairedRows, PairedRows],
    where: tuple[str, str],
    force: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In what the runs are unlike and what may be: BadInput where they are, unless forced."""
    versions = [[versions_of(a, one), versions_of(b, other)] for one, other in pairs]
    differences = [str(one) for of in versions for one in unlike(a, b, of)]
    differences += [str(one) for one in unlike_rows(*rows)]
    differences = list(dict.fromkeys(differences))
    if differences and not force:
        raise BadInput(
            f"{where[0]} and {where[1]} are unlike: {'; '.join(differences)} "
            "(--force compares them)"
        )
    doubts = dict.fromkeys(one for of in versions for one in doubtful(a, b, of))
    return tuple(differences), tuple(doubts)


def _rows(result: Result, variant: str, where: str) -> Iterable[tuple[RowPlace, SideRow]]:
    try:
        return rows_of(result, variant).items()
    except FormatError as error:
        raise BadInput(f"{where}: {error}") from None


def _alone(side: Letter, rows: PairedRows, other: PairedRows, several: bool) -> Iterator[Alone]:
    """The rows of a side that the other lacks. `several`: variants are compared."""
    for (pair, place), row in rows.items():
        if (pair, place) not in other:
            variant = pair["AB".index(side)] if several else None
            yield Alone(side, variant, row.cell, place.row, place.client)


def _launches(result: Result, *names: str) -> tuple[Any, ...]:
    return tuple(one for one in result.launches if one.variant.name in names)


def describe_noise(result: Result, noise: Comparing | None) -> list[str]:
    """Warnings about a noise floor that was measured elsewhere."""
    if noise is None:
        return []
    differences = unlike_hosts(noise.sides[0].run.host, result.run.host)
    return [f"the noise floor is of another host: {one}" for one in differences]


def describe_run_warnings(doubts: Sequence[Warning]) -> list[str]:
    """Those about a run as a whole, or about all of a variant."""
    return [f"{one.code}: {one.message} ({one.hint})" for one in doubts if one.key is None]


def describe_failures(result: Result, variants: Sequence[str]) -> tuple[str, ...]:
    """What failed and was not made good, one line each, of these variants or of none."""
    lines = []
    for one in result.failures:
        if one.variant is None or one.variant in variants:
            at = [one.variant, f"round {one.round}" if one.round else None, one.what]
            at.append(one.row.label if one.row is not None else None)
            lines.append(f"{', '.join(word for word in at if word)}: {one.message}")
    return tuple(lines)


def _told_twice(mine: Any, theirs: Any) -> tuple[str, ...]:
    """Lines about A and about B, each with the side."""
    return (*(f"A: {text}" for text in mine), *(f"B: {text}" for text in theirs))


FAIL_ON: Final = ("regressed", "slower", "inconclusive")
"""Each breaks on the words before it too."""


def floors_of(noise: Comparing) -> dict[str, float]:
    """The noise floor of each metric, from a run of A against itself: how far from 1 its interval
    reaches, the farthest over its rows. BadInput for a run that is none."""
    run = noise.sides[0].run
    if not noise.aa:
        raise BadInput(f"--noise: run {run.id} is no A/A run; serve-bench versus --aa makes one")
    floors: dict[str, float] = {}
    for line in noise.lines:
        interval = line.judged.interval
        if (
            interval is not None
            and interval.fewest >= ratios.FEWEST
            and math.isfinite(interval.distance)
        ):
            floors[line.metric] = max(floors.get(line.metric, 0.0), interval.distance)
    if MAIN not in floors:
        raise BadInput(f"--noise: run {run.id} has fewer than {ratios.FEWEST} rounds of throughput")
    return floors


def broken(comparing: Comparing, fail_on: str) -> list[str]:
    """What breaks the gate, one line each: rows and metrics with such a verdict; rows on which B is
    worse by what no figure shows: requests that failed, launches that could not be measured.

    `regressed`, `slower` (any proven loss), or `inconclusive`, which fails on all that is not shown
    to be the same or better.
    """
    words = FAIL_ON[: FAIL_ON.index(fail_on) + 1]
    reasons: list[str] = []
    for row in comparing.rows:
        blamed = [line for line in row.lines if line.gated and line.judged.word in words]
        reasons += [
            f"{line.judged.word}: {row_title(comparing, row)}: {figures(line)}" for line in blamed
        ]
        if row.worse and not any(line.judged.word == "regressed" for line in blamed):
            reasons.append(f"regressed: {row_title(comparing, row)}: {row.worse}")
    if fail_on == "inconclusive":
        reasons += [f"inconclusive: {alone_words(one)}" for one in comparing.alone]
    return reasons
