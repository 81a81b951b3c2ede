"""Runs of capacity in `compare` and `history`: one row, whose value is the capacity of a launch."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from serve_bench.analysis.capacity.launch import LaunchSearch
from serve_bench.analysis.capacity.model import LaunchEstimate
from serve_bench.analysis.comparing import broken, of_runs
from serve_bench.analysis.comparing.match import unlike
from serve_bench.analysis.comparing.values import RowPlace, rows_of
from serve_bench.benchmarks.capacity.lens import condensed
from serve_bench.core.result import Result, Resume, RunStop
from serve_bench.view.verdict_words import headline
from tests.capacity_runs import Service, StoredCapacity, capacity_result
from tests.cases import Call, Patch, cases
from tests.history_records import store
from tests.rendering import render
from tests.versus_records import alike_runs

LABEL = "capacity at p99 <= 50 ms, errors <= 1 %, poisson arrivals"

#: Launches of one app, 1 % apart, and of one whose capacity is 20 % lower.
APP = [Service(rate) for rate in (400.0, 404.0, 396.0, 402.0, 398.0)]
SLOWER = [replace(service, capacity=0.8 * service.capacity) for service in APP]

#: What the client cannot load to its limit; and what no rate meets, searched for so many seconds
#: that each probe has some requests.
BEYOND = Service(20_000.0, client=9_000.0, cpu_ms=0.05)
Search: TypeAlias = tuple[list[Service], dict[str, Any]]
FLOORED: Search = ([Service(0.0)] * 3, {"launch_s": 12.0})


def searched(id: str, launches: list[Service], **given: Any) -> Result:
    return capacity_result(id, {"default": launches}, **given)


def rows(id: str, launches: list[Service], **given: Any) -> Result:
    return condensed(searched(id, launches, **given))


def stored(result: Result) -> StoredCapacity:
    return StoredCapacity(render(result, "json"))


def both(tmp_path: Path, a: Result, b: Result) -> list[str]:
    store(tmp_path, [a, b])
    return [str(tmp_path / a.run.id), str(tmp_path / b.run.id)]


def test_a_launch_gives_the_capacity_of_its_search() -> None:
    result = searched("r", APP)
    found = condensed(result)
    assert [trial.metrics["throughput"].windows for trial in found.trials] == [
        (launch["figures"]["capacity"]["value"],) for launch in stored(result).launches
    ]
    ((place, row),) = rows_of(found, "default").items()
    assert place == RowPlace("app", LABEL, "raw")
    assert row.planned == row.rounds == (1, 2, 3, 4, 5)
    assert set(row.values) == {"throughput", "cpu"}
    assert row.values["throughput"][1] == pytest.approx(400.0, rel=0.1)
    assert row.values["cpu"][1] == pytest.approx(2e6, rel=0.01)
    assert found.complete and found.launches == result.launches
    assert [*unlike(found, rows("b", APP, launch_s=200.0), ({}, {}))] == []


def test_cells_and_variants_have_a_row_each() -> None:
    result = capacity_result("r", {"default": APP[:3], "optimized": SLOWER[:3]}, cell={"a": 1})
    found = condensed(result)
    assert re.match(r"default: capacity (39|40)\d req/s", render(result))  # the highest
    for variant, rate in (("default", 400.0), ("optimized", 320.0)):
        ((place, row),) = rows_of(found, variant).items()
        assert place.cell == "a=1"
        assert row.values["throughput"][1] == pytest.approx(rate, rel=0.1)


def test_the_slo_is_named_alike_however_it_was_written() -> None:
    forms = ("p99=50ms", "errors=1%,p99=50ms", "p99=0.05s,errors=1%", "p99.0=50ms")
    assert {rows("r", APP[:1], slo=form).plan[0].row.label for form in forms} == {LABEL}
    constant = rows("r", APP[:1], arrivals="constant").plan[0].row.label
    assert constant == LABEL.replace("poisson", "constant")


def test_a_search_that_was_broken_off_has_no_value() -> None:
    result = searched("r", APP[:3], finished=False)
    assert {probe["dims"]["launch"] for probe in stored(result).probes} == {1, 2, 3}
    assert stored(result).findings[0] == "1 of 3 searches was incomplete."
    found = condensed(result)
    assert [trial.round for trial in found.trials] == [1, 2]
    assert [planned.round for planned in found.missing] == [3]
    assert found.failures == ()
    assert rows("r", APP[:1], finished=False).trials == ()


def test_a_round_is_planned_once_where_it_was_needed() -> None:
    result = searched("r", APP[:3])
    first = replace(result.run, plan=result.run.plan[:2])
    resume = Resume(("capacity",), first.started_at, plan=result.run.plan[2:])
    found = condensed(replace(result, run=first, resumes=(resume,)))
    assert [(row.round, row.row.label) for row in found.plan] == [(at, LABEL) for at in (1, 2, 3)]
    more = replace(searched("r", APP), stop=RunStop(5, 20, "settled", "t"), last=5)
    assert [planned.round for planned in condensed(more).plan] == [1, 2, 3, 4, 5]


@cases(
    "a, b, code, said",
    ((APP, {}), (SLOWER, {}), 3, f"gate: regressed: {LABEL}: "),
    ((SLOWER, {}), (APP, {}), 0, ""),
    ((APP[:3], {}), FLOORED, 3, "measured in 0 of 3 launches of B, in 3 of 3 of A"),
    (FLOORED, (APP[:3], {}), 0, ""),
    ((APP[:3], {}), (SLOWER[:3], {"slo": "p99=40ms"}), 2, "have no row in common"),
)
def test_a_lower_capacity_breaks_the_gate(
    a: Search, b: Search, code: int, said: str, tmp_path: Path, call: Call
) -> None:
    """And one that no rate meets; capacities at unlike SLOs are not compared."""
    folders = both(tmp_path, searched("before", a[0], **a[1]), searched("after", b[0], **b[1]))
    out, err = call("compare", *folders, "--fail-on", "regressed", code=code)
    assert said in err and (LABEL in out) is (code != 2)
    if "gate" in said:
        words = r"after is (19|20)(\.\d)? % slower than before \(.* %\): regressed, 5 launches"
        assert re.match(words, " ".join(out.split()))
    if "measured in 0" in said:
        assert "(no rate met the SLO)" in " ".join(out.split())


def test_what_the_client_could_not_load_is_not_worse() -> None:
    assert stored(searched("f", FLOORED[0], **FLOORED[1])).dims["ceiling"] == "floor"
    beyond = searched("b", [BEYOND] * 3)
    assert stored(beyond).dims["ceiling"] == "client" and "client" in stored(beyond).words
    a, b = rows("a", APP[:3]), condensed(beyond)
    assert len(b.broken) == 3 and all(trial.counts.completed for trial in b.trials)
    for sides in ((a, b), (b, a)):
        found = of_runs(*sides)
        assert found.rows[0].word == "inconclusive" and not found.rows[0].worse
        assert broken(found, "slower") == [] != broken(found, "inconclusive")
    message = b.failures[0].message
    assert "at least" in message and "(the client could send no more)" in message


def test_probes_that_contradict_each_other_are_held_against_nobody(monkeypatch: Patch) -> None:
    unsure = LaunchEstimate(None, None, None, 395.0, ceiling="floor")
    a, b = rows("a", APP[:3]), searched("b", APP[:3])
    monkeypatch.setattr(LaunchSearch, "estimate", lambda self: unsure)
    found = of_runs(a, condensed(b))
    assert not found.rows[0].worse and broken(found, "slower") == []
    assert found.failures[0].endswith("below 395 req/s (higher ones met the SLO)")


def test_a_bounded_launch_is_left_out_and_said() -> None:
    found = alike_runs(rows("a", APP), rows("b", [*APP[:4], BEYOND]))
    assert list(found.rows[0].line("throughput").b_values) == [1, 2, 3, 4]
    assert found.rows[0].measured == (5, 4) and found.rows[0].planned == (5, 5)
    (failure,) = found.failures
    assert failure.startswith(f"B: default, round 5, trial, {LABEL}: only bounded: at least")
    assert "1 failure" not in headline(found)  # the findings say so


@cases(
    "last, said",
    ((SLOWER[:3], {}), r"capacity, app: n5 is (19|20)(\.\d)? % slower than the 4 runs before"),
    (FLOORED, r"no rate met the SLO"),  # only bounded, and not judged
)
def test_a_drop_in_the_history(last: Search, said: str, tmp_path: Path, call: Call) -> None:
    before = [searched(f"n{at + 1}", APP[:3], day=at) for at in range(4)]
    store(tmp_path, [*before, searched("n5", last[0], day=4, **last[1])])
    out, err = call("history", tmp_path, "--fail-on", "regressed", code=3)
    assert re.search(said, " ".join(out.split())) and LABEL in out
    assert ("not judged" in err and "n5" in err) is (last is FLOORED)
