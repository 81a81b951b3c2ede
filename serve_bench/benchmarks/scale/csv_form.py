"""A scale run as CSV: what the text says, for programs.

Rule: a line for each metric of each size, not rounded, with its unit, over launches (`launch` is
empty) and of each, and a line for each figure of each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from serve_bench.analysis.statistics import LowerBound
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, scale_page
from serve_bench.benchmarks.scale.nodes import ScaleNode
from serve_bench.core.result import Result

_COLUMNS: Final = (
    *("run", "workload", "variant"),
    *("num_replicas", "status", "invalid", "launch", "node", "ip", "hostname"),
    *(
        "metric",
        "unit",
        "type",
        "value",
        "lower_bound",
        "std",
        "count",
        "published",
        "lost",
        "host",
    ),
)


def scale_csv(result: Result, published: bool = False) -> str:
    """The run as CSV, a header first."""
    page = scale_page(result, published)
    rows = ({**_about(page, entry), **row} for entry in page.entries for row in _rows(page, entry))
    return csv_of(_COLUMNS, rows)


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
        spread = {"std": figure.std, "count": figure.count}
        yield {**about, **_value(figure.mean), **spread, "published": told.get(name)}
        if len(size.launches) > 1:
            for launch, value in zip(size.launches, figure.values, strict=True):
                yield {**about, "launch": launch, **_value(value)}
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
        {**about, "metric": name, "unit": unit, **_value(value)} for name, unit, value in figures
    ]


def _value(value: float | None) -> dict[str, Any]:
    return {"value": value, "lower_bound": isinstance(value, LowerBound) or None}
