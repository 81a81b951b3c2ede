"""A run of rpc as Markdown and CSV: what the text says, for issues and for programs.

Rule: Markdown is one table with the doubts below it; CSV has a line for each metric of each world
on each backend, not rounded, with its unit in a column of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from serve_bench.report.published import rpc_published
from serve_bench.report.rpc_page import RpcEntry, RpcPage, rpc_page
from serve_bench.report.rpc_tables import markdown_figures, memory
from serve_bench.report.rpc_text import asked, notes
from serve_bench.report.texts import remark
from serve_bench.result import Result
from serve_bench.rpc_figures import NAMES, PERCENTILES
from serve_bench.statistics import MAIN


def rpc_markdown(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page = rpc_page(result, where)
    lines = [f"### {page.title}", "", *(f"- {line}" for line in asked(page)), ""]
    if page.entries:
        lines += [*markdown_figures(page), ""]
    lines += [f"- {text}" for text in page.remarks]
    lines += [f"- **failed**: {one.what}: {one.message}" for one in page.failures]
    lines += [f"- {remark(one)}" for one in page.warnings]
    lines += [f"- {one.title}: {text}" for one in page.entries if (text := _inside(one))]
    if any(one.point.figures for one in page.entries):
        lines += [f"- {note}" for note in notes(page)]
    lines += [f"- {note}" for note in (rpc_published() if published else ())]
    lines.append(f"- host: {page.host}")
    if where is not None:
        lines.append(f"- records: `{where}`")
    return "\n".join(lines) + "\n"


def _inside(entry: RpcEntry) -> str:
    """CPU, memory and limit in a few words; empty where nothing is known."""
    use = entry.use
    shares = {"agent": use.agent, "observers": use.observers, "others": use.others}
    words = [f"{name} {share:.0f} %" for name, share in shares.items() if share is not None]
    if use.host is not None and use.cores:
        words.append(f"host {use.host:.0f} of {100 * use.cores} %")
    known = [f"CPU of {', '.join(words)}"] if words else []
    known += [f"memory {memory(entry)} processes"] if entry.point.memory_bytes is not None else []
    known += [f"limited by {use.limited}"] if use.limited else []
    return "; ".join(known)


def rpc_csv(result: Result) -> str:
    """The run as CSV, a header first."""
    page = rpc_page(result)
    rows = [row for entry in page.entries for row in _rows(entry, page)]
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names or ["run", "backend", "status"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


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
