from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from serve_bench.core import load_result
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built, plain
from serve_bench.load.connection import ConnectionRates
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.merge import combine, judged
from tests.cases import cases, sure
from tests.load.loads import run_here
from tests.rounds import MS, a_result
from tests.servers import serving

LOAD = Load(Request("http://h:1/"))


def test_everything_is_added_up_and_nothing_is_lost() -> None:
    failure = load_result.WorkerFailure(9, "killed by signal 9", 4)
    bound = load_result.ClientVerdict(True, ("too busy", "late"), 0.9, 0.2, 1000, 2000)
    first = a_result([MS] * 5, (2, 3), notes=("one", "two"), connection_rate_max=40.0)
    second = a_result(
        [2 * MS] * 6, (4, 2), duration_s=2.5, notes=("two",), failures=(failure,), verdict=bound
    )
    second = structs.replace(
        second, workers=(load_result.WorkerReport(2, 4, 0.5, 0.9, 0.2, 18.0, "none"),)
    )
    third = a_result([3 * MS], (1, 0), verdict=replace(bound, reasons=("late",)))
    total = combine(LOAD, [first, second, third])
    assert total.windows == (7, 5) and total.window_s == 1.0 and total.duration_s == 2.5
    assert total.measured == load_result.Counts(27, 12, {"timeout": 9}, 6)
    assert total.latency == Histogram.of([MS] * 5 + [2 * MS] * 6 + [3 * MS])
    assert total.in_windows == load_result.Counts(27, 9, {"timeout": 6}, 18, carried_in=6)
    assert total.mean_in_flight == 10.5 and total.censored.count == 15
    assert total.total == load_result.Counts(42, 33, {"timeout": 9}, 0)
    assert total.status_codes == {200: 12} and total.bytes_received == 1200
    assert (total.retried, total.reconnects, total.early, total.waited) == (3, 9, 6, 0)
    assert len(total.workers) == 3 and total.failures == (failure,)
    assert total.notes == ("one", "two")
    assert total.verdict.client_bound and total.verdict.reasons == ("too busy", "late")
    assert total.verdict.non_idle == 0.9 and total.verdict.run_queue_wait == 0.2
    assert total.connection_rate_max == 40.0
    assert total.warmup == load_result.Warmup(0.5, True, 21)
    assert built(load_result.LoadResult, plain(total), "it") == total
    alone = combine(LOAD, [first])
    assert alone == structs.replace(first, verdict=alone.verdict)
    whole, verdict = first.latency.joined(first.censored), alone.verdict
    assert verdict.pickup_p50_ns == first.pickup.percentile(0.5)
    assert verdict.added_ns == pytest.approx(2000, rel=0.01)
    assert (verdict.latency_p50_ns, verdict.mean_latency_ns) == (whole.percentile(0.5), whole.mean)


def test_the_client_is_not_blamed_for_a_server_that_stops_answering() -> None:
    """60 of 90 requests are answered in 143 us each and the others never; sent 60 us late."""
    workers = (load_result.WorkerReport(1, 8, 1.0, 0.1, 0.0, 20.0, "none"),)
    lag, waits = Histogram.of([60_000] * 90), Histogram.of([1000 * MS] * 30)
    made = a_result([143_000] * 60, (60,), workers=workers, send_lag=lag, censored=waits)
    assert judged(made).verdict.reasons == ()
    # Beside the answered ones alone that is 42 % of the latency.
    assert judged(structs.replace(made, censored=Histogram())).verdict.client_bound


def test_what_cannot_be_combined() -> None:
    with pytest.raises(ValueError, match="no results"):
        combine(LOAD, [])
    with pytest.raises(ValueError, match="different lengths"):
        combine(LOAD, [a_result([], ()), a_result([], (), window_s=2.0)])
    by_count = replace(LOAD, each=1)
    both = [a_result([MS], (1,), duration_s=d, window_s=d) for d in (1.0, 1.5)]
    assert combine(by_count, both).window_s == 1.5
    # An interrupted node counts up to its last window.
    whole, cut = a_result([MS] * 6, (1, 2, 3)), a_result([MS] * 3, (1, 2))
    assert combine(LOAD, [whole, cut]).windows == (2, 4)
    assert combine(LOAD, [cut, whole]).measured.completed == 9
    good = a_result([MS] * 6, (6,))
    bad = structs.replace(good, measured=replace(good.measured, sent=good.measured.sent + 1))
    with pytest.raises(BrokenAccount, match="account does not balance"):
        combine(LOAD, [good, bad])
    with pytest.raises(BrokenAccount, match="latencies"):
        combine(LOAD, [good, structs.replace(good, latency=Histogram.of([MS]))])


def test_the_highest_rate_of_one_connection() -> None:
    busy, two, late = (SimpleNamespace(ended_well=0) for _ in range(3))
    rates = ConnectionRates(cast(Any, [busy, two]))
    busy.ended_well = 1000  # of the warm-up
    rates.look(5_000 * MS)
    rates.begin(10_000 * MS)
    busy.ended_well += 4
    two.ended_well += 7
    rates.look(10_099 * MS)
    assert rates.highest is None  # no interval is over
    rates.look(10_100 * MS)
    assert rates.highest == pytest.approx(70.0)
    busy.ended_well += 12
    rates.look(10_220 * MS)  # late: an interval of 120 ms
    assert rates.highest == pytest.approx(100.0)
    two.ended_well += 3
    rates.look(10_299 * MS)
    two.ended_well += 50
    rates.end()
    rates.look(10_500 * MS)  # what had begun of an interval is left out
    assert rates.highest == pytest.approx(100.0)
    rates = ConnectionRates(cast(Any, [late]))
    rates.begin(0)
    late.ended_well = 39
    rates.look(390 * MS)
    late.ended_well = 40
    rates.look(400 * MS)  # a look that is very late makes no short interval: 10 ms
    assert rates.highest == pytest.approx(100.0)


@cases("answers", "short path", "long path")
def test_the_rate_of_connections_against_the_servers_log(answers: str) -> None:
    body = b"ok" if answers == "long path" else None
    with serving(delay_s=0.005) as server:
        request = Request(server.url, expect_body=body)
        result = run_here(Load(request, connections=4, count=600, connection_rates=True))
    assert result.total.completed == 600 == len(server.log)
    # Of one connection, from the server's side: no 100 ms hold more than the most in any window.
    by_peer: dict[int, list[int]] = {}
    for exchange in server.log:
        by_peer.setdefault(exchange.peer, []).append(exchange.answered_ns)
    most = 0
    for times in by_peer.values():
        for k, begin in enumerate(times):
            most = max(most, sum(1 for at in times[k : k + 60] if at < begin + 120 * MS))
    assert 0.8 * result.rate / 4 <= sure(result.connection_rate_max) <= (most + 1) / 0.1


TIMING = Timing(0.05, 0.15, windows=2, window_s=0.15)


def test_a_load_of_so_many_requests_waits_at_the_gate() -> None:
    answers = iter([False, False, True])
    sent: list[int] = []
    with serving() as server:

        def may_measure() -> bool:
            sent.append(len(server.log))
            return next(answers)

        load = Load(Request(server.url), connections=3, each=4)
        result = drive_load(load, TIMING, may_measure=may_measure)
    assert sent == [0, 0, 0]
    assert result.total.completed == 12 == len(server.log)
