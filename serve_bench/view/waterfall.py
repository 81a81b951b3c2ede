"""Where the time of traced requests went: tables of hops, and what they say in words.

Rule: hops are means, so that they add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.analysis.statistics import LATENCY
from serve_bench.analysis.waterfall import ANSWERED, BETWEEN, ORDER, HopShift, slowest_of
from serve_bench.view.blocks import distinct, section
from serve_bench.view.charts import BarPart, Bars, Chart
from serve_bench.view.document import Block, Charts, Prose, Section
from serve_bench.view.figures import FIGURES, Value, declare, declare_all
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table
from serve_bench.view.rows import NS_PER_MS

declare_all(
    ("hop_mean", "ns", "mean time in a hop of traced requests", "mean"),
    ("hop_p50", "ns", "p50 of the time in a hop", "p50"),
    ("hop_p99", "ns", "p99 of the time in a hop", "p99"),
    ("hop_tail", "ns", "mean time in a hop of the slowest traced requests", "slowest"),
)
declare("hop_of_latency", "%", "mean time in a hop over the mean latency", title="share")

FIELDS: Final = (
    Field("name", "hop"),
    *map(Field, ("hop_mean", "hop_of_latency", "hop_p99")),
    *(Field(figure, detail=True) for figure in ("hop_p50", "hop_tail")),
)

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

MOST_PARTS: Final = 7
"""Hops that have a colour; the smaller ones are one part."""

TITLE: Final = "Where the time goes"

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
        """The latency, then each hop in the order of the way, those of calls behind `downstream`;
        of several launches the means of their figures."""
        falls = [{LATENCY: fall["total"], **fall["hops"]} for fall in self.falls]
        names = dict.fromkeys(name for fall in falls for name in fall)
        place = ORDER.index("downstream") + 1
        calls = [name for name in names if name not in (LATENCY, *ORDER)]
        return {
            name: {
                figure: sum(fall.get(name, {}).get(figure, 0.0) for fall in falls) / len(falls)
                for figure in ("mean", "p50", "p99", "tail")
            }
            for name in (LATENCY, *ORDER[:place], *calls, *ORDER[place:])
            if name in names
        }

    def count(self, name: str) -> int:
        """A count of all trials together."""
        return sum(int(fall.get(name, 0)) for fall in self.content)

    @property
    def failed(self) -> Counter[str]:
        """How many of its traced requests failed, by the hop that they were in."""
        return sum((Counter(fall.get("failed") or {}) for fall in self.content), Counter[str]())

    @property
    def seen(self) -> int:
        """How many of its traced requests have a waterfall."""
        return self.count("traced") - self.count("unseen") - self.failed.total()

    @property
    def tail(self) -> int:
        """How many of them are the slowest, of all trials together."""
        return sum(slowest_of(TracedRow("", (fall,)).seen) for fall in self.falls)


def traced_row(row: ViewRow) -> TracedRow:
    """A row with what was traced of it, which may be nothing."""
    content = tuple(trial.waterfall for trial in row.trials if trial.waterfall)
    return TracedRow(row.name, content, row.value("latency_p50"))


def sections(rows: Iterable[ViewRow]) -> Iterator[Section]:
    """The hops of the rows that were traced; none without."""
    traced = [row for row in map(traced_row, rows) if row.content]
    blocks: list[Block] = []
    if bare := [row.name for row in traced if not row.falls]:
        none = "no traced request left marks: could Serve write them? (docs/waterfall.md, Limits)"
        blocks.append(Prose(tuple(f"{name}: {none}" for name in bare), "doubt"))
    if shown := [row for row in traced if row.falls]:
        hops = [hop for row in shown for hop in _hop_rows(row)]
        names = dict.fromkeys(hop.dims["hop"] for hop in hops)
        notes = [note for row in shown for note in _notes(row)]
        notes += [f"{name}: {MEANINGS[name]}" for name in names if name in MEANINGS]
        caption = "Traced requests by hop"
        table = make_table(TableSpec(caption, FIELDS, tuple(notes)), hops)
        blocks += [table, Charts(partial(_draw, shown))]
    yield from section("waterfall", TITLE, blocks, "table")


def _hop_rows(row: TracedRow) -> Iterator[ViewRow]:
    """The latency and its hops, with those of the calls indented."""
    hops = row.hops
    for name, times in hops.items():
        values = {f"hop_{figure}": Value(ns) for figure, ns in times.items()}
        values["hop_of_latency"] = Value(100.0 * times["mean"] / hops[LATENCY]["mean"])
        indent = "" if name in (LATENCY, *ORDER) else "  "
        yield ViewRow({"hop": name}, values, f"{indent}{name}", group=row.name)


def _notes(row: TracedRow) -> Iterator[str]:
    """How many requests the figures are of, and which are missing."""
    whole = _ms(row.hops[LATENCY]["p50"])
    median = f" (p50 {whole} ms, of all {_ms(row.p50_ns)} ms)" if row.p50_ns else ""
    yield (
        f"{row.name}: {row.seen:,} traced requests{median}; hops add up to the latency of each; "
        f"slowest: the {row.tail:,} that took longest"
    )
    failed = row.failed
    missing = {
        "lack marks, or have some of another time: they are in no figure": row.count("unseen"),
        "had no answer when the load ended": row.count("cut"),
        **{f"failed: lost in {hop}": times for hop, times in failed.items() if hop != ANSWERED},
        "failed: answered with an error": failed[ANSWERED],
    }
    yield from (f"{times:,} more {words}" for words, times in missing.items() if times)
    if lost := row.count("lost_marks"):
        yield f"{lost:,} marks were written over before they were read"


def _draw(rows: Sequence[TracedRow]) -> Iterator[Chart]:
    """The hops of all requests of each row, and of the slowest."""
    bars: dict[str, dict[str, float]] = {}
    for short, row in zip(distinct([row.name for row in rows]), rows, strict=True):
        hops = {hop: times for hop, times in row.hops.items() if hop in ORDER}
        for label, figure in (("mean", "mean"), (f"slowest {row.tail:,}", "tail")):
            bars[f"{short}, {label}"] = {hop: times[figure] for hop, times in hops.items()}
    longest = {hop: max(bar.get(hop, 0.0) for bar in bars.values()) for hop in ORDER}
    large = sorted(ORDER, key=lambda hop: -longest[hop])[:MOST_PARTS]
    parts = []
    for label, bar in bars.items():
        shown = {hop: ns for hop, ns in bar.items() if hop in large and ns}
        shown["other hops"] = sum(ns for hop, ns in bar.items() if hop not in large)
        parts += [BarPart(label, hop, ns / NS_PER_MS) for hop, ns in shown.items()]
    words = "; ".join(f"{label}: {_ms(sum(bar.values()))} ms" for label, bar in bars.items())
    yield Chart(TITLE, Bars(parts, "ms"), f"{TITLE}. {words}.")


def sentences(row: TracedRow) -> Iterator[str]:
    """What the slowest waited for, where that is more than half of their time and not what all
    wait for; the hop that is more than half of the time of all, unless it is the app's own; and
    hops that a timer makes."""
    if not row.falls:
        return
    total = row.hops[LATENCY]
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
    main = max(hops, key=lambda hop: hops[hop]["mean"], default="")
    spent = hops[main]["mean"] if main else 0.0
    if main not in (*THE_APP, *timers) and spent > 0.5 * total["mean"]:
        yield (
            f"{row.name}: of the mean latency of {_ms(total['mean'])} ms, {_ms(spent)} are {main}: "
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
    most = max(hops[1:], key=lambda hop: sign * hop.grown_ns)
    parts = f"{_ms(abs(most.grown_ns))} of them {most.hop}"
    if most.low is not None and most.high is not None:
        ends = sorted((sign * most.low, sign * most.high))
        parts += f" ({' to '.join(map(_ms, ends))})"
    which = "more" if sign > 0 else "less"
    return f"{name}: B takes {_ms(abs(whole.grown_ns))} ms {which} than A, {parts}"


def _ms(value_ns: float) -> str:
    return FIGURES["hop_mean"].show(Value(value_ns))
