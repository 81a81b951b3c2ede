"""`serve-bench versus` on a real Ray Serve: two clusters at once, the verdict, and their end."""

import signal
from pathlib import Path

import pytest

from serve_bench.core.result import Result
from serve_bench.store import read
from tests.cases import sure
from tests.integration.conftest import (
    ended,
    measure,
    reported,
    start,
    wait_for_line,
    wait_until_clean,
)

pytestmark = [pytest.mark.alone, pytest.mark.ray]


def test_default_against_optimized_broken_off_and_settled(resumed: bool, tmp_path: Path) -> None:
    line = ["versus", "--a", "default", "--b", "optimized", "--clients", "raw:20", "--quick"]
    process = start(*line, "--rounds", "6", "--fail-on", "slower", "--out", "run", cwd=tmp_path)
    wait_for_line(process, r"round 2, .*deploy")
    process.send_signal(signal.SIGINT)
    rest = ended(process, 130, 30)
    assert wait_until_clean(1) == []
    assert "interrupted" in rest and "--resume run" in rest
    first = read(tmp_path / "run")
    assert {trial.round for trial in first.trials} == {1}
    assert len(first.teardowns) == 4 and all(teardown.clean for teardown in first.teardowns)
    check_launches(first, 1)
    check_sliced(first)
    if resumed:
        result = measure("versus --resume run", tmp_path)
        assert result.complete and all(teardown.clean for teardown in result.teardowns)
        assert result.stop is not None and result.stop.why == "settled"
        rounds = result.stop.after_round
        measured = {trial.round for trial in result.trials}
        assert 3 <= rounds < 6 and measured == {*range(1, rounds + 1)}
        check_launches(result, rounds)
        check_sliced(result)
        assert wait_until_clean(1) == []


def check_launches(result: Result, rounds: int) -> None:
    """Both of a round were up at once, on ports of their own; the second round swapped them."""
    of_whole = {trial.launch for trial in result.trials}
    assert len(of_whole) == 2 * rounds
    launches = {launch.id: launch for launch in result.launches}
    assert len(launches) == len(result.launches)
    for round_, order in ((1, ["default", "optimized"]), (2, ["optimized", "default"]))[:rounds]:
        pair = sorted(int(launch) for launch in of_whole if launches[launch].round == round_)
        first, other = (launches[str(number)] for number in pair)
        assert [first.variant.name, other.variant.name] == order
        assert first.proof["port"] != other.proof["port"]
    owners = {launch.variant.name: launch.proof["port_owner"]["role"] for launch in result.launches}
    assert owners == {"default": "proxy", "optimized": "haproxy"}


def check_sliced(result: Result) -> None:
    """Both sides were loaded in turn, and optimized is far ahead."""
    rates: dict[str, float] = {}
    for trial in result.trials:
        slices = sure(trial.client.slices)
        assert slices.method == "slices" and trial.counts.failed_total == 0
        assert slices.connections == 20  # the load is the one named
        assert len(slices.completed) == len(slices.begun_s) == len(slices.length_s)
        (cpu_s,) = trial.metrics["server_cpu"].windows or ()
        assert 0.1 < cpu_s < 2 * 30
        roles = {process.role for process in trial.usage.processes}
        assert "replica" in roles and ("haproxy" in roles) is (trial.variant == "optimized")
        rates[trial.variant] = sum(slices.completed) / sum(slices.length_s)
    assert rates["optimized"] > 2 * rates["default"]
    chosen = {
        (slices.slice_s, slices.chosen_drain_s)
        for slices in (sure(trial.client.slices) for trial in result.trials)
    }
    assert len(chosen) == 1  # what the first round of the first sitting chose held


@pytest.mark.ci
def test_three_sides_are_up_at_once_and_each_is_compared_with_a(tmp_path: Path) -> None:
    sides = ["--a", "default", "--b", "haproxy", "--b", "optimized", "--clients", "raw:20"]
    result = measure(["versus", *sides, "--quick", "--rounds", "1"], tmp_path)
    assert result.complete and all(teardown.clean for teardown in result.teardowns)
    assert [trial.variant for trial in result.trials] == ["default", "haproxy", "optimized"]
    begun = [sure(trial.client.slices).begun_s for trial in result.trials]
    firsts = {turn.index(min(turn)) for turn in zip(*begun, strict=True)}
    assert len(firsts) > 1
    for trial in result.trials:  # CPU is that of its own requests
        seen = sure(trial.client.slices)
        assert seen.cpu_s["replica"] > 0 and 0 <= seen.idle_cores["replica"] < 0.5
        assert trial.metrics["server_cpu"].windows == pytest.approx(
            [sum(seen.cpu_s.values())], abs=1e-4
        )
    rows = reported(tmp_path, "run")["comparisons"]
    ratios = {row["dims"]["side"]: row["figures"] for row in rows}
    assert ratios.keys() == {"B1", "B2"} and "b_over_a" in ratios["B2"]
    assert wait_until_clean(1) == []
