"""The report on versus: the comparison, and the loads of both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.model import Comparing, describe_change, row_title
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.versus.spec import REPEATED
from serve_bench.core.facts import TrialUsage
from serve_bench.view.comparison import view_comparison
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page


def build(page: Page) -> View:
    """Build the view of the comparison that the run is."""
    comparing = page.options.comparing or of_versus(page.result)
    view = view_comparison(comparing, [*page.bare_rows()])
    return replace(view, findings=[*_describe_cache(comparing), *view.findings])


def _describe_cache(comparing: Comparing) -> Iterator[str]:
    """Say what an audit shows of a cache."""
    a, b = comparing.names
    for row in comparing.rows if a == f"{b}{REPEATED}" else ():
        line = row.line(MAIN)
        known = {"regressed": "a cache shows", "slower": "a cache shows", "same": "no cache shows"}
        shown = known.get(line.judged.word, "a cache is not proven")
        ratio = describe_change(line, "one that is repeated")
        yield f"{row_title(comparing, row)}: {shown}: unlike requests are {ratio}."


LENS: Final = Lens(build, usage_of=lambda trial: TrialUsage())
