"""The `perf_metrics` JSON that Ray's release tooling collects.

Rule: its form is {"perf_metrics": [{perf_metric_name, perf_metric_value, perf_metric_type}]}, the
type THROUGHPUT or LATENCY. A name carries variant, cell, row, metric and unit; in a suite that
stands for a benchmark of Ray it is the name there, with the variant before it where there are
several. Keys that the tooling does not read: `not_measured`, what was planned and not measured;
`broken`, rows without figures since something broke; `lower_bounds`, figures known to be higher.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN, Line, latency_figures, summarize
from serve_bench.benchmarks.scale.lens import scale_perf_metrics
from serve_bench.core.figures import LowerBound
from serve_bench.core.load_result import HISTOGRAMS, STREAM_TIMES
from serve_bench.core.result import Result, cell_slug
from serve_bench.core.row_places import MetricNames, PlacedRow
from serve_bench.core.schema import built
from serve_bench.core.usage import BATCH_SIZE
from serve_bench.view.streams import EVENTS

#: Of the load engine's histograms only the latency is a result; the others, and the sizes of the
#: batches that Serve formed, are evidence.
_EVIDENCE: Final = (frozenset(HISTOGRAMS) - {"latency", *STREAM_TIMES}) | {BATCH_SIZE}


def perf_metrics(result: Result) -> str:
    """The figures of a run, profiled rows left out, as the text of that JSON file.

    A run of scale has the published names: benchmarks/scale/lens.py.
    """
    if result.run.command == "scale":
        return scale_perf_metrics(result)
    lines = [line for line in summarize(result) if line.status != "profiled"]
    places = _places(result)
    several = len({line.variant for line in lines}) > 1
    named = [
        pair
        for line in lines
        if not line.broken
        for pair in (_as_in_ray(line, places, several) if places else _metrics(line))
    ]
    content = {
        "perf_metrics": [metric for metric, _ in named],
        "not_measured": [key for line in lines for key in line.keys if not line.trials],
        "broken": [key for line in lines for key in line.keys if line.broken],
        "lower_bounds": [metric["perf_metric_name"] for metric, lower in named if lower],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _metrics(line: Line) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each figure, and whether it is only a lower bound."""
    row = (
        line.row.label
        if line.row.data_size == "small"
        else f"{line.row.label} {line.row.data_size}"
    )
    place = f"{line.variant}_{cell_slug(line.cell)}_{row}"
    for name, spread in line.spreads.items():
        kind = "THROUGHPUT" if spread.better == "higher" else "LATENCY"
        yield (
            _metric(f"{place}_{name}_{spread.unit.replace('/', '_per_')}", spread.mean, kind),
            False,
        )
    for name, figures in line.distributions.items():
        if name.partition(".")[0] in _EVIDENCE:
            continue
        unit, per = ("ms", 1e6) if figures.unit == "ns" else (figures.unit, 1.0)
        for share in ("p50", "p99"):
            value = float(getattr(figures, share)) / per
            lower = share in figures.lower_bounds
            yield _metric(f"{place}_{name}_{share}_{unit}", value, "LATENCY"), lower


#: Figures of the benchmark of Ray: percentiles by the ends of their names.
_LATENCIES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_GAPS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def _places(result: Result) -> tuple[PlacedRow, ...]:
    """What the rows of the run are called there; empty of a run that stands for no benchmark."""
    stored = result.run.suite.get("places") or []
    places = built(tuple[PlacedRow, ...], stored, "suite.places")
    return places if any(one.metrics != MetricNames() for one in places) else ()


def _as_in_ray(
    line: Line, places: Sequence[PlacedRow], several: bool
) -> Iterator[tuple[dict[str, Any], bool]]:
    """The figures of a row by the names of Ray's benchmark, times in ms."""
    before = f"{line.variant}_" if several else ""
    for names in (one.metrics for one in places if one.holds(line.row.label, line.cell)):
        for name, metric, end in ((names.rate, MAIN, "rps"), (names.events, EVENTS, "tps")):
            spread = line.spreads.get(metric) if name else None
            if spread is not None:
                yield _metric(f"{before}{name}_avg_{end}", spread.mean, "THROUGHPUT"), False
                if spread.std is not None:
                    std = f"{before}{name}_throughput_std"
                    yield _metric(std, spread.std, "THROUGHPUT"), False
        for name, metric, shares, form in (
            (names.latency, LATENCY, _LATENCIES, "{name}_{share}_latency"),
            (names.gaps, "ttft", _LATENCIES, "{name}_ttft_{share}_{suffix}"),
            (names.gaps, "itl", _GAPS, "{name}_inter_token_{share}_{suffix}"),
        ):
            values = latency_figures(line.trials, tuple(shares.values()), metric) if name else ()
            for share, value in zip(shares, values, strict=False):
                full = form.format(name=name, share=share, suffix=names.suffix)
                if value is not None:
                    lower = isinstance(value, LowerBound)
                    yield _metric(f"{before}{full}", value / 1e6, "LATENCY"), lower


def _metric(name: str, value: float, kind: str) -> dict[str, Any]:
    return {
        "perf_metric_name": re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_"),
        "perf_metric_value": value,
        "perf_metric_type": kind,
    }
