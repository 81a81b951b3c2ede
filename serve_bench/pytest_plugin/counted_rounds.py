"""Loads of a fixed number of requests, one after the other: a round's time is what varies.

Rule: a round is timed from its first request to its last response. What comes around that (worker
processes, connections) is told to a clock, which leaves it out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from serve_bench.analysis.statistics import LowerBound
from serve_bench.core.errors import RunFailed
from serve_bench.core.failed_requests import failures
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import LoadResult, Warmup
from serve_bench.core.load_spec import Load, Timing
from serve_bench.load import LoadError, drive_load

# --------------------------------------------------------------------------------------------------
# Rounds of a fixed number of requests, as figures for assertions, records and a terminal.
#
# Rule: words alone. What a round is, and how it is driven, stands below; who shows
# the figures (pytest_plugin.py) is not known here.

#: What two rounds must have in common, or their times say nothing about each other.
ALIKE: Final = ("requests", "client", "connections", "method", "path", "body_bytes", "variant")


@dataclass(frozen=True)
class RoundsTarget:
    """What answered. `variant`, `ray` and `replicas` (by deployment) are None for a URL that this
    session did not deploy."""

    target: str
    variant: str | None = None
    ray: str | None = None
    replicas: Mapping[str, int] | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RoundFigures:
    """The figures over all rounds. Latencies in milliseconds; None where nothing was answered.

    `requests`: of a round. `requests_per_s`: completed requests over the time of all rounds.
    `errors`: failed requests by class. `client_bound`: more than half of the rounds were, with the
    reasons of the last such round. `steady`: whether the warm-up had ended so, `judged`: whether it
    had enough requests to tell; None without one.
    """

    requests: int
    round_s: tuple[float, ...]
    requests_per_s: float
    completed: int
    errors: Mapping[str, int]
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    client: str
    connections: int
    method: str
    path: str
    body_bytes: int
    client_bound: bool
    client_reasons: tuple[str, ...]
    warmup_s: float
    steady: bool | None
    judged: bool | None
    target: str
    variant: str | None
    ray: str | None
    replicas: Mapping[str, int] | None
    options: Mapping[str, Any] | None
    host: Mapping[str, Any]

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return len(self.round_s)

    @property
    def failed(self) -> int:
        """Failed requests of all classes."""
        return sum(self.errors.values())

    def to_json(self) -> dict[str, Any]:
        """Plain content, for `extra_info`; the rounds' times are pytest-benchmark's own affair."""
        content = asdict(self) | {
            "rounds": self.rounds,
            "client_reasons": list(self.client_reasons),
        }
        del content["round_s"]
        return content

    def lines(self) -> list[str]:
        """A few lines for a terminal: what was measured, of what, and what casts doubt on it."""
        errors = failures(self.errors)
        latency = f"p50 {_ms(self.p50_ms)}, p99 {_ms(self.p99_ms)}"
        noun = "round" if self.rounds == 1 else "rounds"
        lines = [
            f"{_rate(self.requests_per_s)} requests/s, {latency}, errors: {errors or 'none'}",
            f"{self.client}:{self.connections}, {self.rounds} {noun} of {self.requests:,} requests",
        ]
        if self.variant is not None:
            replicas = ", ".join(f"{name} {n}" for name, n in (self.replicas or {}).items())
            lines.append(f"{self.variant}, Ray {self.ray}, replicas: {replicas or 'not known'}")
        return lines + [f"warning: {doubt}" for doubt in self.doubts()]

    def doubts(self) -> list[str]:
        """What casts doubt on the figures, one line each."""
        doubts = []
        if self.client_bound:
            why = "; ".join(self.client_reasons) or "no reason given"
            doubts.append(f"the client was the limit: {why}")
        if self.judged is False:
            doubts.append(
                f"the warm-up of {self.warmup_s:.1f} s had too few requests to tell whether "
                "the rate had settled"
            )
        elif self.steady is False:
            doubts.append(f"the rate was not steady after {self.warmup_s:.1f} s of warm-up")
        return doubts


def figures_of(
    load: Load,
    results: Sequence[LoadResult],
    warmup: Warmup | None,
    subject: RoundsTarget,
    host: Mapping[str, Any],
) -> RoundFigures:
    """The figures over the rounds of a load (at least one)."""
    latency, censored = Histogram(), Histogram()
    errors: dict[str, int] = {}
    for one in results:
        latency.merge(one.latency)
        censored.merge(one.censored)
        for name, count in one.measured.failed.items():
            if count:
                errors[name] = errors.get(name, 0) + count
    bound = [one.verdict for one in results if one.verdict.client_bound]
    many = len(bound) > len(results) / 2
    completed = sum(one.completed_in_windows for one in results)
    total_s = sum(one.duration_s for one in results)
    shares = bounded(latency, censored, (0.5, 0.9, 0.99, 1.0))
    p50, p90, p99, highest = (
        LowerBound((value or 0) / 1e6) if lower else _in_ms(value) for value, lower in shares
    )
    request = load.request
    return RoundFigures(
        requests=load.count or 0,
        round_s=tuple(one.duration_s for one in results),
        requests_per_s=completed / total_s if total_s > 0 else 0.0,
        completed=completed,
        errors=errors,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        max_ms=highest if censored.count else _in_ms(latency.max),
        client=load.client,
        connections=load.connections,
        method=request.method,
        path="/" + request.url.split("://", 1)[-1].partition("/")[2],
        body_bytes=len(request.body),
        client_bound=many,
        client_reasons=bound[-1].reasons if many else (),
        warmup_s=warmup.seconds if warmup is not None else 0.0,
        steady=None if warmup is None else warmup.steady,
        judged=None if warmup is None else warmup.judged,
        target=subject.target,
        variant=subject.variant,
        ray=subject.ray,
        replicas=subject.replicas,
        options=subject.options,
        host=host,
    )


def unlike(now: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """What a stored round had otherwise, one entry each; empty where the times can be compared."""
    return [
        f"{name} {stored[name]}, here {now.get(name)}"
        for name in ALIKE
        if name in stored and stored[name] != now.get(name)
    ]


def _in_ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6


def _ms(value: float | None) -> str:
    sign = "> " if isinstance(value, LowerBound) else ""
    return "-" if value is None else f"{sign}{value:.3g} ms"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# --------------------------------------------------------------------------------------------------

#: The warm-up is a load of its own, which needs a window; nothing of it is kept.
_AFTER_WARMUP_S: Final = 0.05

_WARMUP_MIN_S: Final = 0.5


class LoadClock:
    """A clock that advances as perf_counter does, but for what `leave_out` takes away."""

    def __init__(self) -> None:
        self._left_out_s = 0.0

    def load_time(self) -> float:
        """Seconds, from no fixed beginning. Two readings with a round between them differ by what
        the load took."""
        return time.perf_counter() - self._left_out_s

    def leave_out(self, seconds: float) -> None:
        """Takes these seconds, which have passed since the last reading, out of the time."""
        self._left_out_s += seconds


@dataclass
class CountedRounds:
    """Rounds of one load, which must have a count. `longest_s` cuts a round off that does not end.

    `results` holds every round that was whole, in order.
    """

    load: Load
    clock: LoadClock
    mark: Mapping[str, str] = field(default_factory=dict)
    longest_s: float = 120.0
    errors_allowed: bool = False
    results: list[LoadResult] = field(default_factory=list, init=False)
    warmup: Warmup | None = field(default=None, init=False)

    def warm_up(self, longest_s: float) -> None:
        """Loads until the rate is steady, at most so long. Raises RunFailed when it cannot."""
        timing = Timing(
            warmup_min_s=min(_WARMUP_MIN_S, longest_s),
            warmup_max_s=longest_s,
            windows=1,
            window_s=_AFTER_WARMUP_S,
        )
        self.warmup = self._drive(replace(self.load, count=None), timing).warmup

    def round(self) -> LoadResult:
        """One round. Raises RunFailed when it was not whole or requests of it failed."""
        began = time.perf_counter()
        result = self._drive(self.load, Timing(0.0, 0.0, windows=1, window_s=self.longest_s))
        self._check(result)
        self.results.append(result)
        self.clock.leave_out(time.perf_counter() - began - result.duration_s)
        return result

    def _drive(self, load: Load, timing: Timing) -> LoadResult:
        try:
            return drive_load(load, timing, mark=self.mark)
        except LoadError as error:
            raise RunFailed(f"the load could not be run: {error}") from None

    def _check(self, result: LoadResult) -> None:
        number, count = len(self.results) + 1, self.load.count or 0
        for lost in result.failures:
            raise RunFailed(f"round {number}: {lost.who} failed: {lost.reason}")
        failed = {name: n for name, n in result.measured.failed.items() if n}
        ended = result.ended_in_windows  # what came in the drain is in no figure of the round
        if ended < count:
            raise RunFailed(
                f"round {number} was cut off after {self.longest_s:g} s: {ended:,} of {count:,} "
                "requests had ended; ask for fewer, or give round_timeout_s"
            )
        if failed and not self.errors_allowed:
            raise RunFailed(
                f"round {number}: {sum(failed.values()):,} of {count:,} requests failed: "
                f"{failures(failed, result.status_codes)}"
            )
