"""Where the time of traced requests went: a table of hops for each row, and what it says in words.

Rule: hops are means, so that they add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.analysis.waterfall import BETWEEN, ORDER, slowest_of
from serve_bench.benchmarks.parts.blocks import milliseconds, percent, table_of
from serve_bench.benchmarks.parts.rows import NS_PER_MS, Entry
from serve_bench.benchmarks.parts.texts import latency
from serve_bench.core.document import Block, Column, Prose
from serve_bench.core.result import Trial

MEANINGS: Final[Mapping[str, str]] = {
    "client late": "due, and not sent yet",
    "client to proxy": "sent, until the proxy's code has it: kernel, accept, parse",
    "client to replica": "the same past the proxy: HAProxy, then the replica's server",
    "proxy": "until the proxy asks for a replica",
    "router": "choosing a replica, and waiting for one that has room",
    "router to replica": "sent to the replica, until its code has it",
    "replica": "Serve's own work in the replica, before the code",
    "replica slot": "waiting for one of max_ongoing_requests",
    "replica loop": "waiting for the event loop of the user's code",
    "batch wait": "waiting for a batch to begin",
    "user code": "the deployment itself, without the two above and below",
    "downstream": "calls of other deployments",
    "answer back": "from the end of user code to the first byte at the client",
    "client read": "from the first byte to the last",
    BETWEEN: "no mark of this Ray covers it",
}

THE_APP: Final = ("user code", "downstream")
"""Hops of which an app's author expects the most."""


def falls(trials: Sequence[Trial]) -> list[Mapping[str, Any]]:
    """The waterfalls of a row's trials, of those that have one."""
    return [one.waterfall for one in trials if (one.waterfall.get("total") or {}).get("mean")]


def blocks(entries: Sequence[tuple[str, Entry]]) -> Iterator[Block]:
    """A table of hops for each row that was traced. `entries`: with their names."""
    seen: set[str] = set()
    for name, entry in entries:
        every = falls(entry.line.trials)
        if not every:
            yield from _none(name, entry)
            continue
        rows = _rows(every)
        seen |= {hop for hop, _ in rows}
        yield table_of(
            name,
            (
                (Column("hop", number=False), lambda one: one[0]),
                (Column("mean", "ms"), lambda one: milliseconds(one[1]["mean"])),
                (Column("of it", "%"), lambda one: percent(one[1]["share"])),
                (Column("p50", "ms", spare=2), lambda one: milliseconds(one[1]["p50"])),
                (Column("p99", "ms", spare=1), lambda one: milliseconds(one[1]["p99"])),
                (Column("slowest", "ms"), lambda one: milliseconds(one[1]["tail"])),
            ),
            rows,
            tuple(_notes(every, rows[0][1]["p50"], entry)),
        )
    said = tuple(f"{hop}: {MEANINGS[hop]}" for hop in ORDER if hop in seen)
    yield from [Prose(said, "quiet", listed=True)] if said else []


def _none(name: str, entry: Entry) -> Iterator[Block]:
    traced = sum(int(one.waterfall.get("traced", 0)) for one in entry.line.trials)
    if any(one.waterfall for one in entry.line.trials):
        yield Prose((f"{name}: of {traced:,} traced requests none left a mark",), "doubt")


def _rows(every: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, float]]]:
    """All hops of a row, the whole first; of several launches the means of their figures."""
    names = list(dict.fromkeys(name for one in every for name in one["hops"]))
    plain = [name for name in ORDER if name in names]
    below = [name for name in names if name not in plain]
    at = plain.index("downstream") + 1 if "downstream" in plain else len(plain)
    ordered = [*plain[:at], *below, *plain[at:]]
    total = _mean([one["total"] for one in every])
    out = [
        ("latency", total),
        *((n, _mean([o["hops"].get(n, {}) for o in every])) for n in ordered),
    ]
    return [
        (_indented(name, plain), {**one, "share": 100.0 * one["mean"] / (total["mean"] or 1.0)})
        for name, one in out
    ]


def _indented(name: str, plain: Sequence[str]) -> str:
    return name if name in plain or name == "latency" else f"  {name}"


def _mean(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: sum(one.get(name, 0.0) for one in figures) / len(figures)
        for name in ("mean", "p50", "p99", "tail")
    }


def _notes(every: Sequence[Mapping[str, Any]], traced_ns: float, entry: Entry) -> Iterator[str]:
    traced, unseen, failed, lost = (
        sum(int(one.get(name, 0)) for one in every)
        for name in ("traced", "unseen", "failed", "lost_marks")
    )
    yield (
        f"{traced - unseen:,} traced requests; hops add up to the latency of each; "
        f"slowest: the {_slowest(every):,} that took longest"
    )
    if (figures := entry.line.distributions.get("latency")) is not None and figures.p50:
        yield (
            f"p50 of the traced requests {_ms(traced_ns)} ms, of all of the row "
            f"{_ms(figures.p50)} ms (docs/waterfall.md)"
        )
    if unseen:
        yield f"{unseen:,} more lack marks, or have some of another time: they are in no figure"
    if failed:
        yield f"{failed:,} more failed, or had no answer"
    if lost:
        yield f"{lost:,} marks were written over before they were read"


def sentences(name: str, entry: Entry) -> Iterator[str]:
    """What the slowest waited for, where that is more than half of their time and not what all
    wait for; the hop that is more than half of the time of all, unless it is the app's own; and
    hops that a timer makes."""
    every = falls(entry.line.trials)
    if not every:
        return
    rows = dict(_rows(every))
    total = rows.pop("latency")
    hops = {hop: one for hop, one in rows.items() if not hop.startswith(" ")}
    most = max(hops, key=lambda hop: hops[hop]["tail"] - hops[hop]["p50"], default=None)
    if most is not None and total["tail"] > 0:
        grown, whole = hops[most]["tail"] - hops[most]["p50"], total["tail"] - total["p50"]
        if whole > 0.2 * total["p50"] and grown > 0.5 * whole:
            yield (
                f"{name}: the slowest {_slowest(every):,} of {_seen(every):,} traced requests take "
                f"{_ms(total['tail'])} ms, {_ms(hops[most]['tail'])} "
                f"of them {most}; at p50 it is {_ms(hops[most]['p50'])} of {_ms(total['p50'])}"
            )
    timers = dict(pair for one in every for pair in _timers(one))
    main = max(hops, key=lambda hop: hops[hop]["mean"], default=None)
    if main is not None and main not in (*THE_APP, *timers):
        spent, mean = hops[main]["mean"], total["mean"]
        if spent > 0.5 * mean:
            yield (
                f"{name}: of the mean latency of {_ms(mean)} ms, {_ms(spent)} are {main}: "
                f"{MEANINGS[main]}"
            )
    for hop, timer in sorted(timers.items()):
        yield f"{name}: half of all requests spend just above {timer:g} ms in {hop}: a timer"


def _seen(every: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(one["traced"]) - int(one["unseen"]) for one in every)


def _slowest(every: Sequence[Mapping[str, Any]]) -> int:
    return sum(slowest_of(_seen([one])) for one in every)


def _timers(one: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(hop, float(ms)) for hop, ms in (one.get("timers") or {}).items()]


def _ms(value_ns: float) -> str:
    return latency(value_ns / NS_PER_MS)
