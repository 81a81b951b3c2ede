"""How a scale run is looked at: sizes of a workload, metrics by their published names, growth.

Rule: an invalid result says so before any figure. What is not known is left out, never 0; what Ray
publishes stands in a column of its own, as published and not as measured here. Published metrics
are means over launches, quantities of a curve are fitted over the number of replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.scale.growth import FEWEST, fit_growth
from serve_bench.benchmarks.scale.metrics import (
    CURVE_METRICS,
    HTTP,
    PUBLISHED,
    RATE,
    node_figures,
    nodes_of,
)
from serve_bench.benchmarks.scale.request import GRAPHS, why_invalid
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import NodeFacts
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Result, Trial
from serve_bench.view.blocks import sentence
from serve_bench.view.document import Charts, Finding, ReportOptions, Section
from serve_bench.view.figures import FIGURES, INSIDE, Value, declare, known_values
from serve_bench.view.frame import (
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    draw_over,
    figure_table,
    make_table,
)
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import scale_notes, scale_published
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Page

declare("exponent", "1", "b of y = a n^b over n replicas, and its 95 % interval", digits=3)
declare("std_error", "1", "standard error of the exponent")
declare("factor", "", "a of y = a n^b over n replicas, in the unit of y")
declare("fitted", "", "sizes with a positive value, which are fitted", title="sizes")

ROWS: Final = TableSpec(
    "Each size",
    (
        Field("name", "size"),
        Field(MAIN, "throughput"),
        Field("launch_ratio", head="to the first"),
        *(Field("latency_p50"), Field("latency_p90", detail=True), Field("latency_p99")),
        Field("deploy_time", "deploy"),
        Field("memory_per_replica", "memory"),
        Field("cpu_per_request", "CPU"),
        Field("controller_loop", "loop", detail=True),
        Field("teardown_time", "teardown", detail=True),
        Field("completed", "requests", detail=True),
        Field("errors", "failed"),
        Field("limit", "limited by"),
    ),
    ("±: std (ddof 0) over the windows.",),
)
GROWTH: Final = TableSpec(
    "Growth over the number of replicas n",
    (
        Field("name", "n: replicas"),
        Field("exponent", head="95 %"),
        Field("std_error", "std error", detail=True),
        Field("fitted", detail=True),
        Field("in_words"),
    ),
    (
        "95 %: interval, which takes the residuals as chance; a curve that bends has no one "
        "exponent: look at the charts.",
    ),
)
NODES: Final = TableSpec(
    "The load from each node",
    (
        Field("name", "node"),
        Field("hostname", detail=True),
        Field("connections", detail=True),
        Field(MAIN, "throughput"),
        Field("latency_p50"),
        Field("latency_p99"),
        Field("completed", "requests"),
        Field("errors", "failed"),
        Field("cpu_http", "proxy", head="CPU %", detail=True),
        Field("cpu_replicas", "replicas", head="CPU %", detail=True),
    ),
)
INVALID: Final = "invalid: "
"""What the record of a failure begins with that is shown as INVALID."""

METRICS: Final = (
    "per_thread_*: a connection; cluster_total_thoughput, misspelt as published: a count; "
    "cluster_max_P*: the highest of the nodes' percentiles; cluster_P*: of all requests. ±: std "
    "over launches (ddof 1)."
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The sizes of a workload under each variant, by replicas."""
    workload = str(result.run.suite.get("workload", "unknown"))
    variants = [part.name for part in page.variants]
    shown = sorted(
        map(_name_row, rows),
        key=lambda row: (variants.index(row.dims["variant"]), row.dims["replicas"]),
    )
    sizes = [*merge_sizes(shown)]
    nodes = [*(node for row in shown for node in _node_rows(row)), *_unloaded_nodes(result)]
    growths = [*_growth_points(sizes)] if workload == "curve" else []
    # Requests one after the other make no throughput.
    timed = [row for row in shown if row.entry and row.entry.line.row.requests_each is None]
    hidden = {MAIN, "launch_ratio"}
    tabled = [
        row
        if row in timed
        else replace(row, values={k: row.values[k] for k in row.values if k not in hidden})
        for row in shown
    ]
    sections = [Section("results", "Results", (make_table(ROWS, tabled),), "headline")]
    if growths:
        charts = Charts(
            lambda: [
                chart
                for name, title in CURVE_METRICS.items()
                for chart in draw_over(title.capitalize(), sizes, "replicas", (name,), "variant")
            ]
        )
        cost = (make_table(GROWTH, growths), charts)
        sections.append(Section("growth", "Cost per replica", cost, "table"))
    elif any(row.values for row in sizes):
        known = (scale_published(workload) if options.published else None) or {}
        beside = {name: Value(value) for name, value in known.items() if name in FIGURES}
        table = figure_table(
            "Metrics by their published names",
            [*sizes, *([ViewRow({}, beside, "published elsewhere")] if beside else [])],
            tuple(PUBLISHED),
            () if workload in GRAPHS else (METRICS,),
        )
        sections.append(Section("metrics", "Published metrics", (table,)))
    if nodes and workload not in GRAPHS:
        blocks = (make_table(NODES, nodes),)
        sections.append(Section("nodes", "Nodes", blocks, "further" if growths else "table"))
    return View(
        rows=shown,
        points=[*growths, *nodes],
        alarms=[sentence(line) for line in invalid_lines(shown)[:1]],
        findings=(_describe_sizes(sizes),),
        sections=sections if shown else (),
        charts=tuple(chart_sections(timed)),
        definitions=scale_notes(workload) if options.published else (),
        title=f"serve-bench scale {workload}",
        lead=max(timed, key=lambda row: row.value(MAIN) or 0.0, default=None),
    )


# Sizes: the rows of a cell under a variant.


def _name_row(row: ViewRow) -> ViewRow:
    """The row under the name of its size, `default, 8 replicas`, with why it is invalid. Those of a
    graph have the clients in common. Raises FormatError."""
    if "num_replicas" not in row.dims:
        raise FormatError(f"the cell of {row.name} has no num_replicas")
    replicas, part = row.dims["num_replicas"], str(row.dims["row"]).partition(", ")[2]
    size = f"{row.dims['variant']}, {counted(replicas, 'replica')}"
    invalid = [
        Finding(f"{why}: the figures are of a broken run", "INVALID", "bad", about=about)
        for about, trial in _by_launch(row)
        if (why := why_invalid(trial))
    ]
    kept = (warning for warning in row.warnings if not warning.text.startswith(INVALID))
    return replace(
        row,
        name=f"{size}, {part}" if part else size,
        dims={**row.dims, "size": size, "replicas": replicas},
        warnings=(*invalid, *kept),
        tones={MAIN: "bad"} if invalid else {},
    )


def _by_launch(row: ViewRow) -> Iterator[tuple[str, Trial]]:
    """The trials with their launches in words, which are empty where a single one was planned."""
    several = row.entry is not None and len(row.entry.line.keys) > 1
    for trial in row.trials:
        yield f"launch {trial.round}" if several else "", trial


def merge_sizes(shown: Iterable[ViewRow]) -> Iterator[ViewRow]:
    """The rows of each size as one: of a graph those by handle and HTTP."""
    for name, of_size in groupby(shown, key=lambda row: str(row.dims["size"])):
        rows = list(of_size)
        values = {figure: value for row in rows for figure, value in row.values.items()}
        yield replace(rows[0], name=name, values=values)


def _node_rows(row: ViewRow) -> Iterator[ViewRow]:
    """The nodes that loaded in each trial of a row. Where several have an address, the beginning of
    their ids names them too."""
    for launch, trial in _by_launch(row):
        addresses = [facts["ip"] for facts in nodes_of(trial)]
        for facts in nodes_of(trial):
            lost, address = facts.get("lost") or None, facts["ip"]
            dims = {"point": "node", "variant": trial.variant, "launch": trial.round, "lost": lost}
            dims |= {name: facts.get(name) for name in ("node", "ip", "hostname", "connections")}
            errors = float(sum(facts["failed"].values()))
            warnings = [Finding(_describe_loss(lost, facts), "lost", "bad")] if lost else []
            if facts.get("client_bound"):
                warnings.append(Finding("the client was the limit", "client-bound", "doubt"))
            yield ViewRow(
                {**dims, "replicas": row.dims["replicas"]},
                known_values(**node_figures(facts), errors=errors),
                f"{address} {facts['node'][:6]}" if addresses.count(address) > 1 else address,
                f"{row.name}, {launch}" if launch else row.name,
                tuple(warnings),
            )


def _describe_loss(lost: str, facts: NodeFacts) -> str:
    """`no word for 5 s; last heard 2.1 s before it was given up: 1,234 completed, 0 failed`."""
    heard = facts.get("last_heard")
    if not heard:
        return f"{lost}; never heard"
    return (
        f"{lost}; last heard {heard['age_s']:.1f} s before it was given up: "
        f"{heard['completed']:,} completed, {heard['failed']:,} failed"
    )


def _unloaded_nodes(result: Result) -> Iterator[ViewRow]:
    """The nodes that no load came from: those that had no healthy proxy of their own, and why."""
    for launch in result.launches:
        for proxy in launch.proof.get("proxies", ()):
            if proxy["status"] == "HEALTHY" and not proxy.get("shared_with"):
                continue
            why = proxy.get("why") or f"its proxy is {proxy['status']}"
            dims = {"point": "node", "launch": launch.round, "ip": proxy["node_ip"], "lost": None}
            name = f"{proxy['node_ip']} {proxy['node_id'][:6]}"
            warning = Finding(why, "not loaded", "doubt")
            yield ViewRow(dims, {}, name, f"launch {launch.id}", (warning,))


def _usage_of(trial: Trial) -> Mapping[str, Any]:
    """By which the limit is judged: HTTP that loaded from one node. Of several the verdict, which
    weighs the processes of one machine with the whole load, would be wrong; so it would where the
    client of a handle is a process that it does not know."""
    nodes = nodes_of(trial)
    if trial.row.client == HANDLE or len(nodes) > 1 or MAIN not in trial.metrics:
        return {}
    return (nodes[0].get("usage") if nodes else None) or trial.usage


def _growth_points(sizes: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """How each quantity of a curve grows under each variant."""
    several = len({row.dims["variant"] for row in sizes}) > 1
    for variant, group in groupby(sizes, key=lambda row: str(row.dims["variant"])):
        rows = list(group)
        for name, title in CURVE_METRICS.items():
            known = [(row.dims["replicas"], row.value(name)) for row in rows]
            seen = [(replicas, value) for replicas, value in known if value is not None]
            if not seen:
                continue
            fit, words = fit_growth(seen), f"too few sizes above 0, {FEWEST} are needed"
            values = known_values(fitted=float(sum(value > 0 for _, value in seen)))
            if fit is not None:
                values["exponent"] = Value(fit.exponent, low=fit.low, high=fit.high)
                values |= known_values(std_error=fit.std_error, factor=fit.factor)
                words = fit.words
            dims = {"point": "growth", "variant": variant, "quantity": name, "in_words": words}
            yield ViewRow(dims, values, title, f"variant {variant}" if several else "")


# In words.


def invalid_lines(rows: Sequence[ViewRow]) -> list[str]:
    """The lines that call the result invalid: `INVALID, default, 8 replicas: why`."""
    return [
        f"INVALID, {row.name}{f', {finding.about}' if finding.about else ''}: {finding.text}"
        for row in rows
        for finding in row.warnings
        if finding.code == "INVALID"
    ]


def _describe_sizes(sizes: Sequence[ViewRow]) -> str:
    """What each serves; of a curve the size with the most requests/s beside the largest of its
    variant."""
    measured = [row for row in sizes if row.values]
    if not measured:
        return "Nothing was measured."
    if measured[0].dims.get("workload") != "curve":
        return sentence("; ".join(map(_describe_size, measured)))
    best = max(measured, key=lambda row: row.value(RATE) or 0.0)
    last = [row for row in measured if row.dims["variant"] == best.dims["variant"]][-1]
    tail = "" if last is best else f"; {last.name}: {last.text(RATE)}"
    return sentence(f"Most requests/s: {best.name}, {best.text(RATE)}{tail}")


def _describe_size(size: ViewRow) -> str:
    """Its rate and latency; of a graph through a handle, as published, and through HTTP."""
    if size.dims.get("workload") in GRAPHS:
        ways = [
            f"{size.text(f'{way}throughput_mean_tps')} requests/s, mean latency "
            f"{size.text(f'{way}latency_mean_ms')} ms through {words}"
            for way, words in (("", "a handle"), (HTTP, "HTTP"))
        ]
        return f"{size.name}: {'; '.join(ways)}"
    every = [facts for trial in size.trials for facts in nodes_of(trial)]
    nodes = {facts["node"] for facts in every if not facts.get("lost")}
    return f"{size.name}, from {counted(len(nodes), 'node')}: {describe_figures(size)}"


LENS: Final = Lens(build, (*INSIDE, *PUBLISHED), usage_of=_usage_of)
