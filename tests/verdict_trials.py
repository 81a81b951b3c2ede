"""Trials made by hand, for the tests of what limited them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric, Trial
from serve_bench.core.traffic import Row
from tests.records import cell, planned, trial

WINDOWS = 10


def process(
    pid: int,
    role: str,
    cpu: float,
    *,
    wait: float | None = None,
    thread: float | None = None,
    thread_wait: float | None = None,
    of: str = "app:NoOp",
) -> dict[str, Any]:
    """Make a process as the sampler reports it; the figures in % of a core."""
    title = f"ray::ServeReplica:{of}" if role == "replica" else role
    return {
        "pid": pid,
        "role": role,
        "title": title,
        "cpu_percent": cpu,
        "busiest_thread_percent": thread,
        "run_queue_wait_percent": wait,
        "busiest_thread_wait_percent": thread_wait,
        "seen_s": float(WINDOWS),
    }


def usage(
    *processes: dict[str, Any], host: float, cores: int = 2, steal: float = 0.0
) -> dict[str, Any]:
    facts = {"cores": cores, "cpu_percent": host, "steal_percent": steal}
    return {"host": facts, "processes": list(processes)}


def serving(
    proxy: tuple[float, ...],
    replica: tuple[float, ...],
    *more: dict[str, Any],
    host: float,
    cores: int = 2,
    steal: float = 0.0,
) -> dict[str, Any]:
    """Make a proxy, a replica and what is beside them: CPU, wait, busiest thread (% of a core)."""
    two = []
    for pid, role, figures in ((1, "proxy", proxy), (2, "replica", replica)):
        cpu, wait, thread = (*figures, None, None)[:3]
        two.append(process(pid, role, cpu or 0.0, wait=wait, thread=thread))
    return usage(*two, *more, host=host, cores=cores, steal=steal)


def measured(
    connections: int,
    rate: float,
    seen: Mapping[str, Any],
    *,
    of: dict[str, Any] | None = None,
    latency_ms: float | None = None,
    loop: str = "closed",
    client: dict[str, Any] | None = None,
    left: int = 0,
    failed: int = 0,
) -> Trial:
    """Make a trial of 10 windows of 1 s; in a closed loop Little's law makes the latency."""
    row = Row(f"{connections} connections", "raw", connections, 1, loop=loop)
    if latency_ms is None:
        latency_ms = 1e3 * connections / rate
    histogram = Histogram.of([round(latency_ms * 1e6)] * round(rate * WINDOWS))
    return trial(
        planned(row=row, of=of or cell(queries=10000)),
        *[rate] * WINDOWS,
        failed={"timeout": failed} if failed else {},
        in_flight=left,
        latency=histogram.encode(),
        client=client,
        usage=seen,
    )


def with_metric(at: Trial, name: str, unit: str, *values: int) -> Trial:
    histogram = Histogram.of(values)
    histogram.unit = unit
    metric = Metric(unit, "higher", histogram=histogram.encode())
    return replace(at, metrics={**at.metrics, name: metric})


def bound(non_idle: float | None, wait: float | None, reason: str = "") -> dict[str, Any]:
    """Make what the client says of itself; a reason makes it the limit."""
    verdict = {
        "client_bound": bool(reason),
        "reasons": [reason] if reason else [],
        "non_idle": non_idle,
        "run_queue_wait": wait,
    }
    return {"verdict": verdict}


IDLE = usage(process(1, "proxy", 10, wait=0.5), process(2, "replica", 8, wait=0.5), host=30)
"""Nothing does much."""


def tiers(front_cpu: float, behind_cpu: float) -> dict[str, Any]:
    return usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", front_cpu, wait=1, of="app:Ingress"),
        process(3, "replica", behind_cpu, wait=1, of="app:Ranker.handle_request"),
        host=front_cpu + behind_cpu + 40,
        cores=4,
    )


def expect(
    trial: Trial,
    cause: str,
    sure: str = "",
    words: str = "",
    *,
    front: str | None = None,
    beside: Sequence[Trial] = (),
    behind: str = "",
) -> Verdict:
    """Expect this verdict on a trial: cause, certainty, words, deployment; empty: any."""
    verdict = limited_by(trial, front, beside)
    assert verdict.cause == cause and words in verdict.text, verdict.text
    assert sure in ("", verdict.confidence) and behind in ("", verdict.deployment), verdict
    return verdict
