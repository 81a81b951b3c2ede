"""Results of a load that nobody drove, for tests of what comes after one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import ClientVerdict, Counts, LoadResult, Warmup, WorkerReport
from serve_bench.core.load_spec import Load, Timing

MS = 1_000_000


def a_result(latencies: Sequence[int], windows: tuple[int, ...], **change: Any) -> LoadResult:
    """Make a node's result with these latencies (ns) in its windows; 3 requests timed out."""
    done = len(latencies)
    result = LoadResult(
        windows=windows,
        window_s=1.0,
        duration_s=float(len(windows)),
        warmup=Warmup(0.5, True, 7),
        latency=Histogram.of(latencies),
        service_time=Histogram.of(latencies),
        pickup=Histogram.of([1000, 3000]),
        failed_latency=Histogram.of([5, 6, 7]),
        censored=Histogram.of([5, 6, 7, 9, 9]),
        measured=Counts(done + 5, done, {"timeout": 3}, 2),
        in_windows=Counts(done + 5, done - 1, {"timeout": 2}, 6, carried_in=2),
        mean_in_flight=3.5,
        total=Counts(done + 10, done + 7, {"timeout": 3}, 0),
        status_codes={200: done},
        bytes_received=100 * done,
        retried=1,
        reconnects=3,
        early=2,
        workers=(WorkerReport(1, 4, 0.5, 0.5, 0.1, 18.0, "none"),),
        verdict=ClientVerdict(False, (), 0.5, 0.1, 1000, 2000),
        started_at_ns=11,
        time_to_connect_s=0.1,
        connecting_s=0.05,
    )
    return structs.replace(result, **change)


def round_of(
    load: Load,
    duration_s: float,
    *,
    latency_ms: float = 1.0,
    failed: Mapping[str, int] | None = None,
    done: int | None = None,
    client_bound: bool = False,
) -> LoadResult:
    """Make a round of `load` that took so long. `done`: how many requests ended; None: all."""
    failed = failed or {}
    ended = (load.count or 100) if done is None else done
    counts = Counts(ended, ended - sum(failed.values()), failed, 0)
    why = ("never idle",) if client_bound else ()
    about: dict[str, Any] = {
        **dict.fromkeys(("window_s", "duration_s"), duration_s),
        **dict.fromkeys(("measured", "in_windows", "total"), counts),
        **{"retried": 0, "early": 0, "censored": Histogram()},
        "failed_latency": Histogram.of([5] * counts.failed_total),
        "verdict": ClientVerdict(client_bound, why, None, None, None, None),
    }
    return a_result([round(latency_ms * 1e6)] * counts.completed, (counts.completed,), **about)


@dataclass
class Scripted:
    """Stands in for `drive_load`: rounds of these lengths, the last again and again, or errors."""

    script: list[float | LoadResult | BaseException]
    loads: list[Load] = field(default_factory=list)

    def __call__(
        self, load: Load, timing: Timing, *, mark: Mapping[str, str] | None = None
    ) -> LoadResult:
        self.loads.append(load)
        turn = self.script[min(len(self.loads), len(self.script)) - 1]
        if isinstance(turn, BaseException):
            raise turn
        return round_of(load, turn) if isinstance(turn, float) else turn
