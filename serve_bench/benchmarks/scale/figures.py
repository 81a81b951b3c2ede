"""The published metrics of `serve-bench scale` by their names, from the trials of one size.

Pure. Rule: a figure has a value for each launch, None where it is not known (a launch may
be missing); its mean and std are over the launches that have one. Metrics
of nodes are in nodes.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from serve_bench.analysis.statistics import (
    CENSORED,
    LATENCY,
    MAIN,
    Line,
    distribution,
    latency_figures,
    made_of,
    merged,
)
from serve_bench.benchmarks.scale.nodes import NODE_METRICS, Kind, node_figures, nodes_of
from serve_bench.benchmarks.scale.request import GRAPHS
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Trial
from serve_bench.view.rows import NS_PER_MS

GRAPH_NAMES: Final = (
    *("throughput_mean_tps", "throughput_std_tps"),
    *("latency_mean_ms", "latency_std_ms"),
)
"""As published, of requests through a handle; those through HTTP bear HTTP before them. Throughput:
mean and std over windows; latency: over the requests of all clients; std with ddof 0."""

HTTP: Final = "http_"

CLUSTER_NAMES: Final = (
    *("cluster_total_requests", "cluster_requests_per_s"),
    *(f"cluster_P{share}_latency_ms" for share in (50, 75, 90, 99)),
)
"""Ours beside the 13: the count under its right name, the rate of all nodes, and percentiles of all
requests, which a maximum over nodes is not."""


class Quantity(NamedTuple):
    """What is followed over the number of replicas. `figure`: its name; `short`: the
    name of its column."""

    name: str
    figure: str
    unit: str
    title: str
    short: str


QUANTITIES: Final = (
    Quantity("throughput", "cluster_requests_per_s", "requests/s", "throughput", "throughput"),
    Quantity("latency_p50", "latency_p50", "ms", "latency p50", "p50"),
    Quantity("latency_p99", "latency_p99", "ms", "latency p99", "p99"),
    Quantity("deploy_time", "deploy_time", "s", "deploy time", "deploy"),
    Quantity("memory_per_replica", "memory_per_replica", "MB", "memory per replica", "memory"),
    Quantity("cpu_per_request", "cpu_per_request", "us", "CPU per request", "CPU"),
    Quantity("controller_loop", "controller_loop", "ms", "controller loop", "loop"),
    Quantity("teardown_time", "teardown_time", "s", "teardown time", "teardown"),
)
"""Of a curve, in the order of a report."""


@dataclass(frozen=True)
class ScaleFigure:
    """A metric of one size under one variant. `values`: one a launch. `kind`: None for a count."""

    name: str
    unit: str
    kind: Kind | None
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[float, ...]:
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over launches, a LowerBound where one of theirs is; None where none has a value."""
        return made_of(statistics.fmean(self.known), self.known) if self.known else None

    @property
    def std(self) -> float | None:
        """Over launches (ddof 1: they are a sample of what could have been); None below two."""
        return statistics.stdev(self.known) if len(self.known) > 1 else None

    @property
    def count(self) -> int:
        """Launches that have a value."""
        return len(self.known)


def figures_of(lines: Sequence[Line], launches: Sequence[int]) -> dict[str, ScaleFigure]:
    """The figures of a size by name, in the order of a report."""
    workload = lines[0].cell.get("workload")
    if workload in GRAPHS:
        return {one.name: one for one in _graph(lines, launches)}
    trials = _by_launch(lines, launches)
    further = _curve(trials) if workload == "curve" else ()
    return {one.name: one for one in (*_cluster(trials), *further)}


Trials = Sequence[Trial | None]
"""A trial for each launch; None where one is missing."""


def _by_launch(lines: Iterable[Line], launches: Sequence[int]) -> Trials:
    trials = {trial.round: trial for line in lines for trial in line.trials}
    return [trials.get(launch) for launch in launches]


def _each(trials: Trials, value: Callable[[Trial], float | None]) -> tuple[float | None, ...]:
    return tuple(None if trial is None else value(trial) for trial in trials)


def _windows(
    trial: Trial, name: str = MAIN, over: Callable[[Sequence[float]], float] = statistics.fmean
) -> float | None:
    """The mean of the windows of a metric, or what else is made of them."""
    metric = trial.metrics.get(name)
    return over(metric.windows) if metric is not None and metric.windows else None


def _cluster(trials: Trials) -> Iterator[ScaleFigure]:
    """The 13 and ours. There is one row."""
    of_nodes = [{} if one is None else node_figures(nodes_of(one)) for one in trials]
    for one in NODE_METRICS:
        values = tuple(figures.get(one.name) for figures in of_nodes)
        yield ScaleFigure(one.name, one.unit, one.kind, values)
    completed = _each(trials, lambda trial: float(trial.completed_in_windows))
    yield ScaleFigure(CLUSTER_NAMES[0], "requests", None, completed)
    yield ScaleFigure(CLUSTER_NAMES[1], "requests/s", "THROUGHPUT", _each(trials, _windows))
    shares = [_shares(one) for one in trials]
    for at, name in enumerate(CLUSTER_NAMES[2:]):
        yield ScaleFigure(name, "ms", "LATENCY", tuple(one[at] for one in shares))


def _shares(trial: Trial | None) -> list[float | None]:
    """p50, p75, p90 and p99 of all requests, in ms."""
    values = latency_figures([trial] if trial is not None else [], (0.5, 0.75, 0.9, 0.99))
    return [None if value is None else value / NS_PER_MS for value in values]


def _curve(trials: Trials) -> Iterator[ScaleFigure]:
    """The metrics of a size as the trials name them, and its latency."""
    for one in QUANTITIES[3:]:
        known = [trial.metrics.get(one.name) for trial in trials if trial is not None]
        metrics = [metric for metric in known if metric is not None]
        if metrics:
            # What is better when it is less is a LATENCY to Ray's tooling.
            kind: Kind = "LATENCY" if metrics[0].better == "lower" else "THROUGHPUT"
            values = tuple(None if trial is None else _windows(trial, one.name) for trial in trials)
            yield ScaleFigure(one.figure, metrics[0].unit, kind, values)
    for at, share in ((0, "p50"), (3, "p99")):
        values = tuple(_shares(trial)[at] for trial in trials)
        yield ScaleFigure(f"latency_{share}", "ms", "LATENCY", values)


def _graph(lines: Sequence[Line], launches: Sequence[int]) -> Iterator[ScaleFigure]:
    """The four of a handle, then the four of HTTP."""
    for way in ("", HTTP):
        own = [line for line in lines if (line.row.client == HANDLE) is (way == "")]
        load = _by_launch([one for one in own if one.row.requests_each is None], launches)
        each = _by_launch([one for one in own if one.row.requests_each is not None], launches)
        values: tuple[tuple[str, Kind, tuple[float | None, ...]], ...] = (
            ("requests/s", "THROUGHPUT", _each(load, _windows)),
            ("requests/s", "THROUGHPUT", _each(load, partial(_windows, over=statistics.pstdev))),
            ("ms", "LATENCY", _each(each, partial(_latency_ms, name="mean"))),
            ("ms", "LATENCY", _each(each, partial(_latency_ms, name="std"))),
        )
        for name, figure in zip(GRAPH_NAMES, values, strict=True):
            yield ScaleFigure(way + name, *figure)


def _latency_ms(trial: Trial, name: str) -> float | None:
    """Mean or std of the latency of one launch, requests without an answer in it; None without
    any."""
    metric = trial.metrics.get(LATENCY)
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    if metric is None or not (answered.count or given_up.count):
        return None
    value: float | None = getattr(distribution(metric, answered, given_up), name)
    return None if value is None else value / NS_PER_MS
