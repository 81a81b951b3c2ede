"""What is measured of sides that are compared in rounds, whatever kind of run compares them.

A round is a fresh launch of sides, all up at once and never loaded at once; every row of every cell
is measured on each. They are all sides, or A and as many others as can be up beside it: further
rounds take the rest in turn. Rule: what a round does is known before it starts, and drawn from the
seed, so that a plan can be shown and resumed. How long a slice is belongs to slicing.py, what
follows from the figures to analysis/ratios.py. Pure.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from serve_bench.core.app_spec import APPS, AppSpec, app_from_json
from serve_bench.core.axes import Value
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.forms import Rounds
from serve_bench.core.load_spec import Streaming
from serve_bench.core.numbers import MOST_LAUNCHES
from serve_bench.core.own_app import Asked
from serve_bench.core.plan import (
    CHANGE_S,
    FIRST_DEPLOY_S,
    MODEL_S,
    PUBLISHED_AXES,
    REPLICA_S,
    Cell,
    Suite,
    label_of,
)
from serve_bench.core.redaction import hide_settings
from serve_bench.core.result import PlannedTrial, Result, VariantUsed
from serve_bench.core.schema import built, built_with, plain, stored_suite
from serve_bench.core.spec import Spec
from serve_bench.core.suite_facts import side_letters, split_turns
from serve_bench.core.traffic import HANDLES, Row
from serve_bench.core.variants import SETS
from serve_bench.spec.slicing import WINDOW_S

THRESHOLD: Final = 0.05
GATE: Final = ("throughput", "cpu")

#: Seconds besides the load, as measured on a host with 2 cores: the launches of two sides, at once,
#: the end of both, and for each row of a side the start of its worker and the warm-up; beside each
#: window of a handle its driver starts. In the first round each row is looked at before. Deploys at
#: once take a share of what they take one by one.
TWO_UP_S: Final = 12.0
WINDOW_REST_S: Final = 2.5
AT_ONCE: Final = 0.7
TEARDOWN_S: Final = 1.0
ROW_S: Final = 1.3
LOOKS_S: Final = 15.0

QUIET_S: Final = 1.0
"""Before slices nothing is loaded for so long, where CPU is metered: what the processes of a side
use by themselves."""

T = TypeVar("T")


class Times(NamedTuple):
    """The most rounds, and seconds that each row of a side is loaded in them."""

    rounds: int
    side_s: float  # in turn with the others
    steady_s: float  # by itself


@dataclass(frozen=True)
class Side:
    """A side: how it is started, and what is deployed on it."""

    label: str  # in records and reports
    variant: VariantUsed = field(default_factory=lambda: VariantUsed("default"))
    app: AppSpec = APPS["noop"]
    settings: Mapping[str, Value] = field(default_factory=dict)  # over those of each cell

    def cell(self, common: Cell) -> Cell:
        """Return a cell as it is deployed on this side."""
        return {**common, **self.settings}

    @property
    def launched(self) -> VariantUsed:
        """The variant under the name of the side, as a launch records it."""
        return replace(self.variant, name=self.label)

    @property
    def unnamed(self) -> Side:
        """The side without its names: sides that are equal then measure the same."""
        return replace(self, label="", variant=replace(self.variant, name=""))

    def without_each_flag(self) -> Iterator[Side]:
        """Yield the side without each of its flags in turn; one of SETS goes part by part."""
        flags = self.variant.env
        for name in flags:
            taken = {name: {key: value for key, value in flags.items() if key != name}}
            if name in SETS and flags[name] == "1":  # else it sets none
                sets = {part: value for part, value in SETS[name].items() if part not in flags}
                taken = {part: {**flags, part: value} for part, value in sets.items()}
            for part, env in taken.items():
                variant = replace(self.variant, env=env)
                yield replace(self, label=f"{self.label}-{part}", variant=variant)

    def to_json(self) -> dict[str, Any]:
        """Return plain content for the Run record."""
        return plain({**vars(self), "app": self.app.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Side:
        """Reverse `to_json`."""
        return built_with(cls, data, "suite.sides[...]", app=app_from_json)


def name_apart(sides: Sequence[Side]) -> tuple[Side, ...]:
    """Return the sides with distinct labels: twins get " (A)" and " (B)"."""
    labels, letters = Counter(side.label for side in sides), side_letters(len(sides))
    return tuple(
        replace(side, label=f"{side.label} ({letter})") if labels[side.label] > 1 else side
        for side, letter in zip(sides, letters, strict=True)
    )


@dataclass(frozen=True)
class Pairing:
    """A row of a cell in a round: trials of sides that are loaded in turn, and what is drawn."""

    cell: Cell
    row: Row
    planned: tuple[PlannedTrial, ...]
    steady_order: tuple[int, ...]
    seed: int

    def without(self, labels: Collection[str]) -> Pairing:
        """Return the pairing without sides that could not be started."""
        left = [place for place, trial in enumerate(self.planned) if trial.variant not in labels]
        order = tuple(left.index(place) for place in self.steady_order if place in left)
        return replace(self, planned=tuple(self.planned[i] for i in left), steady_order=order)


@dataclass(frozen=True)
class RowPlan:
    """A row of a cell in a round on all sides, in parts that are loaded one after the other."""

    row: Row
    parts: tuple[Pairing, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its trials."""
        return tuple(trial.key for part in self.parts for trial in part.planned)


@dataclass(frozen=True)
class RoundPlan:
    """A round: the sides that are launched, in which order, and the rows measured on them."""

    round: int
    sides: tuple[Side, ...]
    order: tuple[int, ...]
    rows: tuple[RowPlan, ...]

    @property
    def pairings(self) -> tuple[Pairing, ...]:
        """The parts of all rows."""
        return tuple(part for row in self.rows for part in row.parts)

    @property
    def cells(self) -> tuple[tuple[Cell, tuple[RowPlan, ...]], ...]:
        """The rows by cell, in the order of the plan."""
        grouped = groupby(self.rows, lambda row: row.parts[0].cell)
        return tuple((cell, tuple(rows)) for cell, rows in grouped)


@dataclass(frozen=True)
class SidesSpec(Spec):
    """What a run of several sides measures. Seconds are wall-clock; `cells` are complete.

    Its verdicts follow from `threshold`, `gate` and `floors`."""

    usual: ClassVar[Times]
    quick: ClassVar[Times]
    least_metered: ClassVar[int] = 3

    name: str
    sides: tuple[Side, ...]
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    rounds: int = 20  # the most, with `looks`
    side_s: float = 16.0  # measured of each side and row in a round, in slices
    steady_s: float = 2.0  # likewise, without slices
    slice_s: float | None = None  # as requested; None: chosen
    aa: bool = False
    seed: int = 1
    threshold: float = THRESHOLD
    gate: tuple[str, ...] = GATE
    floors: Mapping[str, float] = field(default_factory=dict)  # of `noise`
    noise: str | None = None  # the id of an A/A run
    budget_s: float | None = None  # longest time of the run; None: without a limit
    urls: Mapping[str, str] | None = None  # services that are up, by label; None: clusters
    sample: bool = True
    timeout_s: float = 30.0
    looks: bool = False  # judged after each round, and ended once settled
    streaming: Streaming | None = None
    request: Asked | None = None  # to `urls`
    together: int | None = None  # sides that are up at once; None: all

    def to_json(self) -> dict[str, Any]:
        """Return plain content for the Run record, without a `request` or `together` of None."""
        content = {**vars(self), "sides": [side.to_json() for side in self.sides]}
        content["request"] = self.request and self.request.to_json()
        absent = [name for name in ("request", "together") if content[name] is None]
        return plain({name: value for name, value in content.items() if name not in absent})

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> Self:
        return stored_suite(cls, data, sides=_read_sides)

    @property
    def launched(self) -> tuple[Side, ...]:
        """The sides of which clusters are launched."""
        return self.sides

    @property
    def letters(self) -> dict[str, str]:
        """The letter of each side in a table, by its label."""
        labels = (side.label for side in self.sides)
        return dict(zip(labels, side_letters(len(self.sides)), strict=True))

    @property
    def metered(self) -> bool:
        """Whether the CPU of a side excludes what its processes use while others are loaded.

        With two sides that is half of the time, the same of both, and stays in it."""
        return len(self.sides) >= self.least_metered and self.urls is None

    @property
    def turns(self) -> tuple[tuple[int, ...], ...]:
        """The places of the launched sides that are up in a round; rounds take them in turn."""
        return split_turns(len(self.launched), self.together)

    def of_side(self, side: Side, cell: Cell) -> tuple[Suite, Cell]:
        """Return what a side measures, as a Suite and the cell on this side."""
        whole, timeout_s = side.cell(cell), self.timeout_s
        about = (self.name, side.app, (side.variant,), (whole,), self.rows)
        return Suite(*about, timeout_s=timeout_s, streaming=self.streaming), whole

    def label(self, cell: Cell) -> dict[str, Value]:
        """Return a cell as it is recorded, alike on all sides: without what any side sets."""
        set_by_sides = {name for side in self.sides for name in side.settings}
        named = label_of(cell) if all(name in cell for name in PUBLISHED_AXES) else cell
        return {
            name: hide_settings(value) for name, value in named.items() if name not in set_by_sides
        }

    def plan(self, done: Iterable[str] = ()) -> tuple[RoundPlan, ...]:
        """Plan the rounds in order, whose launches alternate the order of sides.

        Of three or more sides it is drawn from the third round on. A row of which all sides are
        `done` (their keys) is left out; one of which a side is missing is measured anew on all,
        since only what is measured side by side is compared."""
        finished, turns, rounds = set(done), self.turns, list[RoundPlan]()
        for number in range(1, self.rounds + 1):
            sides = tuple(self.launched[place] for place in turns[(number - 1) % len(turns)])
            repeat = 1 + (number - 1) // len(turns)
            rows = self.plan_rows(number, repeat, sides)
            if left := tuple(row for row in rows if not finished.issuperset(row.keys)):
                drawn = repeat if len(sides) > 2 else 2 - repeat % 2
                order = self.turned(range(len(sides)), drawn, f"{number % len(turns)}/sides")
                rounds.append(RoundPlan(number, sides, tuple(order), left))
        return tuple(rounds)

    def turned(self, things: Iterable[T], repeat: int, what: str) -> list[T]:
        """Order things for a round: each second round reverses the order, later ones draw it."""
        ordered = list(things)
        if repeat > 2:
            random.Random(f"{self.seed}/{(repeat - 1) // 2}/{what}").shuffle(ordered)
        return ordered if repeat % 2 else ordered[::-1]

    def plan_rows(self, number: int, repeat: int, sides: Sequence[Side]) -> Iterator[RowPlan]:
        """Yield the rows of a round in order. `repeat`: number of the round for these sides."""
        raise NotImplementedError

    def describe_sides(self) -> Iterable[str]:
        """Describe the sides for a dry run."""
        raise NotImplementedError

    def expected_s(self, rounds: Iterable[RoundPlan]) -> float:
        """Estimate the seconds of these rounds, all of them."""
        total_s = 0.0
        for planned in rounds:
            total_s += self._estimate_launches_s(planned) if self.urls is None else 0.0
            looks_s = LOOKS_S if planned.round == 1 else 0.0
            total_s += (looks_s + (QUIET_S if self.metered else 0.0)) * len(planned.rows)
            for trial in (trial for pairing in planned.pairings for trial in pairing.planned):
                windows = trial.row.protocol in HANDLES
                rest_s = self.side_s / WINDOW_S * WINDOW_REST_S if windows else 0.0
                total_s += self.side_s + self.steady_s + ROW_S + rest_s
        return total_s

    def _estimate_launches_s(self, planned: RoundPlan) -> float:
        deploys_s = 0.0
        for side in planned.sides:
            cells = [side.cell(cell) for cell, _ in planned.cells]
            most = max(side.app.replicas(cell) for cell in cells)
            rankers = max(int(cell["num_replicas"]) if "ranker" in cell else 0 for cell in cells)
            deploys_s += FIRST_DEPLOY_S + CHANGE_S * (len(cells) - 1) + REPLICA_S * (most - 1)
            deploys_s += MODEL_S * rankers
        return TWO_UP_S * max(1.0, len(planned.sides) / 2) + AT_ONCE * deploys_s + TEARDOWN_S


def _read_sides(sides: Any) -> tuple[Side, ...]:
    stored = built(list[Any], sides, "suite.sides")
    if len(stored) < 2:
        raise FormatError("suite.sides: names no two sides")
    return tuple(map(Side.from_json, stored))


def rounds_in_all(asked: Rounds | None, earlier: Result, planned: int, turns: int = 1) -> int:
    """Return the last round of a resumed run; `planned` is what its record has.

    Each round that is asked for is one of each of `turns`. Raises BadInput."""
    stop, last = earlier.stop, earlier.last or planned
    if asked is None:
        return stop.of if stop is not None and stop.why != "settled" else last
    number = turns * asked.number
    if asked.more:
        return min(last + number, MOST_LAUNCHES)
    measured = max((trial.round for trial in earlier.trials), default=0)
    if number < measured:
        left = f"{math.ceil(measured / turns)} are measured; +N adds rounds to them"
        raise BadInput(f"--rounds: {asked.number}: {left}")
    return number
