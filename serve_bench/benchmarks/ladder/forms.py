"""A run of ladders as JSON and CSV."""

from __future__ import annotations

from serve_bench.benchmarks.ladder.summary import ladder_lines
from serve_bench.benchmarks.ladder.tables import ladder_fields
from serve_bench.benchmarks.ladder.text import ladder_json
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.page import page_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return ladder_json(result, options.published, options.where)


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    page = page_of(result, published=options.published, where=options.where)
    ladders = ladder_lines(result)
    return csv.csv_text(page, lambda entry: ladder_fields(ladders, entry))


def classic_text(result: Result, options: ReportOptions) -> str:
    """Nothing like it was published in the classic form: a line that says so."""
    return f"{result.run.command} has no published classic form: --format table shows it\n"
