"""Where the time of traced requests went: hops of rows as a table, as bars, and in sentences.

Rule: hops are times of each request, and add up to the mean latency above them; the slowest stand
apart, since what the tail waited for is seldom what all wait for. What calls of other deployments
spend lies within `downstream`, and stands below it by their names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from statistics import fmean
from typing import Any, Final

from serve_bench import __version__
from serve_bench.analysis.statistics import LATENCY
from serve_bench.analysis.waterfall import ANSWERED, ORDER, HopShift, count_slowest
from serve_bench.core.facts import HopTimes, TracedCall, WaterfallFacts
from serve_bench.core.result import Result, cell_slug
from serve_bench.view.charts import Chart, stack_bars
from serve_bench.view.document import Later, Prose, Section, Table
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table
from serve_bench.view.rows import NS_PER_MS

declare(
    ("hop_mean", "ns", "mean time in a hop of traced requests", "mean"),
    ("hop_of_latency", "%", "mean time in a hop over the mean latency", "share"),
    ("hop_p99", "ns", "p99 of the time in a hop", "p99"),
    ("hop_p50", "ns", "p50 of the time in a hop", "p50"),
    ("hop_tail", "ns", "mean time in a hop of the slowest traced requests", "slowest"),
)
WAY: Final = (LATENCY, *ORDER)

TITLE: Final = "Where the time goes"

MISSING: Final = {
    "unseen": "lack marks, or have some of another time",
    "cut": "had no answer when the load ended",
    "lost_marks": "marks were written over before they were read",
}
"""Traced requests that are in no figure, by their name in the record."""


@dataclass(frozen=True)
class TracedRow:
    """What was traced of a row, in all launches; `hops` are empty where none left marks.

    `hops` are of the latency and each hop, those of calls by their deployment: times (ns) and share
    of the latency (%), means over the launches."""

    name: str
    variant: str
    hops: Mapping[str, Mapping[str, float]]
    missing: Mapping[str, int]  # requests without figures, by why
    seen: int  # requests with figures
    tail: int  # the slowest of `seen`
    timers: Mapping[str, float]  # hops that a timer makes, and its ms


def read_traced(name: str, falls: Iterable[WaterfallFacts], variant: str = "") -> TracedRow:
    """Summarize what was traced of a row, from the waterfalls of its trials."""
    missing, timers, seen, tail = Counter[str](), dict[str, float](), 0, 0
    launches: list[Mapping[str, HopTimes]] = []
    for fall in falls:
        failed = Counter(fall.failed)
        count = fall.traced - fall.unseen - failed.total()
        missing.update({words: getattr(fall, key) for key, words in MISSING.items()})
        for hop, number in failed.items():
            missing[f"failed {'with an answer' if hop == ANSWERED else f'in {hop}'}"] += number
        timers |= fall.timers
        seen += count
        if fall.total.mean:
            tail += count_slowest(count)
            launches.append({LATENCY: fall.total, **fall.hops})
    hops: dict[str, dict[str, float]] = {}
    for hop in sorted(dict.fromkeys(chain(*launches)), key=_place):
        for part in ("mean", "p50", "p99", "tail"):
            times = [getattr(fall.get(hop, HopTimes()), part) for fall in launches]
            hops.setdefault(hop, {})[part] = fmean(times)
        hops[hop]["of_latency"] = 100.0 * hops[hop]["mean"] / hops[LATENCY]["mean"]
    return TracedRow(name, variant, hops, +missing, seen, tail, timers)


def _place(hop: str) -> float:
    """Return where a hop stands; those of calls are behind `downstream`."""
    return WAY.index(hop) if hop in WAY else WAY.index("downstream") + 0.5


def read_rows(rows: Iterable[ViewRow]) -> list[TracedRow]:
    """Return the rows that were traced."""
    falls = [(row, [trial.waterfall for trial in row.trials]) for row in rows]
    return [
        read_traced(row.name, traced, row.dims["variant"])
        for row, traced in falls
        if any(fall != WaterfallFacts() for fall in traced)
    ]


def make_section(traced: Sequence[TracedRow]) -> Section:
    """Make the section of the hops of the rows that were traced."""
    none = "no traced request left marks: could Serve write them? (docs/waterfall.md, Limits)"
    bare = tuple(f"{row.name}: {none}" for row in traced if not row.hops)
    shown = [row for row in traced if row.hops]
    drawn = (_make_table(shown), Later(partial(_draw, shown))) if shown else ()
    return Section("waterfall", TITLE, (Prose(bare, "doubt"), *drawn), "table")


def _make_table(rows: Sequence[TracedRow]) -> Table:
    """Make the table of the latency and its hops, with those of calls indented.

    The variants of a load stand beside each other."""
    lines: dict[tuple[str, str], dict[str, Value]] = {}
    variants: dict[str, None] = {}
    notes = []
    for row in rows:
        missing = ", ".join(f"{count:,} {words}" for words, count in row.missing.items())
        notes.append(
            f"{row.name}: {row.seen:,} traced requests; slowest: the {row.tail:,} that took "
            f"longest{'; not in the figures: ' if missing else ''}{missing}"
        )
        load, comma, _ = row.name.partition(f", {row.variant}")
        variant = row.variant if comma else ""
        variants[variant] = None
        for hop, parts in row.hops.items():
            values = lines.setdefault((load, hop), {})
            values |= {f"hop_{part}.{variant}": Value(value) for part, value in parts.items()}
    loads = list(dict.fromkeys(load for load, _ in lines))
    ordered = sorted(lines.items(), key=lambda line: (loads.index(line[0][0]), _place(line[0][1])))
    hops = [
        ViewRow({}, values, hop if hop in WAY else f"  {hop}", group=load)
        for (load, hop), values in ordered
    ]
    fields = (
        Field(f"hop_{part}.{variant}", detail=part not in ("mean", "p99"))
        for part in ("mean", "p99", "of_latency", "p50", "tail")
        for variant in variants
    )
    caption = "Traced requests by hop; the hops of each add up to its latency"
    notes.append("what each hop is: docs/waterfall.md, Hops")
    return make_table(TableSpec(caption, (Field("name", "hop"), *fields), tuple(notes)), hops)


def _draw(rows: Sequence[TracedRow]) -> Iterator[Chart]:
    """Yield bars of the hops of all requests of each row, and of the slowest."""
    bars = {
        f"{row.name}, {label}": {
            hop: times[part] / NS_PER_MS for hop, times in row.hops.items() if hop in ORDER
        }
        for row in rows
        for label, part in (("mean", "mean"), (f"slowest {row.tail:,}", "tail"))
    }
    return stack_bars(TITLE, bars, "ms")


def sentences(row: TracedRow) -> Iterator[str]:
    """Yield what the slowest and all requests wait for, and hops that a timer makes.

    Of the slowest where that is more than half of their time and not what all wait for; of all the
    hop that is more than half of their time, unless it is the app's own."""
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
    is_own = main in ("user code", "downstream", *row.timers)
    if not is_own and hops[main]["mean"] > 0.5 * total["mean"]:
        spent = _ms(hops[main]["mean"])
        yield f"{row.name}: of the mean latency of {_ms(total['mean'])} ms, {spent} are {main}"
    for hop, timer in sorted(row.timers.items()):
        yield f"{row.name}: half of all requests spend just above {timer:g} ms in {hop}: a timer"


def shift_sentence(name: str, hops: Sequence[HopShift]) -> str | None:
    """Say in which hop two sides differ most, where their latency is known to differ."""
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


def trace_text(result: Result) -> str:
    """Render the recorded requests in the trace event format of Chrome, which Perfetto opens.

    A process for each trial, a thread for each request and for each call that it made, since calls
    overlap and events of a thread may not. Empty: none was traced."""
    trials = [trial for trial in result.trials if trial.waterfall.requests]
    dues = [request.due_unix_ns for trial in trials for request in trial.waterfall.requests]
    if not dues:
        return ""
    events: list[dict[str, Any]] = []
    for pid, trial in enumerate(trials, 1):
        name = f"{trial.variant}, {cell_slug(trial.cell)}, {trial.row.label}, launch {trial.launch}"
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        tid = 0
        for request in sorted(trial.waterfall.requests, key=attrgetter("due_unix_ns")):
            begin_ns = request.due_unix_ns - min(dues)
            for name, deployment, spans in _list_tracks(request):
                tid += 1
                place = {"pid": pid, "tid": tid}
                events.append({"name": "thread_name", "ph": "M", **place, "args": {"name": name}})
                about = {"ph": "X", "cat": deployment, "args": {"trace": request.trace}, **place}
                for hop, after_ns, ns in spans:
                    times = {"ts": (begin_ns + after_ns) / 1e3, "dur": ns / 1e3}  # us
                    events.append({"name": hop, **times, **about})
    about_run = {"tool": f"serve-bench {__version__}", "begin_unix_ns": min(dues)}
    made = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about_run}
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _list_tracks(fall: TracedCall, indent: str = "") -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the spans of a request, then those of each call below it, with their names."""
    whole = [] if indent else [("request", 0, fall.total_ns)]
    yield f"{indent}{fall.deployment}", fall.deployment, [*whole, *fall.spans]
    for call in fall.calls:
        yield from _list_tracks(call, f"{indent}  ")
