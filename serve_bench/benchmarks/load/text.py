"""The summary of one load, as users of wrk and oha read it. Text only, from a Trial.

Rule: it says what was asked and by which client before any figure, and counts every request.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.analysis.checks import backlog, client_words, unanswered
from serve_bench.analysis.statistics import (
    CENSORED,
    LowerBound,
    distribution,
    latency_figures,
    merged,
)
from serve_bench.analysis.verdict import limited_by
from serve_bench.benchmarks.parts.page import host_line
from serve_bench.benchmarks.parts.texts import limited_line, used_words
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.result import Result, Trial
from serve_bench.report.widths import wrapped

#: Characters of a line's label; the values stand right of it.
LABEL: Final = 13

PERCENTILES: Final = (50, 75, 90, 99, 99.9)
BARS: Final = 11

_BLOCKS: Final = " ▏▎▍▌▋▊▉█"


def load_text(result: Result, where: str | None = None, width: int = 80) -> str:
    """Every load of a run, one below the other; ends with a newline."""
    parts = ["\n".join(_summary(trial, width)) for trial in result.trials]
    parts += ["\n".join(_wrapped(f"failed: {one.message}", width, 2)) for one in result.failures]
    host = "\n".join(_wrapped(f"host: {host_line(result.run.host)}", width, 2))
    parts.append(host + (f"\nrecords: {where}" if where else ""))
    return "\n\n".join(parts) + "\n"


def _summary(trial: Trial, width: int) -> Iterator[str]:
    rates = trial.metrics["throughput"].windows or ()
    duration_s = _duration_s(trial)
    yield from _asked(trial, width)
    yield ""
    received = int(trial.client.get("bytes_received") or 0)
    done = trial.completed_in_windows
    yield from _wrapped(
        f"{done:,} requests in {duration_s:.2f} s, {_bytes(received)} read, "
        f"{_per_s(done, duration_s):,.1f} requests/s, "
        f"{_bytes(_per_s(received, duration_s))}/s",
        width,
        indent=0,
    )
    yield ""
    yield from _spreads(trial, rates, width)
    yield ""
    yield from _percentiles(trial, width)
    yield from _counts(trial, width)
    yield from _client(trial, width)
    yield from _cpu(trial, width)
    yield from _limited(trial, width)
    latency = _histogram(trial, "latency")
    if latency is not None and latency.count:
        yield ""
        yield from _bars(latency, width)


def _duration_s(trial: Trial) -> float:
    """The measured part (s). An interrupted one is longer than its whole windows."""
    windows = len(trial.metrics["throughput"].windows or ())
    return trial.seconds.get("measured", trial.window_s * windows)


def _per_s(count: float, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0


def _wrapped(text: str, width: int, indent: int = LABEL) -> list[str]:
    """The text in lines of this width; those after the first begin below the first's value."""
    return wrapped(text, width, hang=indent)


def _asked(trial: Trial, width: int) -> Iterator[str]:
    row, asked = trial.row, trial.client.get("asked", {})
    yield str(trial.cell.get("url", ""))  # whole, however long: to be copied
    loop = "closed loop" if row.loop == "closed" else "open loop"
    if row.rate_per_s is not None:
        loop += f" at {row.rate_per_s:,g} requests/s ({asked.get('arrivals', 'constant')})"
    elif asked.get("stages"):
        stages = ", ".join(f"{s['rate']:g}/s for {s['duration_s']:g} s" for s in asked["stages"])
        loop += f" in stages: {stages}{' (ramp)' if asked.get('ramp') else ''}"
    workers = trial.client.get("workers", ())
    processes = f", {len(workers)} process{'es' if len(workers) != 1 else ''}" if workers else ""
    most = asked.get("max_connections") or 0
    grown = f", up to {most} in need" if most > row.connections else ""
    yield from _wrapped(
        f"client {row.client}, {loop}, {row.label}{grown}{processes}", width, indent=0
    )
    rates = trial.metrics["throughput"].windows or ()
    windows = f"{len(rates)} windows of {trial.window_s:g} s" if len(rates) > 1 else "one window"
    steady = f"{'steady' if trial.warmup.steady else 'NOT steady'} at its end"
    if trial.warmup.judged is False:
        steady = f"NOT judged: {trial.warmup.completed:,} requests of {row.label}"
    before = f"a warm-up of {trial.warmup.seconds:.1f} s, {steady}"
    yield from _wrapped(
        f"{windows} after {before}" if trial.warmup.seconds else f"{windows}, no warm-up",
        width,
        indent=0,
    )


def _column(width: int, columns: int, most: int) -> int:
    """How wide each of so many columns may be: `most` where there is room, at least 9."""
    return max(9, min(most, (width - LABEL) // columns))


def _spreads(trial: Trial, rates: Sequence[float], width: int) -> Iterator[str]:
    size = _column(width - 3, 4, 12)
    last = size + 3
    yield f"{'':{LABEL}}{'avg':>{size}}{'stdev':>{size}}{'max':>{size}}{'within stdev':>{last}}"
    latency = _histogram(trial, "latency")
    if latency is not None and (latency.count or CENSORED in trial.metrics):
        all_of = distribution(trial.metrics["latency"], latency, merged([trial], CENSORED))
        figures = (_time(all_of.mean), _time(all_of.std), _time(all_of.max))
        share = f"{100 * (latency.share_within_std() or 0):.1f} %"
        texts = "".join(f"{text:>{size}}" for text in figures)
        yield f"{'latency':{LABEL}}{texts}{share:>{last}}"
    mean, std = statistics.fmean(rates), statistics.pstdev(rates)
    inside = sum(abs(rate - mean) <= std for rate in rates) / len(rates)
    spread = f"{std:,.1f}" if len(rates) > 1 else "-"
    texts = "".join(f"{text:>{size}}" for text in (f"{mean:,.1f}", spread, f"{max(rates):,.1f}"))
    share = f"{100 * inside:.1f} %" if len(rates) > 1 else "-"
    yield f"{'requests/s':{LABEL}}{texts}{share:>{last}}"


def _percentiles(trial: Trial, width: int) -> Iterator[str]:
    size = _column(width, len(PERCENTILES), 11)
    names = ["latency"]
    if trial.row.loop == "open":
        names += ["service_time", "send_lag"]
    yield f"{'':{LABEL}}" + "".join(f"{f'p{q:g}':>{size}}" for q in PERCENTILES)
    for name in names:
        histogram = _histogram(trial, name)
        if histogram is not None and (histogram.count or name == "latency"):
            shares = [q / 100 for q in PERCENTILES]
            values: Sequence[float | None] = histogram.percentiles(shares)
            if name == "latency":
                values = latency_figures([trial], shares)
            label = name.replace("_", " ")
            yield f"{label:{LABEL}}" + "".join(f"{_time(value):>{size}}" for value in values)
    told = [
        (f"p{q:g}", trial.metrics[f"latency_p{q:g}"].windows)
        for q in PERCENTILES
        if f"latency_p{q:g}" in trial.metrics
    ]
    if told:
        words = ", ".join(f"{n} {_time(v[0])}" for n, v in told if v)
        yield from _wrapped(f"as the program told: {words}", width)


def _counts(trial: Trial, width: int) -> Iterator[str]:
    counts = trial.counts
    codes = trial.client.get("status_codes") or {}
    yield ""
    if codes:
        status = ", ".join(f"{code}: {n:,}" for code, n in codes.items())
        yield from _wrapped(f"{'status':{LABEL}}{status}", width)
    yield from _wrapped(f"{'errors':{LABEL}}{failures_of([trial]) or 'none'}", width)
    retried, reconnects = trial.client.get("retried"), trial.client.get("reconnects")
    if retried:
        text = f"{retried:,} (their latency runs from the first attempt)"
        yield from _wrapped(f"{'retried':{LABEL}}{text}", width)
    if reconnects:
        yield f"{'connections':{LABEL}}{reconnects:,} opened again"
    for note in trial.client.get("notes") or ():
        yield from _wrapped(f"{'NOTE':{LABEL}}{note}", width)
    if trial.client.get("external"):
        yield from _wrapped(f"{'in flight':{LABEL}}at its end: in none of its figures", width)
        return
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    open_ = "in flight" if trial.in_windows is None else "unanswered"
    yield from _wrapped(
        f"{'accounting':{LABEL}}{carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} {open_}",
        width,
    )
    if (late := ended_late(trial)) is not None:
        yield from _wrapped(f"{'in flight':{LABEL}}{late}", width)
    if counts.unsent:
        text = f"{counts.unsent:,} were due and waited for a free connection at the end"
        yield from _wrapped(f"{'not sent':{LABEL}}{text}", width)
    for doubt in (*unanswered(trial), *backlog(trial)):
        yield from _wrapped(f"{'NOTE':{LABEL}}{doubt.message}; {doubt.hint}", width)


def _client(trial: Trial, width: int) -> Iterator[str]:
    verdict: Any = trial.client.get("verdict")
    if not verdict:
        yield "client       not diagnosed: another program drove the load"
        return
    evidence = []
    if verdict.get("non_idle") is not None:
        evidence.append(f"busy or waiting for a CPU {100 * verdict['non_idle']:.0f} % of the time")
    if verdict.get("pickup_p50_ns") is not None:
        evidence.append(f"responses picked up after {_time(verdict['pickup_p50_ns'])} (median)")
    figures = "; ".join(evidence) or "no evidence on this system"
    if verdict.get("client_bound"):
        text = f"{client_words(verdict).upper()}: {'; '.join(verdict['reasons'])} ({figures})"
    else:
        text = f"not the limit ({figures})"
    yield from _wrapped(f"{'client':{LABEL}}{text}", width)


def _cpu(trial: Trial, width: int) -> Iterator[str]:
    """Who had the cores."""
    if words := used_words(trial.usage or {}):
        yield from _wrapped(f"{'CPU':{LABEL}}{words}", width)


def _limited(trial: Trial, width: int) -> Iterator[str]:
    """What limited the load, as far as it is known: a Serve of this host is sampled, of others only
    client and host are. Nothing where neither was looked at, or nothing completed."""
    if not trial.counts.completed:
        return
    verdict = limited_by(trial)
    if not trial.usage and verdict.cause != "client":
        return
    yield from _wrapped(limited_line((verdict,)), width)
    if verdict.cause != "unclear":
        yield from _wrapped(f"{'hint':{LABEL}}{verdict.hint}", width)


def _bars(latency: Histogram, width: int) -> Iterator[str]:
    """Counts in equal steps from the least to p99.9, what lies above in a last bar."""
    low, high = latency.min or 0, latency.percentile(0.999) or 1
    step = max(1, math.ceil((high - low + 1) / BARS))
    counts = [0] * (BARS + 1)
    for index, n in latency.occupied():
        counts[min(BARS, max(0, (slot_middle(index) - low) // step))] += n
    room = max(10, min(40, width - 36))
    yield "latency histogram (the last bar is what lies above p99.9)"
    for place, n in enumerate(counts):
        if place == BARS and not n:
            continue
        size = n / max(counts) * room
        bar = "█" * int(size) + _BLOCKS[int((size % 1) * 8)]
        sign = ">" if place == BARS else " "
        yield f"  {sign}{_time(low + place * step):>10} |{bar.rstrip():{room}} {n:,}".rstrip()


def ended_late(trial: Trial) -> str | None:
    """Of what was in flight or waited for a connection when the last window ended: how many, and
    that they are followed to their end. None where nothing was, or it is not known."""
    within = trial.in_windows
    if within is None or not (waiting := within["in_flight"] + within["unsent"]):
        return None
    return f"{waiting:,} when the last window ended; followed to their end, they are in the latency"


def _histogram(trial: Trial, name: str) -> Histogram | None:
    metric = trial.metrics.get(name)
    if metric is None or metric.histogram is None:
        return None
    return Histogram.decode(metric.histogram)


def _time(ns: float | None) -> str:
    """Nanoseconds in the unit that suits them, three significant digits."""
    if ns is None:
        return "-"
    if isinstance(ns, LowerBound):
        return f"> {_time(float(ns))}"
    ns = float(f"{ns:.3g}")  # rounded first: 999.7 us is 1.00 ms
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            value = ns / size
            digits = max(0, 2 - math.floor(math.log10(value)))
            return f"{value:.{digits}f} {unit}"
    return f"{ns:.0f} ns"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"
