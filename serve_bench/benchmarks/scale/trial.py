"""From what a workload of scale gave to the record of a trial. Pure.

Rule: a result of which more than 1 % failed is marked invalid here, once, whoever measured it.
What the record of a load is made of stands in core/plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.benchmarks.scale.request import invalid_share
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.load_result import LoadResult
from serve_bench.core.nodes import NODE
from serve_bench.core.plan import trial_of
from serve_bench.core.result import JsonObject, Metric, PlannedTrial, Trial

SERVING: Final = (
    *("replica", "proxy", "fallback_proxy", "haproxy", "haproxy_manager", "controller"),
    *("raylet", "gcs", "dashboard_agent", "runtime_env_agent"),
)
"""Roles of the processes whose CPU per request costs; the load's own are not among them."""


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
