"""The `perf_metrics` JSON that Ray's release tooling collects.

Rule: its form is {"perf_metrics": [{perf_metric_name, perf_metric_value, perf_metric_type}]}, the
type THROUGHPUT (counts too) or LATENCY. A name carries variant, cell, row, metric and unit; in a
suite that stands for a benchmark of Ray, and in scale, it is the name there. Keys that the tooling
does not read: `not_measured`, what was planned; `broken`, rows without figures since something
broke; `not_told`, what is not known; `lower_bounds`, figures known to be higher; `invalid`, why a
result of scale is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, Line, latency_figures, summarize
from serve_bench.benchmarks.scale.lens import CURVE_METRICS, LENS, RATE, invalid_lines, metric_names
from serve_bench.core.figures import LowerBound
from serve_bench.core.load_result import HISTOGRAMS, STREAM_TIMES
from serve_bench.core.result import Result, cell_slug
from serve_bench.core.row_places import MetricNames, PlacedRow
from serve_bench.core.schema import built
from serve_bench.core.usage import BATCH_SIZE
from serve_bench.view.csv import json_of
from serve_bench.view.document import ReportOptions
from serve_bench.view.figures import FACTORS, FIGURES
from serve_bench.view.frame import ViewRow

Metric = tuple[str, float | None, str]
"""Name, value and type; a value that is known to be higher is a LowerBound."""

#: Of the load engine's histograms only the latency is a result; the others, and the sizes of the
#: batches that Serve formed, are evidence.
_EVIDENCE: Final = (frozenset(HISTOGRAMS) - {"latency", *STREAM_TIMES}) | {BATCH_SIZE}


def perf_metrics(result: Result) -> str:
    """Return the figures of a run, without profiled rows, as the text of that JSON file."""
    more = {"not_measured": [planned.key for planned in result.missing]}
    if result.run.command == "scale":
        rows = LENS.look(result, ReportOptions()).view.rows
        figures, more["invalid"] = [_list_scale_metrics(rows)], invalid_lines(rows)
    else:
        lines = [line for line in summarize(result) if line.status != "profiled"]
        stored = result.run.suite.get("places") or []
        places = built(tuple[PlacedRow, ...], stored, "suite.places")
        in_ray = any(place.metrics != MetricNames() for place in places)
        several = len({line.variant for line in lines}) > 1
        figures = [
            _list_ray_metrics(line, places, several) if in_ray else _list_metrics(line)
            for line in lines
            if not line.broken
        ]
        more["broken"] = [key for line in lines for key in line.keys if line.broken]
    metrics = [
        (re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_"), value, kind)
        for name, value, kind in chain(*figures)
    ]
    keys = ("perf_metric_name", "perf_metric_value", "perf_metric_type")
    more["not_told"] = [name for name, value, _ in metrics if value is None]
    more["lower_bounds"] = [name for name, value, _ in metrics if isinstance(value, LowerBound)]
    known = [dict(zip(keys, metric, strict=True)) for metric in metrics if metric[1] is not None]
    return json_of({"perf_metrics": known, **more})


def _list_scale_metrics(rows: Sequence[ViewRow]) -> Iterator[Metric]:
    """Yield the metrics of scale; a curve has no published names, so its have replicas and unit."""
    for row in (row for row in rows if row.trials):
        dims, curve = row.dims, row.dims.get("workload") == "curve"
        prefix = "" if dims["variant"] == rows[0].dims["variant"] else f"{dims['variant']}_"
        prefix += f"replicas_{dims['replicas']}_" if curve else ""
        for name in CURVE_METRICS if curve else metric_names(row.line):
            figure, value = FIGURES[name], row.value(name)
            unit = f"_{figure.shown}" if curve and name != RATE else ""
            shown = None if value is None else value * FACTORS.get((figure.unit, figure.shown), 1.0)
            kind = "LATENCY" if figure.better == "lower" else "THROUGHPUT"
            yield f"{prefix}{name}{unit}", shown, kind


def _list_metrics(line: Line) -> Iterator[Metric]:
    """Yield the figures of a row by names with variant, cell, row, metric and unit."""
    row = line.row
    label = row.label if row.data_size == "small" else f"{row.label} {row.data_size}"
    place = f"{line.variant}_{cell_slug(line.cell)}_{label}"
    kept = {name: metric for trial in line.trials for name, metric in trial.metrics.items()}
    for name, spread in line.spreads.items():
        kind = "THROUGHPUT" if kept[name].better == "higher" else "LATENCY"
        yield f"{place}_{name}_{kept[name].unit.replace('/', '_per_')}", spread.value, kind
    for name, figures in line.distributions.items():
        if name.partition(".")[0] not in _EVIDENCE:
            unit = "ns" if name not in kept else kept[name].unit  # none of its requests came
            unit, per = ("ms", 1e6) if unit == "ns" else (unit, 1.0)
            for share in ("p50", "p99"):
                yield f"{place}_{name}_{share}_{unit}", figures[share] / per, "LATENCY"


#: Figures of the benchmark of Ray: percentiles by the ends of their names.
_LATENCIES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_GAPS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def _list_ray_metrics(line: Line, places: Sequence[PlacedRow], several: bool) -> Iterator[Metric]:
    """Yield the figures of a row by the names of Ray's benchmark, times in ms."""
    before = f"{line.variant}_" if several else ""
    for names in (place.metrics for place in places if place.holds(line.row.label, line.cell)):
        for name, metric, end in ((names.rate, MAIN, "rps"), (names.events, "events", "tps")):
            spread = line.spreads.get(metric) if name else None
            if spread is not None:
                yield f"{before}{name}_avg_{end}", spread.value, "THROUGHPUT"
                if spread.std is not None:
                    yield f"{before}{name}_throughput_std", spread.std, "THROUGHPUT"
        for name, metric, shares, start, end in (
            (names.latency, LATENCY, _LATENCIES, "", "latency"),
            (names.gaps, "ttft", _LATENCIES, "ttft_", names.suffix),
            (names.gaps, "itl", _GAPS, "inter_token_", names.suffix),
        ):
            values = latency_figures(line.trials, tuple(shares.values()), metric) if name else ()
            for share, value in zip(shares, values, strict=False):
                shown = None if value is None else value / 1e6
                yield f"{before}{name}_{start}{share}_{end}", shown, "LATENCY"
