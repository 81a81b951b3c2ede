"""A run of scale as JSON, CSV, and as Ray publishes it."""

from __future__ import annotations

from serve_bench.benchmarks.scale.csv_form import scale_csv
from serve_bench.benchmarks.scale.json_form import classic_scale, scale_json
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return scale_json(result, options.published, options.where)


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return scale_csv(result, options.published)


def classic_text(result: Result, options: ReportOptions) -> str:
    """The JSON that the published benchmark writes."""
    return classic_scale(result)
