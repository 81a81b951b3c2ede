"""A run of ladders as JSON."""

from __future__ import annotations

from typing import Any

from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.micro.exports import page_data
from serve_bench.benchmarks.parts.csv import json_of, pick
from serve_bench.benchmarks.parts.published import RECSYS, reference
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result
from serve_bench.core.usage import mean_forward_ns


def json_text(result: Result, options: ReportOptions) -> str:
    """The page as every run's JSON has it, and `ladders`: knee, best and collapse."""
    page = page_of(result, published=options.published, where=options.where)
    data = page_data(page)
    data["ladders"] = [_ladder(ladder) for ladder in ladder_lines(result)]
    if options.published and result.run.command == "recsys":
        data["published"] = reference(RECSYS)
    return json_of(data)


def _ladder(ladder: LadderLine) -> dict[str, Any]:
    def users(line: Line | None) -> int | None:
        return None if line is None else line.row.connections

    knee = ladder.knee
    return {
        **pick(ladder, "variant", "cell", "errors", "end", "signs"),
        "users": [users(step) for step in ladder.steps],
        "runs": [step.row.run for step in ladder.steps],
        "knee_users": users(knee),
        "best_users": users(ladder.best),
        "collapse_users": [users(step) for step in ladder.collapses],
        "at_knee": knee
        and {
            "requests_per_s": ladder.rate(knee),
            "latency_ns": knee.distributions["latency"],
            "forward_ns_per_batch": mean_forward_ns(trial.forward for trial in knee.trials),
        },
    }
