"""A run of versus that ends once it is settled, and one that goes on after its end."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from scripts import bench_versus
from serve_bench.analysis.comparing import of_versus
from serve_bench.benchmarks.versus.bench import SHORTEST_SIDE_S, VersusRounds
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Rounds
from serve_bench.core.result import Record, Result, Resume, RunStop, result_of
from serve_bench.spec.sides import rounds_in_all
from serve_bench.view.verdict_words import headline
from tests.cases import Call, Patch, cases
from tests.kinds.versus.test_several_sides import suite
from tests.records import AT, ROWS, planned, store_run
from tests.versus_records import rates, versus_result

ROW = ROWS[2]
SETTLED = RunStop(4, 6, "settled", AT)
CLEAR = versus_result({ROW: rates(580.0, 6850.0)}, looks=True)
NOISY = versus_result({ROW: rates(580.0, 575.0, wobble=9.0)}, looks=True)


def stop_after(result: Result, folder: Path, budget_s: float | None = None) -> RunStop | None:
    """Why a run of which these are the first three rounds ends after them."""
    first = replace(result, trials=tuple(trial for trial in result.trials if trial.round <= 3))
    suite = VersusSpec.stored({**result.run.suite, "rounds": 6})
    whole = suite.plan()
    rounds = VersusRounds(suite, store_run(folder, first), "x", rounds=whole, budget_s=budget_s)
    plan = rounds.plan()
    plan.expected_s(2, None)
    return plan.over()


def test_it_ends_after_the_round_that_settles_it_or_fills_the_budget(tmp_path: Path) -> None:
    stop = stop_after(CLEAR, tmp_path / "clear")
    assert stop is not None and (stop.after_round, stop.of, stop.why) == (3, 6, "settled")
    assert stop_after(NOISY, tmp_path / "noisy") is None
    unseen = versus_result({ROW: rates(580.0, 6850.0)})
    assert stop_after(unseen, tmp_path / "without looks") is None
    # No round begins that would end after the budget.
    suite = VersusSpec.stored({**NOISY.run.suite, "rounds": 6})
    next_s = suite.expected_s(suite.plan()[3:4])
    stop = stop_after(NOISY, tmp_path / "short", next_s - 1)
    assert stop is not None and (stop.after_round, stop.why) == (3, "budget")
    assert stop_after(NOISY, tmp_path / "long", next_s + 1) is None


def test_what_is_planned_behind_a_stop_is_not_missing() -> None:
    records: list[Record] = [CLEAR.run, *(trial for trial in CLEAR.trials if trial.round <= 4)]
    assert len(result_of(records).missing) == 4
    stopped = result_of([*records, SETTLED])
    assert (stopped.missing, stopped.stop, stopped.last) == ((), SETTLED, 4)
    assert "4 rounds (settled after 4 of at most 6 rounds)" in headline(of_versus(stopped))
    cell = dict(CLEAR.run.plan[0].cell)
    added = tuple(planned(side, ROW, 7, cell) for side in ("default", "optimized"))
    resumed = result_of([*records, SETTLED, Resume((), AT, rounds=7, plan=added)])
    assert resumed.stop is None and resumed.missing[-2:] == added
    assert len(resumed.missing) == 6


@cases(
    "text, why, last",
    (None, None, 6),
    (None, "settled", 4),
    (None, "budget", 6),  # what the budget left is measured
    ("+6", "settled", 10),
    ("+2", None, 8),
    ("+999", None, 1000),
    ("5", "settled", 5),
    ("9", None, 9),
)
def test_a_run_goes_on_up_to(
    text: str | None, why: Literal["settled", "budget"] | None, last: int
) -> None:
    earlier = replace(CLEAR, trials=tuple(trial for trial in CLEAR.trials if trial.round <= 4))
    if why is not None:
        earlier = replace(earlier, stop=RunStop(4, 6, why, AT), last=4)
    assert rounds_in_all(Rounds.read(text) if text else None, earlier, 6) == last
    with pytest.raises(BadInput, match=r"--rounds: 3: 6 are measured; \+N adds rounds to them"):
        rounds_in_all(Rounds(3), CLEAR, 6)


@cases(
    "flags, code, word",
    ("", 0, "slower"),
    ("--fail-on slower", 3, "slower"),
    ("--fail-on regressed", 0, "slower"),
    ("--fail-on regressed --threshold 2%", 3, "regressed"),
    ("--gate p99", 0, "slower"),
)
def test_another_gate(flags: str, code: int, word: str, tmp_path: Path, call: Call) -> None:
    folder = store_run(tmp_path / "run", versus_result({ROW: rates(500.0, 485.0, wobble=0.5)}))
    out, _ = call("report", folder, "--format", "json", *flags.split(), code=code)
    verdict = json.loads(out)["points"][0]
    assert verdict["dims"]["verdict"] == word
    assert verdict["dims"]["gate"] == ["throughput", *(["p99"] if "p99" in flags else [])]
    threshold = 0.02 if "2%" in flags else 0.05
    assert verdict["figures"]["alarm_threshold"]["value"] == threshold


def test_intervals_are_held_against_the_truth(tmp_path: Path) -> None:
    known = {"part": "truth", "case": "cpu-5", "variant": "default", "cpu": 0.0}
    lines = [json.dumps(known | {"launch": at, "rate": 0.001 * at}) for at in (-1, 1)]
    for launch, rate in enumerate((581.0, 690.0), 1):
        run = {"part": "coverage", "case": "cpu-5", "variant": "default", "launch": launch}
        summary = bench_versus.summarize(versus_result({ROWS[2]: rates(580.0, rate)}))
        lines.append(json.dumps(run | {"with": ""} | summary))
    file = tmp_path / "figures.jsonl"
    file.write_text("\n".join(lines))
    shown = list(bench_versus.coverage_lines(file))
    assert "throughput: holds the truth in 1 of 2, agrees with it in 1" in shown


@cases("rounds, least", (20, "3 rounds"), (3, "3 rounds"), (1, "1 round"))
def test_a_budget_has_room_for_a_verdict(rounds: int, least: str) -> None:
    asked = suite(rounds=rounds)
    fewest = replace(asked, rounds=min(3, rounds))
    takes_s = fewest.expected_s(fewest.plan())
    asked.check_budget()
    replace(asked, budget_s=takes_s + 1).check_budget()
    with pytest.raises(BadInput, match=rf"^--budget: .* is not enough: {least} of 16 s a .* min"):
        replace(asked, budget_s=takes_s - 1).check_budget()


def rounds_in_budget(
    late_s: float, room_s: float, folder: Path, monkeypatch: Patch
) -> tuple[VersusRounds, list[float], float, str]:
    """Run three slow rounds in a budget with so much room; return their seconds, rest and end."""
    asked = suite(rounds=3)
    plan, now_s, sides = asked.plan(), 0.0, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    budget_s = asked.expected_s(plan) + room_s
    rounds = VersusRounds(asked, folder, "abc", rounds=plan, budget_s=budget_s)
    for place in range(3):
        rounds.expected_s(place, None)
        sides.append(rounds.spec.side_s)
        now_s += rounds.spec.expected_s(plan[place : place + 1]) + late_s
        if place < 2 and (stop := rounds.stop_early()) is not None:
            return rounds, sides, budget_s - now_s, stop.why
    return rounds, sides, budget_s - now_s, ""


@cases("late_s, room_s", (5.0, 0.0), (10.0, 2.0), (3.0, 9.0))
def test_rounds_that_take_longer_are_followed_by_shorter_ones(
    late_s: float, room_s: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    _, sides, left_s, why = rounds_in_budget(late_s, room_s, tmp_path, monkeypatch)
    assert why == "" and left_s >= 0
    assert (sides[2] < sides[0]) is (3 * late_s > room_s)


def test_a_round_is_not_shortened_without_end(tmp_path: Path, monkeypatch: Patch) -> None:
    rounds, sides, left_s, why = rounds_in_budget(60.0, 0.0, tmp_path, monkeypatch)
    assert why == "budget" and rounds.spec.side_s == SHORTEST_SIDE_S
    assert len(sides) < 3 and left_s > 0


TIMED_OUT = "GET / on port {} had no answer in 30 s"


@cases(
    "failures, ends",
    ([[TIMED_OUT.format(1001), TIMED_OUT.format(1051)]], True),
    ([[TIMED_OUT.format(1001), "the app 'default' is DEPLOY_FAILED"]], False),
    ([[TIMED_OUT.format(1001)]], False),
    ([[TIMED_OUT.format(1001)], [TIMED_OUT.format(1101)]], True),
    ([[TIMED_OUT.format(1001)], ["raylet 7 ended"]], False),
)
def test_failures_that_end_the_run(failures: list[list[str]], ends: bool, tmp_path: Path) -> None:
    asked = suite(rounds=3)
    for measured in (False, True):
        rounds = VersusRounds(asked, tmp_path, "abc", rounds=asked.plan())
        if measured:
            rounds.note_measured()
        for messages in failures:
            rounds.note_failures(messages)
        stop = rounds.stop_early()
        assert (stop is not None and stop.why == "failure") is (ends and not measured)
