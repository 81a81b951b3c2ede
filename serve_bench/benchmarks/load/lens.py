"""How a load of a URL is looked at, and its profiled repetition: every request is accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.checks import added_of, client_words
from serve_bench.analysis.statistics import LATENCY, MAIN, Line, merged, silent_from, windows_of
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.analysis.verdict.evidence import rate_of
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import MOST_NAMED, failures_of
from serve_bench.core.figures import counted, number, part_text
from serve_bench.core.load_result import FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Result, Trial
from serve_bench.view import streams
from serve_bench.view.blocks import histogram_table, limit_words, section, sentence, statement
from serve_bench.view.document import Block, Facts, Prose, ReportOptions
from serve_bench.view.figures import STATISTICS, Value, declare, find_figure, name_time
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.row_charts import PARTS_OF_LATENCY, chart_sections
from serve_bench.view.rows import NS_PER_MS, Page
from serve_bench.view.texts import latency


def _rates_within(line: Line) -> float | None:
    """Of the windows of the first launch, as wrk prints it."""
    spread, rates = line.spreads.get(MAIN), windows_of(line.trials[0])
    if spread is None or spread.std is None:
        return None
    return 100 * sum(abs(rate - spread.mean) <= spread.std for rate in rates) / len(rates)


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
    (Field("name", "load"), *map(Field, (MAIN, "most", "rates_within_std", "events"))),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """A load, and its repetition with a profiler. Raises FormatError for a trial without its
    rate."""
    for trial in result.trials:
        if MAIN not in trial.metrics:
            raise FormatError(f"trial {trial.key}: metrics.{MAIN} is missing")
    rows = [_count_connections(row) for row in rows]
    loads = [row for row in rows if row.trials]
    plain = [row for row in loads if row.dims["status"] != "profiled"]
    metrics = [metric for row in rows for metric in _metric_rows(row, len(rows) > 1)]
    meanings = dict.fromkeys(metric.dims["meaning"] for metric in metrics if metric.dims)
    spec = replace(METRICS, notes=("; ".join(meanings),) if len(meanings) > 1 else ())
    blocks: list[Block] = [make_table(spec, metrics)] if metrics else []
    for trial in (row.trials[0] for row in plain):
        table = histogram_table(merged([trial], LATENCY))
        blocks += [Facts(tuple(_account(trial))), *([] if table is None else [table])]
    limits = [limit for row in loads if (limit := _limit_of(row)) and limit.cause != "unclear"]
    texts = [f"hint, {limit.cause}: {limit.hint}" for limit in limits]
    texts += [note for note in page.notes if note.startswith("load:")]
    texts += [note for row in loads for note in row.notes]
    if texts := list(dict.fromkeys(texts)):
        blocks.append(Prose(tuple(texts), "quiet", listed=True))
    beside: list[Block] = [make_table(RATES, loads, bare=True)] if loads else []
    for row in loads:
        whole = f"{row.name}: {_describe_whole(row.trials[0])}"
        beside += [Prose((whole,)), Facts(tuple(_further(row.trials[0])))]
    urls = dict.fromkeys(str(row.dims.get("url", "")) for row in rows)
    return View(
        rows=rows,
        findings=tuple(_find(plain)),
        sections=[
            *section("results", "Results", blocks, "headline"),
            *section("requests", "Requests and client", beside),
        ],
        charts=tuple(chart_sections(rows)),
        traced=loads,
        facts=tuple(fact for row in loads[:1] for fact in _describe(row.trials[0])),
        title=" ".join(("serve-bench load", *urls)),
        lead=plain[0] if plain else None,
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


def _find(rows: Sequence[ViewRow]) -> Iterator[str]:
    """The figures of each load, and what limited them."""
    for row in rows:
        yield sentence(f"{row.name} ({row.dims['client']}): {describe_figures(row)}")
        if (limit := _limit_of(row)) is not None:
            yield statement(limit_words(limit))


def _limit_of(row: ViewRow) -> Verdict | None:
    """What limited a load; where nothing was sampled, the client if its own figures say so."""
    if row.entry is None or row.entry.limited is not None or not row.trials:
        return None if row.entry is None else row.entry.limited
    verdict = limited_by(row.trials[0])
    return verdict if verdict is not None and verdict.cause == "client" else None


def _metric_rows(row: ViewRow, several: bool) -> list[ViewRow]:
    """The times of a load, each in the columns of the latency; the first has the warnings. Of
    `several` loads each is a group."""
    recorded = {} if row.entry is None else row.entry.line.distributions
    times = (LATENCY, *(PARTS_OF_LATENCY if row.dims["loop"] == "open" else ()), *STREAM_TIMES)
    failed = [name for name in recorded if name.startswith(f"{FAILED_LATENCY}.")]
    metrics = []
    for name in (*(name for name in times if name in recorded), *failed):
        base, dot, kind = name.partition(".")
        values = {
            f"latency_{statistic}": row.values[f"{base}_{statistic}{dot}{kind}"]
            for statistic in STATISTICS
        }
        share = merged(row.trials[:1], name).share_within_std()
        values["within_std"] = Value(100 * (share or 0.0))
        figure = find_figure(f"{base}_mean")
        meaning = "" if figure is None else figure.meaning.partition(": ")[2]
        title = f"latency of {kind}" if kind else name_time(name)
        metrics.append(ViewRow({"meaning": f"{title}: {meaning}"}, values, title))
    first, *others = metrics or [ViewRow({}, name=row.name, gap=row.gap)]
    metrics = [replace(first, warnings=row.warnings), *others]
    return [replace(metric, group=row.name if several else "") for metric in metrics]


# What was asked.


def _describe(trial: Trial) -> Iterator[tuple[str, str]]:
    """What was loaded, by which client, how: name and words."""
    row, asked = trial.row, trial.client.get("asked", {})
    yield "URL", str(trial.cell.get("url", "-"))
    workers, most = trial.client.get("workers") or (), asked.get("max_connections") or 0
    opened = sum(worker["connections"] for worker in workers)
    grown = f", up to {most} if needed ({opened} were)" if most > row.connections else ""
    processes = f", {counted(len(workers), 'process', 'processes')}" if workers else ""
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


# What became of the requests.


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
    if text := streams.merged_words(trial):
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
    """What was in flight when the last window ended, the status codes, and whether the client set
    the figures."""
    within, client = trial.in_windows, trial.client
    if within is not None and (waiting := within.in_flight + within.unsent):
        ended = "when the last window ended; followed to their end, they are in the latency"
        yield "in flight", f"{waiting:,} {ended}"
    if codes := client.get("status_codes"):
        texts = [f"{code}: {count:,}" for code, count in codes.items()]
        more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
        yield "status", ", ".join(texts[:MOST_NAMED]) + more
    if verdict := client.get("verdict"):
        yield "client", _describe_client(verdict, added_of(trial))


def _describe_client(verdict: Mapping[str, Any], added: tuple[float, float] | None) -> str:
    """Whether the client, and not the server, set the figures; with the evidence, and what it adds
    to the latency."""
    evidence = []
    if verdict.get("non_idle") is not None:
        evidence.append(f"busy or waiting for a CPU {100 * verdict['non_idle']:.0f} % of the time")
    if verdict.get("pickup_p50_ns") is not None:
        pickup = latency(verdict["pickup_p50_ns"] / NS_PER_MS)
        evidence.append(f"responses picked up after {pickup} ms (median)")
    adds = "what it adds is not known" if added is None else f"it adds {part_text(*added)}"
    figures = "; ".join((*evidence, adds))
    if not verdict.get("client_bound"):
        return f"not the limit ({figures})"
    return f"{client_words(verdict)}: {'; '.join(verdict['reasons'])} ({figures})"


LENS: Final = Lens(build, ("most", "rates_within_std"), noun="load")
