"""How a run of versus is looked at: as a comparison, beside the loads of both sides."""

from __future__ import annotations

from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.core.result import Result
from serve_bench.view.comparison import bare_loads, view_comparison
from serve_bench.view.document import ReportOptions
from serve_bench.view.frame import ViewRow
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The comparison that the run is."""
    return view_comparison(of_versus(result), bare_loads(rows))


LENS: Final = Lens(build, usage_of=lambda trial: {})
