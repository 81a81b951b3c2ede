"""A row on two sides that are up: what is chosen, what is measured, what stands in the trials."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.core.facts import TrialUsage
from serve_bench.core.load_result import LoadResult, WorkerFailure
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.record_lines import to_line
from serve_bench.core.request_spec import Request
from serve_bench.core.traffic import Row
from serve_bench.load.failures import LoadError, TargetEnded
from serve_bench.runner import in_turn
from serve_bench.runner.in_turn import SideRows, Target, chosen_of, place_of
from serve_bench.runner.runner import Part
from serve_bench.serving.server import Process
from serve_bench.serving.strays import new_run, reap
from serve_bench.spec.sides import Pairing, Side
from serve_bench.spec.slicing import Slicing
from serve_bench.store import RunFolder
from tests.cases import Patch, cases, sure
from tests.servers import KnownServer, serving

pytestmark = pytest.mark.alone

ROW = Row("4 connections", "raw", 4)


def suite(row: Row = ROW, **other: Any) -> VersusSpec:
    given: dict[str, Any] = {"rounds": 2, "side_s": 0.4, "steady_s": 0.2} | other
    return VersusSpec("mine", (Side("a"), Side("b")), ({},), (row,), **given)


RowsOf = Callable[[VersusSpec], tuple[SideRows, list[str]]]


@pytest.fixture
def rows_of(tmp_path: Path, monkeypatch: Patch) -> Iterator[RowsOf]:
    """List the rows of a suite in a folder of their own, and the phases that they report."""
    monkeypatch.setattr(in_turn, "WARMING", Timing(0.1, 0.3, 1, 0.05))
    run_id, said = new_run(), list[str]()
    with RunFolder.create(tmp_path / "run", now=datetime.now(UTC)) as folder:
        say = lambda at, phase, rate: said.append(phase)  # noqa: E731
        yield lambda whole: (SideRows(whole, folder.path, run_id, say=say), said)
    reap(run_id)


def target(server: KnownServer, **other: Any) -> Target:
    return Target(Load(Request(server.url, expect_body=b"ok")), **other)


def first(whole: VersusSpec) -> Pairing:
    return whole.plan()[0].pairings[0]


def test_both_sides_are_measured_in_turn_and_alone(rows_of: RowsOf) -> None:
    whole = suite()
    with serving(delay_s=0.002) as fast, serving(delay_s=0.004) as slow:
        me = [Process(os.getpid(), "replica", "me")]
        a, b = (Part(number, Side("a").launched, 1) for number in "78")
        targets = target(fast, part=a, processes=lambda: me), target(slow, part=b)
        rows, said = rows_of(whole)
        trials = rows.measure(first(whole), targets)
        again = rows.measure(whole.plan()[1].pairings[0], targets)
    assert [trial.key for trial in trials] == ["a/r1/app/4-connections", "b/r1/app/4-connections"]
    assert [trial.launch for trial in trials] == ["7", "8"]
    slicing = rows.chosen["app/4 connections"]
    assert (slicing.method, slicing.connections) == ("slices", 4)
    for trial in trials:
        slices = sure(trial.client.slices)
        rates = trial.metrics["throughput"].windows
        assert rates is not None and len(rates) == slicing.pairs(0.4) == len(slices.begun_s)
        assert sum(slices.completed) == trial.counts.completed > 0 == sum(slices.failed)
        assert rates[0] == pytest.approx(slices.completed[0] / slices.length_s[0])
        assert slices.method == "slices" and slices.slice_s == slicing.slice_s
        assert slices.chosen_drain_s == slicing.drain_s and slices.connections == 4
        steady = trial.metrics["steady_throughput"].windows
        assert steady is not None and len(steady) == 4 and min(steady) > 0
        assert trial.warmup.seconds >= 0.1 and trial.window_s == slicing.slice_s
        assert trial.metrics["latency"].histogram is not None
        json.loads(to_line(trial))
    # Which of a pair came first is drawn: the slices of both lie in one another.
    begun = zip(*(sure(trial.client.slices).begun_s for trial in trials), strict=True)
    assert {begin < other for begin, other in begun} == {True, False}
    # Of a process that is known, its CPU; a service without processes has none.
    (cpu_s,) = trials[0].metrics["server_cpu"].windows or ()
    assert cpu_s > 0 and "server_cpu" not in trials[1].metrics
    pids, other = ({process.pid for process in trial.usage.processes} for trial in trials)
    assert os.getpid() in pids - other
    # The choice of the first round holds: no slices are looked at any more.
    assert sure(again[0].client.slices).slice_s == slicing.slice_s
    assert said.count("warm-up") > 0
    assert chosen_of([first(whole)], trials) == {place_of(first(whole)): slicing}


def test_one_side_at_a_time_and_no_cpu_of_new_processes(rows_of: RowsOf, tmp_path: Path) -> None:
    """B has a replica that was added while the row was measured."""
    whole, me = suite(side_s=0.2, sample=False), [Process(os.getpid(), "replica", "me")]
    found = iter([me])
    grown = [*me, Process(os.getppid(), "replica", "new")]
    with serving(delay_s=0.002) as left, serving(delay_s=0.002) as right:
        fixed = target(left, processes=lambda: me)
        growing = target(right, processes=lambda: next(found, grown))
        trials = rows_of(whole)[0].measure(first(whole), (fixed, growing))
    assert "server_cpu" in trials[0].metrics and not trials[0].flags.way_changed
    assert "server_cpu" not in trials[1].metrics and trials[1].flags.way_changed
    busy = sorted((e.received_ns, e.answered_ns, s.port) for s in (left, right) for e in s.log)
    for (_, answered, side), (received, _, other) in pairwise(busy):
        assert side == other or received >= answered
    assert [trial.usage for trial in trials] == [TrialUsage()] * 2
    assert not (tmp_path / "run" / "samples.jsonl").exists()


def test_an_open_loop_is_loaded_in_windows(rows_of: RowsOf) -> None:
    whole = suite(replace(ROW, loop="open", rate_per_s=50.0), side_s=2.0, sample=False)
    with serving() as left, serving() as right:
        a, b = (Target(Load(Request(server.url), rate=50.0)) for server in (left, right))
        trials = rows_of(whole)[0].measure(first(whole), (a, b))
    for trial in trials:
        slices = sure(trial.client.slices)
        assert slices.method == "windows" and "an open loop cannot be sliced" in slices.why
        rates = trial.metrics["throughput"].windows
        assert rates is not None and len(rates) == 2
        assert sum(rates) / 2 == pytest.approx(50.0, rel=0.1)
        assert slices.length_s == pytest.approx([1.0, 1.0], rel=0.05)


def test_slices_that_drains_have_outgrown_are_flagged(rows_of: RowsOf) -> None:
    whole = suite(sample=False, side_s=0.3)
    with serving(delay_s=0.03) as left, serving(delay_s=0.03) as right:
        rows, _ = rows_of(whole)
        rows.chosen["app/4 connections"] = Slicing("slices", 0.05, 2, 0.001, "as it was")
        trials = rows.measure(first(whole), (target(left), target(right)))
    assert [trial.flags.short_slices for trial in trials] == [True, True]
    assert all(sure(trial.client.slices).connections == 2 for trial in trials)


def test_a_side_that_cannot_be_reached_is_an_error(rows_of: RowsOf) -> None:
    whole = suite(sample=False)
    gone = Target(Load(Request("http://127.0.0.1:1/")))
    with serving() as server, pytest.raises(LoadError, match=r"127\.0\.0\.1:1"):
        rows_of(whole)[0].measure(first(whole), (target(server), gone))


@cases("broken", "drive_load", "drive_windows")
def test_a_lost_worker_is_its_sides_error(broken: str, rows_of: RowsOf, monkeypatch: Patch) -> None:
    """Alone, and in turn: what it counted is in no figure."""
    whole = suite(replace(ROW, loop="open", rate_per_s=50.0), side_s=2.0, sample=False)
    lost = (WorkerFailure(7, "it ran out of memory", 12),)
    drive = getattr(in_turn, broken)

    def windows(*given: Any, **more: Any) -> tuple[LoadResult, ...]:
        left, right = drive(*given, **more)
        return left, structs.replace(right, failures=lost)

    def alone(load: Load, *given: Any, **more: Any) -> LoadResult:
        found: LoadResult = drive(load, *given, **more)
        return structs.replace(found, failures=lost if load.request.port == right.port else ())

    monkeypatch.setattr(in_turn, broken, windows if broken == "drive_windows" else alone)
    with serving() as left, serving() as right:
        a, b = (Target(Load(Request(server.url), rate=50.0)) for server in (left, right))
        said = f"worker: 127.0.0.1:{right.port}: load worker 7 failed: it ran out of memory"
        with pytest.raises(LoadError, match=said):
            rows_of(whole)[0].measure(first(whole), (a, b))


def test_a_drain_is_given_up_when_a_process_of_a_side_has_ended(rows_of: RowsOf) -> None:
    """Its requests are in flight, and would be waited for until their time-out, slice by slice."""
    whole = suite(sample=False)
    with serving() as server, serving(delay_s=600.0) as hung:
        gone = target(hung, missing=lambda: ["raylet 7 ended"] if hung.log else [])
        targets = target(server), gone
        loads = tuple(replace(at.load, connections=2, timeout_s=600.0) for at in targets)
        rows, said = rows_of(whole)
        with pytest.raises(TargetEnded, match="the load was given up") as caught:
            rows._load_slices(first(whole), loads, targets, Slicing("slices", 0.05, 2), 3)
    assert caught.value.port == hung.port and "slices in turn" in said
