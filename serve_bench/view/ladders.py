"""Ladders of a growing load as they are looked at: knees, collapses, ratios of settings, charts.

Rule: knee, best and collapse are steps that were measured, with all of their own figures; nothing
is interpolated between steps. A step that was measured several times counts by the median of its
runs in each launch, and each run stays a row. Two settings are compared where they differ in one
axis alone, by ratios within the same launch, since a machine changes from launch to launch. A
direction is only claimed where every launch has it, and it is stated how often chance alone brings
that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.climb import Climb, climbs_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict.limits import SOME_FAILED
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core import ladder
from serve_bench.core.axes import cell_defaults
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE, Ladder, Next, Rung
from serve_bench.core.result import Result, cell_slug
from serve_bench.core.schema import built
from serve_bench.view.blocks import limit_words, section, sentence, statement
from serve_bench.view.charts import Chart, Point
from serve_bench.view.document import Charts, Prose, Section, Tone
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import (
    BARS,
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    differ,
    line_chart,
    make_spec,
    make_table,
)
from serve_bench.view.lens import View

declare("best", "requests/s", "the most of any step", shown="requests/s", better="higher")
declare("of_best", "1", "requests/s over those of the best step", title="of the best")
declare("served_of_base", "1", "the requests/s of one setting over those of another", title="ratio")

SETTINGS: Final = TableSpec(
    "Settings",
    (
        *(Field("name", "setting"), Field("best"), Field("best_with", "best with")),
        *(Field(MAIN, "at the knee"), Field("users", "knee with")),
        *(Field("latency_p50", head="ms, knee"), Field("latency_p99", head="ms, knee")),
    ),
)
STEP_FIELDS: Final = (
    *(Field("latency_p90", detail=True), Field("latency_p99"), Field("latency_max", detail=True)),
    *(Field("errors"), Field("cut"), Field("cpu_service", "CPU", detail=True)),
    *(Field("gpu", detail=True), Field("limit"), Field("mark")),
)
RATIOS: Final = make_spec(
    "Ratios of requests/s, a mean of several launches", "served_of_base", row="pair"
)
PUBLISHED: Final = TableSpec(
    "Published, not measured here",
    (
        *(Field("name", "service"), Field("users"), Field(MAIN, "throughput")),
        *(Field("latency_mean", "mean", "us"), Field("latency_p50"), Field("latency_p90")),
        *(Field("latency_p99"), Field("total", unit="us")),
    ),
)
DEFINITION: Final = (
    f"knee: the fewest with {100 * KNEE:.0f} % of the best requests/s; collapse: more than the "
    f"best, and below {100 * COLLAPSE:.0f} % of it; a step counts by the median of its runs"
)
NAMING: Final = ("variant", "device", "log_level")
"""The axes that name a single setting."""

LEVELS: Final = ("ERROR", "WARNING", "INFO", "DEBUG")
"""The quietest first: others are compared with it."""

ONE_DEPLOYMENT: Final = ("noop", "press_noop")
"""Apps of which a collapse may be what Serve's router gives."""

TONES: Final[Mapping[str, Tone]] = {"collapse": "bad", "this run fell": "bad", "in doubt": "doubt"}


@dataclass(frozen=True)
class LadderView:
    """One ladder. `settings`: its variant and all axes of its cell; `name`: those that tell it from
    others. `noun`: what climbs, "user" or "client"; `climbs`: one of each launch. `rows`: each run
    of each step, the fewest clients first, with its mark. `steps`: by clients those that are sound,
    each as the run that is nearest to its rate, with the rate of all its runs. `finished`: whether
    it was climbed to its end in any launch; else it has no `knee`, no `best` and no `collapses`,
    since what would have come next may be better. `bests`: the best requests/s in each launch."""

    name: str
    settings: Mapping[str, Any]
    noun: str
    climbs: Sequence[Climb]
    rows: Sequence[ViewRow]
    steps: Mapping[int, ViewRow]
    finished: bool
    knee: ViewRow | None
    best: ViewRow | None
    collapses: Sequence[ViewRow]
    bests: Mapping[int, float]

    @property
    def best_rate(self) -> float:
        """The most requests/s of any step."""
        return 0.0 if self.best is None else self.best.values[MAIN].value


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
    axes = _differing_axes(settings.values()) or NAMING
    climbs = climbs_of(result, built(Ladder, stored, "suite.ladder"))
    views = []
    for key, group in groups.items():
        name, loads = _name_setting(settings[key], axes), []
        for row in sorted(group, key=lambda row: (row.dims["connections"], row.dims["run"])):
            dims = {**row.dims, "ladder": name, "users": row.dims["connections"]}
            if len(groups) > 1:
                row = replace(row, name=f"{name}, {row.name}", group=name)
            loads.append(replace(row, dims=dims))
        mine = [climb for climb in climbs.values() if (climb.variant, cell_slug(climb.cell)) == key]
        views.append(_view_ladder(name, settings[key], loads, mine))
    return views


def _differing_axes(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The axes of which settings have several values."""
    rows = [ViewRow(values) for values in settings]
    return differ(rows, dict.fromkeys(axis for row in rows for axis in row.dims))


def _name_setting(settings: Mapping[str, Any], axes: Sequence[str]) -> str:
    """The values of axes, shortly: an axis is named where its value alone does not say it."""
    words = {"device": {"cpu": "CPU", "cuda": "GPU"}, "variant": {}, "log_level": {}, "ranker": {}}
    return ", ".join(
        words[axis].get(str(value), str(value)) if axis in words else f"{axis} {value}"
        for axis in axes
        if (value := settings.get(axis)) is not None
    )


def _view_ladder(
    name: str, settings: Mapping[str, Any], loads: Sequence[ViewRow], climbs: Sequence[Climb]
) -> LadderView:
    climbs = sorted(climbs, key=lambda climb: climb.round)
    ended = [climb for climb in climbs if climb.finished]
    rates: dict[int, dict[int, float]] = defaultdict(dict)  # by clients, then launch
    for climb in ended or climbs:
        for rung in ladder.merged(climb.steps):
            rates[rung.clients][climb.round] = rung.throughput
    doubted = {(climb.round, *step) for climb in climbs for step in climb.again}

    def is_doubted(row: ViewRow) -> bool:
        at = row.dims["users"], row.dims["run"]
        return any((trial.round, *at) in doubted for trial in row.trials)

    runs: dict[int, list[ViewRow]] = defaultdict(list)
    for row in loads:
        users = row.dims["users"]
        if MAIN in row.values and users in rates and not is_doubted(row):
            runs[users].append(row)
    steps: dict[int, ViewRow] = {}
    for users, group in runs.items():
        rate = statistics.fmean(rates[users].values())
        row = min(group, key=lambda row: abs(row.values[MAIN].value - rate))
        value = replace(row.values[MAIN], value=rate, launches=rates[users])
        steps[users] = replace(row, values={**row.values, MAIN: value})
    rungs = {users: Rung(users, step.values[MAIN].value) for users, step in steps.items() if users}
    served = [rungs[users] for users in rungs if ended and _is_served(runs[users])]
    top, first = ladder.best(served), ladder.knee(served)
    beyond = [rung for rung in rungs.values() if top is not None and rung.clients > top.clients]
    fallen = [rung.clients for rung in ladder.collapses([*served, *beyond])]

    def mark(row: ViewRow) -> str:
        """What a run is to the ladder; of several runs one holds the mark of knee and best."""
        users = row.dims["users"]
        if MAIN not in row.values or is_doubted(row):
            return "in doubt" if MAIN in row.values else ""
        if top is None or users not in rungs:
            return ""
        held = {"knee": first, "best": top} if steps[users].entry is row.entry else {}
        names = [word for word, rung in held.items() if rung == rungs[users]]
        fell = users > top.clients and row.values[MAIN].value < COLLAPSE * top.throughput
        words = ("this run held", "collapse") if users in fallen else ("", "this run fell")
        return ", ".join(names) or words[fell]

    return LadderView(
        name,
        settings,
        "client" if "client" in str(loads[0].dims["row"]) else "user",
        climbs,
        rows=[
            replace(row, dims={**row.dims, "mark": word}, tones={"mark": TONES.get(word, "plain")})
            for row, word in zip(loads, map(mark, loads), strict=True)
        ],
        steps=steps,
        finished=bool(ended),
        knee=None if first is None else steps[first.clients],
        best=None if top is None else steps[top.clients],
        collapses=[steps[users] for users in fallen],
        bests={
            climb.round: max(rates[rung.clients].get(climb.round, 0.0) for rung in served)
            for climb in ended
            if top is not None
        },
    )


def _is_served(runs: Sequence[ViewRow]) -> bool:
    """Whether too few requests failed to keep a step from being knee or best."""
    errors, done = (sum(row.value(name) or 0.0 for row in runs) for name in ("errors", "completed"))
    return errors < SOME_FAILED * max(1, done + errors)


def _end(climb: Climb, noun: str) -> str:
    """Why a launch of a ladder went no further, or what comes next."""
    move = climb.decide()
    if not isinstance(move, Next):
        return move.why
    if climb.again:
        again = ", ".join(str(users) for users, _ in climb.again)
        return f"in doubt, and to be measured again: {again} {noun}s"
    return f"not at its end: {move.clients} {noun}s come next"


# The whole.


def view_run(
    result: Result,
    views: Sequence[LadderView],
    fields: Sequence[Field],
    published: Sequence[ViewRow],
    definitions: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> View:
    """A run of ladders. `fields`: the first columns of its steps; `published`: rows in groups by
    where they come from; `definitions`: of the fields."""
    rows = [row for view in views for row in view.rows]
    knees = [_make_knee(view) for view in views]
    fallen = [_make_collapse(result, view, step) for view in views for step in view.collapses]
    compared = [*compare_settings(views)]
    launches = len({trial.round for row in rows for trial in row.trials})
    mean = f", mean of {launches} launches" if launches > 1 else ""
    steps = make_table(TableSpec(f"Every step{mean}", (*fields, *STEP_FIELDS)), rows)
    sections = [
        Section("results", "Results", (make_table(SETTINGS, knees),), "headline"),
        Section("steps", f"Steps{mean}", (steps,), "table"),
    ]
    if len(views) == 1:
        blocks = (steps, Prose(knees[0].notes[-1:]))
        sections = [Section("results", "Results", blocks, "headline")]
    ratios = [make_table(RATIOS, compared)] if compared else []
    sections += section("compared", "Settings compared", ratios, "table")
    others = [make_table(PUBLISHED, published)] if published else []
    sections += section("published", PUBLISHED.caption, others, "table")
    drawn = [view for view in views if view.steps]
    charts = [Charts(partial(_draw_load, drawn, published))] if drawn else []
    return View(
        rows=rows,
        points=[*knees, *fallen],
        comparisons=compared,
        lead=max(knees, key=lambda point: point.value(MAIN) or 0.0, default=None),
        findings=tuple(_describe(views, fallen, compared)),
        sections=sections if views else (),
        charts=[*section("throughput", "Throughput and latency over the load", charts)],
        traced=[
            row
            for view in views
            for row in view.rows
            if row is view.rows[-1] or row.dims["mark"] in ("knee", "best", "knee, best")
        ],
        facts=facts,
        definitions=(*definitions, DEFINITION),
    )


def _draw_load(views: Sequence[LadderView], published: Sequence[ViewRow]) -> Iterator[Chart]:
    """Requests/s and latency over the load, published requests/s beside. Knees and collapses of
    several ladders stand in tables alone."""
    others = [
        Point(row.dims["users"], rate, f"published: {row.group}")
        for row in published
        if (rate := row.value(MAIN)) is not None
    ]
    noun = f"{views[0].noun}s"
    marks = []
    if len(views) == 1:
        named = [("knee", views[0].knee), *(("collapse", step) for step in views[0].collapses)]
        marks = [(step.dims["users"], word) for word, step in named if step is not None]
    rows = [step for view in views for step in view.steps.values()]
    draw = partial(line_chart, rows=rows, x="users", series="ladder", marks=marks, x_name=noun)
    yield from draw(f"Requests/s over {noun}", figures=(MAIN,), caption=BARS, more=others)
    yield from draw(f"Latency over {noun}", figures=("latency_p50", "latency_p99"))


# What is derived: a point at each knee, and at each collapse.


def _make_knee(view: LadderView) -> ViewRow:
    """A ladder at its knee, with its best beside; without one, why there is none."""
    step, top = view.knee, view.best
    end = "; ".join(dict.fromkeys(_end(climb, view.noun) for climb in view.climbs)) or "not begun"
    dims = {"point": "knee", "ladder": view.name, **view.settings, "end": end}
    if step is None or top is None:
        gap = "no sound step" if view.finished else "not climbed to its end"
        return ViewRow(dims, name=view.name, notes=(end,), gap=gap)
    return replace(
        step,
        dims={**dims, "users": step.dims["users"], "best_with": top.dims["users"]},
        values={**step.values, "best": Value(view.best_rate, launches=view.bests)},
        name=view.name,
        group="",
        warnings=tuple(dict.fromkeys((*step.warnings, *top.warnings))),
        notes=(_limit(step), f"climb: {end}"),
    )


def _limit(row: ViewRow) -> str:
    """What limited a step, in words."""
    return limit_words(None if row.entry is None else row.entry.limited)


def _make_collapse(result: Result, view: LadderView, step: ViewRow) -> ViewRow:
    """A step that collapsed, with its runs and its limit in words."""
    rate, words = step.values[MAIN].value, [_describe_runs(view, step)]
    words += [_limit(step)] if len(view.settings) > 1 else []
    if result.run.suite.get("app") in ONE_DEPLOYMENT:
        wait_s = router_wait_s(result.launches, view.settings["variant"])
        replicas = int(view.settings.get("num_replicas", 0))
        words += filter(None, [router_words(rate, replicas, wait_s)])
    return replace(
        step,
        dims={**step.dims, "mark": "collapse", "point": "collapse"},
        values={MAIN: step.values[MAIN], "of_best": Value(rate / view.best_rate)},
        name=view.name,
        group="",
        notes=tuple(words),
    )


def _describe_runs(view: LadderView, step: ViewRow) -> str:
    """`2 of 3 runs fell: 400.0 to 1,950 requests/s`: a collapse is rarely the same twice."""
    rates = [
        rate
        for climb in view.climbs
        for (users, _), rate in climb.rates.items()
        if users == step.dims["users"] and rate is not None and climb.finished
    ]
    fell = sum(rate < COLLAPSE * view.best_rate for rate in rates)
    span = f"{number(min(rates))} to {number(max(rates))} requests/s"
    return f"{fell} of {len(rates)} runs fell: {span}" if len(rates) > 1 else "it was run once"


# Settings compared.


def compare_settings(views: Sequence[LadderView]) -> Iterator[ViewRow]:
    """All pairs that differ in one axis, each with the base of that axis: the quietest log level,
    the CPU, else the setting that was begun first."""

    def rank(view: LadderView) -> tuple[int, bool]:
        level = view.settings.get("log_level")
        place = LEVELS.index(str(level)) if level in LEVELS else 0
        return place, view.settings.get("device") != "cpu"

    axes = _differing_axes(view.settings for view in views)
    for axis in axes:
        others = [name for name in axes if name != axis]
        bases: dict[str, LadderView] = {}
        for view in sorted(views, key=rank):
            bases.setdefault(_name_setting(view.settings, others), view)
        for view in views:
            where = _name_setting(view.settings, others)
            if bases[where] is not view:
                yield from _compare(axis, where, view, bases[where])


def _compare(axis: str, where: str, view: LadderView, base: LadderView) -> Iterator[ViewRow]:
    """First their bests, then the steps at each number of clients that both have, by the launches
    that both have; nothing where there is no launch in which both served."""
    if not any(base.bests.get(launch) for launch in view.bests):
        return
    sides = [_name_setting(side.settings, [axis]) for side in (view, base)]
    for users in ("best", *sorted(view.steps.keys() & base.steps.keys())):
        name, ours, theirs = f"{view.name} / {base.name}", view.bests, base.bests
        if isinstance(users, int):
            name = f"{name}, {counted(users, view.noun)}"
            ours, theirs = (side.steps[users].values[MAIN].launches for side in (view, base))
        launches = {launch: ours[launch] / theirs[launch] for launch in ours if theirs.get(launch)}
        if launches:
            means = [statistics.fmean(rates[at] for at in launches) for rates in (ours, theirs)]
            ratio = Value(means[0] / means[1], launches=launches)
            words = f"{where}{': ' if where else ''}{_describe_ratio(ratio, *sides)}"
            dims = {"axis": axis, "setting": view.name, "base": base.name, "with": users}
            notes = (words,) if users == "best" else ()
            yield ViewRow(dims, {"served_of_base": ratio}, name, notes=notes)


def _describe_ratio(ratio: Value, ours: str, theirs: str) -> str:
    """What can be said of a ratio, in one line that ends with a full stop: a direction only where
    every launch has it."""
    ratios = list(ratio.launches.values())
    texts = ", ".join(FIGURES["served_of_base"].show(Value(value)) for value in ratios)
    verdict = f"all {len(ratios)} launches agree: by chance 1 time in {2 ** (len(ratios) - 1)}"
    if len(ratios) < 2:
        verdict = "one launch alone, and launches differ too (--launches 3)"
    elif min(ratios) <= 1 <= max(ratios):
        verdict = "they are not distinguished"
    return f"{ours} serves {texts} of {theirs}'s best requests/s: {verdict}."


# What they say in sentences.


def _describe(
    views: Sequence[LadderView], fallen: Sequence[ViewRow], compared: Sequence[ViewRow]
) -> Iterator[str]:
    """The highest requests/s, its knee and what limits it there, what it is compared with,
    collapses."""
    top = max(views, key=lambda view: view.best_rate, default=None)
    if top is None or top.knee is None or top.best is None:
        ended = any(view.finished for view in views)
        why = "No valid step" if ended else "No ladder is complete"
        yield f"{why}: there is no knee and no best."
        return
    single, noun, users = len(views) == 1, top.noun, top.knee.dims["users"]
    most, share = "at most" if single else "most,", f"{100 * KNEE:.0f} % of that"
    with_users = counted(top.best.dims["users"], noun)
    text = f"{top.name} serves {most} {describe_figures(top.best)} with {with_users}"
    if top.knee is not top.best:
        text += f"; {share} with {counted(users, noun)} ({describe_figures(top.knee)})"
    yield sentence(text)
    yield sentence(f"{top.name} at its knee: {_limit(top.knee)}")
    yield from [note for row in compared for note in row.notes][:2]
    for point in (next(points) for _, points in groupby(fallen, key=lambda point: point.name)):
        kept = f"{point.text(MAIN)} requests/s, {point.text('of_best')} of the best"
        with_users = counted(point.dims["users"], noun)
        text = f"collapse with {with_users}: {kept} ({'; '.join(point.notes)})"
        yield statement(text) if single else sentence(f"{point.name}: {text}")
    if single and not fallen:
        yield f"No collapse up to {counted(max(top.steps), noun)}."
