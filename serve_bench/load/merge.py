"""Adds up the reports of workers, their times in shared memory, and the results of nodes.

Rule: it only adds and checks. A result that does not balance raises BrokenAccount: it is a defect
of the engine and must not be printed as a measurement. The verdict on the client is made here too,
and nowhere else in the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import chain
from operator import sub
from typing import Any, TypeVar

from msgspec import structs

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import (
    ERROR_CLASSES,
    GIVEN_UP,
    HISTOGRAMS,
    ClientVerdict,
    Counts,
    LoadResult,
    TokenCounts,
    Warmup,
    WorkerFailure,
    WorkerReport,
)
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.tally import SUMMED, WHOLE, WITHIN, Shared, Tally

K = TypeVar("K")


def close_account(
    load: Load, tally: Tally, window_s: float, worker: WorkerReport | None = None
) -> LoadResult:
    """Close the tally; return its result, without times and verdict. Raises BrokenAccount."""
    measured, cohort = tally.close(), tally.cohort
    begin, end = tally.snapshots["begin"], tally.snapshots["end"]
    before, after = begin.counts, end.counts
    duration_s = (tally.end_ns - tally.measure_ns) / 1e9
    failed = {kind: n - before.failed.get(kind, 0) for kind, n in after.failed.items()}
    sums: dict[str, Any] = {name: end.sums[name] - begin.sums[name] for name in SUMMED}
    return LoadResult(
        windows=tuple(tally.windows),
        window_s=duration_s if _by_count(load, tally.windows) else window_s,
        duration_s=duration_s,
        warmup=Warmup(0.0, False, before.completed),  # the parent knows the rest
        **sums,
        measured=measured,
        total=tally.snapshots["final"].counts,
        status_codes=dict(sorted(cohort.codes.items())),
        seen=tally.examples,
        workers=() if worker is None else (worker,),
        waited=cohort.waited,
        shares=tally.shares if _in_parts(load) else (),
        connection_rate_max=tally.connection_rate_max,
        in_windows=Counts(
            sent=after.sent - before.sent,
            completed=after.completed - before.completed,
            failed={kind: n for kind, n in failed.items() if n},
            in_flight=after.in_flight,
            carried_in=before.in_flight,
            unsent=after.unsent,
        ),
        mean_in_flight=tally.mean_in_flight,
        event_windows=tuple(tally.event_windows) if load.streaming is not None else (),
        tokens=TokenCounts(*map(sub, end.tokens, begin.tokens))
        if load.streaming is not None and load.streaming.openai
        else None,
        failed_times=cohort.times,
    )


def add_times(load: Load, result: LoadResult, shared: Shared, board: int) -> LoadResult:
    """Complete a worker's result by the times on its board. Raises BrokenAccount."""
    result = structs.replace(result, **shared.read_times(board))
    if _in_parts(load):
        live, recorded = shared.live(board), (result.latency, result.failed_latency)
        busy_ns = sum((times.mean or 0.0) * times.count for times in recorded)
        result = structs.replace(result, busy_s=(busy_ns + live[WITHIN] - live[WHOLE]) / 1e9)
    _check(result)
    return result


def _by_count(load: Load, windows: Sequence[int]) -> bool:
    """Return whether the last response closed the only window."""
    return load.total is not None and len(windows) == 1


def _in_parts(load: Load) -> bool:
    """Return whether windows count parts of responses: they do in a closed loop that time ends."""
    # In an open loop the requests in flight may pile up, so that what is in flight is no answer to
    # come soon; there the answers are counted, and come as evenly as the requests are due.
    return not load.open_loop and load.total is None


def _check(result: LoadResult) -> None:
    """Raise BrokenAccount unless accounts balance and each request of the windows has one time."""
    measured = result.measured
    for counts in (measured, result.total, result.in_windows):
        if not counts.balanced:
            raise BrokenAccount(f"an account does not balance: {counts}")
    given_up = sum(measured.failed.get(name, 0) for name in GIVEN_UP)
    given_up += measured.in_flight + measured.unsent
    latencies, failed, censored = (
        histogram.count for histogram in (result.latency, result.failed_latency, result.censored)
    )
    if (latencies, failed, censored) != (measured.completed, measured.failed_total, given_up):
        raise BrokenAccount(
            f"{latencies} latencies, {failed} of failures and {censored} of what was given up, "
            f"for {measured}"
        )


def merge(
    load: Load, timing: Timing, warmup: Warmup, results: Sequence[LoadResult], aborted: bool
) -> LoadResult:
    """Merge the results of the workers of one node. `timing`: as it became in the warm-up."""
    lengths = {len(result.windows) for result in results}
    if len(lengths) > 1 and not aborted:
        raise BrokenAccount(f"workers report {sorted(lengths)} windows of one load")
    whole = _add_up(load, results)
    if not _by_count(load, whole.windows):
        whole = structs.replace(whole, window_s=timing.window_s)
    return judged(structs.replace(whole, warmup=replace(warmup, completed=whole.warmup.completed)))


def combine(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    """Merge the results of one load that several nodes shared. Raises BrokenAccount.

    The windows of all nodes began together, so they are summed by index, up to the shortest: an
    interrupted node may have fewer. `duration_s` is the longest; `started_at_ns` is the first
    node's, since clocks of nodes cannot be compared. The client is the limit if it is on any node.
    Raises ValueError without results, or with windows of different lengths in a load by time.
    """
    if not results:
        raise ValueError("no results to combine")
    if load.total is None and len({result.window_s for result in results}) > 1:
        raise ValueError("results with windows of different lengths cannot be combined")
    whole = _add_up(load, results)
    verdicts = [result.verdict for result in results]
    reasons = _drop_repeats(reason for verdict in verdicts for reason in verdict.reasons)
    bound = any(verdict.client_bound for verdict in verdicts)
    return structs.replace(whole, verdict=_verdict(whole, bound, reasons))


def _add_up(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    first = results[0]

    def across(*names: str) -> dict[str, list[Any]]:
        return {name: [getattr(part, name) for part in results] for name in names}

    added: dict[str, Any] = {name: Histogram() for name in (*HISTOGRAMS, "late")}
    for name, parts in across(*added).items():
        for part in parts:
            added[name].merge(part)
    for name, parts in across(*SUMMED, "waited").items():
        added[name] = sum(parts)
    for name, parts in across("mean_in_flight", "busy_s").items():
        added[name] = None if None in parts else sum(parts)
    for name, parts in across("windows", "shares", "event_windows").items():
        added[name] = tuple(map(sum, zip(*parts, strict=False)))
    for name, parts in across("duration_s", "time_to_connect_s", "connecting_s").items():
        added[name] = max(parts)
    for name, parts in across("in_windows", "measured", "total").items():
        added[name] = _sum_counts(parts)
    for name, parts in across("workers", "failures").items():
        added[name] = tuple(chain.from_iterable(parts))
    if _by_count(load, first.windows):
        added["window_s"] = added["duration_s"]
    counted = [astuple(part.tokens) for part in results if part.tokens is not None]
    failed_times: dict[str, Histogram] = {}
    for kind, histogram in (pair for result in results for pair in result.failed_times.items()):
        failed_times[kind] = histogram.joined(failed_times.get(kind, Histogram()))
    whole = structs.replace(
        first,
        **added,
        failed_times=failed_times,
        warmup=Warmup(
            max(part.warmup.seconds for part in results),
            all(part.warmup.steady for part in results),
            sum(part.warmup.completed for part in results),
            None if first.warmup.judged is None else all(part.warmup.judged for part in results),
        ),
        status_codes=dict(sorted(_sum_values([part.status_codes for part in results]).items())),
        seen=dict(pair for part in reversed(results) for pair in part.seen.items()),
        notes=_drop_repeats(note for part in results for note in part.notes),
        connection_rate_max=find_highest(part.connection_rate_max for part in results),
        tokens=TokenCounts(*map(sum, zip(*counted, strict=True))) if counted else None,
    )
    _check(whole)
    return whole


def _sum_values(counts: Sequence[Mapping[K, int]]) -> dict[K, int]:
    return {key: sum(part.get(key, 0) for part in counts) for key in chain.from_iterable(counts)}


def _sum_counts(parts: Sequence[Counts]) -> Counts:
    failed = _sum_values([part.failed for part in parts])
    names = ("sent", "completed", "in_flight", "carried_in", "unsent")
    return Counts(
        **{name: sum(getattr(counts, name) for counts in parts) for name in names},
        failed={name: failed[name] for name in ERROR_CLASSES if name in failed},
    )


def find_highest(rates: Iterable[float | None]) -> float | None:
    """Return the highest rate or share; None if none is known."""
    return max((rate for rate in rates if rate is not None), default=None)


def _drop_repeats(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def losses(failures: Sequence[WorkerFailure]) -> tuple[str, ...]:
    """Render a line for each lost worker, whose share of the load is in no figure."""
    return tuple(
        f"{lost.who} was lost ({lost.reason}): its {lost.completed:,} completed "
        "requests are in no figure"
        for lost in failures
    )


# Is the client the bottleneck? With all thresholds and their reasons.

NON_IDLE_LIMIT = 0.85
"""Above this share of time running or waiting for a CPU, a thread has no slack left. CPU time alone
misses that: with two hogs on its core a saturated client shows 0.33 of a core (measured)."""

ADDED_SHARE = 0.10
"""The client adds to the latency: responses wait in the kernel until it reads them, and requests
are sent late. It is a limit when that is more than this share of the latency, both summed over all
requests, so that a tail of the server counts in full. With one connection no response waits behind
another in the kernel, so that part does not count."""

ADDED_P50_NS = 200_000
ADDED_P99_SHARE = 0.01
"""The added time is no limit while its median is below the first and its p99 below this share of
the latency's p99, however short the latency: a timer is late by 50 us on an idle host."""

RUN_QUEUE_LIMIT = 0.05
"""For a spinning client, which is never idle: above this share of time waiting for a CPU its sends
are late. Its non-idle share means nothing."""


def added_share(added: Histogram, latency: Histogram) -> float | None:
    """Return the share of the mean latency that the client added; None if that is no limit."""
    (p50, p99), whole = added.percentiles((0.5, 0.99)), latency.percentile(0.99)
    if p50 is None or p99 is None or not whole or not latency.mean:
        return None
    if p50 < ADDED_P50_NS and p99 < ADDED_P99_SHARE * whole:
        return None
    share = (added.mean or 0.0) / latency.mean
    return share if share > ADDED_SHARE else None


def judged(result: LoadResult) -> LoadResult:
    """Return the result with the verdict on its client."""
    return structs.replace(result, verdict=client_verdict(result))


def _verdict(result: LoadResult, bound: bool, reasons: Sequence[str]) -> ClientVerdict:
    """Return a verdict with its evidence."""
    # What the client adds to the latency: how late a request is sent, and how long its answer waits
    # for the client; of aiohttp also the client's own work on both.
    latency, lag = result.latency.joined(result.censored), result.send_lag
    added_ns, inside_ns = None, result.handling.mean or result.pickup.mean
    if inside_ns is not None and latency.mean is not None:
        lag_ns = lag.without_highest(result.waited).mean or 0.0
        added_ns = min(lag_ns + inside_ns, latency.mean)  # of samples: they may be the slow ones
    return ClientVerdict(
        client_bound=bound,
        reasons=tuple(reasons),
        non_idle=find_highest(worker.non_idle for worker in result.workers),
        run_queue_wait=find_highest(worker.run_queue_wait for worker in result.workers),
        pickup_p50_ns=result.pickup.percentile(0.5),
        latency_p50_ns=latency.percentile(0.5),
        added_ns=added_ns,
        mean_latency_ns=None if added_ns is None else latency.mean,
    )


def client_verdict(result: LoadResult) -> ClientVerdict:
    """Judge whether the client limited the figures, and why.

    Requests without an answer, and streams without an event, count with the time that they were
    waited for: the client is no limit if the server has stopped answering. One that waited for a
    free connection was not sent late: that is due to the server.
    """
    reasons, workers, pickup = [], result.workers, result.pickup
    latency = result.latency.joined(result.censored)
    first = result.ttft.joined(result.ttft_censored)
    spinning = any(worker.timer == "spin" for worker in workers)
    non_idle = find_highest(worker.non_idle for worker in workers)
    wait = find_highest(worker.run_queue_wait for worker in workers)
    if not spinning and non_idle is not None and non_idle > NON_IDLE_LIMIT:
        reasons.append(
            f"a load worker ran or waited for a CPU {100 * non_idle:.0f} % of the time "
            f"(limit {100 * NON_IDLE_LIMIT:.0f} %)"
        )
    if spinning and wait is not None and wait > RUN_QUEUE_LIMIT:
        reasons.append(f"a spinning load worker waited for a CPU {100 * wait:.0f} % of the time")
    several = sum(worker.connections for worker in workers) > 1
    if several and (share := added_share(pickup, latency)) is not None:
        reasons.append(f"responses waited in the client for {100 * share:.0f} % of their latency")
    gaps = result.itl
    # Without events of one read: a burst is as fast as it is read, whoever reads it.
    apart = Histogram([0, *gaps.counts[1:]], gaps.max or 0, gaps.unit)
    paced = several and 2 * apart.count > gaps.count
    if paced and (share := added_share(pickup, apart)) is not None:
        reasons.append(f"events waited in the client for {100 * share:.0f} % of their ITL")
    delayed, name = (first, "TTFT") if first.count else (latency, "latency")
    if (share := added_share(result.send_lag.without_highest(result.waited), delayed)) is not None:
        reasons.append(f"requests were sent late by {100 * share:.0f} % of their {name}")
    return _verdict(result, bool(reasons), reasons)
