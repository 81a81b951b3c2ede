"""Results of one load that several nodes drove, each its share, added up to one result.

Rule: only adds and checks, as `merge.py` does with the workers of one node. A node that was
interrupted may have fewer windows than another: what is there up to the shortest is added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import HISTOGRAMS, ClientVerdict, Counts, LoadResult, Warmup
from serve_bench.core.load_spec import Load
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.merge import check_counts, highest

K = TypeVar("K")


def combine(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    """The results of all nodes as one. Raises BrokenAccount when the sum does not balance.

    The windows of all nodes began together, so they are summed by index and `duration_s` is that of
    the longest; `started_at_ns` is the first node's, since clocks of nodes cannot be compared.
    Raises ValueError without results, or with windows of different lengths in a load by time.
    """
    if not results:
        raise ValueError("no results to combine")
    first = results[0]
    timed = load.total is None
    if timed and len({result.window_s for result in results}) > 1:
        raise ValueError("results with windows of different lengths cannot be combined")
    merged = {name: _merged(getattr(one, name) for one in results) for name in HISTOGRAMS}
    measured = _counts([one.measured for one in results])
    total = _counts([one.total for one in results])
    _check((measured, total), merged)
    within = [one.in_windows for one in results if one.in_windows is not None]
    flying = [one.mean_in_flight for one in results if one.mean_in_flight is not None]
    duration_s = max(one.duration_s for one in results)
    shortest = min(len(one.windows) for one in results)
    return replace(
        first,
        windows=tuple(sum(one.windows[k] for one in results) for k in range(shortest)),
        window_s=first.window_s if timed else duration_s,
        duration_s=duration_s,
        warmup=Warmup(
            max(one.warmup.seconds for one in results),
            all(one.warmup.steady for one in results),
            sum(one.warmup.completed for one in results),
            None if first.warmup.judged is None else all(one.warmup.judged for one in results),
        ),
        latency=merged["latency"],
        service_time=merged["service_time"],
        send_lag=merged["send_lag"],
        pickup=merged["pickup"],
        failed_latency=merged["failed_latency"],
        censored=merged["censored"],
        in_windows=_counts(within) if len(within) == len(results) else None,
        mean_in_flight=sum(flying) if len(flying) == len(results) else None,
        measured=measured,
        total=total,
        status_codes=dict(sorted(_added(one.status_codes for one in results).items())),
        bytes_received=sum(one.bytes_received for one in results),
        retried=sum(one.retried for one in results),
        reconnects=sum(one.reconnects for one in results),
        waited=sum(one.waited for one in results),
        workers=tuple(worker for one in results for worker in one.workers),
        verdict=_verdict(results, merged),
        failures=tuple(failure for one in results for failure in one.failures),
        time_to_connect_s=max(one.time_to_connect_s for one in results),
        connecting_s=max(one.connecting_s for one in results),
        notes=_unique(note for one in results for note in one.notes),
        connection_rate_max=highest(one.connection_rate_max for one in results),
    )


def _merged(histograms: Iterable[Histogram]) -> Histogram:
    out = Histogram()
    for one in histograms:
        out.merge(one)
    return out


def _added(counts: Iterable[Mapping[K, int]]) -> Counter[K]:
    out: Counter[K] = Counter()
    for one in counts:
        out.update(one)
    return out


def _counts(every: Sequence[Counts]) -> Counts:
    return Counts(
        sent=sum(one.sent for one in every),
        completed=sum(one.completed for one in every),
        failed=dict(_added(one.failed for one in every)),
        in_flight=sum(one.in_flight for one in every),
        carried_in=sum(one.carried_in for one in every),
        unsent=sum(one.unsent for one in every),
    )


def _check(accounts: tuple[Counts, Counts], merged: Mapping[str, Histogram]) -> None:
    for counts in accounts:
        if not counts.balanced:
            raise BrokenAccount(f"an account of all nodes does not balance: {counts}")
    measured, _ = accounts
    check_counts(measured, merged["latency"], merged["failed_latency"], merged["censored"])


def _verdict(results: Sequence[LoadResult], merged: Mapping[str, Histogram]) -> ClientVerdict:
    """The client set the figures when it did on any node."""
    verdicts = [one.verdict for one in results]
    return ClientVerdict(
        client_bound=any(one.client_bound for one in verdicts),
        reasons=_unique(reason for one in verdicts for reason in one.reasons),
        non_idle=highest(one.non_idle for one in verdicts),
        run_queue_wait=highest(one.run_queue_wait for one in verdicts),
        pickup_p50_ns=merged["pickup"].percentile(0.5),
        latency_p50_ns=merged["latency"].joined(merged["censored"]).percentile(0.5),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
