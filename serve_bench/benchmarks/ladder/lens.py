"""How a run of ladders of users is looked at: sweep and recsys."""

from __future__ import annotations

from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.core.result import Result
from serve_bench.view.document import ReportOptions
from serve_bench.view.figures import INSIDE
from serve_bench.view.frame import Field, ViewRow
from serve_bench.view.ladders import view_ladders, view_run
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RECSYS, published_rows
from serve_bench.view.rows import Page

FIELDS: Final = (Field("users"), Field(MAIN, "throughput"), Field("latency_p50"))


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The services of a run, each a ladder of users."""
    published = options.published and result.run.command == "recsys"
    others = [*published_rows(RECSYS)] if published else []
    return view_run(result, view_ladders(result, rows), FIELDS, others)


LENS: Final = Lens(build, INSIDE)
