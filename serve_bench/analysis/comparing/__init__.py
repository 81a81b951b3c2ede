"""Sides compared with A, of a run of versus or of two stored runs: match, judge, gate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from serve_bench.analysis import ratios
from serve_bench.analysis.checks import Warning, checks, unfair_sentences
from serve_bench.analysis.comparing.groups import describe_groups
from serve_bench.analysis.comparing.match import (
    check_alike,
    few,
    match_variants,
    unlike_axes,
    unlike_hosts,
)
from serve_bench.analysis.comparing.model import (
    GATE,
    About,
    Alone,
    Compared,
    ComparedRow,
    Comparing,
    describe_alone,
    describe_change,
    row_title,
)
from serve_bench.analysis.comparing.values import (
    MEASURES,
    NAMES,
    OF_ALL,
    Doubt,
    Measure,
    RowPlace,
    SideRow,
    explain_worse,
    find_odd_launches,
    group_by_key,
    list_doubts,
    rows_of,
    weigh_doubts,
)
from serve_bench.analysis.comparing.work import compare_work
from serve_bench.analysis.ratios import Hypothesis
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.waterfall import compare_hops
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.core.result import JsonObject, Result
from serve_bench.core.suite_facts import SuiteFacts, side_letters, split_turns

# Pure. Rule: Holm's correction runs over the rows of one metric, so rows are made first and judged
# together; doubts have the last word. Pairs of rounds make ratios within each round; launches that
# do not belong together are compared side by side (Welch).

Known = Mapping[str, Sequence[Warning]]
"""The doubts about each trial of a run, by its key."""


@dataclass(frozen=True)
class Match:
    """A row that both sides have."""

    a: SideRow
    b: SideRow
    known: tuple[Known, Known]
    pairs: bool  # their rounds belong together
    variants: tuple[str, str] | None = None
    planned: int | None = None  # the rounds of a run that is judged after each
    spreads: Mapping[str, ratios.RunSpread] | None = None  # between runs, by metric; None: one run
    base: tuple[SideRow, ...] = ()  # the row of each run, where A is several
    side: str = "B"  # the letter of B
    confidence: float = ratios.CONFIDENCE  # of the intervals

    def values(self, metric: str) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """Return the values of both sides by round; of pairs the rounds that both have."""
        a, b = self.a.values.get(metric, {}), self.b.values.get(metric, {})
        if not self.pairs:
            return a, b
        both = [round_ for round_ in a if round_ in b]
        return {round_: a[round_] for round_ in both}, {round_: b[round_] for round_ in both}

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The metrics that are compared; those of streams only for rows of streams."""
        streams = self.a.row.traffic.streams or self.b.row.traffic.streams
        return tuple(measure for measure in MEASURES if streams or measure.name in OF_ALL)

    def interval(self, metric: str) -> ratios.Interval | None:
        """Return the interval of B/A, of runs by against_runs; None below two launches per side."""
        (a, b), found = self.values(metric), None
        if self.base:
            runs = [[*values.values()] for row in self.base if (values := row.values.get(metric))]
            found = ratios.against_runs(runs, list(b.values())) if runs and b else None
        elif min(len(a), len(b)) >= 2 and self.pairs:
            found = ratios.paired([math.log(b[round_] / a[round_]) for round_ in a], self.planned)
        elif min(len(a), len(b)) >= 2:
            spread = None if self.spreads is None else self.spreads.get(metric, ratios.ASSUMED)
            found = ratios.unpaired(list(a.values()), list(b.values()), spread)
        return None if found is None else found.at(self.confidence)


def judge_rows(
    matches: Sequence[Match],
    threshold: float,
    gate: Sequence[str],
    floors: Mapping[str, float],
    fewest: int = ratios.FEWEST,
) -> tuple[ComparedRow, ...]:
    """Judge all rows; what is gated is judged together, and so is the remaining.

    `fewest`: launches per side that a verdict takes."""
    doubts = []
    for match in matches:
        of_a = list_doubts("A", match.a, match.known[0])
        of_b = list_doubts(match.side, match.b, match.known[1])
        doubts.append((*of_a, *of_b, *(_odd(match) if match.pairs else ())))
    measures = [match.measures for match in matches]
    judged: dict[tuple[int, str], ratios.Judged] = {}
    for gated in (True, False):
        family = {
            (index, measure.name): Hypothesis(
                match.interval(measure.name), measure.better, floors.get(measure.name, 0.0)
            )
            for index, match in enumerate(matches)
            for measure in measures[index]
            if (measure.name in gate) is gated
        }
        judged |= zip(family, ratios.judge(list(family.values()), threshold, fewest), strict=True)
    rows = []
    for index, (match, known) in enumerate(zip(matches, doubts, strict=True)):
        pairs = ((measure, judged[index, measure.name]) for measure in measures[index])
        lines = (_line(match, known, *pair, pair[0].name in gate) for pair in pairs)
        rows.append(_row(match, known, tuple(lines)))
    return tuple(rows)


def _odd(match: Match) -> Iterator[Doubt]:
    """Yield a doubt about each odd launch, by the first metric that shows it."""
    shown = (find_odd_launches(name, *match.values(name), match.side) for name in NAMES)
    found = [*chain.from_iterable(shown)]
    first = {(doubt.side, doubt.message.partition(":")[0]): doubt for doubt in reversed(found)}
    yield from first.values()


def _line(
    match: Match, doubts: Sequence[Doubt], measure: Measure, judged: ratios.Judged, gated: bool
) -> Compared:
    a, b = match.values(measure.name)
    if judged.interval is None:
        judged = replace(judged, why=_missing(match, a, b))
        if not a and not b:
            judged = replace(judged, rounds_needed=None)
    judged = weigh_doubts(judged, measure.name, {"A": match.a, match.side: match.b}, doubts)
    return Compared(measure.name, measure.unit, measure.better, a, b, judged, gated)


def _missing(match: Match, a: Mapping[int, float], b: Mapping[int, float]) -> str:
    """Say why a metric has no interval."""
    if not a and not b:
        return "not measured"
    if not match.pairs and not (a and b):
        return f"not measured in {'A' if not a else match.side}"
    if match.base:
        runs = f"{counted(len(a), 'run')} before"
        return f"{runs}: a verdict takes {ratios.RUNS_KNOWN}, or {ratios.FEWEST} launches a side"
    launches = ratios.launches_text(len(a), len(b), match.pairs)
    return f"{launches}: a verdict takes {ratios.FEWEST}"


def _row(match: Match, doubts: tuple[Doubt, ...], lines: tuple[Compared, ...]) -> ComparedRow:
    """Make the compared row of a match: what both sides measured, and how they differ."""
    a, b = match.a, match.b
    measured = (a.rounds, b.rounds)
    if match.pairs:
        measured = (tuple(round_ for round_ in a.rounds if round_ in b.rounds),) * 2
    fall_a, fall_b = ({trial.round: trial.waterfall for trial in side.trials} for side in (a, b))
    planned = len(a.planned), len(b.planned)
    judged = bool(match.base) or min(planned) >= ratios.FEWEST  # one launch may fail by chance
    return ComparedRow(
        cell=a.cell,
        row=a.row.label,
        client=a.row.client,
        lines=lines,
        doubts=doubts,
        in_slices={"A": _in_slices(a), "B": _in_slices(b)},
        slicing=_slicing(a, b),
        variants=match.variants,
        planned=planned,
        measured=(len(measured[0]), len(measured[1])),
        worse=explain_worse(a, b, match.side) if judged else "",
        rate_per_s=a.row.rate_per_s,
        hops=compare_hops(fall_a, fall_b, match.pairs),
        side=match.side,
        work=tuple(compare_work(a, b)),
        groups="" if match.base else describe_groups(*match.values(MAIN), match.side),
    )


def _in_slices(side: SideRow) -> dict[int, float]:
    """Return requests/s in slices over those of a steady load, by round that has both."""
    values, shares = side.values.get(MAIN, {}), {}
    for trial in side.trials:
        steady = trial.metrics.get("steady_throughput")
        rate = statistics.fmean(steady.windows) if steady is not None and steady.windows else 0.0
        if rate > 0 and trial.round in values:
            shares[trial.round] = values[trial.round] / rate
    return shares


def _slicing(a: SideRow, b: SideRow) -> JsonObject:
    """Return how the row was sliced, why not as asked for, and figures; empty of stored runs."""
    trials = (*a.trials, *b.trials)
    sliced = [trial.client.slices for trial in trials if trial.client.slices is not None]
    if not sliced:
        return {}
    drains = {
        f"drain.{letter}": [part.drain_s for trial in side.trials if (part := trial.client.slices)]
        for letter, side in (("A", a), ("B", b))
    }
    figures = {
        "slices": sum(len(part.completed) for part in sliced) // 2,
        "slice_length": sliced[0].slice_s,
        "short_rounds": len({trial.round for trial in trials if trial.flags.short_slices}),
        **{name: statistics.median(known) for name, known in drains.items() if known},
    }
    return {"method": sliced[0].method, "why": sliced[0].why, "figures": figures}


# B against A: of one run of versus, or of two stored runs; and what breaks a gate.
#
# Rule: runs that are unlike are refused, naming each difference, unless that is forced; what is in
# one side alone is listed, never dropped.


def of_versus(result: Result, asked: SuiteFacts | None = None) -> Comparing:
    """Compare the sides of a run of versus, with the gate that it recorded or that of `asked`.

    Raises FormatError where the records cannot be read."""
    asked = asked or result.run.asked
    count = len(asked.sides)
    if count < 2:
        raise FormatError("line 1: the suite of the run names no two sides")
    known, turns = group_by_key(result, checks(result)), len(split_turns(count, asked.together))
    confidence = 1 - (1 - ratios.CONFIDENCE) / (count - 1)
    (_, a), *others = lettered = [*zip(side_letters(count), asked.sides, strict=True)]
    first, matches = rows_of(result, a.label), list[Match]()
    for letter, b in others:
        rows = rows_of(result, b.label)
        if turns > 1:  # what is measured beside each other is compared
            numbers = {number for row in rows.values() for number in row.planned}
            first = rows_of(result, a.label, numbers)
        for place, row in {**first, **rows}.items():
            missing = SideRow(row.cell, row.row)
            match = Match(
                first.get(place, missing),
                rows.get(place, missing),
                (known, known),
                pairs=True,
                planned=asked.rounds // turns if asked.looks else None,
                side=letter,
                confidence=confidence,
            )
            matches.append(match)
    threshold, gate = asked.threshold or ratios.THRESHOLD, asked.gate or GATE
    ups = [(letter, side, _launches(result, side.label)) for letter, side in lettered]
    sides = (
        About(side.label, side.label, result.run, up, side.settings, letter)
        for letter, side, up in ups
    )
    return Comparing(
        kind="versus",
        sides=tuple(sides),
        rows=judge_rows(matches, threshold, gate, asked.floors),
        confidence=confidence,
        threshold=threshold,
        gate=gate,
        floors=asked.floors,
        noise=asked.noise,
        stop=result.stop,
    )


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
    """Compare two stored runs, `chosen` variants of them if given.

    `spreads`: how far runs of their suite differ, where that is known; else it is assumed. `where`
    names the runs in errors. Raises BadInput for runs of versus, without a variant to match, and
    for unlike runs unless `force`, or where the records cannot be read."""
    for result, name in ((a, where[0]), (b, where[1])):
        if result.run.two_sided:
            what = f"is a run of {result.run.command}, a comparison by itself"
            raise BadInput(f"{name}: {what}: serve-bench report")
        if not result.trials:
            raise BadInput(f"{name}: no row was measured: nothing to compare")
    pairs, notes = match_variants(a, b, chosen, where)
    alike = a.run == b.run
    sides = []
    for side, result in enumerate((a, b)):
        try:
            of_pairs = [(pair, rows_of(result, pair[side])) for pair in pairs]
        except FormatError as error:
            raise BadInput(f"{where[side]}: {error}") from None
        sides.append({(pair, place): row for pair, rows in of_pairs for place, row in rows.items()})
    mine, theirs = sides
    differences, doubts = ((), ()) if alike else check_alike(a, b, pairs, (mine, theirs))
    if differences and not force:
        words = f"{where[0]} and {where[1]} are unlike: {'; '.join(differences)}"
        raise BadInput(f"{words} (--force compares them)")
    doubts_a, doubts_b = checks(a), checks(b)
    known = group_by_key(a, doubts_a), group_by_key(b, doubts_b)
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
    alone = tuple(
        Alone("AB"[side], pair[side] if several else None, row.cell, place.row, place.client)
        for side, rows, other in ((0, mine, theirs), (1, theirs, mine))
        for (pair, place), row in rows.items()
        if (pair, place) not in other
    )
    if not matches:
        apart = [*map(str, unlike_axes(mine.values(), theirs.values()))]
        words = "; ".join(few(apart or [*map(describe_alone, alone)]))
        raise BadInput(f"{where[0]} and {where[1]} have no row in common: {words}")
    floors = floors_of(noise) if noise is not None else {}
    names = [tuple(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1)]
    labels = (a.run.id, b.run.id) if a.run.id != b.run.id else ("A", "B")
    if not several and pairs[0][0] != pairs[0][1]:
        labels = pairs[0]
    assumed = not alike and any(MAIN not in (match.spreads or {}) for match in matches)
    return Comparing(
        kind="compare",
        sides=(
            About(labels[0], ", ".join(names[0]), a.run, _launches(a, *names[0]), letter="A"),
            About(labels[1], ", ".join(names[1]), b.run, _launches(b, *names[1])),
        ),
        rows=judge_rows(matches, threshold, gate, floors),
        threshold=threshold,
        gate=tuple(gate),
        floors=floors,
        noise=noise.sides[0].run.id if noise is not None else None,
        alone=alone,
        failures=(
            *(f"A: {text}" for text in describe_failures(a, names[0])),
            *(f"B: {text}" for text in describe_failures(b, names[1])),
        ),
        unlike=differences,
        warnings=(
            *describe_noise(b, noise),
            *([ASSUMED_TEXT] if assumed else []),
            *doubts,
            *(f"A: {text}" for text in describe_run_warnings(doubts_a)),
            *(f"B: {text}" for text in describe_run_warnings(doubts_b)),
        ),
        notes=tuple(notes),
        unfair=(*unfair_sentences(a.trials, labels[0]), *unfair_sentences(b.trials, labels[1])),
    )


Spreads = Mapping[tuple[str, RowPlace], Mapping[str, ratios.RunSpread]]
"""How far runs of a suite differ, by variant and row, then metric."""

ASSUMED_TEXT: Final = (
    f"the spread between runs is assumed, {100 * ratios.ASSUMED.sd:g} %, since fewer than "
    f"{ratios.RUNS_KNOWN} other runs of this suite lie beside these two "
    "(set it with --session-sd 3%)"
)


def _launches(result: Result, *names: str) -> tuple[Any, ...]:
    return tuple(launch for launch in result.launches if launch.variant.name in names)


def describe_noise(result: Result, noise: Comparing | None) -> list[str]:
    """List warnings about a noise floor that was measured on another host."""
    host = result.run.host if noise is None else noise.sides[0].run.host
    unlike = unlike_hosts(host, result.run.host)
    return [f"the noise floor is of another host: {difference}" for difference in unlike]


def describe_run_warnings(doubts: Sequence[Warning]) -> list[str]:
    """List the warnings about a run as a whole, or about all of a variant."""
    return [f"{note.code}: {note.message} ({note.hint})" for note in doubts if note.key is None]


def describe_failures(result: Result, variants: Sequence[str]) -> Iterator[str]:
    """Yield a line about each failure that was not made good, of these variants or of none."""
    for failure in result.failures:
        if failure.variant is None or failure.variant in variants:
            round_ = f"round {failure.round}" if failure.round else ""
            row = "" if failure.row is None else failure.row.label
            where = (failure.variant, round_, failure.what, row)
            yield f"{', '.join(filter(None, where))}: {failure.message}"


def floors_of(noise: Comparing) -> dict[str, float]:
    """Return the noise floor of each metric, from a run of A against itself.

    It is how far from 1 the interval reaches, the farthest over the rows. Raises BadInput for a run
    that is none."""
    run = noise.sides[0].run
    if not noise.aa:
        raise BadInput(f"--noise: run {run.id} is no A/A run; serve-bench versus --aa makes one")
    floors: dict[str, float] = {}
    for _, line in noise.pairs:
        if (interval := line.judged.interval) is None or interval.fewest < ratios.FEWEST:
            continue
        far = max(abs(interval.low - 1), abs(interval.high - 1))
        if math.isfinite(far):
            floors[line.metric] = max(floors.get(line.metric, 0.0), far)
    if MAIN not in floors:
        raise BadInput(f"--noise: run {run.id} has fewer than {ratios.FEWEST} rounds of throughput")
    return floors


def broken(comparing: Comparing, fail_on: str) -> list[str]:
    """List what breaks the gate: rows and metrics with such a verdict, one line for each.

    Also rows on which B is worse by what no figure shows: requests that failed, launches that could
    not be measured. `fail_on`: `regressed`, `slower` (any proven loss), or `inconclusive`, which
    fails on all that is not shown to be the same or better."""
    order = ("regressed", "slower", "inconclusive")
    words = order[: order.index(fail_on) + 1]
    reasons: list[str] = []
    for row in comparing.rows:
        title = row_title(comparing, row)
        blamed = [line for line in row.lines if line.gated and line.judged.word in words]
        reasons += (f"{line.judged.word}: {title}: {describe_change(line)}" for line in blamed)
        if row.worse and not any(line.judged.word == "regressed" for line in blamed):
            reasons.append(f"regressed: {title}: {row.worse}")
    if fail_on == "inconclusive":
        reasons += [f"inconclusive: {describe_alone(row)}" for row in comparing.alone]
    return reasons
