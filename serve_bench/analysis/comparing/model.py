"""The words of a comparison: a metric of a row on both sides, the row, the whole of B against A.

Pure; plain, frozen content. Rule: what cannot be compared has its place here too: a row that one
side alone has, a round that failed, a metric that was not measured. Rows are made
in __init__.py, the whole in the package itself; the reports draw it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from serve_bench.analysis.comparing.values import Doubt, Letter
from serve_bench.analysis.ratios import FEWEST, MOST_ROUNDS, Interval, Judged, Word
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.waterfall import HopShift
from serve_bench.core.figures import percent, ratio_text
from serve_bench.core.result import Better, JsonObject, Launch, Run, RunStop, cell_slug

GATE: Final = (MAIN,)
"""What enters the exit code unless more is asked for."""


def geometric_mean(values: Iterable[float]) -> float | None:
    """Of values above 0; None where there is none."""
    logs = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logs)) if logs else None


def worst(words: Iterable[Word]) -> Word:
    """The word that stands for several; of none, inconclusive."""
    distinct = set(words)
    order: tuple[Word, ...] = (
        *("regressed", "slower", "inconclusive", "improved", "faster", "same"),
    )
    return next((word for word in order if word in distinct), "inconclusive")


@dataclass(frozen=True)
class Compared:
    """A metric of a row on both sides. `a`, `b`: geometric means over launches, None where none has
    a value; `a_values`, `b_values` by round, of pairs only those that both have."""

    metric: str
    unit: str
    better: Better
    a_values: Mapping[int, float]
    b_values: Mapping[int, float]
    judged: Judged
    gated: bool

    @property
    def a(self) -> float | None:
        """A's value."""
        return geometric_mean(self.a_values.values())

    @property
    def b(self) -> float | None:
        """B's value."""
        return geometric_mean(self.b_values.values())

    @property
    def ratio(self) -> float | None:
        """B/A: that of the interval, which odd rounds move little; known without one too."""
        if self.judged.interval is not None:
            return self.judged.interval.ratio
        return self.b / self.a if self.a and self.b else None


@dataclass(frozen=True)
class Effect:
    """What slices did to the throughput of a side: that in slices to that under a steady load.
    `interval`: over rounds, None below two."""

    side: Letter
    ratio: float
    rounds: int
    interval: Interval | None


@dataclass(frozen=True)
class RowSlices:
    """How a row of versus was measured. `drain_s`: of A and B, medians; `slices`: of each side in
    all rounds; `short`: rounds in which a slice was under five drains; `why` it was
    not as asked for."""

    method: str
    slice_s: float
    connections: int
    drain_s: tuple[float | None, float | None]
    slices: int
    short: int
    why: str


@dataclass(frozen=True)
class ComparedRow:
    """A row of a cell. `variants`: the names of both sides where a run has several. `planned`:
    rounds (of A and B), `measured` those with a value on that side, of pairs on both. `worse`: why
    B is worse whatever its figures say, else empty. `rate_per_s`: of an open loop. `hops`: the
    latency of traced requests, and each of its hops."""

    cell: JsonObject
    row: str
    client: str
    lines: tuple[Compared, ...]
    doubts: tuple[Doubt, ...] = ()
    effects: tuple[Effect, ...] = ()
    slicing: RowSlices | None = None
    variants: tuple[str, str] | None = None
    planned: tuple[int, int] = (0, 0)
    measured: tuple[int, int] = (0, 0)
    worse: str = ""
    rate_per_s: float | None = None
    hops: tuple[HopShift, ...] = ()

    @property
    def word(self) -> Word:
        """The verdict on the row: the worst of its gated lines, and no better than it is."""
        return (
            "regressed" if self.worse else worst(one.judged.word for one in self.lines if one.gated)
        )

    def line(self, metric: str) -> Compared:
        """The line of a metric."""
        return next(one for one in self.lines if one.metric == metric)


@dataclass(frozen=True)
class About:
    """A side: its name in this comparison, its run, the launches that were up."""

    name: str
    variant: str
    run: Run
    launches: tuple[Launch, ...]
    settings: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Alone:
    """A row that one side alone has."""

    side: Letter
    variant: str | None
    cell: JsonObject
    row: str
    client: str


@dataclass(frozen=True)
class Comparing:
    """B against A, of one run of versus, of two stored runs, or of the newest run and earlier ones.

    `threshold` is as asked for; that of a metric is the larger of it and its floor. `noise`: the
    run of the floors; `unlike`: in what runs differ that were compared by force; `notes`: how sides
    were matched; `unfair`: which other programs ran beside, in sentences; `of`: what was measured,
    where several comparisons stand together.
    """

    kind: Literal["versus", "compare", "history"]
    sides: tuple[About, About]
    rows: tuple[ComparedRow, ...]
    threshold: float
    gate: tuple[str, ...]
    floors: Mapping[str, float] = field(default_factory=dict)
    noise: str | None = None
    alone: tuple[Alone, ...] = ()
    failures: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()
    stop: RunStop | None = None
    of: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """Of A and B."""
        return self.sides[0].name, self.sides[1].name

    @property
    def lines(self) -> tuple[Compared, ...]:
        """All metrics of all rows."""
        return tuple(line for row in self.rows for line in row.lines)

    @property
    def gated(self) -> tuple[Compared, ...]:
        """Those that the gate looks at."""
        return tuple(line for line in self.lines if line.gated)

    @property
    def paired(self) -> bool:
        """Whether rounds belong together, so that ratios are made within each."""
        return self.sides[0].run == self.sides[1].run

    @property
    def aa(self) -> bool:
        """Whether A was set against itself."""
        return self.paired and bool(self.sides[0].run.suite.get("aa"))

    @property
    def settled(self) -> bool:
        """Whether more rounds would hardly change a word of the gate. With rounds enough a row on
        which B is worse whatever its figures say is settled too, and a metric without any value."""
        return bool(self.rows) and all(
            min(row.measured) >= FEWEST
            and (
                bool(row.worse)
                or all(
                    one.judged.settled or not (one.a_values or one.b_values)
                    for one in row.lines
                    if one.gated
                )
            )
            for row in self.rows
        )

    @property
    def word(self) -> Word:
        """The verdict on the whole gate: the worst that any of its rows has."""
        return worst(row.word for row in self.rows)


# A comparison in words: the figures of a line, the name of a row, the verdict in one sentence.
#
# Pure. Rule: one line of text each, unbroken; the same words in every report and in what a gate
# says.

OPEN: Final = ("same", "inconclusive")
"""The words of what is not proven to differ."""

IN_THE_VERDICT = ("client-bound", "errors", "interrupted", "worker-failed", "steal")
"""Doubts that are named in the sentence of the verdict itself."""


def ends(interval: Interval | None) -> str:
    """`11.2 to 12.5`; `-` without an interval."""
    if interval is None:
        return "-"
    return f"{ratio_text(interval.low)} to {ratio_text(interval.high)}"


def figures(line: Compared, a: str = "") -> str:
    """`14 % slower (4 to 23 %)`; `between 4 % slower and 3 % faster`, where no change is in the
    interval; or why there is no ratio. `a`: the name of A, for `14 % slower than A (4 to 23 %)`."""
    interval = line.judged.interval
    if line.ratio is None:
        return f"{line.metric} {line.judged.why or 'not measured'}"
    if interval is None:
        return change_text(line, [line.ratio], a)
    if interval.low <= 1 <= interval.high:
        return change_text(line, [interval.low, interval.high])
    outward = sorted((interval.low, interval.high), reverse=interval.high <= 1)
    (near, *_), (far, *_) = ends = [_change(line, end) for end in outward]
    words = {word for _, word in (*ends, _change(line, line.ratio))}
    span = " to ".join(f"{amount} {word}" for amount, word in ends)
    if len(words) == 1:
        span = f"{near} to {far}{' %' if '%' in words.pop() else ''}"
    return f"{change_text(line, [line.ratio], a)} ({span})"


def change_text(line: Compared, ratios: Sequence[float], a: str = "") -> str:
    """What B does at ratios of a metric: `4 to 23 % slower`, `11.8 times as fast`, `between 4 %
    faster and 3 % slower at p99`, `6.1 % less CPU per request`."""
    low, high = min(ratios), max(ratios)
    outward = (high, low) if high <= 1 else (low, high)
    (near, word), (far, last) = (_change(line, ratio) for ratio in outward)
    text = f"between {near} {word} and {far} {last}"
    if near == far == "0":
        text = "unchanged"
    elif word == last:
        text = f"{' to '.join(dict.fromkeys((near, far)))} {word}"
    kind, _, share = line.metric.rpartition("_")
    of = {"throughput": "", "cpu": " CPU per request"}.get(
        line.metric, f" at {f'{kind.upper()} {share}'.strip()}"
    )
    return f"{text}{of} {'as' if 'times' in last else 'than'} {a}" if a else text + of


def _change(line: Compared, ratio: float) -> tuple[str, str]:
    """How far B is from A, and in what: (`14`, `% slower`), (`11.8`, `times as fast`)."""
    amount = percent(round(abs(ratio - 1), 5)).removesuffix(" %")
    if line.metric == "cpu":
        more = (ratio_text(ratio), "times as much") if ratio >= 2 else (amount, "% more")
        return more if ratio > 1 else (amount, "% less")
    speed = ratio if line.better == "higher" else 1 / ratio if ratio else math.inf
    if speed >= 2:
        return ratio_text(speed), "times as fast"
    if line.better == "lower" and ratio >= 2:
        return ratio_text(ratio), "times as slow"
    return amount, f"% {'faster' if speed > 1 else 'slower'}"


def settles(line: Compared, paired: bool) -> str:
    """`about 14 rounds needed`; empty where nothing is to be settled."""
    judged, things = line.judged, "rounds" if paired else "launches a side"
    if judged.word != "inconclusive" or judged.interval is None or judged.p is None:
        return ""
    if judged.rounds_needed is not None:
        return f"about {judged.rounds_needed} {things} needed"
    if judged.weighed:
        return ""
    if judged.interval.between:
        return "the spread between runs hides it: serve-bench versus avoids it"
    return f"more than {MOST_ROUNDS} {things} needed"


def row_title(comparing: Comparing, row: ComparedRow) -> str:
    """What tells a row from the others: variant, cell and client where they differ."""
    cells = {cell_slug(one.cell) for one in comparing.rows}
    clients = {one.client for one in comparing.rows if one.row == row.row}
    words = [
        variant_of(row),
        cell_slug(row.cell) if len(cells) > 1 else None,
        f"{row.row} ({row.client})" if len(clients) > 1 else row.row,
    ]
    return ", ".join(word for word in words if word)


def variant_of(row: ComparedRow) -> str | None:
    """The variant of a row, where a run has several."""
    return None if row.variants is None else " and ".join(dict.fromkeys(row.variants))


def row_words(one: Alone) -> str:
    """`100 connections (raw) of bs1-ongoing1-rep1`."""
    of = ", ".join(word for word in (one.variant, cell_slug(one.cell)) if word)
    return f"{one.row} ({one.client}) of {of}"


def alone_words(one: Alone) -> str:
    """`100 connections (raw) of bs1-ongoing1-rep1: only in A`."""
    return f"{row_words(one)}: only in {one.side}"


def rounds_words(comparing: Comparing) -> str:
    """`6 rounds`, `4 to 6 of 6 rounds`, `3 launches a side`, `3 and 5 launches`."""
    if not comparing.rows:
        return "no rounds"
    a = _range(row.measured[0] for row in comparing.rows)
    if comparing.paired:
        planned = max(max(row.planned) for row in comparing.rows)
        of = "" if a == str(planned) else f" of {planned}"
        words = f"{a}{of} round{'' if planned == 1 else 's'}"
        return words if comparing.stop is None else f"{words} ({stop_text(comparing.stop)})"
    b = _range(row.measured[1] for row in comparing.rows)
    if a == b:
        return f"{a} launch{'' if a == '1' else 'es'} a side"
    return f"{a} and {b} launches"


def stop_text(stop: RunStop) -> str:
    """`settled after 4 of at most 20 rounds`."""
    whys = {"budget": "the budget was used up", "failure": "given up, since each try fails alike,"}
    why = whys.get(stop.why, stop.why)
    return f"{why} after {stop.after_round} of at most {stop.of} rounds"


def _range(counts: Iterable[int]) -> str:
    every = sorted(set(counts))
    return str(every[0]) if len(every) == 1 else f"{every[0]} to {every[-1]}"


def subject(comparing: Comparing) -> str:
    """`optimized against default`; of an A/A run `default against itself`."""
    a, b = comparing.names
    if comparing.aa:
        return f"{a.removesuffix(' (A)')} against itself"
    return f"{comparing.of}: {b} against {a}".removeprefix(": ")


def headline(comparing: Comparing) -> str:
    """The verdict in one sentence, by what the gate looks at: `optimized is 14 % slower than
    default (4 to 23 %): regressed, 6 rounds`; of several figures, or of none that differs,
    `optimized against default: same, between 1 % slower and 2 % faster, 6 rounds`."""
    word = comparing.word
    rows = [row for row in comparing.rows if row.word == word]
    leading = [
        (row, line)
        for row in rows
        for line in row.lines
        if line.gated and line.judged.word == word and not row.worse
    ]
    texts = [*_worse(comparing), *_leading(comparing, leading)]
    sentence = f"{subject(comparing)}: {word}{_where(comparing, word)}"
    if len(leading) == len(comparing.rows) == 1 and word not in OPEN:
        (_, line), (a, b), texts = leading[0], comparing.names, []
        verb = "takes" if line.metric == "cpu" else "is"
        sentence = f"{comparing.of}: {b} {verb} {figures(line, a)}: {word}".removeprefix(": ")
    sentence += "".join(f", {text}" for text in texts)
    sentence += f", {rounds_words(comparing)}"
    if len(leading) == 1 and (more := settles(leading[0][1], comparing.paired)):
        sentence += f"; {more}"
    if all(line.judged.p is None for _, line in leading):
        takes = {line.judged.why.partition(": ")[2]: None for _, line in leading}
        sentence += "".join(f"; {text}" for text in takes if text and text not in sentence)
    if comparing.aa and word not in OPEN:
        sentence += "; a false alarm, or the sides were not alike"
    return sentence + _raised(comparing) + _doubted(rows) + _others(comparing)


def _worse(comparing: Comparing) -> list[str]:
    """Rows on which B is worse by what no figure shows: the first with its reason."""
    rows = [row for row in comparing.rows if row.worse]
    if not rows:
        return []
    title = f"{row_title(comparing, rows[0])}: " if len(comparing.rows) > 1 else ""
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return [f"{title}{rows[0].worse}{more}"]


def _leading(comparing: Comparing, leading: Sequence[tuple[ComparedRow, Compared]]) -> list[str]:
    """The figures behind the word: of one line all, of several their range."""
    if len(leading) != 1:
        known: dict[str, list[Compared]] = {}
        for _, line in leading:
            if line.ratio is not None:
                known.setdefault(line.metric, []).append(line)
        return [range_text(lines) for lines in known.values()]
    row, line = leading[0]
    title = [row_title(comparing, row)] if len(comparing.rows) > 1 else []
    return [*title, figures(line)]


def _raised(comparing: Comparing) -> str:
    """`; alarms from 24 % on (noise floor)`, where a floor is above the threshold."""
    raised = max((line.judged.threshold for line in comparing.gated), default=0.0)
    if raised <= comparing.threshold:
        return ""
    return f"; alarms from {100 * raised:.3g} % on (noise floor)"


def _others(comparing: Comparing) -> str:
    """What is not in the verdict: rows of one side, and that the runs are unlike."""
    counts = Counter(one.side for one in comparing.alone)
    counted = [
        f"{n} row{'' if n == 1 else 's'} in {side} alone" for side, n in sorted(counts.items())
    ]
    alone = f"; not compared: {', '.join(counted)}" if counted else ""
    return f"{alone}; unlike runs, compared by force" if comparing.unlike else alone


def _where(comparing: Comparing, word: Word) -> str:
    """` in 1 of 3 rows (same in 2)`; empty where there is one."""
    counts = Counter(row.word for row in comparing.rows)
    if len(comparing.rows) < 2:
        return ""
    others = ", ".join(f"{other} in {n}" for other, n in counts.items() if other != word)
    return f" in {counts[word]} of {len(comparing.rows)} rows{f' ({others})' if others else ''}"


def range_text(lines: Sequence[Compared]) -> str:
    """`9 to 18 % slower`, of lines of one metric that have a ratio: of those that are open all
    that their intervals hold."""
    ratios: list[float] = []
    for line in lines:
        interval = line.judged.interval
        if interval is not None and line.judged.word in OPEN:
            ratios += (interval.low, interval.high)
        elif line.ratio is not None:
            ratios.append(line.ratio)
    return change_text(lines[0], ratios)


def _doubted(rows: Sequence[ComparedRow]) -> str:
    """`; doubted: client-bound (A and B), errors (B)`."""
    sides: dict[str, set[str]] = {}
    for row in rows:
        for one in row.doubts:
            if one.code in IN_THE_VERDICT:
                sides.setdefault(one.code, set()).add(one.side)
    codes = [f"{code} ({' and '.join(sorted(of))})" for code, of in sides.items()]
    return f"; warnings: {', '.join(codes)}" if codes else ""
