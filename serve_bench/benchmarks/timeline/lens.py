"""How a run of timeline is looked at: what happened, when, and how long until the SLO held again.

A row is a cell over its launches. Points are its stages, its faults and, of each launch, events,
states of its replicas and each second. Figures are means over launches with the 95 % interval by t;
times count from the begin of the first stage.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from serve_bench.analysis.course import (
    REPLICA_STATES,
    Figures,
    Transient,
    bounds_of,
    events_of,
    lost_figures,
    transient_of,
)
from serve_bench.analysis.ratios import quantile
from serve_bench.analysis.verdict.router import router_wait_s
from serve_bench.benchmarks.timeline.drops import describe_drops, describe_near, near_events
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import JsonObject, Result, Trial
from serve_bench.core.schema import built
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.core.timeline import Timeline
from serve_bench.view.blocks import statement
from serve_bench.view.charts import Chart
from serve_bench.view.csv import pick
from serve_bench.view.document import Charts, Detail, Finding, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare, declare_all, known_values
from serve_bench.view.frame import TableSpec, ViewRow, line_chart, make_spec, make_table, make_tiles
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Page

declare_all(
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
declare("lost", "requests", _meaning, shown="", tone="bad", digits=3)
declare("out_s", "s", "seconds out of the SLO", title="out of SLO", better="lower", digits=3)

COURSE: Final = {
    "Load": ("due", "ended", "waiting", "lost"),
    "Latency": ("latency_p50", "latency_p99", "latency_max"),
    "Replicas": REPLICA_STATES,
}
"""Figures of each second that are drawn."""


CELLS: Final = make_spec(
    "Each cell, means over launches",
    "launches out_s due lost replica_s",
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
    "lost lost_by_class out_s last_out_s fewest",
    "held_s answered lasted_s",
    row="fault",
)
SECONDS: Final = make_spec(
    "Each second, by when requests were due; sent, waiting: at its end",
    "second due sent answered lost waiting latency_p50 latency_p99 latency_max slo "
    + " ".join(REPLICA_STATES),
)
TABLES: Final[Mapping[str, tuple[str, TableSpec, Detail]]] = {
    "stage": ("Stages", STAGES, "table"),
    "fault": ("Faults", FAULTS, "table"),
    "event": ("Events", make_spec("What happened", "at_s what who"), "further"),
    "second": ("Second by second", SECONDS, "further"),
}
"""Of the points of each kind: title, columns, and how deep it lies."""

WARNINGS: Final = """client-bound busy-host other-programs worker-failed other-host
    variant-not-engaged unclean-teardown""".split()
"""Those that hold for a load that changes: others are of rates that should be steady."""

LOST: Final = {"cut": "without an answer", "unsent": "never sent", "status": "with another status"}
"""What classes of lost requests are called."""

COUNTS: Final = ("due", "sent", "answered", "ended", "waiting")
"""Of the requests of a second."""

MOST_DRAWN: Final = 4
"""Launches of which charts are drawn."""

Launches: TypeAlias = Sequence[tuple[Trial, Transient]]
"""Of a cell, each with its figures."""


# Launches.


def make_course(trial: Trial, transient: Transient, cell: str) -> Iterator[ViewRow]:
    """A launch: what happened, its replicas at its begin and at each change, each second."""
    course, group = trial.course, f"{cell}, launch {trial.round}"
    where = {"cell": cell, "launch": trial.round}
    for event in events_of(course):
        dims = {"point": "event", **where, "what": event.what, "who": event.who}
        yield ViewRow(dims, known_values(at_s=event.at_s), group=group)
    whole_s = len(course["due"]) + float(course.get("after_s") or 0.0)
    for state in transient.replicas.between(0.0, whole_s):
        values = known_values(at_s=max(0.0, state.at_s), **pick(state, *REPLICA_STATES))
        yield ViewRow({"point": "replicas", **where}, values, group=group)
    for second, out in enumerate(transient.out):
        figures: Figures = {
            "at_s": second + 0.5,
            **{name: course[name][second] for name in COUNTS},
            **lost_figures({word: counts[second] for word, counts in course["failed"].items()}),
        }
        if course["latency"][second] is not None:
            histogram = Histogram.decode(course["latency"][second])
            figures["latency_p50"], figures["latency_p99"] = histogram.percentiles((0.5, 0.99))
            figures["latency_max"] = histogram.max
        for role, used in (course.get("cpu") or {}).items():
            figures[f"role_cpu.{role}"] = used[second] if second < len(used) else None
        if (replicas := transient.replicas.at(second + 1.0)) is not None:
            figures |= pick(replicas, *REPLICA_STATES)
        slo = None if out is None else "out" if out else "in"
        dims = {"point": "second", **where, "second": second, "slo": slo}
        yield ViewRow(dims, known_values(**figures), group=group)


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
        (begin, min(begin + stage.duration_s, measured))
        for begin, stage in zip(timeline.begins, timeline.stages, strict=True)
        if begin < measured
    ]
    return transient_of(trial.course, bounds_of(trial.slices, slo), spans)


# Cells, and their stages and faults.


def make_stages(timeline: Timeline, launches: Launches, cell: str) -> Iterator[ViewRow]:
    """Each stage over the launches that reached it."""
    for place, begin_s in enumerate(timeline.begins):
        reached = {
            trial.round: seen.stages[place] for trial, seen in launches if seen.stages[place:]
        }
        dims = {"point": "stage", "cell": cell, "stage": place + 1}
        values = known_values(begin_s=begin_s, stage_rate=timeline.stages[place].rate)
        values |= mean_values(reached)
        tones: dict[str, Tone] = {}
        if "held_s" not in values and any(stage["due"] for stage in reached.values()):
            dims["held_s"], tones["held_s"] = "never", "bad"
        yield ViewRow(dims, values, group=cell, tones=tones)


def make_faults(timeline: Timeline, launches: Launches, cell: str) -> Iterator[ViewRow]:
    """Each fault over the launches in which it was done."""
    for place, planned in enumerate(timeline.faults):
        reached = [(trial, seen.faults[place]) for trial, seen in launches if seen.faults[place:]]
        done = {trial.round: fault for trial, fault in reached if fault["at_s"] is not None}
        values = mean_values(done)
        dims = {"point": "fault", "cell": cell, "fault": planned.source}
        dims["lost_by_class"] = lost_words(values) or "-"
        if done and "held_s" not in values:
            dims["held_s"] = "never"
        if done and planned.action == "deploy" and "lasted_s" not in values:
            dims["lasted_s"] = "not in force"
        records = (trial.course["faults"][place] for trial, _ in reached)
        why_not = next((record.get("why_not") or "" for record in records), "the load ended before")
        gap = "" if done else f"not done, {why_not}"
        yield ViewRow(dims, values, planned.text, cell, gap=gap)


def mean_values(launches: Mapping[int, Figures]) -> dict[str, Value]:
    """Figures over launches, with the 95 % interval [Student, 1908] where several launches have
    them; none can be below 0. A class of lost requests that a launch has not seen is 0 there."""
    values = {}
    for name in dict.fromkeys(name for figures in launches.values() for name in figures):
        seen = {launch: figures.get(name, 0) for launch, figures in launches.items()}
        known = {launch: float(number) for launch, number in seen.items() if number is not None}
        if not known:
            continue
        n, mean = len(known), statistics.fmean(known.values())
        value = Value(mean, launches=known, missing=len(seen) - n or None)
        if n > 1:
            half = quantile(n - 1, 0.975) * statistics.stdev(known.values()) / math.sqrt(n)
            value = replace(value, low=max(0.0, mean - half), high=mean + half)
        values[name] = value
    return values


def count_all(values: Mapping[str, Value], name: str) -> int:
    """A count in all launches."""
    return round(sum(values[name].launches.values())) if name in values else 0


def lost_words(values: Mapping[str, Value]) -> str:
    """`28 reset, 3 timeout`, of all launches."""
    lost = {name[5:]: count_all(values, name) for name in values if name.startswith("lost.")}
    ranked = sorted(lost.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {LOST.get(name, name)}" for name, count in ranked if count)


def make_cell(row: ViewRow, launches: Launches) -> ViewRow:
    """A cell with its figures; of what is doubted what holds for it: gaps, failures, WARNINGS."""
    kept = [
        finding
        for finding in row.warnings
        if finding.tone == "bad" or not finding.text or finding.code in WARNINGS
    ]
    near = near_events(trial.course for trial, _ in launches)
    values = mean_values({trial.round: seen.whole for trial, seen in launches})
    values |= known_values(**{f"lost_near.{what}": count for what, count in near.items()})
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


def find(
    result: Result, slo: Slo, rows: Sequence[ViewRow], cells: Mapping[str, Launches]
) -> Iterator[str]:
    """What the run says: the best cell and the worst, and of this what held it up, and near what
    its requests were lost."""
    ranked = sorted((row for row in rows if cells[row.name]), key=_rank)
    for word, row in zip(("best", "worst"), [*ranked[:1], *ranked[1:][-1:]], strict=False):
        about = f"{word} of {len(rows)}: {row.name}: " if len(rows) > 1 else ""
        seconds = len(cells[row.name][0][1].out)
        due, lost = (count_all(row.values, name) for name in ("due", "lost"))
        yield (
            f"{about}{row.text('out_s')} of {seconds} s are out of the SLO ({slo.text}); lost: "
            f"{lost:,} of {due:,} requests{f' ({lost_words(row.values)})' if lost else ''}"
        )
    for row in ranked[-1:]:
        assert row.entry is not None
        line, launches = row.entry.line, cells[row.name]
        own_router = has_own_router(result, line.cell)
        wait_s = None if own_router else router_wait_s(result.launches, line.variant)
        yield from islice(describe_drops(launches, wait_s), 1)
        yield from describe_near([trial.course for trial, _ in launches])


def _rank(row: ViewRow) -> tuple[float, ...]:
    """By the seconds out of the SLO, then by the lost requests, then by the replica-seconds."""
    return tuple(round(row.value(name) or 0.0, 1) for name in ("out_s", "lost", "replica_s"))


def draw_course(course: Sequence[ViewRow], faults: Sequence[ViewRow], slo: Slo) -> Iterator[Chart]:
    """Load, latency and replicas over the seconds of a launch, with the faults of its cell."""
    done = [fault for fault in faults if "at_s" in fault.values]
    marks = [(fault.values["at_s"].value, fault.dims["fault"]) for fault in done]
    seconds, caption = select(course, "second"), f"SLO of each second: {slo.text}"
    for title, figures in COURSE.items():
        yield from line_chart(
            *(title, seconds, "second", figures, "cell"),
            marks=marks,
            caption=caption,
            x_name="seconds",
            log_x=False,
            log_y=title == "Latency",
        )


# The whole.


def select(points: Iterable[ViewRow], kind: str) -> list[ViewRow]:
    """The points of a kind."""
    return [point for point in points if point.dims["point"] == kind]


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The cells of a run with what happened in them."""
    timeline, slo = read_timeline(result)
    cells: dict[str, Launches] = {}
    shown: list[ViewRow] = []
    points: list[ViewRow] = []
    charts: list[Section] = []
    for row in rows:
        assert row.entry is not None
        line = row.entry.line
        name = page.names.name(line, load=False) if len(rows) > 1 else line.variant
        trials = [trial for trial in line.trials if trial.course]
        launches = [(trial, read_transient(trial, timeline, slo)) for trial in trials]
        faults = [*make_faults(timeline, launches, name)]
        points += [*make_stages(timeline, launches, name), *faults]
        for trial, transient in launches:
            course = [*make_course(trial, transient, name)]
            title = f"Course: {name}, launch {trial.round}"
            drawn = Charts(partial(draw_course, course, faults, slo))
            charts.append(Section(f"course-{len(charts) + 1}", title, (drawn,)))
            points += course
        cells[name] = launches
        shown.append(make_cell(replace(row, name=name), launches))
    sections = [Section("results", "The whole", (make_table(CELLS, shown),), "headline")]
    for kind, (title, spec, detail) in TABLES.items():
        if found := select(points, kind):
            sections.append(Section(f"{kind}s", title, (make_table(spec, found),), detail))
    ramp = ", rates move linearly" if timeline.ramp else ""
    load = f"{timeline.source}{ramp}; open loop, {timeline.arrivals} arrivals"
    return View(
        rows=shown,
        points=points,
        findings=[statement(text, cells) for text in find(result, slo, shown, cells)],
        planned=(len(result.missing), len(result.plan), ""),
        sections=sections if charts else (),
        charts=charts[:MOST_DRAWN],
        facts=(("load", load),),
        tiles=[*make_tiles(shown[0] if shown else None, ("out_s", "lost", "due"))],
    )


def gate(result: Result) -> list[str]:
    """The cells that were out of their SLO, in words."""
    slo = read_timeline(result)[1].text
    rows = look(result, ReportOptions(), LENS).view.rows
    return [
        f"{row.name}: {out} s out of the SLO in "
        f"{counted(row.dims['launches'], 'launch', 'launches')} ({slo})"
        for row in rows
        if (out := count_all(row.values, "out_s"))
    ]


LENS: Final = Lens(
    build,
    noun="load",
    usage_of=lambda trial: {},  # a verdict is of a load that does not change
)
