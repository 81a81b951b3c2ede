import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built, plain
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.load.request_log import RequestLog
from serve_bench.load.workers import Crew, Worker
from serve_bench.runner.load_source import LocalLoads
from tests.cases import cases, sure
from tests.load.loads import CLIENTS, check_log, run_here
from tests.places import TOP, execute, wait_until
from tests.servers import always, serving

pytestmark = pytest.mark.alone

SHORT = Timing(warmup_min_s=0.1, warmup_max_s=0.1, windows=2, window_s=0.15, drain_s=1.0)


def test_what_a_client_adds_is_known() -> None:
    """5 ms for each request, beside a server that answers in 20 ms."""

    def work(engine: Any) -> None:
        draw = engine._draw

        def slow() -> Any:
            time.sleep(0.005)
            return draw()

        engine._draw = slow

    with serving(delay_s=0.02) as server:
        load = Load(Request(server.url), client="aiohttp", count=20, pickup_every=1)
        result = run_here(load, work)
    added, latency = sure(result.verdict.added_ns), sure(result.verdict.mean_latency_ns)
    assert result.handling.count == 20 and 5e6 < added < latency - 19e6


@pytest.mark.parametrize("client", CLIENTS)
@cases(
    "actions, method, status, least",
    ("chunked drip early_hints until_eof connection_close ok", "GET", 200, 12),
    ("no_content", "GET", 204, 0),
    ("not_modified", "GET", 304, 0),
    ("head", "HEAD", 200, 0),
)
def test_valid_responses_complete(
    client: Client, actions: str, method: str, status: int, least: int
) -> None:
    """`least`: how many of them end their connection."""
    kinds, body = cycle(actions.split()), b"ok" if least else None
    with serving(lambda number: next(kinds)) as server:
        request = Request(server.url, method, expect_body=body, expect_status=(status,))
        load = Load(request, client=client, connections=3, count=36, timeout_s=0.4)
        result = run_here(load)
    assert result.total.failed == {} and result.total.completed == 36 == len(server.log)
    assert result.status_codes == {status: 36}
    assert least <= result.reconnects + 2 and server.connections <= 4 + result.reconnects
    assert least or result.reconnects == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_windows_and_accounts_of_a_timed_load(client: Client) -> None:
    seen: list[Progress] = []
    with serving(delay_s=0.002) as server:
        load = Load(Request(server.url, expect_body=b"ok"), client=client, connections=4)
        timing = Timing(0.45, 2.0, windows=3, window_s=0.2)
        result = drive_load(load, timing, on_progress=seen.append)
        begun = time.perf_counter_ns() - (time.time_ns() - result.started_at_ns)
    assert len(result.windows) == 3
    for k, completed in enumerate(result.windows):  # as the server's own log has them
        begin = begun + k * 200_000_000
        answered = sum(begin <= entry.answered_ns < begin + 200_000_000 for entry in server.log)
        # At both edges a response may have left the server and not reached the client.
        assert abs(completed - answered) <= 2 * load.connections + 4
    within = sure(result.in_windows)
    assert within.balanced
    # At an edge a client may be between two requests, or sends in a turn that began before it.
    between = 1
    assert 4 - between <= min(within.carried_in, within.in_flight)
    assert max(within.carried_in, within.in_flight) <= 4
    assert sum(result.windows) == within.completed == result.completed_in_windows
    # Four of the windows' requests were answered behind them, four answers were of the warm-up's.
    assert result.measured.completed == result.latency.count
    assert abs(within.completed - result.measured.completed) <= between
    assert abs(within.sent - result.measured.sent) <= between
    assert result.latency == result.service_time and result.censored.count == 0
    assert result.duration_s == pytest.approx(0.6, abs=1e-6)
    assert result.mean_in_flight == pytest.approx(4, rel=0.1)
    assert result.busy_s == pytest.approx(4 * 0.6, rel=0.1)
    assert abs(sum(result.shares) - within.completed) <= 4 and len(result.shares) == 3
    assert result.measured.carried_in == result.measured.in_flight == result.total.in_flight == 0
    assert result.total.completed == len(server.log)
    assert result.measured.balanced and result.total.balanced
    assert result.warmup.seconds >= 0.45
    assert 0 < result.warmup.completed < result.total.completed
    assert {"warmup", "measure"} <= {progress.phase for progress in seen}
    assert built(LoadResult, plain(result), "it") == result
    assert [w.connections for w in result.workers] == [4]
    assert result.connection_rate_max is None  # it was not asked for


def children_of(pid: int) -> list[psutil.Process]:
    return [p for p in psutil.Process(pid).children() if "serve_bench.load.worker" in p.cmdline()]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dead_worker_is_a_value(client: Client) -> None:
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        if progress.phase == "measure" and not killed:
            killed.append(children_of(os.getpid())[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    with serving(delay_s=0.001) as server:
        load = Load(Request(server.url), client=client, connections=2, processes=2)
        result = drive_load(load, Timing(0.1, 0.1, 2, 0.4), on_progress=kill_one)
    assert [failure.pid for failure in result.failures] == killed
    assert "signal 9" in result.failures[0].reason
    (note,) = [note for note in result.notes if "was lost" in note]
    assert f"load worker {killed[0]} was lost (killed by signal 9" in note
    assert len(result.workers) == 1
    difference = result.measured.completed - sum(result.windows)  # of one connection, at an edge
    assert abs(difference) <= 1 < sum(result.windows)


def test_all_workers_dead_raises() -> None:
    def kill_all(progress: Progress) -> None:
        for child in children_of(os.getpid()):
            os.kill(child.pid, signal.SIGKILL)

    with serving() as server, pytest.raises(LoadError, match=r"no worker is left: .*signal 9"):
        load = Load(Request(server.url))
        drive_load(load, Timing(0.1, 0.1, 1, 5.0), on_progress=kill_all)


def test_an_exception_in_the_parent_leaves_no_worker() -> None:
    press = Mock(side_effect=KeyboardInterrupt)
    with serving() as server, pytest.raises(KeyboardInterrupt) as caught:
        drive_load(Load(Request(server.url)), Timing(5.0, 5.0, 1, 5.0), on_progress=press)
    assert not isinstance(caught.value, LoadInterrupted)  # nothing was measured
    assert children_of(os.getpid()) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_an_interrupted_load_keeps_what_it_measured(client: Client) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "measure" and progress.elapsed_s > 0.7:
            raise KeyboardInterrupt

    log = RequestLog()
    with serving(delay_s=0.001) as server:
        load = Load(Request(server.url), client=client, connections=2, processes=2)
        with pytest.raises(LoadInterrupted) as caught:
            drive_load(load, Timing(0.1, 0.1, 99, 0.1), on_progress=interrupt, log=log)
    result = caught.value.result
    check_log(log, result)
    assert 1 <= len(result.windows) < 99
    assert sum(result.windows) <= result.measured.completed == result.latency.count
    assert 0.1 * len(result.windows) <= result.duration_s < 9
    assert result.measured.balanced and result.failures == ()
    assert children_of(os.getpid()) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_an_interrupt_in_the_drain_keeps_what_was_measured(client: Client) -> None:
    """The server stops answering: the drain would wait for it, longer than Ctrl-C does."""

    seen: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        seen.append(progress)
        if progress.phase == "drain":
            raise KeyboardInterrupt

    with serving(lambda number: "ok" if number < 200 else "silent", delay_s=0.002) as server:
        load = Load(Request(server.url), client=client, connections=2)
        with pytest.raises(LoadInterrupted) as caught:
            drive_load(load, Timing(0.1, 0.1, 3, 0.3), on_progress=interrupt)
    result = caught.value.result
    assert len(result.windows) == 3 and result.measured.completed > 0
    assert result.total.in_flight == 2 and result.total.balanced
    # What was left is of the windows, was waited for until then, and leaves the tail open.
    assert result.measured.in_flight == result.censored.count == 2
    assert seen[-1].left == 2 and 29 < seen[-1].remaining_s <= 30
    assert seen[-1].phase_text == "drain: 2 left, at most 30 s"
    assert result.failures == ()


def test_an_interrupt_while_the_workers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, presses = Crew.stop, [KeyboardInterrupt()]

    def pressed(crew: Crew) -> None:
        if presses:
            raise presses.pop()
        stop(crew)

    monkeypatch.setattr(Crew, "stop", pressed)
    with serving(delay_s=0.001) as server, pytest.raises(LoadInterrupted) as caught:
        drive_load(Load(Request(server.url), connections=2), SHORT)
    assert len(caught.value.result.windows) == SHORT.windows
    assert caught.value.result.measured.completed > 0
    assert children_of(os.getpid()) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_worker_is_kept_for_the_next_load_of_its_environment(client: Client) -> None:
    kept: list[psutil.Process] = []
    with serving(delay_s=0.001) as server:
        load = Load(Request(server.url), client=client, connections=2)
        for mark in ({}, {}, {"A": "1"}, {"A": "1"}):
            result = drive_load(load, SHORT, mark=mark, keeps=True)
            assert result.total.balanced and sum(result.windows) > 0 == len(result.failures)
            kept += children_of(os.getpid())
            if len(kept) == 3:
                kept[2].kill()
                kept[2].wait()
        LocalLoads().close()
    assert kept[0] == kept[1] and len(set(kept)) == 3 and children_of(os.getpid()) == []


def test_what_ray_logs_is_no_reason_of_a_lost_worker() -> None:
    line = "INFO 2026-01-01 00:00:00,000 serve 9 -- Started <ray.serve object at 0x7f>."
    script = f"echo '{line}' >&2; kill -9 $$"
    with tempfile.TemporaryFile() as errors:
        worker = Worker(0, subprocess.Popen(["sh", "-c", script], stderr=errors), errors)
        worker.process.wait()
        assert worker.failure(0).reason == "killed by signal 9"


def test_a_worker_that_does_not_answer_is_said_to_be_silent() -> None:
    def freeze(progress: Progress) -> None:
        if progress.phase == "measure":
            for child in children_of(os.getpid())[:1]:
                child.suspend()
            raise KeyboardInterrupt

    with serving(delay_s=0.001) as server:
        load = Load(Request(server.url), connections=2, processes=2)
        with pytest.raises(LoadInterrupted) as caught:
            drive_load(load, Timing(0.1, 0.1, 9, 0.3, drain_s=0.1), on_progress=freeze)
    (lost,) = caught.value.result.failures
    assert lost.reason == "it did not answer in time"
    assert len(caught.value.result.workers) == 1
    assert children_of(os.getpid()) == []


IMPORTS = """
import resource, sys
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
"""
PARENT = f"""{IMPORTS}
load = Load(Request(sys.argv[1]), client=sys.argv[2], connections=2, processes=2)
drive_load(load, Timing(0.1, 0.1, 1, 60.0), mark={{"SERVE_BENCH_RUN": "marked"}})
"""


@pytest.mark.parametrize("client", CLIENTS)
def test_workers_end_when_the_parent_is_killed(client: Client) -> None:
    with serving() as server:
        parent = subprocess.Popen([sys.executable, "-c", PARENT, server.url, client], cwd=TOP)
        try:
            wait_until(lambda: len(server.log) > 20)
            workers = children_of(parent.pid)
            assert len(workers) == 2
            assert workers[0].environ()["SERVE_BENCH_RUN"] == "marked"
        finally:
            parent.kill()
            parent.wait()
        assert psutil.wait_procs(workers, timeout=5)[1] == []


LIMITED = f"""{IMPORTS}
url, hard, connections, kind, count = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (40, int(hard)))
load = Load(Request(url), connections=int(connections), **{{kind: int(count)}})
try:
    result = drive_load(load, Timing(windows=1, window_s=60.0))
except LoadError as error:
    sys.exit(str(error))
print(result.total.completed)
"""


@cases(
    "hard, load, said",
    (200, "50 count 50", "50\n"),
    (60, "50 count 50", "ulimit -Hn"),
    (200, "60 each 3", "180\n"),
)
def test_a_low_limit_of_open_files(hard: int, load: str, said: str) -> None:
    with serving() as server:
        words = (sys.executable, "-c", LIMITED, server.url, str(hard), *load.split())
        ran = execute(*words, cwd=TOP)
    assert said in ran.stdout + ran.stderr
    assert ran.stderr.count("\n") <= 1
    if "each" in load:
        assert set(Counter(exchange.peer for exchange in server.log).values()) == {3}


def test_the_memory_of_a_worker_is_its_own_and_holds_no_garbage() -> None:
    """Not that of its parent, nor the cycles of aiohttp's errors, which no worker else collects."""
    fat = bytearray(os.urandom(1 << 20)) * 120  # 120 MiB that are really there
    with serving(always("surplus_50")) as server:
        load = Load(Request(server.url), client="aiohttp", connections=2, count=1_000)
        result = drive_load(load, Timing(0.0, 0.0, windows=1, window_s=30.0))
    assert result.total.failed == {"malformed": 1_000} and len(fat) > 100_000_000
    assert 0 < result.workers[0].max_rss_mb < 90
