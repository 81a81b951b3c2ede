"""A run of rows as JSON, CSV, and in the form of the published microbenchmark."""

from __future__ import annotations

from dataclasses import replace

from serve_bench.benchmarks.micro import classic, json_form
from serve_bench.benchmarks.micro.own_app_text import best_text
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.page import Page, page_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return json_form.json_text(_page(result, options))


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return csv.csv_text(_page(result, options))


def classic_text(result: Result, options: ReportOptions) -> str:
    """The lines of the published microbenchmark."""
    return classic.classic(_page(result, options))


def _page(result: Result, options: ReportOptions) -> Page:
    page = page_of(result, published=options.published, where=options.where)
    if result.run.command == "run" and (best := best_text(page)) is not None:
        return replace(page, notes=(best, *page.notes))
    return page
