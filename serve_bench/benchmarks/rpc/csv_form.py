"""A run of rpc as CSV: what the text says, for programs.

Rule: a line for each metric of each world on each backend, not rounded, with its unit in a column
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage, rpc_page
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES
from serve_bench.core.result import Result


def rpc_csv(result: Result) -> str:
    """The run as CSV, a header first."""
    page = rpc_page(result)
    rows = [row for entry in page.entries for row in _rows(entry, page)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_of(names or ["run", "backend", "status"], rows)


def _rows(entry: RpcEntry, page: RpcPage) -> Iterator[dict[str, Any]]:
    point, use = entry.point, entry.use
    rate = point.line.spreads.get(MAIN)
    for name in NAMES:
        figures = point.figures.get(name)
        shares = figures.percentiles if figures is not None else {}
        yield {
            "run": page.run.id,
            "backend": point.backend,
            **point.cell,
            "x_axis": page.x_axis,
            "x": point.x,
            "status": point.line.status,
            "batch_size": point.batch_size,
            "metric": name.removesuffix(" (seconds)"),
            "unit": "s" if "latency" in name else "requests/s",
            **{f"p{share}": shares.get(share) for share in (*PERCENTILES, 99)},
            "mean": figures and figures.mean,
            "std": figures and figures.std,
            "count": figures and figures.count,
            "ratio_of_p50": point.ratios.get(name),
            "all_requests_per_s_mean": rate and rate.mean,
            "all_requests_per_s_std": rate and rate.std,
            "episodes": rate and rate.windows,
            "memory_bytes": point.memory_bytes,
            "processes": entry.processes,
            "agent_cpu_percent": use.agent,
            "observers_cpu_percent": use.observers,
            "others_cpu_percent": use.others,
            "host_cpu_percent": use.host,
            "limited_by": use.limited,
            "remarks": "; ".join(entry.remarks),
            "host": page.host,
        }
