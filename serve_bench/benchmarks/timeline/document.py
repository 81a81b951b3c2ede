"""What a run of timeline says: the transient, its faults, each second. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.checks import checks
from serve_bench.analysis.course import REPLICA_STATES, Mean, replica_lines
from serve_bench.benchmarks.timeline.summary import (
    DOUBTS,
    TimelineCell,
    TimelineLaunch,
    cells_of,
    figure,
    lost_text,
    mean_text,
    sentences_of,
)
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result
from serve_bench.core.usage import ORDER
from serve_bench.view.about_run import method, run_document
from serve_bench.view.blocks import (
    Fields,
    count,
    doubt,
    failure,
    gaps,
    milliseconds,
    statement,
    table_of,
    word_table,
)
from serve_bench.view.charts import Chart, Happening, Happenings, Lane, LinePoint, Lines, Mark
from serve_bench.view.document import (
    Charts,
    Column,
    Document,
    Finding,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    Text,
    sentences,
)

MOST_LANES: Final = 4
"""Launches whose lanes are drawn; of more there are tables."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of timeline says. Raises FormatError for damaged records."""
    cells = cells_of(result)
    measured = [one for one in cells if one.launches]
    return run_document(
        result,
        options.where,
        findings=sentences(_findings(result, cells)),
        doubts=tuple(_doubts(result)),
        facts=tuple(_facts(cells)),
        sections=tuple(_sections(result, measured)),
    )


def _findings(result: Result, cells: Sequence[TimelineCell]) -> Iterator[str]:
    messages = [one.message for one in result.failures]
    first = list(gaps(len(result.missing), len(result.plan), messages, "load", "loads"))
    texts = [statement(text, [cell.name for cell in cells]) for text in sentences_of(cells)]
    yield " ".join((*first, texts[0]))
    yield from texts[1:]


def _doubts(result: Result) -> Iterator[Finding]:
    yield from map(failure, result.failures)
    yield from (doubt(warning) for warning in checks(result) if warning.code in DOUBTS)
    for one in result.trials:
        if why := one.course.get("why_not"):
            yield Finding(str(why), "state", "doubt", about=f"launch {one.round}")
        kept, losses = len(one.course.get("lost") or ()), int(one.course.get("losses") or 0)
        if losses > kept:
            text = f"{losses:,} requests were lost, of which the record keeps {kept:,} one by one"
            yield Finding(text, "lost", "doubt", about=f"launch {one.round}")


def _facts(cells: Sequence[TimelineCell]) -> Iterator[tuple[str, str]]:
    timeline = cells[0].timeline
    yield "SLO", cells[0].slo.text
    ramp = ", rates move linearly" if timeline.ramp else ""
    yield "load", f"{timeline.source}{ramp}; client raw, open loop, {timeline.arrivals} arrivals"
    if timeline.faults:
        yield "faults", ", ".join(one.text for one in timeline.faults)


def _sections(result: Result, cells: Sequence[TimelineCell]) -> Iterator[Section]:
    if not cells:
        yield Section("results", "Results", (Prose(("Nothing was measured.",), "doubt"),))
        yield method(result)
        return
    yield Section("results", "The whole", (_whole(cells),), "headline")
    yield Section("stages", "Stages", (_stages(cells),), "table")
    if cells[0].timeline.faults:
        yield Section("faults", "Faults", (_faults(cells),), "table")
    for at, (cell, launch) in enumerate(_drawn(cells), 1):
        lanes = Charts(partial(_lanes, cell, launch))
        yield Section(f"course-{at}", f"Course: {_named(cell, launch)}", (lanes,))
    every = [(cell, launch) for cell in cells for launch in cell.launches]
    events = tuple(Folded(_named(*one), (_events(one[1]),)) for one in every if one[1].events)
    if events:
        yield Section("events", "Events", events)
    seconds = tuple(Folded(_named(*one), (_seconds(one[1]),)) for one in every)
    yield Section("seconds", "Second by second", seconds)
    yield method(result)


def _drawn(cells: Sequence[TimelineCell]) -> list[tuple[TimelineCell, TimelineLaunch]]:
    """The launches whose lanes are drawn: the first of each cell, then the others."""
    every = [(cell, launch) for cell in cells for launch in cell.launches]
    ordered = sorted(every, key=lambda one: one[0].launches.index(one[1]))
    return ordered[:MOST_LANES]


def _named(cell: TimelineCell, launch: TimelineLaunch) -> str:
    return f"{cell.name or cell.variant}, launch {launch.trial.round}"


def _mean(mean: Mean | None, digits: int = 3) -> Number:
    return Number(mean_text(mean, digits), None if mean is None else mean.value)


def _whole(cells: Sequence[TimelineCell]) -> Table:
    fields: Fields[TimelineCell] = (
        (Column("cell", number=False), lambda one: one.name or one.variant),
        (Column("launches"), lambda one: count(len(one.launches))),
        (Column("out of SLO", "s"), lambda one: _mean(one.mean(lambda t: t.out_s))),
        (Column("due"), lambda one: _mean(one.mean(lambda t: t.due), 6)),
        (Column("lost"), lambda one: _mean(one.mean(lambda t: t.lost_total))),
        (Column("replicas", "seconds"), lambda one: _mean(one.mean(lambda t: t.replica_s))),
        (Column("cost", "x needed", detail=True), lambda one: _mean(one.cost)),
        (Column("turns", "per min", detail=True), lambda one: _mean(one.turns_per_minute)),
        (Column("back after", "s", detail=True), lambda one: _mean(one.mean(lambda t: t.down_s))),
    )
    return table_of("Each cell, means over launches", fields, cells)


def _stages(cells: Sequence[TimelineCell]) -> Table:
    columns = (
        Column("from", "s"),
        Column("load", "requests/s"),
        Column("due"),
        Column("lost"),
        Column("out of SLO", "s"),
        Column("holds after", "s"),
        Column("first further", "s", detail=True),
        Column("replicas needed"),
        Column("there after", "s", detail=True),
        Column("most", detail=True),
        Column("turns", detail=True),
    )
    rows = []
    for cell in cells:
        for at, stage in enumerate(cell.timeline.stages):
            of = partial(cell.of_stage, at)
            begin = cell.timeline.begins[at]
            figures = (
                _mean(of(lambda one: one.due), 6),
                _mean(of(lambda one: sum(one.lost.values()))),
                _mean(of(lambda one: one.out_s)),
                _held(cell, at),
                _mean(of(lambda one: one.further_s)),
                _mean(of(lambda one: one.needed)),
                _mean(of(lambda one: one.needed_s)),
                _mean(of(lambda one: one.most)),
                _mean(of(lambda one: one.turns)),
            )
            first = (Number(figure(begin), begin), Number(figure(stage.rate), stage.rate))
            rows.append(TableRow((*first, *figures), group=cell.name or cell.variant))
    return Table("stages of the load", columns, tuple(rows))


def _held(cell: TimelineCell, at: int) -> Number:
    """From when on the SLO holds, of launches in which it does."""
    mean = cell.of_stage(at, lambda one: one.held_s)
    stages = [one.transient.stages for one in cell.launches]
    never = any(some[at].due and some[at].held_s is None for some in stages if at < len(some))
    if mean is None:
        return Number("never" if never else "-", None, "bad" if never else "plain")
    return Number(mean_text(mean), mean.value)


def _faults(cells: Sequence[TimelineCell]) -> Table:
    columns = (
        Column("fault", number=False),
        Column("lost"),
        Column("lost by class", number=False),
        Column("out of SLO", "s"),
        Column("last out", "s after"),
        Column("running", "at least"),
        Column("answered", "meanwhile", detail=True),
        Column("took", "s", detail=True),
    )
    rows = []
    for cell in cells:
        for at, fault in enumerate(cell.timeline.faults):
            of = partial(cell.of_fault, at)
            lost: dict[str, int] = {}
            for launch in cell.launches:
                for one in launch.transient.faults[at : at + 1]:
                    for name, some in one.lost.items():
                        lost[name] = lost.get(name, 0) + some
            rows.append(
                TableRow(
                    (
                        fault.text,
                        _mean(of(lambda one: sum(one.lost.values()))),
                        lost_text(lost) or "-",
                        _mean(of(lambda one: one.out_s)),
                        _mean(of(lambda one: one.last_out_s)),
                        _mean(of(lambda one: one.fewest)),
                        _mean(of(lambda one: one.answered), 4),
                        _mean(of(lambda one: one.lasted_s)),
                    ),
                    group=cell.name or cell.variant,
                )
            )
    note = "lost: requests that failed between the fault and the next one"
    return Table("faults, means over launches", columns, tuple(rows), (note,))


def _events(launch: TimelineLaunch) -> Table:
    rows = [(Number(f"{one.at_s:.1f}", one.at_s), one.what, one.who) for one in launch.events]
    return word_table("what happened", ("second", "what", "who"), rows)


def _seconds(launch: TimelineLaunch) -> Table:
    course, lines = launch.trial.course, replica_lines(launch.trial.course)
    columns = (
        *(Column("second"), Column("due"), Column("sent", detail=True)),
        *(Column("answered", detail=True), Column("lost"), Column("waiting")),
        *(Column("p50", "ms", detail=True), Column("p99", "ms"), Column("max", "ms")),
        *(
            Column("SLO", number=False),
            Column("wanted", detail=True),
            Column("starting", detail=True),
        ),
        *(Column("running"), Column("draining", detail=True)),
    )
    rows = []
    for at, out in enumerate(launch.transient.out):
        histogram = course["latency"][at]
        known = None if histogram is None else Histogram.decode(histogram)
        p50, p99 = (None, None) if known is None else known.percentiles((0.5, 0.99))
        most = None if known is None else known.max
        lost = sum(some[at] for some in course["failed"].values())
        state = launch.transient.replicas.at(at + 1.0) if lines else None
        replicas = [None if state is None else getattr(state, name) for name in REPLICA_STATES]
        word = Text("-") if out is None else Text("out", "bad") if out else Text("in", "quiet")
        rows.append(
            TableRow(
                (
                    Number(str(at), at),
                    count(course["due"][at]),
                    count(course["sent"][at]),
                    count(course["answered"][at]),
                    count(lost, "bad" if lost else "plain"),
                    count(course["waiting"][at]),
                    *(milliseconds(time) for time in (p50, p99, most)),
                    word,
                    *map(count, replicas),
                )
            )
        )
    notes = (
        "by the second in which requests were due; sent: in that second; waiting: due and without "
        "an end when it was over",
    )
    return Table("each second", columns, tuple(rows), notes)


def _lanes(cell: TimelineCell, launch: TimelineLaunch) -> Iterator[Chart]:
    course, transient = launch.trial.course, launch.transient
    whole = launch.seconds + float(course.get("after_s") or 0.0)
    lane = Lane(whole, tuple(launch.shades()))
    about = _named(cell, launch)
    faults = [Mark(float(one.at_s), one.source) for one in transient.faults if one.at_s is not None]
    caption = f"shaded: out of the SLO ({cell.slo.text})" if lane.shades else ""
    load = {
        "due": _line(course["due"]),
        "answered": _line(course["ended"]),
        "waiting": _line(course["waiting"]),
    }
    lost = [sum(some[at] for some in course["failed"].values()) for at in range(launch.seconds)]
    if any(lost):
        load["lost"] = _line(lost)
    drawn = Lines(load, "seconds", "requests, each s", "time", False, faults, lane=lane)
    yield Chart("Load", drawn, f"requests of each second, {about}", caption)
    yield from _latency(launch, lane, about)
    counts = transient.replicas.counts
    if counts:
        stepped = Lane(whole, lane.shades, stepped=True)
        series: dict[str, list[LinePoint]] = {"running": [], "starting": [], "draining": []}
        if all(one.wanted is not None for one in counts):
            series = {"wanted": [], **series}
        states = [*transient.replicas.between(0.0, whole)]
        begins = [0.0, *(one.at_s for one in states[1:])]
        for begin, one in zip(begins, states, strict=True):
            for name, points in series.items():
                points.append(LinePoint(begin, float(getattr(one, name) or 0)))
        for points in series.values():
            points.append(LinePoint(whole, points[-1].value))
        shown = {
            name: points
            for name, points in series.items()
            if name in ("wanted", "running") or any(one.value for one in points)
        }
        drawn = Lines(shown, "seconds", "replicas", "time", False, lane=stepped)
        yield Chart("Replicas", drawn, f"replicas over time, {about}")
    cpu = {
        role.replace("_", " "): points
        for role in sorted(course.get("cpu") or {}, key=_place)
        if (points := _line(course["cpu"][role])) and max(one.value for one in points) >= 5
    }
    if cpu:
        drawn = Lines(cpu, "seconds", "CPU, % of a core", "time", False, lane=lane)
        yield Chart("CPU", drawn, f"CPU by process, {about}")
    happened = [Happening(one.at_s, one.what, one.who) for one in launch.events]
    within = [one for one in happened if 0 <= one.x <= whole]
    if within:
        yield Chart("Events", Happenings(within, lane), f"what happened, {about}")


def _place(role: str) -> int:
    return ORDER.index(role) if role in ORDER else len(ORDER)


def _line(values: Sequence[float | None]) -> list[LinePoint]:
    return [LinePoint(at + 0.5, float(one)) for at, one in enumerate(values) if one is not None]


def _latency(launch: TimelineLaunch, lane: Lane, about: str) -> Iterator[Chart]:
    histograms = launch.trial.course["latency"]
    series: dict[str, list[LinePoint]] = {"p50": [], "p99": [], "max": []}
    for at, one in enumerate(histograms):
        if one is None:
            continue
        known = Histogram.decode(one)
        figures = (*known.percentiles((0.5, 0.99)), known.max)
        values = zip(series.values(), figures, strict=True)
        for points, value in values:
            points.append(LinePoint(at + 0.5, max(1e-3, (value or 0) / 1e6)))
    if series["p50"]:
        drawn = Lines(series, "seconds", "latency, ms", "time", None, lane=lane)
        words = f"latency of the requests that were due in each second, {about}"
        yield Chart("Latency", drawn, words)
