"""How a run of ladders of users is looked at: sweep and recsys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.core.result import Result
from serve_bench.view.document import ReportOptions
from serve_bench.view.figures import INSIDE, known_values
from serve_bench.view.frame import Field, ViewRow
from serve_bench.view.ladders import view_ladders, view_run
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RECSYS, reference
from serve_bench.view.rows import Page

FIELDS: Final = (Field("users"), Field(MAIN, "throughput"), Field("latency_p50"))


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The services of a run, each a ladder of users."""
    published = options.published and result.run.command == "recsys"
    others = [*_published()] if published else []
    return view_run(result, view_ladders(result, rows), FIELDS, others)


def _published() -> Iterator[ViewRow]:
    """The published services of recsys, in groups by where they come from."""
    for about in (reference(RECSYS), reference(RECSYS)["later"]):
        for row in about["rows"]:
            times = {f"latency_{share}": row.get(f"{share}_ms") for share in ("p50", "p90", "p99")}
            values = {name: 1e6 * ms for name, ms in times.items() if ms is not None}
            known = known_values(throughput=row["req_s"], **values)
            source = f"{about['source']}; {about['hardware']}"
            yield ViewRow({"users": row["users"]}, known, row["variant"], source)


LENS: Final = Lens(build, INSIDE)
