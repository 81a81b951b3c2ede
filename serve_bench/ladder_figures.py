"""The ladders of a run: each with its steps, the knee, the best, the collapse, and why it ended.

Pure; derived from records each time. Rule: knee, best and collapse are steps that were measured,
with all of their own figures; nothing is interpolated between steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_bench.climb import climbs_of
from serve_bench.ladder import Ladder, Next, Step, best, collapses, knee
from serve_bench.result import JsonObject, Result, cell_slug
from serve_bench.statistics import MAIN, Line, summarize
from serve_bench.verdict.limits import SOME_FAILED


@dataclass(frozen=True)
class LadderLine:
    """One ladder: variant, cell, and its steps with the fewest clients first.

    `knee`: the first step at 95 % of the best throughput; None when no step can be relied on.
    `end`: why it went no further, or that it is not at its end, in words. `doubted`: steps in which
    something broke or that were broken off: they are no knee, no best and no collapse; and a step
    with SOME_FAILED of its requests failed is no knee and no best.
    """

    variant: str
    cell: JsonObject
    steps: tuple[Line, ...]
    knee: Line | None
    best: Line | None
    collapses: tuple[Line, ...]
    end: str
    doubted: tuple[Line, ...] = ()

    def mark(self, step: Line) -> str:
        """What a step is to its ladder: "knee", "best", "knee, best", "collapse", "in doubt" or
        nothing."""
        if step in self.doubted:
            return "in doubt"
        words = [("knee", self.knee), ("best", self.best)]
        said = [word for word, line in words if line is step]
        return ", ".join(said) or ("collapse" if step in self.collapses else "")

    @property
    def errors(self) -> int:
        """Failed requests in all steps."""
        return sum(step.errors for step in self.steps)


def ladder_of(run_suite: Mapping[str, Any]) -> Ladder | None:
    """The ladder of a stored suite; None if its loads do not grow."""
    return Ladder.from_json(run_suite.get("ladder"))


def ladder_lines(result: Result) -> tuple[LadderLine, ...]:
    """The ladders of a run, in the order in which they were begun."""
    ladder = ladder_of(result.run.suite)
    if ladder is None:
        return ()
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in summarize(result):
        if line.status != "profiled":
            groups.setdefault((line.variant, cell_slug(line.cell)), []).append(line)
    return tuple(_of(variant, lines, result, ladder) for (variant, _), lines in groups.items())


def _of(variant: str, lines: list[Line], result: Result, ladder: Ladder) -> LadderLine:
    lines = sorted(lines, key=lambda line: line.row.connections)
    measured = [line for line in lines if MAIN in line.spreads]
    doubted = tuple(line for line in measured if _doubted(line, result))
    by_clients = {line.row.connections: line for line in measured if line not in doubted}
    served = {users: line for users, line in by_clients.items() if line.errors < _most_errors(line)}
    steps = [Step(users, line.spreads[MAIN].mean) for users, line in served.items()]
    top, first = best(steps), knee(steps)
    fallen = [
        Step(users, line.spreads[MAIN].mean)
        for users, line in by_clients.items()
        if users in served or (top is not None and users > top.clients)
    ]
    return LadderLine(
        variant=variant,
        cell=lines[0].cell,
        steps=tuple(lines),
        knee=None if first is None else by_clients[first.clients],
        best=None if top is None else by_clients[top.clients],
        collapses=tuple(by_clients[step.clients] for step in collapses(fallen)),
        doubted=doubted,
        end=_end(variant, lines[0].cell, result, ladder),
    )


def _doubted(line: Line, result: Result) -> bool:
    """Whether something broke in the step, or it was broken off."""
    broken = {failure.key for failure in result.failures if failure.key is not None}
    return any(trial.key in broken or trial.flags.get("interrupted") for trial in line.trials)


def _most_errors(line: Line) -> float:
    return SOME_FAILED * max(1, line.completed + line.errors)


def _end(variant: str, cell: JsonObject, result: Result, ladder: Ladder) -> str:
    """Of each launch, told once when they are alike."""
    said = []
    for (name, _, slug), climb in climbs_of(result, ladder).items():
        if name == variant and slug == cell_slug(cell):
            move = climb.decide()
            if not isinstance(move, Next):
                said.append(move.why)
            elif climb.again:
                again = ", ".join(str(users) for users, _ in climb.again)
                said.append(f"in doubt, and to be measured again: {again} users")
            else:
                said.append(f"not at its end: {move.clients} users come next")
    return "; ".join(dict.fromkeys(said)) or "not begun"
