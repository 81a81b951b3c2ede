"""The sides of versus, its plan, and several sides: corrected, drawn, taken in turn and shown."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.comparing import broken, of_versus
from serve_bench.analysis.comparing.model import describe_change
from serve_bench.benchmarks.versus.bench import fit_sides
from serve_bench.benchmarks.versus.spec import VersusSpec, check_sides
from serve_bench.core.app_spec import APPS
from serve_bench.core.axes import cell_defaults
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import parse_row
from serve_bench.core.result import Result, VariantUsed
from serve_bench.core.traffic import Traffic
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.runner.model_needs import BASE_BYTES, REPLICA_BYTES
from serve_bench.spec.sides import Side, name_apart
from tests.cases import Call, cases, refusal, sure
from tests.records import ROWS, store_run
from tests.rendering import render
from tests.versus_records import WOBBLE, rates, versus_result

ROW = ROWS[2]
LABELS = ("default", "haproxy", "mine", "optimized")
ONE_SIDE_BYTES = BASE_BYTES + REPLICA_BYTES


def run_of(*ratios: float, **suite: Any) -> Result:
    """Six rounds of A at 500 requests/s and of others, all with another wobble."""
    rounds = [
        (500.0, *(500.0 * ratio * (1 + WOBBLE[at - k] / 100) for k, ratio in enumerate(ratios)))
        for at in range(6)
    ]
    return versus_result({ROW: rounds}, labels=LABELS[: 1 + len(ratios)], **suite)


def many(count: int, **other: Any) -> VersusSpec:
    return replace(suite(**other), sides=tuple(Side(f"side {k}") for k in range(count)))


def test_each_side_is_compared_with_a_as_by_itself_and_corrected_for_all() -> None:
    found = of_versus(run_of(1.02, 0.99, 0.9))
    words = [(row.side, row.word) for row in found.rows]
    assert words == [("B1", "faster"), ("B2", "slower"), ("B3", "regressed")]
    assert found.word == "regressed" and found.confidence == pytest.approx(1 - 0.05 / 3)
    alone = sure(of_versus(run_of(1.02)).rows[0].line("throughput").judged.interval)
    first = sure(found.rows[0].line("throughput").judged.interval)
    assert (first.center, first.se) == (alone.center, alone.se)
    assert first.level == pytest.approx(0.05 / 3) and first.half > 1.2 * alone.half
    # Holm's step-down runs over the sides: the surest has a third of the error, the last all.
    judged = [row.line("throughput").judged for row in found.rows]
    assert sorted(sure(word.alpha) for word in judged) == pytest.approx([0.05 / 3, 0.05 / 2, 0.05])
    names = [part.names for part in found.split()]
    assert names == [("default", label) for label in LABELS[1:]]


def test_a_proof_by_itself_is_none_among_others() -> None:
    ratio = math.exp(2.9 * sure(of_versus(run_of(1.0)).pairs[0][1].judged.interval).se)
    assert of_versus(run_of(ratio)).word == "faster"
    found = of_versus(run_of(ratio, 1.0, 1.0))
    (line,) = (line for line in found.rows[0].lines if line.gated)
    assert line.judged.word != "faster" and found.word != "faster"
    # After two sure ones the last takes the whole error: it is proven, though not its interval.
    last = of_versus(run_of(ratio, 2.0, 2.0)).split()[0].pairs[0][1]
    interval = sure(last.judged.interval)
    assert last.judged.word == "faster" and interval.low < 1 < interval.high
    assert "faster (" in describe_change(last) and "between" not in describe_change(last)


def test_the_gate_is_over_all_sides_and_names_the_one(tmp_path: Path, call: Call) -> None:
    folder = store_run(tmp_path / "run", run_of(1.2, 0.8))
    _, err = call("report", folder, "--fail-on", "regressed", code=3)
    assert "gate: B2: regressed: 100 connections: 20 % slower (" in err
    first, second = of_versus(run_of(1.2, 0.8)).split()
    assert not broken(first, "regressed") and len(broken(second, "regressed")) == 1
    rounds = {ROW: [(500.0,) * 3] * 3}
    many, few = (versus_result(rounds, labels=LABELS[:3], b={"failed": n}) for n in (99, 9))
    assert "of B2's requests failed" in of_versus(many).rows[1].worse
    assert render(few).count(": errors: in 3 of 3 rounds") == 2  # of each side


def test_the_report_has_a_row_for_each_side_and_one_chart_and_says_the_level() -> None:
    result = run_of(1.02, 0.99, 0.9)
    text = render(result)
    assert max(map(len, text.splitlines())) <= 80 and "98.3 %" in text
    rows = [line.split()[1:3] for line in text.splitlines() if line.startswith("  requests/s")]
    assert [side for side, _ in rows] == ["B1", "B2", "B3"]
    words = "Intervals have 98.3 %, so that those of the 3 sides hold at once"
    assert words in " ".join(text.split())
    data = json.loads(render(result, "json"))
    assert data["points"][0]["dims"]["confidence"] == pytest.approx(1 - 0.05 / 3)
    sides = [row["dims"]["side"] for row in data["comparisons"]]
    assert Counter(sides) == {"B1": 4, "B2": 4, "B3": 4}
    assert [point["dims"].get("side") for point in data["points"]][1:] == ["A", "B1", "B2", "B3"]
    for form in ("csv", "markdown"):
        assert "B3" in render(result, form)
    plain = json.loads(render(versus_result({ROW: rates(500.0, 450.0)}), "json"))
    dims = {*plain["comparisons"][0]["dims"], *plain["points"][0]["dims"]}
    assert not {"side", "confidence"} & dims


def test_rounds_and_sides_are_in_drawn_order() -> None:
    plans = many(4, rounds=20).plan()
    assert plans[0].order == plans[1].order[::-1] == (0, 1, 2, 3)
    assert all(a.order == b.order[::-1] for a, b in zip(plans[::2], plans[1::2], strict=True))
    assert len({plan.order for plan in plans}) > 8
    assert len({plan.pairings[0].steady_order for plan in plans}) > 8


@cases(
    "cores, free, together",
    (2, 10 * ONE_SIDE_BYTES, 3),
    (16, 10 * ONE_SIDE_BYTES, None),
    (16, 4 * ONE_SIDE_BYTES, 4),
    (1, 0, 2),
)
def test_sides_are_taken_in_turn_beside_a(cores: int, free: int, together: int | None) -> None:
    spec = fit_sides(many(8, rounds=4), cores, free)
    assert spec.together == together
    assert VersusSpec.stored(spec.to_json()) == spec
    plans = spec.plan()
    assert all(plan.sides[0] == spec.sides[0] for plan in plans)
    rounds = Counter(side.label for plan in plans for side in plan.sides[1:])
    assert rounds == dict.fromkeys((side.label for side in spec.sides[1:]), 4)
    assert len(plans[0].sides) == (together or 8)


def test_what_is_measured_in_turn_is_compared_within_its_rounds() -> None:
    """A is faster in the rounds of B2, which says nothing of B1."""
    result = run_of(0.9, 0.9, together=2)
    keep = {"haproxy": (1, 3, 5), "mine": (2, 4, 6)}
    seen = [trial for trial in result.trials if trial.round in keep.get(trial.variant, range(1, 7))]
    plan = tuple(row for row in result.run.plan if row.round in keep.get(row.variant, range(1, 7)))
    found = of_versus(replace(result, trials=tuple(seen), run=replace(result.run, plan=plan)))
    rounds = [[*row.line("throughput").a_values] for row in found.rows]
    assert rounds == [[1, 3, 5], [2, 4, 6]]
    assert [row.planned for row in found.rows] == [(3, 3)] * 2


def test_sides_that_are_the_same_are_refused_and_twins_have_names() -> None:
    x, other = Side("x"), Side("y")
    for sides, message in (
        ([x, replace(x, settings={"num_replicas": 2}), other], "--a, --b: both are x, .* --aa"),
        ([Side("a", settings={"num_replicas": 3}), x, other], "^--b: both are x, with the same"),
    ):
        with pytest.raises(BadInput, match=message):
            check_sides(sides)
    labels = [side.label for side in name_apart([Side("x"), Side("y"), Side("x")])]
    assert labels == ["x (A)", "y", "x (B2)"]


DEFAULT = Side("default")
OPTIMIZED = Side("optimized", BUILT_IN_VARIANTS["optimized"])
CELL = cell_defaults()
PARSED = (parse_row("raw:100", Traffic(), "x"), parse_row("8", Traffic(), "x"))


def suite(**other: object) -> VersusSpec:
    given: dict[str, object] = {"cells": (CELL,), "rows": PARSED[:1]} | other
    return VersusSpec("mine", (DEFAULT, OPTIMIZED), **given)  # type: ignore[arg-type]


def test_sides_that_differ_in_anything_are_compared_and_a_stored_suite_is_whole() -> None:
    check_sides([DEFAULT, OPTIMIZED])
    python = VariantUsed("default", python="other")
    for change in ({"settings": {"num_replicas": 2}}, {"app": APPS["press"]}, {"variant": python}):
        check_sides([DEFAULT, replace(DEFAULT, **change)])
    assert "cannot be resumed" in refusal(VersusSpec.stored, {"name": "mine"})


def test_a_setting_of_a_side_holds_over_the_cell_and_is_no_name_of_it() -> None:
    two = replace(suite(), sides=(DEFAULT, replace(DEFAULT, settings={"num_replicas": 2})))
    assert [side.cell(CELL)["num_replicas"] for side in two.sides] == [1, 2]
    assert two.label(CELL) == {"max_batch_size": 1, "max_ongoing_requests": 10000}
    of_b, cell = two.of_side(two.sides[1], CELL)
    assert of_b.cells == (cell,) and cell["num_replicas"] == 2 and of_b.app is APPS["noop"]
    # One that differs from cell to cell is refused.
    two = replace(suite(cells=(CELL, {**CELL, "num_replicas": 4})), sides=two.sides)
    assert refusal(two.check_cells).startswith("--b-option: num_replicas differs from cell to cell")
    suite(cells=(CELL, {**CELL, "num_replicas": 4})).check_cells()


def test_every_round_measures_every_row_of_every_cell_on_both_sides() -> None:
    cells = tuple({**CELL, "num_replicas": count} for count in (1, 2, 3))
    plans = suite(cells=cells, rows=PARSED, rounds=6).plan()
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
    whole = suite(rounds=3, rows=PARSED)
    keys = [trial.key for plan in whole.plan() for at in plan.pairings for trial in at.planned]
    rest = whole.plan([key for key in keys if key != keys[5]])
    assert [plan.round for plan in rest] == [2]
    assert [trial.key for at in rest[0].pairings for trial in at.planned] == [keys[4], keys[5]]
    assert rest[0].order == (1, 0)
    assert whole.plan(keys) == ()
