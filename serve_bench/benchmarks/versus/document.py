"""A comparison as a document: verdicts, ratios, rounds, both sides, how it was measured.

Pure. Figures are those of analysis/comparing, sentences those of summary.py. A run of versus and
two stored runs have one document; what one of them does not have is left out. Charts draw no
interval where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.model import (
    Compared,
    ComparedRow,
    Comparing,
    alone_words,
    ends,
    geometric_mean,
    row_title,
    subject,
    variant_of,
)
from serve_bench.analysis.comparing.values import OF_STREAMS
from serve_bench.analysis.ratios import FEWEST, Interval, paired
from serve_bench.benchmarks.versus.summary import (
    SCALES,
    findings,
    method,
    metric_number,
    raised_thresholds,
    row_findings,
    side_changes,
    side_text,
    span_text,
)
from serve_bench.core.figures import percent, ratio_text
from serve_bench.core.result import Result, cell_slug
from serve_bench.view.about_run import asked, command_line, formula_table, machine, moment
from serve_bench.view.about_run import method as executed_method
from serve_bench.view.blocks import in_parts, proofs, section
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Detail,
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
    Tone,
    sentences,
)
from serve_bench.view.drawn import LinePoint, Point, Ratio, intervals, ladder, ratios
from serve_bench.view.texts import cell_title
from serve_bench.view.waterfall import shift_blocks

_AB: Final = "docs/ab.md"
PAIRED_FORMULAS: Final = (
    (
        "value of a launch",
        "throughput = completed requests of all slices / length of all slices; CPU per request = "
        "CPU time of the processes on a request's way / completed requests; p50, p99 of its "
        "latencies",
        _AB,
    ),
    (
        "ratio and interval",
        "d_i = ln(B_i / A_i) of round i, m their mean without the g largest and smallest of n, g ="
        " floor((n - 2) / 5); B/A = exp(m); 95 % interval = exp(m ± t(0.975, h - 1) * s * "
        "sqrt(n) / h), h = n - 2g, s of the Winsorized d with ddof 1; with looks at the level of "
        "the look in place of 0.05",
        f"{_AB}; Student 1908, Yuen 1974; on logarithms: Fleming and Wallace 1986",
    ),
)
UNPAIRED_FORMULAS: Final = (
    (
        "value of a launch",
        "throughput = mean over its windows; CPU per request = share of a core of the processes "
        "on a request's way * measured time / completed requests; p50, p99 of its latencies",
        _AB,
    ),
    (
        "ratio and interval",
        "a, b, v_A, v_B: means and variances (ddof 1) of the logarithms of n_A and n_B launches; "
        "B/A = exp(b - a); 95 % interval = exp(b - a ± t(0.975, df) * sqrt(v_A/n_A + v_B/n_B)), "
        "df = (v_A/n_A + v_B/n_B)^2 / ((v_A/n_A)^2 / (n_A - 1) + (v_B/n_B)^2 / (n_B - 1))",
        f"{_AB}; Welch 1947, Satterthwaite 1946",
    ),
    (
        "spread between runs",
        "s_r: standard deviation of the values of runs of k launches, v: pooled variance of "
        "launches; 2 * (s_r^2 - v/k), at least 0, is added below the root; df by Satterthwaite",
        _AB,
    ),
)
FORMULAS: Final = (
    (
        "verdict",
        "regressed, improved: the interval excludes 1, and the ratio is 1 - threshold or less, 1 + "
        "threshold or more; slower, faster: it excludes 1, and the ratio is nearer to 1; same: the "
        "whole 95 % interval lies between 1 - threshold and 1 + threshold; otherwise inconclusive, "
        "and with fewer than three launches a side",
        f"{_AB}; Schuirmann 1987",
    ),
    (
        "several figures",
        "p = 2 * P(T > |ln(B/A)| / standard error); in order of p over all m gated figures: a "
        "change is proven if p <= 0.05/m, the next if <= 0.05/(m - 1), and so on until one is not",
        f"{_AB}; Holm 1979",
    ),
    (
        "looks",
        "a run that is judged after each round n of N spends 0.8 * 0.05 * n/N of its error up to "
        "there, behind N 0.05 * (1 - 0.2 * N/n); the level of a look follows from that",
        f"{_AB}; Armitage, McPherson, Rowe 1969; Lan, DeMets 1983",
    ),
    (
        "noise floor",
        "max(1 - low, high - 1) of A against itself, the farthest over its rows; a change is "
        "proven where the interval excludes all within the floor",
        _AB,
    ),
    (
        "rounds that would settle it",
        "the least n at which the interval, with the centre and spread as they are now, excludes "
        "1 or lies within the threshold",
        _AB,
    ),
)


TONES: Final[Mapping[str, Tone]] = {
    "regressed": "bad",
    "slower": "bad",
    "improved": "good",
    "faster": "good",
    "same": "plain",
    "inconclusive": "doubt",
}
"""Of a verdict."""

SHORT: Final = 16
"""Characters of a name that may stand over a column: a longer one would push the verdict off a
narrow screen."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of versus says, with all that its launches prove."""
    evidence = executed_method(result, (*PAIRED_FORMULAS, *FORMULAS))
    known = proofs(result.launches)  # stands with the sides already
    evidence = replace(evidence, blocks=tuple(one for one in evidence.blocks if one != known))
    where = () if options.where is None else (options.where,)
    return comparison_document(of_versus(result), where, evidence)


def comparison_document(
    comparing: Comparing, where: Sequence[str] = (), evidence: Section | None = None
) -> Document:
    """What a comparison says: a run of versus, or two stored runs (or variants of one). `where`:
    the folders of their records; `evidence`: what the launches of a run of versus prove."""
    runs = [side.run for side in comparing.sides]
    if comparing.kind == "versus":
        request, host = asked(runs[0]).pairs, machine(runs[0]).pairs
    else:
        host = tuple(_both_hosts(*(dict(machine(run).pairs) for run in runs)))
        request = tuple(
            (f"{letter}: {name}", text)
            for letter, run in zip("AB", runs, strict=True)
            for name, text in (
                ("command", command_line(run)),
                ("begun", moment(run.started_at)),
                ("run", run.id),
            )
        )
    if evidence is None:
        own = PAIRED_FORMULAS if comparing.paired else UNPAIRED_FORMULAS
        formulas = formula_table((*own, *FORMULAS))
        evidence = Section("method", "Method", (formulas,), "method")
    how = Prose(tuple(method(comparing)), "quiet", listed=True)
    return Document(
        title=subject(comparing),
        command=comparing.kind,
        run=Facts((*request, *_request(comparing))),
        machine=Facts(host),
        findings=(*sentences(comparing.unfair, "bad"), *sentences(findings(comparing))),
        doubts=(
            *(
                Finding(one, "unlike runs, compared with --force", "doubt")
                for one in comparing.unlike
            ),
            *sentences(comparing.warnings, "doubt"),
        ),
        sections=(
            *_sections(comparing),
            Section("how", "Notes", (how,), "table" if comparing.paired else "further"),
            evidence,
        ),
        where=" and ".join(where) or None,
        argv=runs[0].argv if comparing.kind == "versus" else (),
        records=tuple(where),
    )


def _both_hosts(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is the same of two hosts once, the rest of each."""
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) == b.get(name):
            yield name, a[name]
        else:
            yield from ((f"{x}: {name}", of[name]) for x, of in (("A", a), ("B", b)) if name in of)


def _request(comparing: Comparing) -> Iterator[tuple[str, str]]:
    """What the verdict was held against, and how versus was asked to measure."""
    yield "threshold", percent(comparing.threshold)
    yield "gate", ", ".join(comparing.gate)
    if comparing.noise:
        yield "noise floor", f"of run {comparing.noise}"
    suite = comparing.sides[0].run.suite
    if comparing.kind == "versus" and (budget := suite.get("budget_s")):
        yield "budget", f"{budget:g} s"


def _sections(comparing: Comparing) -> Iterator[Section]:
    rounds = "Single rounds" if comparing.paired else "Single launches"
    # Without a verdict the findings say all that there is to say of two stored runs.
    silent = comparing.kind == "compare" and all(one.judged.p is None for one in comparing.lines)
    shown: Detail = "further" if silent and not comparing.failures else "headline"
    yield Section("results", "Verdicts", tuple(_results(comparing)), shown)
    yield Section("ratios", "Ratios", (Charts(partial(ratio_chart, comparing)),))
    each = (Charts(partial(round_charts, comparing)), *_rounds(comparing))
    yield Section("rounds", rounds, each)
    for name, title, metrics in (
        ("throughput", "Rates of both sides", ("throughput",)),
        ("latency", "Latency of both sides", ("p50", "p99")),
        ("cpu", "CPU per request, both sides", ("cpu",)),
        ("streams", "TTFT and ITL of both sides", OF_STREAMS),
    ):
        if name == "streams" and not any(one.metric in metrics for one in comparing.lines):
            continue
        yield Section(name, title, (Charts(partial(side_charts, comparing, *metrics)),))
    hops = [(row_title(comparing, row), row.hops) for row in comparing.rows]
    yield from section(
        "hops", "Where the difference is", shift_blocks(hops, comparing.names), "table"
    )
    both = tuple(zip("AB", comparing.sides, strict=True))
    sides = [(f"{x}: {side.name}", side_text(side, comparing.kind)) for x, side in both]
    if changes := few(side_changes(comparing)):
        sides.append(("differs", ", ".join(changes)))
    detail: Detail = "table" if shown == "headline" else "further"
    yield Section("sides", "Sides", (Facts(tuple(sides)),), detail)
    proven = tuple(
        replace(proofs(side.launches), caption=f"{letter}: proof")
        for letter, side in both
        if side.launches
    )
    if proven:
        yield Section("proof", "Proof", proven, "method")


def _results(comparing: Comparing) -> Iterator[Block]:
    yield verdict_table(comparing)
    notes = list(comparing.notes)
    if comparing.kind == "compare" and any(min(row.measured) < FEWEST for row in comparing.rows):
        notes.append(f"hint: measure with --launches {FEWEST}")
    texts: tuple[tuple[Sequence[str], Tone], ...] = (
        ([] if comparing.rows else ["Nothing was planned."], "doubt"),
        ([f"failed: {one}" for one in comparing.failures], "bad"),
        ([f"not compared: {alone_words(one)}" for one in comparing.alone], "doubt"),
        (notes, "quiet"),
    )
    yield from (Prose(tuple(lines), tone, listed=True) for lines, tone in texts if lines)


def verdict_table(comparing: Comparing) -> Table:
    """Every metric of every row; remarks and doubts under the last of a row."""
    a, b = comparing.names
    columns = (
        Column("metric", number=False),
        *_sides(comparing),
        Column("B/A"),
        Column("low", "95 %"),
        Column("high", "95 %"),
        Column("verdict", number=False),
    )
    cells = {cell_slug(row.cell) for row in comparing.rows}
    rows = []
    for row in comparing.rows:
        names = [f"{row.row} ({row.client})"]
        if variant := variant_of(row):
            names.insert(0, variant)
        cell = f": {cell_title(row.cell)}" if len(cells) > 1 else ""
        group = f"{', '.join(names)}{cell}"
        below = tuple(row_findings(row, comparing.paired))
        last = next((line for line in reversed(row.lines) if line.gated), row.lines[-1])
        rows += [
            TableRow(_figures(row, line), below if line is last else (), group)
            for line in row.lines
        ]
    notes = (
        "A and B: geometric means over launches; the interval is that of B/A at 95 %. In the gate: "
        f"{', '.join(comparing.gate)}; other metrics do not affect the exit code.",
    )
    caption = f"{b} against {a}" if comparing.aa else f"{b} (B) against {a} (A)"
    if len(cells) == 1 and (title := cell_title(comparing.rows[0].cell)):
        caption = f"{caption}: {title}"
    return Table(caption, columns, tuple(rows), notes, whole_groups=True, unlike=True)


def _sides(comparing: Comparing) -> tuple[Column, Column]:
    """The columns of A and B, with their names where they are short: the caption has them too."""
    short = max(map(len, comparing.names)) <= SHORT
    a, b = comparing.names if short else ("", "")
    return Column("A", a), Column("B", b)


def _figures(row: ComparedRow, line: Compared) -> tuple[Cell, ...]:
    word, tone = line.judged.word, TONES[line.judged.word]
    measured = line.a is not None or line.b is not None
    verdict = Text(word, tone) if measured else Text("-", "quiet")
    if row.worse and line.gated:
        verdict = Text(row.word, TONES[row.word])
    return (
        SCALES[line.metric].heading,
        metric_number(line.metric, line.a),
        metric_number(line.metric, line.b),
        Number(ratio_text(line.ratio), line.ratio, tone if measured else "plain"),
        *_ends(line.judged.interval),
        verdict,
    )


def _ends(interval: Interval | None) -> tuple[Number, Number]:
    """Of an interval; an end beyond all numbers is none."""
    if interval is None:
        return Number("-", None), Number("-", None)
    high = interval.high if math.isfinite(interval.high) else None
    return Number(ratio_text(interval.low), interval.low), Number(ratio_text(interval.high), high)


def _rounds(comparing: Comparing) -> Iterator[Block]:
    rows = []
    for row in comparing.rows:
        for line in (line for line in row.lines if line.gated):
            group = f"{row_title(comparing, row)}, {SCALES[line.metric].heading}"
            for at in sorted({*line.a_values, *line.b_values}):
                a, b = line.a_values.get(at), line.b_values.get(at)
                sides = [metric_number(line.metric, one) for one in (a, b)]
                ratio = b / a if a and b else None
                ratios = [Number(ratio_text(ratio), ratio)] if comparing.paired else []
                rows.append(TableRow((str(at), *sides, *ratios), group=group))
    if rows:
        noun = "round" if comparing.paired else "launch"
        ratio_column = (Column("B/A"),) if comparing.paired else ()
        columns = (Column(noun, number=False), *_sides(comparing), *ratio_column)
        yield Folded(f"Figures of each {noun}", (Table(f"Each {noun}", columns, tuple(rows)),))


def ratio_chart(comparing: Comparing) -> Iterator[Chart]:
    """All intervals of B/A on one axis."""
    points, texts = [], []
    for row in comparing.rows:
        for line in row.lines:
            interval, word = line.judged.interval, line.judged.word
            if line.ratio is None or interval is None:
                continue
            label, name = row_title(comparing, row), SCALES[line.metric].name
            points.append(Ratio(label, name, line.ratio, interval.low, interval.high, word))
            texts.append(f"{label}, {name}: {ratio_text(line.ratio)} ({ends(interval)}), {word}")
    if not points:
        return
    raised = "".join(
        f" Of {SCALES[name].name} the threshold is {percent(value)}, by the noise floor."
        for name, value in raised_thresholds(comparing).items()
    )
    yield ratios(
        "B/A with its 95 % interval",
        points,
        comparing.threshold,
        "; ".join(texts),
        f"The band is 1 ± {percent(comparing.threshold)}: same where a whole interval lies in it, "
        f"regressed or improved where it lies beyond. Latency and CPU: lower is better.{raised}",
    )


def round_charts(comparing: Comparing) -> Iterator[Chart]:
    """B/A of the metrics in the gate in each round; none of runs whose launches are no pairs."""
    for metric in comparing.gate if comparing.paired else ():
        lines = {
            row_title(comparing, row): [
                LinePoint(at, line.b_values[at] / value) for at, value in line.a_values.items()
            ]
            for row in comparing.rows
            for line in row.lines
            if line.metric == metric and line.a_values
        }
        for _, some in in_parts(lines):
            texts = [
                f"{label}: {span_text([one.value for one in points])} in {len(points)} rounds"
                for label, points in some.items()
            ]
            yield ladder(
                f"B/A of {SCALES[metric].name} in each round",
                some,
                "round",
                "B/A",
                "; ".join(texts),
                log_x=False,
                log_y=True,
                caption="A round is a fresh launch of both sides: rounds are what is repeated, and "
                "how far they lie from each other is the width of the interval. The band is that "
                "of the verdict.",
                around=(1 - comparing.threshold, 1 + comparing.threshold),
            )


def side_charts(comparing: Comparing, *metrics: str) -> Iterator[Chart]:
    """What each side did by itself: geometric means with an interval over its launches."""
    for metric in metrics:
        scale = SCALES[metric]
        points = [
            _point(row_title(comparing, row), f"{letter} {side}", values, scale.size)
            for row in comparing.rows
            for line in row.lines
            if line.metric == metric
            for letter, side, values in zip(
                "AB", comparing.names, (line.a_values, line.b_values), strict=True
            )
            if values
        ]
        if not points:
            continue
        wider = ": wider than that of B/A, in which what both sides share cancels"
        caption = (
            f"Geometric means; bars are 95 % intervals over the launches of a side, from {FEWEST} "
            f"on{wider if comparing.paired else ''}."
        )
        head = scale.name if metric in ("p50", "p99") else scale.name[0].upper() + scale.name[1:]
        yield intervals(
            f"{head} of A and B",
            points,
            scale.unit,
            "; ".join(f"{one.label}, {one.group}: {one.value:,.4g} {scale.unit}" for one in points),
            "" if metric == "p99" else caption,
        )


def _point(label: str, group: str, values: Mapping[int, float], size: float) -> Point:
    center = geometric_mean(values.values()) or 0.0
    if len(values) < FEWEST:
        return Point(label, group, center / size)
    own = paired([math.log(value) for value in values.values()])
    high = own.high / size if math.isfinite(own.high) else None
    return Point(label, group, center / size, own.low / size, high)
