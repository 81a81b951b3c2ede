"""The published metrics of `serve-bench scale` by their names, from the trials of one size.

Pure. Rule: a figure has a value for each launch, None where it was not told (wrk tells no
histogram; a launch may be missing); its mean and std are over the launches that have one. Metrics
of nodes are in nodes.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from serve_bench.analysis.statistics import (
    CENSORED,
    LATENCY,
    MAIN,
    Distribution,
    Line,
    distribution,
    latency_figures,
    made_of,
    merged,
)
from serve_bench.benchmarks.scale.nodes import (
    NODE_METRICS,
    NODE_NAMES,
    NS_PER_MS,
    Kind,
    node_figures,
    nodes_of,
)
from serve_bench.benchmarks.scale.request import GRAPHS
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Trial

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
requests, which a maximum over nodes is not. They need the histograms of our client."""


class Quantity(NamedTuple):
    """What is followed over the number of replicas. `figure`: the name of its Figure; `short`: the
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
class Figure:
    """A metric of one size under one variant. `values`: one a launch. `kind`: None for a count."""

    name: str
    unit: str
    kind: Kind | None
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[float, ...]:
        """The values that there are."""
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


def figures_of(lines: Sequence[Line], launches: Sequence[int]) -> dict[str, Figure]:
    """The figures of a size by name, in the order of a report."""
    graph = lines[0].cell.get("workload") in GRAPHS
    return _graph(lines, launches) if graph else _cluster(lines, launches)


# -------------------------------------------------------------------- single, multi and curve


def _cluster(lines: Sequence[Line], launches: Sequence[int]) -> dict[str, Figure]:
    """The 13 and ours, and what else the trials of a curve tell. There is one row."""
    trials = {trial.round: trial for line in lines for trial in line.trials}
    every = [trials.get(launch) for launch in launches]
    of_nodes = [node_figures(nodes_of(one)) if one is not None else {} for one in every]
    figures = [
        Figure(one.name, one.unit, one.kind, tuple(told.get(one.name) for told in of_nodes))
        for one in NODE_METRICS
    ]
    done = tuple(None if one is None else float(one.completed_in_windows) for one in every)
    figures.append(Figure(CLUSTER_NAMES[0], "requests", None, done))
    figures.append(
        Figure(CLUSTER_NAMES[1], "requests/s", "THROUGHPUT", tuple(_mean(one) for one in every))
    )
    shares = [_shares(one) for one in every]
    for at, name in enumerate(CLUSTER_NAMES[2:]):
        figures.append(Figure(name, "ms", "LATENCY", tuple(one[at] for one in shares)))
    figures += _told_of_curve(every) if lines[0].cell.get("workload") == "curve" else []
    return {one.name: one for one in figures}


def _mean(trial: Trial | None, name: str = MAIN) -> float | None:
    metric = None if trial is None else trial.metrics.get(name)
    return statistics.fmean(metric.windows) if metric is not None and metric.windows else None


def _shares(trial: Trial | None) -> list[float | None]:
    """p50, p75, p90 and p99 of all requests, in ms."""
    found = latency_figures([trial] if trial is not None else [], (0.5, 0.75, 0.9, 0.99))
    return [None if value is None else value / NS_PER_MS for value in found]


# ---------------------------------------------------------------------------------- the graphs


def _graph(lines: Sequence[Line], launches: Sequence[int]) -> dict[str, Figure]:
    """The four of a handle, then the four of HTTP."""
    out: dict[str, Figure] = {}
    for way in ("", HTTP):
        own = [line for line in lines if (line.row.client == HANDLE) is (way == "")]
        load = _by_launch(line for line in own if line.row.requests_each is None)
        each = _by_launch(line for line in own if line.row.requests_each is not None)
        rates = [_windows(load.get(launch)) for launch in launches]
        times = [_times(each.get(launch)) for launch in launches]
        values: tuple[tuple[str, Kind, list[float | None]], ...] = (
            ("requests/s", "THROUGHPUT", [statistics.fmean(one) if one else None for one in rates]),
            (
                "requests/s",
                "THROUGHPUT",
                [statistics.pstdev(one) if one else None for one in rates],
            ),
            ("ms", "LATENCY", [_ms(one.mean) if one is not None else None for one in times]),
            ("ms", "LATENCY", [_ms(one.std) if one is not None else None for one in times]),
        )
        for name, (unit, kind, found) in zip(GRAPH_NAMES, values, strict=True):
            out[way + name] = Figure(way + name, unit, kind, tuple(found))
    return out


def _by_launch(lines: Iterable[Line]) -> dict[int, Trial]:
    return {trial.round: trial for line in lines for trial in line.trials}


def _times(trial: Trial | None) -> Distribution | None:
    """The latency of one launch, requests without an answer in it; None without any."""
    metric = None if trial is None else trial.metrics.get(LATENCY)
    if trial is None or metric is None:
        return None
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    some = answered.count or given_up.count
    return distribution(metric, answered, given_up) if some else None


def _windows(trial: Trial | None) -> tuple[float, ...]:
    metric = None if trial is None else trial.metrics.get(MAIN)
    return metric.windows or () if metric is not None else ()


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS


# ----------------------------------------------------------------------------------- the curve


def _told_of_curve(every: Sequence[Trial | None]) -> list[Figure]:
    """The metrics of a size as the trials name them, and its latency.

    wrk tells none but of its own node: with one node that is the cluster's, with several it is not.
    """
    out = []
    for one in QUANTITIES[3:]:
        metrics = [None if trial is None else trial.metrics.get(one.name) for trial in every]
        found = [metric for metric in metrics if metric is not None]
        if found:
            # What is better when it is less is a LATENCY to Ray's tooling.
            kind: Kind = "LATENCY" if found[0].better == "lower" else "THROUGHPUT"
            values = tuple(_mean(trial, one.name) for trial in every)
            out.append(Figure(one.figure, found[0].unit, kind, values))
    for at, share in ((0, "p50"), (3, "p99")):
        values = tuple(
            told if (told := _shares(trial)[at]) is not None else _of_only_node(trial, share)
            for trial in every
        )
        out.append(Figure(f"latency_{share}", "ms", "LATENCY", values))
    return out


def _of_only_node(trial: Trial | None, share: str) -> float | None:
    nodes = () if trial is None else nodes_of(trial)
    return nodes[0].latency_ms.get(share) if len(nodes) == 1 else None


def published_names(workload: str) -> tuple[str, ...]:
    """The names that Ray publishes for a workload; none for a curve."""
    if workload in GRAPHS:
        return GRAPH_NAMES
    return () if workload == "curve" else NODE_NAMES
