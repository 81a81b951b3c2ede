"""A run of the ranker alone as JSON and CSV. Figures are not rounded; times are in ns and s."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from serve_bench.benchmarks.micro.exports import page_classic
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.benchmarks.ranker.summary import RankerLine, ranker_lines
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run as one JSON object."""
    first = result.trials[0].client if result.trials else {}
    data = {
        "run": {
            "id": result.run.id,
            "argv": list(result.run.argv),
            "started_at": result.run.started_at,
            "tool_version": result.run.tool_version,
            "records": options.where,
        },
        "host": dict(result.run.host),
        "rankers": {one.variant: dict(one.client.get("ranker") or {}) for one in result.trials},
        "shape": first.get("shape"),
        "machine": first.get("machine"),
        "rows": [_row(line) for line in ranker_lines(result)],
        "not_measured": [planned.key for planned in result.missing],
        "failures": [failure.message for failure in result.failures],
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(line: RankerLine) -> dict[str, Any]:
    floor = asdict(line.floor) | {"seconds": line.floor.seconds, "bound_by": line.floor.bound_by}
    return {
        "rows": line.rows,
        "ranker": line.kind,
        "forward_ns": asdict(line.forward),
        "call_ns": asdict(line.call),
        "rows_per_s": line.rows_per_s,
        "forward_ratio": None if line.forward_ratio is None else asdict(line.forward_ratio),
        "call_ratio": None if line.call_ratio is None else asdict(line.call_ratio),
        "floor": floor,
    }


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return csv.csv_text(page_of(result, published=options.published, where=options.where))


def classic_text(result: Result, options: ReportOptions) -> str:
    """The lines of the published microbenchmark."""
    return page_classic(page_of(result, published=options.published, where=options.where))
