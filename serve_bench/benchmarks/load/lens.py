"""How a load of a URL is looked at, and its profiled repetition: every request is accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, STATISTICS, Line, merged, windows_of
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.figures import counted
from serve_bench.core.load_result import FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Result, Trial
from serve_bench.view.blocks import histogram_table, limit_words, section, sentence, statement
from serve_bench.view.document import Block, Facts, Prose, ReportOptions
from serve_bench.view.figures import Value, declare, name_time, token_counts
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.row_charts import PARTS_OF_LATENCY, chart_sections
from serve_bench.view.rows import Page


def _rates_within(line: Line) -> float | None:
    """Of the windows of the first launch, as wrk prints it."""
    spread, rates = line.spreads.get(MAIN), windows_of(line.trials[0])
    if spread is None or spread.std is None:
        return None
    return 100 * sum(abs(rate - spread.value) <= spread.std for rate in rates) / len(rates)


def _client_busy(line: Line) -> float | None:
    """None where the client does not report it."""
    busy = (line.trials[0].client.get("verdict") or {}).get("non_idle")
    return None if busy is None else 100 * busy


declare("within_std", "%", "values within one standard deviation of the mean", title="within std")
declare(
    *("most", "requests/s", "the highest of all windows"),
    lambda line: max(windows_of(line.trials[0]), default=None),
    title="max",
)
declare(
    *("rates_within_std", "%", "windows within one standard deviation of the mean", _rates_within),
    title="within std",
)
declare(
    *("read", "MB", "what was received within the windows, heads too"),
    lambda line: (line.trials[0].client.get("bytes_received") or 0) / 1e6 or None,
)
declare(
    *("client_busy", "%", "time that the busiest load worker ran or waited for a CPU"),
    _client_busy,
    title="client busy",
)

TIMES: Final = TableSpec(
    "Parts of the latency",
    (
        Field("name", "ms"),  # the unit of all that follow, which is not said again
        *(Field(f"latency_{share}", head=" ") for share in ("mean", "std", "p50")),
        Field("latency_p75", head=" ", detail=True),
        *(Field(f"latency_{share}", head=" ") for share in ("p90", "p99", "p99_9", "max")),
        Field("within_std", "within std, %", head=" ", detail=True),
    ),
    ("service time: from when a request was sent; send lag: from when it was due until then",),
)
REQUESTS: Final = TableSpec(
    "Within the windows",
    (
        *(Field("name", "load"), Field("completed"), Field(MAIN)),
        *map(Field, "most rates_within_std events tokens read client_busy pickup_p50".split()),
    ),
)

OBVIOUS: Final = ("unclear", "offered load")
"""Limits whose hint only repeats them."""


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """A load, and its repetition with a profiler. Raises FormatError for a trial without its
    rate."""
    for trial in result.trials:
        if MAIN not in trial.metrics:
            raise FormatError(f"trial {trial.key}: metrics.{MAIN} is missing")
    rows = [_count_connections(row) for row in rows]
    loads = [row for row in rows if row.trials]
    lead = next((row for row in loads if row.dims["status"] != "profiled"), None)
    times = [time for row in rows for time in _list_times(row, row.name if rows[1:] else "")]
    blocks: list[Block] = [make_table(replace(TIMES, caption="", notes=()), times)]
    further: list[Block] = [make_table(REQUESTS, loads, bare=True)] if loads else []
    texts = [note for row in loads for note in row.notes]
    if lead is not None and lead.entry is not None:
        trial, limit = lead.trials[0], lead.entry.limited
        table = histogram_table(merged([trial], LATENCY))
        blocks += [Facts(tuple(_account(trial))), *([] if table is None else [table])]
        if lead.dims["loop"] == "open":
            further.append(make_table(TIMES, [*_read_times(lead, PARTS_OF_LATENCY)]))
        further += [Facts(beside)] if (beside := tuple(_see_beside(trial))) else []
        texts += [lead.entry.hint] if limit is not None and limit.cause not in OBVIOUS else []
    if texts := list(dict.fromkeys(filter(None, texts))):
        blocks.append(Prose(tuple(texts), "quiet", listed=True))
    urls = dict.fromkeys(str(row.dims.get("url", "")) for row in rows)
    return View(
        rows=rows,
        findings=() if lead is None else tuple(_find(lead)),
        sections=[
            *section("results", "Results", blocks if rows else [], "headline"),
            *section("requests", "Requests and client", further),
        ],
        charts=tuple(chart_sections(rows)),
        traced=loads,
        title=" ".join(("serve-bench load", *urls)),
        lead=lead,
    )


def _count_connections(row: ViewRow) -> ViewRow:
    """The row, that of an open loop that grew under the number of connections it came to."""
    workers = row.trials[0].client.get("workers") or () if row.trials else ()
    opened = sum(worker["connections"] for worker in workers)
    if row.entry is None or row.dims["loop"] != "open" or opened <= row.dims["connections"]:
        return row
    asked = row.entry.line.row
    grown = f"{opened} connections{asked.traffic.suffix}"
    return replace(row, name=row.name.replace(asked.label, grown, 1))


def _find(row: ViewRow) -> Iterator[str]:
    """The figures of the load, and what limited it."""
    yield sentence(f"{row.name} ({row.dims['client']}): {describe_figures(row)}")
    if row.entry is not None and row.entry.limited is not None:
        yield statement(limit_words(row.entry.limited))


def _list_times(row: ViewRow, group: str) -> list[ViewRow]:
    """The times of a load under the name of its group; the first has the warnings."""
    start = f"{FAILED_LATENCY}_mean"
    failed = [name.replace("_mean", "") for name in row.values if name.startswith(start)]
    times = [*_read_times(row, (LATENCY, *STREAM_TIMES, *failed))]
    first, *others = times or [ViewRow({}, name=row.name, gap=row.gap)]
    return [replace(time, group=group) for time in (replace(first, warnings=row.warnings), *others)]


def _read_times(row: ViewRow, names: Iterable[str]) -> Iterator[ViewRow]:
    """These times of a load, as far as they are recorded, in the columns of the latency."""
    for name in names:
        base, dot, kind = name.partition(".")
        if f"{base}_mean{dot}{kind}" in row.values:
            values = {f"latency_{of}": row.values[f"{base}_{of}{dot}{kind}"] for of in STATISTICS}
            share = merged(row.trials[:1], name).share_within_std()
            values["within_std"] = Value(100 * (share or 0.0))
            yield ViewRow({}, values, f"latency of {kind}" if kind else name_time(name))


def _account(trial: Trial) -> Iterator[tuple[str, str]]:
    """What became of all requests."""
    counts = trial.counts
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    yield (
        "requests",
        f"{carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} unanswered",
    )
    if counts.unsent:
        yield "not sent", f"{counts.unsent:,} were due, and waited for a free connection"
    events, merged = (int(trial.client.get(name) or 0) for name in ("events", "merged"))
    if events and trial.row.traffic.client == "raw":
        share = f"{100 * merged / events:.3g} % in the same read as the one before"
        yield "events", f"{events:,} in the windows; {share}"
    tokens = token_counts(trial)
    if tokens is not None and (uncounted := trial.completed_in_windows - tokens.requests) > 0:
        yield "tokens", f"the service counted none of {counted(uncounted, 'request')} (usage)"
    if errors := failures_of([trial]):
        yield "errors", errors


def _see_beside(trial: Trial) -> Iterator[tuple[str, str]]:
    """The status codes, and what the client did again."""
    client = trial.client
    if codes := client.get("status_codes"):
        yield "status", ", ".join(f"{code}: {count:,}" for code, count in codes.items())
    if client.get("retried"):
        yield "retried", f"{client['retried']:,} (their latency runs from the first attempt)"
    if client.get("reconnects"):
        yield "connections", f"{client['reconnects']:,} opened again"


LENS: Final = Lens(build, ("most", "rates_within_std", "tokens", "read", "client_busy"), "load")
