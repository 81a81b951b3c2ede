"""What A and B are compared by: one value for each launch, from the trials of a run.

Pure. Rule: a launch gives one value to a metric, or none where it was not measured; windows and
slices are no launches. A step that was measured several times in a launch counts by its median.
Profiled trials are never among them. What follows from the values belongs to
rows.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN, LowerBound, latency_figures
from serve_bench.core.result import (
    Better,
    FormatError,
    JsonObject,
    PlannedTrial,
    Result,
    Row,
    Trial,
    cell_slug,
)

SLICES: Final = "slices"
"""In a trial's `client`: what a run of versus keeps of its slices, or of windows in their place."""

WAY: Final = frozenset({"haproxy", "proxy", "fallback_proxy", "replica"})
"""Roles on a request's way, whose CPU it costs. Controller, raylet and agents work at their own
pace, whether requests come or not."""


@dataclass(frozen=True)
class Measure:
    """A metric that is compared. `unit` is that of its values."""

    name: str
    unit: str
    better: Better


MEASURES: Final = (
    Measure("throughput", "requests/s", "higher"),
    Measure("p50", "ns", "lower"),
    Measure("p99", "ns", "lower"),
    Measure("cpu", "ns", "lower"),  # of the server, for a request
)
NAMES: Final = tuple(one.name for one in MEASURES)


@dataclass(frozen=True)
class Place:
    """By what rows of two sides are matched: the scenario, as far as it has a name."""

    cell: str
    row: str
    client: str


@dataclass(frozen=True)
class SideRow:
    """A row of a cell on one side. `planned`: its rounds; `broken`: those with a trial that was
    measured and dropped; `values`: by metric, then by round."""

    cell: JsonObject
    row: Row
    planned: tuple[int, ...] = ()
    trials: tuple[Trial, ...] = ()
    broken: tuple[int, ...] = ()
    values: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Those in which it was measured: requests were completed."""
        return tuple(sorted({one.round for one in self.trials if one.counts.completed > 0}))

    @property
    def failed_share(self) -> float:
        """Failed requests and those that were never answered, as a share of all that ended or were
        given up; 0 where none did."""
        failed = sum(trial.counts.failed_total + trial.unanswered for trial in self.trials)
        ended = failed + sum(trial.counts.completed for trial in self.trials)
        return failed / ended if ended else 0.0


def rows_of(result: Result, variant: str) -> dict[Place, SideRow]:
    """The rows of a variant, in the order of the plan, those without a plan behind. What a broken
    cluster measured is planned and not measured (Result.broken).

    Raises FormatError when a stored histogram cannot be read.
    """
    planned: dict[Place, list[PlannedTrial | Trial]] = {}
    measured: dict[Place, list[Trial]] = {}
    dropped: dict[Place, list[Trial]] = {}
    every: list[PlannedTrial | Trial] = [*result.run.plan, *result.trials]
    broken = result.broken
    for at in every:
        if at.variant == variant:
            planned.setdefault(place_of(at), []).append(at)
    for trial in result.trials:
        if trial.variant == variant:
            found = dropped if trial.key in broken else measured
            found.setdefault(place_of(trial), []).append(trial)
    return {
        place: _row(every, measured.get(place, []), dropped.get(place, []))
        for place, every in planned.items()
    }


def place_of(at: PlannedTrial | Trial) -> Place:
    """Where a trial belongs; a step that is measured again stands with its first run."""
    label = at.row.label.removesuffix(f", run {at.row.run}")
    return Place(cell_slug(at.cell), label, at.row.client)


def _row(every: list[PlannedTrial | Trial], trials: list[Trial], dropped: list[Trial]) -> SideRow:
    values: dict[str, dict[int, list[float]]] = {}
    for trial in trials:
        for name, value in values_of(trial).items():
            values.setdefault(name, {}).setdefault(trial.round, []).append(value)
    return SideRow(
        cell=every[0].cell,
        row=every[0].row,
        planned=tuple(sorted({at.round for at in every})),
        trials=tuple(sorted(trials, key=lambda one: (one.round, one.row.run))),
        broken=tuple(sorted({one.round for one in dropped})),
        values={
            name: {round_: statistics.median(found) for round_, found in sorted(by_round.items())}
            for name, by_round in values.items()
        },
    )


def values_of(trial: Trial) -> dict[str, float]:
    """The value of a trial for each metric that it has: requests/s, and ns for the others. A lower
    bound is no value: what was given up would make a side look faster than it is."""
    if trial.counts.completed <= 0:
        return {}
    try:
        found: dict[str, float | None] = {MAIN: _throughput(trial), "cpu": _cpu_ns(trial)}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"trial {trial.key}: its {SLICES} cannot be read: {error!r}") from None
    if "latency" in trial.metrics and trial.metrics["latency"].unit == "ns":
        p50, p99 = latency_figures([trial], (0.5, 0.99))
        found |= {"p50": p50, "p99": p99}
    return {
        name: float(value)
        for name, value in found.items()
        if value is not None and math.isfinite(value) and value > 0
        if not isinstance(value, LowerBound)
    }


def _throughput(trial: Trial) -> float | None:
    sliced = trial.client.get(SLICES)
    if sliced:
        windows = list(zip(sliced["completed"], sliced["length_s"], strict=True))
        served = windows and all(done and seconds > 0 for done, seconds in windows)
        if sliced.get("method") == "duet" and served:  # each on other cores: so much as they differ
            return statistics.geometric_mean(done / seconds for done, seconds in windows)
        seconds = sum(sliced["length_s"])
        return sum(sliced["completed"]) / seconds if seconds > 0 else None
    metric = trial.metrics.get(MAIN)
    return statistics.fmean(metric.windows) if metric is not None and metric.windows else None


def _cpu_ns(trial: Trial) -> float | None:
    """CPU of the processes on a request's way, for one request; None where it was not sampled."""
    metric, sliced = trial.metrics.get("server_cpu"), trial.client.get(SLICES)
    if metric is not None and metric.windows and sliced:
        requests = sliced.get("requests") or sum(sliced["completed"])
        return 1e9 * sum(metric.windows) / (requests or math.inf)
    if sliced or trial.client.get("nodes"):  # of a load from many nodes only one host is sampled
        return None
    shares = [share for one in _processes(trial) if (share := one.get("cpu_percent")) is not None]
    measured_s = measured_seconds(trial)
    completed = trial.completed_in_windows
    return 1e9 * sum(shares) / 100 * measured_s / completed if shares and completed else None


def _processes(trial: Trial) -> Iterable[Mapping[str, Any]]:
    return (one for one in trial.usage.get("processes", ()) if one.get("role") in WAY)


def measured_seconds(trial: Trial) -> float:
    """The measured part of a trial: an interrupted one ends in the middle of a window."""
    metric = trial.metrics.get(MAIN)
    whole = trial.window_s * len(metric.windows or ()) if metric is not None else 0.0
    return float(trial.seconds.get("measured", whole))
