"""How a run of versus is looked at: as a comparison, beside the loads of both sides."""

from __future__ import annotations

from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.core.facts import TrialUsage
from serve_bench.view.comparison import view_comparison
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page


def build(page: Page) -> View:
    """The comparison that the run is."""
    return view_comparison(of_versus(page.result), [*page.bare_rows()])


LENS: Final = Lens(build, usage_of=lambda trial: TrialUsage())
