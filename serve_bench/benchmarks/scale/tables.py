"""The tables of a scale run: metrics by their published names, rows, nodes, sizes, growth.

Rule: rows are texts. Where a table is too wide, columns are left out in a set order, and it is said
which: csv and json have them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.parts.texts import (
    bounded_number,
    decimals,
    latency,
    mean_and_std,
    number,
)
from serve_bench.benchmarks.scale.growth import FEWEST, QUANTITIES
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, ScaleVariant
from serve_bench.benchmarks.scale.nodes import NODE_NAMES, NS_PER_MS, ScaleNode, use_of
from serve_bench.benchmarks.scale.summary import (
    CLUSTER_NAMES,
    GRAPH_NAMES,
    HTTP,
    LATENCY,
    Figure,
    Grown,
    ScaleSize,
)
from serve_bench.benchmarks.scale.words import short_label
from serve_bench.report.columns import Texts, fitted, wrapped
from serve_bench.report.widths import width_of

NOT_TOLD: Final = "-"


def figure_text(figure: Figure | None, value: float | None) -> str:
    """A value of a metric: counts whole, times with three digits, else four."""
    if value is None or figure is None:
        return NOT_TOLD
    if figure.unit == "requests":
        return f"{value:,.0f}"
    return bounded_number(value, _digits(figure))


def spread_text(figure: Figure | None) -> str:
    """The spread over launches, with the decimals of the mean."""
    if figure is None or figure.std is None or figure.mean is None:
        return NOT_TOLD
    digits = 0 if figure.unit == "requests" else decimals(figure.mean, _digits(figure))
    return f"{figure.std:,.{digits}f}"


def _digits(figure: Figure) -> int:
    return 3 if figure.unit == "ms" else 4


def published_text(value: Any) -> str:
    """A published figure as it is published, thousands apart."""
    return NOT_TOLD if value is None else f"{value:,}"


# --------------------------------------------------------------------------- metrics by name


def metrics_rows(page: ScalePage, size: ScaleSize) -> list[Texts]:
    """A row for each metric: name, value, spread over launches where there are several, and the
    published value where it is wanted; the names of the columns first."""
    told: Mapping[str, Any] | None = page.published
    rows: list[Texts] = [
        (
            "metric",
            "mean",
            *(("±",) if page.several_launches else ()),
            *(("published",) if told else ()),
        )
    ]
    for name in NODE_NAMES + CLUSTER_NAMES:
        if name in size.figures:
            rows.append(_metric(page, size.figures[name], (told or {}).get(name)))
    return rows


def _metric(page: ScalePage, figure: Figure, published: Any) -> Texts:
    texts = [figure.name, figure_text(figure, figure.mean)]
    texts += [spread_text(figure)] if page.several_launches else []
    return (*texts, published_text(published)) if page.published else texts


def graph_rows(page: ScalePage, size: ScaleSize) -> list[Texts]:
    """The four metrics, through a handle and through HTTP beside each other."""
    spread = ("±",) if page.several_launches else ()
    rows: list[Texts] = [
        ("metric", "handle", *spread, "HTTP", *spread, *(("published",) if page.published else ()))
    ]
    for name in GRAPH_NAMES:
        texts = [name]
        for way in ("", HTTP):
            figure = size.figures.get(way + name)
            texts.append(figure_text(figure, None if figure is None else figure.mean))
            if spread:
                texts.append(spread_text(figure))
        texts += [published_text(page.published.get(name))] if page.published else []
        rows.append(texts)
    return rows


def compared_rows(page: ScalePage) -> list[Texts]:
    """Of several variants each with its rate and its ratio to the first, by size and row."""
    rows: list[Texts] = [("", "requests/s", "ratio", "p50 ms", "p99 ms")]
    first = page.variants[0].name
    for entry in sorted(page.entries, key=lambda one: one.size.replicas):
        for line in entry.size.lines:
            if line.row.requests_each is not None:
                continue
            row = f", {short_label(line)}" if page.graph else ""
            ratio = NOT_TOLD if line.ratio is None else f"{line.ratio:.2f}"
            rows.append(
                (
                    entry.title + row,
                    rate_text(line),
                    "1" if line.variant == first and line.trials else ratio,
                    *(_percentile(line, name) for name in ("p50", "p99")),
                )
            )
    return rows


def rate_text(line: Line) -> str:
    """The rate and its spread over windows; none where each launch told one rate."""
    spread = line.spreads.get(MAIN)
    if spread is not None and spread.windows == spread.launches:
        return number(spread.mean)
    return mean_and_std(spread)


def _percentile(line: Line, name: str) -> str:
    found = line.distributions.get(LATENCY)
    return NOT_TOLD if found is None else latency(getattr(found, name) / NS_PER_MS)


def rows_rows(size: ScaleSize) -> list[Texts]:
    """The rows of a graph: what each measured."""
    rows: list[Texts] = [("row", "requests", "requests/s", "p50 ms", "p90 ms", "max ms", "failed")]
    for line in size.lines:
        if not line.trials:
            rows.append((f"{short_label(line)}: not measured",))
            continue
        each = line.row.requests_each is not None
        rows.append(
            (
                short_label(line),
                f"{line.completed:,}",
                NOT_TOLD if each else rate_text(line),
                *(_percentile(line, name) for name in ("p50", "p90", "max")),
                f"{line.errors:,}",
            )
        )
    return rows


# ------------------------------------------------------------------------------------- nodes


class _Column(NamedTuple):
    name: str
    text: Callable[[ScaleNode], str]


def _milliseconds(name: str) -> Callable[[ScaleNode], str]:
    return lambda node: latency(node.latency_ms.get(name))


def _cpu(name: str) -> Callable[[ScaleNode], str]:
    def text(node: ScaleNode) -> str:
        use = use_of([node.usage]) if node.usage else None
        share = None if use is None else getattr(use, name)
        return NOT_TOLD if share is None else f"{share:.0f}"

    return text


_HOSTNAME: Final = _Column("hostname", lambda node: node.hostname or NOT_TOLD)
_REPLICAS: Final = _Column("replicas", _cpu("replicas"))
_PROXY: Final = _Column("proxy", _cpu("proxy"))
_NODE: Final = (
    _Column("node", lambda node: node.ip),
    _HOSTNAME,
    _Column("requests", lambda node: f"{node.completed:,}"),
    _Column("requests/s", lambda node: number(node.rate)),
    _Column("p50 ms", _milliseconds("p50")),
    _Column("p99 ms", _milliseconds("p99")),
    _Column("failed", lambda node: f"{node.failures:,}"),
    _PROXY,
    _REPLICAS,
)
_LEFT_OUT_FIRST: Final = (_HOSTNAME, _REPLICAS, _PROXY)


def node_lines(entry: ScaleEntry, width: int) -> Iterator[str]:
    """The load from each node, a heading for each launch where there are several."""
    if not entry.size.nodes:
        return
    known = any(node.usage for node in entry.size.nodes)
    every = [one for one in _NODE if known or one not in (_PROXY, _REPLICAS)]
    for count in range(len(_LEFT_OUT_FIRST) + 1):
        shown = [one for one in every if one not in _LEFT_OUT_FIRST[:count]]
        left = (0, 1) if _HOSTNAME in shown else (0,)
        names, rows = [one.name for one in shown], node_rows(entry.size, shown)
        lines = fitted(names, rows, left, width, fold=(0,)).lines
        if max(map(width_of, lines)) <= width:
            break
    yield from lines
    gone = [one.name for one in every if one not in shown]
    if gone:
        yield from wrapped(f"left out, too wide: {', '.join(gone)}; json has them", width)


def node_rows(size: ScaleSize, shown: Sequence[_Column] = _NODE) -> list[Texts]:
    """Texts of each node; of a lost one its name and why."""
    rows: list[Texts] = []
    for launch in dict.fromkeys(one.launch for one in size.nodes):
        if len(size.launches) > 1:
            rows.append((f"launch {launch}:",))
        for node in (one for one in size.nodes if one.launch == launch):
            if node.lost is None:
                rows.append([_named(node, size), *(column.text(node) for column in shown[1:])])
            else:
                rows.append((f"{_named(node, size)}  lost: {node.lost}",))
    return rows


def _named(node: ScaleNode, size: ScaleSize) -> str:
    """A node by its address; where several have one, with the beginning of its id."""
    same = (one for one in size.nodes if (one.launch, one.ip) == (node.launch, node.ip))
    others = [one.node for one in same if one.node != node.node]
    return f"{node.ip} {node.node[:6]}" if others else node.ip


NODE_COLUMNS: Final = tuple(one.name for one in _NODE)


# ------------------------------------------------------------------------------------- curve

#: Two lines above each column: what it is, its unit.
_CURVE: Final = (
    *(("", "requests/s"), ("p50", "ms"), ("p99", "ms"), ("deploy", "s"), ("memory", "MB each")),
    *(("CPU", "us"), ("loop", "ms"), ("teardown", "s")),
)


def curve_rows(part: ScaleVariant) -> list[Texts]:
    """A row for each size; two rows of names first."""
    rows: list[Texts] = [
        ("", *(group for group, _ in _CURVE)),
        ("replicas", *(unit for _, unit in _CURVE)),
    ]
    for entry in part.entries:
        figures, name = entry.size.figures, f"{entry.size.replicas:,}"
        if not entry.measured:
            rows.append((f"{name}: not measured",))
            continue
        rows.append((name, *(_mean(figures.get(one.figure)) for one in QUANTITIES)))
    return rows


def _mean(figure: Figure | None) -> str:
    return figure_text(figure, None if figure is None else figure.mean)


def growth_rows(part: ScaleVariant) -> list[Texts]:
    """How each quantity grows; the names of the columns first."""
    rows: list[Texts] = [("n: replicas", "exponent", "95 %", "sizes", "")]
    return rows + [_grown(one) for one in part.grown]


def _grown(grown: Grown) -> Texts:
    fit, title = grown.fit, grown.quantity.title
    if fit is None:
        usable = sum(1 for _, figure in grown.points if (figure.mean or 0.0) > 0)
        few = f"too few sizes above 0, {FEWEST} are needed"
        return (title, NOT_TOLD, NOT_TOLD, str(usable), few)
    return (
        title,
        fit.text,
        f"{fit.low:.2f} to {fit.high:.2f}",
        str(fit.sizes),
        fit.words,
    )
