"""A run of rows as JSON, and in the form of the published microbenchmark.

Rule: JSON has every figure unrounded, its unit beside it or in its name; what is missing is null
with a status. It is a report: the records themselves are in records.jsonl.
"""

from __future__ import annotations

import re
from typing import Any, Final

from serve_bench.benchmarks.micro.summary import findings
from serve_bench.core.result import Result, Run, Trial
from serve_bench.view import streams
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import ReportOptions
from serve_bench.view.names import names_of
from serve_bench.view.rows import CellPart, Entry, Page, VariantPart, page_of
from serve_bench.view.slo import slo_json


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    page = page_of(result, published=options.published, where=options.where)
    return json_of({**page_data(page), "findings": list(findings(page, names_of(page)))})


def classic_text(result: Result, options: ReportOptions) -> str:
    """The lines of the published microbenchmark."""
    return page_classic(page_of(result, published=options.published, where=options.where))


def page_data(page: Page) -> dict[str, Any]:
    """The run as it stands in JSON."""
    return {
        "run": run_json(page.run, page.where),
        "host": dict(page.run.host),
        "variants": [_variant(part, page.run) for part in page.variants],
        **pick(page, "base", "warnings", "failures", "notes"),
    }


def _variant(part: VariantPart, run: Run) -> dict[str, Any]:
    return {
        **pick(part, "name", "env", "engaged", "warnings", "failures"),
        "cells": [_cell(cell, run) for cell in part.cells],
    }


def _cell(part: CellPart, run: Run) -> dict[str, Any]:
    return {
        **pick(part, "cell", "failures"),
        "rows": [{**_row(entry), **slo_json(run, entry.line)} for entry in part.entries],
    }


IN_CLIENT: Final = ("in_windows", "mean_in_flight", "status_codes")


def _requests(trial: Trial) -> dict[str, Any]:
    """The account of the requests of a trial's windows, each followed to its end: carried_in + sent
    = completed + failed + in_flight.

    `in_flight`: without an answer when the drain ended; `not_sent`: due, and still waiting for a
    free connection then; `unanswered`: both. `in_windows`: what happened within the windows
    (carried_in + sent = completed + failed + in_flight when the last of them ended), and
    `mean_in_flight` over them. `status_codes`: of whole responses.
    """
    counts = trial.counts
    return {
        **pick(counts, "carried_in", "sent", "completed", "failed", "in_flight"),
        "not_sent": counts.unsent,
        "unanswered": trial.unanswered,
        **{name: trial.client.get(name) for name in IN_CLIENT},
        **streams.json_counts(trial),
    }


def _row(entry: Entry) -> dict[str, Any]:
    line = entry.line
    figures = ("row", "status", "keys", "spreads", "distributions", "completed", "failed", "ratio")
    seen = ("usage", "served", "serve_metrics", "waterfall")
    return {
        **pick(line, *figures),
        "requests": {trial.launch: _requests(trial) for trial in line.trials},
        "windows": {
            trial.launch: {
                name: metric.windows
                for name, metric in trial.metrics.items()
                if metric.windows is not None
            }
            for trial in line.trials
        },
        **pick(entry, "published", "warnings", "failures", "facts"),
        "limited_by": entry.verdicts,
        **{
            name: {trial.launch: value for trial in line.trials if (value := getattr(trial, name))}
            for name in seen
        },
        "profiles": [one for trial in line.trials for one in trial.profiles],
    }


_ROW: Final = re.compile(r"single client|\d+ clients")
_INDENT: Final = " " * 8
_CLASSIC: Final = {"max_ongoing_requests": "max_concurrent_queries"}
"""Names of axes as they were published, where they are others now."""


def page_classic(page: Page) -> str:
    """The published form, digit for digit: only its rows (`single client`, `N clients`, both by
    aiohttp), figures rounded to two places. With several variants, each has a line with its name on
    top. What the published form has no words for (a row that was not measured, errors) stands
    behind a figure, or in its place, and never alters a line that has neither."""
    lines: list[str] = []
    for part in page.variants:
        if len(page.variants) > 1:
            lines.append(f"variant {part.name}:")
        lines += [f"failed: {one.message}" for one in part.failures]
        for cell in part.cells:
            lines += _classic_cell(cell)
    lines += [f"failed: {one.message}" for one in page.failures]
    return "\n".join(lines) + "\n" if lines else "no row of the published form was planned\n"


def _classic_cell(part: CellPart) -> list[str]:
    rows = [entry for entry in part.entries if _is_classic(entry)]
    if not rows:
        return []
    failures = [f"{_INDENT}failed: {one.message}" for one in part.failures]
    cell = {_CLASSIC.get(name, name): value for name, value in part.cell.items()}
    return [f"{cell}:", *failures, *(_classic_row(entry) for entry in rows)]


def _is_classic(entry: Entry) -> bool:
    row = entry.line.row
    plain = entry.line.status != "profiled" and row.loop == "closed" and row.client == "aiohttp"
    return plain and _ROW.fullmatch(row.label) is not None


def _classic_row(entry: Entry) -> str:
    size = entry.line.row.data_size
    data = f"{size} data" if size in ("small", "large") else f"{size} bytes data"
    line = f"{_INDENT}{entry.line.row.label} {data} "
    rate = entry.rate
    if rate is None:
        line += entry.gap or "no rate recorded"
    else:
        std = round(rate.std or 0.0, 2)  # the form, which is Ray's, has one for a single window too
        line += f"{round(rate.mean, 2)} +- {std} requests/s"
        line += f" ({entry.line.errors} errors)" if entry.line.errors else ""
        line += f" ({entry.gap})" if entry.gap else ""
    line += "".join(f" (failed: {one.message})" for one in entry.failures)
    if entry.published is not None:
        line += f" (published {entry.published.mean} +- {entry.published.std} requests/s)"
    return line
