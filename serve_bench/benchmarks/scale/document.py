"""The page of a scale run: sizes and variants, metrics by their published names, nodes, growth.

Rule: an invalid result says so before any figure. Figures are those of scale_json; what Ray
publishes stands in a column of its own, as published and not as measured here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, asked, machine, method
from serve_bench.benchmarks.parts.pieces import section, whole_run
from serve_bench.benchmarks.scale.joined import ScalePage, scale_page
from serve_bench.benchmarks.scale.page_charts import (
    cpu_charts,
    growth_charts,
    node_charts,
    percentile_charts,
    rate_charts,
    window_charts,
)
from serve_bench.benchmarks.scale.page_found import found
from serve_bench.benchmarks.scale.page_rows import (
    growth_table,
    metrics_table,
    nodes_table,
    rows_table,
    sizes_table,
)
from serve_bench.benchmarks.scale.words import asked as asked_lines
from serve_bench.benchmarks.scale.words import compared_note, flags_of, notes
from serve_bench.core.document import (
    Block,
    Document,
    Facts,
    Finding,
    Folded,
    Prose,
    ReportOptions,
    Section,
    sentences,
)
from serve_bench.core.result import Result

CURVE: Final = "curve"

NODES: Final = (
    (
        "per_thread_*, per_node_*",
        "mean over nodes (avg) or highest of all nodes (max); a thread of wrk is a connection here",
        "docs/scale.md, as published: Ray Serve performance tuning page, nightly benchmarks",
    ),
    (
        "cluster_max_P*",
        "the highest of the nodes' percentiles",
        "docs/scale.md, as published: Ray Serve performance tuning page, nightly benchmarks",
    ),
    (
        "cluster_P*",
        "percentiles of all requests together, from the merged histograms of all nodes",
        "docs/scale.md",
    ),
    (
        "cluster_total_thoughput",
        "a count of completed requests, misspelt as published: cluster_total_requests",
        "docs/scale.md, as published: Ray Serve performance tuning page, nightly benchmarks",
    ),
)
GRAPH: Final = (
    (
        "throughput_mean_tps, throughput_std_tps",
        "mean and std (ddof 0) over windows, of all clients",
        "docs/scale.md, as published: Ray Serve performance tuning page, nightly benchmarks",
    ),
    (
        "latency_mean_ms, latency_std_ms",
        "mean and std (ddof 0) over each client's requests, one after the other",
        "docs/scale.md, as published: Ray Serve performance tuning page, nightly benchmarks",
    ),
)
GROWTH: Final = (
    (
        "growth exponent",
        "b in value = a x replicas^b: b = S_xy / S_xx with x = log(replicas), y = log(value), a "
        "point a size (the mean of its launches), least squares; three sizes at least",
        "docs/scale.md; serve_bench/benchmarks/scale/growth.py",
    ),
    (
        "its standard error, its interval",
        "e = sqrt(sum of squared residuals / (k - 2) / S_xx) for k sizes; b ± t(0.975, k - 2) x e",
        "serve_bench/benchmarks/scale/growth.py",
    ),
    (
        "memory per replica",
        "proportional set of a replica, MB; CPU per request: of all processes of Ray and Serve",
        "docs/scale.md",
    ),
)
INVALID: Final = (
    (
        "invalid",
        "failed / (completed + failed) > 1 %, or no request was completed",
        "docs/scale.md",
    ),
    ("± of a figure", "std over launches (ddof 1); - for one launch", "docs/scale.md"),
)


def document(result: Result, options: ReportOptions) -> Document:
    """What a scale run says, with what Ray publishes in a column of its own, if wanted."""
    where, published = options.where, options.published
    run, page = result.run, scale_page(result, published, where)
    words = tuple(_pair(line) for line in asked_lines(run.suite, page.workload))
    return Document(
        title=f"serve-bench scale {page.workload}, run {run.id}",
        command=run.command,
        run=Facts((*asked(run).pairs, *words, *_variants(page))),
        machine=machine(run),
        findings=sentences(found(page)),
        doubts=tuple(_doubts(page)),
        sections=tuple(_sections(result, page)),
        where=where,
        argv=run.argv,
    )


def _pair(line: str) -> tuple[str, str]:
    """`load: from every node ...` as a name and what it stands for."""
    name, _, text = line.partition(": ")
    return name, text


def _variants(page: ScalePage) -> Iterator[tuple[str, str]]:
    """Each variant with its flags and what is in force."""
    for part in page.variants:
        engaged = f"; {part.engaged}" if part.engaged else ""
        yield f"variant {part.name}", flags_of(part.name, part.env) + engaged


def _doubts(page: ScalePage) -> Iterator[Finding]:
    yield from sentences(page.invalid, "bad")
    yield from whole_run(page.warnings, page.failures)
    for part in page.variants:
        yield from whole_run(part.warnings, part.failures)
        yield from sentences(part.unloaded, "doubt")


def _sections(result: Result, page: ScalePage) -> Iterator[Section]:
    yield from section("results", "Results", _results(page))
    yield from section("throughput", "Throughput", rate_charts(page))
    yield from section("growth", "What each further replica costs", _growth(page))
    yield from section("latency", "Latency", percentile_charts(page))
    yield from section("nodes", "Nodes", _nodes(page))
    yield from section("windows", "Windows over time", window_charts(page))
    yield from section("cpu", "CPU by process, and what limited each row", _use(page))
    yield method(as_planned(result), (*GENERAL_FORMULAS, *formulas_of(page), *INVALID))


def formulas_of(page: ScalePage) -> tuple[tuple[str, str, str], ...]:
    """Those of the workload: name, formula, source."""
    if page.workload == CURVE:
        return (*GROWTH, *NODES[2:3])
    return GRAPH if page.graph else NODES


def as_planned(result: Result) -> Result:
    """The run with the rows of its trials as they were planned: a trial from several nodes has the
    connections of all of them, and would be a row beside the planned one."""
    rows = {planned.key: planned.row for planned in result.run.plan}
    trials = tuple(replace(one, row=rows.get(one.key, one.row)) for one in result.trials)
    return replace(result, trials=trials)


def _results(page: ScalePage) -> Iterator[Block]:
    if not page.entries:
        yield Prose(("Nothing was planned.",), "doubt")
        return
    yield sizes_table(page)
    if page.graph:
        yield rows_table(page)
    if page.workload != CURVE:
        yield metrics_table(page)
    if any(one.measured for one in page.entries):
        said = list(notes(page.workload, str(page.run.suite.get("client")), page.sampled))
        said += [compared_note()] if len(page.variants) > 1 else []
        yield Folded("What the figures mean", (Prose(tuple(said), listed=True),))
    if page.published:
        yield Folded("Published, not measured here", (Prose(page.notes, "quiet", listed=True),))


def _growth(page: ScalePage) -> Iterator[Block]:
    if any(part.grown for part in page.variants):
        yield growth_table(page)
        yield from growth_charts(page)


def _use(page: ScalePage) -> Iterator[Block]:
    yield from cpu_charts(page)
    limits = tuple(f"{one.title}: {text}" for one in page.entries for text in one.limits)
    if limits:
        yield Prose(limits, listed=True)


def _nodes(page: ScalePage) -> Iterator[Block]:
    if any(one.size.nodes for one in page.entries):
        yield from node_charts(page)
        table = nodes_table(page)
        # Of a curve there is a node or more at each size: one row each, and few want them.
        yield Folded("The load from each node", (table,)) if page.workload == CURVE else table
