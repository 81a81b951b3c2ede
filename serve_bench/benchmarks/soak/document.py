"""A soak as a document: each process with its growth, the load, memory over requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from serve_bench.analysis.checks import checks
from serve_bench.analysis.drift import LevelDrift
from serve_bench.benchmarks.soak.summary import (
    TOO_SHORT,
    LoadPart,
    ProcessDrift,
    Soak,
    VariantSoak,
    minutes_text,
    sentences_of,
    slope_number,
    soak_of,
)
from serve_bench.core.figures import counted, number
from serve_bench.core.result import Result
from serve_bench.view import drawn as charts
from serve_bench.view.about_run import method, run_document
from serve_bench.view.blocks import (
    NOTHING,
    Fields,
    count,
    errors,
    gaps,
    in_parts,
    milliseconds,
    plain,
    section,
    statement,
    table_of,
    whole_run,
)
from serve_bench.view.charts import LinePoint
from serve_bench.view.document import (
    Chart,
    Charts,
    Column,
    Document,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    Text,
    Tone,
    sentences,
)

_TONES: Final[dict[str, Tone]] = {"grows": "bad", "does not grow": "good", TOO_SHORT: "doubt"}


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of soak says. Raises FormatError for damaged records."""
    soak = soak_of(result)
    missing, planned = len(result.missing), len(result.plan)
    names = [variant.name for variant in soak.variants]
    told = [statement(one, names) for one in sentences_of(soak)] or ["Nothing was measured."]
    first = list(gaps(missing, planned, [one.message for one in result.failures], "block"))
    told = [" ".join((*first, told[0])), *told[1:]]
    return run_document(
        soak.rows,
        options.where,
        findings=sentences(told),
        doubts=tuple(whole_run(checks(soak.rows), result.failures)),
        facts=tuple(_facts(result, soak)),
        sections=tuple(_sections(soak)),
    )


def _facts(result: Result, soak: Soak) -> Iterator[tuple[str, str]]:
    spec, measured = soak.spec, len(result.trials)
    row = next((one.row for one in soak.rows.run.plan), None)
    if row is not None:
        yield "load", f"{row.label}, client {row.client}, {row.loop} loop"
    planned = counted(len(result.plan), "block")
    yield "planned", f"{planned} of {number(spec.block_s, 3)} s, {measured:,} measured"
    yield "threshold", f"{number(spec.leak, 3)} MB per million requests"


def _sections(soak: Soak) -> Iterator[Section]:
    if not soak.variants:
        nothing = Prose(("Nothing was measured.",), "doubt")
        yield Section("results", "Results", (nothing,), "headline")
    else:
        yield Section("processes", "Processes", (_memory(soak),), "headline")
        yield from section("memory", "Memory over requests", [Charts(partial(_charts, soak))])
        yield Section("counts", "Threads and descriptors", (_counts(soak),), "table")
        yield Section("load", "Load", (_load(soak),), "table")
    yield method(soak.rows)


_Row = tuple[VariantSoak, ProcessDrift]


def _rows(soak: Soak) -> list[_Row]:
    """Each process with its variant; what grows first, then what is open."""
    order = ("grows", TOO_SHORT, "does not grow")
    return [
        (of, one)
        for of in soak.variants
        for one in sorted(of.processes, key=lambda one: (not one.leaks, order.index(one.word)))
    ]


def _group(soak: Soak, row: _Row) -> str:
    return row[0].name if len(soak.variants) > 1 else ""


def _memory(soak: Soak) -> Table:
    fields: Fields[_Row] = (
        (Column("process", number=False), lambda row: row[1].name),
        (Column("requests", "million", detail=True), lambda row: plain(row[1].requests, 3)),
        (Column("time", "min", detail=True), lambda row: plain(row[1].minutes, 3)),
        (Column("begin", "MB"), lambda row: plain(row[1].figure("pss_mb", 0))),
        (Column("end", "MB"), lambda row: plain(row[1].figure("pss_mb", -1))),
        (Column("slope", "MB/million"), lambda row: _per_million(row[1].memory)),
        (Column("95 %", "MB/million", number=False), lambda row: _ends(row[1].memory)),
        (Column("an hour", "MB", detail=True), _hourly),
        (Column("verdict", number=False), lambda row: _verdict(row[1])),
    )
    notes = [
        "begin, end: PSS (a page that n processes share counts 1/n); slope: of what no other "
        "process shares, without the warm-up"
    ]
    brief = sum(of.brief for of in soak.variants)
    if brief:
        notes.append(f"not shown: {counted(brief, 'process', 'processes')} that ended early")
    return table_of("Memory", fields, _rows(soak), notes, group=partial(_group, soak))


def _per_million(drift: LevelDrift | None, tone: Tone = "plain") -> Number:
    return NOTHING if drift is None else Number(slope_number(drift.slope), drift.slope, tone)


def _ends(drift: LevelDrift | None) -> str:
    return "-" if drift is None else f"{slope_number(drift.low)} to {slope_number(drift.high)}"


def _hourly(row: _Row) -> Number:
    of, one = row
    return plain(None if one.memory is None else of.mb_per_hour(one.memory), 3)


def _verdict(one: ProcessDrift) -> Text:
    word = one.word
    below = [f"{name} grow" for name, _ in one.counts]
    if one.more_minutes is not None:
        below.append(f"another {minutes_text(one.more_minutes)}")
    if one.warmed is not None:
        below.append(f"warm-up {number(one.warmed, 3)} MB")
    return Text(word, "bad" if one.leaks else _TONES[word], tuple(below))


def _counts(soak: Soak) -> Table:
    fields: Fields[_Row] = (
        (Column("process", number=False), lambda row: row[1].name),
        *(
            column
            for level in ("threads", "descriptors")
            for column in (
                (Column(level, "begin", detail=True), partial(_level, level, 0)),
                (Column(level, "end"), partial(_level, level, -1)),
                (Column(level, "per million"), partial(_count_slope, level)),
            )
        ),
    )
    return table_of(
        "Behind the first block and the last", fields, _rows(soak), group=partial(_group, soak)
    )


def _level(level: str, at: int, row: _Row) -> Number:
    value = row[1].figure(level, at)
    return count(None if value is None else int(value))


def _count_slope(level: str, row: _Row) -> Number:
    drift: LevelDrift | None = getattr(row[1], level)
    bad = level in dict(row[1].counts)
    return _per_million(drift, "bad" if bad else "plain")


def _load(soak: Soak) -> Table:
    fields: Fields[tuple[VariantSoak, LoadPart]] = (
        (Column("blocks", number=False), lambda row: row[1].name),
        (Column("throughput", "req/s"), lambda row: plain(row[1].rate)),
        (Column("p50", "ms"), lambda row: milliseconds(row[1].p50)),
        (Column("p99", "ms"), lambda row: milliseconds(row[1].p99)),
        (Column("completed", "requests"), lambda row: count(row[1].counts.completed)),
        (Column("failed", "requests"), lambda row: errors(row[1].counts.failed)),
    )
    rows = [(of, part) for of in soak.variants for part in of.parts]
    notes = ("latencies of blocks are kept to 0.8 %",)
    several = len(soak.variants) > 1
    return table_of(
        "Blocks together", fields, rows, notes, group=lambda row: row[0].name if several else ""
    )


def _charts(soak: Soak) -> Iterator[Chart]:
    """Memory of each process over requests; what grew most first."""
    for of in soak.variants:
        lines = {
            f"{one.name}, launch {at}" if len(one.launches) > 1 else one.name: points
            for one in sorted(of.processes, key=_grown, reverse=True)
            for at, launch in enumerate(one.launches, 1)
            if (points := [LinePoint(r.requests, r.pss_mb) for r in launch.readings if r.pss_mb])
        }
        name = f": {of.name}" if len(soak.variants) > 1 else ""
        for part, own in in_parts(lines):
            yield charts.ladder(
                f"PSS over requests{name}{part}",
                own,
                "million requests since the launch",
                "MB",
                log_x=False,
                caption="Behind each block of the load, with nothing in flight.",
            )


def _grown(one: ProcessDrift) -> float:
    begin, end = one.figure("pss_mb", 0), one.figure("pss_mb", -1)
    return 0.0 if begin is None or end is None else end - begin
