"""What a run tells while it goes on, and how its launches end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from serve_bench.core.plan import Cell, LaunchPlan
from serve_bench.core.result import Failure, Row, Teardown, Trial
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, now_iso

# --------------------------------------------------------------------------------------------------
# What a run tells while it goes on. Whoever shows it hands in an Observer; see cli/progress.py.
#
# Rule: an observer measures nothing and decides nothing; a run goes on alike if nobody looks.


@dataclass(frozen=True)
class Step:
    """Where the run is now: trial `number` of `of`, what is being done, how long it will take."""

    number: int
    of: int
    launch: LaunchPlan
    cell: Cell | None
    row: Row | None
    phase: str
    rate: float | None
    left_s: float
    about: bool = False  # `of` and `left_s` are guesses: the load grows until it has had enough


class Observer(Protocol):
    """Is told what goes on; it measures nothing and decides nothing."""

    def step(self, step: Step) -> None:
        """Something began or moved on (several times a second during a load)."""

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """A trial was measured; it stands in the records unless they cannot be written."""

    def failure(self, failure: Failure) -> None:
        """Something failed and stands in the records."""


# --------------------------------------------------------------------------------------------------
# The end of a launch, for the records of every kind of run.


def record_teardown(
    folder: RunFolder, launch: str, reaped: Reaped, fail: Callable[[Failure], None]
) -> None:
    """Appends what came of ending a launch; what is left of it is a failure. Raises StoreError."""
    folder.append(
        Teardown(
            launch=launch,
            seconds=round(reaped.seconds, 4),
            killed=reaped.killed,
            clean=not reaped.leftovers,
            leftovers=reaped.leftovers,
        )
    )
    if reaped.leftovers:
        message = f"something of the launch is left: {', '.join(reaped.leftovers)}"
        fail(Failure("teardown", message, now_iso(), launch=launch))
