"""What `serve-bench versus` is asked for: two sides, and the plan of rounds that compares them.

A round is a fresh launch of both sides, both up at once and never loaded at once; every cell and
row is measured on both. Rule: what a round does is known before it starts, and drawn from the seed,
so that a plan can be shown and gone on with. How long it takes stands below, how
long a slice is to slicing.py, what follows from the figures to analysis/ratios.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from serve_bench.analysis.ratios import FEWEST
from serve_bench.core.app_spec import APPS, AppSpec, app_from_json
from serve_bench.core.axes import Value
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Streaming
from serve_bench.core.own_app import Asked
from serve_bench.core.plan import (
    CHANGE_S,
    FIRST_DEPLOY_S,
    MODEL_S,
    PUBLISHED_AXES,
    REPLICA_S,
    Cell,
    Suite,
    duration_text,
    label_of,
)
from serve_bench.core.redaction import hide_settings
from serve_bench.core.result import PlannedTrial, Row, VariantUsed, trial_key
from serve_bench.core.schema import built, built_with, plain, stored_suite

ROUNDS: Final = 20
SIDE_S: Final = 16.0
STEADY_S: Final = 2.0
QUICK_ROUNDS, QUICK_SIDE_S, QUICK_STEADY_S = 3, 4.0, 1.0
THRESHOLD: Final = 0.05
GATE: Final = ("throughput", "cpu")
URL_GATE: Final = ("throughput",)
"""Of services that were up already, whose processes are not known."""


@dataclass(frozen=True)
class Side:
    """A or B: how it is started, what is deployed on it. `settings` hold on this side in every
    cell, over what the cell says. `label` names it in records and reports."""

    label: str
    variant: VariantUsed = field(default_factory=lambda: VariantUsed("default"))
    app: AppSpec = APPS["noop"]
    settings: Mapping[str, Value] = field(default_factory=dict)

    def cell(self, common: Cell) -> Cell:
        """A cell as it is deployed on this side."""
        return {**common, **self.settings}

    @property
    def launched(self) -> VariantUsed:
        """The variant under the name of the side, as a launch records it."""
        return replace(self.variant, name=self.label)

    def same_as(self, other: Side) -> bool:
        """Whether nothing tells the two apart but their labels."""
        named = replace(self.variant, name=other.variant.name)
        return replace(self, label=other.label, variant=named) == other

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return plain({**vars(self), "app": self.app.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Side:
        """The reverse of `to_json`."""
        return built_with(cls, data, "suite.sides[...]", app=app_from_json)


@dataclass(frozen=True)
class VersusSuite:
    """What a run of versus measures. Seconds are wall-clock; `cells` are complete.

    `side_s`: measured in each round of each side and row, in slices; `steady_s`: beside it, without
    slices. `slice_s`: as asked; None: chosen. `urls`: services that are up already, by label, and
    the `request` to them; None: clusters are started. `budget_s`: the longest time of the run,
    None: without a limit. `threshold`, `gate`, `floors` (of the A/A run `noise`): what its verdicts
    are held against. `looks`: it is judged after each round, and ends once it is settled; `rounds`
    are the most.
    """

    name: str
    sides: tuple[Side, Side]
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    rounds: int = ROUNDS
    side_s: float = SIDE_S
    steady_s: float = STEADY_S
    slice_s: float | None = None
    aa: bool = False
    seed: int = 1
    threshold: float = THRESHOLD
    gate: tuple[str, ...] = GATE
    floors: Mapping[str, float] = field(default_factory=dict)
    noise: str | None = None
    budget_s: float | None = None
    urls: Mapping[str, str] | None = None
    sample: bool = True
    timeout_s: float = 30.0
    looks: bool = False
    streaming: Streaming | None = None
    request: Asked | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record; without `request` where clusters are started."""
        content = {**vars(self), "sides": [side.to_json() for side in self.sides]}
        request: Asked | None = content.pop("request")
        return plain(content) | ({} if request is None else {"request": request.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VersusSuite:
        """The reverse of `to_json`, for going on with a stored run. Raises BadInput."""
        return stored_suite(cls, data, sides=_stored_sides)

    def of_side(self, side: Side, cell: Cell) -> tuple[Suite, Cell]:
        """What a side measures, as the words of every other run have it."""
        whole = side.cell(cell)
        suite = Suite(
            self.name,
            side.app,
            (side.variant,),
            (whole,),
            self.rows,
            timeout_s=self.timeout_s,
            streaming=self.streaming,
        )
        return suite, whole

    def label(self, cell: Cell) -> dict[str, Value]:
        """A cell as it is recorded, alike on both sides: without what a side has set otherwise."""
        own = {name for side in self.sides for name in side.settings}
        named = label_of(cell) if all(name in cell for name in PUBLISHED_AXES) else cell
        return {name: hide_settings(value) for name, value in named.items() if name not in own}


def _stored_sides(sides: Any) -> tuple[Side, Side]:
    first, second = built(tuple[Any, Any], sides, "suite.sides")
    return Side.from_json(first), Side.from_json(second)


def sides_of(first: Side, second: Side) -> tuple[Side, Side]:
    """The two with labels that tell them apart: twins get " (A)" and " (B)"."""
    if first.label != second.label:
        return first, second
    return replace(first, label=f"{first.label} (A)"), replace(second, label=f"{second.label} (B)")


def check_apart(first: Side, second: Side) -> None:
    """BadInput where the two are one and the same."""
    if first.same_as(second):
        raise BadInput(
            f"--a, --b: both are {first.label}, with the same flags, options and app: use --aa "
            "for the noise floor"
        )


def check_apps(first: Side, second: Side) -> None:
    """BadInput where one side has an app of the user's own and the other one of the tool's."""
    own = [side.app.own is not None for side in (first, second)]
    if any(own) and not all(own):
        flag, side = ("--b", second) if own[0] else ("--a", first)
        raise BadInput(
            f"{flag}: {side.label} is built-in app {side.app.name}; the other side is your own "
            "app: both need one"
        )


def check_cells(suite: VersusSuite) -> None:
    """BadInput where a side sets what the cells vary: they would not be the cells they say."""
    for number, side in enumerate(suite.sides):
        for name in side.settings:
            if len({cell.get(name) for cell in suite.cells}) > 1:
                flag = f"--{'ab'[number]}-option"
                raise BadInput(f"{flag}: {name} differs from cell to cell of {suite.name} already")


@dataclass(frozen=True)
class Pairing:
    """A row of a cell in a round: the trial of each side, and what is drawn for it. `tax` has more
    than two sides."""

    cell: Cell
    row: Row
    planned: tuple[PlannedTrial, ...]
    steady_order: tuple[int, ...]
    seed: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Of the trials."""
        return tuple(planned.key for planned in self.planned)


@dataclass(frozen=True)
class RoundPlan:
    """A round: its sides, the order in which they are launched, and what is measured on them."""

    round: int
    sides: tuple[Side, ...]
    order: tuple[int, ...]
    pairings: tuple[Pairing, ...]

    @property
    def cells(self) -> tuple[tuple[Cell, tuple[Pairing, ...]], ...]:
        """The pairings by cell, in the order of the plan."""
        grouped: list[tuple[Cell, list[Pairing]]] = []
        for one in self.pairings:
            if not grouped or grouped[-1][0] != one.cell:
                grouped.append((one.cell, []))
            grouped[-1][1].append(one)
        return tuple((cell, tuple(some)) for cell, some in grouped)


def versus_plan(suite: VersusSuite, done: Iterable[str] = ()) -> tuple[RoundPlan, ...]:
    """The rounds in order. A row of which both sides are `done` (their keys) is left out; one of
    which a side is missing is measured anew on both, since only what is measured beside each other
    is compared."""
    finished = set(done)
    rounds = []
    for round_ in range(1, suite.rounds + 1):
        every = _pairings(suite, round_)
        pairings = [pairing for pairing in every if not finished.issuperset(pairing.keys)]
        if pairings:
            order = (0, 1) if round_ % 2 else (1, 0)
            rounds.append(RoundPlan(round_, suite.sides, order, tuple(pairings)))
    return tuple(rounds)


def _pairings(suite: VersusSuite, round_: int) -> list[Pairing]:
    """Every row of every cell; each second round turns the order of cells, later ones draw it."""
    cells = list(suite.cells)
    if round_ > 2:
        random.Random(f"{suite.seed}/{(round_ - 1) // 2}/cells").shuffle(cells)
    if round_ % 2 == 0:
        cells.reverse()
    pairings = []
    for cell in cells:
        label = suite.label(cell)
        for row in suite.rows:
            first, second = (
                PlannedTrial(
                    trial_key(side.label, round_, label, row.label), round_, side.label, label, row
                )
                for side in suite.sides
            )
            draw = random.Random(f"{suite.seed}/{first.key}/{second.key}")
            order = (0, 1) if draw.random() < 0.5 else (1, 0)
            pairing = Pairing(cell, row, (first, second), order, draw.randrange(1 << 31))
            pairings.append(pairing)
    return pairings


# How long a run of versus takes. Pure.

#: Seconds beside the load, as measured on a host with 2 cores: both launches, at once, the end of
#: both, and for each row of a side the start of its worker and the warm-up. In the first round each
#: row is looked at before. Both deploys at once take a share of what they take one by one.
BOTH_UP_S: Final = 12.0
AT_ONCE: Final = 0.7
TEARDOWN_S: Final = 1.0
ROW_S: Final = 1.3
LOOKS_S: Final = 15.0


def round_s(suite: VersusSuite, plan: RoundPlan | None = None) -> float:
    """About how long a round takes, of all cells or of what is left of it."""
    cells = [cell for cell, _ in plan.cells] if plan is not None else list(suite.cells)
    rows = len(plan.pairings) if plan is not None else len(suite.cells) * len(suite.rows)
    loads_s = rows * 2 * (suite.side_s + suite.steady_s + ROW_S)
    if suite.urls is not None:
        return loads_s
    deploys_s = 0.0
    for side in suite.sides:
        every = [side.cell(cell) for cell in cells]
        most = max(side.app.replicas(cell) for cell in every)
        deploys_s += FIRST_DEPLOY_S + CHANGE_S * (len(cells) - 1) + REPLICA_S * (most - 1)
        deploys_s += MODEL_S * max(
            int(cell["num_replicas"]) if "ranker" in cell else 0 for cell in every
        )
    return BOTH_UP_S + AT_ONCE * deploys_s + loads_s + TEARDOWN_S


def expected_s(suite: VersusSuite, rounds: Iterable[RoundPlan]) -> float:
    """About how long these rounds take, all of them."""
    every = list(rounds)
    looks = bool(every) and every[0].round == 1
    first = LOOKS_S * len(every[0].pairings) if looks else 0.0
    return first + sum(round_s(suite, one) for one in every)


def check_budget(suite: VersusSuite) -> None:
    """BadInput where fewer rounds fit into the budget than a verdict takes."""
    least = versus_plan(replace(suite, rounds=min(FEWEST, suite.rounds)))
    least_s = expected_s(suite, least)
    if suite.budget_s is not None and least_s > suite.budget_s:
        rounds = f"{len(least)} round{'' if len(least) == 1 else 's'}"
        raise BadInput(
            f"--budget: {duration_text(suite.budget_s)} is not enough: {rounds} of "
            f"{suite.side_s:g} s a side and row take about {duration_text(least_s)}"
        )
