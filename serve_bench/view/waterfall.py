"""Where the time of traced requests went: a table of hops for each row, and what it says in words.

Rule: hops are means, so that they add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, Line
from serve_bench.analysis.waterfall import ANSWERED, BETWEEN, ORDER, HopShift, slowest_of
from serve_bench.view.blocks import milliseconds, percent, section, table_of
from serve_bench.view.charts import BarPart, Bars
from serve_bench.view.document import Block, Chart, Charts, Column, Prose, Section
from serve_bench.view.rows import NS_PER_MS
from serve_bench.view.texts import latency

MEANINGS: Final[Mapping[str, str]] = {
    "client late": "due, and not sent yet",
    "client to proxy": "sent, until the proxy's code has it: kernel, accept, parse",
    "client to replica": "the same past the proxy: HAProxy, then the replica's server",
    "client to HAProxy": "sent, until HAProxy has parsed it: kernel, accept, parse",
    "HAProxy to proxy": "HAProxy's queue and connection, until the proxy's code has it",
    "HAProxy to replica": "HAProxy's queue and connection, then the replica's server",
    "proxy": "until the proxy asks for a replica",
    "argument": "waiting for the answer of another call, which this call passes on",
    "router": "choosing a replica, and waiting for one that has room",
    "router to replica": "sent to the replica, until its code has it",
    "replica": "Serve's own work in the replica, before the code",
    "replica slot": "waiting for one of max_ongoing_requests",
    "replica loop": "waiting for the event loop of the user's code",
    "batch wait": "waiting for a batch to begin",
    "user code": "the deployment itself, without the two above and below",
    "downstream": "calls of other deployments, below by name; calls at once add up to more",
    "answer to HAProxy": "from the end of user code until HAProxy has the head of the answer",
    "HAProxy to client": "from there to the first byte at the client",
    "answer back": "from the end of user code to the first byte at the client",
    "client read": "from the first byte to the last",
    BETWEEN: "no mark of this Ray covers it",
}

THE_APP: Final = ("user code", "downstream")
"""Hops of which an app's author expects the most."""


@dataclass(frozen=True)
class TracedRow:
    """A row by its name, with the waterfalls of its trials. `p50_ns`: the median latency of all its
    requests, where that is known."""

    name: str
    content: tuple[Mapping[str, Any], ...]
    p50_ns: float | None = None

    @property
    def falls(self) -> list[Mapping[str, Any]]:
        """The waterfalls that have a request; of a damaged record none."""
        whole = [one for one in self.content if {"total", "hops", "requests"} <= one.keys()]
        return [one for one in whole if one["total"].get("mean")]

    def count(self, name: str) -> int:
        """A count of all trials together."""
        return sum(int(one.get(name, 0)) for one in self.content)

    @property
    def seen(self) -> int:
        """How many of its traced requests have a waterfall."""
        return sum(map(_seen, self.content))

    @property
    def tail(self) -> int:
        """How many of them are the slowest, of all trials together."""
        return sum(slowest_of(_seen(one)) for one in self.falls)

    @property
    def slowest(self) -> list[Mapping[str, Any]]:
        """The slowest requests that the records keep, in the order of time."""
        every = [request for one in self.falls for request in one["requests"]]
        slow = sorted(every, key=lambda one: -int(one["total_ns"]))[:MOST_SLOW]
        return sorted(slow, key=lambda one: int(one["due_unix_ns"]))


def _seen(one: Mapping[str, Any]) -> int:
    failed = sum(map(int, (one.get("failed") or {}).values()))
    return int(one.get("traced", 0)) - int(one.get("unseen", 0)) - failed


def of_line(name: str, line: Line) -> TracedRow:
    every = line.distributions.get(LATENCY)
    content = tuple(one.waterfall for one in line.trials if one.waterfall)
    return TracedRow(name, content, None if every is None else every.p50)


def sections(rows: Iterable[TracedRow]) -> Iterator[Section]:
    """The hops of the rows that were traced; none without."""
    traced = list(rows)
    yield from section("waterfall", "Where the time goes", _blocks(traced), "table")
    yield from section("slow-requests", "Slow requests", _slow_blocks(traced))


def _blocks(rows: Iterable[TracedRow]) -> Iterator[Block]:
    seen: set[str] = set()
    for row in rows:
        if not row.falls:
            if row.content:
                traced = row.count("traced")
                none = f"of {traced:,} traced requests none left marks: could Serve write them?"
                yield Prose((f"{row.name}: {none} (docs/waterfall.md, Limits)",), "doubt")
            continue
        hops = _rows(row.falls)
        seen |= {hop for hop, _ in hops}
        yield table_of(
            row.name,
            (
                (Column("hop", number=False), lambda one: one[0]),
                (Column("mean", "ms"), lambda one: milliseconds(one[1]["mean"])),
                (Column("of it", "%"), lambda one: percent(one[1]["share"])),
                (Column("p50", "ms"), lambda one: milliseconds(one[1]["p50"])),
                (Column("p99", "ms"), lambda one: milliseconds(one[1]["p99"])),
                (Column("slowest", "ms"), lambda one: milliseconds(one[1]["tail"])),
            ),
            hops,
            tuple(_notes(row, hops[0][1]["p50"])),
        )
    said = tuple(f"{hop}: {MEANINGS[hop]}" for hop in ORDER if hop in seen)
    yield from [Prose(said, "quiet", listed=True)] if said else []


MOST_SLOW: Final = 10
"""Single requests that are shown of a row."""

MOST_PARTS: Final = 7
"""Hops that have a colour; the smaller ones are one part."""

OTHERS: Final = "other hops"


def _slow_blocks(rows: Iterable[TracedRow]) -> Iterator[Block]:
    """Charts of the hops of each row, and its slowest requests."""
    for row in rows:
        if row.falls:
            yield Charts(partial(_charts, row))
            yield table_of(
                f"{row.name}: its slowest requests",
                (
                    (Column("due, UTC", number=False), lambda one: _clock(one["due_unix_ns"])),
                    (Column("latency", "ms"), lambda one: milliseconds(one["total_ns"])),
                    (Column("longest hop", number=False), lambda one: _longest(one)[0]),
                    (Column("of it", "ms"), lambda one: milliseconds(_longest(one)[1])),
                    (Column("trace", number=False), lambda one: str(one["trace"])),
                ),
                row.slowest,
            )


def _charts(row: TracedRow) -> Iterator[Chart]:
    hops = [(hop, one) for hop, one in _rows(row.falls) if hop in ORDER]
    bars = {
        "mean": {hop: one["mean"] for hop, one in hops},
        f"slowest {row.tail:,}": {hop: one["tail"] for hop, one in hops},
    }
    single = {
        f"{_clock(one['due_unix_ns'])} {str(one['trace'])[-6:]}": times_of(one)
        for one in row.slowest
    }
    shown = _large([*bars.values(), *single.values()])
    words = "; ".join(f"{hop} {_ms(one['mean'])} ms" for hop, one in hops)
    title = f"Where the time goes, {row.name}"
    yield Chart(title, Bars([*_parts(bars, shown)], "ms"), f"{title}. Mean: {words}.")
    words = "; ".join(f"{label}: {_ms(sum(times.values()))} ms" for label, times in single.items())
    title = f"The slowest requests by time, {row.name}"
    yield Chart(title, Bars([*_parts(single, shown)], "ms"), f"{title}. {words}.")


def _large(bars: Sequence[Mapping[str, float]]) -> list[str]:
    """The hops that have a colour, in the order of the way."""
    longest = {hop: max(one.get(hop, 0) for one in bars) for hop in ORDER}
    large = sorted((hop for hop in ORDER if longest[hop]), key=lambda hop: -longest[hop])
    return [hop for hop in ORDER if hop in large[:MOST_PARTS]]


def _parts(bars: Mapping[str, Mapping[str, float]], shown: Sequence[str]) -> Iterator[BarPart]:
    """The hops of each bar in ms, those that are not shown as one."""
    for label, hops in bars.items():
        yield from (BarPart(label, hop, hops.get(hop, 0) / NS_PER_MS) for hop in shown)
        rest = sum(ns for hop, ns in hops.items() if hop not in shown)
        yield BarPart(label, OTHERS, rest / NS_PER_MS)


def times_of(request: Mapping[str, Any]) -> dict[str, float]:
    """How long a single request was in each hop, ns, without those of its calls."""
    times: dict[str, float] = {}
    for hop, _, ns in request["spans"]:
        times[hop] = times.get(hop, 0) + ns
    return times


def _longest(request: Mapping[str, Any]) -> tuple[str, float]:
    return max(times_of(request).items(), key=lambda one: one[1])


def _clock(unix_ns: int) -> str:
    second = unix_ns // 1_000_000_000 % 86_400
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{clock}.{unix_ns // 1_000_000 % 1000:03d}"


def _rows(every: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, float]]]:
    """All hops of a row, the whole first; of several launches the means of their figures."""
    taken = [fall["hops"] for fall in every]
    names = list(dict.fromkeys(name for hops in taken for name in hops))
    plain = [name for name in ORDER if name in names]
    below = [name for name in names if name not in plain]
    at = plain.index("downstream") + 1 if "downstream" in plain else len(plain)
    ordered = [*plain[:at], *below, *plain[at:]]
    total = _mean([one["total"] for one in every])
    rows = {
        name if name in plain else f"  {name}": _mean([hops.get(name, {}) for hops in taken])
        for name in ordered
    }
    return [
        (name, {**took, "share": 100.0 * took["mean"] / (total["mean"] or 1.0)})
        for name, took in (("latency", total), *rows.items())
    ]


def _mean(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: sum(one.get(name, 0.0) for one in figures) / len(figures)
        for name in ("mean", "p50", "p99", "tail")
    }


def _notes(row: TracedRow, traced_ns: float) -> Iterator[str]:
    unseen, lost, cut = (row.count(name) for name in ("unseen", "lost_marks", "cut"))
    failed = Counter[str]()
    for one in row.content:
        failed.update(one.get("failed") or {})
    yield (
        f"{row.seen:,} traced requests; hops add up to the latency of each; slowest: the "
        f"{row.tail:,} that took longest"
    )
    if row.p50_ns:
        yield (
            f"p50 of the traced requests {_ms(traced_ns)} ms, of all of the row "
            f"{_ms(row.p50_ns)} ms (docs/waterfall.md)"
        )
    timers = [one["haproxy_ms"] for one in row.falls if one.get("haproxy_ms")]
    if timers:
        means = (f"{name} {latency(mean(one[name] for one in timers))}" for name in timers[0])
        yield f"HAProxy's log, mean ms: {', '.join(means)} (request, queue, connect, response, all)"
    if unseen:
        yield f"{unseen:,} more lack marks, or have some of another time: they are in no figure"
    for hop, times in failed.most_common():
        where = "answered with an error" if hop == ANSWERED else f"lost in {hop}"
        yield f"{times:,} more failed: {where}"
    if cut:
        yield f"{cut:,} more had no answer when the load ended"
    if lost:
        yield f"{lost:,} marks were written over before they were read"


def sentences(row: TracedRow) -> Iterator[str]:
    """What the slowest waited for, where that is more than half of their time and not what all
    wait for; the hop that is more than half of the time of all, unless it is the app's own; and
    hops that a timer makes."""
    if not row.falls:
        return
    rows = dict(_rows(row.falls))
    total = rows.pop("latency")
    hops = {hop: one for hop, one in rows.items() if not hop.startswith(" ")}
    most = max(hops, key=lambda hop: hops[hop]["tail"] - hops[hop]["p50"], default=None)
    if most is not None and total["tail"] > 0:
        grown, whole = hops[most]["tail"] - hops[most]["p50"], total["tail"] - total["p50"]
        if whole > 0.2 * total["p50"] and grown > 0.5 * whole:
            yield (
                f"{row.name}: the slowest {row.tail:,} of {row.seen:,} traced requests take "
                f"{_ms(total['tail'])} ms, {_ms(hops[most]['tail'])} of them {most}; at p50 it is "
                f"{_ms(hops[most]['p50'])} of {_ms(total['p50'])}"
            )
    timers = {hop: ms for fall in row.falls for hop, ms in (fall.get("timers") or {}).items()}
    main = max(hops, key=lambda hop: hops[hop]["mean"], default=None)
    if main is not None and main not in (*THE_APP, *timers):
        spent, whole = hops[main]["mean"], total["mean"]
        if spent > 0.5 * whole:
            yield (
                f"{row.name}: of the mean latency of {_ms(whole)} ms, {_ms(spent)} are {main}: "
                f"{MEANINGS[main]}"
            )
    for hop, timer in sorted(timers.items()):
        yield f"{row.name}: half of all requests spend just above {timer:g} ms in {hop}: a timer"


def shift_sentence(name: str, hops: Sequence[HopShift]) -> str | None:
    """In which hop the latency of two sides differs most, where the whole is known to differ."""
    if not hops or (whole := hops[0]).low is None or whole.high is None:
        return None
    if whole.low <= 0 <= whole.high:
        return None
    sign = 1 if whole.grown_ns > 0 else -1
    most = max(hops[1:], key=lambda one: sign * one.grown_ns)
    parts = f"{_ms(abs(most.grown_ns))} of them {most.hop}"
    if most.low is not None and most.high is not None:
        ends = sorted((sign * most.low, sign * most.high))
        parts += f" ({' to '.join(_ms(one) for one in ends)})"
    which = "more" if sign > 0 else "less"
    return f"{name}: B takes {_ms(abs(whole.grown_ns))} ms {which} than A, {parts}"


def _ms(value_ns: float) -> str:
    return latency(value_ns / NS_PER_MS)
