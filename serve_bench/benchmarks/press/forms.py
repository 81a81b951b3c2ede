"""A press run as JSON and CSV: what the text says, for programs.

Rule: figures are not rounded, and have the unit in their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from serve_bench.benchmarks.ladder.tables import ladder_fields
from serve_bench.benchmarks.micro import json_form
from serve_bench.benchmarks.parts import csv
from serve_bench.benchmarks.parts.page import Entry, page_of
from serve_bench.benchmarks.parts.published import PRESS, reference
from serve_bench.benchmarks.press.compare import Comparison, comparisons
from serve_bench.benchmarks.press.summary import PressRow, Setting, settings_of
from serve_bench.benchmarks.press.tables import classic_press
from serve_bench.core.document import ReportOptions
from serve_bench.core.load_result import ERROR_CLASSES
from serve_bench.core.result import Result

# ------------------------------------------------------------------------------------- JSON


def press_json(result: Result, published: bool, where: str | None) -> str:
    """The page as every run's JSON has it, and `press`: settings, rows, comparisons."""
    page = json.loads(json_form.json_text(page_of(result, published=published, where=where)))
    settings = settings_of(result)
    page["press"] = {
        "settings": [_setting(setting) for setting in settings],
        "comparisons": [_comparison(one) for one in comparisons(settings)],
    }
    if published:
        page["published"] = reference(PRESS)
    return json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _setting(setting: Setting) -> dict[str, Any]:
    ladder, best, knee = setting.ladder, setting.best, setting.knee
    return {
        "name": setting.name,
        "variant": setting.variant,
        "cell": dict(setting.cell),
        "device": setting.device,
        "visible": setting.visible,
        "launches": setting.launches,
        "first_request_ms": list(setting.first_ms),
        "settled": [dict(one) for one in setting.settled],
        "rows": [_row(setting, row) for row in setting.rows],
        "best_qps": setting.best_qps,
        "best_clients": None if best is None else best.clients,
        "knee_clients": None if knee is None else knee.clients,
        "knee_qps": None if knee is None else ladder.rate(knee.line),
        "collapses": [
            {
                "clients": one.at.clients,
                "qps": one.qps,
                "share_of_best": one.share,
                "runs_agree": one.agree,
                "runs": [asdict(run) for run in one.runs],
            }
            for one in setting.collapses
        ],
        "rounds": [
            {"round": round_, "best_qps": ladder.best_of(round_), "qps_by_clients": _keyed(found)}
            for round_, found in ladder.rounds.items()
        ],
        "signs": list(ladder.signs),
        "end": ladder.end,
    }


def _row(setting: Setting, row: PressRow) -> dict[str, Any]:
    limited = row.limited
    return {
        **_figures(row),
        "clients": row.clients,
        "run": row.run,
        "status": row.line.status,
        "mark": setting.ladder.mark(row.line),
        "asked": row.asked,
        "completed": row.line.completed,
        "failed": row.line.failed,
        "cut": row.cut,
        "late": row.late,
        "unaccounted": row.unaccounted,
        "levels": dict(row.levels),
        "client_bound": row.client_bound,
        "limited_by": None if limited is None else {**asdict(limited), "text": limited.text},
    }


def _figures(row: PressRow) -> dict[str, Any]:
    """The figures that JSON and CSV both have."""
    return {
        "test_name": row.name,
        "ave_time_us": row.ave_us,
        "total_time_us": row.total_us,
        "qps": row.qps,
        "total_time_without_connecting_us": row.without_us,
        "qps_without_connecting": row.qps_without,
        "p50_ms": row.p50_ms,
        "p99_ms": row.p99_ms,
        "service_cpu_percent": row.use.service,
        "client_cpu_percent": row.use.client,
        "host_cpu_percent": row.use.host,
        "host_cores": row.use.cores,
        "gpu_percent": row.use.gpu,
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "axis": one.axis,
        "setting": one.other.name,
        "base": one.base.name,
        "ratio": one.ratio,
        "found": one.found,
        "sentence": one.sentence,
        "ratio_of_best_by_round": _keyed(one.rounds),
        "ratio_by_clients_and_round": {
            str(users): _keyed(found) for users, found in one.steps.items()
        },
    }


def _keyed(found: Mapping[int, float]) -> dict[str, float]:
    """Keys of JSON are texts."""
    return {str(key): value for key, value in found.items()}


# ------------------------------------------------------------------------------------------ CSV


def press_csv(result: Result, published: bool) -> str:
    """The run as CSV: the columns of every run, those of a ladder, and the figures as published."""
    settings = settings_of(result)
    ladders = [setting.ladder for setting in settings]
    rows = {row.line.keys: (setting, row) for setting in settings for row in setting.rows}

    def further(entry: Entry) -> Mapping[str, Any]:
        setting, row = rows[entry.line.keys]
        return {
            "setting": setting.name,
            **ladder_fields(ladders, entry),
            **_figures(row),
            "asked": row.asked,
            "cut": row.cut,
            "late": row.late,
            "unaccounted": row.unaccounted,
            **{f"failed_{name}": row.line.failed.get(name, 0) for name in ERROR_CLASSES},
        }

    return csv.csv_text(page_of(result, published=published), further)


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return press_json(result, options.published, options.where)


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return press_csv(result, options.published)


def classic_text(result: Result, options: ReportOptions) -> str:
    """The lines of the published press test."""
    return classic_press(settings_of(result))
