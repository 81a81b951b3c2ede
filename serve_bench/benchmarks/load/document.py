"""What a single load of a URL (`serve-bench load`) says, and its profiled repetition.

Rule: every request is accounted for. What JSON does not hold (the share within one std) is plain
text, made of the same histogram.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from serve_bench.analysis.checks import added_of, client_words
from serve_bench.analysis.statistics import LATENCY, MAIN, merged, silent_from, windows_of
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.analysis.verdict.evidence import rate_of
from serve_bench.benchmarks.micro.charts import cpu_charts, windows
from serve_bench.benchmarks.micro.document import failures, metrics_table, profiles
from serve_bench.benchmarks.micro.summary import figures
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.figures import part_text
from serve_bench.core.load_result import CENSORED_BY, FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Result, Trial
from serve_bench.view import about_run, streams, waterfall
from serve_bench.view.blocks import (
    NOTHING,
    curve_of,
    doubted,
    gaps,
    latency_curve,
    limit_words,
    milliseconds,
    percentile_charts,
    plain,
    section,
    sentence,
    statement,
    whole_run,
)
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Document,
    Facts,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    sentences,
)
from serve_bench.view.names import names_of
from serve_bench.view.rows import NS_PER_MS, Entry, Page, page_of
from serve_bench.view.seen import cpu_tables, evidence
from serve_bench.view.texts import decimals, latency, number, used_words

MEASURED: Final = ("latency", "service_time", "send_lag")
"""Histograms of a load: the last two are of an open loop, where they differ from the first."""

_MEANINGS: Final = {
    **streams.MEANINGS,
    "latency": "from the moment a request was due until its response was complete",
    "service_time": "from the moment it was sent until its response was complete",
    "send_lag": "from the moment it was due until it was sent",
    FAILED_LATENCY: "from the moment it was due until it failed",
}
_COLUMNS: Final = ("mean", "std", "p50", "p75", "p90", "p99", "p99.9", "max")
_DETAILS: Final = ("p75", "within one std")


def document(result: Result, options: ReportOptions) -> Document:
    """What a single load says. Raises FormatError for a trial without its rate."""
    for trial in result.trials:
        if MAIN not in trial.metrics:
            raise FormatError(f"trial {trial.key}: metrics.{MAIN} is missing")
    page = page_of(result, where=options.where)
    names = names_of(page)
    loads = [one for one in page.entries if one.line.trials]
    every = (Folded("Every metric", (metrics_table(loads, names),)),) if loads else ()
    inside = (*cpu_charts(page, names), *cpu_tables(page), *evidence(page, names), *every)
    curves = [Charts(partial(_curve, one)) for one in loads if LATENCY in one.line.distributions]
    traced = [waterfall.of_line(one.line.row.label, one.line) for one in loads]
    sections = (
        Section("results", "Results", _results(page, loads), "headline"),
        *section("latency", "Latency by percentile", curves),
        *section("windows", "Windows over time", windows(page, names)),
        *section("requests", "Requests and client", _requests(loads), "table"),
        *section("cpu", "CPU of the load, and every metric", inside),
        *waterfall.sections(traced),
        *section("profiled", "The load with a profiler", _repeated(page), "table"),
        *section("profiles", "Flamegraphs", profiles(page, names)),
        about_run.method(result),
    )
    urls = dict.fromkeys(str(one.line.cell.get("url", "")) for one in page.entries)
    return about_run.run_document(
        result,
        options.where,
        title=" ".join(("serve-bench load", *urls)),
        findings=sentences(findings(page, loads)),
        doubts=whole_run(page.warnings, page.failures),
        sections=sections,
        facts=tuple(fact for one in loads[:1] for fact in _about(one.line.trials[0])),
    )


def _about(trial: Trial) -> Iterator[tuple[str, str]]:
    """What was loaded, by which client, how: name and words."""
    row, asked = trial.row, trial.client.get("asked", {})
    yield "URL", str(trial.cell.get("url", "-"))
    most = asked.get("max_connections") or 0
    grown = f", up to {most} if needed" if most > row.connections else ""
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
        return f"open, {row.rate_per_s:,g} requests/s due ({asked.get('arrivals', 'constant')})"
    if asked.get("stages"):
        stages = ", ".join(f"{s['rate']:g}/s for {s['duration_s']:g} s" for s in asked["stages"])
        return f"open, in stages: {stages}{' (ramp)' if asked.get('ramp') else ''}"
    return row.loop


def findings(page: Page, loads: Sequence[Entry]) -> Iterator[str]:
    """What failed, the figures, what limited them, what is doubted."""
    planned = [one for one in page.entries if one.line.status != "profiled"]
    missing = sum(not one.line.trials for one in planned)
    struck = [*page.failures, *(one for entry in planned for one in entry.failures)]
    yield from gaps(missing, len(planned), [one.message for one in struck], "load")
    for entry in (one for one in loads if one.line.status != "profiled"):
        row = entry.line.row
        yield sentence(f"{_connections(entry)} of the {row.client} client: {figures(entry)}")
        limit = limit_of(entry)
        if limit is not None:
            yield statement(limit_words(limit))
        yield from doubted([entry.warnings])


def _connections(entry: Entry) -> str:
    """The row's label; of an open loop that grew, how many connections it came to."""
    row, workers = entry.line.row, entry.line.trials[0].client.get("workers") or ()
    opened = sum(worker["connections"] for worker in workers)
    grown = row.loop == "open" and opened > row.connections
    return f"{opened} connections{row.traffic.suffix}" if grown else row.label


def limit_of(entry: Entry) -> Verdict | None:
    """What limited a load, as far as client and host tell; None where neither was sampled."""
    if entry.limited is not None:
        return entry.limited
    verdict = limited_by(entry.line.trials[0]) if entry.line.trials else None
    return verdict if verdict is not None and verdict.cause == "client" else None


def _results(page: Page, loads: Sequence[Entry]) -> tuple[Block, ...]:
    blocks: list[Block] = [_figures(one) for one in loads if one.line.status != "profiled"]
    for entry in (one for one in page.entries if not one.line.trials):
        blocks.append(Prose(("not measured", *entry.remarks), "bad", listed=True))
    blocks += failures(page)
    limits = [limit for entry in loads if (limit := limit_of(entry)) is not None]
    hints = [f"hint: {limit.hint}" for limit in limits if limit.cause != "unclear"]
    notes = [note for note in page.notes if note.startswith(("load:", "incomplete:"))]
    texts = tuple(dict.fromkeys((*hints, *notes)))
    return (*blocks, Prose(texts, "quiet", listed=True)) if texts else tuple(blocks)


def _figures(entry: Entry) -> Table:
    """Rate and times of a load, one metric a row; its doubts stand under the rate."""
    line = entry.line
    names = _times(entry)
    rows = [TableRow(tuple(_rate_cells(entry, MAIN)), entry.findings)]
    if streams.EVENTS in line.spreads:
        rows.append(TableRow(tuple(_rate_cells(entry, streams.EVENTS))))
    rows += [TableRow(tuple(_time_cells(entry, name))) for name in names]
    columns = [Column(name, detail=name in _DETAILS) for name in (*_COLUMNS, "within one std")]
    meanings = [": ".join(_named(name)) for name in names if len(names) > 1]
    return Table(
        f"{entry.label}: {_whole(line.trials[0])}",
        (Column("metric", number=False), *columns),
        tuple(rows),
        ("; ".join(meanings),) if meanings else (),
    )


def _times(entry: Entry) -> list[str]:
    """The histograms that the load is reported by."""
    names = MEASURED if entry.line.row.loop == "open" else MEASURED[:1]
    known = entry.line.distributions
    failed = [name for name in known if name.startswith(f"{FAILED_LATENCY}.")]
    return [*(name for name in (*names, *STREAM_TIMES) if name in known), *failed]


def _named(metric: str) -> tuple[str, str]:
    """What a histogram is called, that of a class of failures `latency of 503`; and its meaning."""
    base, _, kind = metric.partition(".")
    return f"latency of {kind}" if kind else streams.name(metric), _MEANINGS[base]


def _whole(trial: Trial) -> str:
    """`100 requests in 2.00 s, 50.00 requests/s; 2.00 MB read, 1.00 MB/s`."""
    rates = trial.metrics[MAIN].windows or ()
    seconds = trial.seconds.get("measured", trial.window_s * len(rates))
    done, read = trial.completed_in_windows, int(trial.client.get("bytes_received") or 0)
    if seconds <= 0:
        return f"{done:,} requests"
    stop = silent_from(trial)
    until = "" if stop is None else f" before second {stop * trial.window_s:g}"
    return (
        f"{done:,} requests in {seconds:,.2f} s, {number(rate_of(trial))} requests/s{until}; "
        f"{_bytes(read)} read, {_bytes(read / seconds)}/s"
    )


def _bytes(count: float) -> str:
    """`24.2 kB`: three digits, in the largest unit that leaves at least 1."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{number(count / size, 3)} {unit}"
    return f"{count:.0f} B"


def _rate_cells(entry: Entry, name: str) -> Iterator[Cell]:
    """Of requests/s, or of events/s."""
    spread = entry.line.spreads.get(name)
    yield "requests/s" if name == MAIN else f"{name}/s"
    if spread is None:
        yield from [NOTHING] * (len(_COLUMNS) + 1)
        return
    rates = windows_of(entry.line.trials[0], name)
    std = spread.std
    yield plain(spread.mean)
    yield NOTHING if std is None else Number(f"{std:,.{decimals(spread.mean)}f}", std)
    yield from ["-"] * (len(_COLUMNS) - 3)
    yield number(max(rates))
    inside = sum(abs(rate - spread.mean) <= (std or 0.0) for rate in rates)
    yield "-" if std is None else f"{100 * inside / len(rates):.1f} %"


def _time_cells(entry: Entry, name: str) -> Iterator[Cell]:
    stored = entry.line.distributions[name]
    yield f"{_named(name)[0]}, ms"
    for column in _COLUMNS:
        yield milliseconds(getattr(stored, column.replace(".", "_")))
    share = merged(entry.line.trials[:1], name).share_within_std()
    yield f"{100 * (share or 0):.1f} %"


def _curve(entry: Entry) -> Iterator[Chart]:
    """Latency, and in an open loop service time and send lag beside it."""
    trial = entry.line.trials[0]
    kinds = _times(entry)
    points = {
        name: latency_curve([trial], name)
        if name in CENSORED_BY
        else curve_of(merged([trial], name))
        for name in kinds
    }
    drawn = {  # a log axis has no place for a lag of 0
        _named(name)[0]: above
        for name, every in points.items()
        if (above := [point for point in every if point[1] > 0])
    }
    meanings = "; ".join(": ".join(_named(name)) for name in kinds)
    caption = f"{meanings}. A curve ends where a single response lies beyond it, and that of "
    caption += "latency where no answer came."
    title = "Times of a request" if len(drawn) > 1 else "Latency"
    title += f", {entry.label}" if entry.line.status == "profiled" else ""
    yield from percentile_charts(title, drawn, caption)


def _requests(loads: Sequence[Entry]) -> Iterator[Block]:
    """What became of the requests of each load, and whether its client set the figures."""
    for entry in loads:
        trial = entry.line.trials[0]
        yield from [Prose((entry.label,))] if len(loads) > 1 else []
        yield Facts(tuple(_facts(trial)))
        notes = tuple(str(note) for note in trial.client.get("notes") or ())
        yield from [Prose(notes, "doubt", listed=True)] if notes else []


def _facts(trial: Trial) -> Iterator[tuple[str, str]]:
    client, counts = trial.client, trial.counts
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    yield (
        "requests",
        f"{carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} unanswered",
    )
    if late := ended_late(trial):
        yield "in flight", late
    if counts.unsent:
        yield "not sent", f"{counts.unsent:,} were due, and waited for a free connection"
    if text := streams.merged_words([trial]):
        yield "events", text
    if text := streams.tokens_words(trial):
        yield "tokens", text
    if codes := client.get("status_codes"):
        yield "status", ", ".join(f"{code}: {n:,}" for code, n in codes.items())
    yield "errors", failures_of([trial]) or "none"
    if client.get("retried"):
        yield "retried", f"{client['retried']:,} (their latency runs from the first attempt)"
    if client.get("reconnects"):
        yield "connections", f"{client['reconnects']:,} opened again"
    if words := used_words(trial.usage):
        yield "CPU", words
    if verdict := client.get("verdict"):
        yield "client", _client(verdict, added_of(trial))


def ended_late(trial: Trial) -> str | None:
    """How many requests were in flight or waited for a connection when the last window ended; they
    are followed to their end. None where there were none, or it is not known."""
    within = trial.in_windows
    if within is None or not (waiting := within.in_flight + within.unsent):
        return None
    return f"{waiting:,} when the last window ended; followed to their end, they are in the latency"


def _client(verdict: Mapping[str, Any], added: tuple[float, float] | None) -> str:
    """Whether the client, and not the server, set the figures; with the evidence, and what it adds
    to the latency."""
    known = []
    if verdict.get("non_idle") is not None:
        known.append(f"busy or waiting for a CPU {100 * verdict['non_idle']:.0f} % of the time")
    if verdict.get("pickup_p50_ns") is not None:
        pickup = latency(verdict["pickup_p50_ns"] / NS_PER_MS)
        known.append(f"responses picked up after {pickup} ms (median)")
    known.append("what it adds is not known" if added is None else f"it adds {part_text(*added)}")
    figures = "; ".join(known)
    if not verdict.get("client_bound"):
        return f"not the limit ({figures})"
    return f"{client_words(verdict)}: {'; '.join(verdict['reasons'])} ({figures})"


def _repeated(page: Page) -> Iterator[Block]:
    """The repetition of the load that a profiler slowed down, and what that cost."""
    slowed = [one for one in page.entries if one.line.status == "profiled" and one.line.trials]
    for entry in slowed:
        yield _figures(entry)
        yield from [Prose(entry.facts, "quiet", listed=True)] if entry.facts else []
