"""Figures, cells, hosts and doubts as short texts, the same in every form of report.

Rule: one line each, no layout and no colour; what has no value is `-`.
"""

from __future__ import annotations

from serve_bench.analysis.statistics import LowerBound
from serve_bench.core.figures import number as number
from serve_bench.core.result import JsonObject


def cell_title(cell: JsonObject) -> str:
    """A cell in words: `max_batch_size 1, max_ongoing_requests 10000, num_replicas 8`."""
    return ", ".join(f"{name} {value}" for name, value in cell.items()) or "app as it is"


def latency(value_ms: float | None) -> str:
    """Milliseconds with the three digits that a histogram holds (its error is 0.05 %); `> 5,245`
    where no more is known than that it is above."""
    return bounded_number(value_ms, 3)


def bounded_number(value: float | None, digits: int = 4) -> str:
    """As `number`, with a sign where it is only a lower bound."""
    return f"{bound_sign(value)}{number(value, digits)}"


def bound_sign(value: float | None) -> str:
    """What stands before a figure that is only a lower bound."""
    return "> " if isinstance(value, LowerBound) else ""
