"""The types of a comparison: a metric of a row on both sides, the row, and the whole.

Pure; plain, frozen content. Rule: what cannot be compared has its place here too: a row that only
one side has, a round that failed, a metric that was not measured. The words of a comparison stand
below."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from serve_bench.analysis.comparing.values import Doubt
from serve_bench.analysis.ratios import CONFIDENCE, FEWEST, Judged, Word
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.waterfall import HopShift
from serve_bench.core.figures import percent, ratio_text
from serve_bench.core.result import Better, JsonObject, Launch, Run, RunStop, cell_slug

GATE: Final = (MAIN,)
"""What enters the exit code unless more is asked for."""


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of values above 0; None where there is none."""
    logs = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logs)) if logs else None


def worst(words: Iterable[Word]) -> Word:
    """Return the word that stands for several: the worst; inconclusive where there is none."""
    distinct = set(words)
    order: Final = ("regressed", "slower", "inconclusive", "improved", "faster", "same")
    return next((word for word in order if word in distinct), "inconclusive")


@dataclass(frozen=True)
class Compared:
    """A metric of a row on both sides."""

    metric: str
    unit: str
    better: Better
    a_values: Mapping[int, float]  # by round; of pairs only the rounds that both sides have
    b_values: Mapping[int, float]
    judged: Judged
    gated: bool

    @property
    def a(self) -> float | None:
        """The geometric mean of A over its launches; None where none has a value."""
        return geometric_mean(self.a_values.values())

    @property
    def b(self) -> float | None:
        """The geometric mean of B over its launches; None where none has a value."""
        return geometric_mean(self.b_values.values())

    @property
    def ratio(self) -> float | None:
        """B/A: that of the interval, which odd rounds move little; known without one too."""
        if self.judged.interval is not None:
            return self.judged.interval.ratio
        return self.b / self.a if self.a and self.b else None


@dataclass(frozen=True)
class ComparedRow:
    """A row of a cell, on A and on the side that is compared with it."""

    cell: JsonObject
    row: str
    client: str
    lines: tuple[Compared, ...]
    doubts: tuple[Doubt, ...] = ()
    # Requests/s in slices over those of a steady load, by side and round.
    in_slices: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    slicing: JsonObject = field(default_factory=dict)  # method, why not as asked, figures
    variants: tuple[str, str] | None = None  # names on both sides, where a run has several
    planned: tuple[int, int] = (0, 0)  # rounds of A and B
    measured: tuple[int, int] = (0, 0)  # rounds with a value on that side, of pairs on both
    worse: str = ""  # why B is worse whatever its figures say, else empty
    rate_per_s: float | None = None  # of an open loop
    hops: tuple[HopShift, ...] = ()  # the latency of traced requests, and each of its hops
    side: str = "B"  # the letter of the side that is compared with A
    work: tuple[str, ...] = ()  # in what the sides did not do the same (work.py)
    groups: str = ""  # what two groups of launches say of B/A (groups.py)

    @property
    def word(self) -> Word:
        """The verdict on the row: the worst of its gated lines, and no better than it is."""
        words = (line.judged.word for line in self.lines if line.gated)
        return "regressed" if self.worse else worst(words)

    def line(self, metric: str) -> Compared:
        """Return the line of a metric; StopIteration if the row has none."""
        return next(line for line in self.lines if line.metric == metric)


@dataclass(frozen=True)
class About:
    """A side: its name in this comparison, its run, the launches that were up; its letter."""

    name: str
    variant: str
    run: Run
    launches: tuple[Launch, ...]
    settings: JsonObject = field(default_factory=dict)
    letter: str = "B"


@dataclass(frozen=True)
class Alone:
    """A row that one side alone has."""

    side: str
    variant: str | None
    cell: JsonObject
    row: str
    client: str

    def __str__(self) -> str:
        """`100 connections (raw) of bs1-ongoing1-rep1`."""
        place = ", ".join(word for word in (self.variant, cell_slug(self.cell)) if word)
        return f"{self.row} ({self.client}) of {place}"


@dataclass(frozen=True)
class Comparing:
    """Sides against A, of one run of versus, of two stored runs, or of a run and earlier ones.

    A is the first of `sides`. All figures are judged together, and `confidence` is that of each
    interval, by Bonferroni: those of all sides hold at once in 95 % of cases."""

    kind: Literal["versus", "compare", "history"]
    sides: tuple[About, ...]
    rows: tuple[ComparedRow, ...]
    threshold: float  # as asked for; that of a metric is the larger of it and its floor
    gate: tuple[str, ...]
    floors: Mapping[str, float] = field(default_factory=dict)
    noise: str | None = None  # the run of the floors
    alone: tuple[Alone, ...] = ()
    failures: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()  # in what runs differ that were compared by force
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # how sides were matched
    unfair: tuple[str, ...] = ()  # which other programs ran during the load, in sentences
    stop: RunStop | None = None
    of: str = ""  # what was measured, where several comparisons stand together
    confidence: float = CONFIDENCE

    @property
    def names(self) -> tuple[str, str]:
        """The names of A and B."""
        return self.sides[0].name, self.sides[1].name

    def split(self) -> tuple[Comparing, ...]:
        """Return a comparison for each side against A, named by the side's letter."""
        first, *others = self.sides
        if len(others) == 1:
            return (self,)
        return tuple(
            replace(
                self,
                sides=(first, other),
                rows=tuple(row for row in self.rows if row.side == other.letter),
                of=other.letter,
            )
            for other in others
        )

    @property
    def pairs(self) -> list[tuple[ComparedRow, Compared]]:
        """All metrics of all rows, each with its row."""
        return [(row, line) for row in self.rows for line in row.lines]

    @property
    def paired(self) -> bool:
        """Whether rounds belong together, so that ratios are made within each."""
        return self.sides[0].run == self.sides[1].run

    @property
    def aa(self) -> bool:
        """Whether A was compared with itself."""
        return self.paired and self.sides[0].run.asked.aa

    @property
    def settled(self) -> bool:
        """Whether more rounds would hardly change a word of the gate.

        With rounds enough, a row on which B is worse whatever its figures say is settled, and so is
        a metric without any value."""
        gated = [(row, line) for row, line in self.pairs if line.a_values or line.b_values]
        open_ = [row for row, line in gated if line.gated and not line.judged.settled]
        enough = all(min(row.measured) >= FEWEST for row in self.rows)
        return bool(self.rows) and enough and all(row.worse for row in open_)

    @property
    def word(self) -> Word:
        """The verdict on the whole gate: the worst that any of its rows has."""
        return worst(row.word for row in self.rows)


# A comparison in words: a line of text each, the same in every report and in what a gate says.

OPEN: Final = ("same", "inconclusive")
"""The words of what is not proven to differ."""


def describe_change(line: Compared, a: str = "") -> str:
    """Describe how far B is from A, or say why there is no ratio.

    `14 % slower (4 to 23 %)`, `11.8 times as fast at p99`; `between 4 % slower and 3 % faster`,
    where the interval includes no change. `a`: the name of A, for `14 % slower than A (4 to 23
    %)`."""
    interval = line.judged.interval
    if line.ratio is None:
        return f"{line.metric} {line.judged.why or 'not measured'}"
    kind, _, share = line.metric.rpartition("_")
    percentile = f" at {f'{kind.upper()} {share}'.strip()}"
    what = {"throughput": "", "cpu": " CPU per request"}.get(line.metric, percentile)
    amount, word = _change(line, line.ratio)
    text = f"{amount} {word}{what}"
    text += f" {'as' if 'times' in word else 'than'} {a}" if a else ""
    if interval is None:
        return f"unchanged{what}" if amount == "0" else text
    outward = sorted((interval.low, interval.high), reverse=interval.high <= 1)
    (near, first), (far, last) = (_change(line, end) for end in outward)
    if interval.low <= 1 <= interval.high and line.judged.word in OPEN:
        between = f"between {near} {first} and {far} {last}"
        return f"{'unchanged' if near == far == '0' else between}{what}"
    span = f"{near} {first} to {far} {last}"
    if first == last == word:
        span = f"{near} to {far}{' %' if '%' in word else ''}"
    return f"{text} ({span})"


def _change(line: Compared, ratio: float) -> tuple[str, str]:
    """Return how far B is from A, and in what: (`14`, `% slower`), (`11.8`, `times as fast`)."""
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


def row_title(comparing: Comparing, row: ComparedRow) -> str:
    """Name a row among the others: variant, cell and client where they differ."""
    cells = {cell_slug(other.cell) for other in comparing.rows}
    clients = {other.client for other in comparing.rows if other.row == row.row}
    words = [
        variant_of(row),
        cell_slug(row.cell) if len(cells) > 1 else None,
        f"{row.row} ({row.client})" if len(clients) > 1 else row.row,
    ]
    return ", ".join(word for word in words if word)


def variant_of(row: ComparedRow) -> str | None:
    """Return the variant of a row, both where they differ; None where a run has one."""
    return None if row.variants is None else " and ".join(dict.fromkeys(row.variants))


def describe_alone(row: Alone) -> str:
    """Describe a row of one side: `100 connections (raw) of bs1-ongoing1-rep1: only in A`."""
    return f"{row}: only in {row.side}"


def name_subject(comparing: Comparing) -> str:
    """Name what is compared: `optimized against default`.

    Of an A/A run `default against itself`; of more sides `3 sides against default`."""
    a, b = comparing.names
    if len(comparing.sides) > 2:
        b = f"{len(comparing.sides) - 1} sides"
    if comparing.aa:
        return f"{a.removesuffix(' (A)')} against itself"
    return f"{comparing.of}: {b} against {a}".removeprefix(": ")
