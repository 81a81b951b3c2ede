"""Ladders as they are looked at: a row for each step, a point for each knee and each collapse.

Sweep, recsys and press are ladders; what they call their rows and which columns they show stands
with them. Knee, best and collapse are those of ladders.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict import Verdict
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import Deploy, Result, Trial, cell_slug
from serve_bench.view.blocks import (
    cpu_of_rows,
    distinct,
    in_parts,
    latency_curve,
    limit_words,
    listed,
    percentile_charts,
    sentence,
    statement,
)
from serve_bench.view.charts import Chart, LinePoint, Mark
from serve_bench.view.document import Block, Charts, Finding, Folded, Section, Tone
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import ViewRow, line_chart
from serve_bench.view.ladders import NOT_VISIBLE, LadderLine, ladder_lines
from serve_bench.view.texts import latency

declare("best", "requests/s", "the most of any step", shown="requests/s", better="higher")
declare("of_best", "1", "requests/s over those of the best step", title="of the best")
declare(*("ratio", "1", "the best requests/s over that of the first of its group"), better="higher")
declare("one_client_latency", "ns", "mean latency with one client", title="aveTime", better="lower")

TONES: Final[Mapping[str, Tone]] = {
    "collapse": "bad",
    "this run fell": "bad",
    "in doubt": "doubt",
    "this run held": "quiet",
}

INTERVALS: Final = (
    "Bars: the lowest and highest of a step's launches; of a step measured once, ± the std of its "
    "windows."
)
MARKED: Final = (
    f"Knee: the fewest with {100 * KNEE:.0f} % of the best requests/s; collapse: more than the "
    f"best, and below {100 * COLLAPSE:.0f} % of it."
)
MOST_MARKED: Final = 3
"""Ladders of one chart whose knees and collapses can be named in it."""


@dataclass(frozen=True)
class LadderView:
    """A ladder with its rows. `name` tells it from all others of the run, `label` from those of its
    `group`; `noun`: what climbs, "user" or "client"; `base`: the first ladder of its group, with
    which it is compared; None where there are no groups."""

    name: str
    label: str
    group: str
    noun: str
    ladder: LadderLine
    base: LadderLine | None
    steps: tuple[ViewRow, ...]
    deploys: tuple[Deploy, ...] = ()

    def step(self, line: object) -> ViewRow | None:
        """The row of a line of the ladder."""
        return next((row for row in self.steps if row.entry and row.entry.line is line), None)

    @property
    def visible(self) -> bool:
        """Whether the run launched it: of services of others no process is seen."""
        return bool(self.ladder.cell)

    @property
    def knee(self) -> ViewRow | None:
        """The step at which it is saturated."""
        return self.step(self.ladder.knee)

    @property
    def best(self) -> ViewRow | None:
        """The step with the most requests/s."""
        return self.step(self.ladder.best)

    @property
    def best_rate(self) -> float | None:
        """The most requests/s of any step."""
        return None if self.ladder.best is None else self.ladder.rate(self.ladder.best)

    @property
    def ratio(self) -> float | None:
        """Its best requests/s over that of the base; None where either has none."""
        if self.best_rate is None or self.base is None or self.base.best is None:
            return None
        return self.best_rate / self.base.rate(self.base.best)

    @property
    def limit(self) -> Verdict | None:
        """What limited it at its knee."""
        knee = self.knee if self.visible else None
        return None if knee is None or knee.entry is None else knee.entry.limited

    def words(self, row: ViewRow | None) -> str:
        """`1 user`, `200 clients`."""
        return counted(0 if row is None else row.dims["connections"], self.noun)


Naming: TypeAlias = Callable[[Sequence[LadderLine]], Sequence[tuple[str, str | None]]]
"""The label of each ladder, and the group in which it is compared, if any."""


def services_of(
    result: Result, rows: Sequence[ViewRow], naming: Naming, noun: str
) -> list[LadderView]:
    """The ladders of a run, in the order in which they were begun, those of a group together."""
    ladders = ladder_lines(result)
    names = naming(ladders)
    groups = [group for _, group in names]
    grouped = len(set(groups)) < len(groups)
    whole = [", ".join(filter(None, pair)) for pair in names]
    unique = [names[0][0]] if len(names) == 1 else distinct(whole)
    services = [
        LadderView(
            name=unique[place],
            label=label if grouped else unique[place],
            group=group or "" if grouped else "",
            noun=noun,
            ladder=ladder,
            base=None if group is None else ladders[groups.index(group)],
            steps=tuple(_steps(ladder, rows, unique[place], len(names) > 1)),
            deploys=tuple(_deploys(ladder, result)),
        )
        for place, (ladder, (label, group)) in enumerate(zip(ladders, names, strict=True))
    ]
    order = list(dict.fromkeys(groups))
    return sorted(services, key=lambda service: order.index(groups[services.index(service)]))


def _steps(
    ladder: LadderLine, rows: Sequence[ViewRow], name: str, several: bool
) -> Iterator[ViewRow]:
    """The rows of a ladder, with what each is to it."""
    slug = cell_slug(ladder.cell)
    by_row = {
        row.entry.line.row: row
        for row in rows
        if row.entry is not None
        and (row.dims["variant"], cell_slug(row.entry.line.cell)) == (ladder.variant, slug)
        and row.dims["status"] != "profiled"
    }
    for line in ladder.steps:
        row, mark = by_row[line.row], ladder.mark(line)
        assert row.entry is not None
        yield replace(
            row,
            dims={**row.dims, "ladder": name, "users": line.row.connections, "mark": mark},
            name=f"{name}, {row.name}" if several else row.name,
            group=name if several else "",
            tones={"mark": TONES.get(mark, "plain")},
            entry=replace(row.entry, line=line),  # its ladder knows it by identity
        )


def _deploys(ladder: LadderLine, result: Result) -> Iterator[Deploy]:
    launches = {launch.id for launch in result.launches if launch.variant.name == ladder.variant}
    slug = cell_slug(ladder.cell)
    for deploy in result.deploys:
        if deploy.launch in launches and cell_slug(deploy.cell) == slug:
            yield deploy


# What is derived: a point at each knee, and at each collapse.


def knee_point(service: LadderView) -> ViewRow:
    """A ladder at its knee, with its best beside; without one, why there is none."""
    ladder, knee, best = service.ladder, service.knee, service.best
    dims = {
        **{"point": "knee", "ladder": service.name, "variant": ladder.variant, **ladder.cell},
        **{"users": None, "best_with": None, "end": ladder.end},
        "collapse_with": ", ".join(str(line.row.connections) for line in ladder.collapses) or None,
    }
    values = {"errors": Value(float(ladder.errors))}
    single = next((row for row in service.steps if row.dims["connections"] == 1), None)
    if single is not None and "latency_mean" in single.values:
        values["one_client_latency"] = single.values["latency_mean"]
    point = ViewRow(dims, values, service.label, service.group)
    if knee is None or best is None or ladder.knee is None or service.best_rate is None:
        steps = {row.dims["row"]: row.warnings for row in service.steps}
        return replace(point, gap=ladder.without, warnings=tuple(brief(steps)), notes=())
    spread = ladder.spread(ladder.knee)
    launches = {
        round_: rates[knee.dims["users"]]
        for round_, rates in ladder.rounds.items()
        if knee.dims["users"] in rates and round_ in ladder.finished
    }
    bests = {
        round_: rate for round_ in ladder.rounds if (rate := ladder.best_of(round_)) is not None
    }
    values = {**knee.values, **values, MAIN: Value.of_spread(spread, launches)}
    values["best"] = Value(service.best_rate, launches=bests)
    if service.ratio is not None:
        values["ratio"] = Value(service.ratio)
    hidden = f"what limited it is {NOT_VISIBLE}"
    limits = (limit_words(service.limit) if service.visible else hidden,)
    return replace(
        point,
        dims={**dims, "users": knee.dims["users"], "best_with": best.dims["users"]},
        values=values,
        warnings=tuple(at_both(knee.warnings, () if best is knee else best.warnings)),
        notes=limits,
        entry=knee.entry,
    )


def collapse_points(service: LadderView) -> Iterator[ViewRow]:
    """A step that collapsed, with each of its runs in words: a collapse is rarely the same twice,
    so that it is said whether they agree."""
    ladder = service.ladder
    for line in ladder.collapses:
        row = service.step(line)
        assert row is not None
        rate = ladder.rate(line)
        values = {MAIN: Value(rate), "of_best": Value(rate / (service.best_rate or rate))}
        words = (run_words(service, line.row.connections),)
        dims = {**row.dims, "point": "collapse"}
        yield replace(row, dims=dims, values=values, name=service.name, group="", notes=words)


def run_words(service: LadderView, users: int) -> str:
    """`its 3 runs: 410.0, 400.0, 1,950 held; the runs disagree: 1 of 3 did not fall`."""
    most = service.best_rate or 0.0
    runs = [(line, trial) for line in service.ladder.runs(users) for trial in line.trials]
    if len(runs) < 2:
        return "it was run once: a collapse is rarely the same twice"
    runs.sort(key=lambda pair: (pair[1].round, pair[0].row.run))
    rates = [throughput_of(trial) for _, trial in runs]
    launches: dict[int, list[str]] = {}
    for (_, trial), rate in zip(runs, rates, strict=True):
        launches.setdefault(trial.round, []).append(_run_words(trial, rate, most))
    several = len(launches) > 1
    texts = [
        f"{f'launch {round_}: ' if several else ''}{', '.join(words)}"
        for round_, words in launches.items()
    ]
    held = sum(rate >= COLLAPSE * most for rate in rates)
    agree = not held and min(rates) >= COLLAPSE * max(rates)
    verdict = "they agree" if agree else "the runs disagree"
    verdict += f": {held} of {len(runs)} did not fall" if held else ""
    return f"its {len(runs)} runs: {'; '.join(texts)}; {verdict}"


def _run_words(trial: Trial, rate: float, most: float) -> str:
    failed = trial.counts.failed_total
    words = [
        number(rate),
        f"with {failed} errors" if failed else "",
        "cut" if trial.flags.get("cut") else "",
        "held" if rate >= COLLAPSE * most else "",
    ]
    return " ".join(filter(None, words))


def at_both(knee: Sequence[Finding], best: Sequence[Finding]) -> list[Finding]:
    """What is doubted of the knee, and of the best."""
    return brief({"at the knee": knee, "at the best": best})


def brief(findings: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Findings by what they are about, without the sentences, which stand at the steps themselves:
    `at the knee, at the best: few-windows`."""
    places: dict[Finding, dict[str, None]] = {}
    for where, warnings in findings.items():
        for warning in warnings:
            short = Finding("" if warning.code else warning.text, warning.code, warning.tone)
            places.setdefault(short, {})[where] = None
    return [replace(short, about=", ".join(where)) for short, where in places.items()]


# What they say in sentences.


def findings(services: Sequence[LadderView], compared: Sequence[ViewRow] = ()) -> Iterator[str]:
    """The best ladder, what limits it, what it is compared with, collapses."""
    sound = [
        service for service in services if service.knee is not None and service.best is not None
    ]
    if not sound:
        ended = any(service.ladder.finished for service in services)
        why = "No valid step" if ended else "No ladder is complete"
        yield f"{why}: there is no knee and no best."
        return
    top = max(sound, key=lambda service: service.best_rate or 0.0)
    base = next((service for service in services if service.ladder is top.base), top)
    yield _headline(top, services, base)
    # The reason of a ratio may stand in the slower one.
    for service in [top, base] if base in sound and base is not top else [top]:
        if service.limit is not None:
            yield sentence(f"What limits {service.name} at its knee: {service.limit.text}")
    yield from (note for row in compared for note in row.notes)
    fallen = [
        f"{f'{service.name}: ' if len(sound) > 1 else ''}{_collapse_words(service, point)}"
        for service in sound
        for point in [*collapse_points(service)][:1]
    ]
    if not fallen and all(max(service.ladder.rates) > _users(service.best) for service in sound):
        last = min(max(service.ladder.rates) for service in sound)
        fallen = [f"no collapse was seen up to {counted(last, top.noun)}"]
    if fallen:
        yield statement("; ".join(fallen), [service.name for service in sound])


def _users(row: ViewRow | None) -> int:
    return 0 if row is None else int(row.dims["users"])


def _headline(top: LadderView, services: Sequence[LadderView], base: LadderView) -> str:
    """The highest requests/s, its knee, and how it stands to the first of its group."""
    knee, best = top.knee, top.best
    assert knee is not None and best is not None and top.ladder.knee is not None
    most = "serves most," if len(services) > 1 else "serves at most"
    head = f"{top.name} {most} {number(top.best_rate)} requests/s with {top.words(best)}"
    if base is not top and top.ratio is not None:
        head += f", {top.ratio:.2f} times the best of {base.name}"
    waits = ""
    if "latency_p50" in knee.values:
        waits = f"p50 {knee.text('latency_p50')} ms, p99 {knee.text('latency_p99')} ms"
    if knee is best:
        head += f" ({waits})" if waits else ""
        if min(top.ladder.rates) < _users(knee):
            head += f", and no step with fewer {top.noun}s reaches {100 * KNEE:.0f} % of that"
        return sentence(head)
    inside = [f"{number(top.ladder.rate(top.ladder.knee))} requests/s", *filter(None, [waits])]
    verb = "is" if _users(knee) == 1 else "are"
    enough = f"{top.words(knee)} {verb} enough for {100 * KNEE:.0f} % of that"
    return sentence(f"{head}; {enough} ({', '.join(inside)})")


def _collapse_words(service: LadderView, point: ViewRow) -> str:
    kept = f"{point.text(MAIN)} requests/s, {point.text('of_best')} of the best"
    return f"collapse with {service.words(point)}: {kept} ({point.notes[0]})"


def remarks(service: LadderView) -> Iterator[str]:
    """What a ladder adds up to: its first request, its collapses, its signs, its end."""
    ladder, best = service.ladder, service.best
    firsts = [
        deploy.proof["first_request"]["ms"]
        for deploy in service.deploys
        if deploy.proof.get("first_request")
    ]
    if firsts:
        yield f"first request after the start: {', '.join(f'{latency(ms)} ms' for ms in firsts)}"
    if settled := [deploy.settled for deploy in service.deploys if deploy.settled]:
        yield f"before the first step: {_settled_words(settled)}"
    points = [*collapse_points(service)]
    if best is not None and not points:
        last = max(ladder.rates)
        yield (
            f"no collapse up to {counted(last, service.noun)}"
            if last > _users(best)
            else f"no step has more {service.noun}s than the best, so no collapse could be seen"
        )
    for point in points:
        yield _collapse_words(service, point)
        if point.entry is not None and point.entry.limited is not None and service.visible:
            yield f"limited by, with {service.words(point)}: {point.entry.limited.text}"
    yield from (f"sign: {sign}" for sign in ladder.signs)
    if service.knee is not None and service.knee is service.steps[0] and _users(service.knee) > 1:
        yield f"the first step is the knee already: fewer {service.noun}s may do"
    yield ladder.end


def _settled_words(settled: Sequence[Mapping[str, object]]) -> str:
    """Of all launches: how long it took, and the median latency of one client then."""
    of = f" of {len(settled)} launches" if len(settled) > 1 else ""
    unjudged = sum(state.get("judged") is False for state in settled)
    missed = sum(not state.get("steady") for state in settled) - unjudged
    counts = {"had not settled": missed, "too slow to tell whether it had settled": unjudged}
    words = [f"{word} in {n}{of}," if of else word for word, n in counts.items() if n]
    seconds = _span([f"{float(str(state.get('seconds') or 0)):.1f}" for state in settled])
    p50 = _span(
        [latency(float(str(state["p50_ns"])) / 1e6) for state in settled if state.get("p50_ns")]
    )
    after = f"{' '.join(words) or 'settled'} after {seconds} s"
    return after + (f" (p50 of one client {p50} ms)" if p50 else "")


def _span(texts: Sequence[str]) -> str:
    """The least and the largest of numbers as they are written; one where they are alike."""
    ordered = sorted(texts, key=lambda text: float(text.replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1]))) if ordered else ""


def describe_running(result: Result) -> str:
    """The services of others in words; empty where the run launched its own."""
    urls = result.run.suite.get("urls") or {}
    named = ", ".join(f"{name} {url}" for name, url in urls.items())
    return f"already running: {named}; what is inside is {NOT_VISIBLE}" if urls else ""


def replicas_of(result: Result) -> list[Mapping[str, Any]]:
    """What the replicas of all deploys say of themselves."""
    return [facts for deploy in result.deploys for facts in deploy.proof.get("replicas", ())]


# Charts.


def load_sections(
    services: Sequence[LadderView], published: Mapping[str, Mapping[str, Sequence[LinePoint]]]
) -> Iterator[Section]:
    """Requests/s and latency over the load. `published`: lines of others, by figure."""
    noun = services[0].noun if services else ""
    over = partial(_over_load, services, published)
    rates = Charts(lambda: over(f"Requests/s over {noun}s", (MAIN,)))
    waits = Charts(lambda: over(f"Latency over {noun}s", ("latency_p50", "latency_p99")))
    curves = Charts(lambda: _knee_curves(services))
    if any(service.ladder.rates for service in services):
        yield Section("throughput", f"Throughput over {noun}s", (rates,))
        yield Section("latency", "Latency", (waits, curves))


def _over_load(
    services: Sequence[LadderView],
    published: Mapping[str, Mapping[str, Sequence[LinePoint]]],
    title: str,
    figures: Sequence[str],
) -> Iterator[Chart]:
    sound = {service.name: service for service in services if service.ladder.rates}
    for part, shown in in_parts(sound, lambda _: len(figures)):
        rows = [row for service in shown.values() for row in _points(service)]
        marked = len(shown) <= MOST_MARKED
        noun = f"{services[0].noun}s"
        caption = [INTERVALS] if figures == (MAIN,) else []
        caption += [MARKED if marked else _knee_words(shown.values()), *_faults(shown.values())]
        yield from line_chart(
            f"{title}{part}",
            rows,
            "users",
            figures,
            "ladder",
            marks=_marks(shown.values()) if marked else (),
            caption=" ".join(caption),
            more=published.get(figures[0]),
            x_name=noun,
        )


def _points(service: LadderView) -> Iterator[ViewRow]:
    """A row for each sound step: the run nearest to the median, with the rate of all."""
    ladder = service.ladder
    for users, rate in ladder.rates.items():
        row = service.step(ladder.nearest(users))
        assert row is not None
        rates = [throughput_of(trial) for line in ladder.runs(users) for trial in line.trials]
        value = replace(row.values[MAIN], value=rate, launches=dict(enumerate(rates, 1)))
        yield replace(row, values={**row.values, MAIN: value})


def _marks(services: Iterable[LadderView]) -> list[Mark]:
    """Knees and collapses, one rule for each number of users; named where there are several."""
    marks: dict[int, dict[str, list[str]]] = {}
    views = list(services)
    for service in views:
        ladder = service.ladder
        knee = [] if ladder.knee is None else [ladder.knee]
        for word, lines in (("knee", knee), ("collapse", ladder.collapses)):
            for line in lines:
                names_of = marks.setdefault(line.row.connections, {})
                names_of.setdefault(word, []).append(service.name)
    return [
        Mark(
            users,
            "; ".join(
                word if len(views) == 1 else f"{word}: {listed(names)}"
                for word, names in words.items()
            ),
        )
        for users, words in sorted(marks.items())
    ]


def _knee_words(services: Iterable[LadderView]) -> str:
    """The marks in words: `Knees: a 20, b 15; collapses: a from 30.`"""
    views = list(services)
    knees = [
        f"{service.name} {_users(service.knee):,}" for service in views if service.knee is not None
    ]
    fallen = [
        f"{service.name} from {min(line.row.connections for line in service.ladder.collapses):,}"
        for service in views
        if service.ladder.collapses
    ]
    collapses = f"; collapses: {'; '.join(fallen)}" if fallen else ""
    return f"Knees: {'; '.join(knees)}{collapses}." if knees else ""


def _faults(services: Iterable[LadderView]) -> list[str]:
    """The steps in which requests failed or were cut, which their points do not show."""
    views = list(services)
    steps = []
    for service in views:
        faulty = sorted({_users(row) for row in service.steps if _is_faulty(row)})
        if faulty:
            about = f"{service.name}: " if len(views) > 1 else ""
            steps.append(f"{about}{listed([f'{users:,}' for users in faulty])}")
    return [f"Some requests failed or were cut with {'; '.join(steps)}."] if steps else []


def _is_faulty(row: ViewRow) -> bool:
    cut = any(trial.flags.get("cut") for trial in row.trials)
    return MAIN in row.values and (bool(row.value("errors")) or cut)


def _knee_curves(services: Sequence[LadderView]) -> Iterator[Chart]:
    """Percentile curves of all requests at each knee."""
    curves = {
        f"{service.name}, {service.knee.dims['row']}": points
        for service in services
        if service.knee is not None and (points := latency_curve(service.knee.trials))
    }
    caption = "Each curve ends at the last percentile that one request lies beyond."
    yield from percentile_charts("Latency at the knee", curves, caption)


def cpu_blocks(services: Sequence[LadderView]) -> Iterator[Block]:
    """CPU at the knees; of each ladder over its steps, folded where there are several."""
    charts: list[Block] = []
    for service in services:
        rows = [
            (row.dims["row"], row.trials, row.entry.limited)
            for row in service.steps
            if row.entry is not None and any(trial.usage for trial in row.trials)
        ]
        about = f": {service.name}" if len(services) > 1 else ""
        charts += [Charts(partial(cpu_of_rows, f"CPU at every step{about}", rows))] if rows else []
    if len(services) == 1:
        yield from charts
        return
    knees = [
        (f"{service.name}, {service.knee.dims['row']}", service.knee.trials, service.limit)
        for service in services
        if service.knee is not None
    ]
    yield Charts(partial(cpu_of_rows, "CPU at the knee", knees))
    if charts:
        yield Folded("CPU at every step of each ladder", tuple(charts))


def shown_steps(service: LadderView) -> list[ViewRow]:
    """The knee, the best and the last step."""
    shown = (service.knee, service.best, service.steps[-1])
    return [row for row in service.steps if any(row is other for other in shown)]
