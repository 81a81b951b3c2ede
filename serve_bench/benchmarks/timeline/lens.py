"""How a run of timeline is looked at: what happened, when, and how long until the SLO held again.

A row is a cell over its launches. Points are its stages, its faults and, of each launch, events,
states of its replicas and each second. Figures are means over launches with the 95 % interval by t;
times count from the begin of the first stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Any, Final, TypeAlias

from serve_bench.analysis.course import (
    REPLICA_STATES,
    ReplicaLine,
    Transient,
    bounds_of,
    events_of,
    mean_of,
    transient_of,
)
from serve_bench.analysis.verdict.router import router_wait_s
from serve_bench.benchmarks.timeline.drops import describe_drops, describe_near, near_events
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import JsonObject, Result, Trial
from serve_bench.core.schema import built
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.core.timeline import PlannedFault, Timeline
from serve_bench.view.blocks import section, statement
from serve_bench.view.charts import Chart, Mark
from serve_bench.view.csv import pick
from serve_bench.view.document import Charts, Finding, ReportOptions, Section
from serve_bench.view.figures import Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_table, make_tiles
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.names import names_of
from serve_bench.view.rows import Page

for _name, _unit, _meaning, _title in (
    ("due", "requests", "requests that were due", ""),
    ("sent", "requests", "requests that were sent in a second", ""),
    ("answered", "requests", "requests that were due and were answered", ""),
    ("ended", "requests", "answers that came in a second", "answers"),
    ("waiting", "requests", "due and without an end when a second was over", ""),
    ("lost_near", "requests", "lost requests that ended near an event of this kind", ""),
    ("replica_s", "s", "seconds of replicas that took resources", "replica time"),
    ("least_s", "s", "seconds of the replicas that were needed", "needed replicas"),
    ("cost", "1", "replica-seconds over those of the needed replicas", "cost x needed"),
    ("turns", "times", "changes of direction of the number of wanted replicas", ""),
    ("turns_per_minute", "1/min", "the same within stages, in a minute", "turns per min"),
    ("down_s", "s", "from the end of the load until as few replicas as at its begin", "back after"),
    ("begin_s", "s", "begin of a stage", "from"),
    ("end_s", "s", "end of a stage", "until"),
    ("stage_rate", "requests/s", "rate of a stage at its end", "load"),
    ("held_s", "s", "from the begin of a stage, or a fault, until the SLO holds", "holds after"),
    ("further_s", "s", "until the first further replica runs", "first further"),
    ("needed", "replicas", "replicas that ran when the SLO held", "replicas needed"),
    ("needed_s", "s", "until as many ran", "there after"),
    ("most_replicas", "replicas", "the most starting and running replicas together", ""),
    ("overshoot", "replicas", "replicas above the needed ones", ""),
    ("at_s", "s", "a moment; of a second its middle", "at"),
    ("until_s", "s", "until the next fault or the end of the load", "until"),
    ("last_out_s", "s", "from a fault to the end of the last second out", "last out after"),
    ("fewest", "replicas", "the fewest replicas that ran meanwhile", "running at least"),
    ("lasted_s", "s", "from a deploy until it was in force", "took"),
    *((state, "replicas", f"{state} replicas", "") for state in REPLICA_STATES),
    ("role_cpu", "%", "CPU of all processes of a role, % of a core", "CPU"),
):
    _shown = _unit if _unit in ("s", "requests/s") else ""
    declare(_name, _unit, _meaning, title=_title, shown=_shown, digits=3)
_meaning = "requests that failed or had no end, also by class; after a fault until the next one"
declare("lost", "requests", _meaning, shown="", tone="bad", digits=3)
declare("out_s", "s", "seconds out of the SLO", title="out of SLO", better="lower", digits=3)

COURSE: Final = {
    "Load": ("due", "ended", "waiting", "lost"),
    "Latency": ("latency_p50", "latency_p99", "latency_max"),
    "Replicas": REPLICA_STATES,
}
"""Figures of each second that are drawn."""

COUNTS: Final = ("due", "sent", "answered", "ended", "waiting")
CELL: Final = "due answered lost out_s replica_s least_s cost turns_per_minute down_s".split()
STAGE: Final = """due answered lost out_s end_s held_s further_s needed needed_s
most_replicas overshoot turns least_s""".split()
FAULT: Final = "lost out_s at_s until_s held_s last_out_s fewest answered lasted_s".split()
"""Figures by the names of the attributes that have them."""


def _fields(names: str, details: str = "") -> tuple[Field, ...]:
    hidden = (Field(name, detail=True) for name in details.split())
    return (*map(Field, names.split()), *hidden)


CELLS: Final = TableSpec(
    "Each cell, means over launches",
    (
        Field("name", "cell"),
        *_fields("launches out_s due lost replica_s", "cost turns_per_minute down_s"),
    ),
)
STAGES: Final = TableSpec(
    "Stages of the load",
    _fields(
        "begin_s stage_rate due lost out_s held_s needed", "further_s needed_s most_replicas turns"
    ),
)
FAULTS: Final = TableSpec(
    "Faults, means over launches",
    (
        Field("name", "fault"),
        *_fields("lost lost_by_class out_s last_out_s fewest", "held_s answered lasted_s"),
    ),
)
EVENTS: Final = TableSpec("What happened", _fields("at_s what who"))
SECONDS: Final = TableSpec(
    "Each second, by when requests were due; sent, waiting: at its end",
    _fields(
        "second due sent answered lost waiting latency_p50 latency_p99 latency_max slo "
        + " ".join(REPLICA_STATES)
    ),
)

WARNINGS: Final = frozenset(
    """client-bound busy-host other-programs worker-failed other-host variant-not-engaged
    unclean-teardown""".split()
)
"""Those that hold for a load that changes: others are of rates that should be steady."""

LOST: Final = {"cut": "without an answer", "unsent": "never sent", "status": "with another status"}
"""What classes of lost requests are called."""

MOST_DRAWN: Final = 4
"""Launches of which charts are drawn."""


Launches: TypeAlias = Sequence[tuple[Trial, Transient]]
"""Of a cell, each with its figures."""


# Launches.


def make_events(trial: Trial, cell: str) -> Iterator[ViewRow]:
    """What happened in a launch, in order."""
    for event in events_of(trial.course):
        dims = {"point": "event", "cell": cell, "launch": trial.round}
        dims |= {"what": event.what, "who": event.who}
        yield ViewRow(dims, {"at_s": Value(event.at_s)}, group=f"{cell}, launch {trial.round}")


def make_states(trial: Trial, replicas: ReplicaLine, cell: str) -> Iterator[ViewRow]:
    """The replicas at the begin of a launch and at each change."""
    whole_s = len(trial.course["due"]) + float(trial.course.get("after_s") or 0.0)
    for state in replicas.between(0.0, whole_s):
        values = known_values(at_s=max(0.0, state.at_s), **pick(state, *REPLICA_STATES))
        yield ViewRow({"point": "replicas", "cell": cell, "launch": trial.round}, values)


def make_seconds(trial: Trial, transient: Transient, cell: str) -> Iterator[ViewRow]:
    """Each second of the load in a launch."""
    course = trial.course
    for second, out in enumerate(transient.out):
        lost = {f"lost.{word}": counts[second] for word, counts in course["failed"].items()}
        state = transient.replicas.at(second + 1.0)
        values: dict[str, float | None] = {
            **{"at_s": second + 0.5, "lost": sum(lost.values())},
            **{name: count for name, count in lost.items() if count},
            **{name: course[name][second] for name in COUNTS},
            **({} if state is None else pick(state, *REPLICA_STATES)),
        }
        if course["latency"][second] is not None:
            histogram = Histogram.decode(course["latency"][second])
            values["latency_p50"], values["latency_p99"] = histogram.percentiles((0.5, 0.99))
            values["latency_max"] = histogram.max
        for role, used in (course.get("cpu") or {}).items():
            values[f"role_cpu.{role}"] = used[second] if second < len(used) else None
        dims = {"point": "second", "cell": cell, "launch": trial.round, "second": second}
        dims["slo"] = None if out is None else "out" if out else "in"
        yield ViewRow(dims, known_values(**values), group=f"{cell}, launch {trial.round}")


def read_timeline(result: Result) -> tuple[Timeline, Slo]:
    """What the run was asked for. Raises FormatError."""
    timeline = built(Timeline, result.run.suite.get("timeline"), "suite.timeline")
    if not timeline.stages or not result.run.plan:
        raise FormatError("suite.timeline: it has no stages, or the run no plan")
    try:
        return timeline, parse_slo(timeline.slo, "suite.timeline.slo")
    except BadInput as error:
        raise FormatError(str(error)) from None


def read_transient(trial: Trial, timeline: Timeline, slo: Slo) -> Transient:
    """The figures of a launch, as far as it was measured. Raises FormatError."""
    measured = float(len(trial.course.get("due") or ()))
    spans = [
        (begin, min(begin + stage.duration_s, measured), stage.rate)
        for begin, stage in zip(timeline.begins, timeline.stages, strict=True)
        if begin < measured
    ]
    return transient_of(trial.course, bounds_of(trial.slices, slo), spans)


# Cells, and their stages and faults.


@dataclass(frozen=True)
class TimelineCell:
    """A cell under a variant: its launches, and its stages over those that reached them.
    `router_wait_s`: the longest wait of Serve's router, where it is known."""

    row: ViewRow
    slo: Slo
    launches: Launches
    stages: Sequence[ViewRow]
    faults: Sequence[ViewRow]
    router_wait_s: float | None


def _make_stage(timeline: Timeline, place: int, launches: Launches, cell: str) -> ViewRow:
    """A stage over the launches that reached it."""
    reached = {trial.round: seen.stages[place] for trial, seen in launches if seen.stages[place:]}
    rate = timeline.stages[place].rate
    values = {"begin_s": Value(timeline.begins[place]), "stage_rate": Value(rate)}
    values |= _means(reached, STAGE)
    dims = {"point": "stage", "cell": cell, "stage": place + 1}
    if "held_s" not in values and any(stage.due for stage in reached.values()):
        return ViewRow({**dims, "held_s": "never"}, values, group=cell, tones={"held_s": "bad"})
    return ViewRow(dims, values, group=cell)


def _make_fault(planned: PlannedFault, place: int, launches: Launches, cell: str) -> ViewRow:
    """A fault over the launches in which it was done."""
    reached = {trial.round: seen.faults[place] for trial, seen in launches if seen.faults[place:]}
    done = {launch: fault for launch, fault in reached.items() if fault.at_s is not None}
    why_not = next((fault.why_not for fault in reached.values()), "the load ended before")
    values = _means(done, FAULT)
    dims = {"point": "fault", "cell": cell, "fault": planned.source}
    dims["lost_by_class"] = lost_words(values) or "-"
    if done and "out_s" in values and "held_s" not in values:
        dims["held_s"] = "never"
    if done and planned.action == "deploy" and "lasted_s" not in values:
        dims["lasted_s"] = "not in force"
    return ViewRow(dims, values, planned.text, cell, gap="" if done else f"not done, {why_not}")


def _means(parts: Mapping[int, Any], names: Iterable[str]) -> dict[str, Value]:
    """Figures over launches; of lost requests by class too. `parts`: what has them as attributes,
    by launch."""
    found = {name: {launch: getattr(parts[launch], name) for launch in parts} for name in names}
    lost = found["lost"]
    for word in dict.fromkeys(word for classes in lost.values() for word in classes):
        found[f"lost.{word}"] = {launch: classes.get(word, 0) for launch, classes in lost.items()}
    found["lost"] = {launch: sum(classes.values()) for launch, classes in lost.items()}
    values = {}
    for name, numbers in found.items():
        if (over := mean_of([*numbers.values()])) is not None:
            measured = {launch: float(seen) for launch, seen in numbers.items() if seen is not None}
            missing = len(numbers) - len(measured) or None
            values[name] = Value(
                over.value, launches=measured, low=over.low, high=over.high, missing=missing
            )
    return values


def _sum(values: Mapping[str, Value], name: str) -> int:
    """A count in all launches."""
    return round(sum(values[name].launches.values())) if name in values else 0


def lost_words(values: Mapping[str, Value]) -> str:
    """`28 reset, 3 timeout`, of all launches."""
    lost = {name[5:]: _sum(values, name) for name in values if name.startswith("lost.")}
    ranked = sorted(lost.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {LOST.get(name, name)}" for name, count in ranked if count)


def read_cells(result: Result, page: Page, rows: Sequence[ViewRow]) -> Iterator[TimelineCell]:
    """The cells of a run, in the order of the plan. Raises FormatError."""
    timeline, slo = read_timeline(result)
    names = names_of(page)
    for row in rows:
        assert row.entry is not None
        line = row.entry.line
        name = names.beside(row.entry, True, False) if len(rows) > 1 else line.variant
        launches = [
            (trial, read_transient(trial, timeline, slo)) for trial in line.trials if trial.course
        ]
        stages, faults = range(len(timeline.stages)), enumerate(timeline.faults)
        yield TimelineCell(
            _make_row(replace(row, name=name), launches),
            slo,
            launches,
            [_make_stage(timeline, place, launches, name) for place in stages],
            [_make_fault(planned, place, launches, name) for place, planned in faults],
            None
            if has_own_router(result, line.cell)
            else router_wait_s(result.launches, line.variant),
        )


def _make_row(row: ViewRow, launches: Launches) -> ViewRow:
    """A cell with its figures, and the warnings that hold for it."""
    assert row.entry is not None
    left_out = {warning.code for warning in row.entry.warnings} - WARNINGS
    kept = [finding for finding in row.warnings if finding.code not in left_out]
    near = near_events(trial.course for trial, _ in launches)
    values = _means({trial.round: transient for trial, transient in launches}, CELL)
    values |= {f"lost_near.{what}": Value(float(count)) for what, count in near.items()}
    return replace(
        row,
        dims={**row.dims, "launches": len(launches)},
        values={**row.values, **values},
        warnings=(*kept, *(finding for trial, _ in launches for finding in _gaps(trial))),
    )


def _gaps(trial: Trial) -> Iterator[Finding]:
    """What the record of a launch lacks."""
    course, about = trial.course, f"launch {trial.round}"
    if why := course.get("why_not"):
        yield Finding(str(why), "state", "doubt", about=about)
    kept, losses = len(course.get("lost") or ()), int(course.get("losses") or 0)
    if losses > kept:
        text = f"{losses:,} requests were lost, of which the record keeps {kept:,} one by one"
        yield Finding(text, "lost", "doubt", about=about)


def has_own_router(result: Result, cell: JsonObject) -> bool:
    """Whether a deployment has a router of its own, or other waits of it."""
    app = result.run.suite.get("app")
    deployments = app.get("deployments") if isinstance(app, Mapping) else None
    return "request_router_config" in str([deployments, [*cell]])


# Sentences.


def find(cells: Sequence[TimelineCell]) -> Iterator[str]:
    """What the run says: the best cell and the worst, and of this what held it up, near what its
    requests were lost, which rise of the load put most seconds out of the SLO."""
    ranked = sorted((cell for cell in cells if cell.launches), key=_rank)
    for word, cell in zip(("best", "worst"), [*ranked[:1], *ranked[1:][-1:]], strict=False):
        about = f"{word} of {len(cells)}: {cell.row.name}: " if len(cells) > 1 else ""
        yield f"{about}{_describe_cell(cell)}"
    for cell in ranked[-1:]:
        yield from islice(describe_drops(cell.launches, cell.router_wait_s), 1)
        yield from describe_near([trial.course for trial, _ in cell.launches])
        yield from describe_rise(cell.stages)


def _rank(cell: TimelineCell) -> tuple[float, ...]:
    """By the seconds out of the SLO, then by the lost requests, then by the replica-seconds."""
    out, lost, cost = (cell.row.value(name) or 0.0 for name in ("out_s", "lost", "replica_s"))
    return round(out, 1), round(lost, 1), cost


def _describe_cell(cell: TimelineCell) -> str:
    row, seconds = cell.row, len(cell.launches[0][1].out)
    due, count = _sum(row.values, "due"), _sum(row.values, "lost")
    verb = "was" if count == 1 else "were"
    lost = f"{count:,} of {due:,} requests {verb} lost: {lost_words(row.values)}"
    out = f"{row.text('out_s')} of {seconds} s are out of the SLO ({cell.slo.text})"
    return f"{out}; {lost if count else f'none of {due:,} requests was lost'}"


def describe_rise(stages: Sequence[ViewRow]) -> Iterator[str]:
    """The rise of the load by which the most seconds are out of the SLO, if any is."""
    rises = [
        stage
        for before, stage in pairwise(stages)
        if stage.value("out_s")
        and stage.values["stage_rate"].value > before.values["stage_rate"].value
    ]
    for stage in sorted(rises, key=lambda stage: stage.values["out_s"].value)[-1:]:
        replicas = f" with {stage.text('needed')} replicas" if "needed" in stage.values else ""
        words = f"holds again after {stage.text('held_s')} s{replicas}"
        words = words if "held_s" in stage.values else "does not hold again in this stage"
        rise = f"at {stage.text('begin_s')} s the load rises to {stage.text('stage_rate')}/s"
        yield f"{rise}: {stage.text('out_s')} s are out of the SLO, which {words}"


def draw_course(seconds: Sequence[ViewRow], faults: Sequence[ViewRow], slo: Slo) -> Iterator[Chart]:
    """Load, latency and replicas over the seconds of a launch, with the faults of its cell."""
    at_s = {fault.dims["fault"]: fault.value("at_s") for fault in faults}
    for title, figures in COURSE.items():
        yield from line_chart(
            title,
            seconds,
            *("second", figures, "cell"),
            marks=[Mark(moment, name) for name, moment in at_s.items() if moment is not None],
            caption=f"SLO of each second: {slo.text}",
            x_name="seconds",
            log_x=False,
            log_y=title == "Latency",
        )


# The whole.


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The cells of a run with what happened in them."""
    timeline, slo = read_timeline(result)
    cells = [*read_cells(result, page, rows)]
    cell_rows = [cell.row for cell in cells]
    stages = [stage for cell in cells for stage in cell.stages]
    faults = [fault for cell in cells for fault in cell.faults]
    events: list[ViewRow] = []
    states: list[ViewRow] = []
    seconds: list[ViewRow] = []
    charts: list[Section] = []
    for cell in cells:
        for trial, transient in cell.launches:
            name, title = cell.row.name, f"Course: {cell.row.name}, launch {trial.round}"
            course = [*make_seconds(trial, transient, name)]
            events += make_events(trial, name)
            states += make_states(trial, transient.replicas, name)
            seconds += course
            drawn = Charts(partial(draw_course, course, cell.faults, slo))
            charts.append(Section(f"course-{len(charts) + 1}", title, (drawn,)))
    sections = [
        Section("results", "The whole", (make_table(CELLS, cell_rows),), "headline"),
        Section("stages", "Stages", (make_table(STAGES, stages),), "table"),
        *section("faults", "Faults", [make_table(FAULTS, faults)] if faults else [], "table"),
        *section("events", "Events", [make_table(EVENTS, events)] if events else []),
        Section("seconds", "Second by second", (make_table(SECONDS, seconds),)),
    ]
    ramp = ", rates move linearly" if timeline.ramp else ""
    load = f"{timeline.source}{ramp}; open loop, {timeline.arrivals} arrivals"
    return View(
        rows=cell_rows,
        points=[*stages, *faults, *events, *states, *seconds],
        findings=[statement(text, [row.name for row in cell_rows]) for text in find(cells)],
        planned=(len(result.missing), len(result.plan), ""),
        sections=sections if charts else (),
        charts=charts[:MOST_DRAWN],
        facts=(("load", load),),
        tiles=[*make_tiles(cell_rows[0], ("out_s", "lost", "due"))] if cell_rows else [],
    )


def gate(result: Result) -> list[str]:
    """The cells that were out of their SLO, in words."""
    slo = read_timeline(result)[1].text
    rows = look(result, ReportOptions(), LENS).view.rows
    return [
        f"{row.name}: {out} s out of the SLO in "
        f"{counted(row.dims['launches'], 'launch', 'launches')} ({slo})"
        for row in rows
        if (out := _sum(row.values, "out_s"))
    ]


LENS: Final = Lens(
    build,
    noun="load",
    usage_of=lambda trial: {},  # a verdict is of a load that does not change
)
