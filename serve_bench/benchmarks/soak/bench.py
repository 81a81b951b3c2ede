"""What a soak is measured on: clusters of ours as others have them, and a Serve that runs already.

Rule: a block is loaded to its last answer, then the levels of all processes are read, while nothing
is in flight. Its record is small: a day of them has to fit in 50 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import LaunchPlan
from serve_bench.core.result import Metric, PlannedTrial, Row, Trial
from serve_bench.core.soak import SoakSpec
from serve_bench.observing.processes import behind
from serve_bench.observing.profiler import Profilable
from serve_bench.observing.sampler import levels_of
from serve_bench.runner.agenda import Listed, PlannedLoad
from serve_bench.runner.load_source import LocalLoads
from serve_bench.runner.runner import Journal, Loaded, Plan, PlannedLaunch
from serve_bench.runner.served_bench import ServedBench, ServedClusters
from serve_bench.runner.url_bench import ServiceBench

COARSE_BITS: Final = 4
"""Sixteen slots of a histogram are one in the record of a block: a latency is 0.8 % off at most,
and a histogram of a hundred thousand requests takes 3 kB in place of 30."""

KEPT: Final = frozenset({"latency", "ttft", "itl", *CENSORED_BY.values()})
"""Histograms of a block."""

KEPT_OF_CLIENT: Final = (
    *("verdict", "total", "in_windows", "mean_in_flight", "notes", "events", "drained"),
)

MOST_CONNECTIONS: Final = 1000
"""Of an open loop that falls behind."""

BETWEEN_S: Final = 0.5
"""Seconds beside a block: connections, drain, readings; an estimate."""


def thinned(trial: Trial, processes: Iterable[Profilable]) -> Trial:
    """The record of a block, with the levels of the processes now; of a block that was broken off
    without, since requests may still be served."""
    metrics = {
        name: one if one.histogram is None else _coarser(one)
        for name, one in trial.metrics.items()
        if one.histogram is None or name in KEPT
    }
    client = {name: trial.client[name] for name in KEPT_OF_CLIENT if trial.client.get(name)}
    return replace(
        trial,
        metrics=metrics,
        client=client,
        seconds={name: trial.seconds[name] for name in ("total", "measured")},
        usage={} if trial.flags.get("interrupted") else levels_of(processes),
        slots={},
        limits={},
    )


def _coarser(metric: Metric) -> Metric:
    assert metric.histogram is not None
    return replace(
        metric, histogram=Histogram.decode(metric.histogram).coarser(COARSE_BITS).encode()
    )


def load_of_block(load: Load, block: Row, spec: SoakSpec) -> Load:
    """The load of a block, of that of a closed loop of one client."""
    load = replace(load, connections=block.connections)
    if block.rate_per_s is None:
        return load
    return replace(
        load,
        rate=block.rate_per_s,
        arrivals=spec.arrivals,
        max_connections=max(MOST_CONNECTIONS, block.connections),
        seed=block.run,
    )


@dataclass
class SoakClusters(ServedClusters):
    """Loads the blocks of the agenda on a cluster of each variant."""

    spec: SoakSpec = field(kw_only=True)

    def _bench(self, launch: LaunchPlan) -> Callable[[int, Journal], ServedBench]:
        return partial(SoakBench, self, launch)


class SoakBench(ServedBench):
    """One cluster of one variant."""

    def __init__(
        self, plan: SoakClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        super().__init__(plan, launch, number, journal)
        self._spec = plan.spec

    def _load(self, row: Row) -> Load:
        return load_of_block(super()._load(row), row, self._spec)

    def load(self, row: PlannedLoad) -> Loaded:
        """A block, and the levels behind it."""
        loaded = super().load(row)
        if not loaded.trials:
            return loaded
        processes = self._serving.processes()
        return replace(loaded, trials=tuple(thinned(one, processes) for one in loaded.trials))


@dataclass
class UrlSoak:
    """Loads the blocks on a Serve that runs already. `load`: of one client."""

    name: str
    load: Load
    spec: SoakSpec
    blocks: tuple[PlannedTrial, ...]
    run_id: str
    place: LocalLoads = field(default_factory=LocalLoads)

    def plan(self) -> Plan[str, PlannedLoad]:
        """One launch, which starts nothing."""
        each_s = self.spec.block_s + BETWEEN_S
        loads = [(one, False) for one in self.blocks]
        work = partial(Listed, loads, lambda _: each_s)
        launch = PlannedLaunch(self.name, 1, [(self.name, work)], partial(UrlBlocks, self))
        return Plan([launch], lambda place, at: len(loads) * each_s, about=False)


class UrlBlocks(ServiceBench[str, PlannedLoad]):
    """A running Serve whose processes are read after each block."""

    def __init__(self, plan: UrlSoak, number: int, journal: Journal) -> None:
        super().__init__(plan.run_id, journal, plan.place, None)
        self._plan = plan

    def load(self, row: PlannedLoad) -> Loaded:
        """A block, and the levels behind it."""
        plan, planned = self._plan, row[0]
        return self._drive(
            planned,
            load_of_block(plan.load, planned.row, plan.spec),
            Timing(0.0, 0.0, 1, plan.spec.block_s),
            lambda driven: thinned(driven.trial, behind(plan.load.request.url)),
        )
