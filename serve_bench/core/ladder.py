"""A growing load: which number of clients comes next, when to stop, the knee and the collapse.

Pure decisions on what was measured so far; nothing here drives a load. Rule: a step measured
several times counts by its median, so that one bad moment neither ends a ladder nor makes a
collapse. A failed step is one with a throughput of 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final, NamedTuple

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import STEPS
from serve_bench.core.numbers import Connections, Count
from serve_bench.core.traffic import Traffic

PUBLISHED: Final = (10, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500, 750, 800)
"""The users of the published recommendation benchmark."""

PRESS: Final = (1, 10, 20, 50, 100, 200, 500, 1000, 1500, 2000, 3000)
"""The clients of the published press test."""

LEAST_GAIN: Final = 0.02
"""A step that gains less over the best before it is no gain; two in a row end the growing."""

KNEE: Final = 0.95
"""The knee is the first step with this share of the best throughput."""

COLLAPSE: Final = 0.8
"""A step behind the best with less than this share of its throughput is a collapse."""

COLLAPSE_RUNS: Final = 3
"""How often a step that has fallen is measured where a command looks for collapses."""

CLOSE: Final = 1.1
"""Refinement stops between neighbours that are closer than this."""

USUAL_STEPS: Final = 8
"""Steps that a ladder grows by itself, for an estimate of time alone."""

_BELOW_TEN: Final = (1, 2, 3, 5, 7)
_DECADE: Final = (10, 15, 20, 30, 40, 50, 75)


@dataclass(frozen=True)
class Rung:
    """One measured step: clients at once, and their throughput (requests/s)."""

    clients: int
    throughput: float


@dataclass(frozen=True)
class Ladder:
    """How a load grows.

    `runs`: how often a step is measured that fell below COLLAPSE of the best with fewer clients,
    since a collapse is rarely the same twice; and, at the end, the best that steps have fallen
    from."""

    steps: tuple[Connections, ...] | None = None  # None: it grows from `start` to `ceiling`
    start: Connections = 10
    ceiling: Connections = 10_000
    refinements: Count = 4  # steps around the best, once it has stopped growing
    runs: Count = 1
    traffic: Traffic | None = None  # of its requests; None: plain HTTP

    def of(self, traffic: Traffic) -> Ladder:
        """Return the ladder with requests of this kind."""
        return self if traffic == Traffic() else replace(self, traffic=traffic)

    @property
    def known(self) -> tuple[int, ...]:
        """The steps that are known before anything is measured."""
        return self.steps or (min(self.start, self.ceiling),)

    @property
    def expected_steps(self) -> int:
        """About how many steps it will take; a ladder that grows by itself refines too."""
        return len(self.steps) if self.steps is not None else USUAL_STEPS + self.refinements

    def text(self, noun: str) -> str:
        """Describe the steps in a line of a plan. `noun`: what a client is called."""
        again = f"; one that falls {self.runs} times" if self.runs > 1 else ""
        if self.steps is not None:
            return f"{noun}: {', '.join(map(str, self.steps))}{again}"
        then = f"; then up to {self.refinements} steps around the best" if self.refinements else ""
        return (
            f"{noun}: from {self.start} up, until two steps gain less than "
            f"{100 * LEAST_GAIN:.0f} %, at most {self.ceiling}{then}{again}"
        )


@dataclass(frozen=True)
class Next:
    """Measure this many clients next."""

    clients: int
    why: str  # "listed", "grow", "refine", "repeat" (a collapse), or "again" (in doubt)


@dataclass(frozen=True)
class Stop:
    """Nothing more to measure. `why` is a line for a person."""

    why: str


def read_ladder(
    steps: Sequence[str], flag: str, ceiling: int = 10_000, published: tuple[int, ...] = PUBLISHED
) -> Ladder:
    """Build a ladder from steps that `read_step` accepted.

    They are the word auto, the word published, or numbers of clients in the order to run. Raises
    BadInput where a word does not stand alone."""
    if [*steps] == ["auto"]:
        return Ladder(ceiling=ceiling)
    if [*steps] == ["published"]:
        return Ladder(steps=published)
    if words := {"auto", "published"} & {*steps}:
        raise BadInput(f"{flag}: {min(words)!r} is not allowed; it takes {STEPS}")
    return Ladder(steps=tuple(map(int, steps)))


def decide(ladder: Ladder, measured: Sequence[Rung]) -> Next | Stop:
    """Decide what to do after these steps, which are in the order in which they were measured."""
    if (fallen := _find_fallen(ladder, measured)) is not None:
        return Next(fallen, "repeat")
    move = onward(ladder, measured)
    shape = find_shape(measured)
    if isinstance(move, Stop) and (top := shape.best) is not None and shape.collapses:
        # The best of many noisy steps is too high: what others fell from is to be as sure as they.
        runs = sum(1 for step in measured if step.clients == top.clients)
        if runs < ladder.runs:
            return Next(top.clients, "repeat")
    return move


def onward(ladder: Ladder, measured: Sequence[Rung]) -> Next | Stop:
    """Find the next step that was not measured yet, repetitions aside."""
    done = {step.clients for step in measured}
    if ladder.steps is not None:
        left = [clients for clients in ladder.steps if clients not in done]
        return Next(left[0], "listed") if left else Stop("the list is measured")
    first = min(ladder.start, ladder.ceiling)
    if not measured:
        return Next(first, "grow")
    grown = _list_rising(measured)
    saturated = _gains_no_more(grown)
    above = min(rung_above(grown[-1].clients), ladder.ceiling)
    if not saturated and above > grown[-1].clients:
        return Next(above, "grow")
    refined = len(done) - len(grown)
    if refined < ladder.refinements and (between := _find_between(measured)) is not None:
        return Next(between, "refine")
    if saturated:
        return Stop(f"two steps gained less than {100 * LEAST_GAIN:.0f} %")
    return Stop(f"the ceiling of {ladder.ceiling} clients is reached")


def rung_above(clients: int) -> int:
    """Return the next number of clients of the series 1 2 3 5 7 10 15 20 30 40 50 75 100 ..."""
    above_ten = (rung * int(10**power) for power in count() for rung in _DECADE)
    return next(rung for rung in chain(_BELOW_TEN, above_ten) if rung > clients)


def merged(measured: Iterable[Rung]) -> tuple[Rung, ...]:
    """Merge repeated steps: one per number of clients, ascending, with the median throughput."""
    by_clients: dict[int, list[float]] = {}
    for step in measured:
        by_clients.setdefault(step.clients, []).append(step.throughput)
    return tuple(
        Rung(clients, statistics.median(rates)) for clients, rates in sorted(by_clients.items())
    )


class LadderShape(NamedTuple):
    """What steps show together."""

    steps: tuple[Rung, ...]  # one for each number of clients
    best: Rung | None = None  # highest throughput, then fewest clients; None: nothing served
    knee: Rung | None = None  # fewest clients that reach KNEE of the best; more add mostly latency
    collapses: tuple[Rung, ...] = ()  # more clients than the best, below COLLAPSE of it


def find_shape(measured: Iterable[Rung]) -> LadderShape:
    """Find the best of these steps, the knee below it and the collapses above."""
    steps = merged(measured)
    top = max(steps, key=lambda step: (step.throughput, -step.clients), default=None)
    if top is None or top.throughput <= 0:
        return LadderShape(steps)
    knee = next(step for step in steps if step.throughput >= KNEE * top.throughput)
    more = [step for step in steps if step.clients > top.clients]
    fallen = [step for step in more if step.throughput < COLLAPSE * top.throughput]
    return LadderShape(steps, top, knee, (*fallen,))


def _find_fallen(ladder: Ladder, measured: Sequence[Rung]) -> int | None:
    """Return the clients of a step that has fallen and was not measured often enough.

    Its first run decides, compared with what was measured before; later runs show how it falls."""
    for place, step in enumerate(measured):
        before = [rung for rung in measured[:place] if rung.clients < step.clients]
        if any(rung.clients == step.clients for rung in measured[:place]) or not before:
            continue
        if step.throughput == 0:
            continue  # nothing was served: a repetition would show no more
        fell = step.throughput < COLLAPSE * max(rung.throughput for rung in merged(before))
        runs = sum(1 for rung in measured if rung.clients == step.clients)
        if fell and runs < ladder.runs:
            return step.clients
    return None


def _list_rising(measured: Sequence[Rung]) -> tuple[Rung, ...]:
    """Return the steps of the growing part: each has more clients than all before it.

    Refinements and repetitions are left out: they are not above all before them."""
    rising: list[Rung] = []
    values = {step.clients: step for step in merged(measured)}
    for step in measured:
        if not rising or step.clients > rising[-1].clients:
            rising.append(values[step.clients])
    return tuple(rising)


def _gains_no_more(grown: Sequence[Rung]) -> bool:
    """Return whether each of the last two steps gained under LEAST_GAIN over the best before."""
    rates = [step.throughput for step in grown]
    return len(rates) > 2 and all(
        rate == 0 or rate < max(rates[:place]) * (1 + LEAST_GAIN)
        for place, rate in [*enumerate(rates)][-2:]
    )


def _find_between(measured: Sequence[Rung]) -> int | None:
    """Return the clients halfway from the best step to the wider of its gaps.

    None when both neighbours are close, or nothing was served."""
    steps, top, *_ = find_shape(measured)
    if top is None:
        return None
    place = steps.index(top)
    gaps = []
    for low, high in ((place - 1, place), (place, place + 1)):
        if low >= 0 and high < len(steps):
            fewer, more = steps[low].clients, steps[high].clients
            middle = round((fewer * more) ** 0.5)
            if more > fewer * CLOSE and fewer < middle < more:
                gaps.append((more / fewer, middle))
    return max(gaps)[1] if gaps else None
