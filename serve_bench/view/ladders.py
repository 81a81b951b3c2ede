"""Ladders of a growing load as they are looked at: knees, collapses, ratios of settings, charts.

Sweep, recsys and press are ladders. A kind adds the first columns of its steps, what they mean, and
what others published. Rule: knee, best and collapse are steps that were measured, with all of their
own figures; nothing is interpolated between steps. A step that was measured several times counts by
the median of its runs in each launch, and each run stays a row. Two settings are compared where
they differ in one axis alone, by ratios within the same launch, since a machine changes from launch
to launch. A direction is only claimed where every launch has it, and it is stated how often chance
alone brings that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.climb import Climb, climbs_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict.case import Sign, Symptom, symptoms
from serve_bench.analysis.verdict.limits import SOME_FAILED
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core import ladder
from serve_bench.core.axes import cell_defaults
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE, Ladder, Next, Rung
from serve_bench.core.result import Result, cell_slug
from serve_bench.core.schema import built
from serve_bench.view.blocks import in_parts, limit_words, section, sentence, statement
from serve_bench.view.charts import Chart, LinePoint, Mark
from serve_bench.view.document import Block, Charts, Detail, Prose, Section, Tone
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import (
    BARS,
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    differ,
    launch_table,
    line_chart,
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

MOST_COMPARED: Final = 2
"""Comparisons among the findings."""

TONES: Final[Mapping[str, Tone]] = {"collapse": "bad", "this run fell": "bad", "in doubt": "doubt"}


@dataclass(frozen=True)
class LadderView:
    """One ladder. `settings`: its variant and all axes of its cell; `name`: those that tell it from
    others. `noun`: what climbs, "user" or "client"; `climbs`: one of each launch. `rows`: each run
    of each step, the fewest clients first, with its mark. `steps`: by clients those that are sound,
    each as the run that is nearest to its rate, with the rate of all its runs. In the others, which
    are "in doubt", something broke, or they were broken off.

    `finished`: whether it was climbed to its end in any launch; else it has no `knee`, no `best`
    and no `collapses`, since what would have come next may be better. `bests`: the best requests/s
    in each launch.
    """

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


def _signs(view: LadderView) -> Iterator[str]:
    """What the growing load shows of a service at its limit: the symptoms of each launch; of
    several launches the first that shows it, and how many do."""
    sound = [row for row in view.rows if row.dims["mark"] != "in doubt" and MAIN in row.values]
    trials = [trial for row in sound for trial in row.trials]
    launches = sorted({trial.round for trial in trials})
    by_sign: dict[Sign, list[Symptom]] = defaultdict(list)
    for launch in launches:
        for symptom in symptoms([trial for trial in trials if trial.round == launch]):
            by_sign[symptom.sign].append(symptom)
    for shown in by_sign.values():
        several = f"; in {len(shown)} of {len(launches)} launches" if len(launches) > 1 else ""
        yield f"{shown[0].text}{several}"


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
    published: Mapping[str, Sequence[ViewRow]],
    definitions: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> View:
    """A run of ladders. `fields`: the first columns of its steps; `published`: rows by the words on
    where they come from; `definitions`: of the fields."""
    rows = [row for view in views for row in view.rows]
    knees = [_make_knee(view) for view in views]
    fallen = [_make_collapse(result, view, step) for view in views for step in view.collapses]
    compared = [*compare_settings(views)]
    launches = len({trial.round for row in rows for trial in row.trials})
    mean = f", mean of {launches} launches" if launches > 1 else ""
    steps = make_table(TableSpec(f"Every step{mean}", (*fields, *STEP_FIELDS)), rows)
    sections = [Section("results", "Results", (make_table(SETTINGS, knees),), "headline")]
    sections.append(Section("steps", f"Steps{mean}", (steps,), "table"))
    if len(views) == 1:
        about = Prose(knees[0].notes[-1:])
        sections = [Section("results", "Results", (steps, about), "headline")]
    if compared:
        words = Prose(tuple(note for row in compared for note in row.notes), listed=True)
        ratios = launch_table("Ratios of requests/s", compared, "served_of_base")
        detail: Detail = "table" if len(words.paragraphs) > MOST_COMPARED else "further"
        sections.append(Section("compared", "Settings compared", (words, ratios), detail))
    blocks: list[Block] = []
    for source, others in published.items():
        blocks += [Prose((source,)), *([make_table(PUBLISHED, others)] if others else [])]
    sections += section("published", PUBLISHED.caption, blocks, "table")
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


def _draw_load(
    views: Sequence[LadderView], published: Mapping[str, Sequence[ViewRow]]
) -> Iterator[Chart]:
    """Requests/s and latency over the load, published requests/s beside. Knees and collapses of
    several ladders stand in tables alone."""
    others = {
        f"published: {source}": [
            LinePoint(row.dims["users"], row.values[MAIN].value) for row in rows
        ]
        for source, rows in published.items()
        if rows
    }
    noun = f"{views[0].noun}s"
    marks = []
    if len(views) == 1:
        named = [("knee", views[0].knee), *(("collapse", step) for step in views[0].collapses)]
        marks = [Mark(step.dims["users"], word) for word, step in named if step is not None]
    for part, shown in in_parts({view.name: view for view in views}, lambda _: 2):
        rows = [step for view in shown.values() for step in view.steps.values()]
        draw = partial(line_chart, rows=rows, x="users", series="ladder", marks=marks, x_name=noun)
        title = f"Requests/s over {noun}{part}"
        yield from draw(title, figures=(MAIN,), caption=BARS, more=others)
        yield from draw(f"Latency over {noun}{part}", figures=("latency_p50", "latency_p99"))


# What is derived: a point at each knee, and at each collapse.


def _make_knee(view: LadderView) -> ViewRow:
    """A ladder at its knee, with its best beside; without one, why there is none."""
    step, top = view.knee, view.best
    end = "; ".join(dict.fromkeys(_end(climb, view.noun) for climb in view.climbs)) or "not begun"
    dims = {"point": "knee", "ladder": view.name, **view.settings, "end": end}
    remarks = "; ".join([*(f"sign: {sign}" for sign in _signs(view)), end])
    if step is None or top is None:
        gap = "no sound step" if view.finished else "not climbed to its end"
        return ViewRow(dims, name=view.name, notes=(remarks,), gap=gap)
    return replace(
        step,
        dims={**dims, "users": step.dims["users"], "best_with": top.dims["users"]},
        values={**step.values, "best": Value(view.best_rate, launches=view.bests)},
        name=view.name,
        group="",
        warnings=tuple(dict.fromkeys((*step.warnings, *top.warnings))),
        notes=(_limit(step), remarks),
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
    """`its 3 runs: 410.0, 400.0, 1,950 held; the runs disagree: 1 of 3 did not fall`: a collapse is
    rarely the same twice, so that it is said whether they agree."""
    rates = [
        rate
        for climb in view.climbs
        for (users, _), rate in climb.rates.items()
        if users == step.dims["users"] and rate is not None and climb.finished
    ]
    if len(rates) < 2:
        return "it was run once: a collapse is rarely the same twice"
    held = [rate for rate in rates if rate >= COLLAPSE * view.best_rate]
    texts = (f"{number(rate)} held" if rate in held else number(rate) for rate in rates)
    agree = not held and min(rates) >= COLLAPSE * max(rates)
    verdict = "they agree" if agree else "the runs disagree"
    verdict += f": {len(held)} of {len(rates)} did not fall" if held else ""
    return f"its {len(rates)} runs: {', '.join(texts)}; {verdict}"


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
    ratios, show = list(ratio.launches.values()), FIGURES["served_of_base"].show
    texts = ", ".join(show(Value(value)) for value in ratios)
    served = f"{ours} serves {texts} of {theirs}'s best requests/s"
    if len(ratios) < 2:
        return f"{served} in one launch, and launches differ too (--launches 3)."
    if min(ratios) <= 1 <= max(ratios):
        return f"{ours} and {theirs} are not distinguished: {served} in the {len(ratios)} launches."
    chance = f"all {len(ratios)} launches agree: by chance 1 time in {2 ** (len(ratios) - 1)}"
    return f"{ours} serves {show(ratio)} of {theirs}'s best requests/s ({texts}; {chance})."


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
        verb = "is" if users == 1 else "are"
        enough = f"{counted(users, noun)} {verb} enough for {share}"
        text += f"; {enough} ({describe_figures(top.knee)})"
    elif min(top.steps) < users:
        text += f"; no step with fewer {noun}s reaches {share}"
    yield sentence(text)
    yield sentence(f"{top.name} at its knee: {_limit(top.knee)}")
    yield from [note for row in compared for note in row.notes][:MOST_COMPARED]
    first = {point.name: point for point in reversed(fallen)}
    for point in reversed(first.values()):
        kept = f"{point.text(MAIN)} requests/s, {point.text('of_best')} of the best"
        with_users = counted(point.dims["users"], noun)
        text = f"collapse with {with_users}: {kept} ({'; '.join(point.notes)})"
        yield statement(text) if single else sentence(f"{point.name}: {text}")
    if single and not fallen and max(top.steps) > top.best.dims["users"]:
        yield f"No collapse up to {counted(max(top.steps), noun)}."
    elif single and not fallen:
        yield f"No step has more {noun}s than the best, so no collapse could be seen."
