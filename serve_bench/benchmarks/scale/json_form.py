"""A scale run as JSON, in the published form, and as the `perf_metrics` of Ray's release tooling.

Rule: figures are not rounded; what was not told is null, and what was planned and not measured is
listed. Names are exactly the published ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN, Line, LowerBound
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage, ScaleVariant, scale_page
from serve_bench.benchmarks.scale.nodes import NODE_NAMES
from serve_bench.benchmarks.scale.summary import (
    CLUSTER_NAMES,
    LATENCY,
    Figure,
    Grown,
    published_names,
)
from serve_bench.core.result import Result

_SHARES: Final = ("p50", "p90", "p99")


def scale_json(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as one JSON object, indented."""
    page = scale_page(result, published, where)
    content: dict[str, Any] = {
        "run": {
            "id": page.run.id,
            "command": page.run.command,
            "argv": list(page.run.argv),
            "started_at": page.run.started_at,
            "tool_version": page.run.tool_version,
            "git_commit": page.run.git_commit,
            "records": page.where,
        },
        "host": dict(page.run.host),
        "workload": page.workload,
        "asked": dict(page.run.suite),
        "invalid": list(page.invalid),
        "base": page.variants[0].name if len(page.variants) > 1 else None,
        "variants": [_variant(part) for part in page.variants],
        "not_measured": list(page.not_measured),
        "warnings": [asdict(one) for one in page.warnings],
        "failures": [asdict(one) for one in page.failures],
        "notes": list(page.notes),
    }
    if published:
        content["published"] = page.published
    return _text(content)


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _variant(part: ScaleVariant) -> dict[str, Any]:
    return {
        "name": part.name,
        "env": list(part.env),
        "engaged": part.engaged,
        "warnings": [asdict(one) for one in part.warnings],
        "failures": [asdict(one) for one in part.failures],
        "sizes": [_entry(one) for one in part.entries],
        "growth": {one.quantity.name: _grown(one) for one in part.grown},
    }


def _entry(entry: ScaleEntry) -> dict[str, Any]:
    size = entry.size
    return {
        "cell": dict(size.cell),
        "launches": list(size.launches),
        "status": entry.gap or "measured",
        "metrics": {name: _figure(one) for name, one in size.figures.items()},
        "rows": [_row(line) for line in size.lines],
        "nodes": [asdict(one) for one in size.nodes],
        "invalid": [asdict(one) for one in size.invalid],
        "warnings": [asdict(one) for one in entry.warnings],
        "failures": [asdict(one) for one in entry.failures],
        "limits": list(entry.limits),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "unit": figure.unit,
        "type": figure.kind,
        "mean": figure.mean,
        "std": figure.std,
        "count": figure.count,
        "lower_bound": isinstance(figure.mean, LowerBound),
        "launches": list(figure.values),
    }


def _row(line: Line) -> dict[str, Any]:
    rate, latency = line.spreads.get(MAIN), line.distributions.get(LATENCY)
    return {
        "row": line.row.label,
        "client": line.row.client,
        "status": line.status,
        "keys": list(line.keys),
        "connections": [trial.row.connections for trial in line.trials],
        "requests_each": line.row.requests_each,
        "completed": line.completed,
        "failed": line.failed,
        "throughput": None if rate is None else asdict(rate),
        "latency": None if latency is None else asdict(latency),
        "ratio": line.ratio,
    }


def _grown(grown: Grown) -> dict[str, Any]:
    fit = grown.fit
    return {
        "unit": grown.quantity.unit,
        "points": [
            {"replicas": replicas, "mean": figure.mean, "launches": list(figure.values)}
            for replicas, figure in grown.points
        ],
        "fit": None if fit is None else {**asdict(fit), "words": fit.words},
    }


# -------------------------------------------------------------------------- the published form


def classic_scale(result: Result) -> str:
    """The published metrics by name as a JSON object: the first variant's, means over launches.

    What the published form has no words for stands behind them: `invalid` (those metrics) and
    `not_measured` (of the whole run).
    """
    page = scale_page(result)
    names = published_names(page.workload)
    if not names:
        return f"scale {page.workload} has no published classic form: --format table shows it\n"
    entries = page.variants[0].entries if page.variants else ()
    figures = entries[0].size.figures if entries else {}
    content: dict[str, Any] = {
        name: figures[name].mean if name in figures else None for name in names
    }
    invalid = page.invalid_in(entries[:1])
    content |= {"invalid": list(invalid)} if invalid else {}
    content |= {"not_measured": list(page.not_measured)} if page.not_measured else {}
    return _text(content)


# -------------------------------------------------------------------------------- perf_metrics


def scale_perf_metrics(result: Result) -> str:
    """The metrics as the text of that JSON file, means over launches.

    The first variant's bear exactly the published names (`per_thread_latency_avg_ms`), those of the
    others have the variant before them. A curve publishes none; its names hold the replicas. The
    tooling knows the types THROUGHPUT and LATENCY alone: counts are called THROUGHPUT, memory, CPU
    and times of a curve LATENCY. What was not told (wrk's histogram) has no entry and is named
    under `not_told`; what is known to be higher, under `lower_bounds`. These, `not_measured` and
    `invalid` are keys that the tooling does not read.
    """
    page = scale_page(result)
    metrics, not_told, lower_bounds = [], [], []
    for part in page.variants:
        prefix = "" if part.name == page.variants[0].name else f"{part.name}_"
        for entry in part.entries:
            for name, figure in _named(page, entry):
                full = re.sub(r"[^A-Za-z0-9]+", "_", prefix) + name
                if figure.mean is not None:
                    metrics.append(_perf(full, figure))
                    lower_bounds += [full] if isinstance(figure.mean, LowerBound) else []
                elif entry.measured:
                    not_told.append(full)
    content = {
        "perf_metrics": metrics,
        "not_told": not_told,
        "lower_bounds": lower_bounds,
        "not_measured": list(page.not_measured),
        "invalid": list(page.invalid),
    }
    return _text(content)


def _perf(name: str, figure: Figure) -> dict[str, Any]:
    return {
        "perf_metric_name": name,
        "perf_metric_value": figure.mean,
        "perf_metric_type": figure.kind or "THROUGHPUT",
    }


def _named(page: ScalePage, entry: ScaleEntry) -> Iterator[tuple[str, Figure]]:
    """The figures of a size by their names; those of a curve with the replicas and the unit."""
    shown: Sequence[str] = list(entry.size.figures)
    if page.workload != "curve":
        yield from ((name, entry.size.figures[name]) for name in shown)
        return
    names = [name for name in shown if name not in (*NODE_NAMES, *CLUSTER_NAMES)]
    for name in ("cluster_requests_per_s", *names):
        figure = entry.size.figures[name]
        unit = "" if name.startswith("cluster") else f"_{figure.unit}"
        yield f"replicas_{entry.size.replicas}_{name}{unit}", figure
