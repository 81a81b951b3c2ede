"""The words of a comparison: a metric of a row on both sides, the row, the whole of B against A.

Pure; plain, frozen content. Rule: what cannot be compared has its place here too: a row that one
side alone has, a round that failed, a metric that was not measured. Rows are made
in rows.py, the whole in the package itself; the reports draw it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from serve_bench.analysis.comparing.doubts import Doubt, Letter
from serve_bench.analysis.comparison import Interval, Judged, Word
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.result import Better, JsonObject, Launch, Run

GATE: Final = (MAIN,)
"""What enters the exit code unless more is asked for."""


def geometric_mean(values: Iterable[float]) -> float | None:
    """Of values above 0; None where there is none."""
    logs = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logs)) if logs else None


def worst(words: Iterable[Word]) -> Word:
    """The word that stands for several; of none, inconclusive."""
    found = set(words)
    order: tuple[Word, ...] = ("regressed", "inconclusive", "improved", "same")
    return next((word for word in order if word in found), "inconclusive")


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
        """B/A; known without an interval too."""
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
class Slicing:
    """How a row of versus was measured. `drain_s`: of A and B, medians; `slices`: of each side in
    all rounds; `short`: rounds in which a slice was under five drains; `why` it was
    not as asked for."""

    method: str
    slice_s: float
    connections: int | None
    asked_connections: int | None
    drain_s: tuple[float | None, float | None]
    slices: int
    short: int
    why: str | None = None


@dataclass(frozen=True)
class ComparedRow:
    """A row of a cell. `variants`: the names of both sides where a run has several. `planned`:
    rounds (of A and B), `measured` those with a value on that side, of pairs on both. `worse`: why
    B is worse whatever its figures say, else empty. `rate_per_s`: of an open loop."""

    cell: JsonObject
    row: str
    client: str
    lines: tuple[Compared, ...]
    doubts: tuple[Doubt, ...] = ()
    effects: tuple[Effect, ...] = ()
    slicing: Slicing | None = None
    variants: tuple[str, str] | None = None
    planned: tuple[int, int] = (0, 0)
    measured: tuple[int, int] = (0, 0)
    worse: str = ""
    rate_per_s: float | None = None

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
    """B against A, of one run of versus or of two stored runs.

    `threshold` is as asked for; that of a metric is the larger of it and its floor. `noise`: the
    run of the floors; `unlike`: in what runs differ that were compared by force; `notes`: how sides
    were matched.
    """

    kind: Literal["versus", "compare"]
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
        return self.kind == "versus" and bool(self.sides[0].run.suite.get("aa"))

    @property
    def word(self) -> Word:
        """The verdict on the whole gate: the worst that any of its rows has."""
        return worst(row.word for row in self.rows)
