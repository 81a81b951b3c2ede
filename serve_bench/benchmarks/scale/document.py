"""What a scale run says: sizes and variants, metrics by their published names, nodes, growth.

Rule: an invalid result says so before any figure. What is not known is `-`, never 0; what Ray
publishes stands in a column of its own, as published and not as measured here. A point
of a chart is a figure of a size over its launches, and its bar their lowest and highest; lines only
join sizes that were measured. Values that differ much stand on a log axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import LATENCY, MAIN, Line
from serve_bench.analysis.verdict import prevailing
from serve_bench.benchmarks.scale.figures import HTTP, QUANTITIES, Quantity, ScaleFigure
from serve_bench.benchmarks.scale.growth import FEWEST, Grown
from serve_bench.benchmarks.scale.nodes import ScaleNode, cpu_of
from serve_bench.benchmarks.scale.request import AS_IT_IS
from serve_bench.benchmarks.scale.summary import (
    RATE,
    RowCpu,
    ScaleSize,
    ScaleSummary,
    scale_summary,
    short_label,
    usages_of,
)
from serve_bench.core.figures import counted
from serve_bench.core.result import Result
from serve_bench.view import drawn as charts
from serve_bench.view.about_run import method, run_document
from serve_bench.view.blocks import (
    NOTHING,
    Fields,
    count,
    cpu_charts,
    doubted,
    errors,
    gaps,
    host_percent,
    latency_curve,
    limit_note,
    listed,
    percent,
    percentile_charts,
    plain,
    rate,
    section,
    sentence,
    share,
    table_of,
    whole_run,
)
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Document,
    Finding,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    Text,
    sentences,
)
from serve_bench.view.drawn import LinePoint, Point
from serve_bench.view.published import scale_notes, scale_published
from serve_bench.view.texts import bounded_number, decimals, latency, limited_text, number, ratio

DETAILS: Final = ("latency_p50", "controller_loop", "teardown_time")
"""Quantities of a curve that go first where its table is too wide."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a scale run says, with what Ray publishes in a column of its own, if wanted."""
    summary = scale_summary(result)
    return run_document(
        result,
        options.where,
        title=f"serve-bench scale {summary.workload}",
        facts=(*_request(summary), *_variants(summary)),
        findings=_findings(summary),
        doubts=_doubts(summary),
        sections=_sections(result, summary, options.published),
    )


def _request(summary: ScaleSummary) -> Iterator[tuple[str, str]]:
    suite, workload = summary.run.suite, summary.workload

    def value(name: str) -> str:
        setting = suite.get(name)
        if isinstance(setting, list | tuple):
            return ", ".join(f"{one:,}" for one in setting)
        return f"{setting:,.6g}" if isinstance(setting, int | float) else "?"

    each = f"{value('replicas')} replica{'' if value('replicas') == '1' else 's'}"
    echo = (
        f"echoes through serve.batch (max_batch_size {value('max_batch_size')}, "
        f"batch_wait_timeout_s {value('batch_wait_timeout_s')})"
    )
    words = {
        "single": f"one deployment of {each} that {echo}",
        "multi": f"{value('deployments')} deployments of {each} each; a request hops to a "
        f"deployment drawn anew until {value('hops')} calls are nested",
        "ensemble": f"{value('size')} deployments, the i-th adds i, and one that sums their "
        f"answers; {each} of each",
        "chain": f"{value('size')} deployments in a row, each adds 1; {each} of each",
        "curve": f"one deployment that {echo}, with {each}, one size after the other",
    }
    yield workload, words.get(workload, workload)
    launches = int(suite.get("launches") or 1)
    many = "" if suite.get("windows") == 1 else "s"
    windows = f"{value('windows')} window{many} of {value('window_s')} s"
    warmup = f"after {value('warmup_s')} s of warm-up"
    several = f"; {launches} launches" if launches > 1 else ""
    if summary.graph:
        load = (
            f"{value('clients')} clients, through handles and then through HTTP; "
            f"throughput: {windows} {warmup}; latency: {value('requests_each')} requests of each "
            f"client, one after the other"
        )
    else:
        load = (
            "from every node with a healthy proxy, against that proxy: "
            f"{value('connections')} connections each; {windows} {warmup}"
        )
    yield "load", load + several
    address, nodes = suite.get("address"), int(suite.get("nodes") or 1)
    if address:
        yield "cluster", f"the one at {address}, left as it was"
    elif nodes > 1:
        yield "cluster", f"started for each launch, {nodes} raylets on one machine"


def _variants(summary: ScaleSummary) -> Iterator[tuple[str, str]]:
    for part in summary.variants:
        flags = " ".join(part.env) or "no flags"
        flags = "the flags that the cluster has" if part.name == AS_IT_IS else flags
        yield f"variant {part.name}", "; ".join(filter(None, (flags, part.engaged)))


def _doubts(summary: ScaleSummary) -> Iterator[Finding]:
    yield from sentences(summary.invalid[1:], "bad")
    yield from whole_run(summary.warnings, summary.failures)
    for part in summary.variants:
        yield from whole_run(part.warnings, part.failures)
        yield from sentences(part.unloaded, "doubt")


def _findings(summary: ScaleSummary) -> Iterator[Finding]:
    """What the figures support: invalid results and gaps first, then rates or growth."""
    yield from sentences(map(sentence, summary.invalid[:1]), "bad")
    yield from sentences(_results_in_words(summary))


def _results_in_words(summary: ScaleSummary) -> Iterator[str]:
    sizes = summary.sizes
    struck = [*summary.failures, *(one for part in summary.variants for one in part.failures)]
    struck += [one for size in sizes for one in size.failures]
    messages = [one.message for one in struck]
    messages += [f"node {one.ip} was lost: {one.lost}" for size in sizes for one in size.lost]
    yield from gaps(sum(one.gap is not None for one in sizes), len(sizes), messages, "size")
    if not any(one.trials for one in sizes):
        yield "Nothing was measured."
        return
    if summary.curve:
        yield from _best_size(summary)
        yield from _growths(summary)
    elif summary.graph:
        yield from _ways(summary)
    else:
        yield from _rates(summary)
    yield from doubted([one.warnings for one in sizes], summary.warnings, "size")


def _rated(summary: ScaleSummary) -> list[tuple[ScaleSize, float]]:
    return [(one, mean) for one in summary.sizes if (mean := one.mean(RATE)) is not None]


def _rates(summary: ScaleSummary) -> Iterator[str]:
    """Of single and multi: requests/s of all nodes under each variant, and to the first."""
    rated = _rated(summary)
    words = []
    for size, mean in rated:
        nodes = len({node.node for node in size.nodes if node.lost is None})
        source = f" from {counted(nodes, 'node')}" if nodes else ""
        p50, p99 = (size.mean(f"cluster_P{one}_latency_ms") for one in (50, 99))
        half = "" if p50 is None else f" at p50 {latency(p50)} ms"
        tail = "" if p99 is None else f", p99 {latency(p99)} ms"
        words.append(f"{size.title}: {number(mean)} requests/s{source}{half}{tail}")
    if words:
        yield sentence("; ".join(words))
    limits = [f"{size.title}, {size.limits[0]}" for size, _ in rated if size.limits]
    if limits:
        yield sentence("; ".join(limits[:2]))
    ratios = [
        f"{size.variant} serves {line.ratio:.2f} times what {summary.variants[0].name} serves"
        for size, _ in rated
        for line in size.lines[:1]
        if line.ratio is not None
    ]
    if ratios:
        yield sentence("; ".join(ratios))


def _ways(summary: ScaleSummary) -> Iterator[str]:
    """Of ensemble and chain: through a handle, as published, and through HTTP."""
    for size in summary.sizes:
        parts = []
        for way, words in (("", "through a handle"), (HTTP, "through HTTP")):
            mean, time_ms = (
                size.mean(way + name) for name in ("throughput_mean_tps", "latency_mean_ms")
            )
            figures = [] if mean is None else [f"{number(mean)} requests/s"]
            figures += [] if time_ms is None else [f"a mean latency of {latency(time_ms)} ms"]
            parts += [f"{listed(figures)} {words}"] if figures else []
        if parts:
            yield sentence(f"{size.title}: {'; '.join(parts)}")


def _best_size(summary: ScaleSummary) -> Iterator[str]:
    """Of a curve the size with the most requests/s, beside the largest of its variant."""
    rated = _rated(summary)
    if not rated:
        return
    best, most = max(rated, key=lambda pair: pair[1])
    own = [one for one in rated if one[0].variant == best.variant]
    last, mean = max(own, key=lambda pair: pair[0].replicas)
    name = best.title if len(summary.variants) > 1 else counted(best.replicas, "replica")
    verb = "serves" if best.replicas == 1 else "serve"
    tail = "" if last is best else f"; {counted(last.replicas, 'replica')} serve {number(mean)}"
    yield sentence(f"{name} {verb} most, {number(most)} requests/s{tail}")


def _growths(summary: ScaleSummary) -> Iterator[str]:
    """What grows with the number of replicas, of the first variants."""
    for part in summary.variants[:2]:
        words = []
        for one in part.grown:
            costs = one.quantity.name in ("deploy_time", "memory_per_replica", "controller_loop")
            if costs and one.fit is not None and one.fit.unknown is None:
                ends = " to ".join(figure_text(one.points[at][1]) for at in (0, -1))
                figures = f"{ends} {one.quantity.unit}; exponent {one.fit.text}"
                words.append(f"{one.quantity.title} {one.fit.words} ({figures})")
        if words:
            name = f"{part.name}: " if len(summary.variants) > 1 else "With n replicas, "
            yield sentence(f"{name}{'; '.join(words)}")


def _sections(result: Result, summary: ScaleSummary, published: bool) -> Iterator[Section]:
    beside = (scale_published(summary.workload) or {}) if published else {}
    notes = scale_notes(summary.workload) if published else ()
    measured = any(one.trials for one in summary.sizes)

    def drawn(make: Callable[[ScaleSummary], Iterator[Chart]]) -> Sequence[Block]:
        return [Charts(partial(make, summary))] if measured else []

    prose = [Prose(notes, "quiet", listed=True)] if notes else []
    yield from section("results", "Results", _results(summary), "headline")
    yield from section("growth", "Cost per replica", _growth(summary), "table")
    yield from section("metrics", "Published metrics", _metrics(summary, beside), "table")
    yield from section("published", "Published, not measured here", prose, "table")
    yield from section("throughput", "Throughput", drawn(rate_charts))
    yield from section("latency", "Latency", drawn(latency_charts))
    yield from section("nodes", "Nodes", _nodes(summary), "further" if summary.curve else "table")
    cpu = (*_inside(summary), *drawn(usage_charts))
    yield from section("cpu", "Limits by row", cpu, "table")
    yield method(_as_planned(result))


def _as_planned(result: Result) -> Result:
    """The run with the rows of its trials as they were planned: a trial from several nodes has the
    connections of all of them, and would be a row beside the planned one."""
    rows = {planned.key: planned.row for planned in result.run.plan}
    trials = tuple(replace(one, row=rows.get(one.key, one.row)) for one in result.trials)
    return replace(result, trials=trials)


def _results(summary: ScaleSummary) -> Iterator[Block]:
    if not summary.sizes:
        yield Prose(("Nothing was planned.",), "doubt")
        return
    yield _curve_table(summary) if summary.curve else _sizes_table(summary)


def figure_text(figure: ScaleFigure) -> str:
    """The mean of a metric: counts whole, times with three digits, else four."""
    if figure.mean is None:
        return NOTHING.text
    if figure.unit == "requests":
        return f"{figure.mean:,.0f}"
    return bounded_number(figure.mean, 3 if figure.unit == "ms" else 4)


def _measured(figure: ScaleFigure | None) -> Number:
    """A metric with its spread over launches, where there are several, with as many decimals."""
    if figure is None or figure.mean is None:
        return NOTHING
    spread = ""
    if figure.std is not None:
        digits = (
            0 if figure.unit == "requests" else decimals(figure.mean, 4 - (figure.unit == "ms"))
        )
        spread = f" ± {figure.std:,.{digits}f}"
    return Number(figure_text(figure) + spread, figure.mean)


def _by_name(summary: ScaleSummary, variant: str) -> str:
    return f"variant {variant}" if len(summary.variants) > 1 else ""


SizeLine: TypeAlias = tuple[ScaleSize, Line]


def _percentile(name: str) -> tuple[Column, Callable[[SizeLine], Cell]]:
    """Of the latency of a row. Nothing rare is shown of few requests, one after the other."""

    def cell(row: SizeLine) -> Cell:
        rare = name == "p99" and row[1].row.requests_each is not None
        return NOTHING if rare else share(row[1].distributions.get(LATENCY), name)

    return (Column(name, "ms", detail=name in ("p90", "max")), cell)


def _sizes_table(summary: ScaleSummary) -> Table:
    """A row for each size under each variant, of a graph for each of its rows; doubts under the
    last of a size."""
    graph, first = summary.graph, summary.variants[0].name
    base = first if len(summary.variants) > 1 else None
    rows = [(size, line) for size in summary.sizes for line in size.lines]
    last = {id(size): line for size, line in rows}
    label: Fields[SizeLine] = (
        (Column("row", number=False), lambda row: short_label(row[1].row.label)),
    )
    fields: Fields[SizeLine] = (
        (Column("variant", number=False), lambda row: row[0].variant),
        (Column("replicas", detail=True), lambda row: count(row[0].replicas)),
        *(label if graph else ()),
        (Column("throughput", "requests/s"), lambda row: _rate(*row)),
        (Column("ratio", f"to {first}"), lambda row: ratio(row[1], base) if base else "-"),
        *map(_percentile, ("p50", "p90", "p99", "max") if graph else ("p50", "p99")),
        (Column("requests"), lambda row: count(row[1].completed) if row[1].trials else NOTHING),
        (Column("failed"), lambda row: errors(row[1].failed) if row[1].trials else NOTHING),
    )
    launches = " of all launches" if summary.several_launches else ""
    measured = any(line.trials for _, line in rows)
    return table_of(
        "Each row" if graph else "Each size" if len(rows) > 1 else "Throughput and latency",
        fields,
        rows,
        (f"±: std (ddof 0) over the windows{launches}",) if measured else (),
        doubts=lambda row: row[0].findings if last[id(row[0])] is row[1] else (),
        about=lambda row: row[0].title,
    )


def _rate(size: ScaleSize, line: Line) -> Number:
    """Of a row that time ends: requests one after the other make no throughput."""
    if line.row.requests_each is not None:
        return NOTHING
    return rate(line.spreads.get(MAIN), "bad" if size.invalid else "plain")


def _curve_table(summary: ScaleSummary) -> Table:

    def of(one: Quantity) -> tuple[Column, Callable[[ScaleSize], Cell]]:
        column = Column(one.short, one.unit, detail=one.name in DETAILS)
        return (column, lambda size: _measured(size.figures.get(one.figure)))

    return table_of(
        "Each size",
        ((Column("replicas"), lambda size: count(size.replicas)), *map(of, QUANTITIES)),
        summary.sizes,
        ("means over launches, ± their std (ddof 1)",) if summary.several_launches else (),
        doubts=lambda size: size.findings,
        group=lambda size: _by_name(summary, size.variant),
        about=lambda size: size.title,
    )


def _growth(summary: ScaleSummary) -> Iterator[Block]:
    """How each quantity grows with the number of replicas n: the exponent with its interval."""
    rows = tuple(
        TableRow(_grown(one), group=_by_name(summary, part.name))
        for part in summary.variants
        for one in part.grown
    )
    if not rows:
        return
    columns = (
        Column("n: replicas", number=False),
        Column("exponent"),
        Column("95 %"),
        Column("sizes", detail=True),
        Column("in words", number=False),
    )
    notes = (
        "±: standard error; 95 %: interval, which takes the residuals as chance; a curve that bends"
        " has no one exponent: look at the charts",
    )
    yield Table("Growth over the number of replicas n", columns, rows, notes)
    yield Charts(partial(growth_charts, summary))


def _grown(grown: Grown) -> tuple[Cell, ...]:
    fit, title = grown.fit, grown.quantity.title
    if fit is None:
        few = Text(f"too few sizes above 0, {FEWEST} are needed", "doubt")
        return (title, NOTHING, NOTHING, count(grown.usable), few)
    interval = f"{fit.low:.2f} to {fit.high:.2f}"
    return (title, Number(fit.text, fit.exponent), interval, count(fit.sizes), fit.words)


def _metrics(summary: ScaleSummary, published: Mapping[str, Any]) -> Iterator[Table]:
    """A row for each published metric, a column for each size and variant; of a graph through a
    handle, then through HTTP. Ours come last."""
    sizes = summary.sizes
    if summary.curve or not any(one.trials for one in sizes):
        return
    several = len({one.replicas for one in sizes}) > 1
    units = {name: figure.unit for one in sizes for name, figure in one.figures.items()}

    def of(size: ScaleSize) -> tuple[Column, Callable[[str], Cell]]:
        unit = counted(size.replicas, "replica") if several else ""
        column = Column(size.variant, unit)
        return (column, lambda name: _measured(size.figures.get(name)))

    fields: Fields[str] = (
        (Column("metric", number=False), lambda name: name),
        (Column("unit", number=False, detail=True), lambda name: units[name]),
        *map(of, sizes),
        (
            Column("published", "elsewhere"),
            lambda name: Text(f"{published[name]:,}", "quiet") if name in published else "-",
        ),
    )
    note = (
        "per_thread_*: a connection; cluster_total_thoughput, misspelt as published: a count; "
        "cluster_max_P*: the highest of the nodes' percentiles; cluster_P*: of all requests"
    )

    def way(name: str) -> str:
        return "through HTTP" if name.startswith(HTTP) else "through a handle"

    yield table_of(
        "Metrics by their published names",
        fields,
        units,
        () if summary.graph else (note,),
        group=way if summary.graph else lambda _: "",
    )


SizeNode: TypeAlias = tuple[ScaleSize, ScaleNode]


def _node_percentile(name: str) -> tuple[Column, Callable[[SizeNode], Cell]]:
    def cell(row: SizeNode) -> Number:
        value = row[1].latency_ms.get(name)
        return NOTHING if value is None else Number(latency(value), value)

    return (Column(name, "ms"), cell)


def _node_cpu(name: str) -> tuple[Column, Callable[[SizeNode], Cell]]:
    """Of all processes of a group on the node."""

    def cell(row: SizeNode) -> Number:
        cpu = cpu_of([row[1].usage])
        return percent(None if cpu is None else cpu.groups.get(name))

    return (Column(name, "CPU %", detail=True), cell)


NODE_FIELDS: Final[Fields[SizeNode]] = (
    (Column("node", number=False), lambda row: node_name(row[1], row[0])),
    (Column("hostname", number=False, detail=True), lambda row: row[1].hostname or "-"),
    (Column("connections", detail=True), lambda row: count(row[1].connections)),
    (Column("requests"), lambda row: NOTHING if row[1].lost else count(row[1].completed)),
    (Column("throughput", "requests/s"), lambda row: plain(row[1].rate)),
    *map(_node_percentile, ("p50", "p99")),
    (Column("failed"), lambda row: errors(row[1].failed)),
    *map(_node_cpu, ("proxy", "replicas")),
)


def _nodes(summary: ScaleSummary) -> Iterator[Block]:
    rows = [(size, node) for size in summary.sizes for node in size.nodes]
    if not rows:
        return

    def group(row: SizeNode) -> str:
        launch = f", launch {row[1].launch}" if len(row[0].launches) > 1 else ""
        return f"{row[0].title}{launch}"

    def lost(row: SizeNode) -> Sequence[Finding]:
        why = row[1].lost
        return () if why is None else (Finding(why, "lost", "bad"),)

    yield table_of("The load from each node", NODE_FIELDS, rows, doubts=lost, group=group)
    yield Charts(partial(node_charts, summary))


def _inside(summary: ScaleSummary) -> Iterator[Block]:
    """CPU of each row that was sampled on one machine, and what limited it."""

    def group(name: str) -> tuple[Column, Callable[[RowCpu], Cell]]:
        column = Column(name, "CPU %", detail=name not in ("proxy", "replicas"))
        return (column, lambda row: percent(row.cpu.groups.get(name)))

    fields: Fields[RowCpu] = (
        (Column("row", number=False), lambda row: row_name(summary, row.size, row.line)),
        *map(group, ("proxy", "replicas")),
        (
            Column("busiest", "CPU %", detail=True),
            lambda row: percent(row.cpu.busiest.get("replicas")),
        ),
        *map(group, ("controller", "others")),
        (Column("host", "CPU %"), lambda row: host_percent(row.cpu)),
        (
            Column("limited by", number=False),
            lambda row: limited_text(row.verdicts) if row.verdicts else "-",
        ),
    )
    note = "CPU: % of a core; busiest: of the replicas; host: all that runs there"
    if summary.sampled:
        yield table_of("CPU by process", fields, summary.sampled, (note,))


LOG_Y: Final = 5.0
"""From so many times the least value on, an axis is logarithmic; on a narrower one the scatter of a
quantity that does not change would look like growth."""

_PANELS: Final[Mapping[str, Mapping[str, str]]] = {
    "Throughput": {"throughput": ""},
    "Latency": {"latency_p50": "p50", "latency_p99": "p99"},
    "Deploy time": {"deploy_time": ""},
    "Memory of a replica": {"memory_per_replica": ""},
    "CPU of a request": {"cpu_per_request": ""},
    "The controller's loop": {"controller_loop": ""},
    "Teardown time": {"teardown_time": ""},
}
"""Quantities of a curve that share a chart, and what each is called in it."""


def row_name(summary: ScaleSummary, size: ScaleSize, line: Line) -> str:
    """What tells a row from the others of the run."""
    names = [size.variant] if len(summary.variants) > 1 else []
    if len({one.replicas for one in summary.sizes}) > 1:
        names.append(counted(size.replicas, "replica"))
    names += [short_label(line.row.label)] if len(size.lines) > 1 else []
    return ", ".join(names) or size.variant


def node_name(node: ScaleNode, size: ScaleSize) -> str:
    """A node by its address; where several have one, with the beginning of its id."""
    same = (one for one in size.nodes if (one.launch, one.ip) == (node.launch, node.ip))
    others = [one.node for one in same if one.node != node.node]
    return f"{node.ip} {node.node[:6]}" if others else node.ip


def rate_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Requests/s of every row that has a throughput, where there are several; not of a curve."""
    points = []
    for size in () if summary.curve else summary.sizes:
        for line in size.lines:
            spread = line.spreads.get(MAIN)
            if spread is None or line.row.requests_each is not None:
                continue
            rates = [throughput_of(trial) for trial in line.trials if MAIN in trial.metrics]
            low, high = (min(rates), max(rates)) if len(rates) > 1 else spread.ends
            name = row_name(summary, size, line)
            points.append(Point(name, size.variant, spread.mean, low, high))
    if len(points) > 1:
        caption = "Bars: lowest and highest launch; of one launch ± the std of its windows."
        yield charts.intervals("Requests/s", points, "requests/s", caption=caption)


def growth_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Each quantity of a curve over the number of replicas, with the exponents of its fits."""
    several = len(summary.variants) > 1
    for title, shared in _PANELS.items():
        series: dict[str, list[LinePoint]] = {}
        fits, unit = [], ""
        for part in summary.variants:
            for grown in (one for one in part.grown if one.quantity.name in shared):
                word = shared[grown.quantity.name]
                names = [part.name] if several or not word else []
                name = ", ".join([*names, *([word] if word else [])])
                if grown.usable:
                    positive = (one for one in grown.points if (one[1].mean or 0.0) > 0)
                    series[name] = [_step(*point) for point in positive]
                    unit = grown.quantity.unit
                    fits.append(_fit(name, grown))
        values = [step.value for steps in series.values() for step in steps]
        if not values:
            continue
        ends = "; ".join(
            f"{name}: {bounded_number(steps[0].value)} at {steps[0].x:g}, "
            f"{bounded_number(steps[-1].value)} at {steps[-1].x:g}"
            for name, steps in series.items()
        )
        yield charts.ladder(
            title,
            series,
            x_name="replicas",
            unit=unit,
            words=f"{title} over replicas, in {unit}. {ends}.",
            log_y=max(values) >= LOG_Y * min(values),
            caption=f"{'; '.join(fits)}.",
        )


def _step(replicas: int, figure: ScaleFigure) -> LinePoint:
    low, high = min(figure.known), max(figure.known)
    several = figure.count > 1
    return LinePoint(
        replicas, figure.mean or 0.0, low if several else None, high if several else None
    )


def _fit(name: str, grown: Grown) -> str:
    fit = grown.fit
    if fit is None:
        return f"{name}: too few sizes for an exponent"
    return f"{name}: n^{fit.text} (95 %: {fit.low:.2f} to {fit.high:.2f}), {fit.words}"


def latency_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Percentiles of all requests of each row; of a curve a chart for each variant."""
    caption = "Launches and nodes merged; each curve ends where one request is slower."
    for title, own in _apart(summary):
        curves = {name: points for name, line in own if (points := latency_curve(line.trials))}
        yield from percentile_charts(f"Latency{title}", curves, caption)


def _apart(summary: ScaleSummary) -> Iterator[tuple[str, list[tuple[str, Line]]]]:
    """The rows that share a chart by name, with what its title says of them."""
    parts = [part.sizes for part in summary.variants] if summary.curve else [summary.sizes]
    for sizes in parts:
        title = f", variant {sizes[0].variant}" if len(parts) > 1 else ""
        yield (title, [(row_name(summary, one, line), line) for one in sizes for line in one.lines])


def node_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """Requests/s of each node, where several loaded."""
    points = [
        Point(node_name(node, size), _of_node(summary, size, node.launch), node.rate)
        for size in summary.sizes
        for node in size.nodes
        if node.rate is not None
    ]
    if len({one.label for one in points}) > 1:
        points.sort(key=lambda one: one.label)
        caption = "Nodes that were lost have no rate."
        yield charts.intervals("Requests/s of each node", points, "requests/s", caption=caption)


def _of_node(summary: ScaleSummary, size: ScaleSize, launch: int) -> str:
    name = size.title if len(summary.sizes) > 1 else size.variant
    return f"{name}, launch {launch}" if len(size.launches) > 1 else name


def usage_charts(summary: ScaleSummary) -> Iterator[Chart]:
    """CPU by process of each row that was sampled on one machine."""
    caption = "100 % is one core; all processes of a role together, mean over launches."
    rows = [
        (
            row_name(summary, row.size, row.line),
            [usage for trial in row.line.trials for usage in usages_of(trial)],
            limit_note(prevailing(row.verdicts)) if row.verdicts else "",
        )
        for row in summary.sampled
    ]
    yield from cpu_charts("CPU by process", rows, caption)
