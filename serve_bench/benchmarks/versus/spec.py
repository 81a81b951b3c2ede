"""What `serve-bench versus` is asked for: two sides, and the rounds that compare them. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.ratios import FEWEST
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import duration_text, plan_trial
from serve_bench.core.redaction import hide_env_value, hide_in_text, hide_settings
from serve_bench.spec.sides import Pairing, RowPlan, Side, SidesSpec, Times

TIMES: Final = Times(20, 16.0, 2.0)
QUICK: Final = Times(3, 4.0, 1.0)

URL_GATE: Final = ("throughput",)
"""Of services that were up already, whose processes are not known."""


@dataclass(frozen=True)
class VersusSpec(SidesSpec):
    """A and B, each row of each cell on both in every round."""

    def plan_rows(self, number: int) -> Iterator[RowPlan]:
        """Each second round turns the order of cells, later ones draw it."""
        cells = list(self.cells)
        if number > 2:
            random.Random(f"{self.seed}/{(number - 1) // 2}/cells").shuffle(cells)
        if number % 2 == 0:
            cells.reverse()
        for cell in cells:
            label = self.label(cell)
            for row in self.rows:
                first, second = (plan_trial(side.label, number, label, row) for side in self.sides)
                draw = random.Random(f"{self.seed}/{first.key}/{second.key}")
                order = (0, 1) if draw.random() < 0.5 else (1, 0)
                pairing = Pairing(cell, row, (first, second), order, draw.randrange(1 << 31))
                yield RowPlan(row, (pairing,))

    def check_budget(self) -> None:
        """BadInput where fewer rounds fit into the budget than a verdict takes."""
        least = replace(self, rounds=min(FEWEST, self.rounds)).plan()
        least_s = self.expected_s(least)
        if self.budget_s is not None and least_s > self.budget_s:
            raise BadInput(
                f"--budget: {duration_text(self.budget_s)} is not enough: "
                f"{counted(len(least), 'round')} of {self.side_s:g} s a side and row take about "
                f"{duration_text(least_s)}"
            )

    def check_cells(self) -> None:
        """BadInput where a side sets what the cells vary: they would not be the cells they say."""
        for letter, side in zip("ab", self.sides, strict=True):
            for name in side.settings:
                if len({cell.get(name) for cell in self.cells}) > 1:
                    differs = f"{name} differs from cell to cell of {self.name} already"
                    raise BadInput(f"--{letter}-option: {differs}")

    def describe_sides(self) -> Iterator[str]:
        for letter, side in zip("AB", self.sides, strict=True):
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


def check_sides(sides: Sequence[Side]) -> None:
    """BadInput where two are the same, or one has an app of the user's own and the other has one
    that comes with the tool."""
    first, second = sides[0], sides[-1]
    if len(sides) > 1 and first.same_as(second):
        raise BadInput(
            f"--a, --b: both are {first.label}, with the same flags, options and app: use --aa "
            "for the noise floor"
        )
    if (first.app.own is None) != (second.app.own is None):
        flag, side = ("--a", first) if first.app.own is None else ("--b", second)
        raise BadInput(
            f"{flag}: {side.label} is built-in app {side.app.name}; the other side is your own "
            "app: both need one"
        )
