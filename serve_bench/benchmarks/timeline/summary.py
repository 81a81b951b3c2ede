"""The figures of a run of timeline: each cell over its launches, and what they say. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median
from typing import Final

from serve_bench.analysis.course import (
    AFTER_S,
    CourseEvent,
    FaultFigures,
    Mean,
    StageFigures,
    Transient,
    bounds_of,
    events_of,
    mean_of,
    transient_of,
)
from serve_bench.analysis.statistics import silent_from
from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.result import JsonObject, Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.core.timeline import Timeline
from serve_bench.view.texts import cell_title

NEAR_S: Final = 1.0
"""A lost request whose end is so near to an event is counted with it. A process that ends may lose
requests before it is gone: HAProxy did so 1 s before (Ray 2.60)."""

DOUBTS: Final = frozenset(
    """client-bound busy-host other-programs worker-failed other-host variant-not-engaged
    unclean-teardown""".split()
)
"""Warnings that hold for a load that changes: others are of rates that should be steady."""


@dataclass(frozen=True)
class TimelineLaunch:
    """A launch with its figures and what happened."""

    trial: Trial
    transient: Transient
    events: tuple[CourseEvent, ...]

    @property
    def seconds(self) -> int:
        """Seconds that were measured."""
        return len(self.transient.out)

    def shades(self) -> list[tuple[float, float]]:
        """The spans out of the SLO."""
        spans: list[tuple[float, float]] = []
        for second, out in enumerate(self.transient.out):
            if out and spans and spans[-1][1] == second:
                spans[-1] = (spans[-1][0], second + 1.0)
            elif out:
                spans.append((float(second), second + 1.0))
        return spans

    def near_events(self) -> Counter[str]:
        """Lost requests by the kind of the event nearest to their end, within NEAR_S (as well as an
        end of a process is known); those without one under an empty name."""
        events = [one for one in self.events if not one.what.endswith("ready")]
        near: Counter[str] = Counter()
        for due_s, end_s, _ in self.trial.course.get("lost") or ():
            moment = due_s if end_s is None else end_s
            before = [one for one in events if abs(moment - one.at_s) <= NEAR_S + AFTER_S]
            nearest = min(before, key=lambda one: abs(moment - one.at_s), default=None)
            near["" if nearest is None else nearest.what] += 1
        return near


@dataclass(frozen=True)
class TimelineCell:
    """A cell under a variant, over its launches. `name`: what sets it apart, empty where it is the
    only one."""

    name: str
    variant: str
    cell: JsonObject
    timeline: Timeline
    slo: Slo
    launches: tuple[TimelineLaunch, ...]
    router_wait_s: float | None = None

    def mean(self, figure: Callable[[Transient], float | None]) -> Mean | None:
        return mean_of([figure(one.transient) for one in self.launches])

    def of_stage(self, at: int, figure: Callable[[StageFigures], float | None]) -> Mean | None:
        """A figure of a stage over the launches that reached it."""
        stages = [one.transient.stages for one in self.launches]
        return mean_of([figure(some[at]) for some in stages if at < len(some)])

    def of_fault(self, at: int, figure: Callable[[FaultFigures], float | None]) -> Mean | None:
        """A figure of a fault over the launches in which it was done."""
        faults = [one.transient.faults for one in self.launches]
        return mean_of(
            [figure(some[at]) for some in faults if at < len(some) and some[at].at_s is not None]
        )

    @cached_property
    def lost(self) -> Counter[str]:
        """Lost requests of all launches, by class."""
        every: Counter[str] = Counter()
        for one in self.launches:
            every.update(one.transient.lost)
        return +every

    @property
    def turns_per_minute(self) -> Mean | None:
        """Turns of the number of wanted replicas within stages, over the minutes of these."""
        return self.mean(
            lambda one: (
                None
                if not one.replicas.counts or not one.stages
                else sum(stage.turns for stage in one.stages)
                / (sum(stage.end_s - stage.begin_s for stage in one.stages) / 60)
            )
        )

    @property
    def cost(self) -> Mean | None:
        """Replica-seconds to those of the needed replicas."""
        return self.mean(
            lambda one: None if not one.least_s else (one.replica_s or 0.0) / one.least_s
        )


def cells_of(result: Result) -> tuple[TimelineCell, ...]:
    """The cells of the records of a run, in the order of the plan. Raises FormatError."""
    timeline = built(Timeline, result.run.suite.get("timeline"), "suite.timeline")
    if not timeline.stages or not result.run.plan:
        raise FormatError("suite.timeline: it has no stages, or the run no plan")
    try:
        slo = parse_slo(timeline.slo, "suite.timeline.slo")
    except BadInput as error:
        raise FormatError(str(error)) from None
    places = {(one.variant, cell_slug(one.cell)): one.cell for one in result.run.plan}
    variants = {variant for variant, _ in places}
    differ = _differing(list(places.values()))
    cells = []
    for (variant, slug), cell in places.items():
        trials = [
            one
            for one in result.trials
            if (one.variant, cell_slug(one.cell)) == (variant, slug) and one.course
        ]
        launches = tuple(_launch(one, timeline, slo) for one in trials)
        own = {name: value for name, value in cell.items() if name in differ}
        parts = [variant] * (len(variants) > 1) + [cell_title(own)] * bool(own)
        name = ", ".join(parts)
        wait_s = None if _own_router(result, cell) else router_wait_s(result.launches, variant)
        cells.append(TimelineCell(name, variant, cell, timeline, slo, launches, wait_s))
    return tuple(cells)


def _own_router(result: Result, cell: JsonObject) -> bool:
    """Whether a deployment has a router of its own, or other waits of it."""
    app = result.run.suite.get("app")
    deployments = app.get("deployments") if isinstance(app, Mapping) else None
    return "request_router_config" in str([deployments, [*cell]])


def _differing(cells: Sequence[JsonObject]) -> set[str]:
    """The options that not all cells have with one value."""
    names = {name for cell in cells for name in cell}
    return {name for name in names if len({repr(cell.get(name)) for cell in cells}) > 1}


def _launch(trial: Trial, timeline: Timeline, slo: Slo) -> TimelineLaunch:
    measured = len(trial.course.get("due") or ())
    stages = []
    for begin, stage in zip(timeline.begins, timeline.stages, strict=True):
        end = min(begin + stage.duration_s, float(measured))
        if begin < end:
            stages.append((begin, end, stage.rate))
    transient = transient_of(trial.course, bounds_of(trial.slices, slo), stages)
    return TimelineLaunch(trial, transient, tuple(events_of(trial.course)))


def mean_text(mean: Mean | None, digits: int = 3, unit: str = "") -> str:
    """`12.0`, `12.0 (9.10 to 14.9)`, `12.0, 2 of 3`, `12.0 s (2 of 3 launches)`; `-`: none."""
    if mean is None:
        return "-"
    text = figure(mean.value, digits)
    if mean.low is not None and mean.high is not None and mean.low != mean.high:
        text += f" ({figure(mean.low, digits)} to {figure(mean.high, digits)})"
    seen = f"{mean.of} of {mean.launches}" if mean.of != mean.launches else ""
    more = (f" ({seen} launches)" if unit else f", {seen}") if seen else ""
    return f"{text} {unit}".rstrip() + more


def figure(value: float, digits: int = 3) -> str:
    """A figure of a transient: a whole one without decimals."""
    whole = abs(value - round(value)) < 1e-9
    return f"{value:,.0f}" if whole else number(value, digits)


def lost_text(lost: Mapping[str, int]) -> str:
    """`28 reset, 3 timeout`."""
    ranked = sorted(lost.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {LOST.get(name, name)}" for name, count in ranked if count)


LOST: Final = {"cut": "without an answer", "unsent": "never sent", "status": "with another status"}
"""What classes of lost requests are called."""


def sentences_of(cells: Sequence[TimelineCell]) -> Iterator[str]:
    """What the run says: of each cell the whole, what held it up, its faults; then the best."""
    for one in cells:
        about = f"{one.name}: " if one.name else ""
        for text in _of_cell(one):
            yield f"{about}{text}"
    yield from _best(cells)


@dataclass(frozen=True)
class AnswerDrop:
    """Seconds of a launch in which requests waited, and `replicas` answered fewer than half as many
    as no more of them had before; `first_s` is the first. `rate`: their median answers/s; `held`:
    the most answers/s before; `cpu`: the mean use of each role, % of a core."""

    seconds: int
    first_s: int
    rate: float
    held: float
    replicas: int
    cpu: Mapping[str, float]


def drop_of(launch: TimelineLaunch) -> AnswerDrop | None:
    """The longest drop of a launch, of those by as many replicas; None where it has fewer than
    DROP_S seconds. Answers that come in bursts are no drop: a second stands for AROUND_S before and
    after it too, as far as no more and no fewer replicas ran."""
    course, replicas = launch.trial.course, launch.transient.replicas
    ended = course["ended"]
    states = [replicas.at(at + 0.5) for at in range(len(ended))]
    counts = [0 if state is None else state.running for state in states]
    most: dict[int, float] = {}
    drops: dict[int, list[tuple[int, float, float]]] = {}
    for at, out in enumerate(launch.transient.out):
        running = counts[at]
        around = range(max(0, at - AROUND_S), min(len(ended), at + AROUND_S + 1))
        rate = mean(ended[each] for each in around if counts[each] == running)
        held = max((value for few, value in most.items() if few <= running), default=0.0)
        if out and course["waiting"][at] >= held > 0 and rate < held / 2:
            drops.setdefault(running, []).append((at, ended[at], held))
        most[running] = max(most.get(running, 0.0), rate)
    running, seconds = max(drops.items(), key=lambda one: len(one[1]), default=(0, []))
    if len(seconds) < DROP_S:
        return None
    places = [at for at, *_ in seconds]
    cpu = {}
    for role, some in (course.get("cpu") or {}).items():
        values = [some[at] for at in places if at < len(some) and some[at] is not None]
        if values and role not in OURS:
            cpu[role] = mean(values)
    rate = median(rate for _, rate, _ in seconds)
    held = max(held for *_, held in seconds)
    return AnswerDrop(len(seconds), places[0], rate, held, running, cpu)


AROUND_S: Final = 2
"""Answers of an overloaded proxy come in bursts, 2 s apart (Ray 2.60)."""

DROP_S: Final = 5
"""Fewer seconds of a load may be a pause of the host, or the start of replicas."""

OURS: Final = ("serve_bench", "load_worker", "driver")
"""Roles that take no part in answers."""


def _drops(one: TimelineCell) -> Iterator[str]:
    for launch in one.launches:
        where = f"launch {launch.trial.round}: " if len(one.launches) > 1 else ""
        if silent_from(launch.trial) is not None:
            limit = limited_by(launch.trial)
            known = limit.cause != "unclear"
            yield where + (f"it is limited by {limit.text}" if known else limit.reasons[0])
            continue
        drop = drop_of(launch)
        if drop is None:
            continue
        busiest = sorted(drop.cpu.items(), key=lambda role: -role[1])[:2]
        cpu = ", ".join(f"{role} {figure(used, 2)} %" for role, used in busiest)
        yield (
            f"{where}in {drop.seconds} s from second {drop.first_s} on, {figure(drop.rate)} "
            f"answers/s (median) come while requests wait; {counted(drop.replicas, 'replica')}"
            f"{' or fewer' * (drop.replicas > 1)} gave {figure(drop.held)}/s before: the replicas "
            f"are not the limit" + (f"; meanwhile, of a core: {cpu}" if cpu else "")
        )
        deployments = {change["deployment"] for change in launch.trial.course.get("changes") or ()}
        words = router_words(drop.rate, drop.replicas, one.router_wait_s)
        if words is not None and len(deployments) == 1:
            yield where + words


def _of_cell(one: TimelineCell) -> Iterator[str]:
    if not one.launches:
        yield "not measured"
        return
    out, seconds = one.mean(lambda each: each.out_s), one.launches[0].seconds
    due = sum(each.transient.due for each in one.launches)
    lost_all = one.lost.total()
    verb = "was" if lost_all == 1 else "were"
    lost = f"{lost_all:,} of {due:,} requests {verb} lost: {lost_text(one.lost)}"
    yield (
        f"{mean_text(out)} of {seconds} s are out of the SLO ({one.slo.text}); "
        f"{lost if lost_all else f'none of {due:,} requests was lost'}"
    )
    yield from _drops(one)
    yield from _near(one)
    for at, stage in enumerate(one.timeline.stages):
        before = one.timeline.stages[at - 1].rate if at else 0.0
        if at and stage.rate > before:
            yield from _rise(one, at)
    turns = one.turns_per_minute
    if turns is not None and turns.value >= 2:
        yield f"the number of replicas turns {mean_text(turns)} times a minute within a stage"
    yield from _falls(one)
    for at in range(len(one.timeline.faults)):
        yield from _fault(one, at)


def _near(one: TimelineCell) -> Iterator[str]:
    near: Counter[str] = Counter()
    for launch in one.launches:
        near.update(launch.near_events())
    total, named = sum(near.values()), {k: v for k, v in near.items() if k}
    if total and 2 * sum(named.values()) >= total:
        ranked = sorted(named.items(), key=lambda each: -each[1])[:3]
        kinds = ", ".join(f"{what} ({count:,})" for what, count in ranked)
        yield (
            f"{sum(named.values()):,} of {total:,} lost requests ended within {NEAR_S:g} s of: "
            f"{kinds}"
        )


def _rise(one: TimelineCell, at: int) -> Iterator[str]:
    stage = one.timeline.stages[at]
    begin = f"at {one.timeline.begins[at]:g} s the load rises to {figure(stage.rate)}/s"
    further = one.of_stage(at, lambda each: each.further_s)
    held = one.of_stage(at, lambda each: each.held_s)
    out = one.of_stage(at, lambda each: each.out_s)
    needed = one.of_stage(at, lambda each: each.needed)
    words = []
    if out is None:
        return  # the load ended before
    if further is not None:
        words.append(f"the first further replica runs after {mean_text(further, unit='s')}")
    elif one.launches[0].transient.replicas.counts:
        words.append("no further replica runs")
    if held is None:
        words.append("the SLO does not hold again before the stage is over")
    elif out.value == 0:
        words.append("the SLO holds all along")
    elif held.value == 0:
        # `held_s` looks HOLD_S seconds ahead: it may be missed later in the stage.
        words.append(f"the SLO holds at first; {mean_text(out, unit='s')} of the stage are out")
    else:
        replicas = f" with {mean_text(needed)} replicas" if needed is not None else ""
        words.append(f"the SLO holds again after {mean_text(held, unit='s')}{replicas}")
    over = one.of_stage(at, lambda each: each.overshoot)
    if over is not None and over.value >= 0.5:
        words.append(f"{mean_text(over)} more are started than it needs")
    yield f"{begin}: {'; '.join(words)}"


def _falls(one: TimelineCell) -> Iterator[str]:
    if one.timeline.after_s <= 0 or not one.launches[0].transient.replicas.counts:
        return
    down = one.mean(lambda each: each.down_s)
    if down is None:
        yield f"{one.timeline.after_s:g} s after the load there are still more replicas than before"
    else:
        yield f"as few replicas as before the load {mean_text(down, unit='s')} after it"


def _fault(one: TimelineCell, at: int) -> Iterator[str]:
    planned = one.timeline.faults[at]
    done = [each.transient.faults[at] for each in one.launches if at < len(each.transient.faults)]
    made = [each for each in done if each.at_s is not None]
    if not made:
        why = done[0].why_not if done else "the load ended before"
        yield f"{planned.text}: not done, {why}"
        return
    lost: Counter[str] = Counter()
    for each in made:
        lost.update(each.lost)
    held = one.of_fault(at, lambda each: each.held_s)
    total = sum(lost.values())
    words = [f"{total:,} lost ({lost_text(lost)})" if total else "no request lost"]
    out = one.of_fault(at, lambda each: each.out_s)
    last = one.of_fault(at, lambda each: each.last_out_s)
    if out is None or not out.value or last is None:
        words.append("no second out of the SLO")
    else:
        after = mean_text(last, unit="s")
        words.append(f"{mean_text(out, unit='s')} out of the SLO, the last {after} after it")
        if held is None:
            words.append("it does not hold again")
    fewest = one.of_fault(at, lambda each: each.fewest)
    answered = one.of_fault(at, lambda each: each.answered)
    if fewest is not None and answered is not None:
        words.append(
            f"meanwhile {mean_text(fewest)} replicas at least gave {mean_text(answered)} answers"
        )
    lasted = one.of_fault(at, lambda each: each.lasted_s)
    if planned.action == "deploy":
        late = "not in force while it was watched"
        words.append(late if lasted is None else f"in force after {mean_text(lasted, unit='s')}")
    yield f"{planned.text}: {'; '.join(words)}"


def best_of(cells: Sequence[TimelineCell]) -> TimelineCell | None:
    """The cell with the fewest seconds out of the SLO, of those the one with the fewest lost
    requests, then with the fewest replica-seconds; None where there is no choice."""
    measured = [one for one in cells if one.launches]
    if len(measured) < 2:
        return None

    def rank(one: TimelineCell) -> tuple[float, float, float]:
        figures = (lambda t: t.out_s, lambda t: t.lost_total, lambda t: t.replica_s)
        means = [one.mean(figure) for figure in figures]
        out, lost, cost = (0.0 if mean is None else mean.value for mean in means)
        return round(out, 1), round(lost, 1), cost

    return min(measured, key=rank)


def _best(cells: Sequence[TimelineCell]) -> Iterator[str]:
    best = best_of(cells)
    if best is not None:
        out = mean_text(best.mean(lambda each: each.out_s))
        cost = mean_text(best.mean(lambda each: each.replica_s))
        yield f"best: {best.name}: {out} s out of the SLO, {cost} replica-seconds"


def gate(result: Result) -> list[str]:
    """The cells that were out of their SLO, in words."""
    reasons = []
    for one in cells_of(result):
        out = sum(each.transient.out_s for each in one.launches)
        if out:
            launches = counted(len(one.launches), "launch", "launches")
            about = one.name or one.variant
            reasons.append(f"{about}: {out} s out of the SLO in {launches} ({one.slo.text})")
    return reasons
