"""The whole page as JSON, for programs.

Rule: figures are not rounded, each has its unit beside it or in its name, and what is missing is
null with a status. This is a report: the records themselves are in records.jsonl.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from serve_bench.benchmarks.parts.page import CellPart, Entry, Page, VariantPart
from serve_bench.core.result import Trial


def json_text(page: Page) -> str:
    """The run as one JSON object, indented."""
    return json.dumps(page_data(page), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def page_data(page: Page) -> dict[str, Any]:
    """The run as it stands in JSON."""
    return {
        "run": {
            "id": page.run.id,
            "command": page.run.command,
            "argv": list(page.run.argv),
            "started_at": page.run.started_at,
            "tool_version": page.run.tool_version,
            "git_commit": page.run.git_commit,
            "records": page.where,
        },
        "host": dict(page.run.host),
        "base": page.base,
        "variants": [_variant(part) for part in page.variants],
        "warnings": [asdict(one) for one in page.warnings],
        "failures": [asdict(one) for one in page.failures],
        "notes": list(page.notes),
    }


def _variant(part: VariantPart) -> dict[str, Any]:
    return {
        "name": part.name,
        "env": list(part.env),
        "engaged": part.engaged,
        "warnings": [asdict(one) for one in part.warnings],
        "failures": [asdict(one) for one in part.failures],
        "cells": [_cell(cell) for cell in part.cells],
    }


def _cell(part: CellPart) -> dict[str, Any]:
    return {
        "cell": dict(part.cell),
        "failures": [asdict(one) for one in part.failures],
        "rows": [_row(entry) for entry in part.entries],
    }


def _requests(trial: Trial) -> dict[str, Any]:
    """The account of the requests of a trial's windows, each followed to its end: carried_in (0 but
    in records of 0.1) + sent = completed + failed + in_flight.

    `in_flight`: without an answer when the drain ended; `not_sent`: due, and still waiting for a
    free connection then; `unanswered`: both. `in_windows`: what happened within the windows
    (carried_in + sent = completed + failed + in_flight when the last of them ended), null in
    records of 0.1, and `mean_in_flight` over them. `status_codes`: of whole responses. What wrk and
    ab do not tell is null.
    """
    counts, told = trial.counts, trial.row.client not in ("wrk", "ab")
    return {
        "carried_in": counts.carried_in,
        "sent": counts.sent if told else None,
        "completed": counts.completed,
        "failed": dict(counts.failed),
        "in_flight": counts.in_flight if told else None,
        "not_sent": counts.unsent if told else None,
        "unanswered": trial.unanswered if told else None,
        "in_windows": trial.in_windows,
        "mean_in_flight": trial.client.get("mean_in_flight"),
        "status_codes": trial.client.get("status_codes"),
    }


def _row(entry: Entry) -> dict[str, Any]:
    line = entry.line
    return {
        "row": asdict(line.row),
        "status": line.status,
        "keys": list(line.keys),
        "spreads": {name: asdict(figures) for name, figures in line.spreads.items()},
        "distributions": {name: asdict(figures) for name, figures in line.distributions.items()},
        "completed": line.completed,
        "failed": line.failed,
        "requests": {trial.launch: _requests(trial) for trial in line.trials},
        "windows": {
            trial.launch: {
                name: list(metric.windows)
                for name, metric in trial.metrics.items()
                if metric.windows is not None
            }
            for trial in line.trials
        },
        "ratio": line.ratio,
        "published": None if entry.published is None else asdict(entry.published),
        "warnings": [asdict(one) for one in entry.warnings],
        "failures": [asdict(one) for one in entry.failures],
        "usage": {trial.launch: dict(trial.usage) for trial in line.trials if trial.usage},
        "limited_by": {launch: asdict(verdict) for launch, verdict in entry.verdicts.items()},
        "served": {trial.launch: dict(trial.served) for trial in line.trials if trial.served},
        "serve_metrics": {
            trial.launch: dict(trial.serve_metrics) for trial in line.trials if trial.serve_metrics
        },
        "profiles": [dict(one) for trial in line.trials for one in trial.profiles],
        "facts": list(entry.facts),
    }
