"""What `serve-bench tax` is asked for: layers that answer the same request, and rounds of them.

A layer is a way to the same handler: a bare server, or a cluster of a variant, by HTTP or by a
handle. In a round all are launched afresh and up at once, and loaded in turn in drawn order; the
layers of HTTP share slices, a handle has windows of its own, before or behind them as drawn. Pure.
Times and rows are those of a suite of versus.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from serve_bench.benchmarks.versus.request import (
    AT_ONCE,
    BOTH_UP_S,
    LOOKS_S,
    ROW_S,
    TEARDOWN_S,
    Pairing,
    RoundPlan,
    Side,
    VersusSuite,
)
from serve_bench.benchmarks.versus.slicing import WINDOW_S
from serve_bench.core.errors import FormatError
from serve_bench.core.plan import FIRST_DEPLOY_S, parse_row
from serve_bench.core.result import HANDLES, PlannedTrial, Row, trial_key
from serve_bench.core.schema import built
from serve_bench.core.variants import BUILT_IN_VARIANTS

Way = Literal["asgi", "fastapi", "app", "http", "handle"]


@dataclass(frozen=True)
class Layer:
    """A way to the handler. `name`: in records; `title`: for people; `on`: the cluster, empty for a
    bare server. `way`: how it is served or called."""

    name: str
    title: str
    way: Way
    on: str = ""


LAYERS: Final[tuple[Layer, ...]] = (
    Layer("uvicorn", "bare uvicorn", "asgi"),
    Layer("fastapi", "FastAPI on uvicorn", "fastapi"),
    Layer("handle", "Serve by handle", "handle", "default"),
    Layer("default", "Serve, default", "http", "default"),
    Layer("haproxy", "Serve, HAProxy", "http", "haproxy"),
    Layer("optimized", "Serve, optimized", "http", "optimized"),
)
"""Of the no-op app, from the least to the most."""

OWN_BARE: Final = Layer("app", "the app on uvicorn", "app")
"""Of an own app, in the place of the two bare servers."""

ROUNDS, SIDE_S, STEADY_S = 6, 8.0, 1.0
QUICK_ROUNDS, QUICK_SIDE_S = 3, 2.0
ROWS: Final = "raw:1,raw:100"

QUIET_S: Final = 1.0
"""Before slices nothing is loaded for so long: what the processes of a layer use by themselves."""

#: Seconds beside a window of a handle: its driver starts, and warms up.
WINDOW_REST_S: Final = 2.5
SERVER_S: Final = 0.5


@dataclass(frozen=True)
class TaxSuite:
    """What a run of tax measures. `versus`: rows, cells and times, its sides the default twice.
    `left_out`: layers that cannot be, and why; `bare`: what the ASGI app of an own app is."""

    versus: VersusSuite
    layers: tuple[Layer, ...]
    left_out: tuple[str, ...] = ()
    bare: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record: that of versus, and the layers."""
        names = [layer.name for layer in self.layers]
        stored = {"layers": names, "left_out": list(self.left_out), "bare": self.bare}
        return {**self.versus.to_json(), "tax": stored}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaxSuite:
        """The reverse of `to_json`. Raises BadInput or FormatError."""
        rest = {name: value for name, value in data.items() if name != "tax"}
        own = built(_Stored, data.get("tax"), "suite.tax")
        known = {one.name: one for one in (*LAYERS, OWN_BARE)}
        if not own.layers or any(name not in known for name in own.layers):
            raise FormatError("suite.tax.layers: names no layers of this version")
        layers = tuple(known[name] for name in own.layers)
        versus = VersusSuite.from_json(rest)
        if not versus.rows or not versus.cells:
            raise FormatError("suite: it has no rows or no cells")
        return cls(versus, named(layers, own.bare), own.left_out, own.bare)

    @property
    def servers(self) -> tuple[Layer, ...]:
        return tuple(one for one in self.layers if not one.on)

    @property
    def clusters(self) -> tuple[Side, ...]:
        """The clusters of the layers, in their order."""
        names = dict.fromkeys(one.on for one in self.layers if one.on)
        return tuple(_cluster(name, self.versus.sides[0]) for name in names)

    def row_of(self, row: Row, layer: Layer) -> Row:
        """A row as it is called on a layer: by a handle it has another client and name."""
        if layer.way != "handle":
            return row
        stream = row.traffic.streams
        traffic = replace(row.traffic, protocol="handle-stream" if stream else "handle")
        return parse_row(f"raw:{row.connections}", traffic, "--clients")


@dataclass(frozen=True)
class _Stored:
    layers: tuple[str, ...]
    left_out: tuple[str, ...]
    bare: str


def named(layers: Sequence[Layer], bare: str) -> tuple[Layer, ...]:
    """The layers with the title of an own app's bare server: `FastAPI on uvicorn`."""
    title = f"{bare or 'ASGI app'} on uvicorn"
    return tuple(replace(one, title=title) if one.way == "app" else one for one in layers)


def _cluster(variant: str, side: Side) -> Side:
    used = replace(BUILT_IN_VARIANTS[variant], http_options=side.variant.http_options)
    return replace(side, label=variant, variant=used)


@dataclass(frozen=True)
class LayerRow:
    """A row in a round on all layers, in parts that are loaded one after the other: of each part
    the layers, as the trials of a `Pairing` name them."""

    row: Row
    parts: tuple[Pairing, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Of all its trials."""
        return tuple(key for part in self.parts for key in part.keys)


@dataclass(frozen=True)
class TaxRound:
    """A round: the rows that are measured on it."""

    round: int
    rows: tuple[LayerRow, ...]

    def as_pairs(self, suite: TaxSuite) -> RoundPlan:
        """The same as the bench of versus takes it: its clusters, started in turned order."""
        places = range(len(suite.clusters))
        order = tuple(places if self.round % 2 else reversed(places))
        parts = tuple(part for row in self.rows for part in row.parts)
        return RoundPlan(self.round, suite.clusters, order, parts)


def tax_plan(suite: TaxSuite, done: Iterable[str] = ()) -> tuple[TaxRound, ...]:
    """The rounds in order. A row is left out where all its layers are `done`, and measured anew on
    all where one is missing: only what is measured beside each other is compared."""
    finished = set(done)
    rounds = []
    for round_ in range(1, suite.versus.rounds + 1):
        rows = [_layer_row(suite, round_, row) for row in suite.versus.rows]
        left = tuple(row for row in rows if not finished.issuperset(row.keys))
        if left:
            rounds.append(TaxRound(round_, left))
    return tuple(rounds)


def _layer_row(suite: TaxSuite, round_: int, row: Row) -> LayerRow:
    cell = suite.versus.cells[0]
    label = suite.versus.label(cell)
    draw = random.Random(f"{suite.versus.seed}/{round_}/{row.label}")
    parts = []
    for layers in _parts(suite):
        planned = tuple(_planned(suite, one, round_, label, row) for one in layers)
        order = [*range(len(layers))]
        draw.shuffle(order)
        seed = draw.randrange(1 << 31)
        parts.append(Pairing(cell, planned[0].row, planned, tuple(order), seed))
    draw.shuffle(parts)
    return LayerRow(row, tuple(parts))


def _parts(suite: TaxSuite) -> Iterator[list[Layer]]:
    """Layers that are loaded in turn with each other; a driver is one of one cluster alone."""
    yield from [some] if (some := [one for one in suite.layers if one.way != "handle"]) else []
    yield from [some] if (some := [one for one in suite.layers if one.way == "handle"]) else []


def _planned(
    suite: TaxSuite, layer: Layer, round_: int, label: Mapping[str, Any], row: Row
) -> PlannedTrial:
    own = suite.row_of(row, layer)
    key = trial_key(layer.name, round_, label, own.label)
    return PlannedTrial(key, round_, layer.name, label, own)


def expected_s(suite: TaxSuite, rounds: Iterable[TaxRound]) -> float:
    """About how long these rounds take, all of them."""
    versus, total = suite.versus, 0.0
    for one in rounds:
        total += (BOTH_UP_S + AT_ONCE * FIRST_DEPLOY_S) * max(1.0, len(suite.clusters) / 2)
        total += SERVER_S * len(suite.servers) + TEARDOWN_S
        for row in one.rows:
            total += LOOKS_S if one.round == 1 else QUIET_S
            for planned in (planned for part in row.parts for planned in part.planned):
                windows = planned.row.protocol in HANDLES
                rest_s = versus.side_s / WINDOW_S * WINDOW_REST_S if windows else 0.0
                total += versus.side_s + versus.steady_s + ROW_S + rest_s
    return total
