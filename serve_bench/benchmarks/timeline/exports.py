"""A run of timeline as JSON, for programs: figures of the transient, and each second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.course import REPLICA_STATES
from serve_bench.benchmarks.timeline.summary import (
    TimelineCell,
    TimelineLaunch,
    best_of,
    cells_of,
    sentences_of,
)
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result
from serve_bench.view.csv import json_of, pick
from serve_bench.view.document import ReportOptions


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures as one JSON object, indented; seconds since the first stage, times in ns."""
    cells = cells_of(result)
    best = best_of(cells)
    whole = {
        "run": result.run.id,
        "records": options.where,
        "slo": cells[0].slo.text,
        "stages": cells[0].timeline.stages,
        "faults": [one.source for one in cells[0].timeline.faults],
        "findings": list(sentences_of(cells)),
        "best": None if best is None else pick(best, "variant", "cell"),
        "cells": [_cell(one) for one in cells],
        "failures": [one.message for one in result.failures],
        "host": dict(result.run.host),
    }
    return json_of(whole)


def _cell(one: TimelineCell) -> dict[str, Any]:
    return {
        **pick(one, "variant", "cell", "lost", "cost", "turns_per_minute"),
        "out_of_slo_s": one.mean(lambda each: each.out_s),
        "lost_each": one.mean(lambda each: each.lost_total),
        "replica_s": one.mean(lambda each: each.replica_s),
        "down_s": one.mean(lambda each: each.down_s),
        "launches": [_launch(each) for each in one.launches],
    }


def _launch(one: TimelineLaunch) -> dict[str, Any]:
    figures = one.transient
    whole = ("out_s", "due", "answered", "lost", "replica_s", "least_s", "down_s", "faults")
    return {
        "round": one.trial.round,
        **pick(figures, *whole),
        "lost_after": one.near_events(),
        "stages": [{**asdict(stage), "overshoot": stage.overshoot} for stage in figures.stages],
        "events": one.events,
        "replicas": figures.replicas.counts,
        "seconds": list(_seconds(one)),
    }


def _seconds(one: TimelineLaunch) -> Iterator[dict[str, Any]]:
    course = one.trial.course
    for at, out in enumerate(one.transient.out):
        histogram = course["latency"][at]
        known = None if histogram is None else Histogram.decode(histogram)
        p50, p99 = (None, None) if known is None else known.percentiles((0.5, 0.99))
        state = one.transient.replicas.at(at + 1.0)
        yield {
            "second": at,
            "due": course["due"][at],
            "sent": course["sent"][at],
            "answered": course["answered"][at],
            "lost": {name: some[at] for name, some in course["failed"].items() if some[at]},
            "waiting": course["waiting"][at],
            "p50_ns": p50,
            "p99_ns": p99,
            "max_ns": None if known is None else known.max,
            "slo": None if out is None else not out,
            **{name: state and getattr(state, name) for name in REPLICA_STATES},
            "cpu_percent": {
                role: some[at] for role, some in (course.get("cpu") or {}).items() if at < len(some)
            },
        }
