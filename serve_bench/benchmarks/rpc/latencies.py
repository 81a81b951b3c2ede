"""The measurements of the episodes of a world, and the metrics of the trial that it becomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric

AGENT_LATENCY: Final = "agent_latency"
"""Latency of batches. That of observers' calls, the requests, is LATENCY as in every suite."""

RATES: Final = {AGENT_LATENCY: "agent_throughput", LATENCY: "observer_throughput"}
"""Rates by the latency that they are computed from."""


@dataclass
class Episodes:
    """The measurements of the episodes of a world.

    `windows`: rates, one for each episode: calls of all observers over its time, and means of
    batch_size / latency, of 1 / latency of a call.
    """

    batch_size: int
    spans_s: list[float] = field(default_factory=list)
    times: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))  # ns
    windows: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, episode: Mapping[str, Any]) -> None:
        """Add an episode as a backend reports it: of observers a list of latencies each."""
        calls = [value for observer in episode["observer_ns"] for value in observer]
        self.spans_s.append((episode["ended_ns"] - episode["began_ns"]) / 1e9)
        self.windows[MAIN].append(len(calls) / self.spans_s[-1])
        batches = AGENT_LATENCY, episode["agent_ns"], self.batch_size
        for name, values, size in (batches, (LATENCY, calls, 1)):
            for value in values:
                self.times[name].record(value)
            self.windows[RATES[name]].append(fmean(size * 1e9 / max(1, ns) for ns in values))

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of a trial; at least one episode must have been added."""
        rates, times = self.windows.items(), self.times.items()
        return {
            **{name: Metric("requests/s", "higher", windows=tuple(kept)) for name, kept in rates},
            **{name: Metric("ns", "lower", histogram=kept.encode()) for name, kept in times},
        }
