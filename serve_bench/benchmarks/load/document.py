"""The page of a single load of a URL (`serve-bench load`), and of its profiled repetition.

Rule: as in the summary for a terminal, what was asked stands before any figure, and every request
is accounted for. A Figure has the number of `--format json`; what that does not hold (the share
within one std) is plain text, made of the same histogram.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, merged
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.benchmarks.load.page_requests import requests
from serve_bench.benchmarks.micro.document import profiles
from serve_bench.benchmarks.micro.page_charts import cpu_charts, windows
from serve_bench.benchmarks.micro.page_details import cpu_tables, evidence, failures, metrics_table
from serve_bench.benchmarks.micro.page_found import figures
from serve_bench.benchmarks.micro.page_panels import Names, names_of
from serve_bench.benchmarks.parts import about_run, charts
from serve_bench.benchmarks.parts.page import Entry, Page, page_of
from serve_bench.benchmarks.parts.pieces import (
    NOTHING,
    curve_of,
    gaps,
    latency_curve,
    limit_words,
    milliseconds,
    plain,
    sentence,
    whole_run,
)
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.document import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Folded,
    Prose,
    ReportOptions,
    Section,
    Table,
    Text,
)
from serve_bench.core.document import Row as TableRow
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result, Trial

MEASURED: Final = ("latency", "service_time", "send_lag")
"""Histograms of a load: the last two are of an open loop, where they differ from the first."""

_NAMES: Final = {
    "latency": ("latency", "from the moment a request was due until its response was whole"),
    "service_time": ("service time", "from the moment it was sent until its response was whole"),
    "send_lag": ("send lag", "from the moment it was due until it was sent"),
}
_COLUMNS: Final = ("mean", "std", "p50", "p75", "p90", "p99", "p99.9", "max")


def document(result: Result, options: ReportOptions) -> Document:
    """What a single load says."""
    where = options.where
    page = page_of(result, where=where)
    names = names_of(page)
    loads = [one for one in page.entries if one.line.trials]
    sections = [
        _section("results", "Results", _results(page, loads, names)),
        _section("latency", "Latency by percentile", _curves(loads)),
        windows(page, names),
        _section("requests", "Requests and client", requests(loads)),
        _section("cpu", "CPU of the load, and what limited it", _inside(page, names)),
        profiles(page, names),
        about_run.method(result, (*about_run.GENERAL_FORMULAS, *formulas(loads))),
    ]
    asked = (pair for pair in about_run.asked(result.run).pairs if pair[0] != "planned")
    urls = dict.fromkeys(str(one.line.cell.get("url", "")) for one in page.entries)
    about = tuple(pair for one in loads[:1] for pair in asked_facts(one.line.trials[0]))
    return Document(
        title=" ".join(("serve-bench load", *urls)),
        command=result.run.command,
        run=Facts((*about, *asked)),
        machine=about_run.machine(result.run),
        findings=tuple(found(page, loads)),
        doubts=tuple(whole_run(page.warnings, page.failures)),
        sections=tuple(one for one in sections if one is not None),
        where=where,
        argv=result.run.argv,
    )


def _section(name: str, title: str, blocks: tuple[Block, ...]) -> Section | None:
    return Section(name, title, blocks) if blocks else None


# ------------------------------------------------------------------------- asked, and found


def asked_facts(trial: Trial) -> Iterator[tuple[str, str]]:
    """What was loaded, by which client, how: name and words."""
    row, asked = trial.row, trial.client.get("asked", {})
    yield "URL", str(trial.cell.get("url", "-"))
    most = asked.get("max_connections") or 0
    grown = f", up to {most} in need" if most > row.connections else ""
    workers = len(trial.client.get("workers", ()))
    processes = f", {workers} process{'es' if workers != 1 else ''}" if workers else ""
    yield "client", f"{row.client}, {row.label}{grown}{processes}"
    yield "loop", _loop(trial)
    number_of = len(trial.metrics[MAIN].windows or ())
    shape = f"{number_of} windows of {trial.window_s:g} s" if number_of > 1 else "one window"
    steady = f"{'steady' if trial.warmup.steady else 'not steady'} at its end"
    if trial.warmup.judged is False:
        steady = f"not judged: {trial.warmup.completed:,} requests"
    warm = f"after {trial.warmup.seconds:.1f} s of warm-up, {steady}"
    yield "measured", f"{shape}, {warm if trial.warmup.seconds else 'no warm-up'}"


def _loop(trial: Trial) -> str:
    row, asked = trial.row, trial.client.get("asked", {})
    if row.rate_per_s is not None:
        arrivals = asked.get("arrivals", "constant")
        return f"open, {row.rate_per_s:,g} requests/s due ({arrivals})"
    if asked.get("stages"):
        stages = ", ".join(f"{s['rate']:g}/s for {s['duration_s']:g} s" for s in asked["stages"])
        return f"open, in stages: {stages}{' (ramp)' if asked.get('ramp') else ''}"
    return row.loop


def found(page: Page, loads: list[Entry]) -> Iterator[str]:
    """What failed, the figures, what limited them, what is doubted."""
    planned = [one for one in page.entries if one.line.status != "profiled"]
    missing = sum(not one.line.trials for one in planned)
    every = [one for entry in planned for one in entry.failures]
    told = [one.message for one in (*page.failures, *every)]
    yield from gaps(missing, len(planned), told, "load")
    for entry in (one for one in loads if one.line.status != "profiled"):
        trial = entry.line.trials[0]
        yield sentence(f"{trial.row.label} of the {trial.row.client} client: {figures(entry)}")
        limit = limit_of(entry)
        if limit is not None:
            yield sentence(_capital(limit_words(limit)))
        doubts = [one.message for one in entry.warnings]
        if doubts:
            yield sentence(f"To be doubted: {'; '.join(doubts)}")


def limit_of(entry: Entry) -> Verdict | None:
    """What limited a load, as far as client and host tell; None where neither was looked at."""
    if entry.limited is not None:
        return entry.limited
    verdict = limited_by(entry.line.trials[0]) if entry.line.trials else None
    return verdict if verdict is not None and verdict.cause == "client" else None


# ------------------------------------------------------------------------------------ results


def _results(page: Page, loads: list[Entry], names: Names) -> tuple[Block, ...]:
    blocks: list[Block] = [_figures(entry) for entry in loads]
    for entry in (one for one in page.entries if not one.line.trials):
        blocks.append(Prose(("not measured", *entry.remarks), "bad", listed=True))
    if loads:
        every = metrics_table(loads, names)
        blocks.append(Folded("Every metric", (every,)))
    blocks += failures(page)
    notes = tuple(note for note in page.notes if note.startswith(("load:", "incomplete:")))
    return (*blocks, Prose(notes, "quiet", listed=True)) if notes else tuple(blocks)


def _figures(entry: Entry) -> Table:
    """Rate and times of a load, one metric a row; its doubts stand under the rate."""
    trial = entry.line.trials[0]
    columns = (
        Column("metric", number=False),
        *(Column(name) for name in _COLUMNS),
        Column("within one std"),
    )
    rows = [TableRow(tuple(_rate_cells(entry)), entry.remarks)]
    for name in MEASURED[: 3 if trial.row.loop == "open" else 1]:
        found = merged([trial], name)
        if name in entry.line.distributions:
            rows.append(TableRow(tuple(_time_cells(entry, name, found))))
    told = tuple(_told(entry))
    if told:
        rows.append(TableRow(told))
    return Table(f"{entry.label}: {_whole(trial)}", columns, tuple(rows))


def _whole(trial: Trial) -> str:
    """`100 requests in 2.00 s, 50.0 requests/s; 2.00 MB read, 1.00 MB/s`."""
    rates = trial.metrics[MAIN].windows or ()
    seconds = trial.seconds.get("measured", trial.window_s * len(rates))
    done, read = trial.completed_in_windows, int(trial.client.get("bytes_received") or 0) / 1e6
    if seconds <= 0:
        return f"{done:,} requests"
    return (
        f"{done:,} requests in {seconds:,.2f} s, {number(done / seconds)} requests/s; "
        f"{read:,.2f} MB read, {read / seconds:,.2f} MB/s"
    )


def _rate_cells(entry: Entry) -> Iterator[Cell]:
    spread = entry.rate
    yield Text("throughput", below=("requests/s, over windows",))
    if spread is None:
        yield from [NOTHING] * (len(_COLUMNS) + 1)
        return
    rates = entry.line.trials[0].metrics[MAIN].windows or ()
    several = len(rates) > 1
    yield plain(spread.mean)
    yield plain(spread.std if several else None)
    yield from ["-"] * (len(_COLUMNS) - 3)
    yield number(max(rates))
    inside = sum(abs(rate - spread.mean) <= spread.std for rate in rates)
    yield f"{100 * inside / len(rates):.1f} %" if several else "-"


def _time_cells(entry: Entry, name: str, found: Histogram) -> Iterator[Cell]:
    word, meaning = _NAMES[name]
    stored = entry.line.distributions[name]
    yield Text(word, below=(f"ms, {meaning}",))
    for column in _COLUMNS:
        yield milliseconds(getattr(stored, column.replace(".", "_")))
    yield f"{100 * (found.share_within_std() or 0):.1f} %"


def _told(entry: Entry) -> Iterator[Cell]:
    """The percentiles that another program (wrk, ab) told, of which there is no histogram."""
    told = {
        name: entry.line.spreads[f"latency_{name}"]
        for name in _COLUMNS
        if f"latency_{name}" in entry.line.spreads
    }
    if told:
        yield Text("latency", below=(f"ms, as {entry.line.row.client} told",))
        for name in _COLUMNS:
            yield milliseconds(told[name].mean) if name in told else "-"
        yield "-"


# -------------------------------------------------------------------------------- percentiles


def _curves(loads: list[Entry]) -> tuple[Block, ...]:
    return tuple(chart for entry in loads for chart in _curve(entry))


def _curve(entry: Entry) -> Iterator[Chart]:
    """Latency, and in an open loop service time and send lag beside it."""
    trial = entry.line.trials[0]
    kinds = MEASURED[: 3 if trial.row.loop == "open" else 1]
    found = {
        name: latency_curve([trial]) if name == LATENCY else curve_of(merged([trial], name))
        for name in kinds
    }
    drawn = {  # a log axis has no place for a lag of 0
        _NAMES[name][0]: above
        for name, points in found.items()
        if (above := [point for point in points if point[1] > 0])
    }
    if not drawn:
        return
    told = (
        f"{name} from {latency(points[0][1])} ms at {100 * points[0][0]:g} % to "
        f"{latency(points[-1][1])} ms at {100 * points[-1][0]:g} %"
        for name, points in drawn.items()
    )
    meaning = (f"{_NAMES[name][0]}: {_NAMES[name][1]}" for name in kinds)
    caption = f"{'; '.join(meaning)}. A curve ends where a single "
    caption += "response lies beyond it, and that of latency where no answer came."
    words = f"by percentile: {'; '.join(told)}"
    title = "Times of a request" if len(drawn) > 1 else "Latency"
    title += f", {entry.label}" if entry.line.status == "profiled" else ""
    yield charts.percentile_curves(title, drawn, words, caption)


# ----------------------------------------------------------------------------- CPU, formulas


def _inside(page: Page, names: Names) -> tuple[Block, ...]:
    """CPU of the load and of the host; what limited it, with what to try."""
    said = []
    for entry in page.entries:
        limit = limit_of(entry)
        if limit is not None:
            hint = f"; hint: {limit.hint}" if entry.limited is None else ""  # else it is a note
            said.append(Prose((sentence(f"{_capital(limit_words(limit))}{hint}"),)))
    return (*cpu_charts(page, names), *cpu_tables(page), *said, *evidence(page, names))


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def formulas(loads: list[Entry]) -> Iterator[tuple[str, str, str]]:
    """What these figures rest on beside the formulas of all runs: name, formula, source."""
    yield "within one std", "share of all values v with |v - mean| <= std", "as wrk prints it"
    if any(entry.line.row.loop == "open" for entry in loads):
        yield (
            "open loop",
            "latency = service time + send lag of the same request; due times do not depend on the "
            "server, so a stall of the server is in the latency of all that were due in it",
            "GLOSSARY.md: latency, service time, send lag, coordinated omission",
        )
