"""From what a workload of scale gave to the record of a trial. Pure.

Rule: a result of which more than 1 % failed is marked invalid here, once, whoever measured it.
What the record of a load is made of stands in core/plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from serve_bench.analysis.statistics import CENSORED
from serve_bench.benchmarks.scale.request import invalid_share
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, LoadResult, Warmup
from serve_bench.core.nodes import NODE
from serve_bench.core.plan import trial_of
from serve_bench.core.result import JsonObject, Metric, PlannedTrial, Trial

SERVING: Final = (
    *("replica", "proxy", "fallback_proxy", "haproxy", "haproxy_manager", "controller"),
    *("raylet", "gcs", "dashboard_agent", "runtime_env_agent"),
)
"""Roles of the processes whose CPU per request costs; the load's own are not among them."""


@dataclass(frozen=True)
class HandleResult:
    """What clients that call a handle measured: sent = completed + failed.

    `windows`: completed in each, none where requests came one after the other; `latencies_ns` of
    all that were sent in the measured part, which took `seconds`, and completed, then or later.
    `failed` by class: "body" (a wrong answer), "timeout", "backpressure", "replica", "unavailable",
    "error"; `examples`: lines about some of them. `censored_ns`: how long those were waited for
    that had a time-out. `late`: ended after the last window, `late_failed` of them failed.
    `flown_ns`: requests in flight times ns, over the windows. `drained_s`: how long the last
    answers took behind them.
    """

    seconds: float
    windows: tuple[int, ...]
    latencies_ns: tuple[int, ...]
    failed: Mapping[str, int] = field(default_factory=dict)
    censored_ns: tuple[int, ...] = ()
    late: int = 0
    late_failed: int = 0
    flown_ns: int = 0
    drained_s: float = 0.0
    warmup_completed: int = 0
    warmup_failed: int = 0
    examples: tuple[str, ...] = ()

    @property
    def completed(self) -> int:
        """Right answers to the requests of the measured part."""
        return len(self.latencies_ns)

    @property
    def sent(self) -> int:
        """All requests of the measured part."""
        return self.completed + sum(self.failed.values())

    @property
    def in_windows(self) -> Counts:
        """What happened within the windows. Failures are not told by class."""
        return Counts(
            sent=self.sent,
            completed=self.completed - (self.late - self.late_failed),
            failed={"all": sum(self.failed.values()) - self.late_failed},
            in_flight=self.late,
        )


def handle_trial(
    planned: PlannedTrial,
    launch: str,
    started_at: str,
    result: HandleResult,
    warmup_s: float,
    total_s: float,
) -> Trial:
    """The record of a row whose requests went through a handle."""
    latency = Histogram()
    for one in result.latencies_ns:
        latency.record(one)
    metrics = {"latency": Metric("ns", "lower", histogram=latency.encode())}
    if result.censored_ns:
        given_up = Histogram.of(result.censored_ns).encode()
        metrics[CENSORED] = Metric("ns", "lower", histogram=given_up)
    window_s = result.seconds / max(1, len(result.windows))
    counts = result.windows or (result.completed,)
    rates = tuple(count / window_s for count in counts if window_s > 0)
    return planned.measured(
        launch,
        started_at,
        window_s=window_s,
        warmup=Warmup(warmup_s, False, result.warmup_completed),  # of fixed length: not judged
        metrics={
            "throughput": Metric("requests/s", "higher", windows=rates or (0.0,)),
            **metrics,
        },
        counts=Counts(
            sent=result.sent,
            completed=result.completed,
            failed=dict(result.failed),
            in_flight=0,
        ),
        client={
            "examples": list(result.examples),
            "warmup_failed": result.warmup_failed,
            "in_windows": asdict(result.in_windows),
            "mean_in_flight": result.flown_ns / 1e9 / result.seconds if result.flown_ns else None,
        },
        seconds={"total": round(total_s, 4), "measured": round(result.seconds, 6)},
    )


def nodes_trial(
    planned: PlannedTrial,
    launch: str,
    started_at: str,
    result: LoadResult,
    nodes: Sequence[JsonObject],
    total_s: float,
) -> Trial:
    """The record of a load from several nodes. `nodes`: what each measured; the requests of those
    that were lost count as failed."""
    trial = trial_of(planned, launch, started_at, result, total_s)
    lost = sum(int(node["failed"].get(NODE, 0)) for node in nodes if node.get("lost"))
    counts = trial.counts
    if lost:
        failed = {**counts.failed, NODE: lost}
        counts = replace(counts, sent=counts.sent + lost, failed=failed)
    return replace(
        trial, counts=counts, client={**trial.client, "nodes": [dict(node) for node in nodes]}
    )


def why_invalid(trial: Trial) -> str | None:
    """Why a trial is that of a broken run; None where it is not."""
    counts = trial.counts
    share = invalid_share(counts.completed, counts.failed_total)
    if share is None:
        return None
    if not counts.completed and not counts.failed_total:
        return "invalid: no request was answered"
    return f"invalid: {100 * share:.1f} % of the requests failed ({failures_of([trial])})"


def with_values(trial: Trial, values: Mapping[str, tuple[str, float | None]]) -> Trial:
    """The trial with further metrics, of which less is better: name -> unit and value. A value that
    is not known makes none."""
    further = {
        name: Metric(unit, "lower", windows=(value,))
        for name, (unit, value) in values.items()
        if value is not None
    }
    return replace(trial, metrics={**trial.metrics, **further})


def cpu_us_a_request(usage: JsonObject, trial: Trial) -> float | None:
    """CPU of Ray's and Serve's processes in the measured part over the completed requests, in
    microseconds; None where it was not sampled. The load's own is left out."""
    shares = [
        one["cpu_percent"]
        for one in usage.get("processes", ())
        if one.get("role") in SERVING and one.get("cpu_percent") is not None
    ]
    seconds = trial.seconds.get("measured", 0.0)
    if not shares or not trial.completed_in_windows or seconds <= 0:
        return None
    return float(sum(shares)) / 100.0 * seconds / trial.completed_in_windows * 1e6
