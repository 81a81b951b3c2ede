"""A run of capacity as JSON and CSV, for programs. Pure."""

from __future__ import annotations

import json
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
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result

COLUMNS = (
    *("run", "variant", "cell", "capacity_req_per_s", "low", "high", "launches", "binds", "cliff"),
    *("ceiling", "cores", "req_per_s_per_core", "ratio", "ratio_low", "ratio_high", "round"),
    *("probe", "rate", "seconds", "answered_req_per_s", "slo", "values", "replicas"),
)


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
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each probe, with the capacity of its cell, a header first."""
    rows = []
    for one in cells_of(result):
        has = one.capacity
        ratio = one.ratio or (None, None, None)
        about = {
            "run": result.run.id,
            "variant": one.variant,
            "cell": ", ".join(f"{name}={value}" for name, value in one.cell.items()),
            "capacity_req_per_s": has.rate,
            "low": has.low,
            "high": has.high,
            "launches": len(has.launches),
            "binds": one.binds,
            "cliff": one.cliff,
            "ceiling": one.ceiling,
            "cores": one.cores,
            "req_per_s_per_core": one.per_core,
            **dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True)),
        }
        for probe in _probes(one):
            values = "; ".join(f"{name}={value}" for name, value in probe["values"].items())
            rows.append({**about, **probe, "values": values})
    return csv_of(COLUMNS, rows)
