"""The small parts of the load engine: steadiness, verdict, shares, cores, shared memory, tally."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any

import pytest

from serve_bench.load.arrivals import ArrivalClock
from serve_bench.load.cores import enough_processes
from serve_bench.load.evidence import Usage, client_verdict, shares_between
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.share import divide, shares
from serve_bench.load.shared import COMPLETED, MEASURE, Shared
from serve_bench.load.tally import NEVER, PUBLISH_AHEAD_NS, TICK_NS, Tally
from serve_bench.load.turns import next_turn
from serve_bench.load.warmup import is_steady
from serve_bench.load_result import WorkerReport
from serve_bench.load_spec import Load, Stage
from serve_bench.request_spec import Request

# -- warm-up --------------------------------------------------------------------------------------


def counts(rates: list[float]) -> list[int]:
    return [0, *(int(n) for n in accumulate(rates))]


def test_a_constant_rate_is_steady_after_eight_samples() -> None:
    assert not is_steady(counts([50.0] * 7))
    assert is_steady(counts([50.0] * 8))


def test_a_climbing_rate_is_not_steady() -> None:
    assert not is_steady(counts([10.0 * k for k in range(1, 9)]))
    assert not is_steady(counts([10.0 * k for k in range(1, 60)]))


def test_a_falling_rate_is_not_steady() -> None:
    assert not is_steady(counts([1000 - 20.0 * k for k in range(40)]))


def test_a_cold_start_is_forgotten() -> None:
    assert not is_steady(counts([0.0] * 6 + [100.0] * 4))
    assert is_steady(counts([0.0] * 10 + [100.0] * 12))


def test_noise_alone_does_not_prolong_it() -> None:
    draw = random.Random(5)
    rates = [max(0.0, draw.gauss(100, 26)) for _ in range(40)]
    assert is_steady(counts(rates)) or is_steady(counts(rates[:30]))


def test_silence_is_not_steady() -> None:
    assert not is_steady(counts([0.0] * 40))
    assert not is_steady([])


# -- verdict --------------------------------------------------------------------------------------


def worker(
    non_idle: float | None, wait: float | None = 0.0, c: int = 8, timer: str = "none"
) -> WorkerReport:
    return WorkerReport(1, c, 1.0, non_idle, wait, 20.0, timer)


@pytest.mark.parametrize(
    ("workers", "pickup", "latency", "lag", "waited", "bound"),
    [
        ([worker(0.5)], 1_000, 100_000, None, False, False),
        ([worker(0.9)], 1_000, 100_000, None, False, True),
        ([worker(0.5), worker(0.9)], 1_000, 100_000, None, False, True),
        ([worker(0.5)], 20_000, 100_000, None, False, True),
        ([worker(0.5, c=1)], 20_000, 100_000, None, False, False),
        ([worker(1.0, 0.0, timer="spin")], 1_000, 100_000, None, False, False),
        ([worker(1.0, 0.2, timer="spin")], 1_000, 100_000, None, False, True),
        ([worker(0.5)], None, 100_000, 30_000, False, True),
        ([worker(0.5)], None, 100_000, 30_000, True, False),
        ([worker(None, None)], None, None, None, False, False),
    ],
)
def test_the_client_verdict(
    workers: list[WorkerReport], pickup: Any, latency: Any, lag: Any, waited: bool, bound: bool
) -> None:
    verdict = client_verdict(workers, pickup, latency, lag, waited)
    assert verdict.client_bound is bound
    assert bool(verdict.reasons) is bound


def test_shares_come_from_the_scheduler() -> None:
    begin, end = Usage(0, 0, 100, 50), Usage(1000, 300, 500, 350)
    assert shares_between(begin, end) == (0.7, 0.3)
    assert shares_between(Usage(0, 0, None, None), end) == (None, None)


# -- workers --------------------------------------------------------------------------------------


URL = "http://h/"


def taken(request: Request, workers: int, count: int, seed: int = 1) -> list[list[int]]:
    """The numbers of the first requests of each worker, as its client is given them."""
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


def test_more_workers_than_paths_still_take_each_path() -> None:
    assert taken(Request(URL, paths=("/a", "/b")), 3, 2) == [[0, 1], [0, 1], [1, 0]]


def test_a_draw_depends_on_seed_and_worker_alone() -> None:
    request = Request(URL, paths=tuple(f"/{k}" for k in range(50)), draw="random")
    first, second = taken(request, 2, 20)
    assert first != second
    assert taken(request, 2, 20) == [first, second]
    assert taken(request, 2, 20, seed=2) != [first, second]


def test_shares_add_up() -> None:
    assert divide(10, 3) == [4, 3, 3]
    grows = Load(Request(URL), connections=5, max_connections=9, rate=1.0, count=101)
    assert [(s.connections, s.limit, s.count, s.first) for s in shares(grows, 2)] == [
        (3, 5, 51, 0),
        (2, 4, 50, 5),
    ]
    by_connection = shares(Load(Request(URL), connections=5, each=7), 2)
    assert [(s.connections, s.count, s.each, s.first) for s in by_connection] == [
        (3, 21, 7, 0),
        (2, 14, 7, 3),
    ]


@pytest.mark.parametrize(
    ("options", "cores", "expected"),
    [
        ({"connections": 100}, 8, 1),
        ({"connections": 8, "client": "aiohttp"}, 32, 8),
        ({"connections": 8, "client": "aiohttp"}, 8, 4),
        ({"connections": 8, "client": "aiohttp"}, 1, 1),
        ({"connections": 8, "rate": 60_000.0}, 8, 3),
        ({"connections": 8, "stages": (Stage(10, 1), Stage(40_000, 1))}, 8, 2),
        ({"connections": 8, "processes": 7}, 2, 7),
    ],
)
def test_enough_processes(options: dict[str, Any], cores: int, expected: int) -> None:
    assert enough_processes(Load(Request("http://h/"), **options), cores) == expected


# -- tally ----------------------------------------------------------------------------------------

MS = 1_000_000


class Bench:
    """A tally on memory of its own, with a made-up clock and a made-up number in flight."""

    def __init__(self, windows: int = 2, count: int | None = None) -> None:
        self.shared = Shared.create(1)
        self.flying = 0
        self.tally = Tally(self.shared, 0, windows, 100 * MS, count, lambda: (self.flying, 0))

    def send(self, n: int = 1) -> None:
        self.tally.sent += n
        self.flying += n

    def succeed(self, now: int) -> None:
        if now >= self.tally.edge:
            self.tally.advance(now)
        self.flying -= 1
        self.tally.success(now - MS, now - MS, now, 200)


def test_an_event_counts_in_the_window_it_happened_in() -> None:
    bench = Bench()
    bench.send(6)
    bench.shared.words[MEASURE] = PUBLISH_AHEAD_NS
    start = PUBLISH_AHEAD_NS
    assert PUBLISH_AHEAD_NS > TICK_NS
    for now in (start - 1, start, start + 100 * MS - 1, start + 100 * MS, start + 200 * MS):
        bench.tally.advance(now - TICK_NS)
        bench.succeed(now)
    assert bench.tally.windows == [2, 1]
    assert bench.tally.finished and not bench.tally.may_send()
    report = bench.tally.report()
    assert report["snapshots"]["begin"]["completed"] == 1
    assert report["snapshots"]["end"]["completed"] == 4
    assert report["snapshots"]["final"]["in_flight"] == 1
    assert bench.shared.read(0, "measured", "equal").count == 3
    assert bench.shared.read(0, "rest", "equal").count == 2


def test_a_long_stall_closes_every_window_that_passed() -> None:
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
    bench.flying = 1
    with pytest.raises(BrokenAccount, match="sent 3"):
        bench.tally.report()


def test_a_lost_sample_is_found() -> None:
    bench = Bench()
    bench.send(1)
    bench.succeed(5)
    bench.send(1)
    bench.flying -= 1
    bench.tally.completed += 1
    with pytest.raises(BrokenAccount, match="1 latencies for 2"):
        bench.tally.report()


def test_a_count_ends_with_its_last_response() -> None:
    bench = Bench(count=2)
    bench.shared.words[MEASURE] = 1
    bench.send(2)
    assert not bench.tally.may_send()
    bench.succeed(5 * MS)
    assert not bench.tally.count_done
    bench.succeed(7 * MS)
    assert bench.tally.count_done
    bench.tally.end_by_count()
    assert (bench.tally.windows, bench.tally.end_ns) == ([2], 7 * MS)
    assert bench.shared.total(COMPLETED) <= 2


def test_retries_and_failures_keep_the_identity() -> None:
    bench = Bench()
    bench.send(2)
    bench.tally.retried += 1
    bench.tally.failure("reset", 0, MS)
    bench.flying -= 1
    bench.succeed(2 * MS)
    final = bench.tally.report()["snapshots"]["final"]
    assert final["sent"] == 2 and final["failed"]["reset"] == 1 and final["retried"] == 1
    assert bench.shared.read(0, "rest", "failed_latency").count == 1


# -- arrivals -------------------------------------------------------------------------------------


def dues(clock: ArrivalClock, n: int) -> list[int]:
    out = []
    for _ in range(n):
        out.append(clock.due)
        clock.step()
    return out


def test_the_schedule_starts_anew_with_the_first_window() -> None:
    load = Load(Request("http://h/"), stages=(Stage(100.0, 0.02), Stage(1000.0, 0.003)))
    clock = ArrivalClock(load, start=7, worker=0, workers=1)
    assert dues(clock, 3) == [7, 7 + 10 * MS, 7 + 20 * MS]
    clock.measure_from(7 + 43 * MS)
    assert dues(clock, 2) == [7 + 30 * MS, 7 + 40 * MS]  # due before it, so still sent
    measured = [7 + (43 + t) * MS for t in (0, 10, 20, 21, 22)]
    assert dues(clock, 7) == [*measured, NEVER, NEVER]


def test_a_load_without_warmup_starts_with_the_schedule() -> None:
    load = Load(Request("http://h/"), rate=100.0)
    clock = ArrivalClock(load, start=5, worker=1, workers=2, measure=5)
    assert dues(clock, 3) == [5 + 10 * MS, 5 + 30 * MS, 5 + 50 * MS]
