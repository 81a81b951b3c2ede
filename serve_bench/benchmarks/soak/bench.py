"""The bench of a soak: our own clusters, or a Serve that runs already, loaded in blocks.

Rule: a block is loaded to its last answer, then the levels of all processes are read, while nothing
is in flight. Its record is small: a day of them has to fit in 50 MB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from serve_bench.core.facts import ClientFacts, TrialSeconds, TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.load_spec import Load
from serve_bench.core.result import Metric, Trial
from serve_bench.core.soak import SoakSpec
from serve_bench.core.traffic import Row
from serve_bench.observing.sampler import levels_of
from serve_bench.runner.agenda import PlannedLoad
from serve_bench.runner.runner import Loaded
from serve_bench.runner.served_bench import ServedBench
from serve_bench.serving.server import Process

COARSE_BITS: Final = 4
"""Sixteen slots of a histogram are one in the record of a block: a latency is 0.8 % off at most,
and a histogram of a hundred thousand requests takes 3 kB in place of 30."""

KEPT: Final = frozenset({"latency", "ttft", "itl", *CENSORED_BY.values()})
"""Histograms of a block."""

KEPT_OF_CLIENT: Final = (
    *("verdict", "total", "in_windows", "mean_in_flight", "notes", "events", "drained"),
)

MOST_CONNECTIONS: Final = 1000
"""Limit of an open loop that falls behind."""


def thinned(trial: Trial, processes: Iterable[Process]) -> Trial:
    """Return the small record of a block, with the levels of the processes now.

    A block that was broken off has no levels, since requests may still be served.
    """
    metrics = {
        name: metric if metric.histogram is None else _coarsen(metric)
        for name, metric in trial.metrics.items()
        if metric.histogram is None or name in KEPT
    }
    client = ClientFacts(**{name: getattr(trial.client, name) for name in KEPT_OF_CLIENT})
    return replace(
        trial,
        metrics=metrics,
        client=client,
        seconds=TrialSeconds(total=trial.seconds.total, measured=trial.seconds.measured),
        usage=TrialUsage() if trial.flags.interrupted else levels_of(processes),
        slots={},
        limits={},
    )


def _coarsen(metric: Metric) -> Metric:
    assert metric.histogram is not None
    return replace(
        metric, histogram=Histogram.decode(metric.histogram).coarser(COARSE_BITS).encode()
    )


def load_of_block(load: Load, block: Row, spec: SoakSpec | None) -> Load:
    """Return the load of a block, from that of a closed loop."""
    if block.rate_per_s is None or spec is None:
        return load
    return replace(
        load,
        rate=block.rate_per_s,
        arrivals=spec.arrivals,
        max_connections=max(MOST_CONNECTIONS, block.connections),
        seed=block.run,
    )


class SoakBench(ServedBench):
    """A cluster of one variant, or a service, that is loaded in blocks."""

    def _load(self, row: Row) -> Load:
        return load_of_block(super()._load(row), row, self._suite.soak)

    def load(self, row: PlannedLoad) -> Loaded:
        """Load a block, and read the levels after it."""
        loaded = super().load(row)
        if not loaded.trials:
            return loaded
        processes = self._target.processes()
        return replace(loaded, trials=tuple(thinned(trial, processes) for trial in loaded.trials))
