"""A history in the forms that other tools read.

Rule: every figure, not rounded, in the unit of the metric (times in ns). Names of series are the
same in each export, whatever else was measured, so that tools which keep them find them again.

- Otava: CSV with a line for each run and a column for each series, and its config, which is JSON
  (a subset of YAML). Apache Otava 0.8.0, otava/importer.py.
- Bencher: Bencher Metric Format, https://bencher.dev/docs/reference/bencher-metric-format
- github-action-benchmark: an array of BenchmarkResult, src/extract.ts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from serve_bench.analysis.history import Group, History, HistoryPoint, Series
from serve_bench.core.errors import BadInput
from serve_bench.core.result import cell_slug
from serve_bench.view.csv import csv_of, json_of

ATTRIBUTES: Final = ("run", "ray", "serve_bench")


def otava_csv(history: History) -> str:
    """A line for each run. Otava takes a value in each cell, so a run without one is left out.
    BadInput where no run has all."""
    group, rows = _only_group(history), []
    for number, run in enumerate(group.runs):
        about: dict[str, Any] = {"time": run.run.started_at, "run": run.run.id}
        about |= {"ray": run.versions.get("ray", ""), "serve_bench": run.run.tool_version}
        about |= {_name(series): series.points[number].value for series in group.series}
        if None not in about.values():
            rows.append(about)
    if not rows:
        raise BadInput("--format otava: no run has a value of every row: choose one by --row")
    return csv_of(tuple(rows[0]), rows)


def otava_config(history: History) -> str:
    """The config of Otava for that CSV, as `history.csv`."""
    directions = {"higher": 1, "lower": -1}
    metrics = {
        _name(series): {"column": _name(series), "direction": directions[series.measure.better]}
        for series in _only_group(history).series
    }
    test: dict[str, Any] = {"type": "csv", "file": "history.csv", "time_column": "time"}
    test |= {"attributes": list(ATTRIBUTES), "metrics": metrics}
    return json_of({"tests": {"serve-bench": test}})


def bencher_json(history: History) -> str:
    """The newest run, in Bencher Metric Format."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for series, point, value in _newest(history):
        values = {"value": value}
        if point.interval is not None:
            values |= {"lower_value": point.interval.low, "upper_value": point.interval.high}
        place, _, metric = _name(series).rpartition("/")
        benchmarks.setdefault(place, {})[metric] = values
    return json_of(benchmarks)


def github_action_json(history: History) -> str:
    """The newest run as `customBiggerIsBetter` or `customSmallerIsBetter`. BadInput for metrics of
    both: a file of that tool is of one of them."""
    group = _only_group(history)
    better = {series.measure.name: series.measure.better for series in group.series}
    if len(set(better.values())) > 1:
        words = ", ".join(f"{name} {way}" for name, way in better.items())
        raise BadInput(
            "--format github-action-benchmark: takes metrics of which all are better higher or all "
            f"lower; here: {words}: choose by --metric"
        )
    newest, ray = group.newest.id, group.runs[-1].versions.get("ray", "unknown")
    entries = []
    for series, point, value in _newest(history):
        entry: dict[str, Any] = {"name": _name(series), "unit": series.measure.unit, "value": value}
        if point.interval is not None:
            entry["range"] = f"± {(point.interval.high - point.interval.low) / 2:.4g}"
        entry["extra"] = f"run {newest}, launches {point.launches}, ray {ray}"
        entries.append(entry)
    return json_of(entries)


EXPORTS: Final[Mapping[str, Callable[[History], str]]] = {
    "otava": otava_csv,
    "otava-config": otava_config,
    "bencher": bencher_json,
    "github-action-benchmark": github_action_json,
}
"""By the name of the form."""


def _only_group(history: History) -> Group:
    """The group of runs. BadInput for several: the tools keep one series by one name."""
    if len(history.groups) > 1:
        names = "; ".join(group.name for group in history.groups)
        raise BadInput(
            f"--format: the runs are {len(history.groups)} histories ({names}); other tools take "
            "one: name the folders of its runs"
        )
    return history.groups[0]


def _newest(history: History) -> Iterator[tuple[Series, HistoryPoint, float]]:
    """Each series of which the newest run has a value, with that."""
    for series in _only_group(history).series:
        if (value := series.points[-1].value) is not None:
            yield series, series.points[-1], value


def _name(series: Series) -> str:
    """`default/bs1-ongoing1-rep1/100 connections (raw)/throughput`."""
    place = f"{series.variant}/{cell_slug(series.cell)}/{series.row} ({series.client})"
    return f"{place}/{series.measure.name}"
