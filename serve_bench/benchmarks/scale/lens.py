"""How a scale run is looked at: sizes of a workload, metrics by their published names, growth.

Rule: an invalid result says so before any figure. What is not known is left out, never 0; what Ray
publishes stands in a column of its own, as published and not as measured here. A size is a point:
its metrics are means over launches, those of a curve are fitted over the number of replicas.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.statistics import MAIN, LowerBound
from serve_bench.benchmarks.scale.growth import FEWEST, fit_growth
from serve_bench.benchmarks.scale.metrics import (
    CLUSTER_NAMES,
    COSTS,
    HTTP,
    NODE_METRICS,
    RATE,
    expected_metrics,
    lost_words,
    mean_metrics,
    node_rows,
    nodes_of,
)
from serve_bench.benchmarks.scale.request import GRAPHS, invalid_share
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import failures, statuses_of
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import JsonObject, Result, Run, Trial, cell_slug
from serve_bench.view.blocks import latency_curve, listed, percentile_charts, section, sentence
from serve_bench.view.charts import Chart
from serve_bench.view.csv import json_of
from serve_bench.view.document import Block, Charts, Finding, Prose, ReportOptions, Section, Table
from serve_bench.view.figures import FIGURES, INSIDE, Value, declare, scale
from serve_bench.view.frame import Field, TableSpec, ViewRow, figure_table, line_chart, make_table
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.published import scale_notes, scale_published
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Page

declare("exponent", "1", "b of y = a n^b over n replicas, and its 95 % interval", digits=3)
declare("std_error", "1", "standard error of the exponent")
declare("factor", "", "a of y = a n^b over n replicas, in the unit of y")
declare("fitted", "", "sizes with a positive value, which are fitted", title="sizes")

ROWS: Final = TableSpec(
    "Throughput and latency",
    (
        Field("name", "size"),
        Field(MAIN, "throughput"),
        Field("launch_ratio", head="to the first"),
        Field("latency_p50"),
        Field("latency_p90", detail=True),
        Field("latency_p99"),
        Field("latency_max", detail=True),
        Field("completed", "requests"),
        Field("errors", "failed"),
    ),
    ("±: std (ddof 0) over the windows.",),
)
SEQUENTIAL: Final = TableSpec(
    "Requests one after the other",
    (
        Field("name", "size"),
        *(Field(f"latency_{name}") for name in ("mean", "std", "p50", "p90", "max")),
        Field("completed", "requests"),
        Field("errors", "failed"),
    ),
)
SIZES: Final = TableSpec(
    "Each size",
    (
        Field("name", "size"),
        Field(RATE, "throughput"),
        Field("latency_p50", detail=True),
        Field("latency_p99"),
        Field("deploy_time", "deploy"),
        Field("memory_per_replica", "memory"),
        Field("cpu_per_request", "CPU"),
        Field("controller_loop", "loop", detail=True),
        Field("teardown_time", "teardown", detail=True),
        Field("limit", "limited by"),
    ),
    ("Means over launches, ± their std (ddof 1) where there are several.",),
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
        Field("completed", "requests"),
        Field(MAIN, "throughput"),
        Field("latency_p50"),
        Field("latency_p99"),
        Field("errors", "failed"),
        Field("cpu_http", "proxy", head="CPU %", detail=True),
        Field("cpu_replicas", "replicas", head="CPU %", detail=True),
    ),
)
METRICS: Final = (
    "per_thread_*: a connection; cluster_total_thoughput, misspelt as published: a count; "
    "cluster_max_P*: the highest of the nodes' percentiles; cluster_P*: of all requests. ±: std "
    "over launches (ddof 1)."
)
QUANTITIES: Final = {
    **{RATE: "throughput", "latency_p50": "latency p50", "latency_p99": "latency p99"},
    **{name: FIGURES[name].title for name in COSTS},
}
"""What is followed over the number of replicas, and its title."""

LOG_Y: Final = 5.0
"""From so many times the least value on, an axis is logarithmic; on a narrower one the scatter of a
quantity that does not change would look like growth."""

BROKEN: Final = "figures below are of a broken run"


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The sizes of a workload under each variant."""
    sizes = _sizes_of(rows)
    points = [_size_point(size) for size in sizes]
    shown = [row for size in sizes for row in size]
    nodes = [node for row in shown for node in _nodes_of_row(row)]
    asked = result.run.suite.get("workload")
    workload = str(asked or (points[0].dims["workload"] if points else ""))
    growths = [*_growth_points(points)] if workload == "curve" else []
    sections = [*_results(shown, points, growths)]
    if workload != "curve" and any(point.values for point in points):
        beside = scale_published(workload) if options.published else None
        table = _metric_table(points, beside or {})
        sections.append(Section("metrics", "Published metrics", (table,), "table"))
    if options.published:
        prose = Prose(scale_notes(workload), "quiet", listed=True)
        sections.append(Section("published", "Published, not measured here", (prose,), "table"))
    unloaded = tuple(_unloaded_nodes(result)) if workload not in GRAPHS else ()
    blocks: list[Block] = [Prose(unloaded, "doubt", listed=True)] if unloaded else []
    blocks += [make_table(NODES, nodes)] if nodes else []
    sections += section("nodes", "Nodes", blocks, "further" if growths else "table")
    return View(
        rows=shown,
        points=[*points, *growths, *nodes],
        alarms=[sentence(line) for line in invalid_lines(shown)[:1]],
        findings=tuple(_findings(shown, points, growths, nodes)),
        sections=sections,
        charts=tuple(_charts(shown)),
        facts=tuple(_describe_request(result.run, workload)),
        title=f"serve-bench scale {workload}",
    )


# Sizes: the rows of a cell under a variant.


def _sizes_of(rows: Sequence[ViewRow]) -> list[list[ViewRow]]:
    """By variant in the order of the plan, then by replicas."""
    order = list(dict.fromkeys(row.dims["variant"] for row in rows))

    def place(row: ViewRow) -> tuple[int, int, str]:
        cell = _cell_of(row)
        return order.index(row.dims["variant"]), _replicas(cell), cell_slug(cell)

    ordered = sorted(rows, key=place)
    return [[*_name_rows(list(size))] for _, size in groupby(ordered, key=place)]


def _cell_of(row: ViewRow) -> JsonObject:
    assert row.entry is not None
    return row.entry.line.cell


def _replicas(cell: JsonObject) -> int:
    """Of each deployment. Raises FormatError where the cell does not say it."""
    if "num_replicas" not in cell:
        raise FormatError(f"cell {dict(cell)!r}: has no num_replicas")
    return int(cell["num_replicas"])


def _name_rows(size: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """The rows of a size, `default, 8 replicas`, with all their warnings. Those of a graph have the
    clients in common."""
    for row in size:
        replicas, part = _replicas(_cell_of(row)), str(row.dims["row"]).partition(", ")[2]
        title = f"{row.dims['variant']}, {counted(replicas, 'replica')}"
        yield replace(
            row,
            name=f"{title}, {part}" if len(size) > 1 else title,
            dims={**row.dims, "size": title, "replicas": replicas},
            warnings=tuple(_warnings(row)),
            tones={MAIN: "bad"} if any(map(_invalid_words, row.trials)) else {},
        )


def _launches(row: ViewRow) -> int:
    """As planned."""
    return 0 if row.entry is None else len(row.entry.line.keys)


def _invalid_words(trial: Trial) -> str:
    """`12 % of the requests failed or timed out (3,000 timed out): figures below are of a broken
    run`; empty where they are not."""
    counts = trial.counts
    share = invalid_share(counts.completed, counts.failed_total)
    if share is None and not trial.flags.get("invalid"):
        return ""
    failed = {name: count for name, count in counts.failed.items() if count}
    classes = failures(failed, statuses_of(trial))
    clause = f" ({classes})" if classes else ""
    if not counts.completed:
        return f"no request was completed{clause}: {BROKEN}"
    share = counts.failed_total / (counts.completed + counts.failed_total)
    digits = 0 if 0.0995 <= share < 0.995 else 1
    return f"{100 * share:.{digits}f} % of the requests failed or timed out{clause}: {BROKEN}"


def _says_nothing(row: ViewRow, warning: Warning) -> bool:
    """That a row is invalid says of its errors; of a graph's requests nothing rare is shown."""
    if warning.code == "few-samples":
        return row.dims.get("workload") in GRAPHS
    return warning.code == "errors" and any(
        trial.key == warning.key and _invalid_words(trial) for trial in row.trials
    )


def _warnings(row: ViewRow) -> Iterator[Finding]:
    """Why it is invalid, what broke off or was lost; what is missing, failed or is warned of."""
    assert row.entry is not None
    for trial in row.trials:
        about = f"launch {trial.round}" if _launches(row) > 1 else ""
        if why := _invalid_words(trial):
            yield Finding(why, "INVALID", "bad", about=about)
        if trial.flags.get("interrupted"):
            yield Finding("", "broken off", "doubt", about=about)
        for facts in nodes_of(trial):
            if facts.get("lost"):
                yield Finding(lost_words(facts), "lost", "bad", about=about)
    kept = [warning for warning in row.entry.warnings if not _says_nothing(row, warning)]
    yield from replace(row.entry, warnings=tuple(kept)).findings
    nodes = [facts for trial in row.trials for facts in nodes_of(trial)]
    bound = dict.fromkeys(facts["ip"] for facts in nodes if facts.get("client_bound"))
    if bound and not any(warning.code == "client-bound" for warning in kept):
        text = f"the client was the limit on node {', '.join(bound)}"
        yield Finding(text, "client-bound", "doubt")


def _size_point(size: Sequence[ViewRow]) -> ViewRow:
    """The metrics of a size, means over launches."""
    first, trials = size[0], [trial for row in size for trial in row.trials]
    cell, values = _cell_of(first), mean_metrics(trials, _launches(first))
    names = expected_metrics(cell.get("workload"))
    unknown = [
        name
        for name in (names if trials else ())
        if name not in values
        and (name not in COSTS or any(name in trial.metrics for trial in trials))
    ]
    loaded = {
        facts["node"] for trial in trials for facts in nodes_of(trial) if not facts.get("lost")
    }
    dims = {
        **{"point": "size", "workload": "unknown", **cell, "limit": first.dims["limit"]},
        **{"variant": first.dims["variant"], "replicas": first.dims["replicas"]},
        **{"unknown": ", ".join(unknown) or None, "nodes": len(loaded) or None},
    }
    values = {name: values[name] for name in names if name in values}
    warnings = first.warnings if len(size) == 1 else ()
    return ViewRow(dims, values, first.dims["size"], warnings=warnings, gap=first.gap)


def _nodes_of_row(row: ViewRow) -> Iterator[ViewRow]:
    for trial in row.trials:
        group = f"{row.name}, launch {trial.round}" if _launches(row) > 1 else row.name
        for node in node_rows(trial):
            dims = {**node.dims, "replicas": row.dims["replicas"]}
            yield replace(node, group=group, dims=dims)


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
    variants = dict.fromkeys(point.dims["variant"] for point in points)
    for variant in variants:
        for name, title in QUANTITIES.items():
            sizes = [
                (int(point.dims["replicas"]), point.values[name].value)
                for point in points
                if point.dims["variant"] == variant and name in point.values
            ]
            if not sizes:
                continue
            fit, usable = fit_growth(sizes), sum(value > 0 for _, value in sizes)
            words = fit.words if fit else f"too few sizes above 0, {FEWEST} are needed"
            dims = {"point": "growth", "variant": variant, "quantity": name, "in_words": words}
            values = {"fitted": Value(float(usable))}
            if fit is not None:
                values["exponent"] = Value(fit.exponent, low=fit.low, high=fit.high)
                values |= {"std_error": Value(fit.std_error), "factor": Value(fit.factor)}
            yield ViewRow(dims, values, title, f"variant {variant}" if len(variants) > 1 else "")


# In words.


def invalid_lines(rows: Sequence[ViewRow]) -> list[str]:
    """The lines that call the result invalid: `INVALID, default, 8 replicas, launch 1: why`."""
    found = [(row, finding) for row in rows for finding in row.warnings]
    return [
        f"{', '.join(filter(None, ('INVALID', row.name if rows[1:] else '', finding.about)))}: "
        f"{finding.text}"
        for row, finding in found
        if finding.code == "INVALID"
    ]


def _findings(
    rows: Sequence[ViewRow],
    points: Sequence[ViewRow],
    growths: Sequence[ViewRow],
    nodes: Sequence[ViewRow],
) -> Iterator[str]:
    """What the figures support: lost nodes first, then rates or growth."""
    lost = dict.fromkeys(node.dims["ip"] for node in nodes if node.dims["lost"])
    if lost:
        verb = "were" if len(lost) > 1 else "was"
        yield f"{counted(len(lost), 'node')} {verb} lost: {', '.join(lost)}."
    if not any(row.trials for row in rows):
        yield "Nothing was measured."
        return
    if growths:
        yield from _growth_words(points, growths)
        return
    first = rows[0].dims["variant"]
    parts = (
        [_size_words(point) for point in points if point.values],
        [
            f"{row.name}, limited by: {row.entry.limited.text}"
            for row in rows
            if row.entry is not None and row.entry.limited is not None
        ][:2],
        [
            f"{row.name} serves {row.text('launch_ratio')} times what {first} serves"
            for row in rows
            if "launch_ratio" in row.values and not _is_sequential(row)
        ],
    )
    yield from (sentence("; ".join(part)) for part in parts if part)


def _size_words(point: ViewRow) -> str:
    """Its rate and latency; of a graph through a handle, as published, and through HTTP."""
    if point.dims["workload"] in GRAPHS:
        parts = []
        for way, words in (("", "through a handle"), (HTTP, "through HTTP")):
            rate, time = f"{way}throughput_mean_tps", f"{way}latency_mean_ms"
            figures = [f"{point.text(rate)} requests/s"] if rate in point.values else []
            figures += [f"a mean latency of {point.text(time)} ms"] if time in point.values else []
            parts += [f"{listed(figures)} {words}"] if figures else []
        return f"{point.name}: {'; '.join(parts)}"
    nodes, (p50, p99) = point.dims["nodes"], (f"cluster_P{n}_latency_ms" for n in (50, 99))
    source = f" from {counted(nodes, 'node')}" if nodes else ""
    times = f" at p50 {point.text(p50)} ms, p99 {point.text(p99)} ms" if p50 in point.values else ""
    return f"{point.name}: {point.text(RATE)} requests/s{source}{times}"


def _growth_words(points: Sequence[ViewRow], growths: Sequence[ViewRow]) -> Iterator[str]:
    """The size of a curve with the most requests/s beside the largest of its variant, and what
    costs more with more replicas, of the first variants."""
    variants = list(dict.fromkeys(point.dims["variant"] for point in points))
    rated = [point for point in points if RATE in point.values]
    if rated:
        best = max(rated, key=lambda point: point.values[RATE].value)
        last = [point for point in rated if point.dims["variant"] == best.dims["variant"]][-1]
        name = best.name if variants[1:] else counted(best.dims["replicas"], "replica")
        verb = "serves" if best.dims["replicas"] == 1 else "serve"
        tail = f"; {counted(last.dims['replicas'], 'replica')} serve {last.text(RATE)}"
        tail = "" if last is best else tail
        yield sentence(f"{name} {verb} most, {best.text(RATE)} requests/s{tail}")
    for variant in variants[:2]:
        costs = [
            _cost_words(growth, points)
            for growth in growths
            if growth.dims["variant"] == variant
            and growth.dims["quantity"] in ("deploy_time", "memory_per_replica", "controller_loop")
            and "exponent" in growth.values
            and not growth.dims["in_words"].startswith("unknown")
        ]
        name = f"{variant}: " if variants[1:] else "With n replicas, "
        yield from [sentence(f"{name}{'; '.join(costs)}")] if costs else []


def _cost_words(growth: ViewRow, points: Sequence[ViewRow]) -> str:
    """`memory per replica falls slowly (94.27 to 90.99 MB; exponent -0.032 (-0.049 to -0.016))`."""
    name, variant = growth.dims["quantity"], growth.dims["variant"]
    sizes = [point for point in points if point.dims["variant"] == variant and name in point.values]
    ends = " to ".join(sizes[end].text(name) for end in (0, -1))
    figures = f"{ends} {FIGURES[name].shown}; exponent {growth.text('exponent')}"
    return f"{growth.name} {growth.dims['in_words']} ({figures})"


ECHO: Final = (
    "echoes through serve.batch (max_batch_size {max_batch_size}, batch_wait_timeout_s "
    "{batch_wait_timeout_s})"
)
WORKLOADS: Final = {
    "single": f"one deployment that {ECHO}; replicas: {{replicas}}",
    "multi": "{deployments} deployments; a request hops to a deployment drawn anew until {hops} "
    "calls are nested; replicas of each: {replicas}",
    "ensemble": "{size} deployments, the i-th adds i, and one that sums their answers; replicas of "
    "each: {replicas}",
    "chain": "{size} deployments in a row, each adds 1; replicas of each: {replicas}",
    "curve": f"one deployment that {ECHO}; replicas, one size after the other: {{replicas}}",
}


def _describe_request(run: Run, workload: str) -> Iterator[tuple[str, str]]:
    """The workload, the load and the cluster in words."""
    suite = defaultdict(lambda: "?", {name: _setting(run.suite[name]) for name in run.suite})
    yield workload, WORKLOADS.get(workload, workload).format_map(suite)
    load = "{connections} connections from every node to its healthy proxy"
    if workload in GRAPHS:
        load = (
            "{clients} clients, through handles and then through HTTP, for some time and then "
            "{requests_each} requests of each"
        )
    timing = "{windows} x {window_s} s after {warmup_s} s of warm-up; launches: {launches}"
    yield "load", f"{load}; {timing}".format_map(suite)
    address, raylets = run.suite.get("address"), int(run.suite.get("nodes") or 1)
    if address:
        yield "cluster", f"the one at {address}, left as it was"
    elif raylets > 1:
        yield "cluster", f"started for each launch, {raylets} raylets on one machine"


def _setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unloaded_nodes(result: Result) -> Iterable[str]:
    """The nodes that no load came from: those that had no healthy proxy of their own, and why."""
    lines: dict[str, None] = {}
    for launch in result.launches:
        for proxy in launch.proof.get("proxies", ()):
            if proxy["status"] == "HEALTHY" and not proxy.get("shared_with"):
                continue
            node = f"node {proxy['node_ip']} {proxy['node_id'][:6]}"
            which = f"{node}, launch {launch.id}" if len(result.launches) > 1 else node
            why = proxy.get("why") or f"its proxy is {proxy['status']}"
            lines[f"{which}: not loaded: {why}"] = None
    return lines


# Tables and charts.


def _results(
    rows: Sequence[ViewRow], points: Sequence[ViewRow], growths: Sequence[ViewRow]
) -> Iterator[Section]:
    """Of a graph the loads for some time, then those of requests one after the other: these make no
    throughput, and nothing rare is shown of them."""
    tables = [
        make_table(spec, shown)
        for spec, sequential in ((ROWS, False), (SEQUENTIAL, True))
        if (shown := [row for row in rows if _is_sequential(row) is sequential])
    ]
    tables = [make_table(SIZES, points)] if growths else tables
    if tables:
        yield Section("results", "Results", tuple(tables), "headline")
    if growths:
        charts = Charts(partial(_growth_charts, points, growths))
        blocks = (make_table(GROWTH, growths), charts)
        yield Section("growth", "Cost per replica", blocks, "table")


def _is_sequential(row: ViewRow) -> bool:
    return row.entry is not None and row.entry.line.row.requests_each is not None


def _metric_table(points: Sequence[ViewRow], published: Mapping[str, float]) -> Table:
    """A line for each published metric, a column for each size; of a graph through a handle, then
    through HTTP. Ours come last."""
    beside = {name: Value(value) for name, value in published.items() if name in FIGURES}
    workload = points[0].dims["workload"]

    def group(name: str) -> str:
        way = "HTTP" if name.startswith(HTTP) else "a handle"
        return f"through {way}" if workload in GRAPHS else ""

    return figure_table(
        "Metrics by their published names",
        [*points, *([ViewRow({}, beside, "published elsewhere")] if beside else [])],
        expected_metrics(workload),
        () if workload in GRAPHS else (METRICS,),
        group,
    )


def _charts(rows: Sequence[ViewRow]) -> Iterator[Section]:
    yield from chart_sections([row for row in rows if not _is_sequential(row)])
    sequential = [row for row in rows if _is_sequential(row)]
    curves = {row.name: curve for row in sequential if (curve := latency_curve(row.trials))}
    charts = Charts(partial(percentile_charts, SEQUENTIAL.caption, curves))
    yield from section("sequential", SEQUENTIAL.caption, [charts] if curves else [])


def _growth_charts(points: Sequence[ViewRow], growths: Sequence[ViewRow]) -> Iterator[Chart]:
    """Each quantity of a curve over the number of replicas, with the exponents of its fits."""
    for name, title in QUANTITIES.items():
        fits = [
            f"{growth.group or growth.name}: n^{growth.text('exponent')}, {growth.dims['in_words']}"
            for growth in growths
            if growth.dims["quantity"] == name and "exponent" in growth.values
        ]
        caption = f"{'; '.join(fits)}." if fits else "Too few sizes for an exponent."
        values = [value for point in points if (value := point.value(name) or 0) > 0]
        yield from line_chart(
            f"{title[:1].upper()}{title[1:]}",
            points,
            "replicas",
            (name,),
            "variant",
            caption=caption,
            log_y=bool(values) and max(values) >= LOG_Y * min(values),
        )


# The file of Ray's release tooling.


def scale_perf_metrics(result: Result) -> str:
    """The metrics as the text of that JSON file, means over launches.

    The first variant's bear exactly the published names (`per_thread_latency_avg_ms`), those of the
    others have the variant before them. A curve publishes none; its names hold the replicas. The
    tooling knows the types THROUGHPUT and LATENCY alone: counts are called THROUGHPUT, memory, CPU
    and times of a curve LATENCY. What is not known has no entry and is named under `not_told`; what
    is known to be higher, under `lower_bounds`. These, `not_measured` and `invalid` are keys that
    the tooling does not read.
    """
    view = look(result, ReportOptions(), LENS).view
    metrics, not_told, lower_bounds = [], [], []
    points = [point for point in view.points if point.dims["point"] == "size"]
    for point in points:
        variant, unknown = point.dims["variant"], (point.dims["unknown"] or "").split(", ")
        prefix = "" if variant == points[0].dims["variant"] else f"{variant}_"
        prefix = re.sub(r"[^A-Za-z0-9]+", "_", prefix)
        for name, full in _perf_names(point):
            figure, value = FIGURES[name], point.values.get(name)
            if value is not None:
                metrics.append(
                    {
                        "perf_metric_name": f"{prefix}{full}",
                        "perf_metric_value": value.value * scale(figure.unit, figure.shown),
                        "perf_metric_type": "LATENCY" if figure.better == "lower" else "THROUGHPUT",
                    }
                )
                lower_bounds += [f"{prefix}{full}"] if isinstance(value.value, LowerBound) else []
            elif name in unknown:
                not_told.append(f"{prefix}{full}")
    return json_of(
        {
            "perf_metrics": metrics,
            "not_told": not_told,
            "lower_bounds": lower_bounds,
            "not_measured": [planned.key for planned in result.missing],
            "invalid": invalid_lines(view.rows),
        }
    )


def _perf_names(point: ViewRow) -> Iterator[tuple[str, str]]:
    """The metrics of a size by their names; those of a curve with the replicas and the unit."""
    names, before = expected_metrics(point.dims["workload"]), f"replicas_{point.dims['replicas']}"
    if point.dims["workload"] != "curve":
        yield from zip(names, names, strict=True)
        return
    yield RATE, f"{before}_{RATE}"
    for name in names[len(NODE_METRICS) + len(CLUSTER_NAMES) :]:
        yield name, f"{before}_{name}_{FIGURES[name].shown}"


LENS: Final = Lens(build, INSIDE, ignored=_says_nothing, usage_of=_usage_of)
