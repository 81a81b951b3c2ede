"""Rounds of so many requests: what they ask for, what fails them, what their clock leaves out."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest

from serve_bench.core.errors import RunFailed
from serve_bench.core.load_result import Counts, LoadResult
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.load import LoadError
from serve_bench.pytest_plugin import counted_rounds
from serve_bench.pytest_plugin.counted_rounds import CountedRounds, LoadClock
from tests.rounds import Scripted, round_of
from tests.servers import serving

LOAD = Load(Request("http://127.0.0.1:8000/"), connections=2, count=20)


class Time:
    """A perf_counter that stands still but for what a test lets pass."""

    now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(counted_rounds, "time", time)
    return time


def scripted(
    monkeypatch: pytest.MonkeyPatch, *script: float | LoadResult | BaseException
) -> Scripted:
    drive = Scripted(list(script))
    monkeypatch.setattr(counted_rounds, "drive_load", drive)
    return drive


def test_the_clock_advances_like_any_other(passed: Time) -> None:
    clock = LoadClock()
    began = clock.load_time()
    passed.now_s += 2.5
    assert clock.load_time() - began == 2.5


def test_between_two_readings_around_a_round_the_load_alone_has_passed(
    passed: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drive(load: Load, *_: object, **__: object) -> LoadResult:
        passed.now_s += 3.0  # processes were started, connections made
        return round_of(load, 0.75)

    monkeypatch.setattr(counted_rounds, "drive_load", drive)
    clock = LoadClock()
    rounds = CountedRounds(LOAD, clock)
    readings = [clock.load_time()]
    for _ in range(3):
        rounds.round()
        readings.append(clock.load_time())
    assert [b - a for a, b in pairwise(readings)] == [0.75] * 3
    passed.now_s += 1.0  # what comes between rounds still counts
    assert clock.load_time() - readings[-1] == 1.0


def test_a_round_asks_for_its_count_and_a_warm_up_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drive = scripted(monkeypatch, 1.0)
    rounds = CountedRounds(LOAD, LoadClock(), {"MARK": "x"})
    rounds.warm_up(2.0)
    rounds.round()
    assert [load.count for load in drive.loads] == [None, 20]
    assert drive.marks == [{"MARK": "x"}] * 2
    assert rounds.warmup is not None and rounds.warmup.steady and len(rounds.results) == 1


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (
            round_of(LOAD, 1.0, failed={"status": 3, "reset": 1}),
            r"round 1: 4 of 20 requests failed: 3 with another status \(seen: 200\), 1",
        ),
        (round_of(LOAD, 1.0, done=7), "round 1 was cut off after 9 s: 7 of 20 requests had ended"),
        (  # the others came in the drain, of which no figure of the round is
            replace(round_of(LOAD, 9.0), in_windows=Counts(20, 7, {}, 13)),
            "round 1 was cut off after 9 s: 7 of 20 requests had ended",
        ),
        (LoadError("connect", "h", 1, "refused"), "could not be run: connect: h:1: refused"),
    ],
)
def test_what_fails_a_round(
    turn: LoadResult | BaseException, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, turn)
    rounds = CountedRounds(LOAD, LoadClock(), longest_s=9.0)
    with pytest.raises(RunFailed, match=says):
        rounds.round()
    assert rounds.results == []


def test_allowed_errors_do_not_fail_it_but_a_cut_does(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, round_of(LOAD, 1.0, failed={"status": 20}), round_of(LOAD, 1.0, done=1))
    rounds = CountedRounds(LOAD, LoadClock(), errors_allowed=True)
    assert rounds.round().measured.failed_total == 20
    with pytest.raises(RunFailed, match="round 2 was cut off"):
        rounds.round()


@pytest.mark.process
def test_a_real_round_is_as_long_as_its_requests_and_exactly_so_many() -> None:
    with serving(delay_s=0.02) as server:
        load = Load(Request(server.url), connections=2, count=20)
        clock = LoadClock()
        began, began_all = clock.load_time(), time.perf_counter()
        result = CountedRounds(load, clock).round()
        took_s, took_all_s = clock.load_time() - began, time.perf_counter() - began_all
    assert len(server.log) == 20 and result.measured.completed == 20
    seen_s = (server.log[-1].answered_ns - server.log[0].received_ns) / 1e9
    # Processes were started and connections made: the clock has left that out.
    assert seen_s <= result.duration_s <= took_s < took_all_s
