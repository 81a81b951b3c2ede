"""The words of versus: its sides and its plan."""

from collections import Counter
from dataclasses import replace

import pytest

from serve_bench.benchmarks.versus.spec import VersusSpec, check_sides
from serve_bench.core.app_spec import APPS
from serve_bench.core.axes import cell_defaults
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import parse_row
from serve_bench.core.result import VariantUsed
from serve_bench.core.traffic import Traffic
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.spec.sides import Side

DEFAULT = Side("default")
OPTIMIZED = Side("optimized", BUILT_IN_VARIANTS["optimized"])
CELL = cell_defaults()
ROWS = (parse_row("raw:100", Traffic(), "x"), parse_row("8", Traffic(), "x"))


def suite(**other: object) -> VersusSpec:
    given: dict[str, object] = {"cells": (CELL,), "rows": ROWS[:1]} | other
    return VersusSpec("mine", (DEFAULT, OPTIMIZED), **given)  # type: ignore[arg-type]


def test_sides_that_differ_in_anything_are_compared_and_a_stored_suite_is_whole() -> None:
    check_sides([DEFAULT, OPTIMIZED])
    python = VariantUsed("default", python="other")
    for change in ({"settings": {"num_replicas": 2}}, {"app": APPS["press"]}, {"variant": python}):
        check_sides([DEFAULT, replace(DEFAULT, **change)])
    with pytest.raises(BadInput, match="cannot be resumed"):
        VersusSpec.stored({"name": "mine"})


def test_a_setting_of_a_side_holds_over_the_cell_and_is_no_name_of_it() -> None:
    two = replace(suite(), sides=(DEFAULT, replace(DEFAULT, settings={"num_replicas": 2})))
    assert [side.cell(CELL)["num_replicas"] for side in two.sides] == [1, 2]
    assert two.label(CELL) == {"max_batch_size": 1, "max_ongoing_requests": 10000}
    of_b, cell = two.of_side(two.sides[1], CELL)
    assert of_b.cells == (cell,) and cell["num_replicas"] == 2 and of_b.app is APPS["noop"]
    # One that differs from cell to cell is refused.
    two = replace(suite(cells=(CELL, {**CELL, "num_replicas": 4})), sides=two.sides)
    with pytest.raises(BadInput, match=r"^--b-option: num_replicas differs from cell to cell"):
        two.check_cells()
    suite(cells=(CELL, {**CELL, "num_replicas": 4})).check_cells()


def test_every_round_measures_every_row_of_every_cell_on_both_sides() -> None:
    cells = tuple({**CELL, "num_replicas": count} for count in (1, 2, 3))
    plans = suite(cells=cells, rows=ROWS, rounds=6).plan()
    assert [plan.order for plan in plans] == [(0, 1), (1, 0)] * 3
    keys = [trial.key for plan in plans for pairing in plan.pairings for trial in pairing.planned]
    assert len(set(keys)) == len(keys) == 6 * 3 * 2 * 2
    assert keys[:2] == [
        "default/r1/bs1-ongoing10000-rep1/100-connections",
        "optimized/r1/bs1-ongoing10000-rep1/100-connections",
    ]
    orders = [[cell["num_replicas"] for cell, _ in plan.cells] for plan in plans]
    assert orders[0] == [1, 2, 3] and orders[1] == [3, 2, 1]
    # A round and the next turn each other, so each cell comes as often early as late.
    assert [order[::-1] for order in orders[::2]] == orders[1::2]
    for plan in plans:
        assert [len(pairings) for _, pairings in plan.cells] == [2, 2, 2]


def test_what_is_drawn_hangs_on_the_seed_alone() -> None:
    drawn, same, other = (suite(rounds=40, seed=seed).plan() for seed in (1, 1, 2))
    assert drawn == same != other
    assert len({plan.pairings[0].seed for plan in drawn}) == 40
    first = Counter(plan.pairings[0].steady_order for plan in drawn)
    assert set(first) == {(0, 1), (1, 0)}


def test_a_row_of_which_a_side_is_missing_is_measured_anew_on_both() -> None:
    whole = suite(rounds=3, rows=ROWS)
    keys = [trial.key for plan in whole.plan() for at in plan.pairings for trial in at.planned]
    rest = whole.plan([key for key in keys if key != keys[5]])
    assert [plan.round for plan in rest] == [2]
    assert [trial.key for at in rest[0].pairings for trial in at.planned] == [keys[4], keys[5]]
    assert rest[0].order == (1, 0)
    assert whole.plan(keys) == ()
