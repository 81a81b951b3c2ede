"""What is measured in the episodes of a world, and the metrics of the trial that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric

AGENT_LATENCY: Final = "agent_latency"
"""Of the batches. That of the calls of observers is LATENCY: a call of an observer is the request,
and its latency bears the name that every suite gives it. Both are histograms of all episodes."""


@dataclass
class Episodes:
    """What was measured in the episodes of one world, in ns, and the metrics made of it. Rates are
    windows, one an episode: calls of all observers over its time, and the mean over its batches of
    batch_size / latency, over its calls of 1 / latency."""

    batch_size: int
    agent: Histogram = field(default_factory=Histogram)
    observers: Histogram = field(default_factory=Histogram)
    rates: list[float] = field(default_factory=list)
    agent_rates: list[float] = field(default_factory=list)
    observer_rates: list[float] = field(default_factory=list)
    spans_s: list[float] = field(default_factory=list)

    def add(self, episode: Mapping[str, Any]) -> None:
        """Adds an episode: `agent_ns`, `observer_ns` (a list for each observer), `began_ns`,
        `ended_ns`."""
        calls = [value for observer in episode["observer_ns"] for value in observer]
        span_s = (episode["ended_ns"] - episode["began_ns"]) / 1e9
        batches = episode["agent_ns"]
        for value in batches:
            self.agent.record(value)
        for value in calls:
            self.observers.record(value)
        self.spans_s.append(span_s)
        self.rates.append(len(calls) / span_s)
        self.agent_rates.append(fmean(self.batch_size * 1e9 / max(1, ns) for ns in batches))
        self.observer_rates.append(fmean(1e9 / max(1, ns) for ns in calls))

    def metrics(self) -> dict[str, Metric]:
        """The metrics of a trial; at least one episode must have been added."""
        rate = "requests/s"
        return {
            MAIN: Metric(rate, "higher", windows=tuple(self.rates)),
            LATENCY: Metric("ns", "lower", histogram=self.observers.encode()),
            AGENT_LATENCY: Metric("ns", "lower", histogram=self.agent.encode()),
            "agent_throughput": Metric(rate, "higher", windows=tuple(self.agent_rates)),
            "observer_throughput": Metric(rate, "higher", windows=tuple(self.observer_rates)),
        }
