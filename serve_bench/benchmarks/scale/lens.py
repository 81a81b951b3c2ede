"""How a scale run is looked at: sizes of a workload, metrics by their published names, growth.

Rule: an invalid result says so before any figure. What is not known is left out, never 0; what Ray
publishes stands in a column of its own, as published and not as measured here. A size is a point:
its metrics are means over launches, those of a curve are fitted over the number of replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.scale.growth import FEWEST, fit_growth
from serve_bench.benchmarks.scale.metrics import (
    COSTS,
    CURVE_METRICS,
    HTTP,
    RATE,
    expected_metrics,
    mean_metrics,
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
from serve_bench.view.figures import FIGURES, INSIDE, Figure, Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, ViewRow, draw_over, figure_table, make_table
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
    sizes = groupby(shown, key=lambda row: row.dims["size"])
    points = [_size_point(list(size)) for _, size in sizes]
    nodes = [*(node for row in shown for node in _node_rows(row)), *_unloaded_nodes(result)]
    growths = [*_growth_points(points)] if workload == "curve" else []
    in_table = [_shorten(row) for row in shown]
    sections = [Section("results", "Results", (make_table(ROWS, in_table),), "headline")]
    if growths:
        charts = Charts(
            lambda: [
                chart
                for name, title in CURVE_METRICS.items()
                for chart in draw_over(title.capitalize(), points, "replicas", (name,), "variant")
            ]
        )
        cost = (make_table(GROWTH, growths), charts)
        sections.append(Section("growth", "Cost per replica", cost, "table"))
    elif any(point.values for point in points):
        known = (scale_published(workload) if options.published else None) or {}
        beside = {name: Value(value) for name, value in known.items() if name in FIGURES}
        table = figure_table(
            "Metrics by their published names",
            [*points, *([ViewRow({}, beside, "published elsewhere")] if beside else [])],
            expected_metrics(workload),
            () if workload in GRAPHS else (METRICS,),
        )
        sections.append(Section("metrics", "Published metrics", (table,)))
    if nodes and workload not in GRAPHS:
        blocks = (make_table(NODES, nodes),)
        sections.append(Section("nodes", "Nodes", blocks, "further" if growths else "table"))
    return View(
        rows=shown,
        points=[*points, *growths, *nodes],
        alarms=[sentence(line) for line in invalid_lines(shown)[:1]],
        findings=tuple(_findings(shown, points, growths, nodes)),
        sections=sections if shown else (),
        charts=tuple(chart_sections(in_table)),
        definitions=scale_notes(workload) if options.published else (),
        title=f"serve-bench scale {workload}",
        lead=max(in_table, key=lambda row: row.value(MAIN) or 0.0, default=None),
    )


# Sizes: the rows of a cell under a variant.


def _name_row(row: ViewRow) -> ViewRow:
    """The row under the name of its size, `default, 8 replicas`, with all its warnings. Those of a
    graph have the clients in common. Raises FormatError."""
    if "num_replicas" not in row.dims:
        raise FormatError(f"the cell of {row.name} has no num_replicas")
    replicas, part = row.dims["num_replicas"], str(row.dims["row"]).partition(", ")[2]
    size = f"{row.dims['variant']}, {counted(replicas, 'replica')}"
    kept = (warning for warning in row.warnings if not warning.text.startswith(INVALID))
    return replace(
        row,
        name=f"{size}, {part}" if part else size,
        dims={**row.dims, "size": size, "replicas": replicas},
        warnings=(*_warnings(row), *kept),
        tones={MAIN: "bad"} if any(map(why_invalid, row.trials)) else {},
    )


def _warnings(row: ViewRow) -> Iterator[Finding]:
    """Why it is invalid, and where the client was the limit."""
    for trial in row.trials:
        about = _name_launch(row, trial)
        if why := why_invalid(trial):
            text = f"{why.removeprefix(INVALID)}: the figures are of a broken run"
            yield Finding(text, "INVALID", "bad", about=about)
        bound = [facts["ip"] for facts in nodes_of(trial) if facts.get("client_bound")]
        if bound:
            text = f"the client was the limit on node {', '.join(bound)}"
            yield Finding(text, "client-bound", "doubt", about=about)


def _name_launch(row: ViewRow, trial: Trial) -> str:
    """`launch 2`; empty where a single one was planned."""
    return f"launch {trial.round}" if row.entry and len(row.entry.line.keys) > 1 else ""


def _shorten(row: ViewRow) -> ViewRow:
    """The row without notes, whose limit has a column. Requests one after the other make no
    throughput."""
    sequential = row.entry is not None and row.entry.line.row.requests_each is not None
    hidden = (MAIN, "launch_ratio") if sequential else ()
    values = {name: value for name, value in row.values.items() if name not in hidden}
    return replace(row, values=values, notes=())


def _size_point(size: Sequence[ViewRow]) -> ViewRow:
    """The metrics of a size, means over launches."""
    first, trials = size[0], [trial for row in size for trial in row.trials]
    assert first.entry is not None
    line = first.entry.line
    values = mean_metrics(trials, len(line.keys))
    names = expected_metrics(line.cell.get("workload"))
    unknown = [name for name in names if trials and name not in values]
    facts = [facts for trial in trials for facts in nodes_of(trial)]
    loaded = {node["node"] for node in facts if not node.get("lost")}
    dims = {
        **{"point": "size", "workload": "unknown", **line.cell, "limit": first.dims["limit"]},
        **{"variant": line.variant, "replicas": first.dims["replicas"]},
        **{"unknown": ", ".join(unknown) or None, "nodes": len(loaded) or None},
    }
    values = {name: values[name] for name in names if name in values}
    warnings = first.warnings if len(size) == 1 else ()
    return ViewRow(dims, values, first.dims["size"], warnings=warnings, gap=first.gap)


def _node_rows(row: ViewRow) -> Iterator[ViewRow]:
    """The nodes that loaded in each trial of a row. Where several have an address, the beginning of
    their ids names them too."""
    for trial in row.trials:
        launch, addresses = _name_launch(row, trial), [facts["ip"] for facts in nodes_of(trial)]
        for facts in nodes_of(trial):
            lost, address = facts.get("lost") or None, facts["ip"]
            dims = {"point": "node", "variant": trial.variant, "launch": trial.round, "lost": lost}
            dims |= {name: facts.get(name) for name in ("node", "ip", "hostname", "connections")}
            errors = float(sum(facts["failed"].values()))
            yield ViewRow(
                {**dims, "replicas": row.dims["replicas"]},
                known_values(**node_figures(facts), errors=errors),
                f"{address} {facts['node'][:6]}" if addresses.count(address) > 1 else address,
                f"{row.name}, {launch}" if launch else row.name,
                (Finding(_describe_loss(lost, facts), "lost", "bad"),) if lost else (),
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


def _growth_points(points: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """How each quantity of a curve grows under each variant."""
    several = len({point.dims["variant"] for point in points}) > 1
    for variant, group in groupby(points, key=lambda point: str(point.dims["variant"])):
        sizes = list(group)
        for name, title in CURVE_METRICS.items():
            known = [(point.dims["replicas"], point.values.get(name)) for point in sizes]
            seen = [(replicas, value.value) for replicas, value in known if value is not None]
            if not seen:
                continue
            fit, usable = fit_growth(seen), sum(value > 0 for _, value in seen)
            words = fit.words if fit else f"too few sizes above 0, {FEWEST} are needed"
            dims = {"point": "growth", "variant": variant, "quantity": name, "in_words": words}
            values = {"fitted": Value(float(usable))}
            if fit is not None:
                values["exponent"] = Value(fit.exponent, low=fit.low, high=fit.high)
                values |= {"std_error": Value(fit.std_error), "factor": Value(fit.factor)}
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


def _findings(
    rows: Sequence[ViewRow],
    points: Sequence[ViewRow],
    growths: Sequence[ViewRow],
    nodes: Sequence[ViewRow],
) -> Iterator[str]:
    """What the figures support: lost nodes first, then rates or growth."""
    if lost := dict.fromkeys(node.dims["ip"] for node in nodes if node.dims["lost"]):
        yield f"Lost: {counted(len(lost), 'node')}, {', '.join(lost)}."
    if not any(row.trials for row in rows):
        yield "Nothing was measured."
    elif growths:
        yield from _describe_curve(points, growths)
    else:
        yield sentence("; ".join(_describe_size(point) for point in points if point.values))


def _describe_size(point: ViewRow) -> str:
    """Its rate and latency; of a graph through a handle, as published, and through HTTP."""
    if point.dims["workload"] in GRAPHS:
        ways = [
            f"{point.text(f'{way}throughput_mean_tps')} requests/s, mean latency "
            f"{point.text(f'{way}latency_mean_ms')} ms through {words}"
            for way, words in (("", "a handle"), (HTTP, "HTTP"))
        ]
        return f"{point.name}: {'; '.join(ways)}"
    p50, p99 = (point.text(f"cluster_P{share}_latency_ms") for share in (50, 99))
    nodes = f" from {counted(point.dims['nodes'], 'node')}" if point.dims["nodes"] else ""
    return f"{point.name}: {point.text(RATE)} requests/s{nodes} at p50 {p50} ms, p99 {p99} ms"


def _describe_curve(points: Sequence[ViewRow], growths: Sequence[ViewRow]) -> Iterator[str]:
    """The size with the most requests/s beside the largest of its variant, and what costs more with
    more replicas."""
    rated = [point for point in points if RATE in point.values]
    if rated:
        best = max(rated, key=lambda point: point.values[RATE].value)
        last = [point for point in rated if point.dims["variant"] == best.dims["variant"]][-1]
        tail = "" if last is best else f"; {last.name}: {last.text(RATE)}"
        yield sentence(f"Most requests/s: {best.name}, {best.text(RATE)}{tail}")
    costs = [
        f"{growth.name} {growth.dims['in_words']} (exponent {growth.text('exponent')})"
        for growth in growths
        if growth.dims["variant"] == points[0].dims["variant"]
        and growth.dims["quantity"] in COSTS
        and not growth.dims["in_words"].startswith("unknown")
    ]
    if costs:
        yield sentence(f"{points[0].dims['variant']}, n replicas: {'; '.join(costs)}")


# The file of Ray's release tooling.


def perf_figures(points: Sequence[ViewRow]) -> Iterator[tuple[str, Figure, Value | None]]:
    """The metrics of each size with their names there; None: it is not known.

    The first variant's bear exactly the published names (`per_thread_latency_avg_ms`), those of the
    others have the variant before them. A curve publishes none; its names hold the replicas and the
    unit.
    """
    sizes = [point for point in points if point.dims["point"] == "size"]
    for size in sizes:
        dims, unknown = size.dims, (size.dims["unknown"] or "").split(", ")
        curve = dims["workload"] == "curve"
        prefix = "" if dims["variant"] == sizes[0].dims["variant"] else f"{dims['variant']}_"
        prefix += f"replicas_{dims['replicas']}_" if curve else ""
        for name in CURVE_METRICS if curve else expected_metrics(dims["workload"]):
            if name in size.values or name in unknown:
                end = f"_{FIGURES[name].shown}" if curve and name != RATE else ""
                yield f"{prefix}{name}{end}", FIGURES[name], size.values.get(name)


LENS: Final = Lens(build, INSIDE, usage_of=_usage_of)
