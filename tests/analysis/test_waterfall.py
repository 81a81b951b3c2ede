import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.analysis import waterfall
from serve_bench.analysis.ratios import quantile
from serve_bench.core.facts import HopTimes, WaterfallFacts
from serve_bench.core.marks import (
    HEADER_BYTES,
    SLOT,
    HopMark,
    TracedRequest,
    by_trace,
    haproxy_marks,
    marks_of,
)
from tests.cases import cases, sure

TRACE = "ab" * 16
MS = 1_000_000

CLIENT_ID = TRACE[16:]
"""Of the client's own request, as load/traces.py makes it."""


def mark(
    kind: str, begin: int, end: int, span: str = "", parent: str = "", name: str = ""
) -> HopMark:
    return HopMark(TRACE, span, parent, begin, end, kind, name)


CLIENT = TracedRequest(TRACE, 0, 10, 900, 950)

#: Through the proxy, with a call of another deployment and a batch there.
DEFAULT = (
    mark("proxy", 30, 980, "p", CLIENT_ID),
    mark("route", 40, 60, "r", "p", "Front"),
    mark("send", 50, 50, parent="r"),
    mark("replica", 80, 880, "f", "r", "Front"),
    mark("slot", 85, 100, parent="f"),
    mark("user", 120, 800, parent="f"),
    mark("route", 200, 230, "r2", "f", "Down"),
    mark("send", 210, 210, parent="r2"),
    mark("replica", 240, 700, "d", "r2", "Down"),
    mark("slot", 240, 250, parent="d"),
    mark("user", 260, 690, parent="d"),
    mark("batch", 270, 600, parent="d"),
)

#: HAProxy leads to the replica itself: its span is the first.
OPTIMIZED = (
    mark("replica", 80, 880, "f", CLIENT_ID, "Front"),
    mark("slot", 80, 100, parent="f"),
    mark("user", 120, 800, parent="f"),
    mark("batch", 130, 330, parent="f"),
)


def test_the_way_through_the_proxy() -> None:
    made = waterfall.build_waterfall(CLIENT, DEFAULT)
    assert made is not None and made.deployment == "Front"
    assert made.hops == {
        "client late": 10,
        "client to proxy": 20,
        "proxy": 10,
        "router": 10,
        "router to replica": 30,
        "replica": 5,
        "replica slot": 15,
        "replica loop": 20,
        "user code": 180,
        "downstream": 500,
        "answer back": 100,
        "client read": 50,
    }
    assert sum(made.hops.values()) == made.total_ns == 950
    (down,) = made.calls
    assert down.deployment == "Down" and sum(down.hops.values()) == down.total_ns == 500
    assert down.hops["batch wait"] == 330 and down.hops["user code"] == 100
    # A call waits for the answer that it passes on, and not at the router.
    marks = (
        *DEFAULT,
        mark("route", 205, 740, "r3", "f", "Post"),
        mark("argument", 206, 710, parent="r3"),
        mark("send", 715, 715, parent="r3"),
        mark("replica", 730, 760, "o", "r3", "Post"),
        mark("user", 740, 750, parent="o"),
    )
    made = sure(waterfall.build_waterfall(CLIENT, marks))
    assert made.hops["downstream"] == 560
    _, post = made.calls
    assert (post.hops["argument"], post.hops["router"], post.hops["user code"]) == (505, 5, 10)


def hops_of(marks: Iterable[HopMark], client: TracedRequest = CLIENT) -> dict[str, int]:
    """Split a request of 950 ns into hops, which add up."""
    hops = sure(waterfall.build_waterfall(client, tuple(marks))).hops
    assert sum(hops.values()) == 950
    return dict(hops)


def test_the_way_past_the_proxy_of_a_stream_and_of_a_request_that_was_sent_back() -> None:
    hops = hops_of(OPTIMIZED)
    assert hops["client to replica"] == 70
    assert hops["batch wait"] == 200 and hops["user code"] == 480
    stream = hops_of(OPTIMIZED, TracedRequest(TRACE, 0, 10, 400, 950))  # its code is not at its end
    assert stream["user code"] + stream["batch wait"] == 280
    assert stream["client read"] == 550 and "answer back" not in stream
    again = hops_of((*DEFAULT, mark("send", 70, 70, parent="r")))
    assert again["router"] == 30 and again["router to replica"] == 10


@cases(
    "begin, end, hops",
    (30, 850, (20, 50, 50, 50)),
    (5, 850, (0, 70, 50, 50)),  # its clock is behind: before the client has sent
    (90, 850, (70, 0, 50, 50)),
    (30, 790, (20, 50, 0, 100)),
    (30, 920, (20, 50, 100, 0)),
)
def test_the_way_through_haproxy(begin: int, end: int, hops: tuple[int, ...]) -> None:
    found = hops_of((*OPTIMIZED, mark("haproxy", begin, end, name="0/0/0/5/6")))
    names = ("client to HAProxy", "HAProxy to replica", "answer to HAProxy", "HAProxy to client")
    assert tuple(found[name] for name in names) == hops
    assert "answer back" not in found and "client to replica" not in found


@cases("left_out, between", ("send", 40), ("slot", 40), ("user", 780))
def test_what_no_mark_covers_is_a_hop_of_its_own(left_out: str, between: int) -> None:
    """A mark that a Ray does not make leaves one longer hop, and the sum stands."""
    marks = [hop for hop in DEFAULT if hop.kind != left_out or hop.name == "Down"]
    assert hops_of(marks)[waterfall.BETWEEN] == between


@cases("lost", "p", "r", "f")
def test_a_call_does_not_stand_in_the_place_of_a_request_whose_marks_are_lost(lost: str) -> None:
    assert waterfall.build_waterfall(CLIENT, [hop for hop in DEFAULT if hop.span != lost]) is None
    assert waterfall.build_waterfall(CLIENT, [hop for hop in OPTIMIZED if hop.span != "f"]) is None
    assert waterfall.build_waterfall(CLIENT, ()) is None
    assert (
        waterfall.build_waterfall(TracedRequest(TRACE, 500, 510, 900, 950), DEFAULT) is None
    )  # another clock


@given(
    st.lists(st.tuples(st.integers(120, 800), st.integers(120, 800))),
    st.lists(st.tuples(st.integers(120, 800), st.integers(120, 800))),
)
def test_overlaps_count_once(calls: list[tuple[int, int]], batches: list[tuple[int, int]]) -> None:
    """Against a count of each nanosecond: a call, else a batch, else the code itself."""
    calls, batches = ([(min(span), max(span)) for span in spans] for spans in (calls, batches))
    marks = [*DEFAULT[:6]]
    marks += [mark("replica", *call, f"{at}", "f", "Down") for at, call in enumerate(calls)]
    marks += [mark("batch", *batch, parent="f") for batch in batches]
    made = waterfall.build_waterfall(CLIENT, marks)
    assert made is not None and sum(made.hops.values()) == 950
    below = sum(any(a <= at < b for a, b in calls) for at in range(120, 800))
    both = sum(any(a <= at < b for a, b in (*calls, *batches)) for at in range(120, 800))
    assert made.hops.get("downstream", 0) == below
    assert made.hops.get("batch wait", 0) == both - below
    for before, other in pairwise(made.segments):
        assert before.end_ns == other.begin_ns


@cases(
    "marks, hop",
    ((), "client to replica"),
    ((mark("haproxy", 30, 90),), "HAProxy to replica"),
    (DEFAULT[:1], "proxy"),
    (DEFAULT[:2], "router"),
    (DEFAULT[:3], "router to replica"),
    ((*DEFAULT[:3], DEFAULT[4]), "user code"),
    ((OPTIMIZED[1],), "user code"),
    (DEFAULT, "answer"),
    (OPTIMIZED, "answer"),
)
def test_a_failed_request_is_lost_behind_its_mark(marks: tuple[HopMark, ...], hop: str) -> None:
    assert waterfall.find_lost_hop(CLIENT, marks) == hop


def test_a_file_of_marks_that_went_round() -> None:
    about = bytes.fromhex(TRACE), b"\1" * 8, bytes(8)
    slots = [SLOT.pack(*about, k, k + 1, b"replica", b"Front") for k in (3, 2)]
    content = struct.pack("<Q", 5).ljust(HEADER_BYTES, b"\0") + b"".join(slots)
    read = marks_of(content)
    assert read.lost == 3 and [mark.begin_ns for mark in read.marks] == [3, 2]
    assert read.marks[0].parent == "" and read.marks[0].name == "Front"
    (ordered,) = by_trace([read]).values()
    assert [hop.begin_ns for hop in ordered] == [2, 3]
    assert marks_of(b"") == marks_of(bytes(HEADER_BYTES))
    # Of lines of HAProxy one without an answer, and one that is cut off, are none.
    begun = f"{TRACE} 1000"
    lines = [f"{begun} 1005 0/1/2/3/6 200", f"{begun} - 0/1/2/-1/6 503", f"{begun} 1005 0/1", ""]
    (line,) = haproxy_marks("\n".join(lines), ahead_ns=400).marks
    assert (line.begin_ns, line.end_ns, line.kind) == (999_600, 1_004_600, "haproxy")
    requests = [TracedRequest(TRACE, 0, 0, 10, 20), TracedRequest("c" * 32, 0, 0, 10, 20)]
    other = replace(line, trace="c" * 32, name="0/0/0/-1/2")
    made = waterfall.summary_of(requests, [], {TRACE: (line,), "c" * 32: (other,)}, 0)
    assert made.haproxy_ms == {"TR": 0, "Tw": 1, "Tc": 2, "Tr": 3, "Ta": 6}


def test_the_summary_of_many_has_the_tail_apart_and_names_a_timer() -> None:
    """199 requests take 60 ms, of which a batch waits 50; one waits for 400 ms at the router."""
    requests, marks = [], {}
    for at in range(200):
        late = 400 * MS if at == 7 else 0
        trace = f"{at:032x}"
        requests.append(TracedRequest(trace, 0, 0, 60 * MS + late, 60 * MS + late))
        marks[trace] = [
            mark("proxy", MS, 61 * MS + late, "p", CLIENT_ID),
            mark("route", 2 * MS, 3 * MS, "r", "p", "Front"),
            mark("send", 3 * MS + late, 3 * MS + late, parent="r"),
            mark("replica", 4 * MS + late, 59 * MS + late, "f", "r", "Front"),
            mark("slot", 4 * MS + late, 4 * MS + late, parent="f"),
            mark("user", 4 * MS + late, 58 * MS + late, parent="f"),
            mark("batch", 5 * MS + late, 56 * MS + late, parent="f"),
        ]
    requests.append(TracedRequest("f" * 32, 0, 0, 1, 2))
    failed = [TracedRequest("e" * 32, 0, 0, 1, 2)]
    made = waterfall.summary_of(requests, failed, marks, 3, ahead_ns=7)
    assert (made.traced, made.unseen, made.lost_marks) == (202, 1, 3)
    assert made.failed == {"client to replica": 1}
    assert (made.total.p50, made.total.tail) == (60 * MS, 100 * MS)
    router = HopTimes(mean=3 * MS, p50=MS, p99=MS, tail=41 * MS)
    assert made.hops["router"] == router and made.timers == {"batch wait": 50.0}
    assert sum(hop.mean for hop in made.hops.values()) == made.total.mean
    slowest = made.requests[0]
    assert slowest.total_ns == 460 * MS and slowest.due_unix_ns == 7
    assert ("router", 2 * MS, 401 * MS) in slowest.spans
    assert waterfall.SLOWEST_KEPT < len(made.requests) <= waterfall.MOST_KEPT
    # The slowest are 1 %, at least 10, and a tenth at most.
    counts = (1, 9, 50, 75, 100, 999, 2000)
    assert [waterfall.count_slowest(count) for count in counts] == [1, 1, 5, 8, 10, 10, 20]
    none = waterfall.summary_of([], [], {}, 0)
    assert none.traced == 0 and none.total == HopTimes() and none.requests == ()


def side(*rounds: dict[str, int]) -> dict[int, WaterfallFacts]:
    return {
        at: WaterfallFacts(
            total=HopTimes(mean=sum(hops.values())),
            hops={name: HopTimes(mean=mean) for name, mean in hops.items()},
        )
        for at, hops in enumerate(rounds, 1)
    }


A_SIDE = side({"router": 10, "user code": 5}, {"router": 20, "user code": 5}, {"router": 30})
B_SIDE = side({"router": 42}, {"router": 50}, {"router": 64})


def test_the_hop_in_which_two_sides_differ_has_an_interval_over_rounds() -> None:
    """Differences of 32, 30 and 34: mean 32, standard error 2 / sqrt(3), t(0.975, 2) = 4.3027."""
    by_hop = {shift.hop: shift for shift in waterfall.compare_hops(A_SIDE, B_SIDE, pairs=True)}
    assert list(by_hop) == ["latency", "router", "user code"]
    router, code = by_hop["router"], by_hop["user code"]
    assert (router.a_ns, router.b_ns, router.grown_ns) == (20.0, 52.0, 32.0)
    half = 4.302653 * 2 / 3**0.5
    assert (router.low, router.high) == pytest.approx((32 - half, 32 + half), rel=1e-6)
    assert code.b_ns is None and code.grown_ns == pytest.approx(-10 / 3)
    assert sum(shift.grown_ns for shift in by_hop.values()) == 2 * by_hop["latency"].grown_ns
    # Launches of their own have the interval of Welch.
    router = waterfall.compare_hops(A_SIDE, B_SIDE, pairs=False)[1]
    squares = (100 / 3, 124 / 3)  # variances over launches
    share = squares[0] / sum(squares)
    df = 1 / (share**2 / 2 + (1 - share) ** 2 / 2)
    half = quantile(df, 0.975) * sum(squares) ** 0.5
    assert router.low == pytest.approx(32 - half) and router.high == pytest.approx(32 + half)
    # What was not traced on both sides is not compared.
    assert waterfall.compare_hops(A_SIDE, {}, pairs=True) == ()
    assert waterfall.compare_hops(A_SIDE, {1: WaterfallFacts()}, pairs=False) == ()
    (whole, *_) = waterfall.compare_hops(A_SIDE, {2: B_SIDE[2]}, pairs=True)
    assert (whole.a_ns, whole.b_ns, whole.low) == (25.0, 50.0, None)


def test_two_calls_that_wait_25_ms_are_a_timer_of_25() -> None:
    """One after the other: together they take 52 ms, and no timer of 50 made that."""
    calls = [mark("replica", MS, 69 * MS, "f", CLIENT_ID, "Front")]
    calls += [mark("slot", MS, MS, parent="f"), mark("user", MS, 68 * MS, parent="f")]
    for call, begin in (("d", 2 * MS), ("e", 32 * MS)):
        calls.append(mark("replica", begin, begin + 28 * MS, call, "f", "Down"))
        calls.append(mark("user", begin, begin + 27 * MS, parent=call))
        calls.append(mark("batch", begin, begin + 26 * MS, parent=call))
    traces = [f"{at:016x}{CLIENT_ID}" for at in range(10)]
    requests = [TracedRequest(trace, 0, 0, 70 * MS, 70 * MS) for trace in traces]
    made = waterfall.summary_of(requests, [], dict.fromkeys(traces, calls), 0)
    assert made.timers == {"Down: batch wait": 25.0}
    assert made.hops["Down: batch wait"].p50 == 52 * MS
