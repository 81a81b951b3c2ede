"""The report on a load of a URL and its profiled repetition: every request is accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, STATISTICS, merged, read_rate
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.figures import counted
from serve_bench.core.load_result import FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Trial
from serve_bench.view.document import Block, Facts, Prose, Section, statement
from serve_bench.view.figures import TIME_NAMES, Value, declare, known_values
from serve_bench.view.frame import ViewRow, describe_figures, make_spec, make_table, table_section
from serve_bench.view.lens import Lens, View
from serve_bench.view.row_charts import PARTS_OF_LATENCY, chart_sections, draw_histogram
from serve_bench.view.rows import Page, limit_words

declare(
    ("within_std", "%", "values within one standard deviation of the mean"),
    ("most", "requests/s", "the highest of all windows", "max"),
    ("rates_within_std", "%", "windows within one standard deviation of the mean", "within std"),
    ("read", "MB", "what was received within the windows, heads too"),
    ("client_busy", "%", "time that the busiest load worker ran or waited for a CPU"),
)

_SHOWN: Final = " ".join(f"latency_{name}" for name in STATISTICS if name != "count")
TIMES: Final = make_spec("", _SHOWN, "within_std", "time")
REQUESTS: Final = make_spec(
    "Within the windows",
    "completed throughput most rates_within_std events tokens read client_busy pickup_p50",
    row="load",
)

OBVIOUS: Final = ("unclear", "offered load")
"""Limits whose hint only repeats them."""


def build(page: Page) -> View:
    """Build the view of a load, and of its repetition with a profiler."""
    rows = [*map(_complete, page.rows)]
    loads = [row for row in rows if row.trials]
    lead = next((row for row in loads if row.dims["status"] != "profiled"), None)
    times = [time for row in rows for time in _list_times(row, row.name if rows[1:] else "")]
    blocks: list[Block] = [make_table(TIMES, times)] if rows else []
    texts = [note for row in loads for note in row.notes]
    if lead is not None:
        trial = lead.trials[0]
        blocks += [Facts(tuple(_account(trial))), *draw_histogram(merged([trial], LATENCY))]
        limit = lead.limited
        texts += [lead.hint] if limit is not None and limit.cause not in OBVIOUS else []
    texts = list(dict.fromkeys(filter(None, texts)))
    blocks.append(Prose(tuple(texts), "quiet", listed=True))
    urls = dict.fromkeys(str(row.dims.get("url", "")) for row in rows)
    return View(
        rows=rows,
        findings=() if lead is None else tuple(_find(lead)),
        sections=[
            Section("results", "Results", tuple(blocks), "headline"),
            table_section("requests", "Requests and client", REQUESTS, loads, bare=True),
        ],
        charts=tuple(chart_sections(rows)),
        traced=loads,
        title=" ".join(("serve-bench load", *urls)),
        lead=lead,
        notes=[note for note in page.notes if note not in texts],
    )


def _complete(row: ViewRow) -> ViewRow:
    """Add to the row what wrk reports of a load, and how busy the client was."""
    if not row.trials:
        return row
    trial, rate = row.trials[0], row.values.get(MAIN)
    windows, verdict = read_rate(trial).windows, trial.client.verdict
    busy = None if verdict is None else verdict.non_idle
    std = None if rate is None else rate.std
    near = [abs(window - fmean(windows)) <= std for window in windows] if std is not None else []
    figures = known_values(
        most=max(windows, default=None),
        rates_within_std=100 * fmean(near) if near else None,
        read=(trial.client.bytes_received or 0) / 1e6 or None,
        client_busy=None if busy is None else 100 * busy,
    )
    return replace(row, values={**row.values, **figures})


def _find(row: ViewRow) -> Iterator[str]:
    """Yield the figures of the load, and its limit, unless an open loop kept up with its rate."""
    used = row.value("connections_used") or 0 if row.dims["loop"] == "open" else 0
    grown = f", grown to {used:,.0f}" if used > row.dims["connections"] else ""
    text = f"{row.name}{grown} ({row.dims['client']}): {describe_figures(row)}"
    yield statement(text, [row.name])
    limit = row.limited
    if limit is not None and (row.dims["loop"], limit.cause) != ("open", "offered load"):
        yield statement(limit_words(limit))


def _list_times(row: ViewRow, group: str) -> list[ViewRow]:
    """List the times of a load, in the columns of its latency; the first has the warnings."""
    start = f"{FAILED_LATENCY}_mean"
    failed = [name.replace("_mean", "") for name in row.values if name.startswith(start)]
    parts = PARTS_OF_LATENCY if row.dims["loop"] == "open" else ()
    times = []
    for name in (LATENCY, *parts, *STREAM_TIMES, *failed):
        base, dot, kind = name.partition(".")
        if f"{base}_mean{dot}{kind}" in row.values:
            names = {f"latency_{share}": f"{base}_{share}{dot}{kind}" for share in STATISTICS}
            values = {name: row.values[recorded] for name, recorded in names.items()}
            share = merged(row.trials[:1], name).share_within_std()
            values["within_std"] = Value(100 * (share or 0.0))
            title = f"latency of {kind}" if kind else TIME_NAMES[name]
            times.append(ViewRow({}, values, title, group))
    first = times[0] if times else ViewRow({}, name=row.name, group=group, gap=row.gap)
    return [replace(first, warnings=row.warnings), *times[1:]]


def _account(trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield what became of all requests, and what the client repeated."""
    counts, client = trial.counts, trial.client
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    again = f"; {client.reconnects:,} reconnects" if client.reconnects else ""
    yield (
        "requests",
        f"{carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} unanswered{again}",
    )
    if counts.unsent:
        yield "not sent", f"{counts.unsent:,} were due, and waited for a free connection"
    if errors := failures_of([trial]):
        yield "errors", errors
    if client.status_codes.keys() - {200}:
        codes = client.status_codes.items()
        yield "status", ", ".join(f"{code}: {count:,}" for code, count in codes)
    if client.events and trial.row.traffic.client == "raw":
        share = f"{100 * client.merged / client.events:.3g} % in the same read as the one before"
        yield "events", f"{client.events:,} in the windows; {share}"
    tokens = client.tokens
    if tokens is not None and (uncounted := trial.completed_in_windows - tokens.requests) > 0:
        yield "tokens", f"the service counted none of {counted(uncounted, 'request')} (usage)"
    if client.retried:
        yield "retried", f"{client.retried:,} (their latency runs from the first attempt)"


LENS: Final = Lens(build, figures=("tokens",))
