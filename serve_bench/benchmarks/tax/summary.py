"""What a run of tax says: each layer compared with the first one and with the one before. Pure.

Statistics and verdicts are those of versus: rounds are paired, the interval is on logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.comparing import Match, judged_rows
from serve_bench.analysis.comparing.model import Compared, ComparedRow, geometric_mean
from serve_bench.analysis.comparing.values import SLICES, SideRow, by_key, rows_of
from serve_bench.analysis.ratios import Interval
from serve_bench.benchmarks.tax.request import Layer, TaxSuite
from serve_bench.benchmarks.versus.summary import value_text
from serve_bench.core.errors import FormatError
from serve_bench.core.figures import counted, percent
from serve_bench.core.result import Result, Row
from serve_bench.view.document import Finding

METRICS: Final = ("throughput", "p50", "p99", "cpu")
GATE: Final = ("throughput",)
"""What verdicts are on; the other metrics are judged among themselves."""


@dataclass(frozen=True)
class LayerFigures:
    """A layer in a row. `first`: compared with the first layer, `step`: with the one before; None
    of the first. `cpu_us`: of the server for a request, by role; `idle`: cores that its processes
    use without any load, `idle_all` with those that are off the way."""

    layer: Layer
    row: SideRow
    first: ComparedRow | None
    step: ComparedRow | None
    cpu_us: Mapping[str, float]
    idle: Mapping[str, float]
    idle_all: float | None = None

    def value(self, metric: str) -> float | None:
        """The geometric mean over rounds."""
        return geometric_mean(self.row.values.get(metric, {}).values())


@dataclass(frozen=True)
class RowFigures:
    """A row on all layers, in their order."""

    row: Row
    layers: tuple[LayerFigures, ...]

    @property
    def base(self) -> LayerFigures:
        """What the others are compared with."""
        return self.layers[0]

    def step_of(self, at: LayerFigures) -> Layer | None:
        place = self.layers.index(at)
        return self.layers[place - 1].layer if place else None

    @property
    def largest_step(self) -> LayerFigures | None:
        """The layer that takes the largest share of the rate of the one before, if one does."""
        ratios = [(ratio_of(one.step, "throughput"), one) for one in self.layers]
        steps = [(ratio, one) for ratio, one in ratios if ratio is not None and ratio < 1]
        return min(steps, key=lambda step: step[0])[1] if steps else None


@dataclass(frozen=True)
class TaxFigures:
    """All that a run says. `measured`: rounds with a figure of all layers; `doubts`: of its trials,
    each once."""

    suite: TaxSuite
    rows: tuple[RowFigures, ...]
    measured: int
    doubts: tuple[Finding, ...]


def figures_of(result: Result) -> TaxFigures:
    """The figures that the records of a run show. Raises FormatError for damaged records."""
    suite = TaxSuite.from_json(result.run.suite)
    if result.last is not None:
        suite = replace(suite, versus=replace(suite.versus, rounds=result.last))
    known = by_key(result, checks(result))
    sides = {
        layer.name: {side.row.label: side for side in rows_of(result, layer.name).values()}
        for layer in suite.layers
    }

    def on_layer(row: Row, layer: Layer) -> SideRow:
        row_of_layer = suite.row_of(row, layer)
        return sides[layer.name].get(row_of_layer.label) or SideRow({}, row_of_layer)

    rows = [(row, [on_layer(row, layer) for layer in suite.layers]) for row in suite.versus.rows]
    firsts = _compared(suite, [(sides[0], one) for _, sides in rows for one in sides[1:]], known)
    pairs = [pair for _, sides in rows for pair in pairwise(sides)]
    steps = _compared(suite, pairs, known)
    made, each = [], len(suite.layers) - 1
    for at, (row, own) in enumerate(rows):
        of = [None, *firsts[at * each : (at + 1) * each]], [None, *steps[at * each :][:each]]
        layers = zip(suite.layers, own, *of, strict=True)
        made.append(RowFigures(row, tuple(_figures(*one) for one in layers)))
    rounds = [set(one.row.rounds) for row in made for one in row.layers]
    measured = len(set.intersection(*rounds)) if rounds else 0
    return TaxFigures(suite, tuple(made), measured, tuple(_doubts(made, known)))


def _compared(
    suite: TaxSuite,
    pairs: Sequence[tuple[SideRow, SideRow]],
    known: Mapping[str, Sequence[Warning]],
) -> tuple[ComparedRow, ...]:
    matches = [Match(a, b, (known, known), pairs=True) for a, b in pairs]
    return judged_rows(matches, suite.versus.threshold, GATE, {})


def _figures(
    layer: Layer, row: SideRow, first: ComparedRow | None, step: ComparedRow | None
) -> LayerFigures:
    trials = [one for one in row.trials if one.counts.completed]
    slices = [one.client.get(SLICES) or {} for one in trials]
    try:
        requests = sum(int(one.get("requests") or 0) for one in slices)
        seconds = _summed([one.get("cpu_s") or {} for one in slices])
        idle = _summed([one.get("idle_cores") or {} for one in slices])
        every = [{"all": one["idle_all_cores"]} for one in slices if "idle_all_cores" in one]
        whole = _summed(every).get("all")
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise FormatError(f"{layer.name}: its CPU by process cannot be read: {error!r}") from None
    cpu = {role: 1e6 * value / requests for role, value in seconds.items()} if requests > 0 else {}
    mean = {role: value / len(slices) for role, value in idle.items()}
    idle_all = None if whole is None else whole / len(every)
    return LayerFigures(layer, row, first, step, cpu, mean, idle_all)


def _summed(every: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    summed: dict[str, float] = {}
    for one in every:
        for role, value in one.items():
            summed[role] = summed.get(role, 0.0) + float(value)
    if not all(map(math.isfinite, summed.values())):
        raise ValueError("not a number")
    return summed


def _doubts(
    rows: Sequence[RowFigures], known: Mapping[str, Sequence[Warning]]
) -> Iterator[Finding]:
    """Each kind of warning about a layer in a row once, with how many rounds have it."""
    for row in rows:
        for one in row.layers:
            codes: dict[str, list[Warning]] = {}
            for trial in one.row.trials:
                for doubt in known.get(trial.key, ()):
                    codes.setdefault(doubt.code, []).append(doubt)
                for code, (flag, message, hint) in _FLAGS.items():
                    if trial.flags.get(flag):
                        codes.setdefault(code, []).append(Warning(code, message, hint, trial.key))
            for code, some in codes.items():
                text = f"{some[0].message} ({counted(len(some), 'round')})"
                about = f"{one.layer.title}, {row.row.label}"
                yield Finding(text, code, "doubt", some[0].hint, about)


_FLAGS: Final = {
    "short-slices": (
        "short_slices",
        "its slices are shorter than five drains",
        "give longer ones (--slice)",
    ),
    "way-changed": (
        "way_changed",
        "CPU not judged: processes on the request's way started or ended",
        "hold the number of replicas fixed",
    ),
}


def line_of(compared: ComparedRow | None, metric: str) -> Compared | None:
    lines = () if compared is None else compared.lines
    return next((one for one in lines if one.metric == metric), None)


def ratio_of(compared: ComparedRow | None, metric: str) -> float | None:
    line = line_of(compared, metric)
    return None if line is None else line.ratio


def interval_of(compared: ComparedRow | None, metric: str) -> Interval | None:
    line = line_of(compared, metric)
    return None if line is None else line.judged.interval


def adds(line: Compared | None) -> tuple[float, float | None, float | None] | None:
    """What B adds to A in the unit of the metric, with the ends of its interval: A times the ratio
    less 1; None where it is not known."""
    if line is None or line.a is None or line.ratio is None:
        return None
    interval = line.judged.interval
    ends = (None, None) if interval is None else (interval.low, interval.high)
    low, high = (
        None if one is None or not math.isfinite(one) else line.a * (one - 1) for one in ends
    )
    return line.a * (line.ratio - 1), low, high


def shares(interval: Interval | None, gained: bool = False) -> str:
    """` (95 %: 86 % to 88 %)`: what is lost of a rate, or gained; empty without an interval."""
    if interval is None:
        return ""
    low, high = (1 - one for one in (interval.high, interval.low))
    if gained:
        low, high = -high, -low
    return f" (95 %: {lost_text(low)} to {lost_text(high)})"


def lost_text(share: float) -> str:
    """`87 %`; a gain is negative."""
    return percent(share) if share >= 0 else f"-{percent(-share)}"


def sentences_of(figures: TaxFigures) -> Iterator[str]:
    """What the layers cost, row by row."""
    for row in figures.rows:
        title = f"{row.row.label}: " if len(figures.rows) > 1 else ""
        yield from (f"{title}{text}" for text in _row_sentences(row))


def _row_sentences(row: RowFigures) -> Iterator[str]:
    base = row.base
    for one in row.layers[1:]:
        ratio = ratio_of(one.first, "throughput")
        if ratio is None or one.layer.name not in ("default", "optimized"):
            continue
        verb = "costs" if ratio < 1 else "gains"
        share = abs(1 - ratio)
        ends = shares(interval_of(one.first, "throughput"), gained=ratio >= 1)
        text = f"{one.layer.title} {verb} {percent(share)} of the requests/s of {base.layer.title}"
        medians = [layer.value("p50") for layer in (one, base)]
        p50 = [value_text("p50", median) for median in medians]
        # That of most requests is a lower bound where they ended in the drain.
        yield f"{text}{ends}" + ("" if None in medians else f"; p50 {p50[0]} ms, not {p50[1]} ms")
    largest = row.largest_step
    if largest is not None and (before := row.step_of(largest)) is not None:
        ratio = ratio_of(largest.step, "throughput") or 1.0
        yield (
            f"the largest step is {largest.layer.title}, after {before.title}: "
            f"{percent(1 - ratio)} of the requests/s"
            f"{shares(interval_of(largest.step, 'throughput'))}"
        )
    if all(one.first is None or ratio_of(one.first, "throughput") is None for one in row.layers):
        yield "nothing can be compared: see what failed"
