"""The ladder of one cell as work to be done: which step comes next, and what has come of them.

Pure. ladder.py decides; here steps become planned trials and trials become steps, for a runner and
for a report alike. Rule: a ladder that is gone on with takes up its steps in their first order, and
first measures again what was in doubt.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_bench.ladder import Ladder, Next, Step, Stop, decide
from serve_bench.result import JsonObject, PlannedTrial, Result, Trial, cell_slug, trial_key
from serve_bench.scenario import step_row
from serve_bench.statistics import MAIN

Place = tuple[str, int, str]
"""Where a ladder stands: variant, round, and the slug of its cell."""


@dataclass
class Climb:
    """One ladder. `order` holds the clients of all its steps as they first came, `found` their
    throughput (requests/s; 0 if nothing was served), `again` those in doubt."""

    ladder: Ladder
    variant: str
    round: int
    cell: JsonObject
    order: list[int] = field(default_factory=list)
    found: dict[int, float] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is measured so far, in the order of the steps."""
        return tuple(Step(one, self.found[one]) for one in self.order if one in self.found)

    def decide(self) -> Next | Stop:
        """What comes next."""
        if self.again:
            return Next(self.again[0], "again")
        return decide(self.ladder, self.steps)

    def next(self) -> PlannedTrial | None:
        """The next trial; None when the ladder is done."""
        step = self.decide()
        return None if isinstance(step, Stop) else self._planned(step.clients)

    def add(self, clients: int, throughput: float) -> None:
        """A step was measured."""
        if clients not in self.order:
            self.order.append(clients)
        self.found[clients] = throughput
        if clients in self.again:
            self.again.remove(clients)

    @property
    def expected_left(self) -> int:
        """About how many steps are to come."""
        if isinstance(self.decide(), Stop):
            return 0
        return len(self.again) + max(1, self.ladder.expected_steps - len(self.found))

    def _planned(self, clients: int) -> PlannedTrial:
        row = step_row(clients)
        key = trial_key(self.variant, self.round, self.cell, row.label)
        return PlannedTrial(key, self.round, self.variant, self.cell, row)


def throughput_of(trial: Trial | None) -> float:
    """The mean requests/s of a trial; 0 if there is none."""
    metric = trial.metrics.get(MAIN) if trial is not None else None
    return statistics.fmean(metric.windows) if metric is not None and metric.windows else 0.0


def climbs_of(result: Result, ladder: Ladder) -> Mapping[Place, Climb]:
    """The ladders of a run as far as they were climbed, in the order of the file.

    A step that a failure casts doubt on is to be measured again.
    """
    found: dict[Place, Climb] = {}
    for trial in result.trials:
        climb = _at(found, ladder, trial)
        climb.add(trial.row.connections, throughput_of(trial))
    for failure in result.failures:
        if failure.key is None or failure.row is None or failure.cell is None:
            continue
        place = (str(failure.variant), failure.round or 1, cell_slug(failure.cell))
        climb = found.setdefault(place, Climb(ladder, place[0], place[1], failure.cell))
        clients = failure.row.connections
        if clients not in climb.order:
            climb.order.append(clients)
        if clients not in climb.again:
            climb.again.append(clients)
        climb.found.pop(clients, None)
    return found


def _at(found: dict[Place, Climb], ladder: Ladder, trial: Trial) -> Climb:
    place = (trial.variant, trial.round, cell_slug(trial.cell))
    return found.setdefault(place, Climb(ladder, trial.variant, trial.round, trial.cell))
