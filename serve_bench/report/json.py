"""The whole page as JSON, for programs.

Rule: figures are not rounded, each has its unit beside it or in its name, and what is missing is
null with a status. This is a report: the records themselves are in records.jsonl.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from serve_bench.report.page import CellPart, Entry, Page, VariantPart


def json_text(page: Page) -> str:
    """The run as one JSON object, indented."""
    return json.dumps(_page(page), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _page(page: Page) -> dict[str, Any]:
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
