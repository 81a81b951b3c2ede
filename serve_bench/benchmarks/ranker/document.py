"""What a run of the ranker alone says: times by batch size, plain against tuned, the floor.

Rule: figures are those of the JSON (ns and s). No Serve runs here, so there is no launch, no client
and no CPU by process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.benchmarks.parts import blocks as pieces
from serve_bench.benchmarks.parts.about_run import method, run_document
from serve_bench.benchmarks.parts.blocks import count, milliseconds, plain, sentence
from serve_bench.benchmarks.parts.rows import Entry, page_of
from serve_bench.benchmarks.parts.texts import number
from serve_bench.benchmarks.ranker import charts
from serve_bench.benchmarks.ranker.summary import (
    BASE,
    FORWARD,
    LEVEL,
    MedianInterval,
    RankerLine,
    batch_size,
    ranker_lines,
)
from serve_bench.core.document import (
    Block,
    Cell,
    Charts,
    Column,
    Document,
    Finding,
    Number,
    ReportOptions,
    Section,
    Text,
    sentences,
)
from serve_bench.core.result import Result, Trial

SUMMARY: Final = "docs/ranker.md; serve_bench/benchmarks/ranker/summary.py"
TIMES_FORMULAS: Final = (
    (
        "forward, call",
        "medians over rounds; a round's time is the median of a slice of about 10 ms, and the "
        "rankers take turns in drawn order. forward: from features on the device to scores on it; "
        "call: from the requests' features to the scores of each as Python lists",
        "docs/ranker.md; serve_bench/benchmarks/ranker/measure.py",
    ),
    (
        "plain/tuned",
        "the median of the ratios of rounds, of slices that are neighbours in time; in brackets "
        "the interval that holds it with 95 %, or with the share that is stated. Above 1, tuned is "
        "faster",
        SUMMARY,
    ),
)
FLOOR_FORMULA: Final = (
    "floor",
    "the largest of its terms, whose rates are measured on this machine. memory: embeddings "
    "gathered, inputs and weights, over the bandwidth of a large copy; compute: operations over "
    "the rate of a large float32 product; launches: operators run, each at the cost of the "
    "smallest",
    SUMMARY,
)
FORMULAS: Final = (
    *TIMES_FORMULAS,
    (
        "interval of a median",
        "from the k-th smallest to the k-th largest of n rounds, with the largest k for which "
        f"1 - 2 P(Binomial(n, 1/2) < k) >= {LEVEL}; no distribution is assumed",
        "W. J. Conover, Practical Nonparametric Statistics, 3.2",
    ),
    FLOOR_FORMULA,
    ("rows/s", "the median over rounds of rows / call", SUMMARY),
)

Timed: TypeAlias = tuple[Entry, RankerLine | None]
"""A row with its figures, where it was measured."""


def _timed(cell: Callable[[RankerLine], Cell]) -> Callable[[Timed], Cell]:
    return lambda one: pieces.NOTHING if one[1] is None else cell(one[1])


def _forward(one: Timed) -> Cell:
    line = one[1]
    return Text("not measured", "doubt") if line is None else milliseconds(line.forward.median)


TIMES: Final[pieces.Fields[Timed]] = (
    (Column("rows"), lambda one: count(_rows(one[0]))),
    (Column("ranker", number=False), lambda one: one[0].line.variant),
    (Column("forward", "ms"), _forward),
    (Column("call", "ms"), _timed(lambda one: milliseconds(one.call.median))),
    (Column("rows/s", spare=True), _timed(lambda one: plain(one.rows_per_s))),
    (Column("plain/tuned forward", spare=True), _timed(lambda one: _interval(one.forward_ratio))),
    (Column("plain/tuned call"), _timed(lambda one: _interval(one.call_ratio))),
)
FLOORS: Final[pieces.Fields[RankerLine]] = (
    (Column("rows"), lambda one: count(one.rows)),
    (Column("ranker", number=False), lambda one: one.kind),
    (Column("moved", "MB", spare=True), lambda one: _millions(one.floor.bytes_moved)),
    (Column("memory", "us"), lambda one: _seconds(one.floor.memory_s)),
    (Column("work", "Mflop", spare=True), lambda one: _millions(one.floor.flops)),
    (Column("compute", "us"), lambda one: _seconds(one.floor.compute_s)),
    (Column("operators", spare=True), lambda one: count(one.floor.launches)),
    (Column("launches", "us"), lambda one: _seconds(one.floor.launch_s)),
    (Column("floor", "us"), lambda one: _seconds(one.floor.seconds)),
    (Column("bound by", number=False), lambda one: one.floor.bound_by),
    (Column("forward", "floors"), lambda one: f"{one.floors:.1f}"),
)
ROUNDS: Final[pieces.Fields[Entry]] = (
    (Column("rows"), lambda one: count(_rows(one))),
    (Column("ranker", number=False), lambda one: one.line.variant),
    (Column("rounds"), lambda one: count(len(_trial(one).metrics[FORWARD].windows or ()))),
    (Column("rows/s", "mean ± std over rounds"), lambda one: pieces.rate(one.rate)),
    (Column("calls"), lambda one: count(one.line.completed)),
    (Column("inputs", "different"), lambda one: count(_trial(one).client.get("inputs"))),
    (Column("warm-up", "s"), lambda one: plain(_trial(one).warmup.seconds, 3)),
    (Column("all", "s"), lambda one: plain(_trial(one).seconds.get("total"), 3)),
)
"""What was executed of each row."""


def _rows(entry: Entry) -> int:
    """The batch size."""
    return batch_size(entry.line.cell)


def _trial(entry: Entry) -> Trial:
    """The only one of a row that was measured."""
    return entry.line.trials[0]


def _interval(interval: MedianInterval | None) -> Number:
    if interval is None:
        return pieces.NOTHING
    text = f"{interval.median:.2f} ({interval.low:.2f} to {interval.high:.2f})"
    reached = "" if interval.level >= LEVEL else f" at {100 * interval.level:.0f} %"
    return Number(text + reached, interval.median)


def _seconds(value: float) -> Number:
    """Seconds, shown in us."""
    return Number(number(1e6 * value, 3), value)


def _millions(value: int) -> Number:
    return Number(number(value / 1e6, 3), value)


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of the ranker alone says."""
    lines, page = ranker_lines(result), page_of(result)
    entries = sorted(page.entries, key=_rows)
    return run_document(
        result,
        options.where,
        findings=sentences(_findings(result, entries, lines)),
        doubts=pieces.page_doubts(page),
        sections=_sections(result, entries, lines),
        facts=(*_model(result.trials), *_peaks(result.trials)),
    )


def _model(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """The model, each ranker and its device."""
    if not trials:
        return
    shape: Any = trials[0].client["shape"]
    size_mb = 4e-6 * shape["sparse_features"] * shape["table_rows"] * shape["width"]
    yield (
        "model",
        f"DLRM, {shape['dense_features']} dense and {shape['sparse_features']} sparse features, "
        f"{shape['table_rows']:,} x {shape['width']} a table ({size_mb:,.0f} MB), bottom "
        f"{shape['bottom']}, top {shape['top']}, float32",
    )
    for name, facts in {one.variant: one.client["ranker"] for one in trials}.items():
        threads = facts["threads"]
        device = facts["device_name"] or str(facts["device"]).upper()
        words = [f"on {device}", f"{threads} thread{'' if threads == 1 else 's'}"]
        words.append(f"torch {facts['torch']}")
        if facts.get("huge_pages_mb"):
            words.append(f"{facts['huge_pages_mb']:,.0f} MB in huge pages")
        yield f"ranker {name}", ", ".join(words)


def _peaks(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """The best rates that the machine reached, which the floor is made of."""
    if trials:
        best: Any = trials[0].client["machine"]
        yield "a large copy", f"{best['bytes_per_s'] / 1e9:.1f} GB/s"
        yield "a large float32 product", f"{best['flops_per_s'] / 1e9:,.0f} Gflop/s"
        yield "the smallest operator", f"{best['launch_ns'] / 1e3:.2f} us"


def _sections(
    result: Result, entries: Sequence[Entry], lines: Sequence[RankerLine]
) -> Iterator[Section]:
    known = {(line.rows, line.kind): line for line in lines}
    rows = [(one, known.get((_rows(one), one.line.variant))) for one in entries]
    notes = [f"{name}: {text}" for name, text, _ in TIMES_FORMULAS]
    times = pieces.table_of("Times by batch size", TIMES, rows, notes, _doubts)
    yield Section("results", "Results", (times,), "headline")
    if lines:
        floors = pieces.table_of(
            "The floor of one forward", FLOORS, lines, (": ".join(FLOOR_FORMULA[:2]),)
        )
        yield Section("floor", "Floor", (floors,), "table")
    for name, title, make in (
        ("throughput", "Rows a second", charts.rate_charts),
        ("latency", "Time of a batch, and its floor", charts.time_charts),
        ("ratios", "Plain over tuned", charts.ratio_charts),
    ):
        yield Section(name, title, (Charts(partial(make, lines)),))
    if measured := [one for one in entries if one.line.trials]:
        rounds = pieces.table_of("Rounds", ROUNDS, measured)
        blocks: tuple[Block, ...] = (Charts(partial(charts.round_charts, result.trials)), rounds)
        yield Section("windows", "Rounds over time", blocks)
    # Formulas alone: a row here is no load, has no client and no connection.
    bare = replace(result, trials=(), launches=(), run=replace(result.run, plan=()))
    yield method(bare, FORMULAS)


def _doubts(one: Timed) -> tuple[Finding, ...]:
    """What doubts a row, measured or not."""
    entry, line = one
    few = line.few_rounds if line is not None else ""
    return (*entry.findings, *([Finding(few, "few-rounds", "doubt")] if few else []))


# --------------------------------------------------------------------------------------- findings


def _findings(
    result: Result, entries: Sequence[Entry], lines: Sequence[RankerLine]
) -> Iterator[str]:
    """What the figures support: gaps, how much faster tuned is, how far from the floor."""
    messages = [one.message for one in result.failures]
    yield from pieces.gaps(len(result.missing), len(result.run.plan), messages, "row")
    if not lines:
        yield "Nothing was measured."
        return
    yield _faster(lines)
    kind = lines[-1].kind
    floors = [
        f"{line.floors:.1f} times its floor ({line.floor.bound_by}) with {line.rows:,} rows"
        for line in lines
        if line.kind == kind
    ]
    yield sentence(f"A forward of {kind} takes {pieces.listed(floors)}")
    few = [line.few_rounds for line in lines if line.few_rounds]
    yield from pieces.doubted([one.warnings for one in entries], further=few[:1])


def _faster(lines: Sequence[RankerLine]) -> str:
    """How many times as long a call of plain takes, and where that cannot be distinguished
    from 1; of one
    ranker alone, which batch is the fastest."""
    compared = [(line, line.call_ratio) for line in lines if line.call_ratio is not None]
    if not compared:
        top = max(lines, key=lambda line: line.rows_per_s)
        rows_per_s = f"{top.rows:,} rows a batch, {number(top.rows_per_s)} rows/s"
        return sentence(f"{top.kind} scores most with {rows_per_s}")
    words = [
        f"{ratio.median:.2f} times{'' if at else ' as long as tuned'} with {line.rows:,} rows "
        f"({ratio.low:.2f} to {ratio.high:.2f}"
        f"{'' if ratio.low > 1 or ratio.high < 1 else ', not distinguished from 1'})"
        for at, (line, ratio) in enumerate(compared)
    ]
    return sentence(f"For a call {BASE} takes {pieces.listed(words)}")
