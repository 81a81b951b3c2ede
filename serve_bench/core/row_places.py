"""Rows that are measured in some cells alone, and what another benchmark calls their figures.

A suite with such rows stands for that benchmark: `--perf-metrics` then has its names. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_bench.core.axes import AXES, Value
from serve_bench.core.numbers import Amount, Count


@dataclass(frozen=True)
class MetricNames:
    """How the names of a row's figures begin; "": the figure has no name there."""

    latency: str = ""
    rate: str = ""  # of requests/s
    events: str = ""  # of events/s
    gaps: str = ""  # of TTFT and ITL
    suffix: str = ""  # the end of the names of `gaps`

    @property
    def named(self) -> set[tuple[str, str]]:
        """The figures that have a name, as (name, kind)."""
        kinds = {"latency": self.latency, "rate": self.rate, "rate ": self.events}
        kinds[f"gaps {self.suffix}"] = self.gaps
        return {(name, kind.strip()) for kind, name in kinds.items() if name}


@dataclass(frozen=True)
class PlacedRow:
    """Where a row is measured: in each cell with these values of axes.

    A row may have other windows: a stream that lasts longer than all windows begins in none."""

    row: str  # its label
    cell: Mapping[str, Value] = field(default_factory=dict)
    metrics: MetricNames = field(default_factory=MetricNames)
    windows: Count | None = None  # None: those of the suite
    window_s: Amount | None = None

    @property
    def shape(self) -> tuple[int | None, float | None]:
        """Number of windows and their length in seconds; None where they are the suite's."""
        return self.windows, self.window_s

    def holds(self, row: str, cell: Mapping[str, Value]) -> bool:
        """Return whether the row is measured in a cell, which may lack axes at their defaults."""
        return row == self.row and all(
            cell.get(name, AXES[name].default) == value for name, value in self.cell.items()
        )
