"""Results of a load that nobody drove, for tests of what comes after one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import ClientVerdict, Counts, LoadResult, Warmup
from serve_bench.core.load_spec import Load, Timing


def round_of(
    load: Load,
    duration_s: float,
    *,
    latency_ms: float = 1.0,
    failed: Mapping[str, int] | None = None,
    done: int | None = None,
    client_bound: bool = False,
) -> LoadResult:
    """A round of `load` that took so long. `done`: how many requests ended; None: all."""
    failed = failed or {}
    ended = (load.count or 100) if done is None else done
    completed = ended - sum(failed.values())
    latency = Histogram()
    for _ in range(completed):
        latency.record(round(latency_ms * 1e6))
    counts = Counts(ended, completed, failed, 0)
    why = ("never idle",) if client_bound else ()
    return LoadResult(
        windows=(completed,),
        window_s=duration_s,
        duration_s=duration_s,
        warmup=Warmup(0.7, True, 10),
        latency=latency,
        service_time=latency,
        send_lag=Histogram(),
        pickup=Histogram(),
        failed_latency=Histogram(),
        measured=counts,
        in_windows=counts,
        total=counts,
        status_codes={200: completed},
        bytes_received=0,
        retried=0,
        reconnects=0,
        waited=0,
        workers=(),
        verdict=ClientVerdict(client_bound, why, None, None, None, None),
    )


@dataclass
class Scripted:
    """Stands in for `drive_load`: rounds of these lengths in turn, the last one again and again;
    an exception is raised. `loads`: what it was asked for."""

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
