"""Hops of a request from marks of its way: they add up, and what is missing is said."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.analysis.waterfall import (
    BETWEEN,
    MOST_KEPT,
    ClientTimes,
    covered,
    slowest_of,
    summary_of,
    waterfall_of,
)
from serve_bench.core.marks import HEADER_BYTES, SLOT, HopMark, by_trace, marks_of

TRACE = "ab" * 16

CLIENT_ID = TRACE[16:]
"""Of the client's own request, as load/traces.py makes it."""


def mark(
    kind: str, begin: int, end: int, span: str = "", parent: str = "", name: str = ""
) -> HopMark:
    return HopMark(TRACE, span, parent, begin, end, kind, name)


CLIENT = ClientTimes(TRACE, 0, 10, 900, 950)

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
    made = waterfall_of(CLIENT, DEFAULT)
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


def test_the_way_past_the_proxy() -> None:
    made = waterfall_of(CLIENT, OPTIMIZED)
    assert made is not None and sum(made.hops.values()) == 950
    assert made.hops["client to replica"] == 70
    assert made.hops["batch wait"] == 200 and made.hops["user code"] == 480


@pytest.mark.parametrize(
    ("left_out", "between"),
    [("send", 40), ("slot", 40), ("user", 780)],
)
def test_what_no_mark_covers_is_a_hop_of_its_own(left_out: str, between: int) -> None:
    """A mark that a Ray does not make leaves one longer hop, and the sum stands."""
    marks = [one for one in DEFAULT if one.kind != left_out or one.name == "Down"]
    made = waterfall_of(CLIENT, marks)
    assert made is not None and sum(made.hops.values()) == 950
    assert made.hops[BETWEEN] == between


@pytest.mark.parametrize("lost", ["p", "r", "f"])
def test_a_call_does_not_stand_in_the_place_of_a_request_whose_marks_are_lost(lost: str) -> None:
    assert waterfall_of(CLIENT, [one for one in DEFAULT if one.span != lost]) is None
    assert waterfall_of(CLIENT, [one for one in OPTIMIZED if one.span != "f"]) is None


def test_a_stream_has_its_first_byte_before_its_code_ends() -> None:
    made = waterfall_of(ClientTimes(TRACE, 0, 10, 400, 950), OPTIMIZED)
    assert made is not None and sum(made.hops.values()) == 950
    assert made.hops["user code"] + made.hops["batch wait"] == 280
    assert made.hops["client read"] == 550 and "answer back" not in made.hops


def test_a_request_that_a_full_replica_sent_back_waits_at_the_router() -> None:
    again = (*DEFAULT, mark("send", 70, 70, parent="r"))
    made = waterfall_of(CLIENT, again)
    assert made is not None
    assert made.hops["router"] == 30 and made.hops["router to replica"] == 10


def test_marks_of_another_clock_or_none_make_no_waterfall() -> None:
    assert waterfall_of(CLIENT, ()) is None
    assert waterfall_of(ClientTimes(TRACE, 500, 510, 900, 950), DEFAULT) is None


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100))))
def test_overlapping_calls_count_once(spans: list[tuple[int, int]]) -> None:
    spans = [(min(one), max(one)) for one in spans]
    slow = sum(any(a <= at < b for a, b in spans) for at in range(20, 80))
    assert covered(spans, 20, 80) == slow


def test_a_file_of_marks_that_went_round() -> None:
    slots = [
        SLOT.pack(bytes.fromhex(TRACE), b"\1" * 8, bytes(8), k, k + 1, b"replica", b"Front")
        for k in (3, 2)
    ]
    content = struct.pack("<Q", 5).ljust(HEADER_BYTES, b"\0") + b"".join(slots)
    read = marks_of(content)
    assert read.lost == 3 and [one.begin_ns for one in read.marks] == [3, 2]
    assert read.marks[0].parent == "" and read.marks[0].name == "Front"
    (ordered,) = by_trace([read]).values()
    assert [one.begin_ns for one in ordered] == [2, 3]
    assert marks_of(b"") == marks_of(bytes(HEADER_BYTES))


def test_the_summary_of_many_has_the_tail_apart_and_names_a_timer() -> None:
    """199 requests take 60 ms, of which a batch waits 50; one waits for 400 ms at the router."""
    requests, marks = [], {}
    for at in range(200):
        late = 400_000_000 if at == 7 else 0
        trace = f"{at:032x}"
        requests.append(ClientTimes(trace, 0, 0, 60_000_000 + late, 60_000_000 + late))
        marks[trace] = [
            mark("proxy", 1_000_000, 61_000_000 + late, "p", CLIENT_ID),
            mark("route", 2_000_000, 3_000_000, "r", "p", "Front"),
            mark("send", 3_000_000 + late, 3_000_000 + late, parent="r"),
            mark("replica", 4_000_000 + late, 59_000_000 + late, "f", "r", "Front"),
            mark("slot", 4_000_000 + late, 4_000_000 + late, parent="f"),
            mark("user", 4_000_000 + late, 58_000_000 + late, parent="f"),
            mark("batch", 5_000_000 + late, 56_000_000 + late, parent="f"),
        ]
    requests.append(ClientTimes("f" * 32, 0, 0, 1, 2))
    made = summary_of(requests, marks, 3)
    assert (made["traced"], made["unseen"], made["lost_marks"]) == (201, 1, 3)
    assert made["total"]["p50"] == 60_000_000 and made["total"]["tail"] == 100_000_000
    assert made["hops"]["router"] == {
        "mean": 3_000_000,
        "p50": 1_000_000,
        "p99": 1_000_000,
        "tail": 41_000_000,
    }
    assert made["timers"] == {"batch wait": 50.0}
    assert sum(one["mean"] for one in made["hops"].values()) == made["total"]["mean"]
    assert made["requests"][0]["total_ns"] == 460_000_000 and len(made["requests"]) <= MOST_KEPT


def test_one_outlier_is_no_tail_and_all_are_none() -> None:
    """The slowest are 1 %, at least 10, and a tenth at most."""
    assert [slowest_of(count) for count in (1, 9, 50, 75, 100, 999, 2000)] == [
        1,
        1,
        5,
        8,
        10,
        10,
        20,
    ]


def test_the_summary_of_none() -> None:
    made = summary_of([], {}, 0)
    assert made["traced"] == 0 and made["total"] == {} and made["requests"] == []
