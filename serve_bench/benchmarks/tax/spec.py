"""What `serve-bench tax` is asked for: layers that answer the same request, and rounds of them.

A layer is a way to the same handler: a bare server, or a cluster of a variant, by HTTP or by a
handle. In a round all are launched afresh and up at once, and loaded in turn in drawn order; the
layers of HTTP share slices, a handle has separate windows, before or after them as drawn. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from serve_bench.core.axes import suggest
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.core.plan import parse_row, plan_trial
from serve_bench.core.redaction import hide_env_value
from serve_bench.core.traffic import Row
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.spec.sides import Pairing, RoundPlan, RowPlan, Side, SidesSpec, Times

Way = Literal["asgi", "fastapi", "app", "http", "handle"]


@dataclass(frozen=True)
class Layer:
    """A way to the handler."""

    name: str  # in records
    title: str  # for people
    way: Way  # how it is served or called
    on: str = ""  # the cluster; empty: a bare server


LAYERS: Final[tuple[Layer, ...]] = (
    Layer("uvicorn", "bare uvicorn", "asgi"),
    Layer("fastapi", "FastAPI on uvicorn", "fastapi"),
    Layer("handle", "Serve by handle", "handle", "default"),
    Layer("default", "Serve, default", "http", "default"),
    Layer("haproxy", "Serve, HAProxy", "http", "haproxy"),
    Layer("optimized", "Serve, optimized", "http", "optimized"),
)
"""Layers of the no-op app, from the least to the most."""

OWN_BARE: Final = Layer("app", "the app on uvicorn", "app")
"""Stands in the place of the two bare servers for your own app."""

KNOWN: Final = {layer.name: layer for layer in (*LAYERS, OWN_BARE)}

SERVER_S: Final = 0.5
"""Time until a bare server is up."""


@dataclass(frozen=True)
class Taxed:
    """The layers of a run."""

    layers: tuple[str, ...]  # by name
    left_out: tuple[str, ...]  # layers that cannot be, and why
    bare: str  # what the ASGI app of your own app is


@dataclass(frozen=True)
class TaxSpec(SidesSpec):
    """Layers, each row on all of them in every round. Its sides are the default twice."""

    usual = Times(6, 8.0, 1.0)
    quick = Times(3, 2.0, 0.5)
    least_metered = 0

    tax: Taxed = Taxed((), (), "")

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> Self:
        """Reverse `to_json`. Raises BadInput or FormatError."""
        spec = super().stored(data)
        if not spec.tax.layers or not KNOWN.keys() >= {*spec.tax.layers}:
            raise FormatError("suite.tax.layers: names no layers of this version")
        if not spec.rows or not spec.cells:
            raise FormatError("suite: it has no rows or no cells")
        return spec

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers; a bare server of your own app has that app's title: `FastAPI on uvicorn`."""
        titled = replace(OWN_BARE, title=f"{self.tax.bare or 'ASGI app'} on uvicorn")
        return tuple({**KNOWN, OWN_BARE.name: titled}[name] for name in self.tax.layers)

    @property
    def servers(self) -> tuple[Layer, ...]:
        """The layers that are bare servers."""
        return tuple(layer for layer in self.layers if not layer.on)

    @property
    def launched(self) -> tuple[Side, ...]:
        """The clusters of the layers, in their order."""
        side, names = self.sides[0], dict.fromkeys(layer.on for layer in self.layers if layer.on)
        options = side.variant.http_options
        variants = (replace(BUILT_IN_VARIANTS[name], http_options=options) for name in names)
        return tuple(replace(side, label=used.name, variant=used) for used in variants)

    def row_of(self, row: Row, layer: Layer) -> Row:
        """Return a row as a layer has it: by a handle it has another client and name."""
        if layer.way != "handle":
            return row
        stream = row.traffic.streams
        traffic = replace(row.traffic, protocol="handle-stream" if stream else "handle")
        return parse_row(f"raw:{row.connections}", traffic, "--clients")

    def plan_rows(self, number: int, repeat: int, sides: Sequence[Side]) -> Iterator[RowPlan]:
        """Plan the rows of a round: layers of HTTP in turn, a handle's driver apart from them."""
        (cell, *_), layers = self.cells, self.layers
        by_http = [layer for layer in layers if layer.way != "handle"]
        by_handle = [layer for layer in layers if layer.way == "handle"]
        label = self.label(cell)
        for row in self.rows:
            draw, parts = random.Random(f"{self.seed}/{number}/{row.label}"), list[Pairing]()
            for together in filter(None, (by_http, by_handle)):
                rows = [(layer.name, self.row_of(row, layer)) for layer in together]
                planned = tuple(plan_trial(name, number, label, row) for name, row in rows)
                order = [*range(len(together))]
                draw.shuffle(order)
                seed = draw.randrange(1 << 31)
                parts.append(Pairing(cell, planned[0].row, planned, tuple(order), seed))
            draw.shuffle(parts)
            yield RowPlan(row, tuple(parts))

    def expected_s(self, rounds: Iterable[RoundPlan]) -> float:
        plans = list(rounds)
        return super().expected_s(plans) + SERVER_S * len(self.servers) * len(plans)

    def describe_sides(self) -> Iterator[str]:
        yield f"app {self.sides[0].app.name}, {counted(len(self.layers), 'layer')}"
        for layer in self.layers:
            yield f"{layer.name}: {layer.title}"
        for side in self.launched:
            flags = " ".join(f"{k}={hide_env_value(k, v)}" for k, v in side.variant.env.items())
            yield f"cluster {side.label}{f': {flags}' if flags else ''}"
        for line in self.tax.left_out:
            yield f"left out: {line}"


def choose_layers(layers: Sequence[Layer], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the layers that --layers wants, of all without it. Raises BadInput."""
    known = [layer.name for layer in layers]
    for name in wanted:
        if name not in known:
            takes = f"it takes {', '.join(known)}"
            raise BadInput(f"--layers: {name!r} is not allowed; {takes}{suggest(name, known)}")
    if wanted and len(set(wanted)) < 2:
        raise BadInput(f"--layers: {wanted[0]}: two or more are compared")
    return tuple(name for name in known if not wanted or name in wanted)
