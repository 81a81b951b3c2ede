"""Rounds of versus without Ray: what is started, recorded and taken down, whatever fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.versus import bench as versus_bench
from serve_bench.benchmarks.versus.bench import Pairs
from serve_bench.benchmarks.versus.measure import place_of
from serve_bench.benchmarks.versus.request import Pairing, Side, VersusSuite, versus_plan
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.axes import cell_defaults
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.plan import parse_row
from serve_bench.core.result import Failure, Metric, PlannedTrial, Record, Result, Teardown, Trial
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import LoadError
from serve_bench.runner.runner import Runner, RunStep
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, Deployed, LaunchFailed
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, StoreError, read
from tests.records import run as run_record

SIDES = (Side("default"), Side("optimized", BUILT_IN_VARIANTS["optimized"]))


@dataclass
class Here:
    """What goes on in a run: calls in order, and what is to fail, by (call, name of the side)."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    failing: dict[tuple[str, str], int] = field(default_factory=dict)
    ended: dict[str, list[str]] = field(default_factory=dict)
    apart: list[range] = field(default_factory=list)

    def note(self, call: str, name: str) -> None:
        self.calls.append((call, name))
        if self.failing.get((call, name), 0) > 0:
            self.failing[call, name] -= 1
            raise LaunchFailed(f"{call} of {name} failed", ("why",))


@dataclass
class FakeServing:
    """Stands for a cluster."""

    spec: LaunchSpec
    here: Here
    seconds: dict[str, float] = field(default_factory=dict)
    url: str = "http://127.0.0.1:1"
    ports: range = range(0)
    closed: bool = False
    imported: bool = True

    @property
    def name(self) -> str:
        return self.spec.variant.name

    def begin(self, apart_from: range = range(0)) -> None:
        self.ports = range(100 * int(self.spec.name), 100 * int(self.spec.name) + 50)
        self.url = f"http://127.0.0.1:{self.ports.start}"
        self.here.apart.append(apart_from)
        self.here.note("begin", self.name)

    def await_up(self, report: Callable[[str], None]) -> None:
        self.imported = False
        self.here.note("import", self.name)
        self.imported = True
        report("import")
        self.here.note("start", self.name)

    def deploy(self, app: Any, cell: Any) -> Deployed:
        self.here.note("deploy", self.name)
        return Deployed(0.5, False, {"replicas": []})

    def prove(self) -> dict[str, Any]:
        self.here.note("prove", self.name)
        return {"port": 1}

    def processes(self) -> list[Any]:
        return []

    def casualties(self) -> list[str]:
        return self.here.ended.pop(self.name, [])

    def alive(self) -> bool:
        return True

    def close(self) -> Reaped:
        if not self.closed:
            self.here.note("close", self.name)
        self.closed = True
        return Reaped(3, 0.1)


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[RunStep] = []
        self.failures: list[Failure] = []
        self.numbers: list[tuple[int, int]] = []

    def step(self, step: RunStep) -> None:
        self.steps.append(step)

    def trial(self, trial: Trial, number: int, of: int) -> None:
        self.numbers.append((number, of))

    def failure(self, failure: Failure) -> None:
        self.failures.append(failure)


def trial_of(planned: PlannedTrial, launch: str, completed: int = 10) -> Trial:
    return Trial(
        planned.key,
        launch,
        planned.round,
        planned.variant,
        planned.cell,
        planned.row,
        "2026-01-02T03:04:05+00:00",
        0.05,
        Warmup(0.5, True, 1),
        {"throughput": Metric("requests/s", "higher", windows=(100.0,))},
        Counts(completed, completed, {}, 0),
    )


Measured = Callable[[Pairing, tuple[str, str]], tuple[Trial, Trial]]


@dataclass
class Bench:
    """A runner on fakes, in a folder of its own."""

    folder: RunFolder
    here: Here
    monkeypatch: pytest.MonkeyPatch
    observer: Silent = field(default_factory=Silent)

    def run(self, suite: VersusSuite, measured: Measured | None = None) -> Result:
        """What stands in the records; `measured` stands for the loads."""
        self.monkeypatch.setattr(versus_bench, "Serving", lambda spec: FakeServing(spec, self.here))
        plan = versus_plan(suite)
        every = tuple(one for at in plan for pair in at.pairings for one in pair.planned)
        self.folder.append(run_record(*every))
        pairs = Pairs(suite, plan, self.folder.path, "abc123")
        runner = Runner(pairs.plan(), self.folder, self.observer)

        def measure(at: Pairing, targets: Any) -> tuple[Trial, Trial]:
            self.here.calls.append(("measure", f"round {at.planned[0].round}"))
            pairs.rows.chosen.setdefault(
                place_of(at), Slicing("slices", 0.05, 10, 100, why="fewer")
            )
            names = targets[0].launch, targets[1].launch
            return (measured or both)(at, names)

        self.monkeypatch.setattr(pairs.rows, "measure", measure)
        try:
            self.ok = runner.run()
        finally:
            self.result = read(self.folder.path)
        return self.result


def both(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
    first, second = (trial_of(p, launch) for p, launch in zip(at.planned, launches, strict=True))
    return first, second


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with ExitStack() as stack:
        made = RunFolder.create(tmp_path / "run", now=datetime.now(UTC))
        yield Bench(stack.enter_context(made), Here(), monkeypatch)


def suite(rounds: int = 2, **other: Any) -> VersusSuite:
    given: dict[str, Any] = {
        "cells": (cell_defaults(),),
        "rows": (parse_row("raw:100", "small", "x"),),
    } | other
    return VersusSuite("mine", SIDES, rounds=rounds, **given)


def test_a_round_is_both_sides_up_measured_and_down(bench: Bench) -> None:
    result = bench.run(suite())
    a, b = "default", "optimized"
    for number, (one, other) in ((1, (a, b)), (2, (b, a))):
        calls = bench.here.calls[13 * number - 13 : 13 * number]
        assert calls[:2] == [("begin", one), ("begin", other)]
        # These are done at once: in an order for each side, and in none between them.
        for name in (a, b):
            own = [call for call, whose in calls[2:10] if whose == name]
            assert own == ["import", "start", "deploy", "prove"]
        started = {call for call, _ in calls[2:6]}
        assert started == {"import", "start"}  # deployed once both are up
        assert calls[10:] == [("measure", f"round {number}"), ("close", one), ("close", other)]
    assert len(bench.here.calls) == 26
    assert bench.ok and result.complete
    assert [(one.id, one.variant.name, one.round) for one in result.launches] == [
        *[("1", a, 1), ("2", b, 1), ("4", a, 2), ("3", b, 2)]
    ]
    assert result.launches[1].variant.env == SIDES[1].variant.env
    assert [(one.launch, one.variant) for one in result.trials] == [
        *[("1", a), ("2", b), ("4", a), ("3", b)]
    ]
    assert [one.launch for one in result.deploys] == ["1", "2", "4", "3"]
    assert sorted(one.launch for one in result.teardowns) == ["1", "2", "3", "4"]
    assert bench.observer.numbers == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "fewer" in [step.phase for step in bench.observer.steps]


def test_the_second_side_gets_no_ports_of_the_first(bench: Bench) -> None:
    bench.run(suite(rounds=2))
    assert bench.here.apart == [range(0), range(100, 150), range(0), range(300, 350)]


@pytest.mark.parametrize(
    ("call", "side", "what"),
    [
        ("start", "default", "launch"),
        ("start", "optimized", "launch"),
        ("deploy", "default", "launch"),
        ("prove", "optimized", "launch"),
    ],
)
def test_a_side_that_fails_ends_its_round_and_all_is_taken_down(
    bench: Bench, call: str, side: str, what: str
) -> None:
    bench.here.failing[call, side] = 1
    result = bench.run(suite())
    assert not bench.ok and not result.complete
    (failure,) = result.failures
    assert (failure.what, failure.variant, failure.round) == (what, side, 1)
    assert failure.detail[0] == "why" and f"{call} of {side} failed" in failure.message
    started = sum(call == "begin" for call, _ in bench.here.calls)
    assert sum(call == "close" for call, _ in bench.here.calls) == started
    assert len(result.teardowns) == started
    assert [trial.round for trial in result.trials] == [2, 2]  # the next round went on
    assert len(bench.observer.failures) == 1


def test_a_side_without_ray_is_tried_once(bench: Bench) -> None:
    bench.here.failing["import", "optimized"] = 9
    other = Side("optimized", replace(BUILT_IN_VARIANTS["optimized"], python="other/python"))
    result = bench.run(replace(suite(rounds=3), sides=(SIDES[0], other)))
    assert [call for call, name in bench.here.calls if name == "optimized"].count("import") == 1
    assert [(one.round, one.variant) for one in result.failures] == [
        *[(1, "optimized"), (2, "optimized"), (3, "optimized")]
    ]
    assert [one.message == NOT_TRIED for one in result.failures] == [False, True, True]
    assert len(result.teardowns) == 2  # both sides of the first round; no later one was started


def test_a_cell_that_is_refused_later_costs_that_cell_alone(bench: Bench) -> None:
    cells = (cell_defaults(), {**cell_defaults(), "num_replicas": 2})
    calls = iter([0, 0, 1])

    def deploy(self: FakeServing, app: Any, cell: Any) -> Deployed:
        if next(calls, 0):
            raise LaunchFailed("not in force")
        return Deployed(0.1, True, {})

    bench.monkeypatch.setattr(FakeServing, "deploy", deploy)
    result = bench.run(suite(rounds=1, cells=cells))
    (failure,) = result.failures
    assert (failure.what, failure.variant) == ("deploy", "default")
    assert failure.cell is not None and failure.cell["num_replicas"] == 2
    assert {trial.cell["num_replicas"] for trial in result.trials} == {1}


def test_a_load_that_fails_is_a_failure_of_both_sides_rows(bench: Bench) -> None:
    def measured(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
        if at.planned[0].round == 1:
            raise LoadError("connect", "h", 1, "refused")
        return both(at, launches)

    result = bench.run(suite(), measured)
    assert [one.key for one in result.failures] == [
        one.key for one in versus_plan(suite())[0].pairings[0].planned
    ]
    assert all("refused" in one.message for one in result.failures)
    assert [trial.round for trial in result.trials] == [2, 2]


def test_the_side_that_cannot_be_reached_is_to_blame(bench: Bench) -> None:
    def measured(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
        raise LoadError("connect", "127.0.0.1", 100, "refused")  # of the first launch

    result = bench.run(suite(rounds=1), measured)
    told = {one.message: one.variant for one in result.failures}
    dead = told.pop("connect: 127.0.0.1:100: refused")
    (other,) = {"default", "optimized"} - {dead}
    assert told == {f"not measured without {dead}": other}


def test_a_part_that_ended_keeps_the_row_out_of_the_figures(bench: Bench) -> None:
    rows = (parse_row("raw:100", "small", "x"), parse_row("8", "small", "x"))

    def measured(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
        if at.planned[0].round == 1:
            bench.here.ended["optimized"] = ["replica 7 ended"]
        return both(at, launches)

    result = bench.run(suite(rows=rows), measured)
    (failure,) = result.failures
    assert failure.key is not None and failure.key.startswith("optimized/r1/")
    assert "replica 7 ended during the trial (100.0 requests/s" in failure.message
    assert [trial.round for trial in result.trials] == [2, 2, 2, 2]
    assert [name for call, name in bench.here.calls if call == "measure"] == [
        *["round 1", "round 2", "round 2"]  # the other row of the round was left out
    ]


def test_a_row_without_an_answer_is_kept_and_told(bench: Bench) -> None:
    def measured(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
        first, second = at.planned
        return trial_of(first, launches[0]), trial_of(second, launches[1], completed=0)

    result = bench.run(suite(rounds=1), measured)
    assert len(result.trials) == 2
    assert "no request succeeded" in result.failures[0].message
    assert result.failures[0].variant == "optimized"


def test_ctrl_c_takes_both_down_and_says_what_is_missing(bench: Bench) -> None:
    def measured(at: Pairing, launches: tuple[str, str]) -> tuple[Trial, Trial]:
        if at.planned[0].round == 2:
            raise KeyboardInterrupt
        return both(at, launches)

    with pytest.raises(KeyboardInterrupt):
        bench.run(suite(rounds=3), measured)
    assert [name for call, name in bench.here.calls if call == "close"] == [
        *["default", "optimized", "optimized", "default"]
    ]
    assert [(one.message, one.round) for one in bench.result.failures] == [("interrupted", 2)] * 2
    assert [trial.round for trial in bench.result.trials] == [1, 1]
    assert len(bench.result.teardowns) == 4


def test_what_cannot_be_recorded_still_ends_both(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = RunFolder.append

    def refuse(self: RunFolder, record: Record) -> None:
        if isinstance(record, Teardown):
            raise StoreError("no space")
        append(self, record)

    monkeypatch.setattr(RunFolder, "append", refuse)
    with pytest.raises(StoreError, match="no space"):
        bench.run(suite(rounds=1))
    assert [name for call, name in bench.here.calls if call == "close"] == ["default", "optimized"]
