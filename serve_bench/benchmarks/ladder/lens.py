"""The report on ladders of users: sweep and recsys."""

from __future__ import annotations

from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.view.figures import INSIDE
from serve_bench.view.frame import Field
from serve_bench.view.ladders import view_ladders, view_run
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RECSYS, published_rows
from serve_bench.view.rows import Page

FIELDS: Final = (Field("users"), Field(MAIN, "throughput"), Field("latency_p50"))


def build(page: Page) -> View:
    """Build the view of the services of a run, each a ladder of users."""
    published = page.options.published and page.result.run.command == "recsys"
    others = [*published_rows(RECSYS)] if published else []
    return view_run(page.result, view_ladders(page.result, page.rows), FIELDS, others)


LENS: Final = Lens(build, figures=INSIDE)
