"""The charts of ladders: requests/s, latency and CPU over clients; sweep, recsys and press.

Rule: points are steps that were measured, by the figures that summary.py makes of their runs; steps
in doubt have none, since they are neither knee nor best. A published curve is named so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.ladder.summary import LadderLine
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.blocks import in_parts, latency_curve, listed, percentile_charts
from serve_bench.benchmarks.parts.charts import LinePoint, Mark
from serve_bench.benchmarks.parts.rows import NS_PER_MS
from serve_bench.core.document import Block, Chart, Charts
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
NEAREST: Final = "Of a step with several runs, those of the run nearest to their median."

MOST_MARKED: Final = 3
"""Ladders of one chart whose knees and collapses can be named in it."""

_SHORT: Final[Mapping[str, str]] = {
    axis: cell_slug({axis: ""})
    for axis in ("max_batch_size", "max_ongoing_requests", "num_replicas")
}
"""The words that the keys of records have for the published axes: bs, ongoing, rep."""

Series = dict[str, list[LinePoint]]


@dataclass(frozen=True)
class Curve:
    """A ladder under the name that it has in a chart; `published`: the published table that is
    like it, with `clients`, `qps` and the mean latency `ave_us` of each row."""

    name: str
    ladder: LadderLine
    published: Any = None

    @property
    def lines(self) -> list[Line]:
        """One line for each sound step: of several runs the one nearest to their median."""
        return [self.ladder.nearest(users) for users in self.ladder.rates]


def curves_of(
    names: Sequence[str], ladders: Sequence[LadderLine], published: Sequence[Any] = ()
) -> list[Curve]:
    """Ladders under names that fit a chart: where several axes tell them apart, those in short."""
    short = list(names)
    if any(", " in name for name in names):
        for axis, word in _SHORT.items():
            short = [name.replace(f"{axis} ", word) for name in short]
    tables = published or [None] * len(short)
    return [Curve(*one) for one in zip(short, ladders, tables, strict=True)]


def _legend(curves: Sequence[Curve]) -> list[str]:
    """What the short words in the names stand for; nothing where there are none."""
    words = [
        f"{short}: {axis}"
        for axis, short in _SHORT.items()
        if any(f"{short}{one.ladder.cell.get(axis)}" in one.name for one in curves)
    ]
    return [f"{', '.join(words)}."] if words else []


def _unit_of(curves: Sequence[Curve]) -> str:
    """What the steps count: users, or clients where each has so many requests to make."""
    rows = [line.row for one in curves for line in one.ladder.steps]
    return "clients" if any("client" in row.label for row in rows) else "users"


def _published(curves: Sequence[Curve], column: str, factor: float) -> Series:
    """Each published table that is like a curve, as a line of its own."""
    tables = {id(one.published): one.published for one in curves if one.published}
    return {
        f"published, not measured here: {table['device']}, log level {table['log_level']}": [
            LinePoint(row["clients"], factor * row[column]) for row in table["rows"]
        ]
        for table in tables.values()
    }


def _over_users(
    title: str,
    unit: str,
    series: Series,
    curves: Sequence[Curve],
    caption: Iterable[str],
    log_y: bool,
    marked: bool,
    parts: charts.Parts = charts.NO_PARTS,
) -> Chart:
    return charts.ladder(
        title,
        series,
        x_name=_unit_of(curves),
        unit=unit,
        marks=_marks(curves) if marked else (),
        log_y=log_y,
        caption=" ".join([*caption, *_faults(curves), *_legend(curves)]),
        parts=parts,
    )


def _marks(curves: Sequence[Curve]) -> list[Mark]:
    """Knee and collapses, one rule for each number of clients; named where there are several."""
    marks: dict[int, dict[str, list[str]]] = {}
    for one in curves:
        knee = [] if one.ladder.knee is None else [one.ladder.knee]
        for word, lines in (("knee", knee), ("collapse", one.ladder.collapses)):
            for line in lines:
                at = marks.setdefault(line.row.connections, {})
                at.setdefault(word, []).append(one.name)
    return [
        Mark(
            users,
            "; ".join(
                word if len(curves) == 1 else f"{word}: {listed(names)}"
                for word, names in words.items()
            ),
        )
        for users, words in sorted(marks.items())
    ]


def _faults(curves: Sequence[Curve]) -> list[str]:
    """The steps in which requests failed or were cut, which their points do not show."""
    steps = [
        f"{one.name + ': ' if len(curves) > 1 else ''}{listed([f'{n:,}' for n in users])}"
        for one in curves
        if (users := sorted({s.row.connections for s in one.ladder.steps if _faulty(s)}))
    ]
    return [f"Some requests failed or were cut with {'; '.join(steps)}."] if steps else []


def _faulty(line: Line) -> bool:
    cut = any(trial.flags.get("cut") for trial in line.trials)
    return MAIN in line.spreads and (line.errors > 0 or cut)


def throughput_charts(title: str, curves: Sequence[Curve]) -> Iterator[Block]:
    """Requests/s over clients, with knee and collapse, of many ladders in words alone. Curves
    without a sound step are left out."""
    curves = [one for one in curves if one.ladder.rates]
    if 0 < len(curves) <= MOST_MARKED:
        yield Charts(lambda: (_throughput(title, curves, True),))
    elif curves:
        yield Charts(
            lambda: (
                _throughput(f"{title}{part}", [*own.values()], False)
                for part, own in in_parts({one.name: one for one in curves})
            )
        )


def _throughput(title: str, curves: Sequence[Curve], marked: bool) -> Chart:
    series = {
        one.name: [LinePoint(at, rate, *_interval(one.ladder, at)) for at, rate in rates.items()]
        for one in curves
        for rates in (one.ladder.rates,)
    }
    barred = any(step.low is not None for steps in series.values() for step in steps)
    caption = [*([INTERVALS] if barred else []), MARKED if marked else _knees(curves)]
    there = _published(curves, "qps", 1.0)
    published = any(one.published for one in curves)
    return _over_users(title, "requests/s", series | there, curves, caption, published, marked)


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
    return f"Knees: {'; '.join(knees)} {_unit_of(curves)}{collapses}." if knees else ""


def _interval(ladder: LadderLine, users: int) -> tuple[float | None, float | None]:
    """Of the runs of a step, or of the windows of the only one."""
    runs = ladder.runs(users)
    trials = [trial for line in runs for trial in line.trials if MAIN in trial.metrics]
    if len(trials) > 1:
        rates = [throughput_of(trial) for trial in trials]
        return min(rates), max(rates)
    return runs[0].spreads[MAIN].ends


def latency_charts(title: str, curves: Sequence[Curve]) -> Iterator[Block]:
    """p50 and p99 over clients, in ms; of many ladders a chart for each."""
    known = [one for one in curves if any("latency" in line.distributions for line in one.lines)]
    both = ("p50", "p99")
    if 0 < len(known) <= MOST_MARKED:
        yield Charts(lambda: (_latency(title, known, both, True),))
    elif known:
        yield Charts(
            lambda: (
                _latency(f"{title}, {name}{part}", [*own.values()], (name,), False)
                for name in both
                for part, own in in_parts({one.name: one for one in known})
            )
        )


def _latency(title: str, curves: Sequence[Curve], shares: Sequence[str], marked: bool) -> Chart:
    series: Series = {}
    parts: dict[str, tuple[str, str]] = {}
    for one in curves:
        lines = [line for line in one.lines if "latency" in line.distributions]
        for name in shares:
            words = [one.name] if len(curves) > 1 else []
            words += [name] if len(shares) > 1 else []
            label = ", ".join(words) or name
            parts[label] = one.name, name
            series[label] = [
                LinePoint(line.row.connections, value / NS_PER_MS)
                for line in lines
                if (value := getattr(line.distributions["latency"], name)) > 0
            ]
    there = _published(curves, "ave_us", 1e-3)
    several = any(one.ladder.several(line) for one in curves for line in one.ladder.steps)
    caption = [*([NEAREST] if several else []), *(["Published: the mean."] if there else [])]
    return _over_users(title, "ms", series | there, curves, caption, True, marked, parts)


def knee_curves(curves: Sequence[Curve], of: str = "") -> Iterator[Chart]:
    """Percentile curves of all requests at each knee; `of`: what the title adds."""
    series: dict[str, charts.Pairs] = {}
    parts: dict[str, tuple[str, str]] = {}
    for one in curves:
        knee = one.ladder.knee
        if knee is not None and (points := latency_curve(knee.trials)):
            label = f"{one.name}, {knee.row.label}"
            series[label], parts[label] = points, (one.name, "knee")
    caption = "Each curve ends at the last percentile that one request lies beyond."
    text = " ".join([caption, *_legend(curves)])
    yield from percentile_charts(f"Latency at the knee{of}", series, text, parts)
