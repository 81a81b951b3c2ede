"""A run of rpc for programs, as JSON.

The JSON is the report file of PyTorch's benchmark: what reads the source's file reads this one (the
arguments, `x_axis_name`, and for each world of the first backend the four metrics with p50, p75,
p90, p95). The source rounds latencies to three decimals and cuts throughputs to whole numbers; here
nothing is rounded. All backends, further figures, the host and doubts stand under
`serve_bench`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from serve_bench.benchmarks.rpc.request import PUBLISHED_ARGUMENTS
from serve_bench.benchmarks.rpc.summary import (
    AGENT,
    NAMES,
    OBSERVERS,
    OTHERS,
    PERCENTILES,
    Figures,
    RpcPoint,
    RpcSummary,
    rpc_summary,
    x_axis_of,
)
from serve_bench.core.result import JsonObject, Result
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import ReportOptions
from serve_bench.view.published import RPC, reference

OURS: Final = "serve_bench"
"""The key of what the source's file does not have."""

REPORT_FILE: Final = "benchmark_report.json"
"""In the run's folder, always."""

_FROM_CLIENT: Final = ("policy", "agent_pid", "observer_pids", "processes", "versions", "raw")
"""What each trial has as its record has it."""


def published_arguments(result: Result) -> dict[str, Any]:
    """The arguments of the source with their values, in its order and of its types. Left out: the
    x axis, which each benchmark has for itself, and what the run does not record."""
    suite = result.run.suite
    cells: Sequence[JsonObject] = suite.get("worlds") or [one.cell for one in result.run.plan]
    known: dict[str, Any] = {**suite, **(cells[0] if cells else {})}
    values = {name: known.get(name) for name in PUBLISHED_ARGUMENTS if name != x_axis_of(result)}
    if "output_file_path" in values and values["output_file_path"] is None:
        values["output_file_path"] = REPORT_FILE
    if values.get("master_port") is not None:
        values["master_port"] = str(values["master_port"])  # a text there
    return {name: value for name, value in values.items() if value is not None}


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run; `published` adds the source's example, under our key."""
    report = benchmark_report(result, options.where)
    if options.published:
        report[OURS]["published"] = reference(RPC)
    return json_of(report)


def benchmark_report(result: Result, where: str | None = None) -> dict[str, Any]:
    """The report as plain content. `where`: the place of the records, as it is shown."""
    summary = rpc_summary(result)
    return {
        **published_arguments(result),
        "x_axis_name": summary.x_axis,
        "benchmark_results": [
            {
                **{name: _percentiles(one.figures[name], PERCENTILES) for name in NAMES},
                summary.x_axis: one.cell[summary.x_axis],
            }
            for one in summary.of(next(iter(summary.backends), ""))
            if one.figures
        ],
        OURS: _ours(summary, result, where),
    }


def _percentiles(figures: Figures, shares: tuple[int, ...]) -> dict[str, float]:
    return {f"p{share}": figures.percentiles[share] for share in shares}


def _ours(summary: RpcSummary, result: Result, where: str | None) -> dict[str, Any]:
    run, backends = summary.run, summary.backends
    keys = ("episodes", "steps", "seconds", "launches", "policy_ms")
    warnings = (*summary.warnings, *(one for at in summary.points for one in at.warnings))
    return {
        "run": run_json(run, where),
        "host": dict(run.host),
        "asked": {name: run.suite.get(name) for name in keys},
        "base": backends[0] if len(backends) > 1 else None,
        "backends": {name: [_entry(one) for one in summary.of(name)] for name in backends},
        "not_measured": [planned.key for planned in result.missing],
        "failures": result.failures,
        "warnings": warnings,
    }


def _entry(point: RpcPoint) -> dict[str, Any]:
    cpu = point.cpu
    return {
        "x": point.cell.get(point.x_axis),
        "status": point.line.status,
        "throughput": point.rate,
        "metrics": {name: _metric(name, figures) for name, figures in point.figures.items()},
        **pick(point, "cell", "ratios", "memory_bytes", "batch_size", "remarks"),
        "cpu_percent": {
            **{name: cpu.groups.get(name) for name in (AGENT, OBSERVERS)},
            "agent_busiest": cpu.busiest.get(AGENT),
            OTHERS: cpu.groups.get(OTHERS, 0 if cpu.groups else None),
            **pick(cpu, "host", "cores"),
            "limited_by": point.limited,
        },
        "client": [
            {"launch": one.launch}
            | {name: one.client[name] for name in _FROM_CLIENT if name in one.client}
            for one in point.trials
        ],
        "failed": [one.message for one in point.failures],
    }


def _metric(name: str, figures: Figures) -> dict[str, Any]:
    unit = "s" if "latency" in name else "requests/s"
    every = _percentiles(figures, (*PERCENTILES, 99))
    return {**every, **pick(figures, "count", "mean", "std"), "unit": unit}
