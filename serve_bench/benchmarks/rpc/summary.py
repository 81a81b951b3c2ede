"""Figures of `serve-bench rpc`: the four metrics of PyTorch's benchmark, from what a run recorded.

Pure. Rule: latencies are recorded, throughputs follow from them sample by sample: agent throughput
is batch_size / agent latency of the same batch, observer throughput 1 / observer latency of the
same call. So a percentile of a throughput is that of the latency from the other end. Nothing is
left out: a world that was planned and not measured has its point, and a failure stands with the
world it struck, or else with the run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, Spread, merged, summarize
from serve_bench.benchmarks.rpc.request import x_of
from serve_bench.core.errors import FormatError
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.result import Failure, JsonObject, Metric, Result, Run, Trial, cell_slug
from serve_bench.view.blocks import over_windows
from serve_bench.view.document import Finding
from serve_bench.view.inside import GroupedCpu, grouped_cpu
from serve_bench.view.rows import row_findings

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

AGENT_SECONDS, AGENT_RATE, OBSERVER_SECONDS, OBSERVER_RATE = NAMES

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
class MetricCurve:
    """The four metrics of one backend: percentiles by point of the x axis, then by NAMES, in
    seconds or requests/s."""

    name: str
    points: Mapping[str, Mapping[str, Mapping[int, float]]]


HOST_FULL: Final = 0.90
"""Of all cores of the host: what is left then goes to work in the kernel and to switching."""

AGENT_FULL: Final = 85.0
"""% of a core. The agent also waits for its requests, so that it does not reach 100."""


AGENT, OBSERVERS, OTHERS = "agent", "observers", "others"
"""Groups of the processes of a world; others: raylet, controller, the tool ..."""


def _group(role: str) -> str:
    return {"agent": AGENT, "observer": OBSERVERS}.get(role, OTHERS)


@dataclass(frozen=True)
class RpcPoint:
    """One world on one backend, over its launches, with the doubts and failures about it alone.

    `x`: its point of the x axis, as published. `figures` are by NAMES, empty where nothing was
    measured; `ratios` those of the medians to the same world on the first backend, and `more_s`
    what the median call of an observer takes more than there; neither on that one itself.
    """

    backend: str
    cell: JsonObject
    x_axis: str
    x: str
    line: Line
    cpu: GroupedCpu
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    figures: Mapping[str, Figures] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    more_s: float | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What was measured, a trial a launch."""
        return self.line.trials

    @property
    def title(self) -> str:
        """`torch, world_size 10`."""
        return f"{self.backend}, {self.x_axis} {self.x}"

    @property
    def rate(self) -> Spread | None:
        """Calls/s of all observers over episodes."""
        return self.line.spreads.get(MAIN)

    @property
    def episodes(self) -> int:
        spread = self.line.spreads.get(AGENT_THROUGHPUT)
        return spread.windows if spread is not None and self.figures else 0

    @property
    def batch_size(self) -> int:
        """Requests that the policy takes at once."""
        return int(self.cell["world_size"]) - 1 if self.cell["batch"] else 1

    @property
    def memory_bytes(self) -> int | None:
        """The most that all processes of the world took (proportional set); None: not known."""
        known = [one.client.get("memory_bytes") for one in self.trials]
        return max((int(one) for one in known if one is not None), default=None)

    @property
    def processes(self) -> int | None:
        """Processes of the world, where they were counted."""
        known = [one.client["processes"] for one in self.trials if one.client.get("processes")]
        return int(known[-1]) if known else None

    @property
    def cpu_ms_a_call(self) -> float | None:
        """What all processes of the world used of a core for a call, in ms; None: not known."""
        groups, rate = self.cpu.groups, self.rate
        if AGENT not in groups or rate is None or rate.mean <= 0:
            return None
        return 10.0 * sum(groups.get(name, 0.0) for name in (AGENT, OBSERVERS, OTHERS)) / rate.mean

    @property
    def limited(self) -> str | None:
        """What was full, where the figures say so."""
        cpu = self.cpu
        if cpu.host is not None and cpu.cores and cpu.host >= HOST_FULL * 100 * cpu.cores:
            return "host CPU"
        return "agent CPU" if cpu.busiest.get(AGENT, 0.0) >= AGENT_FULL else None

    @property
    def gap(self) -> str | None:
        """What is missing, in words; None if nothing is."""
        if self.line.status == "partly measured":
            return f"{len(self.trials)} of {len(self.line.keys)} launches measured"
        return None if self.figures else "not measured"

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(one.line for one in self.findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is missing, what broke off, what failed and what is doubted."""
        kept = [
            counted(len(over_windows(trial)), "whole episode")
            for trial in self.trials
            if trial.flags.get("interrupted")
        ]
        broken = [Finding(f"{episodes} kept", "broken off", "doubt") for episodes in kept]
        return row_findings(self.line, self.gap, self.failures, self.warnings, broken)


@dataclass(frozen=True)
class RpcSummary:
    """A whole run. `points`: every world that was planned, by backend in the order of the plan,
    then by the x axis; `warnings` and `failures`: those about no single world."""

    run: Run
    x_axis: str
    points: tuple[RpcPoint, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """In the order of the plan; ratios are to the first."""
        return tuple(dict.fromkeys(one.backend for one in self.points))

    @property
    def xs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.x for one in self.points))

    @property
    def by_x(self) -> tuple[RpcPoint, ...]:
        """The points by the x axis, then by backend, so that a world can be read across."""
        return tuple(one for x in self.xs for one in self.at(x))

    def at(self, x: str) -> tuple[RpcPoint, ...]:
        """Those of one point of the x axis, a backend each."""
        return tuple(one for one in self.points if one.x == x)

    def of(self, backend: str) -> tuple[RpcPoint, ...]:
        return tuple(one for one in self.points if one.backend == backend)

    @property
    def measured(self) -> tuple[RpcPoint, ...]:
        """Those that have figures, by the x axis."""
        return tuple(one for one in self.by_x if one.figures)

    @property
    def curves(self) -> tuple[MetricCurve, ...]:
        """The four metrics over the x axis, a curve for each backend that measured anything."""
        curves = (
            MetricCurve(
                name,
                {
                    one.x: {key: figures.percentiles for key, figures in one.figures.items()}
                    for one in self.of(name)
                    if one.figures
                },
            )
            for name in self.backends
        )
        return tuple(one for one in curves if one.points)

    @property
    def batched(self) -> frozenset[bool]:
        """Whether worlds take their requests in batches: yes, no, or some of each."""
        return frozenset(bool(one.cell["batch"]) for one in self.points)


def rpc_summary(result: Result) -> RpcSummary:
    """Figures, doubts and failures of a run, profiled worlds left out."""
    doubts, x_axis = checks(result), x_axis_of(result)
    points = [
        _point(line, x_axis, doubts, result.failures)
        for line in summarize(result)
        if line.status != "profiled"
    ]
    order = [cell_slug(one) for one in result.run.suite.get("worlds", ())]
    backends = list(dict.fromkeys(one.backend for one in points))
    points.sort(key=lambda one: (backends.index(one.backend), _place(one.cell, order)))
    bases = {cell_slug(one.cell): one for one in points if one.backend == backends[0]}
    keys = {key for one in points for key in one.line.keys}
    return RpcSummary(
        run=result.run,
        x_axis=x_axis,
        points=tuple(_beside(one, bases.get(cell_slug(one.cell))) for one in points),
        warnings=tuple(one for one in doubts if one.key is None),
        failures=tuple(one for one in result.failures if one.key not in keys),
    )


def x_axis_of(result: Result) -> str:
    """The argument that is swept; world_size where none was a list."""
    return str(result.run.suite.get("x_axis") or "world_size")


def _place(cell: JsonObject, order: list[str]) -> int:
    slug = cell_slug({name: value for name, value in cell.items() if name != "policy_ms"})
    return order.index(slug) if slug in order else len(order)


def _point(
    line: Line, x_axis: str, doubts: Sequence[Warning], failures: Sequence[Failure]
) -> RpcPoint:
    for name in ("world_size", "batch", x_axis):
        if name not in line.cell:
            raise FormatError(f"{line.keys[0]}: its cell has no {name}")
    point = RpcPoint(
        backend=line.variant,
        cell=line.cell,
        x_axis=x_axis,
        x=x_of(line.cell, x_axis),
        line=line,
        cpu=grouped_cpu([trial.usage for trial in line.trials], _group),
        warnings=tuple(one for one in doubts if one.key in line.keys and not one.profiled),
        # What a worker lost is among the doubts.
        failures=tuple(one for one in failures if one.key in line.keys and one.what != "worker"),
    )
    agent, observers = merged(line.trials, AGENT_LATENCY), merged(line.trials, OBSERVER_LATENCY)
    if not agent.count or not observers.count:
        return point
    figures = (
        latency_figures(agent),
        throughput_figures(agent, point.batch_size),
        latency_figures(observers),
        throughput_figures(observers, 1),
    )
    return replace(point, figures=dict(zip(NAMES, figures, strict=True)))


def _beside(point: RpcPoint, base: RpcPoint | None) -> RpcPoint:
    """The point with its ratios to the same world on the first backend; of what broke there are
    none."""
    if base is None or base is point or not base.figures or not point.figures:
        return point
    if base.line.broken or point.line.broken:
        return point
    medians = {
        name: (figures.percentiles[50], base.figures[name].percentiles[50])
        for name, figures in point.figures.items()
    }
    own, other = medians[OBSERVER_SECONDS]
    ratios = {name: own / other for name, (own, other) in medians.items() if other}
    return replace(point, ratios=ratios, more_s=own - other)


def latency_figures(latency: Histogram) -> Figures:
    """Of a histogram of ns that holds a value: in seconds."""
    shares = (*PERCENTILES, 99)
    values = latency.percentiles([share / 100 for share in shares])
    return Figures(
        {share: (value or 0) / 1e9 for share, value in zip(shares, values, strict=True)},
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


@dataclass
class Episodes:
    """What was measured in the episodes of one world, in ns, and the metrics made of it."""

    batch_size: int
    agent: Histogram = field(default_factory=Histogram)
    observers: Histogram = field(default_factory=Histogram)
    rates: list[float] = field(default_factory=list)  # calls/s of all observers
    agent_rates: list[float] = field(default_factory=list)  # mean of batch_size / agent latency
    observer_rates: list[float] = field(default_factory=list)  # mean of 1 / observer latency
    spans_s: list[float] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return self.observers.count

    def add(self, episode: Mapping[str, Any]) -> None:
        """One episode: `agent_ns`, `observer_ns` (a list for each observer), `began_ns`,
        `ended_ns`."""
        calls = [value for each in episode["observer_ns"] for value in each]
        span_s = (episode["ended_ns"] - episode["began_ns"]) / 1e9
        for value in episode["agent_ns"]:
            self.agent.record(value)
        for value in calls:
            self.observers.record(value)
        self.spans_s.append(span_s)
        self.rates.append(len(calls) / span_s)
        self.agent_rates.append(_mean_rate(episode["agent_ns"], self.batch_size))
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
