"""A single load as JSON and CSV."""

from __future__ import annotations

from serve_bench.benchmarks.micro import classic, json_form
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.page import page_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return json_form.json_text(page_of(result, published=options.published, where=options.where))


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return csv.csv_text(page_of(result, published=options.published, where=options.where))


def classic_text(result: Result, options: ReportOptions) -> str:
    """The lines of the published microbenchmark."""
    return classic.classic(page_of(result, published=options.published, where=options.where))
