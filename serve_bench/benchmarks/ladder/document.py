"""The page of a run of ladders (sweep, recsys): knees, every step, rates and latency over users.

Rule: knee, best and collapse are those of benchmarks/ladder/summary.py, and all figures those of
ladder_json; a press run is a ladder too and has a page of its own (benchmarks/press/document.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.benchmarks.ladder.page_charts import (
    Curve,
    curves_of,
    latency_charts,
    measured,
    throughput_charts,
)
from serve_bench.benchmarks.ladder.page_found import found, told
from serve_bench.benchmarks.ladder.page_knees import cpu_chart, knee_curves, knee_windows
from serve_bench.benchmarks.ladder.page_rows import knees_table, names_of, steps_table
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.ladder.tables import entries_of, name_of, size_of
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, asked, machine, method
from serve_bench.benchmarks.parts.page import Page, page_of
from serve_bench.benchmarks.parts.pieces import distinct, page_doubts, section
from serve_bench.benchmarks.parts.published import published_notes
from serve_bench.core.document import (
    Block,
    Document,
    Folded,
    Prose,
    ReportOptions,
    Section,
    sentences,
)
from serve_bench.core.ladder import COLLAPSE, KNEE, LEAST_GAIN
from serve_bench.core.result import Result

FORMULAS: Final = (
    (
        "knee",
        f"the fewest users with requests/s >= {KNEE:g} x the best of the ladder",
        "docs/recsys.md; serve_bench/core/ladder.py",
    ),
    (
        "collapse",
        f"more users than the best, and requests/s < {COLLAPSE:g} x the best",
        "docs/recsys.md; serve_bench/core/ladder.py",
    ),
    (
        "end of a ladder that grows by itself",
        f"two steps in a row with requests/s < {1 + LEAST_GAIN:g} x the best before them; then up "
        "to four steps around the best",
        "docs/recsys.md; serve_bench/core/ladder.py",
    ),
    (
        "requests/s of a step with several runs",
        "the median of its runs in a launch, the mean of those over launches",
        "serve_bench/benchmarks/ladder/summary.py",
    ),
    (
        "ratio",
        "the best requests/s over that of the first service of the same size",
        "docs/recsys.md",
    ),
    (
        "forward",
        "time in the model / batches, over all batches of a step, warm-up included",
        "docs/recsys.md; serve_bench/core/usage.py",
    ),
)
"""Beside those that hold for all runs."""


def is_ladder(result: Result) -> bool:
    """Whether the rows of a run are steps of ladders. Of `press` too, which has its own page."""
    return result.run.suite.get("ladder") is not None


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of ladders says; of recsys with what was published below its tables, if wanted."""
    where, published = options.where, options.published
    run, page, ladders = result.run, page_of(result, where=where), ladder_lines(result)
    return Document(
        title=f"serve-bench {run.command}, run {run.id}",
        command=run.command,
        run=asked(run),
        machine=machine(run),
        findings=sentences(found(page, ladders)),
        doubts=tuple(page_doubts(page)),
        sections=tuple(_sections(result, page, ladders, published)),
        where=where,
        argv=run.argv,
    )


def _sections(
    result: Result, page: Page, ladders: Sequence[LadderLine], published: bool
) -> Iterator[Section]:
    yield from section("results", "Results", _results(page, ladders, published))
    groups = _groups(ladders)
    yield from section(
        "throughput",
        "Throughput over users",
        (
            block
            for name, every in groups.items()
            if (curves := measured(every))
            for block in throughput_charts(_titled("Requests/s over users", name), curves)
        ),
    )
    yield from section("latency", "Latency", _latency(groups))
    yield from section(
        "windows",
        "Windows over time",
        (
            chart
            for name, every in groups.items()
            for chart in knee_windows(every, _titled("", name))
        ),
    )
    yield from section("cpu", "CPU by process, and what limited each step", _inside(page, ladders))
    yield method(result, (*GENERAL_FORMULAS, *FORMULAS))


def _latency(groups: Mapping[str, Sequence[Curve]]) -> Iterator[Block]:
    for name, every in groups.items():
        yield from latency_charts(_titled("Latency over users", name), measured(every))
    for name, every in groups.items():
        yield from knee_curves(every, _titled("", name))


def _titled(what: str, name: str) -> str:
    return f"{what}: {name}" if name else what


def _groups(ladders: Sequence[LadderLine]) -> dict[str, list[Curve]]:
    """The ladders that share a chart: those of one size, or all where each has its own size."""
    sizes: dict[str, list[LadderLine]] = {}
    for one in ladders:
        sizes.setdefault(size_of(one), []).append(one)
    if all(len(own) == 1 for own in sizes.values()):
        return {"": curves_of(names_of(ladders), ladders)} if ladders else {}
    return {
        size: curves_of(distinct([name_of(one) for one in own]), own) for size, own in sizes.items()
    }


# ------------------------------------------------------------------------------------ results


def _results(page: Page, ladders: Sequence[LadderLine], published: bool) -> Iterator[Block]:
    if not ladders:
        yield Prose(("Nothing was measured.",), "doubt")
        return
    yield knees_table(page, ladders)
    pairs = zip(names_of(ladders), ladders, strict=True)
    yield Prose(tuple(told(name, one) for name, one in pairs), listed=True)
    yield steps_table(page, ladders)
    if published and page.run.command == "recsys":
        notes = published_notes("recsys")
        yield Folded("Published, not measured here", (Prose(notes, "quiet"),))


# ----------------------------------------------------------------------------------------- CPU


def _inside(page: Page, ladders: Sequence[LadderLine]) -> Iterator[Block]:
    """CPU at the knees; of each ladder over its steps, folded where there are several."""
    names = names_of(ladders)
    knees = []
    every: list[Block] = []
    for name, ladder in zip(names, ladders, strict=True):
        entries = entries_of(ladder, page)
        if ladder.knee is not None:
            limit = entries[ladder.knee.row].limited
            knees.append((f"{name}, {ladder.knee.row.label}", ladder.knee.trials, limit))
        rows = [
            (line.row.label, line.trials, entries[line.row].limited)
            for line in ladder.steps
            if any(trial.usage for trial in line.trials)
        ]
        every += cpu_chart(_titled("CPU at every step", name if len(ladders) > 1 else ""), rows)
    if len(ladders) == 1:
        yield from every
        return
    yield from cpu_chart("CPU at the knee", knees)
    if every:
        yield Folded("CPU at every step of each ladder", tuple(every))
