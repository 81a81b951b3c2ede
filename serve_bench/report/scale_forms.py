"""A scale run as Markdown and CSV: what the text says, for issues and for programs.

Rule: Markdown has a column for each variant; CSV has a line for each metric of each size, not
rounded, with its unit, over launches (`launch` is empty) and of each, and a line for each figure of
each node.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from serve_bench.report.columns import Texts, markdown_table
from serve_bench.report.scale_page import ScaleEntry, ScalePage, scale_page
from serve_bench.report.scale_tables import (
    NODE_COLUMNS,
    curve_rows,
    figure_text,
    growth_rows,
    node_rows,
    published_text,
    spread_text,
)
from serve_bench.report.scale_words import asked, flags_of, notes
from serve_bench.report.texts import cell_title, remark
from serve_bench.result import Result
from serve_bench.scale_figures import Figure
from serve_bench.scale_nodes import ScaleNode


def scale_markdown(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page = scale_page(result, published, where)
    lines = [f"### {page.title}", ""]
    lines += [f"- **{text}**" for text in page.invalid]
    lines += [f"- {line}" for line in asked(page.run.suite, page.workload)]
    for part in page.variants:
        flags = flags_of(part.name, part.env)
        lines.append(f"- variant {part.name}: {flags}{f'; {part.engaged}' * bool(part.engaged)}")
        lines += [f"- {line}" for line in part.unloaded]
    lines.append("")
    tables = _curves(page) if page.workload == "curve" else _metrics(page)
    for table in tables:
        lines += [*table, ""]
    lines += [f"- {text}" for text in _doubts(page)]
    lines += [
        f"- CPU, % of a core{f', {name}' if name else ''}: {use.words}" for name, use in page.uses
    ]
    lines += [f"- {note}" for note in page.notes]
    if any(entry.measured for entry in page.entries):
        lines += [
            f"- {one}"
            for one in notes(page.workload, str(page.run.suite.get("client")), page.sampled)
        ]
    lines.append(f"- host: {page.host}")
    if where is not None:
        lines.append(f"- records: `{where}`")
    return "\n".join(lines) + "\n"


def _doubts(page: ScalePage) -> Iterator[str]:
    for part in page.variants:
        yield from (f"**failed**: {part.name}: {one.what}: {one.message}" for one in part.failures)
        yield from (f"{part.name}: {remark(one)}" for one in part.warnings)
        for entry in part.entries:
            title = f"{entry.title}: "
            yield from (title + text for text in (*entry.remarks, *entry.limits))
    yield from (f"**failed**: {one.what}: {one.message}" for one in page.failures)
    yield from (remark(one) for one in page.warnings)


def _metrics(page: ScalePage) -> Iterator[list[str]]:
    """A table for each size: metrics by variant; then the nodes of each variant."""
    sizes = {str(one.size.cell): one.size.cell for one in page.entries}
    for slug, cell in sizes.items():
        own = [one for one in page.entries if str(one.size.cell) == slug]
        shown = cell_title({name: value for name, value in cell.items() if name != "workload"})
        names = ["metric", *(one.size.variant for one in own)]
        rows: list[Texts] = []
        for name in dict.fromkeys(name for one in own for name in one.size.figures):
            texts = [f"`{name}`", *(_value(one.size.figures.get(name)) for one in own)]
            told = [published_text(page.published.get(name))] if page.published else []
            rows.append([*texts, *told])
        names += ["published"] if page.published else []
        yield [f"{page.workload}, {shown}", "", *markdown_table(names, rows, (0,))]
        yield from (_nodes(one) for one in own if one.size.nodes)


def _value(figure: Figure | None) -> str:
    if figure is None or figure.mean is None:
        return "-"
    spread = "" if figure.std is None else f" ± {spread_text(figure)}"
    return figure_text(figure, figure.mean) + spread


def _nodes(entry: ScaleEntry) -> list[str]:
    rows = [
        row if len(row) > 1 else (row[0], *("" for _ in NODE_COLUMNS[1:]))
        for row in node_rows(entry.size)
    ]
    return [f"nodes, {entry.size.variant}", "", *markdown_table(NODE_COLUMNS, rows, (0, 1))]


def _curves(page: ScalePage) -> Iterator[list[str]]:
    for part in page.variants:
        above, below, *rows = curve_rows(part)
        names = [f"{one} {unit}".strip() for one, unit in zip(above, below, strict=True)]
        full = [row if len(row) > 1 else (row[0], *("" for _ in names[1:])) for row in rows]
        yield [part.name, "", *markdown_table(names, full, (0,))]
        if part.grown:
            head, *grown = growth_rows(part)
            yield markdown_table([*head[:-1], "in words"], grown, (0, 4))


# ------------------------------------------------------------------------------------------ csv

_COLUMNS: Final = (
    *("run", "workload", "variant"),
    *("num_replicas", "status", "invalid", "launch", "node", "ip", "hostname"),
    *("metric", "unit", "type", "value", "std", "count", "published", "lost", "host"),
)


def scale_csv(result: Result, published: bool = False) -> str:
    """The run as CSV, a header first."""
    page = scale_page(result, published)
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for entry in page.entries:
        about = _about(page, entry)
        writer.writerows({**about, **row} for row in _rows(page, entry))
    return out.getvalue()


def _about(page: ScalePage, entry: ScaleEntry) -> dict[str, Any]:
    size = entry.size
    return {
        "run": page.run.id,
        "workload": page.workload,
        "variant": size.variant,
        "num_replicas": size.replicas,
        "status": entry.gap or "measured",
        "invalid": bool(size.invalid),
        "host": page.host,
    }


def _rows(page: ScalePage, entry: ScaleEntry) -> Iterator[dict[str, Any]]:
    size, told = entry.size, page.published or {}
    for name, figure in size.figures.items():
        about = {"metric": name, "unit": figure.unit, "type": figure.kind}
        spread = {"value": figure.mean, "std": figure.std, "count": figure.count}
        yield {**about, **spread, "published": told.get(name)}
        if len(size.launches) > 1:
            for launch, value in zip(size.launches, figure.values, strict=True):
                yield {**about, "launch": launch, "value": value}
    for node in size.nodes:
        yield from _of_node(node)


def _of_node(node: ScaleNode) -> list[dict[str, Any]]:
    about = {
        "launch": node.launch,
        "node": node.node,
        "ip": node.ip,
        "hostname": node.hostname,
        "lost": node.lost,
    }
    figures = [
        ("requests", "requests", node.completed if node.lost is None else None),
        ("requests_per_s", "requests/s", node.rate),
        *((f"latency_{name}", "ms", value) for name, value in node.latency_ms.items()),
        *((f"failed_{name}", "requests", count) for name, count in node.failed.items() if count),
    ]
    return [
        {**about, "metric": name, "unit": unit, "value": value} for name, unit, value in figures
    ]
