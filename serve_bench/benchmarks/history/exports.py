"""A history as JSON and CSV, for programs.

Rule: every figure, not rounded: the values of each launch, levels, intervals, p as it was judged.
In JSON runs are named by their place in `runs`, from 0. Times in ns. CSV has a line for each run of
each series.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.history import news_of
from serve_bench.analysis.history.levels import LevelMark
from serve_bench.analysis.history.model import Group, History, Night, Series
from serve_bench.analysis.ratios import Interval
from serve_bench.benchmarks.history.summary import headline
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.versus.exports import interval_json
from serve_bench.core.result import cell_slug


def history_json(history: History) -> str:
    """The history as one JSON object, indented."""
    whole = {
        "threshold": history.threshold,
        "metrics": list(history.metrics),
        "forced": history.forced,
        "found": history.total,
        "passed_over": [asdict(one) for one in history.passed],
        "groups": [_group(group) for group in history.groups],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _group(group: Group) -> dict[str, Any]:
    return {
        "command": group.first.command,
        "suite": group.first.suite.get("name"),
        "headline": headline(group),
        "news": len(news_of(group)),
        "host": dict(group.newest.host),
        "notes": list(group.notes),
        "runs": [_night(night) for night in group.nights],
        "series": [_series(series) for series in group.series],
    }


def _night(night: Night) -> dict[str, Any]:
    run = night.run
    return {
        "run": run.id,
        "records": night.where,
        "argv": list(run.argv),
        "started_at": run.started_at,
        "tool_version": run.tool_version,
        "git_commit": run.git_commit,
        "versions": dict(night.versions),
        "changed": list(night.changed),
        "doubts": [f"{one.code}: {one.message} ({one.hint})" for one in night.doubts],
    }


def _about(series: Series) -> dict[str, Any]:
    return {
        "variant": series.variant,
        "cell": dict(series.cell),
        "row": series.row,
        "client": series.client,
        "metric": series.metric,
        "unit": series.measure.unit,
        "better": series.measure.better,
    }


def _series(series: Series) -> dict[str, Any]:
    fit = series.fit
    return {
        **_about(series),
        "points": [
            {
                "value": point.value,
                "by_launch": {str(at): value for at, value in point.by_launch.items()},
                "interval": _interval(point.interval),
                "invalid": point.invalid,
                "level": fit.level_of(at),
                "doubts": [
                    {name: value for name, value in asdict(one).items() if name != "side"}
                    for one in point.doubts
                ],
            }
            for at, point in enumerate(series.points)
        ],
        "levels": [{"runs": list(one.runs), "value": one.value} for one in fit.levels],
        "steps": [_mark(series, mark) for mark in fit.steps],
        "outliers": [_mark(series, mark) for mark in fit.outliers],
        "drift": _drift(series),
        "news": [mark.at for mark in series.news],
        "new_drift": series.drifts,
        "gap": series.gap or None,
        "spread": fit.spread,
        "df": fit.df,
        "p_adjusted": fit.p,
        "correlation": fit.correlation or None,
        "expected": _interval(fit.expected),
    }


def _drift(series: Series) -> dict[str, Any] | None:
    """`ratio`, `interval`: of a run to the one before; `whole`: of the last to the first."""
    drift = series.fit.drift
    if drift is None:
        return None
    return {
        "word": series.word(drift),
        "ratio": drift.interval.ratio,
        "interval": _interval(drift.interval),
        "whole": series.drifted,
        "p_adjusted": drift.p,
    }


def _mark(series: Series, mark: LevelMark) -> dict[str, Any]:
    return {
        "run": mark.at,
        "word": series.word(mark),
        "ratio": mark.interval.ratio,
        "interval": _interval(mark.interval),
        "p_adjusted": mark.p,
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as of a comparison, but for what that says of its two sides."""
    names = ("low", "high", "confidence", "log_center", "log_se", "df")
    whole = interval_json(interval)
    return None if whole is None else {name: whole[name] for name in names}


# ------------------------------------------------------------------------------------------ csv

_COLUMNS: Final = (
    *("command", "run", "started_at", "records", "ray", "tool_version", "changed"),
    *("variant", "cell", "row", "client", "metric", "unit", "better"),
    *("value", "low", "high", "launches", "invalid", "level", "level_value"),
    *("mark", "word", "ratio", "ratio_low", "ratio_high", "p_adjusted", "spread", "doubts"),
)


def history_csv(history: History) -> str:
    """The history as CSV, a header first. `level` counts from 1; `spread` is a standard deviation
    of logarithms."""
    every = [(group, series) for group in history.groups for series in group.series]
    return csv_of(_COLUMNS, (row for group, series in every for row in _rows(group, series)))


def _rows(group: Group, series: Series) -> Iterator[dict[str, Any]]:
    marks = {mark.at: mark for mark in series.marks}
    about = {**_about(series), "cell": cell_slug(series.cell), "spread": series.fit.spread}
    for at, (night, point) in enumerate(zip(group.nights, series.points, strict=True)):
        level, mark = series.fit.level_of(at), marks.get(at)
        row = {
            "command": night.run.command,
            "run": night.run.id,
            "started_at": night.run.started_at,
            "records": night.where,
            "ray": night.versions.get("ray"),
            "tool_version": night.run.tool_version,
            "changed": "; ".join(night.changed),
            "value": point.value,
            "low": point.interval.low if point.interval else None,
            "high": point.interval.high if point.interval else None,
            "launches": len(point.by_launch),
            "invalid": point.invalid,
            "level": None if level is None else level + 1,
            "level_value": None if level is None else series.fit.levels[level].value,
            "doubts": "; ".join(one.code for one in point.doubts),
        }
        if mark is not None:
            row |= {
                "mark": "step" if series.is_step(mark) else "outlier",
                "word": series.word(mark),
                "ratio": mark.interval.ratio,
                "ratio_low": mark.interval.low,
                "ratio_high": mark.interval.high,
                "p_adjusted": mark.p,
            }
        yield {**about, **row}
