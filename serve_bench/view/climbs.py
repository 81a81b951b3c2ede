"""What is told of ladders: points at knees and collapses, ratios of settings, tables and charts.

Sweep, recsys and press are ladders. A kind adds the first columns of its steps, what they mean, and
what others published. Two settings are compared where they differ in one axis alone, by ratios
within the same launch, since a machine changes from launch to launch. A direction is only claimed
where every launch has it, and it is stated how often chance alone brings that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import Result
from serve_bench.view.blocks import in_parts, limit_words, sentence, statement
from serve_bench.view.charts import Chart, LinePoint, Mark
from serve_bench.view.document import Block, Charts, Detail, Prose, Section
from serve_bench.view.figures import FIGURES, Value, declare
from serve_bench.view.frame import (
    BARS,
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    launch_table,
    line_chart,
    make_table,
)
from serve_bench.view.ladders import LadderView, Step, axis_words, differing_axes
from serve_bench.view.lens import View

declare("best", "requests/s", "the most of any step", shown="requests/s", better="higher")
declare("of_best", "1", "requests/s over those of the best step", title="of the best")
declare("served_of_base", "1", "the requests/s of one setting over those of another", title="ratio")

SETTINGS: Final = TableSpec(
    "Settings",
    (
        Field("name", "setting"),
        Field("best"),
        Field("best_with", "best with"),
        Field(MAIN, "at the knee"),
        Field("users", "knee with"),
        Field("latency_p50", head="ms, knee"),
        Field("latency_p99", head="ms, knee"),
    ),
)
STEP_FIELDS: Final = (
    Field("latency_p90", detail=True),
    Field("latency_p99"),
    Field("latency_max", detail=True),
    Field("errors"),
    Field("cut"),
    Field("cpu_service", "CPU", detail=True),
    Field("gpu", detail=True),
    Field("limit"),
    Field("mark"),
)
PUBLISHED: Final = TableSpec(
    "Published, not measured here",
    (
        Field("name", "service"),
        Field("users"),
        Field(MAIN, "throughput"),
        Field("latency_mean", "mean", "us"),
        *(Field(f"latency_{share}") for share in ("p50", "p90", "p99")),
        Field("total", unit="us"),
    ),
)
DEFINITION: Final = (
    f"knee: the fewest with {100 * KNEE:.0f} % of the best requests/s; collapse: more than the "
    f"best, and below {100 * COLLAPSE:.0f} % of it; a step counts by the median of its runs"
)
LEVELS: Final = ("ERROR", "WARNING", "INFO", "DEBUG")
"""The quietest first: others are compared with it."""

ONE_DEPLOYMENT: Final = ("noop", "press_noop")
"""Apps of which a collapse may be what Serve's router gives."""

MOST_COMPARED: Final = 2
"""Comparisons among the findings."""

NOT_VISIBLE: Final = "not visible"
"""What is inside a service that was there already."""

Published: TypeAlias = Mapping[str, Sequence[ViewRow]]
"""Published rows, by the words on where they come from."""


def view_run(
    result: Result,
    views: Sequence[LadderView],
    fields: Sequence[Field],
    published: Published,
    definitions: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> View:
    """A run of ladders. `fields`: the first columns of its steps; `definitions`: of these."""
    steps = [row for view in views for row in view.rows]
    knees = [knee_point(view) for view in views]
    collapsed = [row for view in views for row in _collapse_points(view, result)]
    compared = [*compare_settings(views)]
    sections = [*_sections(steps, knees, compared, fields)] if views else []
    if views and published:
        blocks: list[Block] = []
        for words, rows in published.items():
            blocks += [Prose((words,)), *([make_table(PUBLISHED, rows)] if rows else [])]
        sections.append(Section("published", PUBLISHED.caption, tuple(blocks), "table"))
    drawn = {view.name: view for view in views if view.steps}
    title = "Throughput and latency over the load"
    charts = Section("throughput", title, (Charts(partial(_draw_load, drawn, published)),))
    return View(
        rows=steps,
        points=[*knees, *collapsed],
        comparisons=compared,
        lead=max(knees, key=lambda point: point.value(MAIN) or 0.0, default=None),
        findings=tuple(_describe(views, collapsed, compared)),
        sections=sections,
        charts=(charts,) if drawn else (),
        traced=[
            row
            for view in views
            for row in view.rows
            if row is view.rows[-1] or row.dims["mark"] in ("knee", "best", "knee, best")
        ],
        facts=facts,
        definitions=(*definitions, DEFINITION),
    )


def _sections(
    rows: Sequence[ViewRow],
    knees: Sequence[ViewRow],
    compared: Sequence[ViewRow],
    fields: Sequence[Field],
) -> Iterator[Section]:
    """The steps; of several settings each at its knee before, and their ratios behind."""
    launches = len({trial.round for row in rows for trial in row.trials})
    mean = f", mean of {launches} launches" if launches > 1 else ""
    steps = make_table(TableSpec(f"Every step{mean}", (*fields, *STEP_FIELDS)), rows)
    if len(knees) == 1:
        yield Section("results", "Results", (steps, Prose(knees[0].notes[-1:])), "headline")
        return
    yield Section("results", "Results", (make_table(SETTINGS, knees),), "headline")
    yield Section("steps", f"Steps{mean}", (steps,), "table")
    if compared:
        words = [note for row in compared for note in row.notes]
        ratios = launch_table("Ratios of requests/s", compared, "served_of_base", "launch")
        detail: Detail = "table" if len(words) > MOST_COMPARED else "further"
        blocks = (Prose(tuple(words), listed=True), ratios)
        yield Section("compared", "Settings compared", blocks, detail)


def _draw_load(views: Mapping[str, LadderView], published: Published) -> Iterator[Chart]:
    """Requests/s and latency over the load, published requests/s beside. Knees and collapses of
    several ladders stand in tables alone."""
    others = {
        f"published: {words}": [
            LinePoint(row.dims["users"], row.values[MAIN].value) for row in rows
        ]
        for words, rows in published.items()
        if rows
    }
    for part, shown in in_parts(views, lambda _: 2):
        steps = [step for view in shown.values() for step in view.steps.values()]
        (noun, *_) = {f"{view.noun}s" for view in shown.values()}
        marks = [*_marks(*views.values())] if len(views) == 1 else []
        draw = partial(
            line_chart,
            rows=[step.row for step in steps],
            x="users",
            series="ladder",
            marks=marks,
            x_name=noun,
        )
        title = f"Requests/s over {noun}{part}"
        yield from draw(title, figures=(MAIN,), caption=BARS, more=others)
        yield from draw(f"Latency over {noun}{part}", figures=("latency_p50", "latency_p99"))


def _marks(view: LadderView) -> Iterator[Mark]:
    if view.knee is not None:
        yield Mark(view.knee.users, "knee")
    yield from (Mark(step.users, "collapse") for step in view.collapses)


# What is derived: a point at each knee, and at each collapse.


def knee_point(view: LadderView) -> ViewRow:
    """A ladder at its knee, with its best beside; without one, why there is none."""
    dims = {"point": "knee", "ladder": view.name, **view.settings, "end": view.end}
    remarks = [*(f"sign: {sign}" for sign in view.signs), view.end]
    if view.knee is None or view.best is None:
        gap = "no sound step" if view.finished else "not climbed to its end"
        return ViewRow(dims, name=view.name, notes=("; ".join(remarks),), gap=gap)
    if view.rows[0].dims["users"] == view.knee.users > 1:
        remarks.insert(-1, f"the first step is the knee already: fewer {view.noun}s may do")
    knee, best = view.knee.row, view.best.row
    return replace(
        knee,
        dims={**dims, "users": view.knee.users, "best_with": view.best.users},
        values={**knee.values, "best": Value(view.best.rate, launches=view.bests)},
        name=view.name,
        group="",
        warnings=tuple(dict.fromkeys((*knee.warnings, *best.warnings))),
        notes=(_limit(view, knee), "; ".join(remarks)),
    )


def _limit(view: LadderView, row: ViewRow) -> str:
    """What limited a step, in words; of a service of others no process is seen."""
    if not view.is_visible:
        return f"what limited it is {NOT_VISIBLE}"
    return limit_words(None if row.entry is None else row.entry.limited)


def _collapse_points(view: LadderView, result: Result) -> Iterator[ViewRow]:
    """The steps that collapsed, each with its runs and its limit in words."""
    one_deployment = result.run.suite.get("app") in ONE_DEPLOYMENT
    wait_s = router_wait_s(result.launches, view.settings["variant"]) if one_deployment else None
    for step in view.collapses:
        row = step.row
        words = (
            _run_words(step, view.best_rate),
            _limit(view, row) if view.is_visible else "",
            router_words(step.rate, int(view.settings.get("num_replicas", 0)), wait_s) or "",
        )
        yield replace(
            row,
            dims={**row.dims, "point": "collapse", "mark": "collapse"},
            values={MAIN: row.values[MAIN], "of_best": Value(step.rate / view.best_rate)},
            name=view.name,
            group="",
            notes=tuple(filter(None, words)),
        )


def _run_words(step: Step, best_rate: float) -> str:
    """`its 3 runs: 410.0, 400.0, 1,950 held; the runs disagree: 1 of 3 did not fall`: a collapse is
    rarely the same twice, so that it is said whether they agree."""
    rates = [rate for launch in step.launches for rate in step.rates[launch]]
    if len(rates) < 2:
        return "it was run once: a collapse is rarely the same twice"
    held = [rate for rate in rates if rate >= COLLAPSE * best_rate]
    texts = (f"{number(rate)} held" if rate in held else number(rate) for rate in rates)
    agree = not held and min(rates) >= COLLAPSE * max(rates)
    verdict = "they agree" if agree else "the runs disagree"
    verdict += f": {len(held)} of {len(rates)} did not fall" if held else ""
    return f"its {len(rates)} runs: {', '.join(texts)}; {verdict}"


# Settings compared.


def compare_settings(views: Sequence[LadderView]) -> Iterator[ViewRow]:
    """All pairs that differ in one axis, each with the base of that axis: the quietest log level,
    the CPU, else the setting that was begun first. First by their bests, then at each number of
    clients that both have."""
    axes = differing_axes([view.settings for view in views])
    ordered = sorted(views, key=_rank)
    for axis in axes:
        others = [name for name in axes if name != axis]
        for view in views:
            place = [view.settings.get(name) for name in others]
            base = next(
                other for other in ordered if [other.settings.get(n) for n in others] == place
            )
            if base is not view:
                yield from _compare(axis, others, view, base)


def _rank(view: LadderView) -> tuple[int, bool]:
    level = view.settings.get("log_level")
    place = LEVELS.index(str(level)) if level in LEVELS else 0
    return place, view.settings.get("device") != "cpu"


def _compare(
    axis: str, others: Sequence[str], view: LadderView, base: LadderView
) -> Iterator[ViewRow]:
    """Nothing where there is no launch in which both served."""
    best = _ratio(view.bests, base.bests)
    if best is None:
        return
    where = [axis_words(name, base.settings[name]) for name in others if base.settings.get(name)]
    sides = [axis_words(axis, side.settings.get(axis)) for side in (view, base)]
    words = f"{', '.join(where)}{': ' if where else ''}{_ratio_words(best, *sides)}"
    dims = {"axis": axis, "setting": view.name, "base": base.name}
    pair = f"{view.name} / {base.name}"
    yield ViewRow({**dims, "with": "best"}, {"served_of_base": best}, pair, notes=(words,))
    for users in sorted(view.steps.keys() & base.steps.keys()):
        ratio = _ratio(view.steps[users].launches, base.steps[users].launches)
        if ratio is not None:
            name = f"{pair}, {counted(users, view.noun)}"
            yield ViewRow({**dims, "with": users}, {"served_of_base": ratio}, name)


def _ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Value | None:
    """Of the means over the launches that both have, with the ratio of each."""
    shared = [launch for launch in ours if theirs.get(launch)]
    if not shared:
        return None
    launches = {launch: ours[launch] / theirs[launch] for launch in shared}
    means = [statistics.fmean(side[launch] for launch in shared) for side in (ours, theirs)]
    return Value(means[0] / means[1], launches=launches)


def _ratio_words(ratio: Value, ours: str, theirs: str) -> str:
    """What can be said of a ratio, in one line that ends with a full stop: a direction only where
    every launch has it."""
    ratios = list(ratio.launches.values())
    show = FIGURES["served_of_base"].show
    texts = ", ".join(show(Value(value)) for value in ratios)
    served = f"{ours} serves {texts} of {theirs}'s best requests/s"
    if len(ratios) < 2:
        return f"{served} in one launch, and launches differ too (--launches 3)."
    if not (all(value < 1 for value in ratios) or all(value > 1 for value in ratios)):
        return f"{ours} and {theirs} are not distinguished: {served} in the {len(ratios)} launches."
    chance = f"all {len(ratios)} launches agree: by chance 1 time in {2 ** (len(ratios) - 1)}"
    return f"{ours} serves {show(ratio)} of {theirs}'s best requests/s ({texts}; {chance})."


# What they say in sentences.


def _describe(
    views: Sequence[LadderView], collapsed: Sequence[ViewRow], compared: Sequence[ViewRow]
) -> Iterator[str]:
    """The best ladder, what limits it, what it is compared with, collapses."""
    sound = [view for view in views if view.best is not None]
    if not sound:
        ended = any(view.finished for view in views)
        why = "No valid step" if ended else "No ladder is complete"
        yield f"{why}: there is no knee and no best."
        return
    single = len(views) == 1
    yield from _headline(max(sound, key=lambda view: view.best_rate), single)
    bests = [row for row in compared if row.dims["with"] == "best"]
    yield from (note for row in bests[:MOST_COMPARED] for note in row.notes)
    first = {row.name: row for row in reversed(collapsed)}
    for view in sound:
        if view.name in first or single:
            words = _collapse_words(view, first.get(view.name))
            yield statement(words) if single else sentence(f"{view.name}: {words}")


def _headline(top: LadderView, single: bool) -> Iterator[str]:
    """The highest requests/s, its knee, and what limits it there."""
    assert top.knee is not None and top.best is not None
    most = "at most" if single else "most,"
    best = describe_figures(top.best.row)
    text = f"{top.name} serves {most} {best} with {counted(top.best.users, top.noun)}"
    share = f"{100 * KNEE:.0f} % of that"
    if top.knee is not top.best:
        verb = "is" if top.knee.users == 1 else "are"
        enough = f"{counted(top.knee.users, top.noun)} {verb} enough for {share}"
        text += f"; {enough} ({describe_figures(top.knee.row)})"
    elif min(top.steps) < top.knee.users:
        text += f"; no step with fewer {top.noun}s reaches {share}"
    yield sentence(text)
    yield sentence(f"{top.name} at its knee: {_limit(top, top.knee.row)}")


def _collapse_words(view: LadderView, point: ViewRow | None) -> str:
    """The first collapse, or that none was seen."""
    if point is not None:
        kept = f"{point.text(MAIN)} requests/s, {point.text('of_best')} of the best"
        users = counted(point.dims["users"], view.noun)
        return f"collapse with {users}: {kept} ({'; '.join(point.notes)})"
    if view.best is not None and (last := max(view.steps)) > view.best.users:
        return f"no collapse up to {counted(last, view.noun)}"
    return f"no step has more {view.noun}s than the best, so no collapse could be seen"
