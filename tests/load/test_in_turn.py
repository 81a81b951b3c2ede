import statistics
from collections.abc import Sequence
from itertools import pairwise
from operator import truediv
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from serve_bench.core.load_result import LoadResult, Warmup
from serve_bench.core.load_spec import Client, Load, Slices
from serve_bench.core.request_spec import Draw, Request, SpecError
from serve_bench.core.schema import built, plain
from serve_bench.load.driver import drive_slices, drive_windows, joined
from serve_bench.load.tally import LATE_NS
from serve_bench.load.worker import run_slices
from tests import servers
from tests.cases import cases, sure
from tests.load.loads import CLIENTS
from tests.servers import KnownServer, serving

pytestmark = pytest.mark.alone


def load_of(url: str, client: Client = "raw", **options: Any) -> Load:
    return Load(Request(url, expect_body=b"ok"), client=client, connections=3, **options)


def turns_of(results: Sequence[LoadResult]) -> list[tuple[float, float, int]]:
    """Begin, end and side of all parts, in the order of time."""
    facts = [sure(result.slices) for result in results]
    return sorted(
        (begun_s, begun_s + length_s, side)
        for side, parts in enumerate(facts)
        for begun_s, length_s in zip(parts.begun_s, parts.length_s, strict=True)
    )


def check_turns(results: Sequence[LoadResult], servers: Sequence[KnownServer]) -> None:
    """Parts follow each other, and never is one server busy while the other is."""
    assert all(end <= begin + 1e-6 for (_, end, _), (begin, _, _) in pairwise(turns_of(results)))
    busy = sorted((e.received_ns, e.answered_ns, k) for k, s in enumerate(servers) for e in s.log)
    for (_, answered, side), (received, _, other) in pairwise(busy):
        assert side == other or received >= answered


@pytest.mark.parametrize("client", CLIENTS)
def test_two_targets_in_turn(client: Client) -> None:
    plan = Slices(pairs=8, slice_s=0.03, warmup_s=0.1, seed=4)
    with serving(delay_s=0.002) as fast, serving(delay_s=0.006) as slow:
        results = drive_slices((load_of(fast.url, client), load_of(slow.url, client)), plan)
    order = [side for _, _, side in turns_of(results)]
    assert {tuple(order[k : k + 2]) for k in range(0, 16, 2)} == {(0, 1), (1, 0)}
    assert len(order) == 16
    # Each connection was opened once (and the address tried once), and kept through all slices.
    assert fast.connections == slow.connections == 4
    for side, server in zip(results, (fast, slow), strict=True):
        facts = sure(side.slices)
        assert side.windows == facts.completed and len(facts.length_s) == 8
        assert side.rates == pytest.approx([*map(truediv, facts.completed, facts.length_s)])
        assert all(length_s >= plan.slice_s for length_s in facts.length_s)
        beyond_s = statistics.median(facts.length_s) - plan.slice_s  # what a slice took to drain
        assert facts.drain_s == pytest.approx(beyond_s, abs=1e-6) and facts.drain_s > 0
        assert side.measured.completed == sum(side.windows) == side.latency.count
        assert side.measured.carried_in == side.measured.in_flight == 0
        assert side.total.completed == len(server.log)
        assert side.duration_s == pytest.approx(sum(facts.length_s))
        # Each side's times are its own server's, and never more than three requests were on the
        # way (Little's law). How fast the two are is the machine's affair.
        shortest = min(e.answered_ns - e.received_ns for e in server.log)
        assert sure(side.latency.min) >= 0.999 * shortest
        assert 0 < side.rate * sure(side.latency.mean) / 1e9 <= 3.01
    check_turns(results, (fast, slow))
    assert built(tuple[LoadResult, ...], [plain(result) for result in results], "it") == results


@cases("drive", drive_slices, drive_windows)
@cases("draw", "cycle", "random")
def test_requests_that_differ_come_in_the_same_order_to_all(drive: Any, draw: Draw) -> None:
    """The slower server has fewer of them. Each window begins at another."""
    paths, bodies = tuple(f"/{k}" for k in range(50)), (b"x", b"y", b"z")
    with serving(delay_s=0.001) as fast, serving(delay_s=0.003) as slow:
        requests = [Request(s.url, "POST", (), b"", bodies, paths, draw) for s in (fast, slow)]
        drive([Load(request, seed=7) for request in requests], Slices(3, 0.05, 0.01, seed=4))
    assert len(fast.asked) == len(slow.asked) == (1 if drive is drive_slices else 3)
    for more, fewer in zip(fast.asked, slow.asked, strict=True):
        assert len(more) > len(fewer) > 5 and more[: len(fewer)] == fewer
        if draw == "cycle":
            begin = int(more[0][0][1:])
            turns = [(begin + k) % 50 for k in range(len(more))]
            assert more == [(f"/{turn}", bodies[turn % 3]) for turn in turns]
    begins = [requests[0] for requests in fast.asked]
    assert len(set(begins)) == len(begins)
    if draw == "cycle" and drive is drive_slices:
        assert begins == [("/6", b"x")]  # the seventh


@pytest.mark.parametrize("client", CLIENTS)
def test_failures_do_not_stop_the_turns(client: Client) -> None:
    plan = Slices(pairs=4, slice_s=0.03, warmup_s=0.0)
    with serving() as good, serving(servers.every_nth(5, "close_before")) as bad:
        left, right = drive_slices((load_of(good.url, client), load_of(bad.url, client)), plan)
    assert left.total.failed == {} and sum(sure(left.slices).failed) == 0
    assert right.total.failed == {"reset": bad.actions["close_before"]}
    assert sum(sure(right.slices).failed) == bad.actions["close_before"]


def test_a_slice_waits_until_the_time_out_of_its_last_request_has_been_seen() -> None:
    """Time-outs are looked for every 0.1 s: a request sent at the end meets its own that late."""
    drains: list[int] = []

    def run_slice(length_ns: int, drain_ns: int) -> int:
        drains.append(drain_ns)
        return 0

    def engine(timeout_s: float) -> Any:
        nothing = lambda _: None  # noqa: E731
        tally = SimpleNamespace(
            completed=0, failed={}, last_ns=0, begin_slices=nothing, end_slices=nothing
        )
        load = load_of("http://127.0.0.1:1/", timeout_s=timeout_s)
        return SimpleNamespace(load=load, tally=tally, run_slice=run_slice)

    for drain_s, waited_s in ((None, 3), (1.0, 1)):
        plan = Slices(pairs=1, warmup_s=0.0, drain_s=drain_s)
        run_slices([engine(2.0), engine(3.0)], plan, 0)
        assert drains == [waited_s * 1_000_000_000 + LATE_NS] * 2
        drains.clear()


@cases("options", {"rate": 5.0}, {"count": 9})
def test_slices_are_for_closed_loops(options: dict[str, Any]) -> None:
    load = load_of("http://127.0.0.1:1/", **options)
    with pytest.raises(SpecError, match="closed loop"):
        drive_slices((load, load), Slices(pairs=1))


def test_an_open_loop_meets_two_targets_in_turn() -> None:
    plan = Slices(pairs=3, slice_s=0.2, warmup_s=0.05, seed=5)
    with serving() as a, serving() as b:
        requests = [Request(at.url, expect_body=b"ok") for at in (a, b)]
        loads = [Load(request, connections=2, rate=100.0) for request in requests]
        results = drive_windows((loads[0], loads[1]), plan)
    turns = turns_of(results)
    assert [sorted(side for _, _, side in turns[k : k + 2]) for k in (0, 2, 4)] == [[0, 1]] * 3
    for whole in results:
        facts = sure(whole.slices)
        assert whole.windows == facts.completed and facts.drain_s == 0.0
        # Each window's requests are followed to their end, each window counts what came in it.
        assert whole.measured.completed == whole.measured.sent == whole.latency.count == 60
        assert whole.completed_in_windows == sum(whole.windows) > 0
        assert whole.duration_s == pytest.approx(sum(facts.length_s))
        assert whole.measured.balanced and whole.total.balanced
    again = structs.replace(results[0], warmup=Warmup(0.05, False, 9, False), slices=None)
    assert joined(loads[0], [results[0], again]).warmup == results[0].warmup
    assert turns[0][0] == 0.0
    check_turns(results, (a, b))
