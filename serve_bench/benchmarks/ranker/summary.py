"""Figures of the ranker alone: medians, the interval of a ratio, and the physical floor. Pure.

Rule: made from what a run recorded, each time anew. What is measured, and how, is measure.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.errors import FormatError
from serve_bench.core.result import JsonObject, Result, Trial

KINDS: Final = ("plain", "tuned")
BASE: Final = "plain"

FORWARD, CALL, THROUGHPUT = "forward", "call", "throughput"
"""Metrics of a trial, one value for each round: the median time of the forward alone (ns), of the
way from the requests' features to their scores (ns), and rows/s of the latter."""

LEVEL: Final = 0.95


@dataclass(frozen=True)
class MedianInterval:
    """A median and an interval that holds the true one with the probability `level`."""

    median: float
    low: float
    high: float
    level: float
    count: int


def median_interval(values: Sequence[float], level: float = LEVEL) -> MedianInterval:
    """The median of independent values, and the distribution-free interval between two of them.

    The k-th smallest and k-th largest of n enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) < k) (Conover, Practical Nonparametric Statistics, 3.2), whatever the
    distribution; k is the largest with at least `level`. With fewer than 6 values none reaches
    95 %: then the whole range, with the level that it has. Raises ValueError without a value.
    """
    if not values:
        raise ValueError("no values")
    ordered, n = sorted(values), len(values)
    k, below = 1, math.comb(n, 0) / 2**n
    while k < (n + 1) // 2 and 1 - 2 * (below + math.comb(n, k) / 2**n) >= level:
        below += math.comb(n, k) / 2**n
        k += 1
    reached = max(0.0, 1 - 2 * below)
    return MedianInterval(statistics.median(ordered), ordered[k - 1], ordered[n - k], reached, n)


@dataclass(frozen=True)
class Floor:
    """The least time that a forward can take, by what each part of the device can do (seconds).

    `memory_s`: bytes that must be moved over the measured bandwidth. `compute_s`: operations over
    the measured peak. `launch_s`: operators that this ranker runs, each the measured cost of the
    smallest. They may overlap, so the floor is the largest of them and not their sum.
    """

    bytes_moved: int
    flops: int
    launches: int
    memory_s: float
    compute_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        """The floor."""
        return max(self.memory_s, self.compute_s, self.launch_s)

    @property
    def bound_by(self) -> str:
        """The term that makes it."""
        terms = {"memory": self.memory_s, "compute": self.compute_s, "launches": self.launch_s}
        return max(terms, key=lambda name: terms[name])


@dataclass(frozen=True)
class RankerLine:
    """One ranker at one batch size. Times in ns. The ratios are plain / tuned by rounds, of
    `tuned` alone, where both were measured."""

    kind: str
    rows: int
    forward: MedianInterval
    call: MedianInterval
    rows_per_s: float
    floor: Floor
    forward_ratio: MedianInterval | None = None
    call_ratio: MedianInterval | None = None

    @property
    def floors(self) -> float:
        """The time of a forward in multiples of its floor."""
        return self.forward.median / 1e9 / self.floor.seconds

    @property
    def few_rounds(self) -> str:
        """Which level the intervals reach where the rounds are too few for LEVEL; else empty."""
        level = min(self.forward.level, self.call.level)
        return "" if level >= LEVEL else f"{self.forward.count} rounds: intervals hold {level:.0%}"


def ranker_lines(result: Result) -> tuple[RankerLine, ...]:
    """The lines of a run, by batch size, plain before tuned. Raises FormatError where a trial lacks
    its batch size, a metric, or what its client says, or says what makes a floor of nothing."""
    trials = {(batch_size(trial.cell), trial.variant): trial for trial in result.trials}
    lines = []
    for rows in dict.fromkeys(rows for rows, _ in trials):
        base = trials.get((rows, BASE))
        for kind in KINDS:
            if (trial := trials.get((rows, kind))) is not None:
                lines.append(_line(trial, rows, base if kind != BASE else None))
    return tuple(lines)


def batch_size(cell: JsonObject) -> int:
    """The rows of a batch. Raises FormatError for a cell that does not say them."""
    try:
        return int(cell["rows"])
    except (KeyError, TypeError, ValueError):
        raise FormatError(f"cell {dict(cell)!r}: has no number of rows") from None


def _line(trial: Trial, rows: int, base: Trial | None) -> RankerLine:
    for name in ("shape", "ranker"):
        if name not in trial.client:
            raise FormatError(f"trial {trial.key}: client.{name} is missing")
    try:
        floor = floor_of(trial.client["work"], trial.client["machine"])
        if not floor.seconds > 0:
            raise ValueError("a floor of 0 s")
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(f"trial {trial.key}: client.work, client.machine: {error!r}") from None
    return RankerLine(
        kind=trial.variant,
        rows=rows,
        forward=median_interval(_windows(trial, FORWARD)),
        call=median_interval(_windows(trial, CALL)),
        rows_per_s=statistics.median(_windows(trial, THROUGHPUT)),
        floor=floor,
        forward_ratio=_ratio(base, trial, FORWARD),
        call_ratio=_ratio(base, trial, CALL),
    )


def floor_of(work: Any, machine: Any) -> Floor:
    """From what a trial recorded: the work of a forward, and what the machine did at best."""
    return Floor(
        bytes_moved=work["bytes_moved"],
        flops=work["flops"],
        launches=work["launches"],
        memory_s=work["bytes_moved"] / machine["bytes_per_s"],
        compute_s=work["flops"] / machine["flops_per_s"],
        launch_s=work["launches"] * machine["launch_ns"] / 1e9,
    )


def _ratio(base: Trial | None, trial: Trial, name: str) -> MedianInterval | None:
    if base is None:
        return None
    pairs = zip(_windows(base, name), _windows(trial, name), strict=False)  # a round may be cut off
    ratios = [before / after for before, after in pairs if after]
    return median_interval(ratios) if ratios else None


def _windows(trial: Trial, name: str) -> tuple[float, ...]:
    if name not in trial.metrics:
        raise FormatError(f"trial {trial.key}: metrics.{name} is missing")
    return trial.metrics[name].windows or ()
