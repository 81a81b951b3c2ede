"""A run of flags as a document: the effect of each flag, of pairs, the rounds. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from serve_bench.analysis.comparing.model import ends, ratio_text
from serve_bench.benchmarks.flags.request import LETTERS, label
from serve_bench.benchmarks.flags.summary import (
    FlagEffects,
    MetricEffects,
    TermEffect,
    effects_of,
    sentences_of,
)
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, method, run_document
from serve_bench.benchmarks.parts.blocks import failure
from serve_bench.benchmarks.parts.charts import Ratio, ratios
from serve_bench.benchmarks.versus.document import TONES
from serve_bench.benchmarks.versus.summary import SCALES, percent
from serve_bench.core.document import (
    Block,
    Chart,
    Charts,
    Column,
    Document,
    Facts,
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
from serve_bench.core.result import Result

_SOURCE = "docs/flags.md"
FORMULAS = (
    (
        "effect of a flag",
        "ln(second/first) of a round = sum of b_j (y_j - x_j) over flags and pairs, levels -1 and "
        "1, least squares; on/off = exp(2 b_j); 95 % interval = exp(2 b_j ± t(0.975, n - p) * 2 "
        "se(b_j)), n rounds, p effects",
        f"{_SOURCE}; Yates 1937",
    ),
    (
        "effect of a pair",
        "exp(4 b_ij): the effect of one flag with the other on, to that with it off",
        _SOURCE,
    ),
    (
        "proven",
        "p of an effect against Holm's levels over all flags of the gated metrics; pairs likewise",
        f"{_SOURCE}; Holm 1979",
    ),
    (
        "odd round",
        "farther from the least absolute deviations of the flags alone than 5 * 1.4826 * MAD and "
        "10 %; it is left out, a fifth of the rounds at most",
        f"{_SOURCE}; Boscovich 1757",
    ),
)
PREFIX: Final = "RAY_SERVE_"
NOTE = (
    "on/off: with the flag on to with it off, over all levels of the others; of a pair how much "
    "more one does with the other on"
)


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of flags says. Raises FormatError for damaged records."""
    effects = effects_of(result)
    versus, factorial = effects.suite.versus, effects.suite.factorial
    flags = [
        (letter, ", ".join(f"{name}={value}" for name, value in factor.env.items()))
        for letter, factor in zip(LETTERS, factorial.factors, strict=False)
    ]
    return run_document(
        result,
        options.where,
        findings=sentences(sentences_of(effects)),
        doubts=(*map(failure, result.failures), *_odd(effects), *effects.doubts),
        facts=(
            ("planned", f"{len(effects.rounds)} rounds, {effects.measured} measured"),
            ("threshold", percent(versus.threshold)),
            ("gate", ", ".join(versus.gate)),
        ),
        sections=(
            Section("effects", "Effects", tuple(_tables(effects)), "headline"),
            Section("chart", "Effects with their intervals", (Charts(partial(_charts, effects)),)),
            Section("flags", "Flags", (Facts(tuple(flags)),), "table"),
            Section("rounds", "Rounds", tuple(_rounds(effects)), "table"),
            method(result, (*FORMULAS, *GENERAL_FORMULAS)),
        ),
    )


def _odd(effects: FlagEffects) -> Iterator[Finding]:
    """Rounds that were left out."""
    for of in effects.gated:
        for number, ratio in of.odd.items():
            text = f"round {number} is left out: its {SCALES[of.measure.name].name} is "
            text += f"{ratio_text(ratio)} x the fit of the other rounds"
            yield Finding(text, "odd-launch", "doubt", "--resume with --rounds +4 makes up for it")


def _tables(effects: FlagEffects) -> Iterator[Block]:
    """The flags by metric, then pairs: those that matter, the others folded."""
    shown = [one for one in effects.metrics if one.logs]
    yield _table("each flag", effects, [(of, of.of(1)) for of in shown])
    if untold := effects.suite.factorial.terms[1]:
        names = ", ".join(effects.suite.factorial.name(term) for term in untold)
        text = f"not measurable: {names}: one flag implies the other"
        yield Prose((text,), "doubt", listed=True)
    pairs = [(of, of.of(2)) for of in shown]
    proven = [(of, tuple(one for one in some if one.matters)) for of, some in pairs]
    if any(some for _, some in proven):
        yield _table("pairs that do more, or less, than each by itself", effects, proven)
    if any(some for _, some in pairs):
        yield Folded("All pairs", (_table("each pair", effects, pairs),))


def _table(
    caption: str, effects: FlagEffects, some: list[tuple[MetricEffects, tuple[TermEffect, ...]]]
) -> Table:
    several = len({of.place for of, _ in some}) > 1
    columns = (
        Column("flag", number=False),
        Column("on/off"),
        Column("95 %", number=False),
        Column("verdict", number=False),
    )
    rows = []
    for of, lines in some:
        group = f"{SCALES[of.measure.name].name}{f', {of.place.row}' if several else ''}"
        group += "" if of.gated else " (not in the gate)"
        for one in lines:
            word, ratio = one.judged.word, one.interval
            tone = TONES[word]
            value = None if ratio is None else ratio.ratio
            name = _short(effects, one.term)
            letter = f"{LETTERS[one.term[0]]}: " if len(one.term) == 1 else ""
            rows.append(
                TableRow(
                    (
                        f"{letter}{name}",
                        Number(ratio_text(value), value, tone),
                        ends(ratio),
                        Text(word, tone),
                    ),
                    group=group,
                )
            )
    names = (factor.name for factor in effects.suite.factorial.factors)
    short = any(name.startswith(PREFIX) for name in names)
    return Table(
        caption, columns, tuple(rows), (f"{NOTE}; names without {PREFIX}" if short else NOTE,)
    )


def _short(effects: FlagEffects, term: tuple[int, ...]) -> str:
    """The name of a flag or pair in a table or chart, as narrow as they are."""
    return effects.suite.factorial.name(term).removeprefix(PREFIX)


def _charts(effects: FlagEffects) -> Iterator[Chart]:
    """The intervals of the flags on one axis."""
    points, texts = [], []
    for of in effects.gated:
        metric = SCALES[of.measure.name].name
        for one in of.of(1):
            if one.interval is not None:
                short, at = _short(effects, one.term), one.interval
                points.append(Ratio(short, metric, at.ratio, at.low, at.high, one.judged.word))
                texts.append(f"{short}, {metric}: {ratio_text(at.ratio)} ({ends(at)})")
    if points:
        threshold = effects.suite.versus.threshold
        band = f"The band is 1 ± {percent(threshold)}. Latency and CPU: lower is better."
        yield ratios("on/off with its 95 % interval", points, threshold, "; ".join(texts), band)


def _rounds(effects: FlagEffects) -> Iterator[Block]:
    """Each round: what was compared, the ratio of each gated metric."""
    names = [SCALES[one.measure.name].name for one in effects.gated]
    columns = (
        Column("round"),
        Column("first", number=False),
        Column("second", number=False),
        *(Column(name) for name in names),
    )
    rows = []
    for number, (first, second) in enumerate(effects.rounds, 1):
        logs = [one.logs.get(number) for one in effects.gated]
        cells = [None if one is None else math.exp(one) for one in logs]
        names_of = Number(str(number), number), label(first), label(second)
        rows.append(TableRow((*names_of, *(Number(ratio_text(one), one) for one in cells))))
    note = "the letters of the flags that are on; second to first"
    yield Folded("Ratios of each round", (Table("each round", columns, tuple(rows), (note,)),))
