"""The loads of a sitting: which rows are measured, which are repeated with profilers.

Pure. A new run loads every row; a resumed run loads what is missing. The rows of a ladder follow
from one another: `work` gives one at a time. Rule: the expected time is computed here alone, from
the loads that will run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from serve_bench.analysis.climb import Climb, LadderPlace, climbs_of, throughput_of
from serve_bench.core.ladder import Ladder
from serve_bench.core.plan import (
    A_RATE,
    Cell,
    LaunchPlan,
    PlannedCell,
    Suite,
    expected_trial_s,
    label_of,
    plan,
    setup_s,
    without,
)
from serve_bench.core.result import PlannedTrial, Result, Trial, cell_slug
from serve_bench.core.traffic import Row
from serve_bench.runner.runner import Bench, Journal, Part, Plan, PlannedLaunch, Work

L = TypeVar("L")  # what a kind of run is asked for

PROFILING_S: Final = 1.5
"""Time of a profiled repetition beyond its load: py-spy first reads the symbols of its process and
at the end writes the stacks (0.7 to 2 s for proxy and two replicas on a host with 2 cores)."""

PlannedLoad: TypeAlias = tuple[PlannedTrial, bool]
"""A row to load, and whether with profilers."""


@dataclass(frozen=True)
class Agenda:
    """The rows of `launches`, without those that an earlier sitting has measured."""

    suite: Suite
    launches: tuple[LaunchPlan, ...]
    profile: bool = False
    measured: frozenset[str] = frozenset()  # keys of earlier loads
    profiled: frozenset[str] = frozenset()  # keys of earlier profiled loads
    climbed: Mapping[LadderPlace, Climb] = field(default_factory=dict)  # of an earlier sitting

    def list_loads(self, trials: Iterable[PlannedTrial]) -> list[PlannedLoad]:
        """List the loads of a cell in order: the plain ones, then the profiled ones (True)."""
        rows = list(trials)
        plain = [(row, False) for row in rows if row.key not in self.measured]
        repeated = rows if self.profile else []
        return plain + [(row, True) for row in repeated if row.key not in self.profiled]

    def work(
        self, launch: LaunchPlan, cell: Cell, trials: Iterable[PlannedTrial]
    ) -> Work[PlannedLoad]:
        """Return the loads of a cell, one at a time: on a ladder they follow from the results."""
        if self.suite.ladder is None:
            return Work(self.list_loads(trials), lambda load: self._load_s(load[0].row, load[1]))
        climb = self._climb(self.suite.ladder, launch, cell)
        return Climbing(climb, lambda row, rate: expected_trial_s(self.suite, row, rate))

    def _climb(self, ladder: Ladder, launch: LaunchPlan, cell: Cell) -> Climb:
        label = label_of(cell)
        place = (launch.variant.name, launch.round, _slug(cell))
        if place in self.climbed:
            return deepcopy(self.climbed[place])
        requests = self.suite.requests_per_client
        return Climb(ladder, launch.variant.name, launch.round, label, requests)

    def loads(self, launches: Sequence[LaunchPlan] | None = None) -> list[tuple[Row | None, bool]]:
        """List every load of these launches (default: all) that is known yet.

        Each has its row, None on a ladder, and True where it is profiled.
        """
        out: list[tuple[Row | None, bool]] = []
        for launch in self.launches if launches is None else launches:
            for cell, trials in launch.cells:
                if self.suite.ladder is None:
                    loads = self.list_loads(trials)
                    out += [(planned.row, profiled) for planned, profiled in loads]
                else:
                    left = self._climb(self.suite.ladder, launch, cell).expected_left
                    out += [(None, False)] * left
        return out

    def _load_s(self, row: Row | None, profiled: bool) -> float:
        return expected_trial_s(self.suite, row) + (PROFILING_S if profiled else 0.0)

    def expected_s(self, launches: Sequence[LaunchPlan] | None = None) -> float:
        """Return the expected seconds of these launches (default: all)."""
        left = self.launches if launches is None else launches
        return setup_s(self.suite, left) + sum(starmap(self._load_s, self.loads(left)))


@dataclass
class ListedBench(Bench[PlannedCell, PlannedTrial], Generic[L]):
    """A bench of rows that are known in advance, on one launch of what `suite` asks for."""

    suite: L
    folder: Path
    run_id: str
    launch: LaunchPlan
    number: int
    journal: Journal

    def __post_init__(self) -> None:
        self.begun, self.part = True, Part(str(self.number), self.launch.variant, self.launch.round)
        self.parts = (self.part,)
        self.log = self.folder / self.part.log


def plan_listed(
    launches: Sequence[LaunchPlan],
    bench: Callable[[LaunchPlan, int, Journal], Bench[PlannedCell, PlannedTrial]],
    expected_s: Callable[[Sequence[LaunchPlan]], float],
) -> Plan[PlannedCell, PlannedTrial]:
    """Plan launches whose rows are known in advance, each on a separate bench.

    `expected_s`: of some launches; within one the estimate stays.
    """
    return Plan(
        [
            PlannedLaunch(
                launch.variant.name,
                launch.round,
                [(cell, partial(Work, cell[1])) for cell in launch.cells],
                partial(bench, launch),
            )
            for launch in launches
        ],
        lambda place, number: expected_s(launches[place:]) if number is None else None,
    )


class Climbing(Work[PlannedLoad]):
    """The steps of a ladder. `step_s`: expected seconds of a row at a rate (requests/s)."""

    def __init__(self, climb: Climb, step_s: Callable[[Row | None, float], float]) -> None:
        super().__init__()
        self._climb, self._step_s = climb, step_s

    def next(self) -> PlannedLoad | None:
        planned = self._climb.next()
        return None if planned is None else (planned, False)

    def add(self, row: PlannedLoad, trial: Trial | None) -> None:
        """Add the throughput of a step; 0 if the load failed."""
        self._climb.add(row[0].row, throughput_of(trial))

    def left(self) -> int:
        return self._climb.expected_left

    def left_s(self) -> float:
        """Return the expected seconds; rows that end by requests run at the best rate so far."""
        if self._climb.requests is None:
            return self._climb.expected_left * self._step_s(None, A_RATE)
        rate = max((step.throughput for step in self._climb.steps), default=0.0) or A_RATE
        return sum(self._step_s(row, rate) for row in self._climb.rows_left)


def rest_of(earlier: Result, suite: Suite, profile: bool) -> Agenda:
    """Return the agenda of what an earlier run lacks: rows, profiled repetitions, open ladders.

    A row with a failure counts as missing, and so does a profile without stacks or an interrupted
    one. A ladder is open that is not finished, or has a step with a failure.
    """
    if suite.ladder is not None:
        climbed, launches = climbs_of(earlier, suite.ladder), []
        for launch in plan(suite):
            cells = tuple(
                (cell, trials)
                for cell, trials in launch.cells
                if (climb := climbed.get((launch.variant.name, launch.round, _slug(cell)))) is None
                or climb.next() is not None
            )
            if cells:
                launches.append(replace(launch, cells=cells))
        return Agenda(suite, tuple(launches), climbed=climbed)
    failed = {failure.key for failure in earlier.failures}
    measured = frozenset(trial.key for trial in earlier.trials if trial.key not in failed)
    whole = (trial for trial in earlier.profiled if not trial.flags.interrupted)
    made = (trial for trial in whole if any(not file.failed for file in trial.profiles))
    profiled = frozenset(trial.key for trial in made)
    done = measured & profiled if profile else measured
    return Agenda(suite, without(plan(suite), done), profile, measured, profiled)


def _slug(cell: Cell) -> str:
    return cell_slug(label_of(cell))
