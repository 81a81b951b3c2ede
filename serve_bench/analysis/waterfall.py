"""Where a request's time went: from marks of its way through Serve to hops that add up. Pure.

The way of a request is a chain of moments: due and sent at the client, in the proxy, at the router,
sent to the replica, taken there, a slot of it had, user code begun and ended, first and last byte
at the client. A hop is the time from one moment to the next, so the hops of a request add up to its
latency exactly. Rule: a moment whose mark is missing leaves one longer hop, `between`, and none is
made up. Batch wait and calls of other deployments lie within user code, and are taken out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Any, Final

from serve_bench.core.marks import HopMark

BETWEEN: Final = "between"
"""What no mark covers."""

HOPS: Final[Mapping[tuple[str, str], str]] = {
    ("due", "sent"): "client late",
    ("sent", "proxy"): "client to proxy",
    ("proxy", "route"): "proxy",
    ("route", "send"): "router",
    ("send", "replica"): "router to replica",
    ("sent", "replica"): "client to replica",
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
    *("client late", "client to proxy", "client to replica", "proxy", "router"),
    *("router to replica", "replica", "replica slot", "replica loop", "batch wait", "user code"),
    *("downstream", "answer back", "client read", BETWEEN),
)
"""Hops in the order of a request's way."""


@dataclass(frozen=True)
class ClientTimes:
    """A traced request at its client, ns of the monotonic clock. `first_ns`: its first byte."""

    trace: str
    due_ns: int
    sent_ns: int
    first_ns: int
    end_ns: int


@dataclass(frozen=True)
class Waterfall:
    """The hops of one request, in ns, and of each call of another deployment that its code made."""

    trace: str
    total_ns: int
    hops: Mapping[str, int]
    deployment: str = ""
    calls: tuple[Waterfall, ...] = ()


@dataclass(frozen=True)
class _Call:
    """A request of one deployment: its moments, and what lies within its user code."""

    name: str
    moments: Mapping[str, int]
    batches: tuple[tuple[int, int], ...]
    children: tuple[_Call, ...]

    @property
    def begin_ns(self) -> int:
        """When it was first seen in Serve."""
        return min(self.moments.values())

    @property
    def end_ns(self) -> int:
        """When it was last seen there."""
        return max(self.moments.values())


def waterfall_of(client: ClientTimes, marks: Sequence[HopMark]) -> Waterfall | None:
    """The hops of a request that was answered; None where marks of the proxy or the first replica
    are lost (a call that it made would stand in its place), or where one lies outside its time at
    the client (then it is not of one clock)."""
    proxy = next((mark for mark in marks if mark.kind == "proxy"), None)
    front = _front(marks, client.trace[16:] if proxy is None else proxy.span)
    if front is None:
        return None
    times = {
        "due": client.due_ns,
        "sent": client.sent_ns,
        **({} if proxy is None else {"proxy": proxy.begin_ns}),
        **front.moments,
        "first": client.first_ns,
        "end": client.end_ns,
    }
    if times.get("answered", 0) > client.first_ns:  # a stream, or the answer was seen before
        del times["answered"]
    times.pop("left", None)
    moments = list(times.items())
    if any(after < before for (_, before), (_, after) in pairwise(moments)):
        return None
    hops: dict[str, int] = {}
    for (one, before), (other, after) in pairwise(moments):
        name = HOPS.get((one, other), BETWEEN)
        hops[name] = hops.get(name, 0) + after - before
    until = min(front.moments.get("answered", client.first_ns), client.first_ns)
    _take_out(hops, front, until)
    return Waterfall(
        client.trace,
        client.end_ns - client.due_ns,
        _ordered(hops),
        front.name,
        tuple(_nested(client.trace, one) for one in front.children),
    )


TAIL: Final = 0.01
"""The slowest requests that stand apart: this share, but FEWEST_SLOWEST where these are more."""

FEWEST_SLOWEST: Final = 10
"""A mean of fewer is one outlier's. Yet no more than a tenth of all, or these are no tail."""


def slowest_of(count: int) -> int:
    """How many of so many requests stand apart as the slowest."""
    return max(1, round(TAIL * count), min(FEWEST_SLOWEST, round(0.1 * count)))


MOST_KEPT: Final = 200
"""Single requests that a record keeps: the slowest, and of the others as many as fit, evenly."""


def summary_of(
    requests: Sequence[ClientTimes], marks: Mapping[str, Sequence[HopMark]], lost: int
) -> dict[str, Any]:
    """The waterfalls of a trial as plain content of its record. `requests`: those that were
    answered; `unseen`: of them had no mark, or none that fits. Hops in ns: of all requests the mean
    and percentiles, and the mean of the slowest (`slowest_of`). `total` is the latency."""
    falls = [
        fall
        for one in requests
        if (fall := waterfall_of(one, marks.get(one.trace, ()))) is not None
    ]
    falls.sort(key=lambda one: one.total_ns)
    tail = falls[-slowest_of(len(falls)) :]
    rows = [(fall, flat(fall)) for fall in falls]
    names = list(dict.fromkeys(name for _, hops in rows for name in hops))
    every = max(1, -(-len(falls) // MOST_KEPT))
    return {
        "traced": len(requests),
        "unseen": len(requests) - len(falls),
        "lost_marks": lost,
        "total": _figures([one.total_ns for one in falls], [one.total_ns for one in tail]),
        "hops": {
            name: _figures(
                [hops.get(name, 0) for _, hops in rows],
                [hops.get(name, 0) for _, hops in rows[-len(tail) :]],
            )
            for name in names
        },
        "timers": {name: timer for name in names if (timer := _timer(rows, name)) is not None},
        "requests": [
            {"trace": fall.trace, "total_ns": fall.total_ns, "hops": hops}
            for fall, hops in rows[::-1][::every]
        ],
    }


TIMERS_MS: Final = (10.0, 25.0, 50.0, 100.0)

TIMER_ROOM: Final = 0.1
"""A timer of 50 ms makes a hop of 50 to 55 ms."""


def _timer(rows: Sequence[tuple[Waterfall, Mapping[str, int]]], name: str) -> float | None:
    """The length that half of all requests spend in a hop, or little more: then a timer is the
    cause, and no work. None without."""
    for timer in TIMERS_MS:
        low, high = timer * 1e6, timer * 1e6 * (1 + TIMER_ROOM)
        if sum(low <= hops.get(name, 0) < high for _, hops in rows) * 2 > len(rows):
            return timer
    return None


def flat(fall: Waterfall) -> dict[str, int]:
    """The hops of a request and of the calls below it, which bear the name of their deployment:
    `Ranker: batch wait`. Those of the calls lie within `downstream`."""
    hops = dict(fall.hops)
    for call in fall.calls:
        for name, ns in flat(call).items():
            full = name if ": " in name else f"{call.deployment}: {name}"
            hops[full] = hops.get(full, 0) + ns
    return hops


def _figures(values: Sequence[int], slowest: Sequence[int]) -> dict[str, int]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "mean": round(mean(values)),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "tail": round(mean(slowest)),
    }


def _nested(trace: str, call: _Call) -> Waterfall:
    """The hops of a call within Serve: from the router to the end of the replica's work."""
    times = dict(call.moments)
    hops: dict[str, int] = {}
    for (one, before), (other, after) in pairwise(times.items()):
        name = "answer back" if other == "left" else HOPS.get((one, other), BETWEEN)
        hops[name] = hops.get(name, 0) + max(0, after - before)
    _take_out(hops, call, call.moments.get("answered", call.end_ns))
    return Waterfall(
        trace,
        call.end_ns - call.begin_ns,
        _ordered(hops),
        call.name,
        tuple(_nested(trace, one) for one in call.children),
    )


def _take_out(hops: dict[str, int], call: _Call, until: int) -> None:
    """Batch wait and calls of others, out of user code. What overlaps counts once: calls first."""
    begin = call.moments.get("user")
    if begin is None or "user code" not in hops:
        return
    below = [(one.begin_ns, one.end_ns) for one in call.children]
    downstream = covered(below, begin, until)
    both = covered([*below, *call.batches], begin, until)
    if call.children:
        hops["downstream"] = downstream
    if call.batches:
        hops["batch wait"] = both - downstream
    hops["user code"] -= both


def covered(spans: Iterable[tuple[int, int]], begin: int, end: int) -> int:
    """How much of a time these spans cover together, each moment once."""
    total, reached = 0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total


def _front(marks: Sequence[HopMark], by: str) -> _Call | None:
    """The request of the deployment that the span `by` called, with those that it made itself; None
    without one. `by`: the proxy's span, or the client's id of its own request."""
    replicas = [mark for mark in marks if mark.kind == "replica"]
    routes = {mark.span: mark for mark in marks if mark.kind == "route"}
    made: dict[str, list[HopMark]] = {}  # replica spans by that of the replica that called
    for one in replicas:
        route = routes.get(one.parent)
        caller = route.parent if route is not None else one.parent
        made.setdefault(caller, []).append(one)
    within: dict[tuple[str, str], list[HopMark]] = {}
    for mark in marks:
        if not mark.span:
            within.setdefault((mark.parent, mark.kind), []).append(mark)

    def call(replica: HopMark) -> _Call:
        route = routes.get(replica.parent)
        moments: dict[str, int] = {}
        if route is not None:
            moments["route"] = route.begin_ns
            sends = within.get((route.span, "send"), ())
            before = [one.begin_ns for one in sends if one.begin_ns <= replica.begin_ns]
            if before:  # the last: a replica that is full sends a request back
                moments["send"] = max(before)
        moments["replica"] = replica.begin_ns
        for kind, name in (("slot", "asked"), ("user", "user")):
            if inside := within.get((replica.span, kind)):
                moments[name], until = inside[0].begin_ns, inside[0].end_ns
                moments["slot" if kind == "slot" else "answered"] = until
        if "user" not in moments:
            moments["answered"] = replica.end_ns
        else:
            moments["left"] = max(replica.end_ns, moments["answered"])
        waits = tuple((one.begin_ns, one.end_ns) for one in within.get((replica.span, "batch"), ()))
        children = tuple(call(one) for one in made.get(replica.span, ()))
        return _Call(replica.name, moments, waits, children)

    first = min(made.get(by, ()), key=lambda one: one.begin_ns, default=None)
    return None if first is None else call(first)


def _ordered(hops: Mapping[str, int]) -> dict[str, int]:
    return {name: hops[name] for name in ORDER if name in hops}
