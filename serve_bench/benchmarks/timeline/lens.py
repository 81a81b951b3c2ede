"""How a run of timeline is looked at: what happened, when, and how long until the SLO held again.

A row is a cell over its launches. Points are its stages, its faults and, of each launch, events,
states of its replicas and each second. Figures are means over launches with the 95 % interval by t;
times count from the begin of the first stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.course import (
    REPLICA_STATES,
    ReplicaCount,
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
from serve_bench.core.timeline import Timeline
from serve_bench.view.blocks import section, statement
from serve_bench.view.charts import Chart, Happening, Happenings, Lane, LinePoint, Lines, Mark
from serve_bench.view.document import Charts, Finding, Folded, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare, find_figure, known_values, scale
from serve_bench.view.frame import Field, TableSpec, ViewRow, differ, make_table
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Page
from serve_bench.view.texts import cell_title

for _name, _unit, _meaning, _title in (
    ("due", "requests", "requests that were due", ""),
    ("sent", "requests", "requests that were sent in a second", ""),
    ("answered", "requests", "requests that were due and were answered", ""),
    ("ended", "requests", "answers that came in a second", "answers"),
    ("waiting", "requests", "due and without an end when a second was over", ""),
    ("lost_near", "requests", "lost requests that ended near an event of this kind", ""),
    ("replica_s", "s", "seconds of replicas that took resources", "replicas"),
    ("least_s", "s", "seconds of the replicas that were needed", "needed replicas"),
    ("cost", "1", "replica-seconds over those of the needed replicas", ""),
    ("turns", "times", "changes of direction of the number of wanted replicas", ""),
    ("turns_per_minute", "1/min", "the same within stages, in a minute", "turns"),
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
    ("last_out_s", "s", "from a fault to the end of the last second out of the SLO", "last out"),
    ("fewest", "replicas", "the fewest replicas that ran meanwhile", "running"),
    ("lasted_s", "s", "from a deploy until it was in force", "took"),
    *((state, "replicas", f"{state} replicas", "") for state in REPLICA_STATES),
    ("role_cpu", "%", "CPU of all processes of a role, % of a core", "CPU"),
):
    declare(_name, _unit, _meaning, title=_title, shown="s" if _unit == "s" else "", digits=3)
declare(
    *("lost", "requests", "requests that failed or had no end, also by class"),
    shown="",
    tone="bad",
    digits=3,
)
declare("out_s", "s", "seconds out of the SLO", title="out of SLO", better="lower", digits=3)

LANES: Final = (
    ("Load", "requests, each s", "requests of each second", ("due", "ended", "waiting", "lost"), 0),
    (
        *("Latency", "latency, ms", "latency of the requests that were due in each second"),
        *(("latency_p50", "latency_p99", "latency_max"), 0),
    ),
    ("Replicas", "replicas", "replicas over time", REPLICA_STATES, 0),
    ("CPU", "CPU, % of a core", "CPU by process", ("role_cpu",), 5),
)
"""Title, unit, words, figures (each also by its members), and what a line rises above to be drawn.
"""

COUNTS: Final = ("due", "sent", "answered", "ended", "waiting")
CELL: Final = "due answered lost out_s replica_s least_s cost turns_per_minute down_s".split()
STAGE: Final = """due answered lost out_s end_s held_s further_s needed needed_s
most_replicas overshoot turns least_s""".split()
FAULT: Final = "lost out_s at_s until_s held_s last_out_s fewest answered lasted_s".split()
"""Figures by the names of the attributes that have them."""

CELLS: Final = TableSpec(
    "Each cell, means over launches",
    (
        *(Field("name", "cell"), Field("launches"), Field("out_s"), Field("due"), Field("lost")),
        Field("replica_s", head="seconds"),
        Field("cost", head="x needed", detail=True),
        Field("turns_per_minute", head="per min", detail=True),
        Field("down_s", detail=True),
    ),
)
STAGES: Final = TableSpec(
    "Stages of the load",
    (
        Field("begin_s"),
        Field("stage_rate", head="requests/s"),
        *(Field("due"), Field("lost"), Field("out_s"), Field("held_s")),
        Field("further_s", detail=True),
        Field("needed"),
        *(Field(name, detail=True) for name in ("needed_s", "most_replicas", "turns")),
    ),
)
FAULTS: Final = TableSpec(
    "Faults, means over launches",
    (
        *(Field("name", "fault"), Field("lost"), Field("lost_by_class"), Field("out_s")),
        Field("last_out_s", head="s after"),
        Field("fewest", head="at least"),
        Field("answered", head="meanwhile", detail=True),
        Field("lasted_s", detail=True),
    ),
    ("lost: requests that failed between the fault and the next one",),
)
EVENTS: Final = TableSpec("What happened", (Field("at_s"), Field("what"), Field("who")))
SECONDS: Final = TableSpec(
    "Each second",
    (
        *(Field("second"), Field("due"), Field("sent", detail=True)),
        *(Field("answered", detail=True), Field("lost"), Field("waiting")),
        *(Field("latency_p50", detail=True), Field("latency_p99"), Field("latency_max")),
        *(Field("slo", "SLO"), Field("wanted", detail=True), Field("starting", detail=True)),
        *(Field("running"), Field("draining", detail=True)),
    ),
    (
        "by the second in which requests were due; sent: in that second; waiting: due and without "
        "an end when it was over",
    ),
)

WARNINGS: Final = frozenset(
    """client-bound busy-host other-programs worker-failed other-host variant-not-engaged
    unclean-teardown""".split()
)
"""Those that hold for a load that changes: others are of rates that should be steady."""

LOST: Final = {"cut": "without an answer", "unsent": "never sent", "status": "with another status"}
"""What classes of lost requests are called."""

MOST_LANES: Final = 4
"""Launches whose lanes are drawn; of more there are tables."""


# Launches.


@dataclass(frozen=True)
class TimelineLaunch:
    """A launch of a cell with its figures."""

    cell: str
    trial: Trial
    transient: Transient

    @property
    def name(self) -> str:
        """`default, launch 2`."""
        return f"{self.cell}, launch {self.trial.round}"

    @property
    def whole_s(self) -> float:
        """Until the service was observed."""
        return len(self.transient.out) + float(self.trial.course.get("after_s") or 0.0)

    @cached_property
    def events(self) -> list[ViewRow]:
        """What happened, in order."""
        return [
            self._point("event", {"at_s": event.at_s}, what=event.what, who=event.who)
            for event in events_of(self.trial.course)
        ]

    @cached_property
    def states(self) -> list[ViewRow]:
        """The replicas at the begin, at each change, and at the end."""
        states = self.transient.replicas.between(0.0, self.whole_s)
        moments = [*(max(0.0, state.at_s) for state in states), self.whole_s]
        return [
            self._point("replicas", {"at_s": moment, **_count(state)})
            for moment, state in zip(moments, [*states, *states[-1:]], strict=bool(states))
        ]

    @cached_property
    def seconds(self) -> list[ViewRow]:
        """Each second of the load."""
        return [*map(self._second, range(len(self.transient.out)))]

    def _point(self, kind: str, values: Mapping[str, float | None], **dims: Any) -> ViewRow:
        where = {"point": kind, "cell": self.cell, "launch": self.trial.round}
        return ViewRow({**where, **dims}, known_values(**values))

    def _second(self, second: int) -> ViewRow:
        course, out = self.trial.course, self.transient.out[second]
        lost = {f"lost.{word}": counts[second] for word, counts in course["failed"].items()}
        values: dict[str, float | None] = {
            **{name: course[name][second] for name in COUNTS},
            **{"at_s": second + 0.5, "lost": sum(lost.values())},
            **{name: count for name, count in lost.items() if count},
            **_count(self.transient.replicas.at(second + 1.0)),
        }
        if course["latency"][second] is not None:
            histogram = Histogram.decode(course["latency"][second])
            values["latency_p50"], values["latency_p99"] = histogram.percentiles((0.5, 0.99))
            values["latency_max"] = histogram.max
        for role, used in (course.get("cpu") or {}).items():
            values[f"role_cpu.{role}"] = used[second] if second < len(used) else None
        slo = None if out is None else "out" if out else "in"
        row = self._point("second", values, second=second, slo=slo)
        return replace(row, tones={"slo": "bad" if out else "quiet"})


def _count(state: ReplicaCount | None) -> dict[str, float | None]:
    return {name: getattr(state, name, None) for name in REPLICA_STATES}


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
    """A cell under a variant, over its launches."""

    row: ViewRow
    timeline: Timeline
    slo: Slo
    launches: tuple[TimelineLaunch, ...]
    router_wait_s: float | None = None

    @cached_property
    def stages(self) -> list[ViewRow]:
        """Its stages, each over the launches that reached it."""
        return [*map(self._stage, range(len(self.timeline.stages)))]

    @cached_property
    def faults(self) -> list[ViewRow]:
        """Its faults, each over the launches in which it was done."""
        return [*map(self._fault, range(len(self.timeline.faults)))]

    def _reached(self, parts: str, place: int) -> dict[int, Any]:
        """A stage or a fault, by launch."""
        return {
            launch.trial.round: part
            for launch in self.launches
            for part in getattr(launch.transient, parts)[place : place + 1]
        }

    def _stage(self, place: int) -> ViewRow:
        stages = self._reached("stages", place)
        begin, rate = self.timeline.begins[place], self.timeline.stages[place].rate
        values = {"begin_s": Value(begin), "stage_rate": Value(rate), **_means(stages, STAGE)}
        dims = {"point": "stage", "cell": self.row.name, "stage": place + 1}
        never = "held_s" not in values and any(stage.due for stage in stages.values())
        dims |= {"held_s": "never"} if never else {}
        tones: dict[str, Tone] = {"held_s": "bad"} if never else {}
        return ViewRow(dims, values, group=self.row.name, tones=tones)

    def _fault(self, place: int) -> ViewRow:
        planned, reached = self.timeline.faults[place], self._reached("faults", place)
        done = {launch: fault for launch, fault in reached.items() if fault.at_s is not None}
        why_not = next((fault.why_not for fault in reached.values()), "the load ended before")
        values = _means(done, FAULT)
        dims = {"point": "fault", "cell": self.row.name, "fault": planned.source}
        dims["lost_by_class"] = lost_words(values) or "-"
        gap = "" if done else f"not done, {why_not}"
        return ViewRow(dims, values, planned.text, self.row.name, gap=gap)


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
    axes, several = differ(rows, page.axes), len(page.variants) > 1
    for row in rows:
        assert row.entry is not None
        line = row.entry.line
        apart = {name: value for name, value in line.cell.items() if name in axes}
        variant = [line.variant] if several or not apart else []
        name = ", ".join([*variant, *([cell_title(apart)] if apart else [])])
        launches = tuple(
            TimelineLaunch(name, trial, read_transient(trial, timeline, slo))
            for trial in line.trials
            if trial.course
        )
        own_router = has_own_router(result, line.cell)
        wait_s = None if own_router else router_wait_s(result.launches, line.variant)
        cell_row = _cell_row(replace(row, name=name), launches)
        yield TimelineCell(cell_row, timeline, slo, launches, wait_s)


def _cell_row(row: ViewRow, launches: Sequence[TimelineLaunch]) -> ViewRow:
    """A cell with its figures, and the warnings that hold for it."""
    assert row.entry is not None
    kept = tuple(warning for warning in row.entry.warnings if warning.code in WARNINGS)
    entry = replace(row.entry, warnings=kept)
    values = _means({launch.trial.round: launch.transient for launch in launches}, CELL)
    near = near_events(launch.trial.course for launch in launches)
    values |= {f"lost_near.{what}": Value(float(count)) for what, count in near.items()}
    return replace(
        row,
        dims={**row.dims, "launches": len(launches)},
        values={**row.values, **values},
        warnings=(*entry.findings, *(finding for launch in launches for finding in _gaps(launch))),
        entry=entry,
    )


def _gaps(launch: TimelineLaunch) -> Iterator[Finding]:
    """What the record of a launch lacks."""
    course, about = launch.trial.course, f"launch {launch.trial.round}"
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


def describe_cells(cells: Sequence[TimelineCell]) -> Iterator[str]:
    """What the run says: of each cell the whole, what held it up, its faults; then the best."""
    for cell in cells:
        about = f"{cell.row.name}: " if len(cells) > 1 else ""
        for text in _describe_cell(cell) if cell.launches else ["not measured"]:
            yield f"{about}{text}"
    measured = [cell.row for cell in cells if cell.launches]
    if len(measured) > 1:
        best = min(measured, key=_rank)
        cost = best.text("replica_s")
        yield f"best: {best.name}: {best.text('out_s')} s out of the SLO, {cost} replica-seconds"


def _rank(row: ViewRow) -> tuple[float, ...]:
    """By the seconds out of the SLO, then by the lost requests, then by the replica-seconds."""
    out, lost, cost = (row.value(name) or 0.0 for name in ("out_s", "lost", "replica_s"))
    return round(out, 1), round(lost, 1), cost


def _describe_cell(cell: TimelineCell) -> Iterator[str]:
    row, first = cell.row, cell.launches[0]
    due, count = _sum(row.values, "due"), _sum(row.values, "lost")
    verb = "was" if count == 1 else "were"
    lost = f"{count:,} of {due:,} requests {verb} lost: {lost_words(row.values)}"
    yield (
        f"{row.text('out_s')} of {len(first.transient.out)} s are out of the SLO "
        f"({cell.slo.text}); {lost if count else f'none of {due:,} requests was lost'}"
    )
    launches = [(launch.trial, launch.transient) for launch in cell.launches]
    yield from describe_drops(launches, cell.router_wait_s)
    yield from describe_near([trial.course for trial, _ in launches])
    watched = bool(first.transient.replicas.counts)
    for before, stage in zip(cell.stages, cell.stages[1:], strict=False):
        if stage.values["stage_rate"].value > before.values["stage_rate"].value:
            yield from describe_rise(stage, watched)
    if (row.value("turns_per_minute") or 0) >= 2:
        turns = row.text("turns_per_minute")
        yield f"the number of replicas turns {turns} times a minute within a stage"
    after_s = cell.timeline.after_s
    if watched and after_s > 0 and "down_s" in row.values:
        yield f"as few replicas as before the load {_seconds(row, 'down_s')} after it"
    elif watched and after_s > 0:
        yield f"{after_s:g} s after the load there are still more replicas than before"
    yield from map(_describe_fault, cell.faults)


def _seconds(row: ViewRow, name: str) -> str:
    """`12.0 (9.10 to 14.9) s (2 of 3 launches)`."""
    value = row.values[name]
    seen = len(value.launches)
    several = f" ({seen} of {seen + value.missing} launches)" if value.missing else ""
    return f"{row.text(name)} s{several}"


def describe_rise(stage: ViewRow, watched: bool) -> Iterator[str]:
    """What more load did; nothing where the run ended before. `watched`: whether the replicas
    were seen."""
    words = []
    if "out_s" not in stage.values:
        return
    if "further_s" in stage.values:
        words.append(f"the first further replica runs after {_seconds(stage, 'further_s')}")
    elif watched:
        words.append("no further replica runs")
    held = stage.value("held_s")
    if held is None:
        words.append("the SLO does not hold again before the stage is over")
    elif not stage.value("out_s"):
        words.append("the SLO holds all along")
    elif held == 0:
        # `held_s` looks HOLD_S seconds ahead: it may be missed later in the stage.
        words.append(f"the SLO holds at first; {_seconds(stage, 'out_s')} of the stage are out")
    else:
        replicas = f" with {stage.text('needed')} replicas" if "needed" in stage.values else ""
        words.append(f"the SLO holds again after {_seconds(stage, 'held_s')}{replicas}")
    if (stage.value("overshoot") or 0) >= 0.5:
        words.append(f"{stage.text('overshoot')} more are started than it needs")
    begin, rate = stage.text("begin_s"), stage.text("stage_rate")
    yield f"at {begin} s the load rises to {rate}/s: {'; '.join(words)}"


def _describe_fault(fault: ViewRow) -> str:
    if fault.gap:
        return f"{fault.name}: {fault.gap}"
    lost = _sum(fault.values, "lost")
    words = [f"{lost:,} lost ({lost_words(fault.values)})" if lost else "no request lost"]
    if not fault.value("out_s") or "last_out_s" not in fault.values:
        words.append("no second out of the SLO")
    else:
        after = _seconds(fault, "last_out_s")
        words.append(f"{_seconds(fault, 'out_s')} out of the SLO, the last {after} after it")
        words += [] if "held_s" in fault.values else ["it does not hold again"]
    if "fewest" in fault.values:
        few, answers = fault.text("fewest"), fault.text("answered")
        words.append(f"meanwhile {few} replicas at least gave {answers} answers")
    if fault.dims["fault"].startswith("deploy"):
        is_over = "lasted_s" in fault.values
        late = "not in force while it was watched"
        words.append(f"in force after {_seconds(fault, 'lasted_s')}" if is_over else late)
    return f"{fault.name}: {'; '.join(words)}"


# Lanes of a launch.


def draw_lanes(launch: TimelineLaunch, slo: Slo) -> Iterator[Chart]:
    """Load, latency, replicas, CPU and what happened, over the same seconds."""
    faults = launch.transient.faults
    lane = Lane(launch.whole_s, tuple(_shades(launch.transient.out)))
    marks = [Mark(fault.at_s, fault.source) for fault in faults if fault.at_s is not None]
    shaded = f"shaded: out of the SLO ({slo.text})" if lane.shades else ""
    for title, unit, words, names, least in LANES:
        over = replace(lane, stepped=title == "Replicas")
        rows, log = launch.states if over.stepped else launch.seconds, title == "Latency"
        first = title == "Load"
        if lines := _lines(rows, names, least):
            drawn = Lines(
                *(lines, "seconds", unit, "time", None if log else False, marks if first else ()),
                lane=over,
            )
            yield Chart(title, drawn, f"{words}, {launch.name}", shaded if first else "")
    happened = [
        Happening(row.values["at_s"].value, row.dims["what"], row.dims["who"])
        for row in launch.events
        if 0 <= row.values["at_s"].value <= launch.whole_s
    ]
    if happened:
        yield Chart("Events", Happenings(happened, lane), f"what happened, {launch.name}")


def _shades(out: Sequence[bool | None]) -> Iterator[tuple[float, float]]:
    """The spans out of the SLO."""
    for missed, span in groupby(enumerate(out), lambda second: second[1]):
        if missed:
            first, *others = (float(second) for second, _ in span)
            yield first, (others or [first])[-1] + 1.0


def _lines(
    rows: Sequence[ViewRow], names: Sequence[str], least: float
) -> dict[str, list[LinePoint]]:
    """Figures over time, each a line, and of CPU each role; those that are nowhere above `least`
    are left out."""
    lines = {}
    for name in dict.fromkeys(name for row in rows for name in row.values):
        figure = find_figure(name)
        if figure is None or (name not in names and name.partition(".")[0] != names[0]):
            continue
        factor, lowest = scale(figure.unit, figure.shown), 1e-3 if figure.shown == "ms" else 0.0
        points = [
            LinePoint(row.values["at_s"].value, max(lowest, factor * value))
            for row in rows
            if (value := row.value(name)) is not None
        ]
        if max(point.value for point in points) > least:
            lines[figure.title.removeprefix("CPU ").replace("_", " ")] = points
    return lines


# The whole.


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The cells of a run with what happened in them."""
    cells = [*read_cells(result, page, rows)]
    launches = [launch for cell in cells for launch in cell.launches]
    stages = [stage for cell in cells for stage in cell.stages]
    faults = [fault for cell in cells for fault in cell.faults]
    names, cell_rows = [cell.row.name for cell in cells], [cell.row for cell in cells]
    sections = [Section("results", "The whole", (make_table(CELLS, cell_rows),), "headline")]
    sections += section("stages", "Stages", [make_table(STAGES, stages)], "table")
    sections += section("faults", "Faults", [make_table(FAULTS, faults)] if faults else [], "table")
    over_time = [
        row for launch in launches for row in (*launch.events, *launch.states, *launch.seconds)
    ]
    return View(
        rows=cell_rows,
        points=[*stages, *faults, *over_time],
        findings=tuple(statement(text, names) for text in describe_cells(cells)),
        planned=(len(result.missing), len(result.plan), ""),
        sections=sections if launches else (),
        charts=tuple(_courses(launches, cells[0].slo)) if launches else (),
        facts=tuple(_describe_load(*read_timeline(result))),
    )


def _courses(launches: Sequence[TimelineLaunch], slo: Slo) -> Iterator[Section]:
    """The lanes of the first launches of all cells; events and seconds of all."""
    drawn = sorted(launches, key=lambda launch: launch.trial.round)[:MOST_LANES]
    for place, launch in enumerate(drawn, 1):
        lanes = Charts(partial(draw_lanes, launch, slo))
        yield Section(f"course-{place}", f"Course: {launch.name}", (lanes,))
    happened = [launch for launch in launches if launch.events]
    events = [Folded(launch.name, (make_table(EVENTS, launch.events),)) for launch in happened]
    yield from section("events", "Events", events)
    tables = [Folded(launch.name, (make_table(SECONDS, launch.seconds),)) for launch in launches]
    yield from section("seconds", "Second by second", tables)


def _describe_load(timeline: Timeline, slo: Slo) -> Iterator[tuple[str, str]]:
    yield "SLO", slo.text
    ramp = ", rates move linearly" if timeline.ramp else ""
    yield "load", f"{timeline.source}{ramp}; client raw, open loop, {timeline.arrivals} arrivals"
    if timeline.faults:
        yield "faults", ", ".join(fault.text for fault in timeline.faults)


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
    silent=("requests/s:", "ratio:", "incomplete:"),
    usage_of=lambda trial: {},  # a verdict is of a load that does not change
)
