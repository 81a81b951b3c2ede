"""A history in the forms that other tools read.

Apache Otava 0.8.0 (otava/importer.py), Bencher (Bencher Metric Format), github-action-benchmark
(BenchmarkResult of its src/extract.ts). Rule: every figure, not rounded, in the unit of the metric
(times in ns). Names of series are the same in each export, whatever else was measured, so that
tools which keep them find them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from serve_bench.analysis.history import Group, History, Series
from serve_bench.core.errors import BadInput
from serve_bench.view.csv import csv_of, json_of

ATTRIBUTES: Final = ("run", "ray", "serve_bench")


def export(history: History, form: str) -> str:
    """Render the history in a form of EXPORTS. BadInput for several groups of runs."""
    if len(history.groups) > 1:
        names = "; ".join(group.name for group in history.groups)
        words = f"the runs are {len(history.groups)} histories ({names})"
        raise BadInput(f"--format: {words}; other tools take one: name the folders of its runs")
    (group,), named = history.groups, {}
    for series in group.series:
        variant, row = series.place
        named[f"{variant}/{row.cell}/{row.row} ({row.client})/{series.measure.name}"] = series
    return EXPORTS[form](group, named)


def _otava_csv(group: Group, named: Mapping[str, Series]) -> str:
    """Render a line for each run with all values: Otava takes no gaps. BadInput where none has."""
    rows = []
    for number, run in enumerate(group.runs):
        about = (run.run.started_at, run.run.id, run.versions.get("ray", ""), run.run.tool_version)
        row: dict[str, Any] = dict(zip(("time", *ATTRIBUTES), about, strict=True))
        row |= {name: series.points[number].value for name, series in named.items()}
        rows += [row] if None not in row.values() else []
    if not rows:
        raise BadInput("--format otava: no run has a value of every row: choose one by --row")
    return csv_of(tuple(rows[0]), rows)


def _otava_config(group: Group, named: Mapping[str, Series]) -> str:
    """Render the config of Otava for that CSV, as `history.csv`."""
    ways, test = {"higher": 1, "lower": -1}, {"type": "csv", "file": "history.csv"}
    better = {name: series.measure.better for name, series in named.items()}
    metrics = {name: {"column": name, "direction": ways[way]} for name, way in better.items()}
    about = {"time_column": "time", "attributes": ATTRIBUTES, "metrics": metrics}
    return json_of({"tests": {"serve-bench": {**test, **about}}})


def _bencher(group: Group, named: Mapping[str, Series]) -> str:
    """Render the newest run in Bencher Metric Format."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for name, series in named.items():
        point, (place, _, metric) = series.points[-1], name.rpartition("/")
        if point.value is not None:
            values = benchmarks.setdefault(place, {})[metric] = {"value": point.value}
            if point.interval is not None:
                values |= {"lower_value": point.interval.low, "upper_value": point.interval.high}
    return json_of(benchmarks)


def _github_action(group: Group, named: Mapping[str, Series]) -> str:
    """Render the newest run as that tool's file. BadInput for metrics better in both directions."""
    better = {series.measure.name: series.measure.better for series in group.series}
    if len(set(better.values())) > 1:
        words = ", ".join(f"{name} {way}" for name, way in better.items())
        takes = "--format github-action-benchmark: takes metrics that are better in one direction"
        raise BadInput(f"{takes}; here: {words}: choose by --metric")
    ray, entries = group.runs[-1].versions.get("ray", "unknown"), []
    for name, series in named.items():
        point = series.points[-1]
        if point.value is not None:
            entry = {"name": name, "unit": series.measure.unit, "value": point.value}
            if point.interval is not None:
                entry["range"] = f"± {(point.interval.high - point.interval.low) / 2:.4g}"
            about = f"run {group.newest.id}, launches {point.launches}, ray {ray}"
            entries.append({**entry, "extra": about})
    return json_of(entries)


EXPORTS: Final[Mapping[str, Callable[[Group, Mapping[str, Series]], str]]] = {
    "otava": _otava_csv,
    "otava-config": _otava_config,
    "bencher": _bencher,
    "github-action-benchmark": _github_action,
}
"""Forms of a group with its series by name: `default/bs1-rep1/100 connections (raw)/throughput`."""
