"""The report on a timeline: what happened, when, and how long until the SLO held again.

A row is a cell over its launches. Points are its stages, its faults and, of each launch, events and
each second. Figures are means over launches with the 95 % interval by t; times count from the begin
of the first stage. `compare` and `history` read what was answered within the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from statistics import fmean
from typing import Any, Final, TypeAlias

from serve_bench.analysis.course import (
    NEAR_S,
    REPLICA_STATES,
    Figures,
    Transient,
    bounds_of,
    find_drop,
    lost_figures,
    transient_of,
)
from serve_bench.analysis.ratios import quantile
from serve_bench.analysis.statistics import MAIN, read_rate
from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.timers import HARD_STOP, ROUTER_WAIT, read_flag_s, router_words
from serve_bench.core.facts import CourseFacts, ProbeSlices, TrialUsage
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import JsonObject, Metric, Result, Trial
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.core.timeline import Timeline
from serve_bench.view.charts import Chart
from serve_bench.view.csv import pick
from serve_bench.view.document import Finding, Later, Section, statement
from serve_bench.view.figures import Value, declare, known_values, mean_of, shorten
from serve_bench.view.frame import ViewRow, line_chart, make_spec, make_tiles, table_section
from serve_bench.view.lens import Lens, View, plan_row, replace_rows
from serve_bench.view.rows import Page, limit_words

declare(
    ("due", "requests", "requests that were due"),
    ("sent", "requests", "requests that were sent in a second"),
    ("answered", "requests", "requests that were due and were answered"),
    ("ended", "requests", "answers that came in a second", "answers"),
    ("waiting", "requests", "due and without an end when a second was over"),
    ("lost_near", "requests", "lost requests that ended near an event of this kind"),
    ("replica_s", "s", "seconds of replicas that took resources", "replica time"),
    ("least_s", "s", "seconds of the replicas that were needed", "needed replicas"),
    ("cost", "1", "replica-seconds over those of the needed replicas", "cost x needed"),
    ("turns", "times", "changes of direction of the number of wanted replicas"),
    ("turns_per_minute", "1/min", "the same within stages, in a minute", "turns per min"),
    ("down_s", "s", "from the end of the load until as few replicas as at its begin", "back after"),
    ("begin_s", "s", "begin of a stage", "from"),
    ("end_s", "s", "end of a stage", "until"),
    ("stage_rate", "requests/s", "rate of a stage at its end", "load"),
    ("held_s", "s", "from the begin of a stage, or a fault, until the SLO holds", "holds after"),
    ("further_s", "s", "until the first further replica runs", "first further"),
    ("needed", "replicas", "replicas that ran when the SLO held", "replicas needed"),
    ("needed_s", "s", "until as many ran", "there after"),
    ("most_replicas", "replicas", "the most starting and running replicas together"),
    ("overshoot", "replicas", "replicas above the needed ones"),
    ("at_s", "s", "a moment; of a second its middle", "at"),
    ("until_s", "s", "until the next fault or the end of the load", "until"),
    ("last_out_s", "s", "from a fault to the end of the last second out", "last out after"),
    ("fewest", "replicas", "the fewest replicas that ran meanwhile", "running at least"),
    ("lasted_s", "s", "from a deploy until it was in force", "took"),
    *((state, "replicas", f"{state} replicas", "") for state in REPLICA_STATES),
    ("role_cpu", "%", "CPU of all processes of a role, % of a core", "CPU"),
    shown=dict.fromkeys(("requests", "replicas", "times", "1", "1/min", "%"), ""),
    digits=3,
)
_meaning = "requests that failed or had no end, also by class; after a fault until the next one"
declare(("lost", "requests", _meaning), shown="", tone="bad", digits=3)
_meaning = "median latency of the last stage over that of the first, at one rate, in second halves"
declare(("scar", "1", _meaning), shown="", digits=3)
declare(("out_s", "s", "seconds out of the SLO", "out of SLO"), better="lower", digits=3)

COURSE: Final = {
    "Load": ("due", "ended", "waiting", "lost"),
    "Latency": ("latency_p50", "latency_p99", "latency_max"),
    "Replicas": REPLICA_STATES,
}
"""Figures of each second that are drawn."""

CELLS: Final = make_spec(
    "Each cell, means over launches",
    "launches out_s due lost replica_s scar",
    "cost turns_per_minute down_s",
    row="cell",
)
STAGES: Final = make_spec(
    "Stages of the load",
    "begin_s stage_rate due lost out_s held_s needed",
    "further_s needed_s most_replicas turns",
)
FAULTS: Final = make_spec(
    "Faults, means over launches",
    "lost out_s last_out_s fewest",
    "held_s answered lasted_s",
    row="fault",
)
EVENTS: Final = make_spec("What happened", "at_s what who")

LOST: Final = {"cut": "without an answer", "unsent": "never sent", "status": "with another status"}
"""What classes of lost requests are called."""

MOST_DRAWN: Final = 4
"""Launches of which charts are drawn."""

Launches: TypeAlias = Sequence[tuple[Trial, Transient]]
"""The launches of a cell, each with its figures."""


def read_timeline(result: Result) -> tuple[Timeline, Slo]:
    """Read what the run was asked for. Raises BadInput for a damaged suite."""
    places = {name: f"suite.timeline.{name}" for name in Timeline.options()}
    timeline = result.run.part("timeline", Timeline).checked(places)
    return timeline, parse_slo(timeline.slo, "suite.timeline.slo")


def read_transient(
    trial: Trial, timeline: Timeline, slo: Slo, hard_stop_s: float | None = None
) -> Transient:
    """Compute the figures of a launch, as far as it was measured. Raises FormatError."""
    measured = float(len(trial.course.due))
    pairs = zip(timeline.begins, timeline.stages, strict=True)
    spans = [(begin, min(begin + stage.duration_s, measured)) for begin, stage in pairs]
    reached = [span for span in spans if span[0] < measured]
    seen = transient_of(trial.course, bounds_of(trial.slices, slo), reached, hard_stop_s)
    return replace(seen, whole={**seen.whole, "scar": measure_scar(trial.course, timeline)})


def measure_scar(course: CourseFacts, timeline: Timeline) -> float | None:
    """Return the latency of the last stage over that of the first; None for unlike rates."""
    first, last = timeline.stages[0], timeline.stages[-1]
    medians = []
    for stage, begin_s in ((first, 0.0), (last, timeline.begins[-1])):
        middle, end = (round(begin_s + part * stage.duration_s) for part in (0.5, 1.0))
        kept = (Histogram.decode(second) for second in course.latency[middle:end] if second)
        medians.append(mean_of(histogram.percentile(0.5) for histogram in kept))
    before, after = medians
    alike = timeline.stages[2:] and first.rate == last.rate and not timeline.ramp
    return after / before if alike and before and after else None


def make_course(trial: Trial, transient: Transient, cell: str) -> Iterator[ViewRow]:
    """Yield what happened in a launch, then each second of it."""
    course = trial.course

    def make(kind: str, figures: Figures, **dims: Any) -> ViewRow:
        where = {"point": kind, "cell": cell, "launch": trial.round, **dims}
        return ViewRow(where, known_values(**figures), group=f"{cell}, launch {trial.round}")

    for event in transient.events:
        yield make("event", {"at_s": event.at_s}, what=event.what, who=event.who)
    for second, out in enumerate(transient.out):
        figures: Figures = {
            "at_s": second + 0.5,
            **{
                name: getattr(course, name)[second]
                for name in ("due", "sent", "answered", "ended", "waiting")
            },
            **lost_figures({word: counts[second] for word, counts in course.failed.items()}),
        }
        if (latency := course.latency[second]) is not None:
            histogram = Histogram.decode(latency)
            figures["latency_p50"], figures["latency_p99"] = histogram.percentiles((0.5, 0.99))
            figures["latency_max"] = histogram.max
        for role, used in course.cpu.items():
            figures[f"role_cpu.{role}"] = used[second] if second < len(used) else None
        if (replicas := transient.replicas.at(second + 1.0)) is not None:
            figures |= pick(replicas, *REPLICA_STATES)
        slo = None if out is None else "out" if out else "in"
        yield make("second", figures, second=second, slo=slo)


def make_spans(timeline: Timeline, launches: Launches, cell: str) -> Iterator[ViewRow]:
    """Yield each stage, and each fault that was done, over the launches that reached it."""
    for place, begin_s in enumerate(timeline.begins):
        stages = {
            trial.round: seen.stages[place] for trial, seen in launches if seen.stages[place:]
        }
        values = known_values(begin_s=begin_s, stage_rate=timeline.stages[place].rate)
        values |= mean_values(stages)
        loaded = any(stage["due"] for stage in stages.values())
        dims = {"point": "stage", "cell": cell, "stage": place + 1}
        dims |= {"held_s": "never"} if loaded and "held_s" not in values else {}
        yield ViewRow(dims, values, group=cell)
    for place, planned in enumerate(timeline.faults):
        reached = [(trial, seen.faults[place]) for trial, seen in launches if seen.faults[place:]]
        done = {trial.round: seen for trial, seen in reached if seen["at_s"] is not None}
        values = mean_values(done)
        dims = {"point": "fault", "cell": cell, "fault": planned.source}
        if done and "held_s" not in values:
            dims["held_s"] = "never"
        if done and planned.action == "deploy" and "lasted_s" not in values:
            dims["lasted_s"] = "not in force"
        tried = (trial.course.faults[place].why_not for trial, _ in reached)
        why = next(tried, "the load ended before")
        yield ViewRow(dims, values, planned.text, cell, gap="" if done else f"not done, {why}")


def mean_values(launches: Mapping[int, Figures]) -> dict[str, Value]:
    """Average figures over launches; several give a 95 % interval [Student, 1908], none below 0."""
    values = {}
    for name in dict.fromkeys(chain.from_iterable(launches.values())):
        # A class of lost requests that a launch has not seen is 0 there.
        seen = {launch: figures.get(name, 0) for launch, figures in launches.items()}
        numbers = {launch: float(number) for launch, number in seen.items() if number is not None}
        if not numbers:
            continue
        n, mean = len(numbers), fmean(numbers.values())
        value = Value(mean, launches=numbers, missing=len(seen) - n or None)
        if value.launch_std is not None:
            half = quantile(n - 1, 0.975) * value.launch_std / math.sqrt(n)
            value = replace(value, low=max(0.0, mean - half), high=mean + half)
        values[name] = value
    return values


def count_all(row: ViewRow, name: str) -> int:
    """Sum a count over all launches."""
    return round(sum(row.values[name].launches.values())) if name in row.values else 0


def list_counts(row: ViewRow, family: str) -> str:
    """Render the members of a family of counts: `2 with another status, 1 never sent`."""
    # A lost request near no event is counted under an empty name.
    members = [name for name in row.values if name.startswith(f"{family}.") and name[-1] != "."]
    counts = ((count_all(row, name), name.partition(".")[2]) for name in members)
    return ", ".join(f"{count:,} {LOST.get(word, word)}" for count, word in counts)


def make_cell(row: ViewRow, launches: Launches) -> ViewRow:
    """Return a cell with its figures, and warnings of what the records of its launches lack."""
    lacks = []
    for trial, _ in launches:
        course, about = trial.course, f"launch {trial.round}"
        if course.why_not:
            lacks.append(Finding(course.why_not, "state", "doubt", about=about))
        kept, losses = len(course.lost), course.losses or 0
        if losses > kept:
            text = f"{losses:,} requests were lost, of which {kept:,} are known one by one"
            lacks.append(Finding(text, "lost", "doubt", about=about))
    values = {**row.values, **mean_values({trial.round: seen.whole for trial, seen in launches})}
    dims = {**row.dims, "launches": len(launches)}
    return replace(row, dims=dims, values=values, warnings=(*row.warnings, *lacks))


def find(result: Result, slo: Slo, cells: Sequence[tuple[ViewRow, Launches]]) -> Iterator[str]:
    """Yield the best cell and the worst, and what held up the worst."""

    def rank(cell: tuple[ViewRow, Launches]) -> list[float]:
        return [round(cell[0].value(name) or 0.0, 1) for name in ("out_s", "lost", "replica_s")]

    ranked = sorted(filter(itemgetter(1), cells), key=rank)
    ends = [*ranked[:1], *ranked[1:][-1:]]
    for word, (row, launches) in zip(("best", "worst"), ends, strict=False):
        about = f"{word} of {len(cells)}: {row.name}: " if len(cells) > 1 else ""
        seconds = len(launches[0][1].out)
        due, lost = count_all(row, "due"), count_all(row, "lost")
        near = list_counts(row, "lost_near")
        if "HAProxy cut" in near:
            losses = chain.from_iterable(trial.course.lost for trial, _ in launches)
            ages = [end_s - due_s for due_s, end_s, _ in losses if end_s is not None] or [0.0]
            near += f" ({HARD_STOP}; due {min(ages):.2g} to {max(ages):.2g} s before)"
        parts = [list_counts(row, "lost"), f"within {NEAR_S:g} s of: {near}" if near else ""]
        why = f" ({'; '.join(filter(None, parts))})" if any(parts) else ""
        out = f"{row.text('out_s')} of {seconds} s are out of the SLO ({slo.text})"
        yield f"{about}{out}; lost: {lost:,} of {due:,} requests{why}"
    if ranked:
        routed = has_own_router(result, row.line.cell)
        wait_s = None if routed else read_flag_s(result.launches, row.line.variant, ROUTER_WAIT)
        yield from filter(None, [describe_stop(launches, wait_s)])


def describe_miss(row: ViewRow, slo: Slo) -> str:
    launches = counted(row.dims["launches"], "launch", "launches")
    return f"{row.name}: {count_all(row, 'out_s')} s out of the SLO in {launches} ({slo.text})"


def describe_stop(launches: Launches, wait_s: float | None) -> str:
    """Say what held up the first launch that stood still, or whose answers dropped."""
    for trial, transient in launches:
        about = f"launch {trial.round}: " if len(launches) > 1 else ""
        if read_rate(trial).silent_from is not None:
            return f"{about}{limit_words(limited_by(trial))}"
        if (drop := find_drop(trial.course, transient)) is not None:
            deployments = {change.deployment for change in trial.course.changes}
            wait_s = wait_s if len(deployments) == 1 else None  # the longest of Serve's router
            router = router_words(drop.rate, drop.running, wait_s)
            return (
                f"{about}in {drop.seconds} s from second {drop.first} on, {shorten(drop.rate)} "
                f"answers/s come while requests wait, though at most "
                f"{counted(drop.running, 'replica')} gave {shorten(drop.before)}/s before: the "
                f"replicas are not the limit{f'; {router}' if router else ''}"
            )
    return ""


def has_own_router(result: Result, cell: JsonObject) -> bool:
    """Return whether a deployment sets its own router, or other waits of Serve's."""
    return "request_router_config" in str([result.run.suite.get("app"), [*cell]])


def draw_course(course: Sequence[ViewRow], faults: Sequence[ViewRow], slo: Slo) -> Iterator[Chart]:
    """Chart load, latency and replicas over the seconds of a launch, with its cell's faults."""
    marks = [(at_s, row.dims["fault"]) for row in faults if (at_s := row.value("at_s")) is not None]
    where = course[0].group if course else ""
    for title, figures in COURSE.items():
        yield from line_chart(
            *(f"{title}: {where}", select(course, "second"), "second", figures, "cell"),
            marks=marks,
            caption=f"SLO of each second: {slo.text}",
            x_name="seconds",
            x_scale="linear",
            log_y=title == "Latency",
        )


def select(points: Sequence[ViewRow], kind: str) -> list[ViewRow]:
    return [point for point in points if point.dims["point"] == kind]


def build(page: Page) -> View:
    """Build the view of the cells of a run with what happened in them."""
    result, rows = page.result, page.rows
    timeline, slo = read_timeline(result)
    cells: list[tuple[ViewRow, Launches]] = []
    points, charts = list[ViewRow](), list[Later]()
    for row in rows:
        line = row.line
        name = row.place if len(rows) > 1 else line.variant
        trials = (trial for trial in line.trials if trial.course != CourseFacts())
        stop_s = read_flag_s(result.launches, line.variant, HARD_STOP)
        launches = [(trial, read_transient(trial, timeline, slo, stop_s)) for trial in trials]
        spans = [*make_spans(timeline, launches, name)]
        points += spans
        for trial, transient in launches:
            course = [*make_course(trial, transient, name)]
            charts.append(Later(partial(draw_course, course, select(spans, "fault"), slo)))
            points += course
        cells.append((make_cell(replace(row, name=name), launches), launches))
    shown = [row for row, _ in cells]
    names, found = [row.name for row in shown], find(result, slo, cells)
    sections = [
        table_section("cells", "Cells", CELLS, shown, "headline"),
        table_section("stages", "Stages", STAGES, select(points, "stage"), "table"),
        table_section("faults", "Faults", FAULTS, select(points, "fault"), "table"),
        table_section("events", "Events", EVENTS, select(points, "event")),
    ]
    return View(
        rows=shown,
        points=points,
        findings=[statement(text, names) for text in found],
        faults=[describe_miss(row, slo) for row in shown if count_all(row, "out_s")],
        planned=(len(result.missing), len(result.plan), "loads"),
        sections=sections if charts else (),
        charts=[Section("course", "Course", tuple(charts[:MOST_DRAWN]))],
        facts=[("load", f"{timeline.source}; open loop, {timeline.arrivals} arrivals")],
        tiles=partial(make_tiles, shown[:1], "out_s lost due"),
    )


def condensed(result: Result) -> Result:
    """Return the run with the answers within the SLO, per second, as the trial of each launch.

    The row names load, faults and SLO, so that others are other rows. Raises BadInput for a damaged
    run.
    """
    timeline, slo = read_timeline(result)
    words = [timeline.source, f"{timeline.arrivals} arrivals"]
    words += [*(fault.source for fault in timeline.faults), *(goal.text for goal in slo.objectives)]
    label = f"answered within the SLO, {', '.join(words)}"
    plan = [plan_row(planned, replace(planned.row, label=label)) for planned in result.plan]

    def measure(trial: Trial) -> Trial:
        out, answered = read_transient(trial, timeline, slo).out, trial.course.answered
        within = sum(count for count, missed in zip(answered, out, strict=True) if missed is False)
        metrics = {**trial.metrics, MAIN: Metric("requests/s", "higher", (within / len(out),))}
        row = plan_row(trial, replace(trial.row, label=label))
        kept = replace(trial, key=row.key, row=row.row, metrics=metrics)
        return replace(kept, course=CourseFacts(), slices=ProbeSlices()).flagged("fitted")

    trials = [measure(trial) for trial in result.trials if trial.course.due]
    return replace_rows(result, plan, trials, without="timeline")


CODES: Final = (
    *("client-bound", "busy-host", "other-programs", "worker-failed", "other-host"),
    *("variant-not-engaged", "unclean-teardown"),
)
# Other warnings, and verdicts, are of a load that should be steady.
LENS: Final = Lens(build, compared=condensed, codes=CODES, usage_of=lambda trial: TrialUsage())
