"""A run of ladders as JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.micro.exports import page_data
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.published import RECSYS, reference
from serve_bench.benchmarks.parts.rows import Entry, page_of
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
    return csv.json_of(data)


def _ladder(ladder: LadderLine) -> dict[str, Any]:
    def users(line: Line | None) -> int | None:
        return None if line is None else line.row.connections

    knee = ladder.knee
    return {
        "variant": ladder.variant,
        "cell": dict(ladder.cell),
        "users": [users(step) for step in ladder.steps],
        "runs": [step.row.run for step in ladder.steps],
        "knee_users": users(knee),
        "best_users": users(ladder.best),
        "collapse_users": [users(step) for step in ladder.collapses],
        "errors": ladder.errors,
        "end": ladder.end,
        "signs": list(ladder.signs),
        "at_knee": knee
        and {
            "requests_per_s": ladder.rate(knee),
            "latency_ns": asdict(knee.distributions["latency"]),
            "forward_ns_per_batch": mean_forward_ns(trial.forward for trial in knee.trials),
        },
    }


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    page = page_of(result, published=options.published, where=options.where)
    ladders = ladder_lines(result)
    return csv.csv_text(page, lambda entry: ladder_fields(ladders, entry))


def ladder_fields(ladders: Sequence[LadderLine], entry: Entry) -> Mapping[str, Any]:
    """The columns that CSV has of a step of a ladder: which run of it, its mark, the ladder's end
    and signs."""
    line = entry.line
    for ladder in ladders if line.status != "profiled" else ():
        for step in (one for one in ladder.steps if one.keys == line.keys):
            return {
                "step_run": line.row.run,
                "mark": ladder.mark(step),
                "ladder_end": ladder.end,
                "ladder_signs": "; ".join(ladder.signs),
            }
    return dict.fromkeys(("step_run", "mark", "ladder_end", "ladder_signs"))
