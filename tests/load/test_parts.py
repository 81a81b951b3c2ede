import os
import random
import statistics
from itertools import accumulate, islice, pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import EMPTY, Counts, Progress, WorkerReport
from serve_bench.core.load_spec import Arrivals, Load, Stage
from serve_bench.core.request_spec import Request
from serve_bench.load import driver
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.merge import add_times, client_verdict, close_account
from serve_bench.load.messages import Messages, line_of
from serve_bench.load.pacing import ArrivalClock, due_times, next_turn, segments
from serve_bench.load.tally import MEASURE, NEVER, PARTS, PUBLISH_AHEAD_NS, Shared, Tally
from serve_bench.load.worker import Usage, used_between
from serve_bench.load.workers import Worker, enough_processes, shares, yield_to_workers
from tests.cases import cases

DRAW = random.Random(5)


@cases(
    "rates, steady",
    ([], False),
    ([50.0] * 7, False),
    ([50.0] * 8, True),
    ([10.0 * k for k in range(1, 9)], False),
    ([10.0 * k for k in range(1, 60)], False),
    ([1000 - 20.0 * k for k in range(40)], False),
    ([0.0] * 6 + [100.0] * 4, False),  # a cold start, which is forgotten:
    ([0.0] * 10 + [100.0] * 12, True),
    ([0.0] * 40, False),
    ([max(0.0, DRAW.gauss(100, 26)) for _ in range(30)], True),  # noise alone
)
def test_a_rate_is_steady_that_neither_climbs_nor_falls(rates: list[float], steady: bool) -> None:
    assert driver.is_steady([0, *(int(n) for n in accumulate(rates))]) is steady


def judgeable(workers: list[WorkerReport], *times: list[int]) -> Any:
    """Pick what the verdict looks at: times of pickup, latency, lag, and to the first event."""
    parts = zip(("pickup", "latency", "send_lag", "ttft"), (*times, [])[:4], strict=True)
    made = {name: Histogram.of(values) for name, values in parts}
    empty = dict.fromkeys(("censored", "ttft_censored", "itl", "handling"), Histogram())
    return SimpleNamespace(workers=workers, waited=0, **made, **empty)


def worker(
    non_idle: float | None, wait: float | None = 0.0, c: int = 8, timer: str = "none"
) -> WorkerReport:
    return WorkerReport(1, c, 1.0, non_idle, wait, 20.0, timer)


@cases(
    "workers, pickup, latency, lag, bound",
    ([worker(0.5)], [1_000], [100_000], [], False),
    ([worker(0.9)], [1_000], [100_000], [], True),
    ([worker(0.5), worker(0.9)], [1_000], [100_000], [], True),
    ([worker(0.5)], [20_000], [100_000], [], True),
    ([worker(0.5, c=1)], [20_000], [100_000], [], False),
    ([worker(1.0, 0.0, timer="spin")], [1_000], [100_000], [], False),
    ([worker(1.0, 0.2, timer="spin")], [1_000], [100_000], [], True),
    ([worker(0.5)], [], [100_000], [30_000], True),
    ([worker(None, None)], [], [], [], False),
    # A server that stalled: a third waited for up to two seconds, and the timer was 60 us late.
    ([worker(0.1)], [], [143_000] * 66 + [10**9] * 34, [60_000], False),
    # So short a delay is none beside a slow tail, whatever the median says.
    ([worker(0.1)], [40_000], [100_000] * 90 + [10**8] * 10, [], False),
    # Late by 50 ms once in 50: more than 1 % of the p99, and a third of all latency.
    ([worker(0.1)], [], [2_000_000] * 98 + [55_000_000] * 2, [10**5] * 98 + [5 * 10**7] * 2, True),
    # 0.5 ms at the median, of 100 ms: above the least, and yet no limit.
    ([worker(0.1)], [], [10**8], [5 * 10**5], False),
)
def test_the_client_verdict(
    workers: list[WorkerReport], pickup: list[int], latency: list[int], lag: list[int], bound: bool
) -> None:
    verdict = client_verdict(judgeable(workers, pickup, latency, lag))
    assert verdict.client_bound is bound
    assert bool(verdict.reasons) is bound


def test_what_is_late_delays_the_first_event_of_a_stream() -> None:
    """5 ms of 20 ms until then; of the whole stream, which takes 10 s, it would be nothing."""
    lag, latency, first = ([round(at * 1e9)] for at in (0.005, 10.0, 0.02))
    plain = client_verdict(judgeable([worker(0.1)], [], latency, lag))
    verdict = client_verdict(judgeable([worker(0.1)], [], latency, lag, first))
    assert not plain.client_bound
    assert verdict.reasons == ("requests were sent late by 25 % of their TTFT",)


def test_shares_come_from_the_scheduler() -> None:
    begin, end = Usage(0, 0, (100, 50)), Usage(1000, 300, (500, 350))
    used = {"cpu_s": 300 / 1e9, "non_idle": 0.7, "run_queue_wait": 0.3}
    assert used_between(begin, end) == used
    unknown = used | {"non_idle": None, "run_queue_wait": None}
    assert used_between(Usage(0, 0, None), end) == unknown
    assert used_between(begin, None) == unknown | {"cpu_s": 0.0}


URL = "http://h/"


def taken(request: Request, workers: int, count: int, seed: int = 1) -> list[list[int]]:
    """Take the numbers of the first requests of each worker, as its client is given them."""
    load = Load(request, connections=workers, seed=seed)
    numbers = list(range(len(request.turns)))
    takes = [next_turn(load, share, numbers) for share in shares(load, workers)]
    return [[take() for _ in range(count)] for take in takes]


def test_workers_begin_at_different_paths_and_at_the_same_body() -> None:
    paths = tuple(f"/{k}" for k in range(10))
    assert taken(Request(URL, paths=paths), 1, 12) == [[*range(10), 0, 1]]
    by_path = taken(Request(URL, paths=paths), 3, 10)
    assert [numbers[0] for numbers in by_path] == [0, 3, 6]
    assert all(sorted(numbers) == list(range(10)) for numbers in by_path)
    by_body = taken(Request(URL, bodies=(b"0", b"1", b"2")), 3, 4)
    assert by_body == [[0, 1, 2, 0]] * 3
    assert taken(Request(URL, paths=("/a", "/b")), 3, 2) == [[0, 1], [0, 1], [1, 0]]
    drawn = Request(URL, paths=paths * 5, draw="random")  # by the seed and the worker alone
    first, second = taken(drawn, 2, 20)
    assert first != second and taken(drawn, 2, 20) == [first, second]
    assert taken(drawn, 2, 20, seed=2) != [first, second]


def test_shares_add_up() -> None:
    grows = Load(Request(URL), connections=5, max_connections=9, rate=1.0, count=101)
    dealt = [(s.connections, s.limit, s.count, s.first) for s in shares(grows, 2)]
    assert dealt == [(3, 5, 51, 0), (2, 4, 50, 5)]


@cases(
    "options, cores, expected",
    ({"connections": 100}, 8, 1),
    ({"connections": 8, "client": "aiohttp"}, 32, 8),
    ({"connections": 8, "client": "aiohttp"}, 8, 4),
    ({"connections": 8, "client": "aiohttp"}, 1, 1),
    ({"connections": 8, "rate": 60_000.0}, 8, 3),
    ({"connections": 8, "stages": (Stage(10, 1), Stage(40_000, 1))}, 8, 2),
    ({"connections": 8, "processes": 7}, 2, 7),
)
def test_enough_processes(options: dict[str, Any], cores: int, expected: int) -> None:
    assert enough_processes(Load(Request("http://h/"), **options), cores) == expected


MS = 1_000_000


class Bench:
    """A tally on memory of its own, with a made-up clock and a made-up number in flight."""

    def __init__(self, windows: int = 2, count: int | None = None) -> None:
        self.shared = Shared.create(1)
        self.flying: list[int] = []
        self.unsent: list[int] = []
        self.tally = Tally(
            self.shared, 0, windows, 100 * MS, count, lambda: (self.flying, self.unsent)
        )

    def send(self, n: int = 1, due: int = 0) -> None:
        if due >= self.tally.edge > 0:
            self.tally.advance(due)
        for _ in range(n):
            self.tally.begun(due)
            self.flying.append(due)

    def succeed(self, now: int) -> None:
        """Answer the request that was sent first."""
        if now >= self.tally.edge:
            self.tally.advance(now)
        due = self.flying.pop(0)
        self.tally.success(due, due, now, 200)


def test_an_answer_counts_in_its_window_and_a_latency_in_that_of_its_request() -> None:
    bench = Bench()
    start = bench.shared.words[MEASURE] = PUBLISH_AHEAD_NS
    bench.tally.advance(1)
    for now in (start - 1, start, start + 100 * MS - 1, start + 100 * MS, start + 200 * MS):
        bench.send(due=now - 5 * MS)
        bench.succeed(now)
    assert bench.tally.windows == [2, 1]
    assert bench.tally.finished and not bench.tally.may_send()
    cohort = bench.tally.close()
    assert bench.tally.snapshots["begin"].counts.completed == 1
    assert bench.tally.snapshots["end"].counts.completed == 4
    # Those sent within the windows: the last of them was answered behind them.
    assert (cohort.sent, cohort.completed) == (3, 3)
    assert bench.shared.read(0, "measured", "equal").count == 3
    assert bench.shared.read(0, "rest", "equal").count == 2


def test_what_never_ended_is_known_to_take_at_least_as_long_as_it_was_waited_for() -> None:
    bench = Bench()
    start = bench.shared.words[MEASURE] = PUBLISH_AHEAD_NS
    bench.tally.advance(1)
    bench.send(due=start - 1)  # the warm-up's: in no figure of the windows
    bench.send(due=start + 20 * MS)
    bench.send(due=start + 30 * MS)
    bench.unsent.append(start + 190 * MS)
    bench.tally.advance(start + 200 * MS)
    bench.flying.remove(start + 30 * MS)
    bench.tally.failure("timeout", start + 30 * MS, start + 400 * MS)
    bench.tally.advance(start + 500 * MS)
    assert bench.tally.close() == Counts(2, 0, {"timeout": 1}, 1, unsent=1)
    censored = bench.shared.read(0, "measured", "censored")
    assert censored == Histogram.of([480 * MS, 370 * MS, 310 * MS])
    assert bench.shared.read(0, "rest", "censored") is EMPTY
    # One in flight all the time, one from 20 ms on, one from 30 ms: seen every 10 ms.
    assert bench.tally.mean_in_flight == pytest.approx((200 + 180 + 170) / 200, abs=0.11)


def test_what_was_begun_before_the_instant_was_read_is_of_the_windows_all_the_same() -> None:
    """An event may take a later time than the edge was looked at with, and the parent be late."""
    bench = Bench()
    bench.tally.advance(1)
    start = bench.shared.words[MEASURE] = 5 * MS  # read at the next edge, after 10 ms
    for due in (start - 1, start, start + 1):
        bench.tally.begun(due)
        bench.flying.append(due)
    # Begun and ended before it was read: these have been counted as of the warm-up.
    bench.tally.begun(start + 2)
    bench.tally.success(start + 2, start + 2, start + 3, 200)
    bench.tally.begun(start + 2)
    bench.tally.failure("connect", start + 2, start + 3)
    for _ in range(3):
        bench.succeed(start + 20 * MS)
    bench.tally.advance(start + 200 * MS)
    assert bench.tally.close() == Counts(2, 2, {}, 0)
    assert bench.shared.read(0, "measured", "equal").count == 2
    assert bench.shared.read(0, "rest", "equal").count == 2
    assert bench.tally.windows == [3, 0]


def test_the_edges_of_windows() -> None:
    bench = Bench(count=2)
    bench.shared.words[MEASURE] = 1
    bench.tally.advance(2)  # nothing is in flight yet
    bench.send(2, due=2)
    bench.succeed(8 * MS)
    bench.succeed(8 * MS)
    bench.tally.end_by_count()
    bench.tally.close()
    assert bench.tally.mean_in_flight is None
    # What a short path brings in belongs to the windows once they have begun.
    bench = Bench()
    bench.shared.words[MEASURE] = PUBLISH_AHEAD_NS
    bench.tally.advance(1)
    bench.tally.add_plain(5, 10, 7)
    bench.tally.advance(PUBLISH_AHEAD_NS)
    bench.tally.add_plain(3, 6, 9)
    cohort = bench.tally.cohort
    assert (bench.tally.completed, cohort.completed, cohort.sent) == (8, 3, 3)
    assert cohort.codes == {200: 3}
    # A long stall closes every window that passed.
    bench = Bench(windows=3)
    bench.shared.words[MEASURE] = 10 * MS
    bench.send(2)
    bench.succeed(20 * MS)
    bench.succeed(900 * MS)
    assert bench.tally.windows == [1, 0, 0]


def test_a_wrong_account_is_found() -> None:
    bench = Bench()
    bench.send(3)
    bench.succeed(5)
    bench.flying.pop()
    with pytest.raises(BrokenAccount, match="sent 3"):
        bench.tally.close()
    bench = Bench()
    bench.send(1)
    bench.succeed(5)
    bench.send(1)
    bench.flying.pop()
    bench.tally.completed += 1  # a lost sample
    with pytest.raises(BrokenAccount, match="1 latencies for 2"):
        bench.tally.close()
    with pytest.raises(BrokenAccount, match="sent 3"):  # of a worker's, in the parent
        Worker(0, Mock(), Mock()).hear(line_of(Messages(broken="sent 3")))
    bench, load, start = Bench(windows=1), Load(Request(URL)), PUBLISH_AHEAD_NS
    bench.shared.words[MEASURE] = start
    bench.tally.advance(start)
    bench.send(due=start)
    bench.succeed(start + 5)
    bench.tally.advance(start + 100 * MS)
    report = close_account(load, bench.tally, 0.1)
    result = add_times(load, report, bench.shared, 0)
    assert result.latency == result.service_time == Histogram.of([5])
    bench.shared.histogram(0, "measured", "latency")[1] += 1  # in the memory, in no report
    with pytest.raises(BrokenAccount, match="2 latencies"):
        add_times(load, report, bench.shared, 0)


def dues(clock: ArrivalClock, n: int) -> list[int]:
    out = []
    for _ in range(n):
        out.append(clock.due)
        clock.step()
    return out


def test_the_schedule_starts_anew_with_the_first_window() -> None:
    load = Load(Request("http://h/"), stages=(Stage(100.0, 0.02), Stage(1000.0, 0.003)))
    clock = ArrivalClock(load, 7, shares(load, 1)[0])
    assert dues(clock, 3) == [7, 7 + 10 * MS, 7 + 20 * MS]
    clock.measure_from(7 + 43 * MS)
    assert dues(clock, 2) == [7 + 30 * MS, 7 + 40 * MS]  # due before it, so still sent
    measured = [7 + (43 + t) * MS for t in (0, 10, 20, 21, 22)]
    assert dues(clock, 7) == [*measured, NEVER, NEVER]
    load = Load(Request("http://h/"), rate=100.0)  # without a warm-up it starts with the schedule
    clock = ArrivalClock(load, 5, shares(load, 2)[1], measure=5)
    assert dues(clock, 3) == [5 + 10 * MS, 5 + 30 * MS, 5 + 50 * MS]


def test_most_ticks_of_the_parent_read_no_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it shares a core with a worker, a tick delays the requests that are due meanwhile."""
    now, seen, read = [1], list[Progress](), list[str]()
    monkeypatch.setattr(driver, "perf", lambda: now[0])
    monkeypatch.setattr(Histogram, "__init__", None)  # nor is a whole one made
    shared = Shared.create(1)
    for part in PARTS:
        words = shared.histogram(0, part, "latency")
        words[0] = words[1 + 500] = 500
    histogram = shared.histogram

    def reading(board: int, part: str, kind: str) -> "memoryview[int]":
        read.append(part)
        return histogram(board, part, kind)

    monkeypatch.setattr(shared, "histogram", reading)
    watch = driver.Watch(shared, 1.0, 1.0, seen.append, 10**9, 2 * 10**9, _begun=0, _last=0)
    for tick in range(1, 9):
        now[0] = tick * 250_000_001
        watch.look("warmup" if tick < 4 else "measure")
    assert [progress.p50_ns for progress in seen] == [500] * 8
    assert read == [*["rest"] * 2, *["measured"] * 4]
    shared.close()


def test_the_parent_stands_behind_the_workers_while_they_load() -> None:
    yield_to_workers(True)
    assert os.sched_getscheduler(0) == os.SCHED_BATCH
    yield_to_workers(False)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


ENDLESS = Stage(1000.0, 1e9)


def take(n: int, *args: Any, **options: Any) -> list[int]:
    return list(islice(due_times(*args, **options), n))


def test_a_constant_rate_is_a_comb() -> None:
    assert take(4, [ENDLESS]) == [0, 1_000_000, 2_000_000, 3_000_000]
    last = take(100_001, [Stage(3.0, 1e9)])[-1]  # which does not drift
    assert last == pytest.approx(100_000 / 3 * 1e9, abs=10_000)


@given(st.integers(1, 7), st.floats(1, 50_000), st.sampled_from([True, False]))
def test_workers_share_a_constant_rate_without_a_gap(n: int, rate: float, ramp: bool) -> None:
    stages = [Stage(rate, 0.01), Stage(2 * rate, 0.02)]
    whole = list(due_times(stages, ramp=ramp))
    parts = [list(due_times(stages, ramp=ramp, worker=i, workers=n)) for i in range(n)]
    assert sorted(t for part in parts for t in part) == whole


@cases("first, then", (100, 300), (300, 100))
def test_a_ramp_is_linear(first: int, then: int) -> None:
    """1 s at the first rate, then 2 s at 200 requests/s in the mean."""
    times = list(due_times([Stage(first, 1.0), Stage(then, 2.0)], ramp=True))
    assert len(times) == first + 400
    # In the ramp N(t) = first (1 + t) + (then - first) / 4 t^2; the k-th is due when N(t) = k.
    for k in (first, first + 50, first + 150, first + 399):
        t = times[k] / 1e9 - 1
        assert first * (1 + t) + (then - first) / 4 * t * t == pytest.approx(k, abs=1e-3)


def test_poisson_gaps_are_exponential_and_workers_add_up() -> None:
    alone = take(20_000, [ENDLESS], "poisson", seed=3)
    parts = [take(5_000, [ENDLESS], "poisson", worker=i, workers=4) for i in range(4)]
    assert len({tuple(part) for part in parts}) == 4
    until = min(part[-1] for part in parts)
    together = sorted(t for part in parts for t in part if t <= until)
    for times in (together, alone):
        gaps = [b - a for a, b in pairwise(times)]
        assert statistics.fmean(gaps) == pytest.approx(1e6, rel=0.03)
        assert statistics.pstdev(gaps) == pytest.approx(1e6, rel=0.05)
    assert sum(1 for gap in gaps if gap > 1e6) / len(gaps) == pytest.approx(0.3679, abs=0.01)
    assert take(50, [ENDLESS], "poisson", seed=1) == take(50, [ENDLESS], "poisson", seed=1)
    assert take(50, [ENDLESS], "poisson", seed=1) != take(50, [ENDLESS], "poisson", seed=2)
    times = list(due_times([Stage(1000.0, 2.0), Stage(4000.0, 2.0)], "poisson", seed=5))
    early = sum(1 for t in times if t < 2e9)
    assert early == pytest.approx(2000, rel=0.1)
    assert len(times) - early == pytest.approx(8000, rel=0.06)


@settings(max_examples=50)
@given(
    st.lists(st.builds(Stage, st.floats(0.5, 2000), st.floats(0.01, 2)), min_size=1, max_size=4),
    st.sampled_from(["constant", "poisson"]),
    st.booleans(),
)
def test_due_times_never_go_back(stages: list[Stage], arrivals: Arrivals, ramp: bool) -> None:
    times = list(due_times(stages, arrivals, ramp))
    assert times == sorted(times)
    assert all(0 <= t <= sum(s.duration_s for s in stages) * 1e9 + 1 for t in times)
    if arrivals == "constant":
        expected = sum(segment.gain for segment in segments(stages, ramp))
        assert abs(len(times) - expected) <= 1
