"""How a load of a URL is looked at, and its profiled repetition: every request is accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.checks import added_of, client_words
from serve_bench.analysis.statistics import LATENCY, MAIN, merged, silent_from, windows_of
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.analysis.verdict.evidence import rate_of
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import MOST_NAMED, failures_of
from serve_bench.core.figures import counted, number, part_text
from serve_bench.core.load_result import CENSORED_BY, FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Result, Trial
from serve_bench.view import streams
from serve_bench.view.blocks import (
    curve_of,
    histogram_table,
    latency_curve,
    limit_words,
    percentile_charts,
    sentence,
    statement,
)
from serve_bench.view.charts import Chart
from serve_bench.view.document import Block, Charts, Facts, Prose, ReportOptions, Section
from serve_bench.view.figures import STATISTICS, Value, declare, find_figure
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import NS_PER_MS, Page
from serve_bench.view.texts import latency, used_words

declare("within_std", "%", "values within one standard deviation of the mean", title="within std")
declare("most", "requests/s", "the highest of all windows", title="max")

TIMES: Final = ("latency", "service_time", "send_lag")
"""Histograms of a load: the last two are of an open loop, where they differ from the first."""

METRICS: Final = TableSpec(
    "",
    (
        Field("name", "metric"),
        *(Field(f"latency_{share}") for share in ("mean", "std", "p50")),
        Field("latency_p75", detail=True),
        *(Field(f"latency_{share}") for share in ("p90", "p99", "p99_9", "max")),
        Field("within_std", detail=True),
    ),
)
RATES: Final = TableSpec(
    "Rates over windows",
    (Field("name", "metric"), Field(MAIN), Field("events"), Field("most"), Field("within_std")),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """A load, and its repetition with a profiler. Raises FormatError for a trial without its
    rate."""
    for trial in result.trials:
        if MAIN not in trial.metrics:
            raise FormatError(f"trial {trial.key}: metrics.{MAIN} is missing")
    rows = [_name(row) for row in rows]
    loads = [row for row in rows if row.trials]
    plain = [row for row in loads if row.dims["status"] != "profiled"]
    slowed = [row for row in loads if row.dims["status"] == "profiled"]
    blocks: list[Block] = [block for row in plain for block in _figure_blocks(row, len(plain) > 1)]
    blocks += [Facts(tuple(_account(row.trials[0]))) for row in plain]
    blocks += [
        table
        for row in plain
        if (table := histogram_table(merged(row.trials[:1], LATENCY))) is not None
    ]
    for row in rows:
        if not row.trials:
            lines = (warning.line for warning in row.warnings)
            blocks.append(Prose(("not measured", *lines), "bad", listed=True))
    limits = [limit for row in loads if (limit := limit_of(row)) is not None]
    hints = [f"hint: {limit.hint}" for limit in limits if limit.cause != "unclear"]
    notes = [note for note in page.notes if note.startswith("load:")]
    if texts := tuple(dict.fromkeys((*hints, *notes))):
        blocks.append(Prose(texts, "quiet", listed=True))
    sections = [Section("results", "Results", tuple(blocks), "headline")] if blocks else []
    if loads:
        facts = tuple(block for row in loads for block in _request_blocks(row, len(loads) > 1))
        sections.append(Section("requests", "Requests and client", facts))
    if slowed:
        again = tuple(block for row in slowed for block in _slowed_blocks(row))
        sections.append(Section("profiled", "The load with a profiler", again, "table"))
    times = [row for row in plain if len(_times(row)) > 1]
    curves = tuple(Charts(partial(_time_curves, row)) for row in times)
    urls = dict.fromkeys(str(row.entry.line.cell.get("url", "")) for row in rows if row.entry)
    return View(
        rows=rows,
        findings=tuple(_find(plain)),
        sections=sections,
        charts=(
            *([Section("times", "Times of a request", curves)] if curves else []),
            *chart_sections(rows),
        ),
        traced=loads,
        facts=tuple(fact for row in loads[:1] for fact in _describe(row.trials[0])),
        notes=(),
        title=" ".join(("serve-bench load", *urls)),
        lead=plain[0] if plain else None,
    )


def _name(row: ViewRow) -> ViewRow:
    """The row under the name of its load; of an open loop that grew, by how many connections it
    came to."""
    assert row.entry is not None
    line = row.entry.line
    workers = line.trials[0].client.get("workers") or () if line.trials else ()
    opened = sum(worker["connections"] for worker in workers)
    grown = line.row.loop == "open" and opened > line.row.connections
    label = f"{opened} connections{line.row.traffic.suffix}" if grown else line.row.label
    mark = " (profiled)" if line.status == "profiled" else ""
    return replace(row, name=f"{label}{mark}")


def _find(rows: Sequence[ViewRow]) -> Iterator[str]:
    """The figures of each load, and what limited them."""
    for row in rows:
        yield sentence(f"{row.name} ({row.dims['client']}): {describe_figures(row)}")
        if (limit := limit_of(row)) is not None:
            yield statement(limit_words(limit))


def limit_of(row: ViewRow) -> Verdict | None:
    """What limited a load, as far as client and host tell; None where neither was sampled."""
    entry = row.entry
    if entry is None or entry.limited is not None:
        return None if entry is None else entry.limited
    verdict = limited_by(entry.line.trials[0]) if entry.line.trials else None
    return verdict if verdict is not None and verdict.cause == "client" else None


# What was asked.


def _describe(trial: Trial) -> Iterator[tuple[str, str]]:
    """What was loaded, by which client, how: name and words."""
    row, asked = trial.row, trial.client.get("asked", {})
    yield "URL", str(trial.cell.get("url", "-"))
    most = asked.get("max_connections") or 0
    grown = f", up to {most} if needed" if most > row.connections else ""
    workers = len(trial.client.get("workers", ()))
    processes = f", {counted(workers, 'process', 'processes')}" if workers else ""
    yield "client", f"{row.client}, {row.label}{grown}{processes}"
    yield "loop", _describe_loop(trial)
    windows = len(trial.metrics[MAIN].windows or ())
    shape = f"{windows} windows of {trial.window_s:g} s" if windows > 1 else "one window"
    steady = f"{'steady' if trial.warmup.steady else 'not steady'} at its end"
    if trial.warmup.judged is False:
        steady = f"not judged: {trial.warmup.completed:,} requests"
    warm = f"after {trial.warmup.seconds:.1f} s of warm-up, {steady}"
    yield "measured", f"{shape}, {warm if trial.warmup.seconds else 'no warm-up'}"


def _describe_loop(trial: Trial) -> str:
    row, asked = trial.row, trial.client.get("asked", {})
    if row.rate_per_s is not None:
        return f"open, {row.rate_per_s:,g} requests/s due ({asked.get('arrivals', 'constant')})"
    if asked.get("stages"):
        stages = ", ".join(f"{s['rate']:g}/s for {s['duration_s']:g} s" for s in asked["stages"])
        return f"open, in stages: {stages}{' (ramp)' if asked.get('ramp') else ''}"
    return row.loop


# Figures.


def _figure_blocks(row: ViewRow, several: bool = False) -> Iterator[Block]:
    """Times of a load, a metric a row; its warnings stand under the first."""
    names = _times(row)
    metrics = [_metric_row(row, name) for name in names] or [ViewRow({}, {}, row.name)]
    metrics[0] = replace(metrics[0], warnings=row.warnings)
    meanings = [f"{metric_name(name)}: {_meaning(name)}" for name in names]
    notes = ("; ".join(meanings),) if len(names) > 1 else ()
    caption = f"Times, {row.name}" if several else ""
    yield make_table(replace(METRICS, caption=caption, notes=notes), metrics)


def _rate_rows(row: ViewRow) -> Iterator[ViewRow]:
    for metric in (MAIN, streams.EVENTS):
        value = row.values.get(metric)
        if value is None:
            continue
        rates = windows_of(row.trials[0], metric)
        values = {metric: value, "most": Value(max(rates))}
        if value.std is not None:
            inside = sum(abs(rate - value.value) <= value.std for rate in rates)
            values["within_std"] = Value(100 * inside / len(rates))
        yield ViewRow({}, values, "requests" if metric == MAIN else metric)


def _metric_row(row: ViewRow, metric: str) -> ViewRow:
    """The statistics of a histogram, in the columns of the latency."""
    base, _, member = metric.partition(".")
    suffix = f".{member}" if member else ""
    values = {
        f"latency_{statistic}": row.values[f"{base}_{statistic}{suffix}"]
        for statistic in STATISTICS
    }
    share = merged(row.trials[:1], metric).share_within_std()
    values["within_std"] = Value(100 * (share or 0.0))
    return ViewRow({}, values, metric_name(metric))


def _times(row: ViewRow) -> list[str]:
    """The histograms that the load is reported by."""
    names = TIMES if row.dims["loop"] == "open" else TIMES[:1]
    recorded = {} if row.entry is None else row.entry.line.distributions
    failed = [name for name in recorded if name.startswith(f"{FAILED_LATENCY}.")]
    return [*(name for name in (*names, *STREAM_TIMES) if name in recorded), *failed]


def metric_name(metric: str) -> str:
    """What a histogram is called, that of a class of failures `latency of 503`."""
    _, _, kind = metric.partition(".")
    return f"latency of {kind}" if kind else streams.name(metric)


def _meaning(metric: str) -> str:
    figure = find_figure(f"{metric.partition('.')[0]}_mean")
    return "" if figure is None else figure.meaning.partition(": ")[2]


def _describe_whole(trial: Trial) -> str:
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


def _time_curves(row: ViewRow) -> Iterator[Chart]:
    """Latency, and in an open loop service time and send lag beside it; a log axis has no place for
    a lag of 0."""
    trial, names = row.trials[0], _times(row)
    curves = {}
    for name in names:
        points = latency_curve([trial], name) if name in CENSORED_BY else None
        points = curve_of(merged([trial], name)) if points is None else points
        if above := [point for point in points if point[1] > 0]:
            curves[metric_name(name)] = above
    caption = "A curve ends where a single response lies beyond it, and that of latency where no "
    caption += "answer came."
    yield from percentile_charts(f"Times of a request, {row.name}", curves, caption)


def _slowed_blocks(row: ViewRow) -> Iterator[Block]:
    """The repetition of the load that a profiler slowed down, and what that cost."""
    yield from _figure_blocks(row)
    yield from [Prose(tuple(row.notes), "quiet", listed=True)] if row.notes else []


# What became of the requests.


def _request_blocks(row: ViewRow, several: bool) -> Iterator[Block]:
    """What became of the requests of a load, and whether its client set the figures."""
    trial = row.trials[0]
    yield from [Prose((row.name,))] if several else []
    yield make_table(RATES, [*_rate_rows(row)], caption=_describe_whole(trial))
    yield Facts(tuple(_further(trial)))
    notes = tuple(str(note) for note in trial.client.get("notes") or ())
    yield from [Prose(notes, "doubt", listed=True)] if notes else []


def _account(trial: Trial) -> Iterator[tuple[str, str]]:
    """What became of all requests."""
    client, counts = trial.client, trial.counts
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    yield (
        "requests",
        f"{carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} unanswered",
    )
    if counts.unsent:
        yield "not sent", f"{counts.unsent:,} were due, and waited for a free connection"
    if text := streams.merged_words([trial]):
        yield "events", text
    if text := streams.tokens_words(trial):
        yield "tokens", text
    if errors := failures_of([trial]):
        yield "errors", errors
    if client.get("retried"):
        yield "retried", f"{client['retried']:,} (their latency runs from the first attempt)"
    if client.get("reconnects"):
        yield "connections", f"{client['reconnects']:,} opened again"


def _further(trial: Trial) -> Iterator[tuple[str, str]]:
    """What was in flight at the end, the status codes, and whether the client set the figures."""
    client = trial.client
    if late := describe_late(trial):
        yield "in flight", late
    if codes := client.get("status_codes"):
        texts = [f"{code}: {count:,}" for code, count in codes.items()]
        more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
        yield "status", ", ".join(texts[:MOST_NAMED]) + more
    if words := used_words(trial.usage):
        yield "CPU", words
    if verdict := client.get("verdict"):
        yield "client", _describe_client(verdict, added_of(trial))


def describe_late(trial: Trial) -> str | None:
    """How many requests were in flight or waited for a connection when the last window ended; they
    are followed to their end. None where there were none, or it is not known."""
    within = trial.in_windows
    if within is None or not (waiting := within.in_flight + within.unsent):
        return None
    return f"{waiting:,} when the last window ended; followed to their end, they are in the latency"


def _describe_client(verdict: Mapping[str, Any], added: tuple[float, float] | None) -> str:
    """Whether the client, and not the server, set the figures; with the evidence, and what it adds
    to the latency."""
    evidence = []
    if verdict.get("non_idle") is not None:
        evidence.append(f"busy or waiting for a CPU {100 * verdict['non_idle']:.0f} % of the time")
    if verdict.get("pickup_p50_ns") is not None:
        pickup = latency(verdict["pickup_p50_ns"] / NS_PER_MS)
        evidence.append(f"responses picked up after {pickup} ms (median)")
    evidence.append(
        "what it adds is not known" if added is None else f"it adds {part_text(*added)}"
    )
    figures = "; ".join(evidence)
    if not verdict.get("client_bound"):
        return f"not the limit ({figures})"
    return f"{client_words(verdict)}: {'; '.join(verdict['reasons'])} ({figures})"


LENS: Final = Lens(build, noun="load")
