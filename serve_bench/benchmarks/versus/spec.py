"""What `serve-bench versus` is asked for: sides, and the rounds that compare each with A. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from serve_bench.analysis.ratios import FEWEST
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import duration_text, plan_trial
from serve_bench.core.redaction import hide_env_value, hide_in_text, hide_settings
from serve_bench.spec.sides import Pairing, RowPlan, Side, SidesSpec, Times

REPEATED: Final = " (one request)"
"""Ends the name of a side that is sent a single request; the other is sent all."""

URL_GATE: Final = ("throughput",)
"""The gate for services that were up already, whose processes are unknown."""


@dataclass(frozen=True)
class VersusSpec(SidesSpec):
    """A and the sides that are compared with it, each row of each cell on all of a round."""

    usual = Times(20, 16.0, 2.0)
    quick = Times(3, 4.0, 1.0)

    def plan_rows(self, number: int, repeat: int, sides: Sequence[Side]) -> Iterator[RowPlan]:
        for cell in self.turned(self.cells, repeat, "cells"):
            label = self.label(cell)
            for row in self.rows:
                planned = tuple(plan_trial(side.label, number, label, row) for side in sides)
                draw = random.Random("/".join([str(self.seed), *(trial.key for trial in planned)]))
                order = [0]
                for place in range(1, len(planned)):
                    order.insert(place - int((place + 1) * draw.random()), place)
                pairing = Pairing(cell, row, planned, tuple(order), draw.randrange(1 << 31))
                yield RowPlan(row, (pairing,))

    @property
    def fewest(self) -> int:
        """The rounds that a verdict on all sides takes."""
        return FEWEST * len(self.turns)

    def check_budget(self) -> None:
        """Raise BadInput where fewer rounds fit into the budget than a verdict takes."""
        least = replace(self, rounds=min(self.fewest, self.rounds)).plan()
        least_s = self.expected_s(least)
        if self.budget_s is not None and least_s > self.budget_s:
            takes = f"{counted(len(least), 'round')} of {self.side_s:g} s a side and row take about"
            given, about = duration_text(self.budget_s), duration_text(least_s)
            raise BadInput(f"--budget: {given} is not enough: {takes} {about}")

    def check_cells(self) -> None:
        """Raise BadInput where a side sets what the cells vary: they would not be what they say."""
        for place, side in enumerate(self.sides):
            for name in side.settings:
                if len({cell.get(name) for cell in self.cells}) > 1:
                    differs = f"{name} differs from cell to cell of {self.name} already"
                    raise BadInput(f"--{'b' if place else 'a'}-option: {differs}")

    @property
    def turns_text(self) -> str:
        """The sides that are up in each round, in words, where not all are."""
        letters = [*self.letters.values()]
        turns = "; ".join(", ".join(letters[place] for place in places) for places in self.turns)
        host = f"cores and memory of this host allow {self.together} clusters at once"
        return f"{host}: rounds have in turn {turns}"

    def describe_sides(self) -> Iterator[str]:
        if self.together is not None:
            yield self.turns_text
        for side in self.sides:
            letter = self.letters[side.label]
            if self.urls is not None:
                yield f"{letter}: {side.label}, {hide_in_text(self.urls[side.label])}"
                continue
            yield f"{letter}: {side.label}, app {side.app.name}"
            for flag, value in side.variant.env.items():
                yield f"    {flag}={hide_env_value(flag, value)}"
            if side.variant.python is not None:
                yield f"    python {side.variant.python}"
            for name, setting in side.settings.items():
                yield f"    {name}={hide_settings(setting)}"


def check_distinct(labels: Sequence[str], measured: Sequence[object], what: str = "") -> None:
    """Raise BadInput where two sides are the same. `measured`: what is measured of each."""
    for first, second in combinations(range(len(labels)), 2):
        if measured[first] == measured[second]:
            flags, more = ("--b", "") if first else ("--a, --b", ": use --aa for the noise floor")
            raise BadInput(f"{flags}: both are {labels[first]}{what}{more}")


def check_sides(sides: Sequence[Side]) -> None:
    """Raise BadInput where two are the same, or only one is your own app."""
    what = ", with the same flags, options and app"
    check_distinct([side.label for side in sides], [side.unnamed for side in sides], what)
    built_in = [place for place, side in enumerate(sides) if side.app.own_app is None]
    if 0 < len(built_in) < len(sides):
        flag, side = "--b" if built_in[0] else "--a", sides[built_in[0]]
        other = "the other side is your own app: both need one"
        raise BadInput(f"{flag}: {side.label} is built-in app {side.app.name}; {other}")
