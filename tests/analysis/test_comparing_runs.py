import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from serve_bench.analysis.comparing import broken, of_runs
from serve_bench.analysis.comparing.pooled import estimate_spread, measure_spreads
from serve_bench.analysis.history import build_history
from serve_bench.analysis.ratios import ASSUMED, RunSpread, unpaired
from serve_bench.analysis.statistics import summarize
from serve_bench.core.errors import BadInput
from serve_bench.core.facts import HostFacts, TrialFlags
from serve_bench.core.result import Metric, Result, Teardown
from serve_bench.core.traffic import Row
from serve_bench.view.verdict_words import headline
from tests.cases import cases, sure
from tests.cases import refusal as refusal_of
from tests.history_records import night
from tests.records import ROWS, cell, failure_of
from tests.rendering import render, render_comparing
from tests.versus_records import HOST, alike_runs, micro_result, micro_run, versus_result

BEFORE = (500.0, 510.0, 490.0)
SLOWER = (400.0, 404.0, 398.0)
ROW = ROWS[2]


def runs(b: Sequence[float] = SLOWER, a: Sequence[float] = BEFORE) -> tuple[Result, Result]:
    return micro_result({ROW: a}), micro_result({ROW: b}, "after")


def refusal(a: Result, b: Result, **given: Any) -> str:
    return refusal_of(alike_runs, a, b, **given)


def with_host(result: Result, **facts: Any) -> Result:
    return replace(result, run=replace(result.run, host=structs.replace(result.run.host, **facts)))


@cases("few", 1, 2)
def test_fewer_than_three_launches_are_inconclusive(few: int) -> None:
    found = alike_runs(*runs(b=SLOWER[:few]))
    assert found.word == "inconclusive"
    assert found.pairs[0][1].judged.why == f"3 and {few} launches: a verdict takes 3"
    assert found.pairs[0][1].judged.rounds_needed == 3
    assert broken(found, "regressed") == []
    assert broken(found, "inconclusive") != []
    even = alike_runs(*runs(BEFORE[:few], SLOWER[:few]))
    assert even.pairs[0][1].judged.why.startswith(f"{few} launch{'es' * (few > 1)} a side: a ")


def test_what_one_run_alone_has_is_listed() -> None:
    a = micro_result({ROWS[0]: BEFORE, ROW: BEFORE})
    found = alike_runs(a, micro_result({ROW: BEFORE, ROWS[1]: BEFORE}, "after"))
    sides = [(row.side, row.row) for row in found.alone]
    assert sides == [("A", "single client"), ("B", "8 clients")]
    text = render_comparing(found)
    assert "not compared: single client" in text and "not compared: 8 clients" in text
    assert [len(broken(found, word)) for word in ("regressed", "inconclusive")] == [0, 2]
    # A cell is matched whatever the order of its axes.
    of = {**cell(1, 10000, 8), "log_level": "ERROR", "body_type": "str"}
    turned = micro_result({ROW: BEFORE}, "after", of=dict(reversed(of.items())))
    assert len(alike_runs(micro_result({ROW: BEFORE}, of=of), turned).rows) == 1


def test_doubts_of_each_run_stand_with_its_side() -> None:
    left = Teardown("default-1", 1.0, 3, False, ("raylet",))
    a = micro_result({ROW: BEFORE}, failed=4)
    found = alike_runs(a, micro_result({ROW: BEFORE}, "after", steal=90.0, others=[left]))
    sides = {(doubt.side, doubt.code) for doubt in found.rows[0].doubts}
    assert sides == {("A", "errors"), ("B", "steal")}
    assert any(line.startswith("B: unclean-teardown") for line in found.warnings)


def test_variants_are_matched_by_name() -> None:
    a = micro_result({ROW: BEFORE}, variants=("default", "optimized"))
    b = micro_result({ROW: SLOWER}, "after", variants=("optimized", "default", "haproxy"))
    found = alike_runs(a, b)
    matched = [row.variants for row in found.rows]
    assert matched == [("default", "default"), ("optimized", "optimized")]
    assert found.notes == ("B alone has variant haproxy",)
    levels = sorted(line.judged.alpha or 0 for _, line in found.pairs if line.gated)
    assert levels == pytest.approx([0.025, 0.05])
    # One variant a run is matched though the names differ.
    a, b = micro_result({ROW: BEFORE}), micro_result({ROW: SLOWER}, "x", variants=("optimized",))
    found = alike_runs(a, b)
    assert found.names == ("default", "optimized")
    assert found.notes == ("one variant a run, matched though named default and optimized",)


def test_a_person_chooses_among_several() -> None:
    a = micro_result({ROW: BEFORE}, variants=("default", "optimized"))
    b = micro_result({ROW: SLOWER}, "after", variants=("haproxy", "mine"))
    assert refusal(a, b).endswith("haproxy, mine; --variant-a and --variant-b choose")
    assert alike_runs(a, b, chosen=("optimized", "mine")).names == ("optimized", "mine")
    assert refusal(a, b, chosen=("optimized", None)) == "--variant-b: choose one of haproxy, mine"
    assert "did you mean 'optimized'?" in refusal(a, b, chosen=("optimised", "mine"))
    # Of the same name, or the only one there is.
    twice = micro_result({ROW: SLOWER}, "after", variants=("optimized", "default"))
    assert alike_runs(a, twice, chosen=("default", None)).sides[1].variant == "default"
    other = micro_result({ROW: SLOWER}, "after", variants=("mine",))
    assert alike_runs(a, other, chosen=("default", None)).sides[1].variant == "mine"


def test_a_run_against_itself_needs_two_variants_and_is_paired_by_round() -> None:
    lone = micro_result({ROW: BEFORE})
    assert refusal(lone, lone).endswith("same run: it has one variant, default: nothing to compare")
    both = micro_result({ROW: (100.0, 200.0, 400.0)}, variants=("default", "optimized"))
    assert "--variant-a and --variant-b choose two of its variants" in refusal(both, both)
    trials = tuple(
        replace(at, metrics={"throughput": Metric("requests/s", "higher", (rate * 0.8,))})
        if at.variant == "optimized" and (rate := 100.0 * 2 ** (at.round - 1))
        else at
        for at in both.trials
    )
    both = replace(both, trials=trials)
    found = alike_runs(both, both, chosen=("default", "optimized"))
    assert found.paired
    assert found.word == "regressed"  # by round it is always 0.8, whatever the machine does
    assert headline(found).endswith("3 rounds")


def test_runs_that_cannot_be_compared() -> None:
    run, other = micro_result({ROW: BEFORE}), micro_result({ROW: BEFORE}, "x")
    assert "RUN_A: is a run of versus" in refusal(versus_result(), run)
    assert "RUN_B: is a run of versus" in refusal(run, versus_result())
    assert "RUN_A: no row was measured" in refusal(replace(run, trials=()), other)
    cells = micro_result({ROW: BEFORE}, "after", of=cell(100, 1, 1))
    assert "have no row in common: max_batch_size 1 against 100" in refusal(run, cells)
    # Unlike versions of Ray are refused by what ran.
    a = micro_result({ROW: BEFORE}, versions={"ray": "2.60.0", "python": "3.11.9"})
    b = micro_result({ROW: BEFORE}, "after", versions={"ray": "2.49.1", "python": "3.12.1"})
    assert "unlike: Ray 2.60.0 against 2.49.1 (" in refusal(a, b)
    assert "not the same: Python 3.11.9 against 3.12.1" in alike_runs(a, b, force=True).warnings
    large = Row("100 connections", "raw", 100, 1, data_size="large")
    said = refusal(micro_result({ROW: BEFORE}), micro_result({large: BEFORE}, "after"))
    assert "unlike: data size of rows small against large (" in said
    # Every difference is named at once.
    b = micro_result({ROW: BEFORE}, run=replace(micro_run("after", windows=3), command="noop"))
    said = refusal(micro_result({ROW: BEFORE}), with_host(b, cpu="Other"))
    assert "CPU Test CPU against Other; command micro against noop; windows 10 against 3" in said


@cases(
    "facts, message",
    ({"cpu": "Other CPU"}, "CPU Test CPU against Other CPU"),
    ({"machine": "aarch64"}, "machine x86_64 against aarch64"),
    ({"logical_cores": 8}, "cores 4 against 8"),
    ({"usable_cores": 2}, "usable cores 4 against 2"),
    ({"cpu_quota_cores": 1.5}, "CPU quota none against 1.5"),
    ({"memory_bytes": 32 << 30}, "memory 16.0 GiB against 32.0 GiB"),
    ({"memory_limit_bytes": 4 << 30}, "memory limit none against 4.0 GiB"),
    ({"kernel": "Linux 5.15.0-1-generic"}, "kernel Linux 6.8.0-45-generic against Linux 5.15"),
    ({"governor": "powersave"}, "CPU governor none against powersave"),
)
def test_unlike_hosts_are_refused_and_named(facts: Mapping[str, Any], message: str) -> None:
    a, b = runs()
    said = refusal(a, with_host(b, **facts))
    assert said.startswith(f"RUN_A and RUN_B are unlike: {message}")
    assert said.endswith("(--force compares them)")
    forced = alike_runs(a, with_host(b, **facts), force=True)
    assert len(forced.unlike) == 1 and forced.unlike[0].startswith(message)
    assert "unlike runs, compared by force" in headline(forced)


@cases(
    "facts, warned",
    ({"load_1m": 0.4}, None),
    ({"memory_bytes": int(0.97 * (16 << 30))}, None),
    ({"id": "bbbbbbbbbbbb"}, "the hosts have different names"),
    ({"kernel": "Linux 6.8.0-51-generic"}, "not the same: kernel Linux 6.8.0-45-generic"),
)
def test_hosts_that_may_be_unlike(facts: Mapping[str, Any], warned: str | None) -> None:
    a, b = runs()
    found = alike_runs(a, with_host(b, **facts))
    assert found.unlike == ()
    assert (found.warnings == ()) if warned is None else found.warnings[0].startswith(warned)
    # A fact that one host does not tell is passed over.
    assert alike_runs(a, replace(b, run=replace(b.run, host=HostFacts()))).unlike == ()


NO_SETTINGS: dict[str, Any] = {"launches": 9, "name": "x", "seed": 7, "rows": [], "slo": "p99=1s"}
ON_NODES = {"load_on": {"address": "10.0.0.1", "nodes": 2}}


@cases(
    "suite, message",
    ({"window_s": 0.5}, "window 1 s against 0.5 s"),
    ({"windows": 3}, "windows 10 against 3"),
    ({"app": "ranker"}, "app noop against ranker"),
    (ON_NODES, "load from this host against from 2 nodes of 10.0.0.1"),
    # What is no setting of the load may differ.
    *(({name: value}, "") for name, value in NO_SETTINGS.items()),
)
def test_unlike_suites_are_refused(suite: Mapping[str, Any], message: str) -> None:
    a = micro_result({ROW: BEFORE})
    b = micro_result({ROW: BEFORE}, run=micro_run("after", **suite))
    if message:
        assert f"unlike: {message} (" in refusal(a, b)
    else:
        assert alike_runs(a, b).unlike == ()


def test_of_an_own_app_the_request_must_be_alike_and_the_code_may_differ() -> None:
    def own_app(id: str, folder: str, body: str, name: str = "app") -> Result:
        app = {"target": f"{folder}/app.py:{name}", "folder": folder, "asked": {"body": body}}
        return micro_result({ROW: BEFORE}, run=micro_run(id, app=app))

    same = alike_runs(own_app("a", "base", "x"), own_app("b", "pr", "x"))
    assert same.unlike == () and not any("not the same" in text for text in same.warnings)
    other = alike_runs(own_app("a", "base", "x"), own_app("b", "base", "x", "fast"))
    assert other.unlike == ()
    assert "not the same: app app.py:app against app.py:fast" in other.warnings
    noop = micro_result({ROW: BEFORE})
    assert "unlike: app app.py:app against noop (" in refusal(own_app("a", "base", "x"), noop)
    said = refusal(own_app("a", "base", "x"), own_app("b", "pr", "y"))
    assert "unlike: request body x against y (" in said


def test_figures_of_a_broken_cluster_enter_no_ratio_no_comparison_and_no_history() -> None:
    """A failure about a trial, whatever it measured, and a trial that was interrupted."""
    a = micro_result({ROW: BEFORE})
    fell = micro_result({ROW: (28.0, 29.0, 27.0)}, "after")
    lost = replace(fell, failures=tuple(failure_of(trial, "raylet ended") for trial in fell.trials))
    short = [replace(trial, flags=TrialFlags(interrupted=True)) for trial in fell.trials]
    assert [broken(alike_runs(a, fell), "regressed") != []] == [True]
    for after in (lost, replace(fell, trials=tuple(short))):
        (row,) = alike_runs(a, after).rows
        assert {line.b for line in row.lines} == {None} and row.measured == (3, 0)
        with pytest.raises(BadInput, match="every row of it broke"):
            build_history({"x": after, "y": replace(after, run=replace(after.run, id="y"))})
    # One launch of several broke: the others stand.
    (row,) = alike_runs(a, replace(fell, failures=lost.failures[:1])).rows
    assert row.line("throughput").b == pytest.approx((29.0 * 27.0) ** 0.5)
    # No gate breaks on launches that broke, as it does on missing ones: they tell nothing of B.
    again = micro_result({ROW: BEFORE}, "after")
    struck = tuple(failure_of(trial, "raylet 7 ended") for trial in again.trials)
    cut = replace(again.trials[0], flags=TrialFlags(interrupted=True))
    for after in (
        replace(again, failures=struck[:1]),
        replace(again, failures=struck),
        replace(again, trials=(cut, *again.trials[1:])),
    ):
        found = alike_runs(a, after)
        assert found.word == "inconclusive" and broken(found, "regressed") == []


@cases("base", True, False)
def test_a_report_has_no_ratio_to_or_of_a_broken_row(base: bool) -> None:
    whole = micro_result({ROW: BEFORE}, variants=("default", "optimized"))
    assert [line.ratio for line in summarize(whole)] == [None, 1.0]
    at = next(trial for trial in whole.trials if (trial.variant == "default") is base)
    made = replace(whole, failures=(failure_of(at, "replica 7 ended"),))
    lines = summarize(made)
    assert [line.ratio for line in lines] == [None, None]
    assert [line.broken for line in lines] == [base, not base]
    text = render(made)
    # Both are shown, that of the sound row in the headline too, with what broke the other.
    assert text.count("500.0") == 3 and "replica 7 ended" in text


def nights(values: Sequence[float]) -> list[Result]:
    """Make runs of three launches about these values."""
    return [night(at, {ROW: [rate, 1.01 * rate, 0.99 * rate]}) for at, rate in enumerate(values)]


def test_without_other_runs_the_spread_between_runs_is_assumed_and_said() -> None:
    compared = of_runs(*runs())
    line = compared.rows[0].line("throughput")
    assert sure(line.judged.interval).between > 1.9 * ASSUMED.sd**2
    assert compared.word == "regressed"
    assert of_runs(*runs((450.0, 455.0, 445.0))).word != "regressed"
    assert any("the spread between runs is assumed, 6 %" in line for line in compared.warnings)
    assert not [warning for warning in alike_runs(*runs()).warnings if "assumed" in warning]


def test_other_runs_tell_how_far_runs_differ() -> None:
    values = (500, 520, 480, 510)
    a, b = runs((470.0, 475.0, 465.0))
    ((_, spreads),) = measure_spreads(a, b, nights(values)).items()
    spread = spreads["throughput"]
    assert (spread.runs, spread.launches) == (4, 3)
    assert 0.015 < spread.sd < 0.06 and spread.df > 2
    compared = of_runs(a, b, spreads=measure_spreads(a, b, nights(values)))
    assert compared.word == "inconclusive" and alike_runs(a, b).word != "inconclusive"
    assert not [warning for warning in compared.warnings if "assumed" in warning]
    # A and B themselves and unlike runs tell nothing.
    a, b = runs()
    four = nights((500, 520, 480, 510))
    assert measure_spreads(a, b, [*four[:3], a, b]) == {}
    other = replace(four[3], run=replace(four[3].run, host=structs.replace(HOST, cpu="Other")))
    assert measure_spreads(a, b, [*four[:3], other]) == {}


def test_a_step_among_other_runs_counts_once_and_a_drift_hardly() -> None:
    logs = [0.02, -0.02, 0.01, -0.01] * 4
    known = estimate_spread(logs, 3).sd
    stepped = [log + 0.2 * (at >= 8) for at, log in enumerate(logs)]
    assert known < estimate_spread(stepped, 3).sd < 0.55 * statistics.stdev(stepped)
    drifting = [log + 0.01 * at for at, log in enumerate(logs)]
    assert estimate_spread(drifting, 3).sd == pytest.approx(known, rel=0.1)
    assert statistics.stdev(drifting) > 2 * known
    # With as many launches as the runs had, the error is that of two runs.
    a, b, spread = (500.0, 510.0, 490.0), (470.0, 480.0, 465.0), RunSpread(0.03, 5, 3, 6)
    interval = unpaired(a, b, spread)
    assert interval.se == pytest.approx(math.sqrt(2) * 0.03, rel=0.001)
    assert interval.df == pytest.approx(5, rel=0.01)
    assert unpaired(a, b, RunSpread(0.0, 5, 3, 6)) == unpaired(a, b)
    assert unpaired(a, b, RunSpread(0.03)).se > interval.se
