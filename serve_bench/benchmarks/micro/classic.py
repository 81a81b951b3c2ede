"""The form of the published microbenchmark, digit for digit.

Rule: only its rows (`single client`, `N clients`, both by aiohttp), figures rounded to two places.
What the published form has no words for (a row that was not measured, errors) is added behind a
figure, or in its place, and never alters a line that has neither.
"""

from __future__ import annotations

import re
from typing import Final

from serve_bench.benchmarks.parts.page import CellPart, Entry, Page

_ROW: Final = re.compile(r"single client|\d+ clients")
_INDENT: Final = " " * 8


def classic(page: Page) -> str:
    """The published form. With several variants, each has a line with its name on top."""
    lines: list[str] = []
    for part in page.variants:
        if len(page.variants) > 1:
            lines.append(f"variant {part.name}:")
        lines += [f"failed: {one.message}" for one in part.failures]
        for cell in part.cells:
            lines += _cell(cell)
    lines += [f"failed: {one.message}" for one in page.failures]
    return "\n".join(lines) + "\n" if lines else "no row of the published form was planned\n"


def _cell(part: CellPart) -> list[str]:
    rows = [entry for entry in part.entries if _is_classic(entry)]
    if not rows:
        return []
    failures = [f"{_INDENT}failed: {one.message}" for one in part.failures]
    return [f"{dict(part.cell)}:", *failures, *(_row(entry) for entry in rows)]


def _is_classic(entry: Entry) -> bool:
    row = entry.line.row
    plain = entry.line.status != "profiled" and row.loop == "closed" and row.client == "aiohttp"
    return plain and _ROW.fullmatch(row.label) is not None


def _row(entry: Entry) -> str:
    size = entry.line.row.data_size
    data = f"{size} data" if size in ("small", "large") else f"{size} bytes data"
    line = f"{_INDENT}{entry.line.row.label} {data} "
    rate = entry.rate
    if rate is None:
        line += entry.gap or "no rate recorded"
    else:
        line += f"{round(rate.mean, 2)} +- {round(rate.std, 2)} requests/s"
        line += f" ({entry.line.errors} errors)" if entry.line.errors else ""
        line += f" ({entry.gap})" if entry.gap else ""
    line += "".join(f" (failed: {one.message})" for one in entry.failures)
    if entry.published is not None:
        line += f" (published {entry.published.mean} +- {entry.published.std} requests/s)"
    return line
