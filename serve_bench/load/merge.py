"""The workers' reports and histograms, added up to one result.

Rule: only adds and checks. A result whose accounting does not balance raises BrokenAccount:
it is a defect of the engine and must not be printed as a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import (
    ERROR_CLASSES,
    HISTOGRAMS,
    ClientVerdict,
    Counts,
    LoadResult,
    Warmup,
    WorkerFailure,
    WorkerReport,
)
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load.evidence import client_verdict
from serve_bench.load.failures import BrokenAccount, LoadError
from serve_bench.load.shared import COMPLETED, KINDS, Shared
from serve_bench.load.workers import Worker

Snapshot = dict[str, Any]


def merge(
    load: Load, timing: Timing, shared: Shared, workers: Sequence[Worker], warmup: Warmup
) -> LoadResult:
    """The result of all workers that reported. Raises LoadError when none did."""
    done = [worker for worker in workers if "done" in worker.said]
    failures = tuple(
        worker.failure(shared.live(worker.index)[COMPLETED])
        for worker in workers
        if "done" not in worker.said
    )
    if not done:
        reason = "; ".join(f"worker {f.pid}: {f.reason}" for f in failures)
        request = load.request
        raise LoadError("worker", request.host, request.port, f"no worker is left: {reason}")
    boards = [worker.index for worker in done]
    result = result_of(
        load,
        timing,
        warmup,
        [worker.said["done"]["reports"][0] for worker in done],
        {kind: merged(shared, boards, kind) for kind in KINDS},
        tuple(worker_report(worker) for worker in done),
    )
    return replace(result, failures=failures)


def losses(failures: Sequence[WorkerFailure]) -> tuple[str, ...]:
    """One line for each worker that was lost: the figures lack its share of the load."""
    return tuple(
        f"{lost.who} was lost ({lost.reason}): its {lost.completed:,} completed "
        "requests are in no figure"
        for lost in failures
    )


def worker_report(worker: Worker) -> WorkerReport:
    said = worker.said["done"]
    names = ("connections", "cpu_s", "non_idle", "run_queue_wait", "max_rss_mb", "timer")
    return WorkerReport(pid=worker.pid, **{name: said[name] for name in names})


def merged(shared: Shared, boards: Iterable[int], kind: str) -> Histogram:
    out = Histogram()
    for board in boards:
        out.merge(shared.read(board, "measured", kind))
    return out


def result_of(
    load: Load,
    timing: Timing,
    warmup: Warmup,
    reports: Sequence[dict[str, Any]],
    histograms: dict[str, Histogram],
    workers: tuple[WorkerReport, ...],
) -> LoadResult:
    """Put reports (of whole workers, or of one side of a sliced load) together."""
    begin = _sum_of([r["snapshots"]["begin"] for r in reports])
    end = _sum_of([r["snapshots"]["end"] for r in reports])
    final = _sum_of([r["snapshots"]["final"] for r in reports])
    cohort = _sum_of([r["cohort"] for r in reports])
    measured, total, in_windows = _counts(None, cohort), _counts(None, final), _counts(begin, end)
    latency, service_time = Histogram(), Histogram()
    for whole, part in ((latency, "latency"), (service_time, "service_time")):
        whole.merge(histograms["equal"])
        whole.merge(histograms[part])
    _check((measured, total, in_windows), latency, histograms)
    measure_ns = min(r["measure_ns"] for r in reports)
    duration_s = (max(r["end_ns"] for r in reports) - measure_ns) / 1e9
    by_count = load.total is not None and len(reports[0]["windows"]) == 1
    lag, pickup = histograms["send_lag"], histograms["pickup"]
    sent_late = lag.without_highest(cohort["waited"])
    flying = [r["mean_in_flight"] for r in reports]
    return LoadResult(
        windows=_windows(reports),
        window_s=duration_s if by_count else timing.window_s,
        duration_s=duration_s,
        warmup=replace(warmup, completed=begin["completed"]),
        latency=latency,
        service_time=service_time,
        send_lag=lag,
        pickup=pickup,
        failed_latency=histograms["failed_latency"],
        measured=measured,
        total=total,
        status_codes={int(code): n for code, n in sorted(cohort["codes"].items())},
        bytes_received=end["bytes"] - begin["bytes"],
        retried=end["retried"] - begin["retried"],
        reconnects=end["reconnects"] - begin["reconnects"],
        workers=workers,
        waited=cohort["waited"],
        verdict=client_verdict(workers, pickup, latency.joined(histograms["censored"]), sent_late),
        connection_rate_max=highest(r["connection_rate_max"] for r in reports),
        in_windows=in_windows,
        mean_in_flight=None if None in flying else sum(flying),
        censored=histograms["censored"],
    )


def highest(rates: Iterable[float | None]) -> float | None:
    """The highest of the known; None where none is known."""
    return max((rate for rate in rates if rate is not None), default=None)


def _windows(reports: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    """Completed requests per window. Workers that were interrupted may differ by a window."""
    interrupted = any(report["aborted"] for report in reports)
    each = zip(*(report["windows"] for report in reports), strict=not interrupted)
    return tuple(map(sum, each))


def _sum_of(snapshots: Sequence[Snapshot]) -> Snapshot:
    out: Snapshot = {"failed": Counter(), "codes": Counter()}
    for snapshot in snapshots:
        for key, value in snapshot.items():
            if isinstance(value, dict):
                out[key].update(value)
            else:
                out[key] = out.get(key, 0) + value
    return out


def _counts(begin: Snapshot | None, end: Snapshot) -> Counts:
    start = begin or {"sent": 0, "completed": 0, "failed": {}, "in_flight": 0}
    failed = {c: end["failed"][c] - start["failed"].get(c, 0) for c in ERROR_CLASSES}
    return Counts(
        sent=end["sent"] - start["sent"],
        completed=end["completed"] - start["completed"],
        failed={name: n for name, n in failed.items() if n},
        in_flight=end["in_flight"],
        carried_in=start["in_flight"],
        unsent=end["unsent"],
    )


def _check(
    accounts: tuple[Counts, ...], latency: Histogram, histograms: Mapping[str, Histogram]
) -> None:
    """`accounts`: of the requests of the windows, then all others."""
    measured = accounts[0]
    for counts in accounts:
        if not counts.balanced:
            raise BrokenAccount(f"an account does not balance: {counts}")
    check_counts(measured, latency, histograms["failed_latency"], histograms["censored"])


def check_counts(
    measured: Counts, latency: Histogram, failed: Histogram, censored: Histogram
) -> None:
    """Raises BrokenAccount unless every request of the windows has its one time."""
    given_up = measured.failed.get("timeout", 0) + measured.in_flight + measured.unsent
    if (latency.count, failed.count, censored.count) != (
        *(measured.completed, measured.failed_total),
        given_up,
    ):
        raise BrokenAccount(
            f"{latency.count} latencies, {failed.count} of failures and {censored.count} of what "
            f"was given up, for {measured}"
        )


# --------------------------------------------------------------------------------------------------
# Results of one load that several nodes drove, each its share, added up to one result.
#
# Rule: only adds and checks, as is done above with the workers of one node. A node that was
# interrupted may have fewer windows than another: what is there up to the shortest is added up.

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
    measured = _summed([one.measured for one in results])
    total = _summed([one.total for one in results])
    _check_sum((measured, total), merged)
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
        in_windows=_summed(within) if len(within) == len(results) else None,
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


def _summed(every: Sequence[Counts]) -> Counts:
    return Counts(
        sent=sum(one.sent for one in every),
        completed=sum(one.completed for one in every),
        failed=dict(_added(one.failed for one in every)),
        in_flight=sum(one.in_flight for one in every),
        carried_in=sum(one.carried_in for one in every),
        unsent=sum(one.unsent for one in every),
    )


def _check_sum(accounts: tuple[Counts, Counts], merged: Mapping[str, Histogram]) -> None:
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
