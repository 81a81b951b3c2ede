"""A search as JSON and CSV, for programs: the step, and every comparison. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict

from serve_bench.benchmarks.bisect.document import sentences_of
from serve_bench.benchmarks.bisect.search import BisectSuite, state_of
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result

COLUMNS = (
    *("version", "base", "word", "metric", "row", "ratio", "low", "high", "rounds", "folder"),
    "why",
)


def json_text(result: Result, options: ReportOptions) -> str:
    """The search as one JSON object, indented."""
    state = state_of(BisectSuite.from_json(result.run.suite).points, result.versions)
    whole = {
        "run": result.run.id,
        "records": options.where,
        "headline": next(sentences_of(state)),
        "decided": state.decided,
        "step": None if state.step is None else asdict(state.step),
        "last_good": state.pair[0].name,
        "first_bad": state.pair[1].name,
        "between": [asdict(state.points[at]) for at in state.search.between],
        "points": [asdict(one) for one in state.points],
        "versions": [asdict(one) for one in state.versions],
        "host": dict(result.run.host),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each comparison, a header first."""
    return csv_of(COLUMNS, (asdict(one) for one in result.versions))


def classic_text(result: Result, options: ReportOptions) -> str:
    """Nothing like it was published in the classic form: a line that says so."""
    return "bisect has no published classic form: --format table shows it\n"
