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
    """How the names of a row's figures begin: its latency, its requests/s (`rate`), its events/s,
    its TTFT and ITL (`gaps`); empty: it has no name there. `suffix` ends those of `gaps`."""

    latency: str = ""
    rate: str = ""
    events: str = ""
    gaps: str = ""
    suffix: str = ""

    @property
    def named(self) -> set[tuple[str, str]]:
        """What figures there are, each with its name."""
        kinds = {"latency": self.latency, "rate": self.rate, "rate ": self.events}
        kinds[f"gaps {self.suffix}"] = self.gaps
        return {(name, kind.strip()) for kind, name in kinds.items() if name}


@dataclass(frozen=True)
class PlacedRow:
    """Where a row (`row`: its label) is measured: in each cell with these values of axes.
    `windows` of `window_s` seconds: where they are not those of the suite. A stream that lasts
    longer than all windows would begin in none."""

    row: str
    cell: Mapping[str, Value] = field(default_factory=dict)
    metrics: MetricNames = field(default_factory=MetricNames)
    windows: Count | None = None
    window_s: Amount | None = None

    @property
    def shape(self) -> tuple[int | None, float | None]:
        """Its windows, as far as they are its own."""
        return self.windows, self.window_s

    def holds(self, row: str, cell: Mapping[str, Value]) -> bool:
        """Whether the row is measured in a cell, given whole or as it is named in records, where
        axes at their defaults may be missing."""
        return row == self.row and all(
            cell.get(name, AXES[name].default) == value for name, value in self.cell.items()
        )
