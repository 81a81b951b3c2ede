"""The tables on the page of a scale run: sizes, rows, metrics by name, nodes, growth.

Rule: figures are those of scale_json in its units; doubts, losses and failures stand under the size
that they are about. What was not told is `-`, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.parts.pieces import (
    NOTHING,
    count,
    errors,
    padded,
    percent,
    plain,
    share,
)
from serve_bench.benchmarks.parts.texts import latency
from serve_bench.benchmarks.scale.growth import FEWEST, QUANTITIES
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, ScaleVariant
from serve_bench.benchmarks.scale.nodes import ScaleNode, use_of
from serve_bench.benchmarks.scale.summary import HTTP, LATENCY, Grown, ScaleSize
from serve_bench.benchmarks.scale.summary import Figure as Measured
from serve_bench.benchmarks.scale.tables import figure_text, published_text, rate_text, spread_text
from serve_bench.benchmarks.scale.words import invalid_line, replicas_words, short_label
from serve_bench.core.document import Cell, Column, Finding, Number, Row, Table, Text, sentences


def measured(figure: Measured | None, spread: bool = False) -> Number:
    """A metric with its spread over launches, where there are several."""
    if figure is None or figure.mean is None:
        return NOTHING
    text = figure_text(figure, figure.mean)
    return Number(text + (f" ± {spread_text(figure)}" if spread else ""), figure.mean)


def doubts_of(entry: ScaleEntry) -> tuple[Finding, ...]:
    """Why a size is invalid; what is missing, lost, failed or doubted."""
    invalid = (invalid_line(bad) for bad in entry.size.invalid)
    return (*sentences(invalid, "bad"), *entry.findings)


# --------------------------------------------------------------------------------------- sizes


def sizes_table(page: ScalePage) -> Table:
    """A row for each size under each variant; of a curve its quantities."""
    if page.workload == "curve":
        return _curve(page)
    columns = [
        Column("variant", number=False),
        Column("replicas", "of each deployment"),
        *([Column("row", number=False)] if page.graph else []),
        Column("throughput", "requests/s"),
        *([Column("ratio", f"to {page.variants[0].name}")] if len(page.variants) > 1 else []),
        *(Column(name, "ms") for name in ("p50", "p99")),
        Column("requests"),
        Column("failed"),
    ]
    rows = [row for entry in page.entries for row in _size(page, entry, len(columns))]
    several = page.several_launches
    note = "±: std (ddof 0) over the windows of all launches." if several else "±: std (ddof 0)."
    caption = "Each size" if len(rows) > 1 else "Throughput and latency"
    return Table(caption, tuple(columns), tuple(rows), (note,))


def _size(page: ScalePage, entry: ScaleEntry, columns: int) -> Iterator[Row]:
    """The rows that have a throughput; doubts under the last of them."""
    lines = [line for line in entry.size.lines if line.row.requests_each is None]
    for line in lines:
        limits = entry.limits if line is lines[0] else ()
        cells: list[Cell] = [Text(entry.size.variant, below=limits), count(entry.size.replicas)]
        cells += [short_label(line)] if page.graph else []
        if line.trials:
            cells.append(_rate(line, bool(entry.size.invalid)))
            cells += [_ratio(page, line)] if len(page.variants) > 1 else []
            cells += [share(line.distributions.get(LATENCY), name) for name in ("p50", "p99")]
            cells += [count(line.completed), errors(line.failed)]
        else:
            cells.append(Text("not measured", "doubt"))
        yield Row(padded(cells, columns), doubts_of(entry) if line is lines[-1] else ())


def _rate(line: Line, invalid: bool) -> Number:
    spread = line.spreads.get(MAIN)
    if spread is None:
        return NOTHING
    return Number(rate_text(line), spread.mean, "bad" if invalid else "plain")


def _ratio(page: ScalePage, line: Line) -> Number:
    if line.variant == page.variants[0].name:
        return Number("1", 1.0)
    return NOTHING if line.ratio is None else Number(f"{line.ratio:.2f}", line.ratio)


def _curve(page: ScalePage) -> Table:
    """A row for each number of replicas: throughput, latency, what each further one costs."""
    spread = page.several_launches
    columns = (
        Column("replicas"),
        *(Column(one.title, one.unit) for one in QUANTITIES),
    )
    rows = []
    for part in page.variants:
        for entry in part.entries:
            cells: list[Cell] = [count(entry.size.replicas)]
            if entry.measured:
                figures = entry.size.figures
                cells += [measured(figures.get(one.figure), spread) for one in QUANTITIES]
            else:
                cells.append(Text("not measured", "doubt"))
            group = f"variant {part.name}" if len(page.variants) > 1 else ""
            rows.append(Row(padded(cells, len(columns)), doubts_of(entry), group))
    notes = ("Means over launches, ± their std (ddof 1).",) if spread else ()
    return Table("Each size", columns, tuple(rows), notes)


# ---------------------------------------------------------------------------------------- rows


def rows_table(page: ScalePage) -> Table:
    """The rows of a graph: what each measured."""
    columns = (
        Column("row", number=False),
        Column("requests"),
        Column("throughput", "requests/s"),
        *(Column(name, "ms") for name in ("p50", "p90", "max")),
        Column("failed"),
    )
    rows = []
    for entry in page.entries:
        for line in entry.size.lines:
            cells: list[Cell] = [short_label(line)]
            if line.trials:
                each = line.row.requests_each is not None
                found = line.distributions.get(LATENCY)
                cells += [
                    count(line.completed),
                    NOTHING if each else _rate(line, False),
                    *(share(found, name) for name in ("p50", "p90", "max")),
                    errors(line.failed),
                ]
            else:
                cells.append(Text("not measured", "doubt"))
            rows.append(Row(padded(cells, len(columns)), group=entry.title))
    return Table("Every row", columns, tuple(rows))


# ------------------------------------------------------------------------------ metrics by name


def metrics_table(page: ScalePage) -> Table:
    """A row for each published metric, a column for each size and variant; of a graph through a
    handle, then through HTTP. Ours come last."""
    entries, spread = page.entries, page.several_launches
    several = len({one.size.replicas for one in entries}) > 1
    columns = [Column("metric", number=False), Column("unit", number=False)]
    columns += [
        Column(one.size.variant, replicas_words(one.size.replicas) if several else "")
        for one in entries
    ]
    columns += [Column("published", "other hardware")] if page.published else []
    every = dict.fromkeys(name for one in entries for name in one.size.figures)
    rows = []
    for name in every:
        units = [one.size.figures[name].unit for one in entries if name in one.size.figures]
        cells: list[Cell] = [name, units[0]]
        cells += [measured(one.size.figures.get(name), spread) for one in entries]
        if page.published:
            cells.append(Text(published_text(page.published.get(name)), "quiet"))
        rows.append(Row(tuple(cells), group=_way(page, name)))
    return Table("Metrics by their published names", tuple(columns), tuple(rows))


def _way(page: ScalePage, name: str) -> str:
    if not page.graph:
        return ""
    return "through HTTP" if name.startswith(HTTP) else "through a handle, as published"


# --------------------------------------------------------------------------------------- nodes


def nodes_table(page: ScalePage) -> Table:
    """The load from each node in each launch; of a lost one why, and what it last told."""
    nodes = [node for entry in page.entries for node in entry.size.nodes]
    sampled = any(node.usage for node in nodes)
    columns = (
        Column("node", number=False),
        Column("connections"),
        Column("requests"),
        Column("throughput", "requests/s"),
        *(Column(name, "ms") for name in ("p50", "p99")),
        Column("failed"),
        *((Column("proxy", "% of a core"), Column("replicas", "% of a core")) if sampled else ()),
    )
    rows = []
    for entry in page.entries:
        for node in entry.size.nodes:
            launch = f", launch {node.launch}" if len(entry.size.launches) > 1 else ""
            host = (node.hostname,) if node.hostname else ()
            named = Text(node_name(node, entry.size), below=host)
            cells: list[Cell] = [named, count(node.connections)]
            if node.lost is None:
                cells += [
                    count(node.completed),
                    plain(node.rate),
                    *(_ms(node, name) for name in ("p50", "p99")),
                    errors(node.failed),
                ]
                cells += [_cpu(node, "proxy"), _cpu(node, "replicas")] if sampled else []
                doubts: tuple[Finding, ...] = ()
            else:
                cells += [Text("lost", "bad")]
                doubts = (Finding(str(node.lost), "lost", "bad"),)
            rows.append(Row(padded(cells, len(columns)), doubts, f"{entry.title}{launch}"))
    return Table("The load from each node", columns, tuple(rows))


def node_name(node: ScaleNode, size: ScaleSize) -> str:
    """A node by its address; where several have one, with the beginning of its id."""
    same = (one for one in size.nodes if (one.launch, one.ip) == (node.launch, node.ip))
    others = [one.node for one in same if one.node != node.node]
    return f"{node.ip} {node.node[:6]}" if others else node.ip


def _ms(node: ScaleNode, name: str) -> Number:
    value = node.latency_ms.get(name)
    return Number(latency(value), value)


def _cpu(node: ScaleNode, name: str) -> str:
    """Of all its processes of a kind: text, since JSON has each process."""
    use = use_of([node.usage]) if node.usage else None
    return percent(None if use is None else getattr(use, name)).text


# -------------------------------------------------------------------------------------- growth


def growth_table(page: ScalePage) -> Table:
    """How each quantity grows with the number of replicas n: the exponent with its interval."""
    columns = (
        Column("quantity", number=False),
        Column("exponent", "± its std error"),
        Column("from", "95 %"),
        Column("to", "95 %"),
        Column("sizes"),
        Column("in words", number=False),
    )
    rows = [_grown(page, part, one) for part in page.variants for one in part.grown]
    notes = (
        "The interval takes the residuals as chance. A curve that bends has no one exponent: look "
        "at the charts.",
    )
    return Table("Growth over the number of replicas n", columns, tuple(rows), notes)


def _grown(page: ScalePage, part: ScaleVariant, grown: Grown) -> Row:
    fit, title = grown.fit, grown.quantity.title
    group = f"variant {part.name}" if len(page.variants) > 1 else ""
    if fit is None:
        usable = sum(1 for _, figure in grown.points if (figure.mean or 0.0) > 0)
        few = Text(f"too few sizes above 0, {FEWEST} are needed", "doubt")
        return Row((title, NOTHING, NOTHING, NOTHING, f"{usable}", few), group=group)
    return Row(
        (
            title,
            Number(fit.text, fit.exponent),
            Number(f"{fit.low:.2f}", fit.low),
            Number(f"{fit.high:.2f}", fit.high),
            count(fit.sizes),
            fit.words,
        ),
        group=group,
    )
