"""Where the time of traced requests went: hops of rows as a table, as bars, and in sentences.

Rule: hops are times of each request, and add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY
from serve_bench.analysis.waterfall import ANSWERED, ORDER, HopShift, slowest_of
from serve_bench.view.blocks import distinct, section
from serve_bench.view.charts import Chart, Point
from serve_bench.view.document import Block, Charts, Prose, Section, Table
from serve_bench.view.figures import FIGURES, Value, declare_all
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table
from serve_bench.view.rows import NS_PER_MS

declare_all(
    ("hop_mean", "ns", "mean time in a hop of traced requests", "mean"),
    ("hop_of_latency", "%", "mean time in a hop over the mean latency", "share"),
    ("hop_p99", "ns", "p99 of the time in a hop", "p99"),
    ("hop_p50", "ns", "p50 of the time in a hop", "p50"),
    ("hop_tail", "ns", "mean time in a hop of the slowest traced requests", "slowest"),
)
COLUMNS: Final = {"mean": False, "p99": False, "of_latency": True, "p50": True, "tail": True}
"""Figures of a hop, and whether they are a detail of the table."""

WAY: Final = (LATENCY, *ORDER)

THE_APP: Final = ("user code", "downstream")
"""Hops of which an app's author expects the most."""

MOST_PARTS: Final = 7
"""Hops that have a colour; the smaller ones are one part."""

TITLE: Final = "Where the time goes"


@dataclass(frozen=True)
class TracedRow:
    """A row with the waterfalls of its trials. `load`, `variant`: the parts of its name, which may
    be without a variant."""

    name: str
    content: tuple[Mapping[str, Any], ...]
    load: str = ""
    variant: str = ""

    @property
    def falls(self) -> list[Mapping[str, Any]]:
        """The waterfalls that have a request; of a damaged record none."""
        whole = [fall for fall in self.content if {"total", "hops", "requests"} <= fall.keys()]
        return [fall for fall in whole if fall["total"].get("mean")]

    @property
    def hops(self) -> dict[str, dict[str, float]]:
        """The latency and its hops in the order of the way, those of calls by their deployment:
        times (ns) and share of the latency (%), of several launches the means."""
        falls = [{LATENCY: fall["total"], **fall["hops"]} for fall in self.falls]
        hops = {
            hop: {
                part: fmean(fall.get(hop, {}).get(part, 0.0) for fall in falls)
                for part in ("mean", "p50", "p99", "tail")
            }
            for hop in sorted(dict.fromkeys(hop for fall in falls for hop in fall), key=_place)
        }
        for times in hops.values():
            times["of_latency"] = 100.0 * times["mean"] / hops[LATENCY]["mean"]
        return hops

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


def _place(hop: str) -> float:
    """Where a hop stands; those of calls are behind `downstream`."""
    return WAY.index(hop) if hop in WAY else WAY.index("downstream") + 0.5


def traced_row(row: ViewRow) -> TracedRow:
    """A row with what was traced of it, which may be nothing."""
    content = tuple(trial.waterfall for trial in row.trials if trial.waterfall)
    variant = str(row.dims["variant"])
    load = row.name.removesuffix(f", {variant}")
    return TracedRow(row.name, content, load, variant if load != row.name else "")


def sections(rows: Iterable[ViewRow]) -> Iterator[Section]:
    """The hops of the rows that were traced; none without."""
    traced = [row for row in map(traced_row, rows) if row.content]
    blocks: list[Block] = []
    if bare := [row.name for row in traced if not row.falls]:
        none = "no traced request left marks: could Serve write them? (docs/waterfall.md, Limits)"
        blocks.append(Prose(tuple(f"{name}: {none}" for name in bare), "doubt"))
    if shown := [row for row in traced if row.falls]:
        blocks += [_make_table(shown), Charts(partial(_draw, shown))]
    yield from section("waterfall", TITLE, blocks, "table")


def _make_table(rows: Sequence[TracedRow]) -> Table:
    """The latency and its hops, with those of calls indented; the variants of a load beside each
    other."""
    loads: dict[str, dict[str, dict[str, Value]]] = {}
    for row in rows:
        hops = loads.setdefault(row.load, {})
        for hop, parts in row.hops.items():
            values = {f"hop_{part}.{row.variant}": Value(value) for part, value in parts.items()}
            hops[hop] = hops.get(hop, {}) | values
    lines = [
        ViewRow({}, hops[hop], hop if hop in WAY else f"  {hop}", group=load)
        for load, hops in loads.items()
        for hop in sorted(hops, key=_place)
    ]
    fields = (
        Field(f"hop_{part}.{variant}", detail=detail)
        for part, detail in COLUMNS.items()
        for variant in dict.fromkeys(row.variant for row in rows)
    )
    caption = "Traced requests by hop; the hops of each add up to its latency"
    notes = (*map(_describe_counts, rows), "what each hop is: docs/waterfall.md, Hops")
    return make_table(TableSpec(caption, (Field("name", "hop"), *fields), notes), lines)


def _describe_counts(row: TracedRow) -> str:
    """How many requests the figures are of, and which are missing."""
    missing = {
        "lack marks, or have some of another time": row.count("unseen"),
        "had no answer when the load ended": row.count("cut"),
        **{f"failed in {hop}": times for hop, times in row.failed.items() if hop != ANSWERED},
        "failed with an answer": row.failed[ANSWERED],
        "marks were written over before they were read": row.count("lost_marks"),
    }
    counts = [f"{times:,} {words}" for words, times in missing.items() if times]
    left_out = f"; not in the figures: {', '.join(counts)}" if counts else ""
    slowest = f"slowest: the {row.tail:,} that took longest"
    return f"{row.name}: {row.seen:,} traced requests; {slowest}{left_out}"


def _draw(rows: Sequence[TracedRow]) -> Iterator[Chart]:
    """The hops of all requests of each row, and of the slowest."""
    bars: dict[str, dict[str, float]] = {}
    for short, row in zip(distinct([row.name for row in rows]), rows, strict=True):
        hops = {hop: times for hop, times in row.hops.items() if hop in ORDER}
        for label, part in (("mean", "mean"), (f"slowest {row.tail:,}", "tail")):
            bars[f"{short}, {label}"] = {hop: times[part] for hop, times in hops.items()}
    longest = {hop: max(bar.get(hop, 0.0) for bar in bars.values()) for hop in ORDER}
    large = sorted(ORDER, key=lambda hop: -longest[hop])[:MOST_PARTS]
    parts = []
    for label, bar in bars.items():
        shown = {hop: ns for hop, ns in bar.items() if hop in large and ns}
        shown["other hops"] = sum(ns for hop, ns in bar.items() if hop not in large)
        parts += [Point(label, ns / NS_PER_MS, hop) for hop, ns in shown.items()]
    yield Chart(TITLE, "bars", parts, "ms")


def sentences(row: TracedRow) -> Iterator[str]:
    """What the slowest waited for, where that is more than half of their time and not what all
    wait for; the hop that is more than half of the time of all, unless it is the app's own; and
    hops that a timer makes."""
    hops = {hop: times for hop, times in row.hops.items() if hop in ORDER}
    if not hops:
        return
    total, main = row.hops[LATENCY], max(hops, key=lambda hop: hops[hop]["mean"])
    most = max(hops, key=lambda hop: hops[hop]["tail"] - hops[hop]["p50"])
    grown, whole = (times["tail"] - times["p50"] for times in (hops[most], total))
    if whole > 0.2 * total["p50"] and grown > 0.5 * whole:
        yield (
            f"{row.name}: the slowest {row.tail:,} of {row.seen:,} traced requests take "
            f"{_ms(total['tail'])} ms, {_ms(hops[most]['tail'])} of them {most}; at p50 it is "
            f"{_ms(hops[most]['p50'])} of {_ms(total['p50'])}"
        )
    timers = {hop: ms for fall in row.falls for hop, ms in (fall.get("timers") or {}).items()}
    if main not in (*THE_APP, *timers) and hops[main]["mean"] > 0.5 * total["mean"]:
        spent = _ms(hops[main]["mean"])
        yield f"{row.name}: of the mean latency of {_ms(total['mean'])} ms, {spent} are {main}"
    for hop, timer in sorted(timers.items()):
        yield f"{row.name}: half of all requests spend just above {timer:g} ms in {hop}: a timer"


def shift_sentence(name: str, hops: Sequence[HopShift]) -> str | None:
    """In which hop the latency of two sides differs most, where the whole is known to differ."""
    whole = hops[0] if hops else HopShift("", None, None)
    if whole.low is None or whole.high is None or whole.low <= 0 <= whole.high:
        return None
    which, sign = ("more", 1) if whole.grown_ns > 0 else ("less", -1)
    most = max(hops[1:], key=lambda hop: sign * hop.grown_ns)
    ends = sorted(sign * (end or 0.0) for end in (most.low, most.high))
    part = f"{_ms(abs(most.grown_ns))} of them {most.hop} ({' to '.join(map(_ms, ends))})"
    return f"{name}: B takes {_ms(abs(whole.grown_ns))} ms {which} than A, {part}"


def _ms(value_ns: float) -> str:
    return FIGURES["hop_mean"].show(Value(value_ns))
