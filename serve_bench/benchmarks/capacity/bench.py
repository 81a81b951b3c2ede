"""Measures a capacity: probes on our own clusters, launch after launch, or on running services.

analysis/capacity does the search itself. Rule: a probe that missed may leave requests behind. The
next one waits until one client is served about as fast as at first; where that takes too long, its
trial is flagged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from zlib import crc32

from msgspec import structs

from serve_bench.analysis.capacity.launch import (
    LaunchSearch,
    Searches,
    gap_limits,
    meets,
    probe_of,
    slices_of,
)
from serve_bench.core.capacity import CLOSED_WINDOWS, SLICE_S, CapacitySearch
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import (
    CHANGE_S,
    FIRST_DEPLOY_S,
    LAUNCH_S,
    Cell,
    LaunchPlan,
    Suite,
    label_of,
)
from serve_bench.core.result import PlannedTrial, RunStop, Trial
from serve_bench.core.traffic import Row
from serve_bench.load.request_log import RequestLog
from serve_bench.observing.inside import Observation
from serve_bench.runner.agenda import PlannedLoad
from serve_bench.runner.measure import Measured
from serve_bench.runner.runner import Journal, Loaded, Plan, Work
from serve_bench.runner.served_bench import ServedBench, ServedClusters
from serve_bench.store import now_iso

WARMUP_MIN_S, WARMUP_MAX_S = 0.5, 2.0
"""Warm-up of a probe: until its rate is steady, and at least as long as responses take. Before,
fewer are in flight than later."""

CLOSED_TIMING: Final = Timing(0.5, 3.0, CLOSED_WINDOWS, 1.0)

DRAIN: Final = 2.0
"""How long the last answers of a probe are awaited, in longest times of the SLO: what is later is
beyond it in any case. Where it limits no whole response, until their time-out."""

BESIDE_S: Final = 3.0
"""Seconds of a probe beyond its measured ones: connections, warm-up, drain; an estimate."""


def timing_of(search: LaunchSearch, row: Row) -> Timing:
    """Return the timing of the load that the search asks for."""
    ask = search.ask if row.rate_per_s is not None else None
    if ask is None:
        return CLOSED_TIMING
    windows = max(1, round(ask.seconds))
    drain_s = None if search.limit_s is None else max(1.0, DRAIN * search.limit_s)
    warmup_s = max(WARMUP_MIN_S, search.response_s)
    return Timing(warmup_s, max(WARMUP_MAX_S, warmup_s), windows, ask.seconds / windows, drain_s)


class Probing(Work[PlannedLoad]):
    """The loads of a cell on one launch, one at a time."""

    def __init__(self, search: LaunchSearch) -> None:
        super().__init__()
        self.search = search

    def next(self) -> PlannedLoad | None:
        planned = self.search.next()
        return None if planned is None else (planned, False)

    def add(self, row: PlannedLoad, trial: Trial | None) -> None:
        self.search.add(trial)

    def left(self) -> int:
        """Return an estimate of the remaining loads; 0 for a launch that may not be needed."""
        if self.search.closed is None and self.search.round > self.search.asked.launches:
            return 0
        left = round(self.search.expected_left_s / EACH_S)
        return max(1, left) if self.next() is not None else 0

    def left_s(self) -> float:
        return self.search.expected_left_s + self.left() * BESIDE_S


EACH_S: Final = 8.0
"""Measured seconds of a probe, for an estimate of how many there will be."""


@dataclass
class Progressing:
    """How long the sitting has lasted, and whether it is over."""

    searches: Searches
    first: int = 1  # round of this sitting
    began_s: float = field(default_factory=time.monotonic)

    def over(self, round_: int, rounds: int) -> RunStop | None:
        """Return why no further launch is made after a whole round; None: one is."""
        asked = self.searches.asked
        if self.searches.enough():
            return RunStop(round_, rounds, "settled", now_iso())
        took_s = time.monotonic() - self.began_s
        each_s = took_s / (round_ - self.first + 1)
        over = asked.budget_s is not None and took_s + each_s > asked.budget_s
        return RunStop(round_, rounds, "budget", now_iso()) if over else None


def expected_s(suite: Suite, asked: CapacitySearch, launches: Sequence[LaunchPlan]) -> float:
    """Return the expected seconds of the launches, up to the fewest that were asked for."""
    last = max(launches[0].round, asked.launches) if launches else 0  # a later round: it alone
    left = [launch for launch in launches if launch.round <= last]
    each_s = search_s(asked)
    if suite.services:
        return len(left) * each_s
    cells = sum(len(launch.cells) for launch in left)
    return len(left) * (LAUNCH_S + FIRST_DEPLOY_S) + cells * (each_s + CHANGE_S)


def search_s(asked: CapacitySearch) -> float:
    """Return the expected seconds of a search, its closed loop included."""
    return asked.launch_s * (1 + BESIDE_S / EACH_S) + CLOSED_WINDOWS


class CapacityBench(ServedBench):
    """A cluster of one variant or a service, loaded with what its searches ask for."""

    def __init__(
        self, plan: CapacityClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        super().__init__(plan, launch, number, journal)
        self._clusters = plan
        self._since_s = 0.0  # when the cell was put
        for cell, _ in launch.cells:  # what an earlier launch of this round began has no use
            plan.searches.renew(launch.variant.name, launch.round, label_of(cell))

    @property
    def _search(self) -> LaunchSearch:
        return self._clusters.search(self._launch, self._cell)

    def _load(self, row: Row) -> Load:
        """Return the load of a row; each probe of each run draws its arrivals anew."""
        load, search = super()._load(row), self._search
        if row.rate_per_s is None:
            return load
        # Two runs with the same arrivals would differ by less than two should.
        place = f"{self._plan.run_id}/{search.variant}/{search.round}/{row.run}"
        return replace(
            load,
            rate=row.rate_per_s,
            arrivals=search.asked.arrivals,
            max_connections=search.connections(row.rate_per_s)[1],
            seed=crc32(place.encode()),
        )

    def _timing(self, planned: PlannedTrial) -> Timing:
        return timing_of(self._search, planned.row)

    def _make_log(self, profiled: bool) -> RequestLog | None:
        return RequestLog(gap_limits(self._search.slo))

    def _add_log(self, trial: Trial, log: RequestLog | None, look: Observation | None) -> Trial:
        """Add the counts of a probe's bounds."""
        if log is None or trial.row.rate_per_s is None:
            return trial
        seconds = trial.window_s * len(trial.metrics["throughput"].windows or ())
        slices = slices_of(log.rows(), self._search.slo, seconds, SLICE_S)
        began_s = time.monotonic() - self._since_s - seconds
        return replace(trial, slices=structs.replace(slices, began_s=round(max(0.0, began_s), 1)))

    def put(self, cell: Cell) -> None:
        """Deploy a cell, and wait until one client is served steadily."""
        self._since_s = time.monotonic()
        super().put(cell)

    def _conclude(
        self, row: PlannedLoad, trial: Trial, measured: Measured, log: RequestLog | None
    ) -> Loaded:
        """Return the outcome; a missed probe leads to a wait, one without a success is no fault."""
        loaded, bounds = super()._conclude(row, trial, measured, log), self._search.bounds
        served = self._settling is not None and self._settling.usual_ns is not None
        probe = probe_of(trial, bounds, self._search.front)
        missed = probe is not None and not meets(probe, bounds)
        self._shaken = self._shaken or (served and missed)
        if trial.row.loop != "open":
            return loaded
        answer = why_failed(trial)
        return replace(loaded, faults=tuple(lost for lost in loaded.faults if lost.why != answer))

    def _add_waits(self, trial: Trial) -> Trial:
        """Look only after a closed loop: a probe is not followed by another load at its rate."""
        return trial if trial.row.loop == "open" else super()._add_waits(trial)


@dataclass
class CapacityClusters(ServedClusters):
    """Searches the capacity of each cell, or service, on each launch of the agenda."""

    searches: Searches = field(kw_only=True)
    bench: Callable[..., ServedBench] = CapacityBench

    def plan(self) -> Plan[Cell, PlannedLoad]:
        """Plan the launches of the agenda; the last ones are made only if they are needed."""
        launches = [self._launch(launch) for launch in self.agenda.launches]
        rounds = [launch.round for launch in launches]
        place = iter(range(len(launches)))
        progress = Progressing(self.searches, rounds[0] if rounds else 1)

        def over() -> RunStop | None:
            number = next(place)
            if rounds[number + 1] == rounds[number]:
                return None
            return progress.over(rounds[number], rounds[-1])

        return Plan(launches, self._expected_s, over=over)

    def _work(
        self, launch: LaunchPlan, cell: Cell, rows: tuple[PlannedTrial, ...]
    ) -> Work[PlannedLoad]:
        return Probing(self.search(launch, cell))

    def search(self, launch: LaunchPlan, cell: Cell) -> LaunchSearch:
        """Return the search of a cell on a launch."""
        return self.searches.at(launch.variant.name, launch.round, label_of(cell))

    def _expected_s(self, place: int, cell: int | None) -> float:
        launches = self.agenda.launches[place:]
        left = replace(launches[0], cells=launches[0].cells[cell or 0 :])
        suite = self.agenda.suite
        whole = expected_s(suite, self.searches.asked, [left, *launches[1:]])
        return whole - (0.0 if cell is None or suite.services else LAUNCH_S + FIRST_DEPLOY_S)
