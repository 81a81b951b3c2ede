"""A history as JSON, for programs.

Rule: every figure, not rounded: the values of each launch, levels, intervals, p as it was judged.
Runs are named by their place in `runs`, from 0. Times in ns.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.comparison import Interval
from serve_bench.analysis.history import news_of
from serve_bench.analysis.history.levels import Mark
from serve_bench.analysis.history.parts import Group, History, Night, Series
from serve_bench.benchmarks.history.words import headline


def history_json(history: History) -> str:
    """The history as one JSON object, indented."""
    whole = {
        "threshold": history.threshold,
        "metrics": list(history.metrics),
        "forced": history.forced,
        "found": history.found,
        "passed_over": [asdict(one) for one in history.passed],
        "groups": [_group(group) for group in history.groups],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def level_of(series: Series, at: int) -> int | None:
    """The level that a run belongs to, from 0; None for an outlier and what was not measured."""
    found = (n for n, level in enumerate(series.found.levels) if at in level.runs)
    return next(found, None)


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
        "doubts": list(night.doubts),
    }


def _series(series: Series) -> dict[str, Any]:
    found = series.found
    expected = found.expected
    return {
        "variant": series.variant,
        "cell": dict(series.cell),
        "row": series.row,
        "client": series.client,
        "metric": series.metric,
        "unit": series.measure.unit,
        "better": series.measure.better,
        "points": [
            {
                "value": point.value,
                "by_launch": {str(at): value for at, value in point.by_launch.items()},
                "interval": None if point.interval is None else _interval(point.interval),
                "invalid": point.invalid,
                "level": level_of(series, at),
                "doubts": [
                    {name: value for name, value in asdict(one).items() if name != "side"}
                    for one in point.doubts
                ],
            }
            for at, point in enumerate(series.points)
        ],
        "levels": [{"runs": list(one.runs), "value": one.value} for one in found.levels],
        "steps": [_mark(series, mark) for mark in found.steps],
        "outliers": [_mark(series, mark) for mark in found.outliers],
        "news": [mark.at for mark in series.news],
        "gap": series.gap or None,
        "spread": found.spread,
        "df": found.df,
        "p_adjusted": found.p,
        "expected": None if expected is None else _interval(expected),
    }


def _mark(series: Series, mark: Mark) -> dict[str, Any]:
    return {
        "run": mark.at,
        "word": series.word(mark),
        "ratio": mark.interval.ratio,
        "interval": _interval(mark.interval),
        "p_adjusted": mark.p,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    """`log_*`: on logarithms; an end beyond all numbers is null."""
    return {
        "low": interval.low,
        "high": interval.high if math.isfinite(interval.high) else None,
        "confidence": interval.confidence,
        "log_center": interval.center,
        "log_se": interval.se,
        "df": interval.df,
    }
