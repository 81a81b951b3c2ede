"""The search on planted steps: which version it tests next, its words, and how often it is right.

Measurements are drawn: the logarithm of each round's ratio is normal around the planted loss, and
one round in twenty has a launch that is 30 % slow on one side. Seeds are fixed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from serve_bench.analysis.comparing.model import Compared, ComparedRow, Comparing
from serve_bench.analysis.ratios import Hypothesis, judge, paired
from serve_bench.benchmarks.bisect.document import sentences_of
from serve_bench.benchmarks.bisect.search import (
    Search,
    SearchLine,
    SearchPoint,
    SearchState,
    Word,
    leading,
    state_of,
    version_of,
    word_of,
)
from serve_bench.core.result import Version

ROUNDS = 20


def compared(throughput: Sequence[float], cpu: Sequence[float], *, worse: str = "") -> Comparing:
    """A comparison whose rounds have these logarithms of B/A."""
    each = [("throughput", "higher", throughput), ("cpu", "lower", cpu)]
    family = [
        Hypothesis(paired(logs, ROUNDS) if len(logs) > 1 else None, better)  # type: ignore[arg-type]
        for _, better, logs in each
    ]
    lines = tuple(
        Compared(
            metric,
            "",
            better,  # type: ignore[arg-type]
            dict.fromkeys(range(len(logs)), 1.0),
            {at: math.exp(one) for at, one in enumerate(logs)},
            judged,
            True,
        )
        for (metric, better, logs), judged in zip(each, judge(family), strict=True)
    )
    rounds = (len(throughput),) * 2
    row = ComparedRow({}, "row", "raw", lines, planned=rounds, measured=rounds, worse=worse)
    return Comparing("versus", (), (row,), 0.05, ("throughput", "cpu"))  # type: ignore[arg-type]


class Planted:
    """Versions of which those from `step` on lose `loss`; `broken` ones cannot be measured."""

    def __init__(
        self, count: int, step: int, loss: float, sd: float, broken: set[int], seed: object
    ) -> None:
        self.points = tuple(SearchPoint(f"v{at}") for at in range(count))
        self.step, self.loss, self.sd, self.broken = step, loss, sd, broken
        self.draw = random.Random(str(seed))
        self.records: list[Version] = []
        self.rounds = 0

    def log(self, at: int, base: int) -> float:
        drawn = self.draw.gauss(0, self.sd)
        if self.draw.random() < 0.05:
            drawn += self.draw.choice((-1, 1)) * 0.357
        return drawn + math.log(1 - self.loss) * ((at >= self.step) - (base >= self.step))

    def compare(self, at: int, base: int, line: SearchLine | None = None) -> tuple[Word, Comparing]:
        """As drive.py does: rounds until there is a word."""
        names = self.points[at].name, self.points[base].name
        comparing = compared([], [])
        if at in self.broken:
            self.records.append(Version(*names, "broken"))
            return "broken", comparing
        logs: list[float] = []
        while len(logs) < ROUNDS and word_of(comparing, line) == "undecided":
            logs.append(self.log(at, base))
            comparing = compared(logs, [self.draw.gauss(0, self.sd) for _ in logs])
        self.rounds += len(logs)
        self.records.append(version_of(comparing, names, "", line))
        return word_of(comparing, line), comparing

    def searched(self) -> SearchState:
        last = len(self.points) - 1
        word, ends = self.compare(last, 0)
        if word == "bad":
            words: dict[int, Word] = {}
            search, line = Search(len(self.points), words), leading(ends)
            while (at := search.next) is not None:
                words[at] = self.compare(at, 0, line)[0]
            low, high = search.ends
            if high - low < last:
                self.compare(high, low)
        return state_of(self.points, self.records)


@pytest.mark.parametrize("loss", [0.1, 0.06])
def test_the_planted_version_is_named(loss: float) -> None:
    """Two times 100 searches: never another one, and of 10 % and 6 % nearly all are decided."""
    wrong, decided, rounds = [], 0, 0
    for seed in range(100):
        draw = random.Random(f"{loss}/{seed}")
        count = draw.randint(3, 14)
        step = draw.randint(1, count - 1)
        broken = {at for at in range(1, count - 1) if draw.random() < 0.1}
        planted = Planted(count, step, loss, 0.02, broken, seed)
        state = planted.searched()
        low, high = state.search.ends
        rounds += planted.rounds
        if state.decided:
            decided += 1
            right = low < step <= high and all(at in broken for at in range(low + 1, high))
            wrong += [] if right else [(seed, low, high, step)]
    assert wrong == []
    assert decided >= 95, decided
    assert rounds > 0


def test_without_a_difference_nothing_is_named() -> None:
    words = [Planted(8, 99, 0.1, 0.02, set(), seed).searched() for seed in range(40)]
    assert sum(one.decided for one in words) <= 1
    assert all(one.ends is not None for one in words)
    same = [one for one in words if one.ends is not None and one.ends.word == "good"]
    assert len(same) >= 30
    assert "the ends do not differ" in next(sentences_of(same[0]))


def test_a_gain_is_no_loss() -> None:
    state = Planted(8, 3, -0.2, 0.02, set(), 1).searched()
    assert state.ends is not None and state.ends.word == "good" and not state.decided
    assert "improved" in next(sentences_of(state))


def test_what_is_tested_next() -> None:
    assert Search(9).next == 4 and Search(9).tests_left == 3
    assert Search(9, {4: "good"}).next == 6 and Search(9, {4: "bad"}).next == 2
    assert Search(9, {4: "broken"}).next == 3 and Search(9, {4: "broken", 3: "broken"}).next == 5
    assert Search(2).next is None and Search(2).tests_left == 0
    assert Search(9, {4: "bad", 2: "good", 3: "undecided"}).ends == (2, 4)
    assert Search(9, {4: "bad", 2: "good", 3: "undecided"}).next is None


def test_all_broken_between_leave_several() -> None:
    planted = Planted(6, 3, 0.2, 0.01, {1, 2, 3, 4}, 1)
    state = planted.searched()
    assert state.decided and state.search.between == (1, 2, 3, 4)
    lines = [*sentences_of(state)]
    assert "the step is between v0 and v5" in lines[0] and "v1, v2, v3, v4" in lines[1]


def test_one_that_is_undecided_beside_the_step_decides_nothing() -> None:
    """A version halfway between the ends is neither good nor bad, whatever the rounds."""
    points = tuple(SearchPoint(f"v{at}") for at in range(3))
    half = compared([-0.1 + 0.02 * (-1) ** at for at in range(20)], [0.0] * 20)
    ends = compared([-0.2 + 0.01 * (-1) ** at for at in range(20)], [0.0] * 20)
    line = leading(ends)
    assert line is not None and line.metric == "throughput" and word_of(ends) == "bad"
    assert word_of(half, line) == "undecided"
    state = state_of(
        points, [version_of(ends, ("v2", "v0"), "a"), version_of(half, ("v1", "v0"), "b", line)]
    )
    assert not state.decided and "not decided: v1" in [*sentences_of(state)][-1]


def test_what_fails_is_broken() -> None:
    assert word_of(compared([-0.5, -0.5, -0.5], [0.0] * 3, worse="12 % of B failed")) == "broken"
    assert word_of(compared([-0.5, -0.5], [0.0] * 2, worse="12 % of B failed")) == "undecided"
    assert word_of(compared([], [])) == "undecided"
