"""The view of ladders of a growing load: knees, collapses, ratios of settings, charts.

Rule: knee, best and collapse are measured steps, with all their figures. A step that was measured
several times counts by the median of its runs in each launch, and each run stays a row. Two
settings are compared where they differ in a single axis, by ratios within the same launch, since a
machine changes from launch to launch."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.climb import Climb, climbs_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict.limits import SOME_FAILED
from serve_bench.analysis.verdict.timers import ROUTER_WAIT, read_flag_s, router_words
from serve_bench.core import ladder
from serve_bench.core.axes import cell_defaults
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE, Ladder, Next, Rung
from serve_bench.core.result import Result, cell_slug
from serve_bench.view.charts import Chart
from serve_bench.view.document import Later, Section, Tone, statement
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
    table_section,
)
from serve_bench.view.lens import View
from serve_bench.view.rows import limit_words

declare(("best", "requests/s", "the most of any step"), shown="requests/s", better="higher")
declare(("of_best", "1", "requests/s over those of the best step", "of the best"))
declare(("served_of_base", "1", "the requests/s of one setting over those of another", "ratio"))

QUIET: Final = {"DEBUG": 1, "INFO": 2, "WARNING": 3, "ERROR": 4}
"""Log levels by how little they log."""

SETTINGS: Final = TableSpec(
    "Each setting: its best, then its knee",
    (
        *(Field("name", "setting"), Field("best"), Field("best_with"), Field("users", "knee with")),
        *(Field(MAIN), Field("latency_p50"), Field("latency_p99")),
    ),
)
STEP_FIELDS: Final = (
    *(Field("latency_p90", detail=True), Field("latency_p99"), Field("latency_max", detail=True)),
    *(Field("errors"), Field("cut"), Field("cpu_service", "CPU", detail=True)),
    *(Field("gpu", detail=True), Field("limit"), Field("mark")),
)
RATIOS: Final = make_spec("Settings compared by requests/s", "served_of_base", row="pair")
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
TONES: Final[Mapping[str, Tone]] = {"collapse": "bad", "in doubt": "doubt"}


@dataclass(frozen=True)
class LadderView:
    """One ladder; if it was climbed to its end in no launch, it has no knee, best or collapses."""

    name: str  # the `settings` that differ from those of other ladders
    settings: Mapping[str, Any]
    noun: str  # what climbs
    climbs: Sequence[Climb]  # one of each launch
    rows: Sequence[ViewRow]  # each run of each step with its mark
    # Sound ones by clients: the run that is nearest to the rate of all runs, with that rate.
    steps: Mapping[int, ViewRow]
    knee: Rung | None
    best: Rung | None
    collapses: Sequence[int]


def view_ladders(result: Result, rows: Sequence[ViewRow]) -> list[LadderView]:
    """Build the ladders of a run, in the order in which they were begun."""
    if result.run.suite.get("ladder") is None:  # its loads do not grow
        return []
    app, groups = result.run.asked.target, defaultdict[tuple[str, str], list[ViewRow]](list)
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row.dims["status"] != "profiled":
            variant, cell = row.line.variant, row.line.cell
            key = (variant, cell_slug(cell))
            groups[key].append(row)
            # A cell as recorded leaves out what stands at its default; one of others is empty.
            settings[key] = {"variant": variant, **(cell_defaults(app) if cell else {}), **cell}
    axes = _differing_axes(settings.values()) or ("variant", "device", "log_level")
    climbs = climbs_of(result, result.run.part("ladder", Ladder)).values()
    again = {climb.planned(*step).key for climb in climbs for step in climb.again}
    views = []
    for key, group in groups.items():
        name, loads = _name_setting(settings[key], axes), []
        for row in sorted(group, key=lambda row: (row.dims["connections"], row.dims["run"])):
            dims = {**row.dims, "ladder": name, "users": row.dims["connections"]}
            dims["mark"] = "in doubt" if any(trial.key in again for trial in row.trials) else ""
            if len(groups) > 1:
                row = replace(row, name=f"{name}, {row.dims['row']}", group=name)
            loads.append(replace(row, dims=dims))
        mine = [climb for climb in climbs if (climb.variant, cell_slug(climb.cell)) == key]
        views.append(_view_ladder(name, settings[key], loads, mine))
    return views


def _differing_axes(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the axes of which settings have several values."""
    rows = [*map(ViewRow, settings)]
    return differ(rows, dict.fromkeys(axis for row in rows for axis in row.dims))


def _name_setting(settings: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Render the values of axes; an axis is named where its value alone does not say it."""
    words = {"device": {"cpu": "CPU", "cuda": "GPU"}, "variant": {}, "log_level": {}, "ranker": {}}
    known = [(axis, str(settings[axis])) for axis in axes if settings.get(axis) is not None]
    named = ((words.get(axis), axis, value) for axis, value in known)
    return ", ".join(f"{axis} {it}" if of is None else of.get(it, it) for of, axis, it in named)


def _view_ladder(
    name: str, settings: Mapping[str, Any], loads: Sequence[ViewRow], climbs: Sequence[Climb]
) -> LadderView:
    """Build a ladder from its loads: sound steps, knee, best, collapses, and marks of rows."""
    ended = [climb for climb in climbs if climb.finished]
    rates: dict[int, dict[int, float]] = defaultdict(dict)  # by clients, then launch
    for climb in ended or climbs:
        for rung in ladder.merged(climb.steps):
            rates[rung.clients][climb.round] = rung.throughput
    runs: dict[int, list[ViewRow]] = defaultdict(list)
    for row in loads:
        if MAIN in row.values and row.dims["users"] in rates and not row.dims["mark"]:
            runs[row.dims["users"]].append(row)
    steps, served = dict[int, ViewRow](), list[Rung]()
    for users, group in runs.items():
        rate = statistics.fmean(rates[users].values())
        row = min(group, key=lambda run: abs(run.values[MAIN].value - rate))
        value = replace(row.values[MAIN], value=rate, launches=rates[users])
        warnings = dict.fromkeys(seen for run in group for seen in run.warnings)
        steps[users] = replace(row, values={**row.values, MAIN: value}, warnings=(*warnings,))
        errors = sum(run.value("errors") or 0.0 for run in group)
        done = sum(run.value("completed") or 0.0 for run in group)
        if ended and errors < SOME_FAILED * max(1, done + errors):
            served.append(Rung(users, rate))
    _, best, knee, _ = ladder.find_shape(served)
    served_at = {users: step.values[MAIN].value for users, step in steps.items()}
    most, top = (best.throughput, best.clients) if best else (0.0, 0)
    fallen = [users for users, rate in served_at.items() if users > top and rate < COLLAPSE * most]
    marks = dict.fromkeys(fallen, "collapse")
    if best is not None and knee is not None:
        marks |= {knee.clients: "knee", best.clients: "best" if best != knee else "knee, best"}

    def mark(row: ViewRow) -> ViewRow:
        word = row.dims["mark"] or marks.get(row.dims["users"], "")
        tones = {"mark": TONES.get(word, "plain")}
        return replace(row, dims={**row.dims, "mark": word}, tones=tones)

    noun = "client" if "client" in str(loads[0].dims["row"]) else "user"
    rows, steps = [*map(mark, loads)], {users: mark(step) for users, step in steps.items()}
    return LadderView(name, settings, noun, climbs, rows, steps, knee, best, fallen)


def view_run(
    result: Result,
    views: Sequence[LadderView],
    fields: Sequence[Field],
    published: Sequence[ViewRow],
) -> View:
    """Build the view of a run of ladders.

    `fields`: the first columns of its steps; `published`: rows in groups by where they come
    from."""
    rows, single = [row for view in views for row in view.rows], len(views) == 1
    knees = [*map(_make_knee, views)]
    fallen = [_make_collapse(result, view, users) for view in views for users in view.collapses]
    lead = max(knees, key=lambda point: point.value("best") or 0.0, default=None)
    compared = [*compare_settings(views)]
    launches = len({trial.round for row in rows for trial in row.trials})
    mean = f", mean of {launches} launches" if launches > 1 else ""
    steps = TableSpec(f"Every step{mean}", (*fields, *STEP_FIELDS))
    charts = (Later(partial(_draw_load, views)),) if any(view.steps for view in views) else ()
    return View(
        rows=rows,
        points=[*knees, *fallen],
        comparisons=compared,
        lead=lead,
        findings=tuple(_describe(views, lead, knees, fallen, compared)),
        sections=[
            table_section("results", "Results", SETTINGS, [] if single else knees, "headline"),
            table_section("steps", f"Steps{mean}", steps, rows, "headline" if single else "table"),
            table_section("compared", RATIOS.caption, RATIOS, compared, "table"),
            table_section("published", PUBLISHED.caption, PUBLISHED, published, "table"),
        ],
        charts=[Section("throughput", "Throughput and latency over the load", charts)],
        traced=[row for view in views for row in view.steps.values() if row.dims["mark"]],
        definitions=(DEFINITION,),
    )


def _draw_load(views: Sequence[LadderView]) -> Iterator[Chart]:
    """Yield charts of requests/s and latency over the load; marks only of a single ladder."""
    noun, steps = f"{views[0].noun}s", [step for view in views for step in view.steps.values()]
    places = ((step.dims["users"], step.dims["mark"]) for step in steps if len(views) == 1)
    marks = [(users, word) for users, word in places if word]
    draw = partial(line_chart, rows=steps, x="users", series="ladder", marks=marks, x_name=noun)
    yield from draw(f"Requests/s over {noun}", figures=(MAIN,), caption=BARS)
    yield from draw(f"Latency over {noun}", figures=("latency_p50", "latency_p99"))


def _make_knee(view: LadderView) -> ViewRow:
    """Make the row of a ladder at its knee, with its best; without one, why there is none."""
    ends: dict[str, None] = {}
    for move in (climb.decide() for climb in view.climbs):
        onward = f"{move.clients} {view.noun}s come next" if isinstance(move, Next) else move.why
        ends[onward] = None
    end = "; ".join(ends) or "not begun"
    dims = {"point": "knee", "ladder": view.name, **view.settings, "end": end}
    if view.knee is None or view.best is None:
        ended = any(climb.finished for climb in view.climbs)
        gap = "no sound step" if ended else "not climbed to its end"
        return ViewRow(dims, name=view.name, gap=gap)
    found = {"users": view.knee.clients, "best_with": view.best.clients}
    step, top = (view.steps[users] for users in found.values())
    return replace(
        step,
        dims={**dims, **found, "limit": step.dims["limit"]},
        values={**step.values, "best": top.values[MAIN]},
        name=view.name,
        group="",
        warnings=tuple(dict.fromkeys((*step.warnings, *top.warnings))),
        notes=(limit_words(step.limited),),
    )


def _make_collapse(result: Result, view: LadderView, users: int) -> ViewRow:
    """Make the row of a step that collapsed: `2 of 3 runs fell: 400.0 to 1,950 requests/s`.

    With its runs, since it is rarely the same twice, and its limit."""
    step, best = view.steps[users], 0.0 if view.best is None else view.best.throughput
    rungs = [rung for climb in view.climbs if climb.finished for rung in climb.steps]
    rates = [rung.throughput for rung in rungs if rung.clients == users]
    fell = f"{sum(run < COLLAPSE * best for run in rates)} of {counted(len(rates), 'run')} fell"
    span = " to ".join(dict.fromkeys(map(number, (min(rates), max(rates)))))
    runs = f"{fell}: {span} requests/s" if len(rates) > 1 else "it was run once"
    words = [runs, limit_words(step.limited)]
    if result.run.asked.app in ("noop", "press_noop"):  # of a single deployment
        wait_s = read_flag_s(result.launches, view.settings["variant"], ROUTER_WAIT)
        replicas = int(view.settings.get("num_replicas", 0))
        words += filter(None, [router_words(step.values[MAIN].value, replicas, wait_s)])
    return replace(
        step,
        dims={**step.dims, "point": "collapse"},
        values={MAIN: step.values[MAIN], "of_best": Value(step.values[MAIN].value / best)},
        name=view.name,
        group="",
        notes=tuple(words),
    )


def compare_settings(views: Sequence[LadderView]) -> Iterator[ViewRow]:
    """Yield rows for all pairs of settings that differ in one axis.

    Each is compared with the quietest log level, else the setting that was begun first."""
    axes = _differing_axes(view.settings for view in views)
    views = sorted(views, key=lambda view: -QUIET.get(view.settings.get("log_level", ""), 0))
    for axis in axes:
        bases: dict[str, LadderView] = {}
        for view in views:
            where = _name_setting(view.settings, [name for name in axes if name != axis])
            base = bases.setdefault(where, view)
            if base is not view and view.best and base.best:
                yield from _compare(axis, where, view, base)


def _compare(axis: str, where: str, view: LadderView, base: LadderView) -> Iterator[ViewRow]:
    """Yield a row for the bests of two settings, then for each step that both have, by launch.

    A direction is only claimed where every launch has it, with how often chance alone brings
    that."""
    mine, other = (_name_setting(side.settings, [axis]) for side in (view, base))
    sides: list[dict[Any, ViewRow]] = [
        {"best": side.steps[side.best.clients], **side.steps} for side in (view, base) if side.best
    ]
    for users in filter(sides[1].__contains__, sides[0]):
        ours, theirs = (steps[users].values[MAIN].launches for steps in sides)
        launches = {launch: ours[launch] / theirs[launch] for launch in ours if theirs.get(launch)}
        if not launches:
            continue
        name, ratios = f"{view.name} / {base.name}", list(launches.values())
        name += "" if users == "best" else f", {counted(users, view.noun)}"
        verdict = f"not distinguished in {counted(len(ratios), 'launch', 'launches')}"
        if len(ratios) > 1 and not min(ratios) <= 1 <= max(ratios):
            chance = 2 ** (len(ratios) - 1)
            verdict = f"all {len(ratios)} launches agree: by chance 1 time in {chance}"
        means = [statistics.fmean(rates[launch] for launch in launches) for rates in (ours, theirs)]
        shown = ", ".join(FIGURES["served_of_base"].show(Value(ratio)) for ratio in ratios)
        words = f"{where}: {mine} serves {shown} of {other}'s best requests/s: {verdict}."
        yield ViewRow(
            {"axis": axis, "setting": view.name, "base": base.name, "with": users},
            {"served_of_base": Value(means[0] / means[1], launches=launches)},
            name,
            notes=(words.removeprefix(": "),) if users == "best" else (),
        )


def _describe(
    views: Sequence[LadderView],
    lead: ViewRow | None,
    knees: Sequence[ViewRow],
    fallen: Sequence[ViewRow],
    compared: Sequence[ViewRow],
) -> Iterator[str]:
    """Yield the highest requests/s, the knee and its limit, comparisons, collapses, and ends."""
    if lead is None or "best" not in lead.values:
        why = f"{lead.gap} ({lead.dims['end']})" if lead else "nothing was measured"
        yield f"There is no knee and no best: {why}"
        return
    noun = views[0].noun
    few, most = (counted(lead.dims[users], noun) for users in ("users", "best_with"))
    yield f"{lead.name} serves at most {lead.text('best')} requests/s with {most}"
    yield f"{lead.name} at its knee, {few}: {describe_figures(lead)}; {lead.notes[0]}"
    yield from [note for row in compared for note in row.notes][:2]
    for point in {point.name: point for point in reversed(fallen)}.values():
        kept = f"{point.text(MAIN)} requests/s, {point.text('of_best')} of the best"
        where = f"{point.name}: collapse with {counted(point.dims['users'], noun)}"
        yield f"{where}: {kept} ({'; '.join(point.notes)})"
    ended: dict[str, list[str]] = {}
    for knee in knees:
        ended.setdefault(knee.dims["end"], []).append(knee.name)
    groups = ((end, ", ".join(names)) for end, names in ended.items())
    ends = (f"{end} ({names})" if len(ended) > 1 else end for end, names in groups)
    words = f"climb: {'; '.join(ends)}"
    if not fallen and all(view.best for view in views):
        last = min(max(view.steps) for view in views)
        words = f"no collapse up to {counted(last, noun)}; {words}"
    yield statement(words)
