"""Figures of `serve-bench rpc`: the four metrics of PyTorch's benchmark, from what a run recorded.

Pure. Rule: latencies are recorded, throughputs follow from them sample by sample: agent throughput
is batch_size / agent latency of the same batch, observer throughput 1 / observer latency of the
same call. So a percentile of a throughput is that of the latency from the other end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from serve_bench.analysis.statistics import Line, merged, summarize
from serve_bench.benchmarks.rpc.request import x_of
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.result import JsonObject, Metric, Result, Trial, cell_slug

AGENT_LATENCY, OBSERVER_LATENCY = "agent_latency", "latency"
AGENT_THROUGHPUT, OBSERVER_THROUGHPUT = "agent_throughput", "observer_throughput"
"""Metrics of a trial. The latencies are histograms (ns) of all its episodes; a call of an observer
is the request, so its latency bears the name that every suite gives it. The throughputs are
windows, one an episode: the mean over the batches or calls of that episode (requests/s). Beside
them stands the `throughput` of every suite: calls of all observers over the time of the episode."""

NAMES: Final = (
    *("agent latency (seconds)", "agent throughput"),
    *("observer latency (seconds)", "observer throughput"),
)
"""The four, as the source names them (serve_bench/reference/torch_rpc.json), in its order."""

PERCENTILES: Final = (50, 75, 90, 95)
"""As published."""


@dataclass(frozen=True)
class Figures:
    """One of the four metrics, in seconds or requests/s. Percentiles (50, 75, 90, 95 and 99):
    nearest rank, off by at most 0.05 %; `std` with ddof 0."""

    percentiles: Mapping[int, float]
    count: int
    mean: float
    std: float


@dataclass(frozen=True)
class RpcPoint:
    """One world on one backend, over its launches. `x`: its point of the x axis, as published.

    `figures` are by NAMES, empty where nothing was measured; `ratios` those of the medians to the
    same world on the first backend, empty on that one. `observed`: calls/s of all observers.
    """

    backend: str
    cell: JsonObject
    x: str
    line: Line
    figures: Mapping[str, Figures] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    episodes: int = 0

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What was measured, a trial a launch."""
        return self.line.trials

    @property
    def memory_bytes(self) -> int | None:
        """The most that all processes of the world took (proportional set); None: not known."""
        known = [one.client.get("memory_bytes") for one in self.trials]
        return max((int(one) for one in known if one is not None), default=None)

    @property
    def batch_size(self) -> int:
        """Requests that the policy takes at once."""
        return int(self.cell["world_size"]) - 1 if self.cell["batch"] else 1


def rpc_points(result: Result) -> tuple[RpcPoint, ...]:
    """Every world that was planned, by backend in the order of the plan, then by the x axis."""
    x_axis = str(result.run.suite.get("x_axis", "world_size"))
    points = [_point(line, x_axis) for line in summarize(result)]
    order = [cell_slug(one) for one in result.run.suite.get("worlds", ())]
    backends = list(dict.fromkeys(one.backend for one in points))
    points.sort(key=lambda one: (backends.index(one.backend), _place(one.cell, order)))
    base = {cell_slug(one.cell): one for one in points if backends and one.backend == backends[0]}
    return tuple(
        one if one.backend == backends[0] else _with_ratios(one, base.get(cell_slug(one.cell)))
        for one in points
    )


def _place(cell: JsonObject, order: list[str]) -> int:
    slug = cell_slug({name: value for name, value in cell.items() if name != "policy_ms"})
    return order.index(slug) if slug in order else len(order)


def _point(line: Line, x_axis: str) -> RpcPoint:
    agent, observers = merged(line.trials, AGENT_LATENCY), merged(line.trials, OBSERVER_LATENCY)
    cell = line.cell
    point = RpcPoint(line.variant, cell, x_of(cell, x_axis), line)
    if not agent.count or not observers.count:
        return point
    figures = (
        latency_figures(agent),
        throughput_figures(agent, point.batch_size),
        latency_figures(observers),
        throughput_figures(observers, 1),
    )
    spread = line.spreads.get(AGENT_THROUGHPUT)
    return RpcPoint(
        line.variant,
        cell,
        point.x,
        line,
        dict(zip(NAMES, figures, strict=True)),
        episodes=spread.windows if spread is not None else 0,
    )


def _with_ratios(point: RpcPoint, base: RpcPoint | None) -> RpcPoint:
    if base is None or not base.figures or not point.figures:
        return point
    if base.line.broken or point.line.broken:
        return point
    ratios = {
        name: figures.percentiles[50] / base.figures[name].percentiles[50]
        for name, figures in point.figures.items()
        if base.figures[name].percentiles[50]
    }
    return RpcPoint(
        point.backend, point.cell, point.x, point.line, point.figures, ratios, point.episodes
    )


def latency_figures(latency: Histogram) -> Figures:
    """Of a histogram of ns that holds a value: in seconds."""
    shares = (*PERCENTILES, 99)
    found = latency.percentiles([share / 100 for share in shares])
    return Figures(
        {share: (value or 0) / 1e9 for share, value in zip(shares, found, strict=True)},
        latency.count,
        (latency.mean or 0.0) / 1e9,
        (latency.std or 0.0) / 1e9,
    )


def throughput_figures(latency: Histogram, batch_size: int) -> Figures:
    """batch_size / latency of each value of a histogram of ns that holds one: in requests/s.

    The p-th percentile, nearest rank: the k-th smallest throughput, k = ceil(p n), is that of the
    k-th largest latency.
    """
    occupied = latency.occupied()
    running = list(accumulate(count for _, count in occupied))
    n = running[-1]

    def of(index: int) -> float:
        return batch_size * 1e9 / max(1, slot_middle(index))

    def ranked(share: int) -> float:
        from_top = max(1, math.ceil(share / 100 * n - 1e-9 * n))
        return of(occupied[bisect_left(running, n - from_top + 1)][0])

    mean = sum(of(index) * count for index, count in occupied) / n
    squares = sum((of(index) - mean) ** 2 * count for index, count in occupied)
    shares = (*PERCENTILES, 99)
    return Figures({one: ranked(one) for one in shares}, n, mean, math.sqrt(squares / n))


# ---------------------------------------------------------------------- from episodes to a trial


@dataclass
class Episodes:
    """What the episodes of one world gave, as it came in; times in ns. It makes the metrics."""

    batch_size: int
    agent: Histogram = field(default_factory=Histogram)
    observers: Histogram = field(default_factory=Histogram)
    rates: list[float] = field(default_factory=list)  # calls/s of all observers
    agent_rates: list[float] = field(default_factory=list)  # mean of batch_size / agent latency
    observer_rates: list[float] = field(default_factory=list)  # mean of 1 / observer latency
    spans_s: list[float] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """All calls of all observers."""
        return self.observers.count

    def add(self, told: Mapping[str, Any]) -> None:
        """One episode: `agent_ns`, `observer_ns` (a list for each observer), `began_ns`,
        `ended_ns`."""
        calls = [value for each in told["observer_ns"] for value in each]
        span_s = (told["ended_ns"] - told["began_ns"]) / 1e9
        for value in told["agent_ns"]:
            self.agent.record(value)
        for value in calls:
            self.observers.record(value)
        self.spans_s.append(span_s)
        self.rates.append(len(calls) / span_s)
        self.agent_rates.append(_mean_rate(told["agent_ns"], self.batch_size))
        self.observer_rates.append(_mean_rate(calls, 1))

    def metrics(self) -> dict[str, Metric]:
        """The metrics of a trial; at least one episode must have been added."""
        rate = "requests/s"
        return {
            "throughput": Metric(rate, "higher", windows=tuple(self.rates)),
            OBSERVER_LATENCY: Metric("ns", "lower", histogram=self.observers.encode()),
            AGENT_LATENCY: Metric("ns", "lower", histogram=self.agent.encode()),
            AGENT_THROUGHPUT: Metric(rate, "higher", windows=tuple(self.agent_rates)),
            OBSERVER_THROUGHPUT: Metric(rate, "higher", windows=tuple(self.observer_rates)),
        }


def _mean_rate(latencies_ns: list[int], batch_size: int) -> float:
    return sum(batch_size * 1e9 / max(1, one) for one in latencies_ns) / len(latencies_ns)
