"""Where a request's time went: from marks of its way through Serve to hops that add up. Pure.

The way of a request is a chain of moments: due and sent at the client, in the proxy, at the router,
sent to the replica, taken there, with a slot, user code begun and ended, first and last byte at the
client. A hop is the time from one moment to the next, so the hops of a request add up to its
latency exactly. Rule: a moment whose mark is missing leaves one longer hop, `between`, and none is
made up. Batch wait and calls of other deployments lie within user code, and are taken out of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, stdev
from typing import Final, NamedTuple

from msgspec import structs

from serve_bench.analysis.ratios import FEWEST, Interval, welch
from serve_bench.core.facts import HopTimes, TracedCall, TracedRequestFacts, WaterfallFacts
from serve_bench.core.marks import HAPROXY, HopMark, TracedRequest

BETWEEN: Final = "between"
"""What no mark covers."""

HOPS: Final[Mapping[tuple[str, str], str]] = {
    ("due", "sent"): "client late",
    ("sent", "proxy"): "client to proxy",
    ("proxy", "route"): "proxy",
    ("route", "given"): "argument",
    ("given", "send"): "router",
    ("route", "send"): "router",
    ("send", "replica"): "router to replica",
    ("sent", "replica"): "client to replica",
    ("sent", "haproxy"): "client to HAProxy",
    ("haproxy", "replica"): "HAProxy to replica",
    ("haproxy", "proxy"): "HAProxy to proxy",
    ("answered", "back"): "answer to HAProxy",
    ("back", "first"): "HAProxy to client",
    ("user", "back"): "user code",
    ("replica", "asked"): "replica",
    ("asked", "slot"): "replica slot",
    ("slot", "user"): "replica loop",
    ("user", "answered"): "user code",
    ("answered", "first"): "answer back",
    ("user", "first"): "user code",
    ("first", "end"): "client read",
}
"""The hop between two moments that follow each other. A stream has its first byte before its user
code ends; then that lasts until the first byte."""

ORDER: Final = (
    *("client late", "client to HAProxy", "HAProxy to proxy", "HAProxy to replica"),
    *("client to proxy", "client to replica", "proxy", "argument", "router", "router to replica"),
    *("replica", "replica slot", "replica loop", "batch wait", "user code", "downstream"),
    *("answer to HAProxy", "HAProxy to client", "answer back", "client read", BETWEEN),
)
"""Hops in the order of a request's way."""


class HopTime(NamedTuple):
    """A time of a request in one hop, ns of the monotonic clock."""

    hop: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Waterfall:
    """The way of one request, hop by hop without a gap, and of each call that its code made."""

    trace: str
    segments: tuple[HopTime, ...]
    deployment: str = ""
    calls: tuple[Waterfall, ...] = ()  # of other deployments

    @property
    def begin_ns(self) -> int:
        """When the request was due, or the call was seen first."""
        return self.segments[0].begin_ns

    @property
    def total_ns(self) -> int:
        """The latency of the request."""
        return self.segments[-1].end_ns - self.begin_ns

    @property
    def hops(self) -> dict[str, int]:
        """The time in each hop, ns."""
        times: dict[str, int] = {}
        for hop, begin, end in self.segments:
            times[hop] = times.get(hop, 0) + end - begin
        return {name: times[name] for name in ORDER if name in times}

    def call(self, due_ns: int) -> TracedCall:
        """Return it as a part of a record. `due_ns`: when the request was due."""
        return TracedCall(
            deployment=self.deployment,
            total_ns=self.total_ns,
            spans=tuple((hop, begin - due_ns, end - begin) for hop, begin, end in self.segments),
            calls=tuple(call.call(due_ns) for call in self.calls),
        )


@dataclass(frozen=True)
class _Call:
    """A request of one deployment: its moments, and what lies within its user code."""

    name: str
    moments: Mapping[str, int]
    batches: tuple[tuple[int, int], ...]
    children: tuple[_Call, ...]

    def in_order(self) -> list[tuple[str, int]]:
        """Return its moments, none before the one that it comes after on its way."""
        reached, moments = 0, []
        for name, moment in self.moments.items():
            reached = max(reached, moment)
            moments.append((name, reached))
        return moments


def build_waterfall(client: TracedRequest, marks: Sequence[HopMark]) -> Waterfall | None:
    """Return the hops of a request that was answered.

    None where marks of the proxy or the first replica are lost (a call that it made would stand in
    its place), or where one lies outside its time at the client (then it is not of one clock)."""
    proxy = next((mark for mark in marks if mark.kind == "proxy"), None)
    front = _front(marks, client.trace[16:] if proxy is None else proxy.span)
    if front is None:
        return None
    haproxy = next((mark for mark in marks if mark.kind == HAPROXY), None)
    times = {
        "due": client.due_ns,
        "sent": client.sent_ns,
        **({} if haproxy is None else {"haproxy": haproxy.begin_ns}),
        **({} if proxy is None else {"proxy": proxy.begin_ns}),
        **front.moments,
        "first": client.first_ns,
        "end": client.end_ns,
    }
    if times.get("answered", 0) > client.first_ns:  # a stream, or the answer was seen before
        del times["answered"]
    times.pop("left", None)
    moments = list(times.items())
    if haproxy is not None:
        moments = _through_haproxy(moments, haproxy.end_ns)
    if any(after < before for (_, before), (_, after) in pairwise(moments)):
        return None
    return _fall(client.trace, moments, front)


def _through_haproxy(moments: list[tuple[str, int]], back_ns: int) -> list[tuple[str, int]]:
    """Add the moment of the head of the answer at HAProxy before the first byte at the client.

    HAProxy's clock stands still while it works through what a poll brought, so both of its moments
    are moved to the nearest that their neighbours allow."""
    place = [name for name, _ in moments].index("haproxy")
    nearest = min(max(moments[place][1], moments[place - 1][1]), moments[place + 1][1])
    first = [name for name, _ in moments].index("first")
    back = min(max(back_ns, moments[first - 1][1]), moments[first][1])
    before = [*moments[:place], ("haproxy", nearest), *moments[place + 1 : first]]
    return [*before, ("back", back), *moments[first:]]


ANSWERED: Final = "answer"
"""Where a request failed that was answered: with an error."""


def find_lost_hop(client: TracedRequest, marks: Sequence[HopMark]) -> str:
    """Return the hop in which a failed request was, by its last mark.

    ANSWERED where its replica was done. A killed process leaves no mark of what it did last."""
    proxy = next((mark for mark in marks if mark.kind == "proxy"), None)
    if _front(marks, client.trace[16:] if proxy is None else proxy.span) is not None:
        return ANSWERED
    replicas = {mark.span for mark in marks if mark.kind == "replica"}
    if any(mark.kind == "slot" and mark.parent not in replicas for mark in marks):
        return "user code"
    if proxy is None:
        seen = any(mark.kind == HAPROXY for mark in marks)
        return "HAProxy to replica" if seen else "client to replica"
    route = next((mark for mark in marks if mark.kind == "route"), None)
    if route is None:
        return "proxy"
    sent = any(mark.kind == "send" and mark.parent == route.span for mark in marks)
    return "router to replica" if sent else "router"


TAIL: Final = 0.01
"""The slowest requests that stand apart: this share, but FEWEST_SLOWEST where these are more."""

FEWEST_SLOWEST: Final = 10
"""A mean of fewer is one outlier's. Yet no more than a tenth of all, or these are no tail."""


def count_slowest(count: int) -> int:
    """Return how many of so many requests stand apart as the slowest."""
    return max(1, round(TAIL * count), min(FEWEST_SLOWEST, round(0.1 * count)))


MOST_KEPT: Final = 200
"""Single requests that a record keeps: the slowest, and of the others as many as fit, evenly."""

SLOWEST_KEPT: Final = 20


def summary_of(
    requests: Sequence[TracedRequest],
    failed: Sequence[TracedRequest],
    marks: Mapping[str, Sequence[HopMark]],
    lost: int,
    ahead_ns: int = 0,
) -> WaterfallFacts:
    """Summarize the waterfalls of a trial for its record.

    `requests`: those that were answered; `unseen`: of them had no mark, or none that fits;
    `failed`: in which hop how many were. Hops in ns: of all requests the mean and percentiles, and
    the mean of the slowest (`count_slowest`). `total` is the latency. `ahead_ns`: the time of day
    less the monotonic clock."""
    seen = (build_waterfall(request, marks.get(request.trace, ())) for request in requests)
    falls = sorted(filter(None, seen), key=lambda fall: fall.total_ns)
    tail = falls[-count_slowest(len(falls)) :]
    rows = [flatten(fall) for fall in falls]
    slow = rows[-len(tail) :]
    longest = [flatten(fall, max) for fall in falls]  # two calls of 25 ms are no timer of 50
    names = list(dict.fromkeys(name for hops in rows for name in hops))
    slowest, others = falls[: -SLOWEST_KEPT - 1 : -1], falls[-SLOWEST_KEPT - 1 :: -1]
    step = max(1, -(-len(others) // (MOST_KEPT - SLOWEST_KEPT)))
    return WaterfallFacts(
        traced=len(requests) + len(failed),
        unseen=len(requests) - len(falls),
        failed=dict(Counter(find_lost_hop(times, marks.get(times.trace, ())) for times in failed)),
        lost_marks=lost,
        total=_figures([fall.total_ns for fall in falls], [fall.total_ns for fall in tail]),
        hops={
            name: _figures(*([hops.get(name, 0) for hops in group] for group in (rows, slow)))
            for name in names
        },
        haproxy_ms=_haproxy(marks.get(request.trace, ()) for request in requests),
        timers={name: timer for name in names if (timer := _timer(longest, name)) is not None},
        requests=tuple(
            TracedRequestFacts(
                trace=other.trace,
                due_unix_ns=other.begin_ns + ahead_ns,
                **structs.asdict(other.call(other.begin_ns)),
            )
            for other in (*slowest, *others[::step])
        ),
    )


HAPROXY_TIMERS: Final = ("TR", "Tw", "Tc", "Tr", "Ta")
"""Of HAProxy's log, ms: receiving the request, waiting in a queue, connecting to the server, its
response, all. -1: it did not come so far."""


def _haproxy(requests: Iterable[Sequence[HopMark]]) -> dict[str, float]:
    """Return the means of HAProxy's timers over these requests; empty without."""
    timers = (mark.name for marks in requests for mark in marks if mark.kind == HAPROXY)
    pairs = [[*map(int, names.split("/"))] for names in timers]
    whole = [times for times in pairs if len(times) == len(HAPROXY_TIMERS) and min(times) >= 0]
    columns = zip(HAPROXY_TIMERS, zip(*whole, strict=True), strict=False)
    return {name: round(mean(times), 3) for name, times in columns}


TIMERS_MS: Final = (10.0, 25.0, 50.0, 100.0)

TIMER_ROOM: Final = 0.1
"""A timer of 50 ms makes a hop of 50 to 55 ms."""


def _timer(rows: Sequence[Mapping[str, int]], name: str) -> float | None:
    """Return the length of a timer (ms) that half of all requests spend in a hop, or little more.

    Then a timer is the cause, and no work. None without."""
    for timer in TIMERS_MS:
        low, high = timer * 1e6, timer * 1e6 * (1 + TIMER_ROOM)
        if sum(low <= hops.get(name, 0) < high for hops in rows) * 2 > len(rows):
            return timer
    return None


def flatten(fall: Waterfall, join: Callable[[int, int], int] = int.__add__) -> dict[str, int]:
    """Return the hops of a request and of the calls below it, which are named `Ranker: batch wait`.

    Those of the calls lie within `downstream`; of calls made at once the sum (`join`) is more."""
    hops = dict(fall.hops)
    for call in fall.calls:
        for name, ns in flatten(call, join).items():
            full = name if ": " in name else f"{call.deployment}: {name}"
            hops[full] = join(hops[full], ns) if full in hops else ns
    return hops


@dataclass(frozen=True)
class HopShift:
    """What a hop takes on two sides, mean ns over launches; None where a side lacks it."""

    hop: str
    a_ns: float | None
    b_ns: float | None
    # The lower end of the 95 % interval of B - A; None below FEWEST launches on a side.
    low: float | None = None
    high: float | None = None

    @property
    def grown_ns(self) -> float:
        """B - A; a hop that a side lacks takes no time there."""
        return (self.b_ns or 0.0) - (self.a_ns or 0.0)


def compare_hops(
    a: Mapping[int, WaterfallFacts], b: Mapping[int, WaterfallFacts], pairs: bool
) -> tuple[HopShift, ...]:
    """Compare the latency of traced requests and each of its hops on two sides.

    Empty where one was not traced. `a`, `b`: waterfalls by round, whose hops count alike; `pairs`:
    rounds belong together, and those that one side lacks are left out."""
    sides = [{place: fall for place, fall in side.items() if fall.total.mean} for side in (a, b)]
    if pairs:
        both = sorted(set(sides[0]) & set(sides[1]))
        sides = [{place: side[place] for place in both} for side in sides]
    if not all(sides):
        return ()
    falls = [[{LATENCY: fall.total, **fall.hops} for fall in side.values()] for side in sides]
    names = {name: None for side in falls for hops in side for name in hops if ": " not in name}
    return tuple(_shift(name, falls, pairs) for name in (LATENCY, *ORDER) if name in names)


LATENCY: Final = "latency"
"""The whole, among the hops of two sides."""


def _shift(name: str, sides: Sequence[Sequence[Mapping[str, HopTimes]]], pairs: bool) -> HopShift:
    a, b = ([float(hops.get(name, HopTimes()).mean) for hops in side] for side in sides)
    known = (any(name in hops for hops in side) for side in sides)
    of_a, of_b = (mean(times) if has else None for times, has in zip((a, b), known, strict=True))
    if min(len(a), len(b)) < FEWEST:
        return HopShift(name, of_a, of_b)
    if pairs:
        differences = [late - early for early, late in zip(a, b, strict=True)]
        found = Interval(
            mean(differences), stdev(differences) / math.sqrt(len(a)), len(a) - 1, 0, 0
        )
    else:
        found = welch(a, b)
    return HopShift(name, of_a, of_b, found.center - found.half, found.center + found.half)


def _figures(values: Sequence[int], slowest: Sequence[int]) -> HopTimes:
    if not values:
        return HopTimes()
    ordered, last = sorted(values), len(values) - 1
    return HopTimes(
        mean=round(mean(values)),
        p50=ordered[len(values) // 2],
        p99=ordered[min(last, int(0.99 * len(values)))],
        tail=round(mean(slowest)),
    )


def _fall(trace: str, moments: Sequence[tuple[str, int]], call: _Call) -> Waterfall:
    """Build a waterfall from the moments of a request, and those of its calls."""
    segments: list[HopTime] = []
    for (name, begin), (other, end) in pairwise(moments):
        hop = "answer back" if other == "left" else HOPS.get((name, other), BETWEEN)
        if hop == "user code":
            segments += _user_code(call, begin, end)
        else:
            segments.append(HopTime(hop, begin, end))
    below = tuple(_fall(trace, name.in_order(), name) for name in call.children)
    return Waterfall(trace, tuple(segments), call.name, below)


def _user_code(call: _Call, begin: int, end: int) -> Iterator[HopTime]:
    """Yield user code and what lies within: calls of others, and waits for a batch.

    What overlaps counts once, calls first."""
    calls = [(min(child.moments.values()), max(child.moments.values())) for child in call.children]

    def hop_at(moment: int) -> str:
        for name, spans in (("downstream", calls), ("batch wait", call.batches)):
            if any(first <= moment < last for first, last in spans):
                return name
        return "user code"

    edges = {edge for span in (*calls, *call.batches) for edge in span if begin < edge < end}
    last = HopTime(hop_at(begin), begin, begin)
    for start in (*sorted(edges), end):
        hop = hop_at(start)
        last = last._replace(end_ns=start)
        if hop != last.hop or start == end:
            yield last
            last = HopTime(hop, start, start)


def _front(marks: Sequence[HopMark], by: str) -> _Call | None:
    """Return the request of the deployment that the span `by` called, with its calls; None without.

    `by`: the proxy's span, or the client's id of the request."""
    replicas = [mark for mark in marks if mark.kind == "replica"]
    routes = {mark.span: mark for mark in marks if mark.kind == "route"}
    made: dict[str, list[HopMark]] = {}  # replica spans by that of the replica that called
    for replica in replicas:
        route = routes.get(replica.parent)
        caller = route.parent if route is not None else replica.parent
        made.setdefault(caller, []).append(replica)
    within: dict[tuple[str, str], list[HopMark]] = {}
    for mark in marks:
        if not mark.span:
            within.setdefault((mark.parent, mark.kind), []).append(mark)

    def call(replica: HopMark) -> _Call:
        route = routes.get(replica.parent)
        moments: dict[str, int] = {}
        if route is not None:
            moments["route"] = route.begin_ns
            if given := within.get((route.span, "argument")):
                moments["given"] = given[0].end_ns
            sends = within.get((route.span, "send"), ())
            before = [send.begin_ns for send in sends if send.begin_ns <= replica.begin_ns]
            if before:  # the last: a replica that is full sends a request back
                moments["send"] = max(before)
        moments["replica"] = replica.begin_ns
        for kind, begin, end in (("slot", "asked", "slot"), ("user", "user", "answered")):
            if inside := within.get((replica.span, kind)):
                moments[begin], moments[end] = inside[0].begin_ns, inside[0].end_ns
        if "user" not in moments:
            moments["answered"] = replica.end_ns
        else:
            moments["left"] = max(replica.end_ns, moments["answered"])
        batches = within.get((replica.span, "batch"), ())
        waits = tuple((span.begin_ns, span.end_ns) for span in batches)
        children = tuple(call(span) for span in made.get(replica.span, ()))
        return _Call(replica.name, moments, waits, children)

    first = min(made.get(by, ()), key=lambda span: span.begin_ns, default=None)
    return None if first is None else call(first)
