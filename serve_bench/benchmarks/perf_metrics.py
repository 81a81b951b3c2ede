"""The `perf_metrics` JSON that Ray's release tooling collects.

Rule: its form is {"perf_metrics": [{perf_metric_name, perf_metric_value, perf_metric_type}]}, the
type THROUGHPUT or LATENCY. A name carries variant, cell, row, metric and unit; in a suite that
stands for a benchmark of Ray it is the name there, with the variant before it where there are
several. Keys that the tooling does not read: `not_measured`, what was planned and not measured;
`broken`, rows without figures since something broke; `lower_bounds`, figures known to be higher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
from serve_bench.view.figures import FIGURES, scale
from serve_bench.view.lens import look

Metric = tuple[str, float, str]
"""Name, value and type; a value that is known to be higher is a LowerBound."""

#: Of the load engine's histograms only the latency is a result; the others, and the sizes of the
#: batches that Serve formed, are evidence.
_EVIDENCE: Final = (frozenset(HISTOGRAMS) - {"latency", *STREAM_TIMES}) | {BATCH_SIZE}


def perf_metrics(result: Result) -> str:
    """The figures of a run, profiled rows left out, as the text of that JSON file."""
    if result.run.command == "scale":
        return _scale_metrics(result)
    lines = [line for line in summarize(result) if line.status != "profiled"]
    stored = result.run.suite.get("places") or []
    places = built(tuple[PlacedRow, ...], stored, "suite.places")
    in_ray = any(place.metrics != MetricNames() for place in places)
    several = len({line.variant for line in lines}) > 1
    figures = (
        _as_in_ray(line, places, several) if in_ray else _metrics(line)
        for line in lines
        if not line.broken
    )
    return _format(
        chain.from_iterable(figures),
        not_measured=[
            key for line in lines for key in line.keys if not (line.spreads or line.broken)
        ],
        broken=[key for line in lines for key in line.keys if line.broken],
    )


def _scale_metrics(result: Result) -> str:
    """Those of the rows of scale, by their published names; of a curve, which has none, the names
    hold the replicas and the unit.

    The tooling knows two types alone: counts are called THROUGHPUT, memory, CPU and times of a
    curve LATENCY. What is not known has no entry and is named under `not_told`; `invalid` has why
    the result is.
    """
    view = look(result, ReportOptions(), LENS).view
    metrics, unknown = [], []
    for row in view.rows:
        if row.entry is None or not row.trials:
            continue
        dims, curve = row.dims, row.dims.get("workload") == "curve"
        prefix = "" if dims["variant"] == view.rows[0].dims["variant"] else f"{dims['variant']}_"
        prefix += f"replicas_{dims['replicas']}_" if curve else ""
        for name in CURVE_METRICS if curve else metric_names(row.entry.line):
            figure, value = FIGURES[name], row.value(name)
            full = f"{prefix}{name}_{figure.shown}" if curve and name != RATE else prefix + name
            if value is None:
                unknown.append(_spell(full))
                continue
            kind = "LATENCY" if figure.better == "lower" else "THROUGHPUT"
            metrics.append((full, value * scale(figure.unit, figure.shown), kind))
    return _format(
        metrics,
        not_told=unknown,
        not_measured=[planned.key for planned in result.missing],
        invalid=invalid_lines(view.rows),
    )


def _metrics(line: Line) -> Iterator[Metric]:
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


def _as_in_ray(line: Line, places: Sequence[PlacedRow], several: bool) -> Iterator[Metric]:
    """The figures of a row by the names of Ray's benchmark, times in ms."""
    before = f"{line.variant}_" if several else ""
    for names in (place.metrics for place in places if place.holds(line.row.label, line.cell)):
        for name, metric, end in ((names.rate, MAIN, "rps"), (names.events, "events", "tps")):
            spread = line.spreads.get(metric) if name else None
            if spread is not None:
                yield f"{before}{name}_avg_{end}", spread.value, "THROUGHPUT"
                if spread.std is not None:
                    yield f"{before}{name}_throughput_std", spread.std, "THROUGHPUT"
        for name, metric, shares, form in (
            (names.latency, LATENCY, _LATENCIES, "{name}_{share}_latency"),
            (names.gaps, "ttft", _LATENCIES, "{name}_ttft_{share}_{suffix}"),
            (names.gaps, "itl", _GAPS, "{name}_inter_token_{share}_{suffix}"),
        ):
            values = latency_figures(line.trials, tuple(shares.values()), metric) if name else ()
            for share, value in zip(shares, values, strict=False):
                if value is not None:
                    full = form.format(name=name, share=share, suffix=names.suffix)
                    yield f"{before}{full}", value / 1e6, "LATENCY"


def _format(metrics: Iterable[Metric], **more: list[str]) -> str:
    named = [(_spell(name), value, kind) for name, value, kind in metrics]
    keys = ("perf_metric_name", "perf_metric_value", "perf_metric_type")
    bounds = [name for name, value, _ in named if isinstance(value, LowerBound)]
    content = [dict(zip(keys, metric, strict=True)) for metric in named]
    return json_of({"perf_metrics": content, **more, "lower_bounds": bounds})


def _spell(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
