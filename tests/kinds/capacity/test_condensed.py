"""Runs of capacity in `compare` and `history`: one row, whose value is the capacity of a launch."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.analysis.capacity.launch import Searches
from serve_bench.analysis.capacity.model import LaunchEstimate
from serve_bench.analysis.comparing import broken, of_runs
from serve_bench.analysis.comparing.match import unlike
from serve_bench.analysis.comparing.values import RowPlace, rows_of
from serve_bench.benchmarks.capacity.condensed import condensed
from serve_bench.cli.program import run
from serve_bench.core.record_lines import to_line
from serve_bench.core.result import Result, Resume, RunStop
from serve_bench.view.verdict_words import headline
from tests.capacity_runs import Service, StoredCapacity, capacity_result
from tests.history_records import store
from tests.rendering import render
from tests.versus_records import alike_runs

LABEL = "capacity at p99 <= 50 ms, errors <= 1 %"

#: Launches of one app, 1 % apart, and of one whose capacity is 20 % lower.
APP = [Service(rate) for rate in (400.0, 404.0, 396.0, 402.0, 398.0)]
SLOWER = [replace(one, capacity=0.8 * one.capacity) for one in APP]

#: What no rate meets, searched for so many seconds that each probe has some requests; and what the
#: client cannot load to its limit.
FLOOR, FEW_S = Service(0.0), 12.0
BEYOND = Service(20_000.0, client=9_000.0, cpu_ms=0.05)


def rows(id: str, launches: list[Service], **given: object) -> Result:
    return condensed(capacity_result(id, {"default": launches}, **given))  # type: ignore[arg-type]


def stored(result: Result) -> StoredCapacity:
    return StoredCapacity(render(result, "json"))


def both(tmp_path: Path, a: Result, b: Result) -> list[str]:
    store(tmp_path, [a, b])
    return [str(tmp_path / a.run.id), str(tmp_path / b.run.id)]


def test_a_launch_gives_the_capacity_of_its_search() -> None:
    result = capacity_result("r", {"default": APP})
    found = condensed(result)
    assert [one.metrics["throughput"].windows for one in found.trials] == [
        (launch["figures"]["capacity"]["value"],) for launch in stored(result).launches
    ]
    (place,) = rows_of(found, "default")
    assert place == RowPlace("app", LABEL, "raw")
    row = rows_of(found, "default")[place]
    assert row.planned == row.rounds == (1, 2, 3, 4, 5)
    assert set(row.values) == {"throughput", "cpu"}
    assert row.values["throughput"][1] == pytest.approx(400.0, rel=0.1)
    assert row.values["cpu"][1] == pytest.approx(2e6, rel=0.01)
    assert found.complete and found.launches == result.launches


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
    labels = {
        condensed(capacity_result("r", {"d": APP[:1]}, slo=one)).plan[0].row.label for one in forms
    }
    assert labels == {LABEL}
    constant = rows("r", APP[:1], arrivals="constant").plan[0].row.label
    assert constant == f"{LABEL}, constant arrivals"


def test_how_it_was_searched_is_no_difference() -> None:
    longer = rows("b", APP, launch_s=200.0)
    assert [*unlike(rows("a", APP), longer, ({}, {}))] == []


def test_a_search_that_was_broken_off_has_no_value() -> None:
    result = capacity_result("r", {"default": APP[:3]}, finished=False)
    assert {probe["dims"]["launch"] for probe in stored(result).probes} == {1, 2, 3}
    assert stored(result).findings[0] == "1 of 3 searches was incomplete."
    found = condensed(result)
    assert [one.round for one in found.trials] == [1, 2]
    assert [one.round for one in found.missing] == [3]
    assert found.failures == ()
    assert rows("r", APP[:1], finished=False).trials == ()


def test_a_round_that_was_added_is_planned_once() -> None:
    result = capacity_result("r", {"default": APP[:3]})
    cut = replace(result.run, plan=result.run.plan[:2])
    resume = Resume(("capacity",), cut.started_at, plan=result.run.plan[2:])
    found = condensed(replace(result, run=cut, resumes=(resume,)))
    assert [(one.round, one.row.label) for one in found.plan] == [(at, LABEL) for at in (1, 2, 3)]


def test_rounds_that_were_not_needed_are_not_missing() -> None:
    result = capacity_result("r", {"default": APP[:3]})
    assert [one.round for one in condensed(result).plan] == [1, 2, 3]
    more = replace(
        capacity_result("r", {"default": APP}), stop=RunStop(5, 20, "settled", "t"), last=5
    )
    assert [one.round for one in condensed(more).plan] == [1, 2, 3, 4, 5]


def test_the_same_app_twice_is_not_regressed() -> None:
    found = alike_runs(rows("a", APP), rows("b", APP))
    assert found.rows[0].word == "same"
    assert broken(found, "slower") == []
    assert "few-windows" not in {one.code for one in found.rows[0].doubts}


def test_a_lower_capacity_breaks_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = both(
        tmp_path,
        capacity_result("before", {"default": APP}),
        capacity_result("after", {"default": SLOWER}),
    )
    assert run(["compare", *folders]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.match(r"after is (19|20)(\.\d)? % slower than before \(.* %\): regressed, 5", out)
    assert "5 launches a side" in out and LABEL in out
    assert run(["compare", *folders, "--fail-on", "regressed"]) == 3
    assert f"gate: regressed: {LABEL}: 19.8 % slower (" in capsys.readouterr().err
    assert run(["compare", *reversed(folders), "--fail-on", "regressed"]) == 0


def test_capacities_at_unlike_slos_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = capacity_result("a", {"default": APP[:3]})
    b = capacity_result("b", {"default": SLOWER[:3]}, slo="p99=40ms")
    folders = both(tmp_path, a, b)
    for force in ([], ["--force"]):
        assert run(["compare", *folders, *force]) == 2
        out, err = capsys.readouterr()
        assert out == "" and "have no row in common" in err


def test_a_service_that_no_rate_meets_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    floor = capacity_result("after", {"default": [FLOOR] * 3}, launch_s=FEW_S)
    assert stored(floor).dims["ceiling"] == "floor"
    folders = both(tmp_path, capacity_result("before", {"default": APP[:3]}), floor)
    assert run(["compare", *folders, "--fail-on", "regressed"]) == 3
    out, err = capsys.readouterr()
    assert "measured in 0 of 3 launches of B, in 3 of 3 of A" in err
    assert "(no rate met the SLO)" in " ".join(out.split())
    assert run(["compare", *reversed(folders), "--fail-on", "regressed"]) == 0


def test_what_the_client_could_not_load_is_not_worse() -> None:
    beyond = capacity_result("b", {"default": [BEYOND] * 3})
    assert stored(beyond).dims["ceiling"] == "client" and "client" in stored(beyond).words
    b = condensed(beyond)
    assert len(b.broken) == 3 and all(one.counts.completed for one in b.trials)
    for sides in ((rows("a", APP[:3]), b), (b, rows("a", APP[:3]))):
        found = of_runs(*sides)
        assert found.rows[0].word == "inconclusive" and not found.rows[0].worse
        assert broken(found, "slower") == []
        assert broken(found, "inconclusive") != []
    assert "at least" in b.failures[0].message
    assert "(the client could send no more)" in b.failures[0].message


def test_probes_that_contradict_each_other_are_held_against_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unsure = LaunchEstimate(None, None, None, 395.0, ceiling="floor")
    b = capacity_result("b", {"default": APP[:3]})
    a = rows("a", APP[:3])
    monkeypatch.setattr(Searches, "estimates", lambda self, _: [unsure] * 3)
    found = of_runs(a, condensed(b))
    assert not found.rows[0].worse and broken(found, "slower") == []
    assert found.failures[0].endswith("below 395 req/s (higher ones met the SLO)")


def test_a_bounded_launch_is_left_out_and_said() -> None:
    a, b = rows("a", APP), rows("b", [*APP[:4], BEYOND])
    found = alike_runs(a, b)
    assert list(found.rows[0].line("throughput").b_values) == [1, 2, 3, 4]
    assert found.rows[0].measured == (5, 4) and found.rows[0].planned == (5, 5)
    (failure,) = found.failures
    assert failure.startswith(f"B: default, round 5, trial, {LABEL}: only bounded: at least")
    assert "1 failure" not in headline(found)  # the findings say so


def nights() -> list[Result]:
    """Five nights with three launches each; the capacity falls at the last."""
    return [
        capacity_result(f"n{at + 1}", {"default": (APP if at < 4 else SLOWER)[:3]}, day=at)
        for at in range(5)
    ]


def test_a_drop_is_found_in_the_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path, nights())
    assert run(["history", str(tmp_path), "--fail-on", "regressed"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"capacity, app: n5 is (19|20)(\.\d)? % slower than the 4 runs before", out)
    assert LABEL in out


def test_a_newest_run_that_is_only_bounded_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    floor = capacity_result("n9", {"default": [FLOOR] * 3}, launch_s=FEW_S, day=8)
    store(tmp_path, [*nights()[:4], floor])
    assert run(["history", str(tmp_path), "--fail-on", "regressed"]) == 3
    out, err = capsys.readouterr()
    assert "not judged" in err and "n9" in err
    assert "no rate met the SLO" in " ".join(out.split())


def test_a_damaged_suite_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = capacity_result("good", {"default": APP[:3]})
    folders = both(tmp_path, good, capacity_result("bad", {"default": APP[:3]}))
    records = Path(folders[1]) / "records.jsonl"
    first, _, rest = records.read_text().partition("\n")
    suite = {**good.run.suite, "capacity": {"slo": "fast"}}
    records.write_text(to_line(replace(good.run, id="bad", suite=suite)) + rest)
    assert first and run(["compare", *folders]) == 2
    assert f"{folders[1]}: suite.capacity.slo: 'fast'" in capsys.readouterr().err
    assert run(["history", str(tmp_path)]) == 2
    assert "suite.capacity.slo" in capsys.readouterr().err
