"""The figures over all rounds of a benchmark, for assertions, for `extra_info` and a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serve_bench.analysis.statistics import LowerBound
from serve_bench.core.failed_requests import failures
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load


@dataclass(frozen=True)
class Served:
    """What answered. `variant`, `ray` and `replicas` (by deployment) are None for a URL that this
    session did not deploy."""

    target: str
    variant: str | None = None
    ray: str | None = None
    replicas: Mapping[str, int] | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RoundFigures:
    """Latencies in milliseconds; None where nothing was answered.

    `requests`: of a round. `requests_per_s`: completed requests over the time of all rounds.
    `errors`: failed requests by class. `client_bound`: more than half of the rounds were, with the
    reasons of the last such round.
    """

    rounds: int
    requests: int
    requests_per_s: float
    completed: int
    errors: Mapping[str, int]
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    client: str
    connections: int
    client_bound: bool
    client_reasons: tuple[str, ...]
    target: str
    variant: str | None
    ray: str | None
    replicas: Mapping[str, int] | None
    options: Mapping[str, Any] | None
    host: Mapping[str, Any]

    @property
    def failed(self) -> int:
        """Failed requests of all classes."""
        return sum(self.errors.values())

    def to_json(self) -> dict[str, Any]:
        """Plain content, for `extra_info`; the rounds' times are pytest-benchmark's own affair."""
        return asdict(self) | {"client_reasons": list(self.client_reasons)}

    def lines(self) -> list[str]:
        """A few lines for a terminal: what was measured, of what, and what casts doubt on it."""
        latency = f"p50 {_milliseconds(self.p50_ms)}, p99 {_milliseconds(self.p99_ms)}"
        rate, noun = self.requests_per_s, "round" if self.rounds == 1 else "rounds"
        lines = [
            f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}",
            f"{self.client}:{self.connections}, {self.rounds} {noun} of {self.requests:,} requests",
        ]
        lines[0] += f" requests/s, {latency}, errors: {failures(self.errors) or 'none'}"
        if self.variant is not None:
            replicas = ", ".join(f"{name} {n}" for name, n in (self.replicas or {}).items())
            lines.append(f"{self.variant}, Ray {self.ray}, replicas: {replicas or 'not known'}")
        if self.client_bound:
            reasons = "; ".join(self.client_reasons) or "no reason given"
            lines.append(f"warning: the client was the limit: {reasons}")
        return lines


def compute_figures(
    load: Load, results: Sequence[LoadResult], served: Served, host: Mapping[str, Any]
) -> RoundFigures:
    """The figures over the rounds of a load (at least one)."""
    latency, censored = Histogram(), Histogram()
    errors: Counter[str] = Counter()
    for result in results:
        latency.merge(result.latency)
        censored.merge(result.censored)
        errors.update({name: count for name, count in result.measured.failed.items() if count})
    bound = [result.verdict for result in results if result.verdict.client_bound]
    client_bound = len(bound) > len(results) / 2
    completed = sum(result.completed_in_windows for result in results)
    total_s = sum(result.duration_s for result in results)
    p50, p90, p99, highest = (
        LowerBound((value or 0) / 1e6) if lower else value and value / 1e6
        for value, lower in bounded(latency, censored, (0.5, 0.9, 0.99, 1.0))
    )
    if not censored.count and latency.max is not None:
        highest = latency.max / 1e6
    return RoundFigures(
        rounds=len(results),
        requests=load.count or 0,
        requests_per_s=completed / total_s if total_s > 0 else 0.0,
        completed=completed,
        errors=dict(errors),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        max_ms=highest,
        client=load.client,
        connections=load.connections,
        client_bound=client_bound,
        client_reasons=bound[-1].reasons if client_bound else (),
        target=served.target,
        variant=served.variant,
        ray=served.ray,
        replicas=served.replicas,
        options=served.options,
        host=host,
    )


def _milliseconds(value: float | None) -> str:
    sign = "> " if isinstance(value, LowerBound) else ""
    return "-" if value is None else f"{sign}{value:.3g} ms"
