"""The charts of ladders: requests/s, latency and CPU over clients; sweep, recsys and press.

Rule: points are steps that were measured, by the figures that benchmarks/ladder/summary.py makes of
their runs; steps in doubt have none, since they are neither knee nor best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.ladder.summary import LadderLine
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.charts import Mark, Step
from serve_bench.benchmarks.parts.pieces import MOST_LINES, NS_PER_MS, listed
from serve_bench.benchmarks.parts.texts import bounded_number
from serve_bench.core.document import Block, Chart, Folded
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import cell_slug

INTERVALS: Final = (
    "Bars: the lowest and highest of a step's runs and launches; of a step measured once, ± the "
    "std of its windows."
)
MARKED: Final = (
    f"Knee: the fewest with {100 * KNEE:.0f} % of the best requests/s; collapse: more than the "
    f"best, and below {100 * COLLAPSE:.0f} % of it."
)


MOST_MARKED: Final = 3
"""Ladders of one chart whose knees and collapses can be named in it."""

_SHORT: Final[Mapping[str, str]] = {
    axis: cell_slug({axis: ""})
    for axis in ("max_batch_size", "max_concurrent_queries", "num_replicas")
}
"""The words that the keys of records have for the published axes: bs, mcq, rep."""


@dataclass(frozen=True)
class Curve:
    """A ladder under the name that it has in a chart."""

    name: str
    ladder: LadderLine


def curves_of(names: Sequence[str], ladders: Sequence[LadderLine]) -> list[Curve]:
    """Ladders under names that fit a chart: where several axes tell them apart, those in short."""
    shown = list(names)
    if any(", " in name for name in names):
        for axis, short in _SHORT.items():
            shown = [name.replace(f"{axis} ", short) for name in shown]
    return [Curve(*pair) for pair in zip(shown, ladders, strict=True)]


def legend_of(curves: Sequence[Curve]) -> list[str]:
    """What the short words in the names stand for; nothing where there are none."""
    said = [
        f"{short}: {axis}"
        for axis, short in _SHORT.items()
        if any(f"{short}{one.ladder.cell.get(axis)}" in one.name for one in curves)
    ]
    return [f"{', '.join(said)}."] if said else []


def word_of(curves: Sequence[Curve]) -> str:
    """What the steps count: users, or clients where each has so many requests to make."""
    rows = [line.row for one in curves for line in one.ladder.steps]
    return "clients" if any("client" in row.label for row in rows) else "users"


def measured(curves: Sequence[Curve]) -> list[Curve]:
    """Those with a sound step."""
    return [one for one in curves if one.ladder.rates]


def has_latency(curve: Curve) -> bool:
    """Whether a step has a latency."""
    return any("latency" in line.distributions for line in curve.ladder.steps)


def parts_of(curves: Sequence[Curve]) -> Iterator[tuple[str, Sequence[Curve]]]:
    """The curves in charts of as many lines as are told apart, with what their titles say of it."""
    count = -(-len(curves) // MOST_LINES)
    for at in range(count):
        part = f", part {at + 1} of {count}" if count > 1 else ""
        yield part, curves[at * MOST_LINES : (at + 1) * MOST_LINES]


# ------------------------------------------------------------------------------ throughput


def throughput_charts(title: str, curves: Sequence[Curve]) -> Iterator[Block]:
    """Requests/s over clients, with knee and collapse; of many ladders all without marks, then each
    alone with its own."""
    if len(curves) <= MOST_MARKED:
        yield _throughput(title, curves, True)
        return
    for part, own in parts_of(curves):
        yield _throughput(f"{title}{part}", own, False)
    alone = tuple(_throughput(f"Requests/s: {one.name}", [one], True) for one in curves)
    yield Folded("Each ladder alone, with its knee and its collapses", alone)


def _throughput(title: str, curves: Sequence[Curve], marked: bool) -> Chart:
    series = {
        one.name: [
            Step(users, value, *_interval(one.ladder, users))
            for users, value in one.ladder.rates.items()
        ]
        for one in curves
    }
    every = [step for steps in series.values() for step in steps]
    caption = [INTERVALS] if any(step.low is not None for step in every) else []
    caption += [MARKED if marked else _knees(curves), *legend_of(curves)]
    return charts.ladder(
        title,
        series,
        x_name=word_of(curves),
        unit="requests/s",
        words=_words("Requests/s", series, word_of(curves)),
        marks=marks(curves) if marked else (),
        caption=" ".join(caption),
    )


def _knees(curves: Sequence[Curve]) -> str:
    """The marks in words: `Knees: a 20, b 15 users; collapses: a from 30.`"""
    knees = [
        f"{one.name} {one.ladder.knee.row.connections:,}"
        for one in curves
        if one.ladder.knee is not None
    ]
    fallen = [
        f"{one.name} from {min(line.row.connections for line in one.ladder.collapses):,}"
        for one in curves
        if one.ladder.collapses
    ]
    collapses = f"; collapses: {'; '.join(fallen)}" if fallen else ""
    return f"Knees: {'; '.join(knees)} {word_of(curves)}{collapses}." if knees else ""


def _interval(ladder: LadderLine, users: int) -> tuple[float | None, float | None]:
    """Of the runs of a step, or of the windows of the only one."""
    runs = [
        line
        for line in ladder.steps
        if line.row.connections == users and MAIN in line.spreads and line not in ladder.doubted
    ]
    trials = [trial for line in runs for trial in line.trials if MAIN in trial.metrics]
    if len(trials) > 1:
        rates = [throughput_of(trial) for trial in trials]
        return min(rates), max(rates)
    spread = runs[0].spreads[MAIN]
    if spread.windows < 2:
        return None, None
    return max(0.0, spread.mean - spread.std), spread.mean + spread.std


def marks(curves: Sequence[Curve]) -> list[Mark]:
    """Knee and collapses, one rule for each number of clients; named where there are several."""
    found: dict[int, dict[str, list[str]]] = {}
    for one in curves:
        knee = [] if one.ladder.knee is None else [one.ladder.knee]
        for word, lines in (("knee", knee), ("collapse", one.ladder.collapses)):
            for line in lines:
                at = found.setdefault(line.row.connections, {})
                at.setdefault(word, []).append(one.name)
    return [
        Mark(
            users,
            "; ".join(
                word if len(curves) == 1 else f"{word}: {listed(names)}"
                for word, names in words.items()
            ),
        )
        for users, words in sorted(found.items())
    ]


# --------------------------------------------------------------------------------- latency


def latency_charts(title: str, curves: Sequence[Curve]) -> Iterator[Block]:
    """p50 and p99 over clients, in ms; of many ladders a chart for each, then each ladder alone."""
    known = [one for one in curves if has_latency(one)]
    if not known:
        return
    if len(known) <= MOST_MARKED:
        yield _latency(title, known, ("p50", "p99"), True)
        return
    for name in ("p50", "p99"):
        for part, own in parts_of(known):
            yield _latency(f"{title}, {name}{part}", own, (name,), False)
    alone = (_latency(f"Latency: {one.name}", [one], ("p50", "p99"), True) for one in known)
    yield Folded("Each ladder alone, p50 and p99", tuple(alone))


def _latency(title: str, curves: Sequence[Curve], shares: Sequence[str], marked: bool) -> Chart:
    series: dict[str, list[Step]] = {}
    for one in curves:
        lines = [line for line in shown(one.ladder) if "latency" in line.distributions]
        for name in shares:
            words = [one.name] if len(curves) > 1 else []
            words += [name] if len(shares) > 1 else []
            series[", ".join(words) or name] = [
                Step(line.row.connections, value / NS_PER_MS)
                for line in lines
                if (value := getattr(line.distributions["latency"], name)) > 0
            ]
    several = any(one.ladder.several(line) for one in curves for line in one.ladder.steps)
    caption = ["Of a step with several runs, those of the run nearest to their median."]
    return charts.ladder(
        title,
        series,
        x_name=word_of(curves),
        unit="ms",
        words=_words("Latency in ms", series, word_of(curves)),
        marks=marks(curves) if marked else (),
        log_y=True,
        caption=" ".join([*(caption if several else []), *legend_of(curves)]),
    )


def shown(ladder: LadderLine) -> list[Line]:
    """One line for each sound step: of several runs the one nearest to their median."""
    found: dict[int, Line] = {}
    for line in ladder.steps:
        users = line.row.connections
        if users not in ladder.rates or MAIN not in line.spreads or line in ladder.doubted:
            continue
        off = abs(line.spreads[MAIN].mean - ladder.rates[users])
        if users not in found or off < abs(found[users].spreads[MAIN].mean - ladder.rates[users]):
            found[users] = line
    return list(found.values())


def _words(what: str, series: Mapping[str, Sequence[Step]], x_name: str) -> str:
    """What a chart shows, for whoever cannot see it: each line at its ends and at its highest."""
    said = []
    for name, steps in series.items():
        if steps:
            first, last = steps[0], steps[-1]
            top = max(steps, key=lambda one: one.value)
            said.append(
                f"{name}: {bounded_number(first.value)} at {first.x:g}, "
                f"{bounded_number(last.value)} at {last.x:g} {x_name}, at most "
                f"{bounded_number(top.value)} at {top.x:g}"
            )
    return f"{what} over {x_name}. {'; '.join(said)}."
