"""What a sitting does with the rows of its plan: measure them, repeat them with profilers, or both.

Pure. A fresh run does with each row what was asked for; one that is resumed does what is missing.
Rule: the time left is reckoned from here alone, so that it counts what will be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.result import PlannedTrial, Result
from serve_bench.scenario import LaunchPlan, Suite, expected_s, expected_trial_s, plan, without

PROFILING_S: Final = 1.5
"""What a profiled repetition takes beside its load: py-spy reads the symbols of its process before,
and writes the stacks after (0.7 to 2 s for proxy and two replicas on a host with 2 cores)."""


@dataclass(frozen=True)
class Agenda:
    """The rows of `launches`. A key in `measured` or `profiled` has that behind it already."""

    suite: Suite
    launches: tuple[LaunchPlan, ...]
    profile: bool = False
    measured: frozenset[str] = frozenset()
    profiled: frozenset[str] = frozenset()

    def of(self, trials: Iterable[PlannedTrial]) -> list[tuple[PlannedTrial, bool]]:
        """The loads of a cell in order: rows to be measured, then those to be profiled (True)."""
        rows = list(trials)
        plain = [(row, False) for row in rows if row.key not in self.measured]
        again = rows if self.profile else []
        return plain + [(row, True) for row in again if row.key not in self.profiled]

    def loads(self) -> list[bool]:
        """Every load of the sitting; True is a profiled one."""
        every = [trials for launch in self.launches for _, trials in launch.cells]
        return [profiled for trials in every for _, profiled in self.of(trials)]

    def expected_load_s(self, profiled: bool) -> float:
        """About how long one load takes."""
        return expected_trial_s(self.suite) + (PROFILING_S if profiled else 0.0)

    def expected_s(self, launches: Sequence[LaunchPlan] | None = None) -> float:
        """About how long these launches take; all of them by default."""
        left = self.launches if launches is None else launches
        cells = [trials for launch in left for _, trials in launch.cells]
        loads_s = sum(self.expected_load_s(profiled) for t in cells for _, profiled in self.of(t))
        plain_s = sum(len(trials) for trials in cells) * expected_trial_s(self.suite)
        return expected_s(self.suite, left) - plain_s + loads_s


def rest_of(earlier: Result, suite: Suite, profile: bool) -> Agenda:
    """What is missing of an earlier run: rows, and with `profile` their profiled repetitions too.

    A row that a failure casts doubt on is missing; so is a profile without stacks or broken off.
    """
    doubted = {failure.key for failure in earlier.failures}
    measured = frozenset(one.key for one in earlier.trials if one.key not in doubted)
    profiled = frozenset(
        one.key
        for one in earlier.profiled
        if any("failed" not in file for file in one.profiles) and not one.flags.get("interrupted")
    )
    done = measured & profiled if profile else measured
    return Agenda(suite, without(plan(suite), done), profile, measured, profiled)
