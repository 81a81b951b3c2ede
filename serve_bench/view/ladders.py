"""The ladders of a run: each with its steps, the knee, the best, the collapse, and why it ended.

Derived from records each time. Rule: knee, best and collapse are steps that were measured, with all
of their own figures; nothing is interpolated between steps. A step that was measured several times
counts by the median of its runs in each launch, and each run stays a row.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from serve_bench.analysis.climb import Climb, climbs_of, throughput_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict.case import Sign, Symptom, symptoms
from serve_bench.analysis.verdict.limits import SOME_FAILED
from serve_bench.core.axes import cell_defaults
from serve_bench.core.ladder import COLLAPSE, Ladder, Next, Rung, best, collapses, knee
from serve_bench.core.result import Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.view.document import Tone
from serve_bench.view.frame import ViewRow, differ

NAMING: Final = ("variant", "device", "log_level")
"""The axes that name a single setting."""

FELL: Final = {
    (True, True): "collapse",
    (False, True): "this run fell",
    (True, False): "this run held",
}
"""The mark of a run, by whether its step collapsed and whether it fell itself."""

TONES: Final[Mapping[str, Tone]] = {"collapse": "bad", "this run fell": "bad", "in doubt": "doubt"}


@dataclass(frozen=True)
class Step:
    """A sound step. `runs`: its rows; `rates`: requests/s of each run, in each launch that counts:
    those in which the ladder was climbed to its end, if there are any."""

    users: int
    runs: Sequence[ViewRow]
    rates: Mapping[int, Sequence[float]]

    @property
    def launches(self) -> dict[int, float]:
        """Requests/s in each launch: the median of its runs."""
        return {launch: statistics.median(self.rates[launch]) for launch in sorted(self.rates)}

    @property
    def rate(self) -> float:
        """Requests/s: the mean over launches."""
        return statistics.fmean(self.launches.values())

    @property
    def is_served(self) -> bool:
        """Whether too few requests failed to keep it from being knee or best."""
        errors = sum(row.value("errors") or 0.0 for row in self.runs)
        done = sum(row.value("completed") or 0.0 for row in self.runs)
        return errors < SOME_FAILED * max(1, done + errors)

    @property
    def nearest(self) -> ViewRow:
        """The run that is nearest to the rate, and stands for the step."""
        return min(self.runs, key=lambda row: abs(row.values[MAIN].value - self.rate))

    @property
    def row(self) -> ViewRow:
        """The same with the rate of the whole step."""
        row = self.nearest
        value = replace(row.values[MAIN], value=self.rate, launches=self.launches)
        return replace(row, values={**row.values, MAIN: value})


@dataclass(frozen=True)
class LadderView:
    """One ladder. `settings`: its variant and all axes of its cell; `name`: those that tell it from
    others. `noun`: what climbs, "user" or "client". `loads`: all rows, the fewest clients first;
    `steps`: by clients those that are sound. In the others, which are "in doubt", something broke,
    or they were broken off.

    `finished`: whether it was climbed to its end in any launch; else it has no `knee`, no `best`
    and no `collapses`, since what would have come next may be better. `end`: why it went no
    further. `bests`: the best requests/s in each launch. `signs`: what the growing load shows of a
    service at its limit, one line each.
    """

    name: str
    settings: Mapping[str, Any]
    noun: str
    loads: Sequence[ViewRow]
    steps: Mapping[int, Step]
    finished: bool
    end: str
    knee: Step | None
    best: Step | None
    collapses: Sequence[Step]
    bests: Mapping[int, float]
    signs: Sequence[str]

    @property
    def best_rate(self) -> float:
        """The most requests/s of any step."""
        return 0.0 if self.best is None else self.best.rate

    @property
    def is_visible(self) -> bool:
        """Whether the run launched it: of services of others no process is seen."""
        return len(self.settings) > 1

    @cached_property
    def rows(self) -> Sequence[ViewRow]:
        """All rows, each with what it is to the ladder."""
        marks = [self._mark(row) for row in self.loads]
        return [
            replace(row, dims={**row.dims, "mark": mark}, tones={"mark": TONES.get(mark, "plain")})
            for row, mark in zip(self.loads, marks, strict=True)
        ]

    def _mark(self, row: ViewRow) -> str:
        """ "knee", "best", "knee, best", "collapse", "in doubt" or nothing. Of several runs one
        holds the mark of knee and best; one that fell though its step did not is "this run fell",
        and one that held though its step collapsed "this run held"."""
        users = row.dims["users"]
        step = self.steps.get(users)
        if step is None or row.dims["mark"]:
            return str(row.dims["mark"])
        marked = (("knee", self.knee), ("best", self.best))
        names = [word for word, other in marked if other is step and step.nearest is row]
        if names or self.best is None:
            return ", ".join(names)
        fell = users > self.best.users and row.values[MAIN].value < COLLAPSE * self.best_rate
        return FELL.get((users in [other.users for other in self.collapses], fell), "")


def view_ladders(result: Result, rows: Sequence[ViewRow]) -> list[LadderView]:
    """The ladders of a run, in the order in which they were begun."""
    stored, app = result.run.suite.get("ladder"), str(result.run.suite.get("app"))
    if stored is None:  # its loads do not grow
        return []
    groups: dict[tuple[str, str], list[ViewRow]] = defaultdict(list)
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row.entry is not None and row.dims["status"] != "profiled":
            variant, cell = row.entry.line.variant, row.entry.line.cell
            key = (variant, cell_slug(cell))
            groups[key].append(row)
            # A cell as recorded leaves out what stands at its default; one of others is empty.
            settings[key] = {"variant": variant, **(cell_defaults(app) if cell else {}), **cell}
    axes = differing_axes([*settings.values()]) or NAMING
    climbs = climbs_of(result, built(Ladder, stored, "suite.ladder"))
    failed = result.broken | {failure.key for failure in result.failures}
    views = []
    for key, group in groups.items():
        values = settings[key]
        name = ", ".join(axis_words(axis, values[axis]) for axis in axes if values.get(axis))
        loads = []
        for row in sorted(group, key=lambda row: (row.dims["connections"], row.dims["run"])):
            broken = MAIN in row.values and any(trial.key in failed for trial in row.trials)
            place = {"ladder": name, "users": row.dims["connections"]}
            dims = {**row.dims, **place, "mark": "in doubt" if broken else ""}
            if len(groups) > 1:
                row = replace(row, name=f"{name}, {row.name}", group=name)
            loads.append(replace(row, dims=dims))
        mine = [climb for (variant, _, slug), climb in climbs.items() if (variant, slug) == key]
        views.append(_view_ladder(name, values, loads, mine))
    return views


def differing_axes(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The axes of which settings have several values."""
    axes = dict.fromkeys(axis for values in settings for axis in values)
    return differ([ViewRow(values) for values in settings], axes)


def axis_words(axis: str, value: Any) -> str:
    """A value of an axis, shortly: the axis is named where the value alone does not say it."""
    if axis == "device":
        return {"cpu": "CPU", "cuda": "GPU"}.get(str(value), str(value))
    return str(value) if axis in ("variant", "log_level", "ranker") else f"{axis} {value}"


def _view_ladder(
    name: str, settings: Mapping[str, Any], loads: Sequence[ViewRow], climbs: Sequence[Climb]
) -> LadderView:
    finished = {climb.round for climb in climbs if climb.finished}
    sound: dict[int, list[ViewRow]] = defaultdict(list)
    for row in loads:
        if MAIN in row.values and row.dims["users"] and not row.dims["mark"]:
            sound[row.dims["users"]].append(row)
    steps = {step.users: step for step in _steps(sound, finished)}
    served = [step for step in steps.values() if finished and step.is_served]
    rungs = [Rung(step.users, step.rate) for step in served]
    top, first = best(rungs), knee(rungs)
    if top is not None:
        rungs += [Rung(users, step.rate) for users, step in steps.items() if users > top.clients]
    launches = {launch for step in served for launch in step.launches if top is not None}
    noun = "client" if "client" in str(loads[0].dims["row"]) else "user"
    ends = dict.fromkeys(_end(climb, f"{noun}s") for climb in climbs)
    return LadderView(
        name,
        settings,
        noun,
        loads,
        steps,
        finished=bool(finished),
        end="; ".join(ends) or "not begun",
        knee=None if first is None else steps[first.clients],
        best=None if top is None else steps[top.clients],
        collapses=[steps[step.clients] for step in collapses(rungs)],
        bests={
            launch: max(step.launches.get(launch, 0.0) for step in served)
            for launch in sorted(launches)
        },
        signs=[*_signs([trial for runs in sound.values() for row in runs for trial in row.trials])],
    )


def _steps(runs: Mapping[int, Sequence[ViewRow]], finished: set[int]) -> Iterator[Step]:
    for users in runs:
        rates: dict[int, list[float]] = defaultdict(list)
        for trial in (trial for row in runs[users] for trial in row.trials):
            if MAIN in trial.metrics and (trial.round in finished or not finished):
                rates[trial.round].append(throughput_of(trial))
        if rates:
            yield Step(users, runs[users], rates)


def _signs(trials: Sequence[Trial]) -> Iterator[str]:
    """The symptoms of each launch; of several launches the first that shows it, and how many do."""
    launches = {trial.round for trial in trials}
    by_sign: dict[Sign, list[Symptom]] = defaultdict(list)
    for number in sorted(launches):
        for symptom in symptoms([trial for trial in trials if trial.round == number]):
            by_sign[symptom.sign].append(symptom)
    for shown in by_sign.values():
        several = f"; in {len(shown)} of {len(launches)} launches" if len(launches) > 1 else ""
        yield f"{shown[0].text}{several}"


def _end(climb: Climb, nouns: str) -> str:
    """Why a launch of a ladder went no further, or what comes next."""
    move = climb.decide()
    if not isinstance(move, Next):
        return move.why
    if climb.again:
        again = ", ".join(str(users) for users, _ in climb.again)
        return f"in doubt, and to be measured again: {again} {nouns}"
    return f"not at its end: {move.clients} {nouns} come next"
