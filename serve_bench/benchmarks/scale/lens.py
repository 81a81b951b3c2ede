"""The report on scale: sizes of a workload, metrics by their published names, growth.

Rule: an invalid result says so before any figure. An unknown value is left out, never 0: a node
without an answered request has no latency; a lost node enters no mean, maximum or total. Published
names are those of Ray's nightly benchmarks, a misspelt one included: what they call a thread is a
connection, and KB are 1024 bytes. Values that Ray published stand in a separate column.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from serve_bench.analysis.drift import fit_power
from serve_bench.analysis.statistics import (
    CENSORED,
    LATENCY,
    MAIN,
    Line,
    LowerBound,
    distribution,
    made_of,
    merged,
)
from serve_bench.benchmarks.scale.spec import GRAPHS
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import NodeFacts, TrialUsage
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Result, Trial
from serve_bench.view.charts import Chart
from serve_bench.view.csv import pick
from serve_bench.view.document import Detail, Finding, Later, Section
from serve_bench.view.figures import FACTORS, FIGURES, INSIDE, Value, declare, known_values, tier_of
from serve_bench.view.frame import (
    BARS,
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    line_chart,
    make_spec,
    make_table,
    table_section,
)
from serve_bench.view.inside import grouped_cpu
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import NIGHTLY, read_reference, scale_notes
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Page

KB: Final = 1024.0
Figures: TypeAlias = Mapping[str, float | None]

declare(
    ("connection_rate_mean", "requests/s", "requests/s of a connection, the mean of a node"),
    ("connection_rate_max", "requests/s", "requests/s of the fastest connection of a node"),
    ("received", "KB", "what a node received, in 1024 bytes"),
    ("received_rate", "KB/s", "what a node received in a second"),
    ("timeouts", "requests", "requests without an answer in time"),
    shown={"requests": ""},
)


def node_figures(node: NodeFacts) -> Figures:
    """Compute the figures of a node. A lost node has its failed requests alone."""
    errors = float(sum(node.failed.values()))
    if node.lost:
        return {"errors": errors}
    received, seconds, bounds = node.bytes_received, node.seconds, node.latency_lower_bounds
    cpu = grouped_cpu([node.usage or TrialUsage()], tier_of)
    return {
        MAIN: node.rate,
        **{"completed": float(node.completed), "errors": errors},
        "timeouts": float(node.failed.get("timeout", 0)),
        "connection_rate_mean": node.connection_rate_mean,
        "connection_rate_max": node.connection_rate_max,
        "received": None if received is None else received / KB,
        "received_rate": received / KB / seconds if received is not None and seconds else None,
        "cpu_http": cpu.get("HTTP"),
        "cpu_replicas": cpu.get("replicas"),
        **{
            f"latency_{name}": LowerBound(ns) if ns is not None and name in bounds else ns
            for name, ns in node.latency_ns.items()
        },
    }


def read_parts(trial: Trial, kind: str) -> Iterable[Figures]:
    """Return the figures of the parts of a trial: its nodes, its windows, or all its requests."""
    if kind == "nodes":
        return map(node_figures, trial.client.nodes)
    if kind == "windows":
        metric = trial.metrics.get(MAIN)
        return [{MAIN: rate} for rate in (metric and metric.windows) or ()]
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    known = distribution(answered, given_up) if answered.count or given_up.count else {}
    times = {f"latency_{name}": value for name, value in known.items()}
    return [{"completed": float(trial.completed_in_windows), **times}]


Published: TypeAlias = tuple[str, Callable[[Sequence[float]], float], str]
"""A published metric: which parts of a trial it reads, how it combines them, and which figure."""

SHARES: Final = (50, 75, 90, 99)
RATE: Final = "cluster_requests_per_s"
LOAD_METRICS: Final[Mapping[str, Published]] = {
    "per_thread_latency_avg_ms": ("nodes", statistics.fmean, "latency_mean"),
    "per_thread_latency_max_ms": ("nodes", max, "latency_max"),
    "per_thread_avg_tps": ("nodes", statistics.fmean, "connection_rate_mean"),
    "per_thread_max_tps": ("nodes", max, "connection_rate_max"),
    "per_node_avg_tps": ("nodes", statistics.fmean, MAIN),
    "per_node_avg_transfer_per_sec_KB": ("nodes", statistics.fmean, "received_rate"),
    "cluster_total_thoughput": ("nodes", sum, "completed"),
    "cluster_total_transfer_KB": ("nodes", sum, "received"),
    "cluster_total_timeout_requests": ("nodes", sum, "timeouts"),
    **{f"cluster_max_P{share}_latency_ms": ("nodes", max, f"latency_p{share}") for share in SHARES},
    "cluster_total_requests": ("requests", sum, "completed"),
    RATE: ("windows", statistics.fmean, MAIN),
    **{f"cluster_P{share}_latency_ms": ("requests", sum, f"latency_p{share}") for share in SHARES},
}
"""The 13 of single and multi in the published order, then our own: the count under its right name,
the rate of all nodes, and percentiles of all requests in place of maxima over nodes."""

HTTP: Final = "http_"
HANDLE_METRICS: Final[Mapping[str, Published]] = {
    "throughput_mean_tps": ("windows", statistics.fmean, MAIN),
    "throughput_std_tps": ("windows", statistics.pstdev, MAIN),
    "latency_mean_ms": ("requests", sum, "latency_mean"),
    "latency_std_ms": ("requests", sum, "latency_std"),
}
GRAPH_METRICS: Final = {
    f"{way}{name}": metric for way in ("", HTTP) for name, metric in HANDLE_METRICS.items()
}
"""Published for requests through a handle; names of those through HTTP begin with HTTP."""

PUBLISHED: Final = {**LOAD_METRICS, **GRAPH_METRICS}


def metric_names(line: Line) -> tuple[str, ...]:
    """Return the published names of a row; of a graph, by the load, those of rate or latency."""
    if line.cell.get("workload") not in GRAPHS:
        return tuple(LOAD_METRICS)
    way = "" if line.row.client == HANDLE else HTTP
    kind = "throughput" if line.row.requests_each is None else "latency"
    return tuple(name for name in GRAPH_METRICS if name.startswith(f"{way}{kind}"))


def _compute(name: str, factor: float, line: Line) -> Value | None:
    """Compute the mean over the launches in which a metric is known, with its std (ddof 1)."""
    kind, over, figure = PUBLISHED[name]
    launches: dict[int, float] = {}
    for trial in line.trials if name in metric_names(line) else ():
        values = [part.get(figure) for part in read_parts(trial, kind)]
        if numbers := [value for value in values if value is not None]:
            launches[trial.round] = made_of(over(numbers) * factor, numbers)
    if not launches:
        return None
    return Value(
        made_of(statistics.fmean(launches.values()), launches.values()),
        # ddof 1: the launches are a sample.
        std=statistics.stdev(launches.values()) if len(launches) > 1 else None,
        launches=launches,
        missing=len(line.keys) - len(launches) or None,
    )


for _name, _published in PUBLISHED.items():
    _figure = FIGURES[_published[-1]]
    _unit = _figure.shown or _figure.unit
    declare(
        (_name, _unit, f"as published: {_figure.meaning}", _name),
        compute=partial(_compute, _name, FACTORS.get((_figure.unit, _unit), 1.0)),
        shown=_figure.shown,
        better="lower" if _unit == "ms" else "higher",
    )

CURVE_METRICS: Final = [RATE, "latency_p50", "latency_p99"]
"""The figures of a curve, over the number of replicas. Its trials measure the following ones."""

for _name, _unit, _meaning, _short in (
    ("deploy_time", "s", "from the deployment of an app until all replicas are up", "deploy"),
    ("memory_per_replica", "MB", "memory of the process of a replica", "memory"),
    ("cpu_per_request", "us", "CPU of Serve over the completed requests", "CPU"),
    ("controller_loop", "ms", "mean time of a loop of Serve's controller", "loop"),
    ("teardown_time", "s", "from the removal of an app until all replicas are gone", "teardown"),
):
    CURVE_METRICS.append(_name)
    declare((_name, _unit, _meaning, _short), better="lower")

declare(("exponent", "1", "b of y = a n^b over n replicas, and its 95 % interval"), digits=3)
declare(("std_error", "1", "standard error of the exponent"))
declare(("factor", "", "a of y = a n^b over n replicas, in the unit of y"))
declare(("fitted", "", "sizes with a positive value, which are fitted", "sizes"))

ROWS: Final = make_spec(
    "Each size",
    f"{MAIN} launch_ratio latency_p50 latency_p99 deploy_time memory_per_replica cpu_per_request "
    "errors limit",
    "latency_p90 controller_loop teardown_time completed",
    row="size",
)
GROWTH: Final = make_spec(
    "Growth over the number of replicas n, like n^exponent",
    "exponent fitted",
    "std_error",
    row="quantity",
    notes=("A curve that bends has no one exponent: look at the charts.",),
)
NODES: Final = make_spec(
    "The load from each node; HTTP, replicas: their CPU",
    f"{MAIN} latency_p50 latency_p99 completed errors",
    "hostname connections cpu_http cpu_replicas",
    row="node",
)
INVALID: Final = "invalid: "
"""How the failure of a trial begins if too many of its requests failed."""


def build(page: Page) -> View:
    """Build the view of the sizes of a workload under each variant."""
    workload = page.result.run.asked.workload
    shown = [*map(_name_row, page.rows)]
    sizes = [*merge_sizes(shown)]
    nodes = [*(node for row in shown for node in _node_rows(row)), *_unloaded_nodes(page.result)]
    growths = [*_growth_points(sizes)] if workload == "curve" else []
    timed = [row for row in shown if row.line.row.requests_each is None]
    sections = [table_section("results", "Results", ROWS, [*map(_hide_rate, shown)], "headline")]
    if growths:
        cost = (make_table(GROWTH, growths), Later(partial(_draw_costs, sizes)))
        sections.append(Section("growth", "Cost per replica", cost, "table"))
    else:
        known = read_reference(NIGHTLY).get(workload, {}) if page.options.published else {}
        elsewhere = {name: Value(value) for name, value in known.items() if name in FIGURES}
        columns = [*sizes, *([ViewRow({}, elsewhere, "published elsewhere")] if elsewhere else [])]
        named = (Field(column.name, column.name, of="figure") for column in columns)
        fields = (Field("name", "figure"), Field("unit", detail=True), *named)
        notes = ("±: std over launches (ddof 1).",)
        spec = TableSpec("Metrics by their published names", fields, notes)
        metrics = [*_list_metrics(columns)] if any(row.values for row in sizes) else []
        sections.append(table_section("metrics", "Published metrics", spec, metrics))
    if workload not in GRAPHS:
        detail: Detail = "further" if growths else "table"
        sections.append(table_section("nodes", "Nodes", NODES, nodes, detail))
    return View(
        rows=shown,
        points=[*growths, *nodes],
        alarms=invalid_lines(shown)[:1],
        findings=(_describe_rates(timed, bool(growths)),),
        sections=sections,
        charts=tuple(chart_sections(timed)),
        definitions=scale_notes(workload) if page.options.published else (),
        title=f"serve-bench scale {workload}",
        lead=max(timed, key=lambda row: row.value(MAIN) or 0.0, default=None),
    )


def _list_metrics(columns: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """Yield a row for each published metric that is known, with a member for each column."""
    for name in PUBLISHED:
        values = {f"{name}.{row.name}": row.values[name] for row in columns if name in row.values}
        unit = FIGURES[name].shown or FIGURES[name].unit
        if values:
            yield ViewRow({"figure": name, "unit": unit}, values, name)


def _hide_rate(row: ViewRow) -> ViewRow:
    """Return the row without a throughput where requests follow one another (latency of graphs)."""
    hidden = () if row.line.row.requests_each is None else (MAIN, "launch_ratio")
    values = {name: value for name, value in row.values.items() if name not in hidden}
    return replace(row, values=values)


def _name_row(row: ViewRow) -> ViewRow:
    """Name the row by its size, `default, 8 replicas`. Raises FormatError."""
    if "num_replicas" not in row.dims:
        raise FormatError(f"the cell of {row.name} has no num_replicas")
    replicas, part = row.dims["num_replicas"], str(row.dims["row"]).partition(", ")[2]
    size = f"{row.dims['variant']}, {counted(replicas, 'replica')}"
    dims = {**row.dims, "size": size, "replicas": replicas}
    return replace(row, name=f"{size}, {part}" if part else size, dims=dims)


def merge_sizes(shown: Iterable[ViewRow]) -> Iterator[ViewRow]:
    """Yield one row per size: a graph has two, by handle and by HTTP, which are merged."""
    for name, of_size in groupby(shown, key=lambda row: str(row.dims["size"])):
        rows = list(of_size)
        values = {figure: value for row in rows for figure, value in row.values.items()}
        yield replace(rows[0], name=name, values=values)


def _node_rows(row: ViewRow) -> Iterator[ViewRow]:
    """Yield the nodes that loaded in each trial of a row; several may have an address."""
    for trial in row.trials:
        for node in trial.client.nodes:
            dims = {"point": "node", "variant": trial.variant, "launch": trial.round}
            dims |= {"lost": node.lost or None}
            dims |= pick(node, "node", "ip", "hostname", "connections")
            dims["replicas"] = row.dims["replicas"]
            warnings = [Finding(_describe_loss(node), "lost", "bad")] if node.lost else []
            if node.client_bound:
                warnings.append(Finding("the client was the limit", "client-bound", "doubt"))
            values, name = known_values(**node_figures(node)), f"{node.ip} {node.node[:6]}"
            yield ViewRow(dims, values, name, f"{row.name}, launch {trial.round}", (*warnings,))


def _describe_loss(node: NodeFacts) -> str:
    """Render `no word for 5 s; last heard 2.1 s before it was given up: 1,234 completed, ...`."""
    if (heard := node.last_heard) is None:
        return f"{node.lost}; never heard"
    done = f"{heard.completed:,} completed, {heard.failed:,} failed"
    return f"{node.lost}; last heard {heard.age_s:.1f} s before it was given up: {done}"


def _unloaded_nodes(result: Result) -> Iterator[ViewRow]:
    """Yield the nodes without a load and why: they had no healthy proxy to themselves."""
    for launch in result.launches:
        for proxy in launch.proved.proxies:
            if proxy.status == "HEALTHY" and not proxy.shared_with:
                continue
            why = proxy.why or f"its proxy is {proxy.status}"
            dims = {"point": "node", "launch": launch.round, "ip": proxy.node_ip, "lost": None}
            name = f"{proxy.node_ip} {proxy.node_id[:6]}"
            warning = Finding(why, "not loaded", "doubt")
            yield ViewRow(dims, {}, name, f"launch {launch.id}", (warning,))


def _usage_of(trial: Trial) -> TrialUsage:
    """Return the usage by which the limit is judged: that of HTTP loaded from one node."""
    # A verdict weighs the processes of one machine with the whole load, and does not know the
    # client of a handle.
    nodes = trial.client.nodes
    if trial.row.client == HANDLE or len(nodes) > 1 or MAIN not in trial.metrics:
        return TrialUsage()
    return (nodes[0].usage if nodes else None) or trial.usage


def _growth_points(sizes: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """Yield how each quantity of a curve grows under each variant."""
    for variant, group in groupby(sizes, key=lambda row: str(row.dims["variant"])):
        rows = list(group)
        for name in CURVE_METRICS:
            growing = [row for row in rows if name in row.values]
            seen = [(row.dims["replicas"], row.values[name].value) for row in growing]
            if seen:
                values = known_values(fitted=sum(value > 0 for _, value in seen))
                if (fit := fit_power(seen)) is not None:
                    values |= {"exponent": Value(fit.exponent, low=fit.low, high=fit.high)}
                    values |= known_values(std_error=fit.std_error, factor=fit.factor)
                dims = {"point": "growth", "variant": variant, "quantity": name}
                group_name = "" if len(rows) == len(sizes) else f"variant {variant}"
                yield ViewRow(dims, values, name.replace("_", " "), group_name)


def _draw_costs(sizes: Sequence[ViewRow]) -> Iterator[Chart]:
    placed = [row for row in sizes if row.dims["replicas"]]  # 0 has no place on its axis
    draw = partial(line_chart, rows=placed, x="replicas", series="variant", caption=BARS)
    for name in CURVE_METRICS:
        yield from draw(FIGURES[name].title, figures=(name,))


def invalid_lines(rows: Sequence[ViewRow]) -> list[str]:
    """List why the result is invalid: `INVALID, default, 8 replicas, launch 1: why`."""
    return [
        f"INVALID, {row.name}, launch {failure.round}: {failure.message.removeprefix(INVALID)}"
        for row in rows
        for failure in row.failures
        if failure.message.startswith(INVALID)
    ]


def _describe_rates(rows: Sequence[ViewRow], curve: bool) -> str:
    """Say what each row serves; for a curve only the best size and the largest of its variant."""
    named = [row for row in rows if MAIN in row.values]
    if curve and named:
        best = max(named, key=lambda row: row.values[MAIN].value)
        alike = [row for row in named if row.dims["variant"] == best.dims["variant"]]
        last = max(alike, key=lambda row: row.dims["replicas"])
        named = [best] if last is best else [best, last]
    words = [f"{row.name}: {describe_figures(row)}" for row in named]
    return "; ".join(words) or "Nothing was measured"


LENS: Final = Lens(build, figures=(*INSIDE, *PUBLISHED), usage_of=_usage_of)
