"""A run of rpc as JSON, CSV, and as the published benchmark prints it."""

from __future__ import annotations

from serve_bench.benchmarks.rpc.csv_form import rpc_csv
from serve_bench.benchmarks.rpc.json_form import rpc_json
from serve_bench.benchmarks.rpc.printed_form import classic_rpc
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return rpc_json(result, options.published, options.where)


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return rpc_csv(result)


def classic_text(result: Result, options: ReportOptions) -> str:
    """As the published benchmark prints it."""
    return classic_rpc(result)
