"""A run of capacity as JSON, for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.statistics import mean_rate
from serve_bench.benchmarks.capacity.summary import (
    CellCapacity,
    cells_of,
    need_words,
    sentences_of,
)
from serve_bench.benchmarks.parts.csv import json_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


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
    has, limit, closed = one.capacity, one.limit, one.closed
    return {
        "variant": one.variant,
        "cell": dict(one.cell),
        "slo": one.slo.text,
        "arrivals": one.asked.arrivals,
        "client": one.traffic.client,
        "protocol": one.traffic.protocol,
        "req_per_s": has.rate,
        "low": has.low,
        "high": has.high,
        "precise": has.precise,
        "spread_over_launches": has.spread,
        "ceiling": one.ceiling,
        "cliff": one.cliff,
        "binds": one.binds,
        "next": None if one.next_bound is None else list(one.next_bound),
        "limited_by": None if limit is None else asdict(limit),
        "ms_per_req_per_s": one.steepness,
        "closed_loop": None
        if closed is None
        else {"req_per_s": closed[0], **{f"{name}_ns": p99 for name, p99 in closed[1].items()}},
        "cores": one.cores,
        "req_per_s_per_core": one.per_core,
        "run_at": one.safe_rate,
        "ratio": None if one.ratio is None else list(one.ratio),
        "need": one.asked.need,
        "holds": None if one.asked.need is None else one.holds(one.asked.need),
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
            "rate": line.probe.rate,
            "seconds": line.probe.seconds,
            "answered_req_per_s": mean_rate(line.trial),
            "slo": line.word,
            "replicas": line.probe.replicas,
            "values": {objective.name: value for objective, value in values},
            "completed": counts.completed,
            "failed": dict(counts.failed),
            "unanswered": counts.in_flight + counts.unsent,
        }
