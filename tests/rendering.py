"""A run as the text that `report` prints of it."""

from collections.abc import Sequence

from serve_bench.analysis.comparing.model import Comparing
from serve_bench.benchmarks.registry import find_lens
from serve_bench.cli.show import render as render_documents
from serve_bench.cli.show import text_of
from serve_bench.core.result import Result
from serve_bench.report import Layout
from serve_bench.view.comparison import comparison_document, comparison_json
from serve_bench.view.csv import json_of
from serve_bench.view.document import ReportOptions


def render(
    result: Result,
    format: str = "table",
    *,
    published: bool = False,
    where: str | None = None,
    width: int = 80,
    color: bool = False,
    exclude_connect: bool = False,
    verbose: bool = False,
) -> str:
    """Render a run in a form; see text_of, ReportOptions and Layout."""
    options = ReportOptions(where, published, exclude_connect)
    run = find_lens(result.run.command).look(result, options)
    return text_of(run, format, Layout(width, color, verbose))


def render_comparing(comparing: Comparing, format: str = "table", where: Sequence[str] = ()) -> str:
    document, runs = comparison_document(comparing, where), [comparing.sides[1].run.id]
    return render_documents(
        format, [document], lambda: json_of(comparison_json(comparing, where)), runs
    )
