"""A run of rpc as the report file of PyTorch's benchmark, with ours under a key of its own.

Rule: what reads the source's file reads this one: the arguments, `x_axis_name`, and for each world
of the first backend the four metrics with p50, p75, p90, p95. The source rounds latencies to three
decimals and cuts throughputs to whole numbers; here nothing is rounded. All backends, further
figures, the host and doubts stand under `serve_bench`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.published import RPC, reference
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage, rpc_page
from serve_bench.benchmarks.rpc.printed_form import published_arguments
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, Figures, RpcPoint
from serve_bench.core.result import Result

OURS: Final = "serve_bench"

_FROM_CLIENT: Final = ("policy", "agent_pid", "observer_pids", "processes", "versions", "raw")
"""What is told of each trial as the record has it."""


def benchmark_report(result: Result, where: str | None = None) -> dict[str, Any]:
    """The report as plain content. `where`: the place of the records, as it is shown."""
    page = rpc_page(result, where)
    first = page.of(page.backends[0]) if page.backends else []
    return {
        **published_arguments(result),
        "x_axis_name": page.x_axis,
        "benchmark_results": [
            _published(one.point, page.x_axis) for one in first if one.point.figures
        ],
        OURS: _ours(page, result),
    }


def report_text(report: Mapping[str, Any]) -> str:
    """The text of the report's file."""
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def rpc_json(result: Result, published: bool = False, where: str | None = None) -> str:
    """The same as text; `published` adds the source's example, under our key."""
    report = benchmark_report(result, where)
    if published:
        report[OURS]["published"] = reference(RPC)
    return report_text(report)


def _published(point: RpcPoint, x_axis: str) -> dict[str, Any]:
    shares = {name: _percentiles(point.figures[name], PERCENTILES) for name in NAMES}
    return {**shares, x_axis: point.cell[x_axis]}


def _percentiles(figures: Figures, shares: tuple[int, ...]) -> dict[str, float]:
    return {f"p{share}": figures.percentiles[share] for share in shares}


def _ours(page: RpcPage, result: Result) -> dict[str, Any]:
    run, suite = page.run, page.run.suite
    keys = ("episodes", "steps", "seconds", "launches", "policy_ms")
    return {
        "run": {
            "id": run.id,
            "argv": list(run.argv),
            "started_at": run.started_at,
            "tool_version": run.tool_version,
            "records": page.where,
        },
        "host": dict(run.host),
        "asked": {name: suite.get(name) for name in keys},
        "base": page.backends[0] if len(page.backends) > 1 else None,
        "backends": {name: [_entry(one) for one in page.of(name)] for name in page.backends},
        "not_measured": [planned.key for planned in result.missing],
        "failures": [asdict(one) for one in result.failures],
        "warnings": [
            asdict(one) for one in (*page.warnings, *(w for e in page.entries for w in e.warnings))
        ],
    }


def _entry(entry: RpcEntry) -> dict[str, Any]:
    point = entry.point
    rate = point.line.spreads.get(MAIN)
    use = {**asdict(entry.use), "limited_by": entry.use.limited}
    return {
        "x": point.cell.get(entry.x_axis),
        "cell": dict(point.cell),
        "status": point.line.status,
        "metrics": {name: _metric(name, figures) for name, figures in point.figures.items()},
        "throughput": None
        if rate is None
        else {
            "mean": rate.mean,
            "std": rate.std,
            "episodes": rate.windows,
            "launches": rate.launches,
            "std_over_launches": rate.launch_std,
            "unit": rate.unit,
        },
        "ratios": dict(point.ratios) or None,
        "memory_bytes": point.memory_bytes,
        "batch_size": point.batch_size,
        "cpu_percent": use,
        "client": [
            {"launch": one.launch}
            | {name: one.client[name] for name in _FROM_CLIENT if name in one.client}
            for one in point.trials
        ],
        "failed": [one.message for one in entry.failures],
        "remarks": list(entry.remarks),
    }


def _metric(name: str, figures: Figures) -> dict[str, Any]:
    return {
        **_percentiles(figures, (*PERCENTILES, 99)),
        "count": figures.count,
        "mean": figures.mean,
        "std": figures.std,
        "unit": "s" if "latency" in name else "requests/s",
    }
