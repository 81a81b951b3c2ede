"""A run for programs: JSON, and one line of CSV for each row, with units in the names of columns.

Rule: every planned row has a line; what was not measured is empty, and `status` says so. Figures
are not rounded. Axes of the cells become columns of their own.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from serve_bench.benchmarks.parts import streams
from serve_bench.benchmarks.parts.rows import Entry, Page
from serve_bench.benchmarks.parts.slo import slo_columns
from serve_bench.core.errors import visible
from serve_bench.core.result import Run

FORMULA: Final = ("=", "+", "-", "@", "\t")
"""What a cell begins with that a spreadsheet calculates (OWASP, CSV injection)."""

LATENCIES: Final = ("mean", "p50", "p90", "p99", "max")


def json_of(content: object) -> str:
    """Content as JSON, indented."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def run_json(run: Run, where: str | None) -> dict[str, Any]:
    """The key `run`. `where`: the place of the records, as it is shown."""
    names = ("id", "command", "argv", "started_at", "tool_version", "git_commit")
    return {name: getattr(run, name) for name in names} | {"records": where}


Further = Callable[[Entry], Mapping[str, Any]]
"""Columns that one kind of run has beside those of all; the same names for every entry."""


def csv_text(page: Page, further: Further = lambda _: {}) -> str:
    """The run as CSV, a header first; the columns `further` stand behind those
    of all, and those of an SLO at the end."""
    rows = [
        {
            **_row(entry, page),
            **streams.csv_columns(page.entries, entry),
            **further(entry),
            **slo_columns(page.run, [entry.line]),
        }
        for entry in page.entries
    ]
    return csv_of(list(rows[0]) if rows else ["run", "variant", "row", "status"], rows)


def csv_of(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV, a header first, as every kind of run writes it.

    Text that a spreadsheet would take for a formula has a `'` before it, which makes it text there;
    numbers stay numbers, also where they are negative. Control characters are written out.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_text_cell(name) for name in names])
    writer.writerows([_text_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _text_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)
    if not text.startswith(FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _row(entry: Entry, page: Page) -> dict[str, Any]:
    line, rate = entry.line, entry.rate
    measured, limited = bool(line.trials), entry.limited
    return {
        "run": page.run.id,
        "variant": line.variant,
        **{name: line.cell.get(name) for name in page.axes},
        "row": line.row.label,
        "client": line.row.client,
        "connections": line.row.connections,
        "loop": line.row.loop,
        "data_size": line.row.data_size,
        "status": line.status,
        "requests_per_s_mean": rate and rate.mean,
        "requests_per_s_std": rate and rate.std,
        "windows": rate and rate.windows,
        "launches": rate and rate.launches,
        "requests_per_s_std_over_launches": rate and rate.launch_std,
        **{f"latency_{name}_ms": entry.latency_ms(name) for name in LATENCIES},
        "completed": line.completed if measured else None,
        "errors": line.errors if measured else None,
        f"ratio_to_{page.base}" if page.base else "ratio": line.ratio,
        "published_requests_per_s_mean": entry.published and entry.published.mean,
        "published_requests_per_s_std": entry.published and entry.published.std,
        "limited_by": limited and limited.cause,
        "limited_by_figures": limited and limited.figures,
        "limited_by_confidence": limited and limited.confidence,
        "limited_by_runner_up": limited and limited.runner_up,
        "remarks": "; ".join(entry.remarks),
        "host": page.host,
        "latency_lower_bounds": " ".join(entry.lower_bounds),
    }
