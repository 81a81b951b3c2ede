"""A run of capacity as JSON, for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.statistics import mean_rate
from serve_bench.benchmarks.capacity.summary import CellCapacity, cells_of, need_words, sentences_of
from serve_bench.core.result import Result
from serve_bench.view.csv import json_of, pick
from serve_bench.view.document import ReportOptions


def json_text(result: Result, options: ReportOptions) -> str:
    """The capacities as one JSON object, indented; times in ns, shares of 1."""
    cells = cells_of(result)
    whole = {
        "run": result.run.id,
        "records": options.where,
        "findings": [*sentences_of(cells), *need_words(cells)],
        "stop": None if result.stop is None else result.stop.why,
        "capacities": [_cell(one) for one in cells],
        "failures": [one.message for one in result.failures],
        "host": dict(result.run.host),
    }
    return json_of(whole)


def _cell(one: CellCapacity) -> dict[str, Any]:
    has, closed, asked = one.capacity, one.closed, one.asked
    found = ("ceiling", "cliff", "binds", "limit", "steepness", "cores", "per_core", "safe_rate")
    return {
        **pick(one, "variant", "cell", *found, "next_bound", "ratio"),
        **pick(one.traffic, "client", "protocol"),
        **pick(has, "rate", "low", "high", "precise", "spread"),
        **pick(asked, "arrivals", "need"),
        "slo": one.slo.text,
        "closed_loop": None
        if closed is None
        else {"rate": closed[0], **{f"{name}_ns": p99 for name, p99 in closed[1].items()}},
        "holds": None if asked.need is None else one.holds(asked.need),
        "launches": [
            {"round": search.round, **asdict(estimate)}
            for search, estimate in zip(one.ended, has.launches, strict=True)
        ],
        "probes": list(_probes(one)),
    }


def _probes(one: CellCapacity) -> Iterator[dict[str, Any]]:
    for line in one.probes:
        counts = line.trial.counts
        values = zip(one.slo.objectives, line.values, strict=True)
        yield {
            "round": line.round,
            "probe": line.number,
            **pick(line.probe, "rate", "seconds", "replicas"),
            "answered": mean_rate(line.trial),
            "slo": line.word,
            "values": {objective.name: value for objective, value in values},
            **pick(counts, "completed", "failed"),
            "unanswered": counts.in_flight + counts.unsent,
        }
