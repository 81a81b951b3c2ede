"""A scale run for programs: JSON, `perf_metrics` of Ray's tooling.

Rule: figures are not rounded; what is not known is null, and what was planned and not measured is
listed. Names are exactly the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.statistics import LATENCY, MAIN, Line, LowerBound
from serve_bench.benchmarks.scale.figures import CLUSTER_NAMES, ScaleFigure
from serve_bench.benchmarks.scale.growth import Grown
from serve_bench.benchmarks.scale.nodes import NODE_NAMES
from serve_bench.benchmarks.scale.summary import (
    ScaleSize,
    ScaleSummary,
    ScaleVariant,
    scale_summary,
)
from serve_bench.core.result import Result, Run
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import ReportOptions
from serve_bench.view.published import scale_notes, scale_published
from serve_bench.view.slo import slo_json


def json_text(result: Result, options: ReportOptions) -> str:
    """The run as one JSON object, indented."""
    run, summary = result.run, scale_summary(result)
    base = summary.variants[0].name if len(summary.variants) > 1 else None
    content: dict[str, Any] = {
        "run": run_json(run, options.where),
        "host": dict(run.host),
        "workload": summary.workload,
        "asked": dict(run.suite),
        "base": base,
        "variants": [_variant(part, run) for part in summary.variants],
        **pick(summary, "invalid", "not_measured", "warnings", "failures"),
        "notes": list(scale_notes(summary.workload)) if options.published else [],
    }
    if options.published:
        content["published"] = scale_published(summary.workload)
    return json_of(content)


def _variant(part: ScaleVariant, run: Run) -> dict[str, Any]:
    return {
        **pick(part, "name", "env", "engaged", "warnings", "failures"),
        "sizes": [_size(one, run) for one in part.sizes],
        "growth": {one.quantity.name: _grown(one) for one in part.grown},
    }


def _size(size: ScaleSize, run: Run) -> dict[str, Any]:
    found = ("nodes", "invalid", "warnings", "failures", "limits")
    return {
        **pick(size, "cell", "launches", *found),
        "status": size.gap or "measured",
        "metrics": {name: _figure(one) for name, one in size.figures.items()},
        "rows": [{**_row(line), **slo_json(run, line)} for line in size.lines],
    }


def _figure(figure: ScaleFigure) -> dict[str, Any]:
    lower = {"lower_bound": isinstance(figure.mean, LowerBound)}
    return pick(figure, "unit", "kind", "mean", "std", "count", "values") | lower


def _row(line: Line) -> dict[str, Any]:
    return {
        "row": line.row.label,
        **pick(line.row, "client", "requests_each"),
        **pick(line, "status", "keys", "completed", "failed", "ratio"),
        "connections": [trial.row.connections for trial in line.trials],
        "throughput": line.spreads.get(MAIN),
        "latency": line.distributions.get(LATENCY),
    }


def _grown(grown: Grown) -> dict[str, Any]:
    fit = grown.fit
    return {
        "unit": grown.quantity.unit,
        "points": [
            {"replicas": replicas, **pick(figure, "mean", "values")}
            for replicas, figure in grown.points
        ],
        "fit": None if fit is None else {**asdict(fit), "words": fit.words},
    }


def scale_perf_metrics(result: Result) -> str:
    """The metrics as the text of that JSON file, means over launches.

    The first variant's bear exactly the published names (`per_thread_latency_avg_ms`), those of the
    others have the variant before them. A curve publishes none; its names hold the replicas. The
    tooling knows the types THROUGHPUT and LATENCY alone: counts are called THROUGHPUT, memory, CPU
    and times of a curve LATENCY. What is not known has no entry and is named under `not_told`; what
    is known to be higher, under `lower_bounds`. These, `not_measured` and `invalid` are keys that
    the tooling does not read.
    """
    summary = scale_summary(result)
    metrics, not_told, lower_bounds = [], [], []
    for part in summary.variants:
        prefix = "" if part is summary.variants[0] else f"{part.name}_"
        for size in part.sizes:
            for name, figure in _named(summary, size):
                full = re.sub(r"[^A-Za-z0-9]+", "_", prefix) + name
                if figure.mean is not None:
                    metrics.append(
                        {
                            "perf_metric_name": full,
                            "perf_metric_value": figure.mean,
                            "perf_metric_type": figure.kind or "THROUGHPUT",
                        }
                    )
                    lower_bounds += [full] if isinstance(figure.mean, LowerBound) else []
                elif size.trials:
                    not_told.append(full)
    content = {
        "perf_metrics": metrics,
        "not_told": not_told,
        "lower_bounds": lower_bounds,
        "not_measured": list(summary.not_measured),
        "invalid": list(summary.invalid),
    }
    return json_of(content)


def _named(summary: ScaleSummary, size: ScaleSize) -> Iterator[tuple[str, ScaleFigure]]:
    """The figures of a size by their names; those of a curve with the replicas and the unit."""
    if not summary.curve:
        yield from size.figures.items()
        return
    names = [name for name in size.figures if name not in (*NODE_NAMES, *CLUSTER_NAMES)]
    for name in ("cluster_requests_per_s", *names):
        figure = size.figures[name]
        unit = "" if name.startswith("cluster") else f"_{figure.unit}"
        yield f"replicas_{size.replicas}_{name}{unit}", figure
