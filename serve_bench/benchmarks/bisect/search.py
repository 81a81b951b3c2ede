"""The search for the version at which a figure steps: which is tested next, and what it says.

Pure. Rule: a version is bad or good where its whole interval lies on that side of the middle
between the ends, in the one figure that tells the ends apart; else it takes more rounds. The
middle is half the loss of the bad end, as a logarithm. The ends, and at last both versions beside
the step, are told apart where the interval excludes half of the loss between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from serve_bench.analysis.comparing.model import Compared, ComparedRow, Comparing
from serve_bench.analysis.ratios import FEWEST, Interval
from serve_bench.core.errors import FormatError
from serve_bench.core.result import Version, cell_slug
from serve_bench.core.schema import built, plain

Word: TypeAlias = Literal["good", "bad", "broken", "undecided"]

TRIES: Final = 2
"""Rounds without a figure after which a version counts as broken."""


@dataclass(frozen=True)
class SearchPoint:
    """A version: `ray==2.59.0`, or a commit with its first line."""

    name: str
    title: str = ""


@dataclass(frozen=True)
class BisectSuite:
    """What a run of bisect searches: `points` from the good end to the bad one, both among them.
    `rounds`: the most of a comparison; `threshold`, `gate`: as of versus. `python`: the interpreter
    that environments are made of; `cutoff`: of their packages, as a date; `extra`: further ones."""

    name: str
    points: tuple[SearchPoint, ...]
    rounds: int
    threshold: float
    gate: tuple[str, ...]
    python: str | None = None
    cutoff: str | None = None
    extra: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BisectSuite:
        """The reverse of `to_json`. Raises FormatError."""
        suite = built(cls, data, "suite")
        if len(suite.points) < 2:
            raise FormatError("suite.points: a search has two ends")
        return suite


@dataclass(frozen=True)
class Search:
    """Where a search stands: `words` of points by their place; those of the ends are known."""

    count: int
    words: Mapping[int, Word] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[int, int]:
        """The last good point, and the first bad one behind it."""
        first = min(
            (at for at, word in self.words.items() if word == "bad"), default=self.count - 1
        )
        good = [at for at, word in self.words.items() if word == "good" and at < first]
        return max(good, default=0), first

    @property
    def between(self) -> tuple[int, ...]:
        """The points between both."""
        low, high = self.ends
        return tuple(range(low + 1, high))

    @property
    def next(self) -> int | None:
        """The point to test: that nearest to the middle which has no word yet; None: all have."""
        low, high = self.ends
        left = [at for at in self.between if at not in self.words]
        return min(left, key=lambda at: (abs(2 * at - low - high), at), default=None)

    @property
    def tests_left(self) -> int:
        """How many more it takes, where none is broken."""
        low, high = self.ends
        return (high - low - 1).bit_length()


@dataclass(frozen=True)
class SearchLine:
    """The figure that tells the ends apart, of a row. `loss`: of the bad end, as a logarithm."""

    cell: str
    row: str
    client: str
    metric: str
    loss: float

    def of(self, comparing: Comparing) -> tuple[ComparedRow, Compared]:
        """The same figure of another comparison. Raises FormatError where it has none."""
        for row in comparing.rows:
            if (cell_slug(row.cell), row.row, row.client) == (self.cell, self.row, self.client):
                return row, row.line(self.metric)
        raise FormatError(f"{self.row} of {self.cell}: not in this comparison")


def loss_of(line: Compared) -> float:
    """How much worse B is, as a logarithm; below 0: better."""
    interval = line.judged.interval
    assert interval is not None, "a line with a loss has an interval"
    return -interval.center if line.better == "higher" else interval.center


def leading(comparing: Comparing) -> SearchLine | None:
    """Of the gated figures whose loss is proven, the one that is surest; None: there is none."""
    proven = [
        (line.judged.p or 0.0, -loss_of(line), at, line)
        for at, row in enumerate(comparing.rows)
        for line in row.lines
        if line.gated and line.judged.word in ("regressed", "slower")
    ]
    if not proven:
        return None
    _, loss, at, line = min(proven, key=lambda one: one[:3])
    row = comparing.rows[at]
    return SearchLine(cell_slug(row.cell), row.row, row.client, line.metric, -loss)


def side_of(interval: Interval | None, loss: float, middle: float) -> Word:
    """On which side of the middle the whole interval lies; undecided below three rounds."""
    if interval is None or interval.fewest < FEWEST:
        return "undecided"
    if loss - interval.half >= middle:
        return "bad"
    return "good" if loss + interval.half <= middle else "undecided"


def broken(comparing: Comparing) -> str:
    """Why B has no figures that could be judged; empty where it has."""
    if not any(min(row.measured) for row in comparing.rows):
        return comparing.failures[-1] if len(comparing.failures) >= TRIES else ""
    if all(min(row.measured) >= FEWEST for row in comparing.rows):
        return next((row.worse for row in comparing.rows if row.worse), "")
    return ""


def word_of(comparing: Comparing, line: SearchLine | None = None) -> Word:
    """What a comparison says of B; undecided: more rounds may tell. `line`: the figure that tells
    the ends apart; None: B is to be told from A itself."""
    if broken(comparing):
        return "broken"
    if line is not None:
        compared = line.of(comparing)[1]
        interval = compared.judged.interval
        return side_of(interval, loss_of(compared) if interval else 0.0, line.loss / 2)
    lead = leading(comparing)
    if lead is not None:
        interval = lead.of(comparing)[1].judged.interval
        return "bad" if side_of(interval, lead.loss, lead.loss / 2) == "bad" else "undecided"
    return "good" if comparing.settled else "undecided"


def version_of(
    comparing: Comparing, names: tuple[str, str], folder: str, line: SearchLine | None = None
) -> Version:
    """What a comparison says, as it is recorded. `names`: of version and base."""
    word = word_of(comparing, line)
    line = line or leading(comparing)
    rounds = max((min(one.measured) for one in comparing.rows), default=0)
    if word == "broken" or not comparing.rows:
        return Version(*names, word, broken(comparing), folder, rounds)
    row, compared = line.of(comparing) if line else (comparing.rows[0], comparing.rows[0].lines[0])
    interval, why = compared.judged.interval, comparing.word if line is None else ""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return Version(
        *(*names, word, why, folder, rounds, compared.metric, row.row),
        ratio=compared.ratio,
        low=low,
        high=high if high is None or math.isfinite(high) else None,
    )


@dataclass(frozen=True)
class SearchState:
    """What the records of a run say. `step`: the comparison of both versions beside it, where the
    bad one is behind it; None: it was not made, or `ends` (bad against good) do not differ."""

    points: tuple[SearchPoint, ...]
    search: Search
    ends: Version | None
    step: Version | None
    versions: tuple[Version, ...]

    @property
    def decided(self) -> bool:
        """Whether the step is proven, and what lies between its versions is broken."""
        words = [self.search.words.get(at) for at in self.search.between]
        proven = self.step is not None and self.step.word == "bad"
        return proven and all(word == "broken" for word in words)

    @property
    def pair(self) -> tuple[SearchPoint, SearchPoint]:
        """The last good version, and the first bad one."""
        low, high = self.search.ends
        return self.points[low], self.points[high]


def state_of(points: Sequence[SearchPoint], records: Sequence[Version]) -> SearchState:
    """Where a search stands, by what is recorded of it."""
    places = {one.name: at for at, one in enumerate(points)}
    known = {(one.version, one.base): one for one in records}
    base, last = points[0].name, points[-1].name
    words: dict[int, Word] = {
        places[one.version]: one.word
        for one in records
        if one.base == base and 0 < places.get(one.version, 0) < len(points) - 1
    }
    search = Search(len(points), words)
    low, high = search.ends
    ends = known.get((last, base))
    step = known.get((points[high].name, points[low].name)) if search.next is None else None
    return SearchState(tuple(points), search, ends, step, tuple(known.values()))
