"""The ladder of one cell as work to be done: which step comes next, and what has come of them.

Pure. core/ladder.py decides; here steps become planned trials and trials become steps, for a runner
and for a report alike. Rule: a ladder that is gone on with takes up its steps in their first order,
and first measures again what was in doubt.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_bench.analysis.statistics import MAIN
from serve_bench.core.ladder import Ladder, Next, Rung, Stop, decide, onward
from serve_bench.core.plan import step_row
from serve_bench.core.result import (
    JsonObject,
    PlannedTrial,
    Result,
    Row,
    Trial,
    cell_slug,
    trial_key,
)

LadderPlace = tuple[str, int, str]
"""Where a ladder stands: variant, round, and the slug of its cell."""


At = tuple[int, int]
"""A step of a ladder: its clients, and which run of it."""


@dataclass
class Climb:
    """One ladder. `order` holds all its steps as they first came, `found` their throughput
    (requests/s; 0 if nothing was served), `again` those in doubt. `each`: requests of each client
    in a step; None where time ends it. `dead`: clients of steps in doubt of which no request
    succeeded, so that they are measured again, and tell where it ended all the same."""

    ladder: Ladder
    variant: str
    round: int
    cell: JsonObject
    each: int | None = None
    order: list[At] = field(default_factory=list)
    found: dict[At, float] = field(default_factory=dict)
    again: list[At] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        """Whether it was climbed to its end: no new step is to come, and neither the one with the
        most clients nor the last of a list is in doubt. Repetitions may be missing, and other steps
        be in doubt."""
        doubted = {clients for clients, _ in self.again} - self.dead
        lasts = {max((clients for clients, _ in self.order), default=0)}
        lasts |= set(self.ladder.steps[-1:]) if self.ladder.steps is not None else set()
        if lasts & doubted:
            return False
        # A step in doubt is not to come once more, but what comes after it is.
        every = tuple(Rung(at[0], self.found.get(at, 0.0)) for at in self.order)
        return isinstance(onward(self.ladder, every), Stop)

    @property
    def steps(self) -> tuple[Rung, ...]:
        """What is measured so far, in the order of the steps."""
        return tuple(Rung(at[0], self.found[at]) for at in self.order if at in self.found)

    def decide(self) -> Next | Stop:
        """What comes next."""
        if self.again:
            return Next(self.again[0][0], "again")
        return decide(self.ladder, self.steps)

    def next(self) -> PlannedTrial | None:
        """The next trial; None when the ladder is done."""
        step = self.decide()
        if isinstance(step, Stop):
            return None
        if step.why == "again":
            return self.planned(*self.again[0])
        runs = sum(1 for clients, _ in self.order if clients == step.clients)
        return self.planned(step.clients, runs + 1)

    def add(self, row: Row, throughput: float) -> None:
        """A step was measured."""
        at = (row.connections, row.run)
        if at not in self.order:
            self.order.append(at)
        self.found[at] = throughput
        if at in self.again:
            self.again.remove(at)

    def doubt(self, row: Row) -> None:
        """A step is to be measured again: something broke in it."""
        at = (row.connections, row.run)
        if at not in self.order:
            self.order.append(at)
        if at not in self.again:
            self.again.append(at)
        self.found.pop(at, None)

    @property
    def expected_left(self) -> int:
        """About how many steps are to come."""
        move = self.decide()
        if isinstance(move, Stop):
            return 0
        measured = len({clients for clients, _ in self.found})
        left = len(self.again) + max(0, self.ladder.expected_steps - measured)
        return max(1, left + (1 if move.why == "repeat" else 0))

    @property
    def rows_left(self) -> list[Row]:
        """The rows to come, as far as they are known: all of a list, else the next."""
        if isinstance(self.decide(), Stop):
            return []
        again = [self.planned(*at).row for at in self.again]
        known = [one for one in self.ladder.known if (one, 1) not in self.order]
        return again + [self.planned(one).row for one in known]

    def planned(self, clients: int, run: int = 1) -> PlannedTrial:
        """The trial of a step."""
        row = step_row(clients, self.each, run)
        key = trial_key(self.variant, self.round, self.cell, row.label)
        return PlannedTrial(key, self.round, self.variant, self.cell, row)


def throughput_of(trial: Trial | None) -> float:
    """The mean requests/s of a trial; 0 if there is none."""
    metric = trial.metrics.get(MAIN) if trial is not None else None
    return statistics.fmean(metric.windows) if metric is not None and metric.windows else 0.0


def climbs_of(result: Result, ladder: Ladder) -> Mapping[LadderPlace, Climb]:
    """The ladders of a run as far as they were climbed, in the order of the file.

    A step that a failure casts doubt on is to be measured again.
    """
    found: dict[LadderPlace, Climb] = {}
    sound = {trial.key for trial in result.trials} - result.broken

    def climb_at(variant: str, round_: int, cell: JsonObject, row: Row) -> Climb:
        fresh = Climb(ladder, variant, round_, cell, row.requests_each)
        return found.setdefault((variant, round_, cell_slug(cell)), fresh)

    for trial in result.trials:
        climb = climb_at(trial.variant, trial.round, trial.cell, trial.row)
        climb.add(trial.row, throughput_of(trial))
        if trial.key not in sound:
            climb.doubt(trial.row)
    for failure in result.failures:
        if failure.key is None or failure.row is None or failure.cell is None:
            continue
        climb = climb_at(str(failure.variant), failure.round or 1, failure.cell, failure.row)
        climb.doubt(failure.row)
        if failure.key in sound:
            climb.dead.add(failure.row.connections)
    return found
