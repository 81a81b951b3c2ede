"""The ladder of one cell: its measured steps, and the next one.

Pure. core/ladder.py decides on the next step; this module maps steps to planned trials, and trials
to steps, for the runner and the reports. Rule: a resumed ladder keeps its steps in their first
order, and first measures again those in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_bench.analysis.statistics import read_rate
from serve_bench.core.ladder import Ladder, Next, Rung, Stop, decide, onward
from serve_bench.core.plan import plan_trial, step_row
from serve_bench.core.result import JsonObject, PlannedTrial, Result, Trial, cell_slug
from serve_bench.core.traffic import Row

LadderPlace = tuple[str, int, str]
"""The key of a ladder: variant, round, and the slug of its cell."""

At = tuple[int, int]
"""A step of a ladder: its clients, and which run of it."""


@dataclass
class Climb:
    """One ladder."""

    ladder: Ladder
    variant: str
    round: int
    cell: JsonObject
    requests: int | None = None  # of each client in a step; None if time ends it
    # All steps in their first order with requests/s (0: nothing was served); None: in doubt.
    rates: dict[At, float | None] = field(default_factory=dict)
    # Clients of steps in doubt without any success: measured again, they still end the ladder.
    dead: set[int] = field(default_factory=set)

    @property
    def again(self) -> list[At]:
        """The steps in doubt."""
        return [place for place, rate in self.rates.items() if rate is None]

    @property
    def finished(self) -> bool:
        """Whether the ladder reached its end: no new step comes, no last one is in doubt.

        Last are the step with the most clients and that of a list. Repetitions may be missing, and
        other steps in doubt."""
        doubted = {clients for clients, _ in self.again} - self.dead
        lasts = {max((clients for clients, _ in self.rates), default=0)}
        lasts |= set(self.ladder.steps[-1:]) if self.ladder.steps is not None else set()
        if lasts & doubted:
            return False
        # The next step follows from all steps, those in doubt too.
        rungs = tuple(Rung(clients, rate or 0.0) for (clients, _), rate in self.rates.items())
        return isinstance(onward(self.ladder, rungs), Stop)

    @property
    def steps(self) -> tuple[Rung, ...]:
        return tuple(Rung(place[0], rate) for place, rate in self.rates.items() if rate is not None)

    def decide(self) -> Next | Stop:
        """Return the next step."""
        if self.again:
            return Next(self.again[0][0], "again")
        return decide(self.ladder, self.steps)

    def next(self) -> PlannedTrial | None:
        """Return the next trial; None when the ladder is done."""
        step = self.decide()
        if isinstance(step, Stop):
            return None
        if step.why == "again":
            return self.planned(*self.again[0])
        runs = sum(1 for clients, _ in self.rates if clients == step.clients)
        return self.planned(step.clients, runs + 1)

    def add(self, row: Row, throughput: float | None) -> None:
        """Add a measured step; None: it is in doubt after a failure, and measured again."""
        self.rates[row.connections, row.run] = throughput

    @property
    def expected_left(self) -> int:
        """The expected number of further steps."""
        move = self.decide()
        if isinstance(move, Stop):
            return 0
        measured = len({step.clients for step in self.steps})
        left = len(self.again) + max(0, self.ladder.expected_steps - measured)
        return max(1, left + (1 if move.why == "repeat" else 0))

    @property
    def rows_left(self) -> list[Row]:
        """The known further rows: all of a list, else the next."""
        if isinstance(self.decide(), Stop):
            return []
        again = [self.planned(*place).row for place in self.again]
        loads = [clients for clients in self.ladder.known if (clients, 1) not in self.rates]
        return again + [self.planned(clients).row for clients in loads]

    def planned(self, clients: int, run: int = 1) -> PlannedTrial:
        """Return the trial of a step."""
        row = step_row(clients, self.requests, run, self.ladder.traffic)
        return plan_trial(self.variant, self.round, self.cell, row)


def throughput_of(trial: Trial | None) -> float:
    """Return the mean requests/s of a trial; 0 if there is none."""
    return 0.0 if trial is None else read_rate(trial).mean or 0.0


def climbs_of(result: Result, ladder: Ladder) -> Mapping[LadderPlace, Climb]:
    """Return the ladders of a run, in the order of the file; failures put their steps in doubt."""
    climbs: dict[LadderPlace, Climb] = {}
    sound = {trial.key for trial in result.trials} - result.broken

    def climb_at(variant: str, round_: int, cell: JsonObject, row: Row) -> Climb:
        fresh = Climb(ladder, variant, round_, cell, row.requests_each)
        return climbs.setdefault((variant, round_, cell_slug(cell)), fresh)

    for trial in result.trials:
        climb = climb_at(trial.variant, trial.round, trial.cell, trial.row)
        climb.add(trial.row, throughput_of(trial) if trial.key in sound else None)
    for failure in result.failures:
        if failure.key is None or failure.row is None or failure.cell is None:
            continue
        climb = climb_at(str(failure.variant), failure.round or 1, failure.cell, failure.row)
        climb.add(failure.row, None)
        if failure.key in sound:
            climb.dead.add(failure.row.connections)
    return climbs
