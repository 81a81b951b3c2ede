"""Two sides at once, each on cores of its own: every thread is pinned, cores swap, all is freed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.values import values_of
from serve_bench.benchmarks.versus import duet
from serve_bench.benchmarks.versus import measure as versus_rows
from serve_bench.benchmarks.versus.duet import drive_duet, halves, idle_s, pin, pinned
from serve_bench.benchmarks.versus.measure import PairRows, Target
from serve_bench.benchmarks.versus.request import Side, VersusSuite, versus_plan
from serve_bench.benchmarks.versus.slicing import Slicing, in_duet
from serve_bench.cli.show import render
from serve_bench.core.load_result import Progress, Warmup
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.core.record_lines import parse, to_line
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Row, Trial
from serve_bench.load import LoadError
from serve_bench.serving.server import Process
from serve_bench.serving.strays import marks, new_run, reap
from serve_bench.store import RunFolder
from tests.records import ROWS
from tests.sheet_parts import versus_document
from tests.versus_records import rates, versus_result

pytestmark = pytest.mark.skipif(not halves()[0], reason="a duet takes two cores")

SERVER = """
import http.server, os, sys
log = open(f"{sys.argv[1]}/served-{os.getpid()}", "ab", 0)
class One(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        log.write(b".")
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), One)
print(served.server_port, flush=True)
served.serve_forever()
"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[tuple[int, str]]]:
    """Two servers, a thread for each connection: pid and address. Of each request a byte stands in
    `served-<pid>`."""
    every = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        ports = [int(one.stdout.readline()) for one in every if one.stdout is not None]
        yield [
            (one.pid, f"http://127.0.0.1:{port}/") for one, port in zip(every, ports, strict=True)
        ]
    finally:
        for one in every:
            one.kill()
            one.wait()


@pytest.fixture
def run_id() -> Iterator[str]:
    made = new_run()
    yield made
    reap(made)


def affinity(pid: int) -> set[frozenset[int]]:
    """The cores that the threads of a process may use."""
    tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return {frozenset(os.sched_getaffinity(tid)) for tid in tids}


def test_the_cores_are_split_in_two_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = halves()
    assert 1 <= len(a) == len(b) <= len(os.sched_getaffinity(0)) // 2 and not set(a) & set(b)

    def of(physical: list[int], usable: int | None = None) -> tuple[tuple[int, ...], ...]:
        """The halves of cores that belong to these physical ones."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(len(physical))))
        monkeypatch.setattr(duet, "usable_cores", lambda: usable or len(physical))
        monkeypatch.setattr(duet, "_physical", lambda core: (0, physical[core]))
        return halves()

    # Cores of one physical core stay together, an odd physical one is left out.
    assert of([0, 1, 0, 1, 2]) == ((0, 2), (1, 3))
    assert of([0, 1, 2, 0, 1, 2]) == ((0, 3), (1, 4))
    assert of([0, 1, 2, 3]) == ((0, 1), (2, 3))
    assert of([0, 0]) == ((0,), (1,))  # the only one is split
    # A quota is for both halves together, which still share no physical core.
    assert of([0, 1, 2, 3], usable=2) == ((0,), (2,))
    assert of([0, 0, 1, 1], usable=2) == ((0,), (2,))
    assert of([0, 1], usable=1) == ((), ())


def test_every_thread_is_pinned_those_to_come_too(two: list[tuple[int, str]]) -> None:
    (pid, url), free = two[0], frozenset(os.sched_getaffinity(0))
    a, b = halves()
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    connections = [psutil.net_connections, url]  # a server that has answered has started a thread
    assert connections and affinity(pid) == {free}
    pin([pid, gone.pid], a)
    assert affinity(pid) == {frozenset(a)}
    assert urllib.request.urlopen(url, timeout=5).read() == b"ok"
    assert pinned([pid], a).outside == 0 and pinned([pid], a).threads >= 1
    assert pinned([pid], b).outside == pinned([pid], b).threads  # seen, where it is not so
    pin([pid], free)
    assert affinity(pid) == {free}
    before = idle_s(a)
    assert before is not None and idle_s(b) is not None


def test_both_are_loaded_at_once_each_with_its_client_on_swapped_cores(
    two: list[tuple[int, str]], run_id: str
) -> None:
    workers: list[set[frozenset[int]]] = []

    def look(now: Progress) -> None:
        others = {child.pid for child in psutil.Process().children()} - {pid for pid, _ in two}
        workers.append({cores for pid in others for cores in affinity(pid)})

    loads = [Load(Request(url, expect_body=b"ok"), connections=3) for _, url in two]
    pids: list[Callable[[], Sequence[int]]] = [lambda: [two[0][0]], lambda: [two[1][0]]]
    plan = Slices(2, 1.0, 0.3, seed=3)
    own = os.sched_getaffinity(0)
    result, seen = drive_duet(
        (loads[0], loads[1]), plan, (pids[0], pids[1]), on_progress=look, mark=marks(run_id)
    )
    a, b = halves()
    for first, second in zip(*seen, strict=True):
        assert {first.cores, second.cores} == {a, b}
        assert first.outside == second.outside == 0 < first.threads
        assert first.idle is None or 0 <= first.idle <= 1.05
    assert seen[0][0].cores == seen[1][1].cores != seen[0][1].cores
    assert {frozenset(a), frozenset(b)} in workers  # both clients at one moment
    assert all(side.measured.completed > 0 for side in result.sides)
    # Everything is free again, this process was never bound.
    assert os.sched_getaffinity(0) == own
    assert {cores for pid, _ in two for cores in affinity(pid)} == {frozenset(own)}


def test_a_side_that_cannot_be_loaded_ends_both_and_frees_them(
    two: list[tuple[int, str]], run_id: str
) -> None:
    (pid, url), _ = two
    loads = Load(Request(url)), Load(Request("http://127.0.0.1:1/"))
    began = time.monotonic()
    with pytest.raises(LoadError, match=r"127\.0\.0\.1:1"):
        drive_duet(loads, Slices(2, 20.0, 0.2), (lambda: [pid], list), mark=marks(run_id))
    assert time.monotonic() - began < 20  # the window of the other was not waited for
    assert affinity(pid) == {frozenset(os.sched_getaffinity(0))}


def test_the_trials_say_how_they_were_pinned(
    two: list[tuple[int, str]], run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versus_rows, "WARMING", Timing(0.1, 0.2, 1, 0.05))
    monkeypatch.setattr(versus_rows, "DUET_WARMUP_S", 0.2)
    monkeypatch.setattr("serve_bench.benchmarks.versus.slicing.DUET_S", 0.4)
    row = Row("2 connections, 1 core each", "raw", 2)
    suite = VersusSuite("mine", (Side("a"), Side("b")), ({},), (row,), side_s=0.8, pairing="duet")
    suite = replace(suite, sample=False)
    # A server whose requests cost 1 ms of CPU each, by its own count of them.
    monkeypatch.setattr(
        versus_rows, "cpu_ns", lambda pid: 1_000_000 * (tmp_path / f"served-{pid}").stat().st_size
    )

    def target(pid: int, url: str, launch: str) -> Target:
        return Target(Load(Request(url)), launch, lambda: [Process(pid, "replica", "r")])

    with RunFolder.create(tmp_path / "run", now=datetime.now(UTC)) as folder:
        rows = PairRows(suite, folder.path, run_id, lambda *_: None)
        targets = target(*two[0], "1"), target(*two[1], "2")
        trials = rows.measure(versus_plan(suite)[0].pairings[0], targets)
    for trial in trials:
        told = trial.client["slices"]
        assert (told["method"], told["connections"], told["way"]) == ("duet", 2, {"replica": 1})
        assert len(told["pinned"]) == len(told["completed"]) == 2
        assert {one["outside"] for one in told["pinned"]} == {0}
        assert told["requests"] > sum(told["completed"]) > 0  # warm-ups cost CPU too
        assert "steady_throughput" not in trial.metrics and "unpinned" not in trial.flags
        (cpu_s,) = trial.metrics["server_cpu"].windows or ()
        assert values_of(trial)["cpu"] == pytest.approx(1e9 * cpu_s / told["requests"])
        # What warms a side up before is in neither.
        assert values_of(trial)["cpu"] == pytest.approx(1e6, rel=0.02)


# ---------------------------------------------------------------------------- pure, and words


def test_windows_come_in_pairs_of_swapped_cores() -> None:
    assert in_duet(100, 0.2).slice_s == 3.0 and in_duet(100, 2.0).slice_s == 10.0
    assert [in_duet(100, 0.2).pairs(side_s) for side_s in (1.0, 12.0, 13.0)] == [2, 4, 4]
    assert not Slicing("duet", 3.0, 100, 100).short([2.0])


def as_duet(trial: Trial, **other: Any) -> Trial:
    told = trial.client["slices"]
    pins = [{"cores": [0], "threads": 9, "outside": 0, "idle": 0.05}] * 2
    halves_of = {"completed": [100, 400], "length_s": [1.0, 1.0], "slice_s": 1.0}
    slices = {**told, **halves_of, "method": "duet", "pinned": pins, "way": {"replica": 1}, **other}
    return replace(trial, client={**trial.client, "slices": slices})


def test_a_value_is_the_mean_over_both_halves_in_logarithms() -> None:
    (trial, *_) = versus_result().trials
    assert values_of(as_duet(trial))["throughput"] == pytest.approx(200.0)
    # A window in which nothing was served lowers it too, for which logarithms have no room.
    gap = as_duet(trial, completed=[1500, 1500, 0, 1500], length_s=[1.0] * 4)
    assert values_of(gap)["throughput"] == pytest.approx(1125.0)
    none = as_duet(trial, completed=[0, 0], length_s=[0.0, 0.0])
    assert "throughput" not in values_of(none)


@pytest.mark.parametrize(("steady", "codes"), [(None, set()), (1.0, {"unjudged-warmup"})])
def test_a_warm_up_of_a_fixed_length_is_not_judged(steady: float | None, codes: set[str]) -> None:
    """That of a duet; one before a steady load is."""
    of = {"steady": steady}
    whole = versus_result({ROWS[2]: rates(580.0, 580.0)}, pairing="duet", a=of, b=of)
    short = Warmup(0.75, False, 400, judged=False)
    trials = tuple(replace(as_duet(one), warmup=short) for one in whole.trials)
    (row,) = of_versus(replace(whole, trials=trials)).rows
    assert {one.code for one in row.doubts} == codes


def test_what_misleads_is_said_of_the_measured_sides() -> None:
    whole = versus_result({ROWS[2]: rates(580.0, 580.0)}, pairing="duet")

    def codes(b: dict[str, Any], flags: dict[str, bool]) -> dict[str, str]:
        trials = tuple(
            as_duet(one) if one.variant == "default" else replace(as_duet(one, **b), flags=flags)
            for one in (replace(one, flags={}) for one in whole.trials)
        )
        (row,) = of_versus(replace(whole, trials=trials)).rows
        assert row.slicing is not None and row.slicing.method == "duet"
        text = " ".join(render(replace(whole, trials=trials)).split())
        assert "each and its client on cores of its own, swapped after each" in text
        return {one.code: f"{one.side}: {one.message}" for one in row.doubts}

    assert codes({}, {}) == {}
    unlike = codes({"way": {"replica": 2, "proxy": 1}}, {})
    assert unlike == {
        "duet-unlike": "B: the sides use different processes (1 replica and 1 proxy, 2 replica) "
        "on equal cores"
    }
    pins = [{"cores": [0], "threads": 9, "outside": 0, "idle": 0.6}]
    assert "B: its cores stood idle for 60 %" in codes({"pinned": pins}, {})["duet-waits"]
    assert list(codes({}, {"unpinned": True})) == ["unpinned"]
    assert list(codes({}, {"apart": True})) == ["duet-apart"]
    assert list(codes({}, {"way_changed": True})) == ["way-changed"]
    page = repr(versus_document(replace(whole, trials=tuple(map(as_duet, whole.trials))), None))
    assert "'pairing', 'duet: both sides at once" in page
    assert "of a duet: geometric mean of the rates of its windows" in page


def test_a_side_that_begins_before_the_other_is_kept() -> None:
    whole = versus_result({ROWS[2]: rates(580.0, 580.0)}, pairing="duet")
    early = as_duet(whole.trials[0], begun_s=[-0.12, 6.0], chosen_drain_s=0.1, why="")
    result = parse([to_line(whole.run), to_line(early)])
    assert not result.warnings
    assert result.trials[0].client["slices"]["begun_s"] == [-0.12, 6.0]
