"""The page of a run of the ranker alone: times by batch size, plain against tuned, the floor.

Rule: figures are those of ranker_json (ns and s); no Serve runs here, so that there is no launch,
no client and no CPU by process. A ratio is plain / tuned: above 1 tuned is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.benchmarks.parts.about_run import asked, machine, method, whole_doubts
from serve_bench.benchmarks.parts.pieces import gaps, listed, section, sentence
from serve_bench.benchmarks.parts.texts import number
from serve_bench.benchmarks.ranker.page_charts import (
    rate_charts,
    ratio_charts,
    round_charts,
    time_charts,
)
from serve_bench.benchmarks.ranker.page_rows import executed_table, floors_table, times_table
from serve_bench.benchmarks.ranker.summary import BASE, RankerLine, ranker_lines
from serve_bench.core.document import Block, Document, Facts, Prose, ReportOptions, Section
from serve_bench.core.result import Result, Trial

FORMULAS: Final = (
    (
        "forward, call",
        "medians over rounds; a round's time is the median of a slice of about 10 ms. forward: "
        "from features on the device to scores on it; call: from the requests' features to their "
        "scores",
        "docs/ranker.md; serve_bench/benchmarks/ranker/measure.py",
    ),
    (
        "interval of a median",
        "from the k-th smallest to the k-th largest of n rounds, with the largest k for which "
        "1 - 2 P(Binomial(n, 1/2) < k) >= 0.95",
        "W. J. Conover, Practical Nonparametric Statistics, 3.2",
    ),
    (
        "ratio",
        "the median of plain / tuned over rounds, of slices that are neighbours in time",
        "docs/ranker.md; serve_bench/benchmarks/ranker/summary.py",
    ),
    (
        "floor",
        "max(bytes moved / bandwidth, operations / peak, operators / rate of the smallest); "
        "bandwidth, peak and smallest operator are measured on this machine",
        "docs/ranker.md; serve_bench/benchmarks/ranker/summary.py",
    ),
    ("rows/s", "the median over rounds of rows / call", "serve_bench/benchmarks/ranker/summary.py"),
)


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of the ranker alone says."""
    where = options.where
    run, lines = result.run, ranker_lines(result)
    return Document(
        title=f"serve-bench ranker, run {run.id}",
        command=run.command,
        run=Facts((*asked(run).pairs, *_model(result.trials))),
        machine=Facts((*machine(run).pairs, *_peaks(result.trials))),
        findings=tuple(found(result, lines)),
        doubts=(*whole_doubts(result), *_unplaced(result)),
        sections=tuple(_sections(result, lines)),
        where=where,
        argv=run.argv,
    )


def _unplaced(result: Result) -> Iterator[str]:
    """Failures that no row of the table shows."""
    for one in result.failures:
        if one.key not in {planned.key for planned in result.run.plan}:
            yield f"failed: {one.what}: {one.message}"


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
    """What the machine did at best, as the floor takes it."""
    if trials:
        best: Any = trials[0].client["machine"]
        yield "a large copy", f"{best['bytes_per_s'] / 1e9:.1f} GB/s"
        yield "a large float32 product", f"{best['flops_per_s'] / 1e9:,.0f} Gflop/s"
        yield "the smallest operator", f"{best['launch_ns'] / 1e3:.2f} us"


def _sections(result: Result, lines: Sequence[RankerLine]) -> Iterator[Section]:
    blocks = [times_table(result, lines), floors_table(lines)] if lines else _times_missing(result)
    yield from section("results", "Results", blocks)
    yield from section("throughput", "Rows a second", rate_charts(lines))
    yield from section("latency", "Time of a batch, and its floor", time_charts(lines))
    yield from section("ratios", "Plain over tuned", ratio_charts(lines))
    yield from section("windows", "Rounds over time", round_charts(result.trials))
    # Formulas alone: a row here is no load, has no client and no connection.
    bare = replace(result, trials=(), launches=(), run=replace(result.run, plan=()))
    formulas = method(bare, FORMULAS)
    yield replace(formulas, blocks=(*executed_table(result), *formulas.blocks))


def _times_missing(result: Result) -> list[Block]:
    if not result.missing:
        return [Prose(("Nothing was measured.",), "doubt")]
    return [times_table(result, ())]


# --------------------------------------------------------------------------------------- found


def found(result: Result, lines: Sequence[RankerLine]) -> Iterator[str]:
    """What the figures support: gaps, how much faster tuned is, how far from the floor."""
    messages = [one.message for one in result.failures]
    yield from gaps(len(result.missing), len(result.run.plan), messages, "row")
    if not lines:
        yield "Nothing was measured."
        return
    yield from _faster(lines)
    floors = [
        f"{line.forward.median / 1e9 / line.floor.seconds:.1f} times its floor "
        f"({line.floor.bound_by}) with {line.rows:,} rows"
        for line in lines
        if line.kind == lines[-1].kind
    ]
    yield sentence(f"A forward of {lines[-1].kind} takes {listed(floors)}")
    few = [line for line in lines if line.forward.level < 0.95]
    if few:
        yield sentence(
            f"To be doubted: {few[0].forward.count} rounds are too few for an interval of 95 %"
        )


def _faster(lines: Sequence[RankerLine]) -> Iterator[str]:
    """Of the whole call: where tuned is faster, where plain is, and where it is not told."""
    compared = [(line, line.call_ratio) for line in lines if line.call_ratio is not None]
    if not compared:
        fastest = max(lines, key=lambda line: line.rows_per_s)
        yield sentence(
            f"{fastest.kind} scores most with {fastest.rows:,} rows a batch, "
            f"{number(fastest.rows_per_s)} rows/s"
        )
        return
    said = []
    for line, ratio in compared:
        verdict = "" if ratio.low > 1 or ratio.high < 1 else ", not told from 1"
        said.append(
            f"{ratio.median:.2f} times with {line.rows:,} rows ({ratio.low:.2f} to "
            f"{ratio.high:.2f}{verdict})"
        )
    said[0] = said[0].replace(" times ", " times as long as tuned ", 1)
    yield sentence(f"For a call {BASE} takes {listed(said)}")
