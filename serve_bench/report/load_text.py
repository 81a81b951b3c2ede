"""The summary of one load, as users of wrk and oha read it. Text only, from a Trial.

Rule: it says what was asked and by which client before any figure, and counts every request.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.histogram import Histogram, slot_middle
from serve_bench.report.page import host_line
from serve_bench.result import Result, Trial

PERCENTILES: Final = (50, 75, 90, 99, 99.9)
BARS: Final = 11

#: As the engine's own limit: a client that was idle for part of the time set no throughput, but it
#: may still have been late to read or to send.
NEVER_IDLE: Final = 0.85
_BLOCKS: Final = " ▏▎▍▌▋▊▉█"


def load_text(result: Result, where: str | None = None, width: int = 80) -> str:
    """Every load of a run, one below the other; ends with a newline."""
    parts = ["\n".join(_summary(trial, width)) for trial in result.trials]
    parts += [f"failed: {failure.message}" for failure in result.failures]
    parts.append(f"host: {host_line(result.run.host)}" + (f"\nrecords: {where}" if where else ""))
    return "\n\n".join(parts) + "\n"


def _summary(trial: Trial, width: int) -> Iterator[str]:
    rates = trial.metrics["throughput"].windows or ()
    duration_s = trial.window_s * len(rates)
    yield from _asked(trial)
    yield ""
    received = int(trial.client.get("bytes_received") or 0)
    yield (
        f"{trial.counts.completed:,} requests in {duration_s:.2f} s, {_bytes(received)} read, "
        f"{statistics.fmean(rates):,.1f} requests/s, {_bytes(received / duration_s)}/s"
    )
    yield ""
    yield from _spreads(trial, rates)
    yield ""
    yield from _percentiles(trial)
    yield from _counts(trial)
    yield from _client(trial, width)
    yield from _cpu(trial)
    latency = _histogram(trial, "latency")
    if latency is not None and latency.count:
        yield ""
        yield from _bars(latency, width)


def _asked(trial: Trial) -> Iterator[str]:
    row, asked = trial.row, trial.client.get("asked", {})
    yield str(trial.cell.get("url", ""))
    loop = "closed loop" if row.loop == "closed" else "open loop"
    if row.rate_per_s is not None:
        loop += f" at {row.rate_per_s:,g} requests/s ({asked.get('arrivals', 'constant')})"
    elif asked.get("stages"):
        stages = ", ".join(f"{s['rate']:g}/s for {s['duration_s']:g} s" for s in asked["stages"])
        loop += f" in stages: {stages}{' (ramp)' if asked.get('ramp') else ''}"
    workers = trial.client.get("workers", ())
    processes = f", {len(workers)} process{'es' if len(workers) != 1 else ''}" if workers else ""
    yield f"client {row.client}, {loop}, {row.label}{processes}"
    rates = trial.metrics["throughput"].windows or ()
    windows = f"{len(rates)} windows of {trial.window_s:g} s" if len(rates) > 1 else "one window"
    steady = "steady" if trial.warmup.steady else "NOT steady"
    before = f"a warm-up of {trial.warmup.seconds:.1f} s, {steady} at its end"
    yield f"{windows} after {before}" if trial.warmup.seconds else f"{windows}, no warm-up"


def _spreads(trial: Trial, rates: Sequence[float]) -> Iterator[str]:
    yield f"{'':13}{'avg':>12}{'stdev':>12}{'max':>12}{'within stdev':>15}"
    latency = _histogram(trial, "latency")
    if latency is not None and latency.count:
        figures = (_time(latency.mean), _time(latency.std), _time(latency.max))
        share = f"{100 * (latency.share_within_std() or 0):.1f} %"
        yield f"{'latency':13}" + "".join(f"{text:>12}" for text in figures) + f"{share:>15}"
    mean, std = statistics.fmean(rates), statistics.pstdev(rates)
    inside = sum(abs(rate - mean) <= std for rate in rates) / len(rates)
    rate_texts = (f"{mean:,.1f}", f"{std:,.1f}", f"{max(rates):,.1f}")
    share = f"{100 * inside:.1f} %" if len(rates) > 1 else "-"
    yield f"{'requests/s':13}" + "".join(f"{t:>12}" for t in rate_texts) + f"{share:>15}"


def _percentiles(trial: Trial) -> Iterator[str]:
    names = ["latency"]
    if trial.row.loop == "open":
        names += ["service_time", "send_lag"]
    yield f"{'':13}" + "".join(f"{f'p{q:g}':>11}" for q in PERCENTILES)
    for name in names:
        histogram = _histogram(trial, name)
        if histogram is not None and histogram.count:
            values = histogram.percentiles([q / 100 for q in PERCENTILES])
            label = name.replace("_", " ")
            yield f"{label:13}" + "".join(f"{_time(value):>11}" for value in values)
    told = [
        (f"p{q:g}", trial.metrics[f"latency_p{q:g}"].windows)
        for q in PERCENTILES
        if f"latency_p{q:g}" in trial.metrics
    ]
    if told:
        yield "as the program told: " + ", ".join(f"{n} {_time(v[0])}" for n, v in told if v)


def _counts(trial: Trial) -> Iterator[str]:
    counts = trial.counts
    codes = trial.client.get("status_codes") or {}
    yield ""
    if codes:
        yield "status       " + ", ".join(f"{code}: {n:,}" for code, n in codes.items())
    errors = ", ".join(f"{name} {n:,}" for name, n in counts.failed.items() if n)
    yield f"errors       {errors or 'none'}"
    retried = trial.client.get("retried")
    if retried:
        yield f"retried      {retried:,} (their latency runs from the first attempt)"
    if trial.client.get("external"):
        return
    carried = f"{counts.carried_in:,} carried in + " if counts.carried_in else ""
    yield (
        f"accounting   {carried}{counts.sent:,} sent = {counts.completed:,} completed + "
        f"{counts.failed_total:,} failed + {counts.in_flight:,} in flight"
    )
    if counts.unsent:
        yield f"not sent     {counts.unsent:,} were due and waited for a free connection at the end"


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
        busy = (verdict.get("non_idle") or 0) > NEVER_IDLE
        what = "THE CLIENT WAS THE LIMIT" if busy else "THE CLIENT ADDS TO THE LATENCY"
        text = f"{what}: {'; '.join(verdict['reasons'])} ({figures})"
    else:
        text = f"not the limit ({figures})"
    indent = " " * 13
    yield from textwrap.wrap(
        f"{'client':13}{text}", width, subsequent_indent=indent, break_long_words=False
    )


def _cpu(trial: Trial) -> Iterator[str]:
    """What the load itself used, and the host in all: who had the cores."""
    usage: Any = trial.usage or {}
    host = usage.get("host", {})
    if host.get("cpu_percent") is None:
        return
    ours = sum(one.get("cpu_percent") or 0.0 for one in usage.get("processes", ()))
    cores = host.get("cores", 1)
    yield (
        f"CPU          the load {ours:.0f} % of a core; all that runs on the host "
        f"{host['cpu_percent']:.0f} % of {100 * cores} %"
    )


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


def _histogram(trial: Trial, name: str) -> Histogram | None:
    metric = trial.metrics.get(name)
    if metric is None or metric.histogram is None:
        return None
    return Histogram.decode(metric.histogram)


def _time(ns: float | None) -> str:
    """Nanoseconds in the unit that suits them, three significant digits."""
    if ns is None:
        return "-"
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
