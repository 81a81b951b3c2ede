"""The ladders of a run: each with its steps, the knee, the best, the collapse, and why it ended.

Pure; derived from records each time. Rule: knee, best and collapse are steps that were measured,
with all of their own figures; nothing is interpolated between steps. A step that was measured
several times counts by the median of its runs in each launch, and each run stays a line.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from serve_bench.analysis.climb import climbs_of, throughput_of
from serve_bench.analysis.statistics import MAIN, Line, Spread, summarize
from serve_bench.analysis.verdict.case import Sign, Symptom, symptoms
from serve_bench.analysis.verdict.limits import SOME_FAILED
from serve_bench.core.ladder import COLLAPSE, Ladder, Next, Rung, best, collapses, knee
from serve_bench.core.result import JsonObject, Result, Trial, cell_slug
from serve_bench.core.schema import built

NOT_VISIBLE: Final = "not visible"
"""What is inside a service that was there already."""


@dataclass(frozen=True)
class LadderLine:
    """One ladder: variant, cell, and its steps with the fewest clients first, each run a line.

    `knee`: the first step at 95 % of the best throughput; None when no step can be relied on. Of a
    step with several runs `knee`, `best` and `collapses` hold the one nearest to their median.
    `end`: why it went no further, or that it is not at its end, in words. `doubted`: steps in which
    something broke or that were broken off: they are no knee, no best and no collapse; and a step
    with SOME_FAILED of its requests failed is no knee and no best. `rounds`: requests/s of each
    sound step by its clients, in each launch; `served`: clients of those that can be knee or best.
    `signs`: what the growing load shows of a service at its limit, one line each. `finished`: the
    launches in which it was climbed to its end; without one it has no knee, no best and no
    collapse, since what would have come next may be better.
    """

    variant: str
    cell: JsonObject
    steps: tuple[Line, ...]
    knee: Line | None
    best: Line | None
    collapses: tuple[Line, ...]
    end: str
    doubted: tuple[Line, ...] = ()
    rounds: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    served: frozenset[int] = frozenset()
    signs: tuple[str, ...] = ()
    finished: frozenset[int] = frozenset()

    @property
    def without(self) -> str:
        """Why it has no knee and no best, in words."""
        return "no sound step" if self.finished else "not climbed to its end"

    def mark(self, step: Line) -> str:
        """What a step is to its ladder: "knee", "best", "knee, best", "collapse", "in doubt" or
        nothing. Of several runs one holds the mark of knee and best; one that fell though its step
        did not is "this run fell", and one that held though its step collapsed "this run held"."""
        if step in self.doubted:
            return "in doubt"
        words = [("knee", self.knee), ("best", self.best)]
        names = [word for word, line in words if line is step]
        if names:
            return ", ".join(names)
        collapsed = step.row.connections in {line.row.connections for line in self.collapses}
        if not self.several(step):
            return "collapse" if collapsed else ""
        fell = self.fell(step)
        if collapsed:
            return "collapse" if fell else "this run held"
        return "this run fell" if fell else ""

    def several(self, step: Line) -> bool:
        """Whether the step of this line was measured more than once in a launch."""
        return sum(one.row.connections == step.row.connections for one in self.steps) > 1

    def fell(self, step: Line) -> bool:
        """Whether this run has more clients than the best and less than COLLAPSE of its rate."""
        if self.best is None or MAIN not in step.spreads:
            return False
        most = self.rate(self.best)
        more = step.row.connections > self.best.row.connections
        return more and step.spreads[MAIN].mean < COLLAPSE * most

    def rate(self, step: Line) -> float:
        """Requests/s of the step of a line: the median of its runs, mean over launches."""
        return self.rates[step.row.connections]

    def spread(self, step: Line) -> Spread:
        """The spread of the step of a line about `rate`."""
        return replace(step.spreads[MAIN], mean=self.rate(step))

    @property
    def rates(self) -> Mapping[int, float]:
        """Requests/s of each sound step, by its clients; of launches that are finished, if any."""
        whole = {at: rates for at, rates in self.rounds.items() if at in self.finished}
        return _over_rounds(whole or self.rounds)

    def best_of(self, round_: int) -> float | None:
        """The best requests/s in one launch; None where nothing was served, or it did not end."""
        rates = self.rounds.get(round_, {}) if round_ in self.finished else {}
        return max((rate for users, rate in rates.items() if users in self.served), default=None)

    @property
    def errors(self) -> int:
        """Failed requests in all steps."""
        return sum(step.errors for step in self.steps)

    def runs(self, users: int) -> list[Line]:
        """The sound runs of a step."""
        return [
            line
            for line in self.steps
            if line.row.connections == users and MAIN in line.spreads and line not in self.doubted
        ]

    def nearest(self, users: int) -> Line:
        """Of a sound step the run nearest to their median."""
        return _nearest(self.runs(users), self.rates[users])


def _nearest(runs: Sequence[Line], rate: float) -> Line:
    return min(runs, key=lambda line: (abs(line.spreads[MAIN].mean - rate), line.row.run))


def ladder_of(run_suite: Mapping[str, Any]) -> Ladder | None:
    """The ladder of a stored suite; None if its loads do not grow."""
    stored = run_suite.get("ladder")
    return None if stored is None else built(Ladder, stored, "suite.ladder")


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
    lines = sorted(lines, key=lambda line: (line.row.connections, line.row.run))
    measured = [line for line in lines if MAIN in line.spreads and line.row.connections]
    doubted = tuple(line for line in measured if _doubted(line, result))
    by_clients: dict[int, list[Line]] = {}
    for line in (one for one in measured if one not in doubted):
        by_clients.setdefault(line.row.connections, []).append(line)
    rounds = _rounds(by_clients)
    finished = frozenset(
        climb.round
        for (name, _, slug), climb in climbs_of(result, ladder).items()
        if (name, slug) == (variant, cell_slug(lines[0].cell)) and climb.finished
    )
    rates = _over_rounds({at: rates_of for at, rates_of in rounds.items() if at in finished})
    served = frozenset(
        users for users, runs in by_clients.items() if users in rates and _served(runs)
    )
    steps = [Rung(users, rates[users]) for users in served]
    top, first = best(steps), knee(steps)
    fallen = [
        Rung(users, rate)
        for users, rate in rates.items()
        if users in served or (top is not None and users > top.clients)
    ]

    def line_of(step: Rung) -> Line:
        return _nearest(by_clients[step.clients], step.throughput)

    return LadderLine(
        variant=variant,
        cell=lines[0].cell,
        steps=tuple(lines),
        knee=None if first is None else line_of(first),
        best=None if top is None else line_of(top),
        collapses=tuple(line_of(step) for step in collapses(fallen)),
        doubted=doubted,
        end=_end(variant, lines, result, ladder),
        rounds=rounds,
        served=served,
        finished=finished,
        signs=tuple(_signs([trial for runs in by_clients.values() for trial in _trials(runs)])),
    )


def _rounds(by_clients: Mapping[int, Sequence[Line]]) -> dict[int, dict[int, float]]:
    """In each launch, the median run of each step."""
    rates_by_launch: dict[int, dict[int, list[float]]] = {}
    for users, runs in by_clients.items():
        for trial in _trials(runs):
            of_launch = rates_by_launch.setdefault(trial.round, {})
            of_launch.setdefault(users, []).append(throughput_of(trial))
    return {
        round_: {users: statistics.median(rates) for users, rates in of_launch.items()}
        for round_, of_launch in sorted(rates_by_launch.items())
    }


def _over_rounds(rounds: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    every: dict[int, list[float]] = {}
    for rates in rounds.values():
        for users, rate in rates.items():
            every.setdefault(users, []).append(rate)
    return {users: statistics.fmean(rates) for users, rates in sorted(every.items())}


def _trials(lines: Sequence[Line]) -> Iterator[Trial]:
    return (trial for line in lines for trial in line.trials if MAIN in trial.metrics)


def _doubted(line: Line, result: Result) -> bool:
    """Whether something broke in the step, it was broken off, or nothing succeeded."""
    failed = result.broken | {failure.key for failure in result.failures}
    return any(trial.key in failed for trial in line.trials)


def _served(runs: Sequence[Line]) -> bool:
    """Whether too few requests failed in a step to keep it from being knee or best."""
    errors, done = sum(one.errors for one in runs), sum(one.completed for one in runs)
    return errors < SOME_FAILED * max(1, done + errors)


def _signs(trials: Sequence[Trial]) -> Iterator[str]:
    """The symptoms of each launch; of several launches the first that shows it, and how many do."""
    launches: dict[int, list[Trial]] = {}
    for trial in trials:
        launches.setdefault(trial.round, []).append(trial)
    by_sign: dict[Sign, list[Symptom]] = {}
    for own in launches.values():
        for symptom in symptoms(own):
            by_sign.setdefault(symptom.sign, []).append(symptom)
    for shown in by_sign.values():
        several = f"; in {len(shown)} of {len(launches)} launches" if len(launches) > 1 else ""
        yield f"{shown[0].text}{several}"


def _end(variant: str, lines: Sequence[Line], result: Result, ladder: Ladder) -> str:
    """Of each launch, told once when they are alike."""
    ends = []
    word = "clients" if "client" in lines[0].row.label else "users"
    for (name, _, slug), climb in climbs_of(result, ladder).items():
        if name == variant and slug == cell_slug(lines[0].cell):
            move = climb.decide()
            if not isinstance(move, Next):
                ends.append(move.why)
            elif climb.again:
                again = ", ".join(str(users) for users, _ in climb.again)
                ends.append(f"in doubt, and to be measured again: {again} {word}")
            else:
                ends.append(f"not at its end: {move.clients} {word} come next")
    return "; ".join(dict.fromkeys(ends)) or "not begun"
