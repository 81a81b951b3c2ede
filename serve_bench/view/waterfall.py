"""Where the time of traced requests went: tables of hops, and what they say in words.

Rule: hops are means, so that they add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.analysis.statistics import LATENCY, Line
from serve_bench.analysis.waterfall import ANSWERED, BETWEEN, ORDER, HopShift, slowest_of
from serve_bench.view.blocks import distinct, section
from serve_bench.view.charts import BarPart, Bars
from serve_bench.view.document import (
    Block,
    Chart,
    Charts,
    Column,
    Number,
    Prose,
    Section,
    Table,
    TableRow,
)
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


Hops: TypeAlias = Mapping[str, Mapping[str, float]]
"""The figures of each hop, ns; those of the calls below are named by their deployment."""


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
        whole = [fall for fall in self.content if {"total", "hops", "requests"} <= fall.keys()]
        return [fall for fall in whole if fall["total"].get("mean")]

    @property
    def hops(self) -> Hops:
        """The latency, then each hop; of several launches the means of their figures."""
        falls = [{"latency": fall["total"], **fall["hops"]} for fall in self.falls]
        names = dict.fromkeys(name for fall in falls for name in fall)
        return {
            name: {
                figure: sum(fall.get(name, {}).get(figure, 0.0) for fall in falls) / len(falls)
                for figure in ("mean", "p50", "p99", "tail")
            }
            for name in names
        }

    def count(self, name: str) -> int:
        """A count of all trials together."""
        return sum(int(fall.get(name, 0)) for fall in self.content)

    @property
    def seen(self) -> int:
        """How many of its traced requests have a waterfall."""
        return sum(map(_seen, self.content))

    @property
    def tail(self) -> int:
        """How many of them are the slowest, of all trials together."""
        return sum(slowest_of(_seen(fall)) for fall in self.falls)


def _seen(fall: Mapping[str, Any]) -> int:
    failed = sum(map(int, (fall.get("failed") or {}).values()))
    return int(fall.get("traced", 0)) - int(fall.get("unseen", 0)) - failed


def of_line(name: str, line: Line) -> TracedRow:
    """A row with what was traced of it, which may be nothing."""
    figures = line.distributions.get(LATENCY)
    content = tuple(trial.waterfall for trial in line.trials if trial.waterfall)
    return TracedRow(name, content, None if figures is None else figures.p50)


def sections(rows: Iterable[TracedRow]) -> Iterator[Section]:
    """The hops of the rows that were traced; none without."""
    traced = [row for row in rows if row.content]
    blocks: list[Block] = []
    if bare := [row.name for row in traced if not row.falls]:
        none = "no traced request left marks: could Serve write them? (docs/waterfall.md, Limits)"
        blocks.append(Prose(tuple(f"{name}: {none}" for name in bare), "doubt"))
    shown = [row for row in traced if row.falls]
    for place in range(0, len(shown), BESIDE):
        beside = shown[place : place + BESIDE]
        blocks += [_hop_table(beside), Charts(partial(_charts, beside))]
    yield from section("waterfall", "Where the time goes", blocks, "table")


BESIDE: Final = 2
"""Rows that stand beside each other in one table."""

MOST_PARTS: Final = 7
"""Hops that have a colour; the smaller ones are one part."""

OTHERS: Final = "other hops"


def _hop_table(rows: Sequence[TracedRow]) -> Table:
    """The hops of rows beside each other; below it what each hop is."""
    hops = [row.hops for row in rows]
    names = _in_order(dict.fromkeys(name for of_row in hops for name in of_row))
    columns = [Column("hop", number=False)]
    columns += [Column(*head) for head in (("mean", "ms"), ("share", "%"), ("p99", "ms"))]
    figures = ["mean", "share", "p99"]
    if len(rows) == 1:
        columns += [Column("p50", "ms", detail=True), Column("slowest", "ms", detail=True)]
        figures += ["p50", "tail"]
    else:
        shorts = distinct([row.name for row in rows])
        units = [f"{column.full_name}" for column in columns[1:]]
        columns[1:] = [Column(short, unit) for short in shorts for unit in units]
    lines = []
    for name in names:
        cells = (_cell(of_row, name, figure) for of_row in hops for figure in figures)
        lines.append(TableRow((f"  {name}" if _is_call(name) else name, *cells)))
    notes = [note for row in rows for note in _notes(row)]
    notes += [f"{name}: {MEANINGS[name]}" for name in names if name in MEANINGS]
    caption = "; ".join(row.name for row in rows)
    return Table(caption, tuple(columns), tuple(lines), tuple(notes))


def _cell(hops: Hops, name: str, figure: str) -> Number:
    if name not in hops:
        return Number("-", None)
    if figure == "share":
        share = 100.0 * hops[name]["mean"] / hops["latency"]["mean"]
        return Number(f"{share:.0f}", share)
    time_ms = hops[name][figure] / NS_PER_MS
    return Number(latency(time_ms), time_ms)


def _is_call(name: str) -> bool:
    """Whether a hop is one of a call of another deployment."""
    return name not in ORDER and name != "latency"


def _in_order(names: Collection[str]) -> list[str]:
    """The whole, then the hops in the order of the way, those of calls behind `downstream`."""
    calls = [name for name in names if _is_call(name)]
    order = ["latency", *ORDER]
    order[order.index("downstream") + 1 : order.index("downstream") + 1] = calls
    return [name for name in order if name in names]


def _notes(row: TracedRow) -> Iterator[str]:
    """How many requests the figures are of, and which are missing."""
    whole = row.hops["latency"]["p50"]
    median = f" (p50 {_ms(whole)} ms, of all {_ms(row.p50_ns)} ms)" if row.p50_ns else ""
    yield (
        f"{row.name}: {row.seen:,} traced requests{median}; hops add up to the latency of each; "
        f"slowest: the {row.tail:,} that took longest"
    )
    failed = Counter[str]()
    for fall in row.content:
        failed.update(fall.get("failed") or {})
    missing = {
        "lack marks, or have some of another time: they are in no figure": row.count("unseen"),
        "had no answer when the load ended": row.count("cut"),
        **{f"failed: lost in {hop}": times for hop, times in failed.items() if hop != ANSWERED},
        "failed: answered with an error": failed[ANSWERED],
    }
    yield from (f"{times:,} more {words}" for words, times in missing.items() if times)
    if lost := row.count("lost_marks"):
        yield f"{lost:,} marks were written over before they were read"


def _charts(rows: Sequence[TracedRow]) -> Iterator[Chart]:
    """The hops of all requests, and of the slowest."""
    bars = {}
    for short, row in zip(distinct([row.name for row in rows]), rows, strict=True):
        for label, figure in (("mean", "mean"), (f"slowest {row.tail:,}", "tail")):
            times = {hop: figures[figure] for hop, figures in row.hops.items() if hop in ORDER}
            bars[f"{short}, {label}" if len(rows) > 1 else label] = times
    longest = {hop: max(times.get(hop, 0.0) for times in bars.values()) for hop in ORDER}
    large = sorted(ORDER, key=lambda hop: -longest[hop])[:MOST_PARTS]
    parts = []
    for label, times in bars.items():
        parts += [
            BarPart(label, hop, times.get(hop, 0.0) / NS_PER_MS)
            for hop in ORDER
            if hop in large and longest[hop]
        ]
        rest = sum(ns for hop, ns in times.items() if hop not in large)
        parts.append(BarPart(label, OTHERS, rest / NS_PER_MS))
    title = f"Where the time goes, {'; '.join(row.name for row in rows)}"
    words = "; ".join(f"{label}: {_ms(sum(times.values()))} ms" for label, times in bars.items())
    yield Chart(title, Bars(parts, "ms"), f"{title}. {words}.")


def sentences(row: TracedRow) -> Iterator[str]:
    """What the slowest waited for, where that is more than half of their time and not what all
    wait for; the hop that is more than half of the time of all, unless it is the app's own; and
    hops that a timer makes."""
    if not row.falls:
        return
    total = row.hops["latency"]
    hops = {hop: figures for hop, figures in row.hops.items() if hop in ORDER}
    grown = {hop: figures["tail"] - figures["p50"] for hop, figures in hops.items()}
    most = max(grown, key=grown.__getitem__, default=None)
    whole = total["tail"] - total["p50"]
    if most is not None and whole > 0.2 * total["p50"] and grown[most] > 0.5 * whole:
        yield (
            f"{row.name}: the slowest {row.tail:,} of {row.seen:,} traced requests take "
            f"{_ms(total['tail'])} ms, {_ms(hops[most]['tail'])} of them {most}; at p50 it is "
            f"{_ms(hops[most]['p50'])} of {_ms(total['p50'])}"
        )
    timers = {hop: ms for fall in row.falls for hop, ms in (fall.get("timers") or {}).items()}
    main = max(hops, key=lambda hop: hops[hop]["mean"], default=None)
    if main is not None and main not in (*THE_APP, *timers):
        spent = hops[main]["mean"]
        if spent > 0.5 * total["mean"]:
            yield (
                f"{row.name}: of the mean latency of {_ms(total['mean'])} ms, {_ms(spent)} are "
                f"{main}: {MEANINGS[main]}"
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
    most = max(hops[1:], key=lambda hop: sign * hop.grown_ns)
    parts = f"{_ms(abs(most.grown_ns))} of them {most.hop}"
    if most.low is not None and most.high is not None:
        ends = sorted((sign * most.low, sign * most.high))
        parts += f" ({' to '.join(map(_ms, ends))})"
    which = "more" if sign > 0 else "less"
    return f"{name}: B takes {_ms(abs(whole.grown_ns))} ms {which} than A, {parts}"


def _ms(value_ns: float) -> str:
    return latency(value_ns / NS_PER_MS)
