"""What a page says of the user's own app alone: which app, how it was asked, and its best cell.

Rule: what is best, and what is not clearly slower, is said by analysis/statistics.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from serve_bench.analysis.statistics import MAIN, best
from serve_bench.benchmarks.micro.own_app_text import beside_text, best_text, request_text
from serve_bench.benchmarks.micro.page_panels import Names
from serve_bench.benchmarks.micro.page_table import over_launches
from serve_bench.benchmarks.parts.page import Entry, Page
from serve_bench.benchmarks.parts.texts import mean_and_std
from serve_bench.core.document import Column, Facts, Number, Prose, Section, Table, Tone
from serve_bench.core.document import Row as TableRow
from serve_bench.core.result import Result


def with_app(asked: Facts, result: Result) -> Facts:
    """What was asked, with the app as it was found and the request that every row makes of it."""
    app = result.run.suite.get("app")
    if not isinstance(app, dict):
        return asked
    about = tuple(_app(app))
    known = {name for name, _ in about}
    return Facts((*about, *(pair for pair in asked.pairs if pair[0] not in known)))


def _app(app: dict[str, Any]) -> Iterator[tuple[str, str]]:
    asked = app["asked"]
    yield "app", str(app["target"])
    names = [str(one["name"]) for one in app["deployments"]]
    others = f", in front of {', '.join(names[-2::-1])}" if len(names) > 1 else ""
    yield "deployments", f"{names[-1]} meets HTTP{others}{beside_text(app)}"
    yield "request", request_text(asked) + ("" if asked["body"] else ", no body")


def best_cell(page: Page, names: Names) -> Section | None:
    """The best cell and those that are not clearly slower; None without a choice."""
    found, text = best(one.line for one in page.entries), best_text(page)
    if found is None or text is None:
        return None
    entries = {id(one.line): one for one in page.entries}
    chosen = [(found.line, "best"), *((line, "not clearly slower") for line in found.like)]
    rows = [_row(entries[id(line)], page, names, word) for line, word in chosen]
    columns = (
        Column("cell", number=False),
        Column("", number=False),
        Column("throughput", "requests/s"),
        *((Column("std over launches", "requests/s (launches)"),) if page.launches > 1 else ()),
    )
    table = Table("The best cell, and those like it", columns, tuple(rows))
    return Section("best", "Best cell", (Prose((f"{text[:1].upper()}{text[1:]}.",)), table))


def _row(entry: Entry, page: Page, names: Names, word: str) -> TableRow:
    spread = entry.line.spreads[MAIN]
    tone: Tone = "doubt" if entry.remarks else "good" if word == "best" else "plain"
    over = (over_launches(spread),) if page.launches > 1 else ()
    rate = Number(mean_and_std(spread), spread.mean, tone)
    return TableRow((names.whole(entry), word, rate, *over), entry.findings)
