"""A press run as JSON and the lines of the published test.

Rule: figures of JSON are not rounded, and have the unit in their names; the published
columns keep their names, units and digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from serve_bench.benchmarks.micro.exports import page_data
from serve_bench.benchmarks.parts.csv import json_of
from serve_bench.benchmarks.parts.published import PRESS, reference
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.benchmarks.press.summary import (
    Comparison,
    PressRow,
    Setting,
    comparisons,
    settings_of,
)
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


def json_text(result: Result, options: ReportOptions) -> str:
    """The page as every run's JSON has it, and `press`: settings, rows, comparisons."""
    page = page_of(result, published=options.published, where=options.where)
    data, settings = page_data(page), settings_of(result, page)
    data["press"] = {
        "settings": [_setting(setting) for setting in settings],
        "comparisons": [_comparison(one) for one in comparisons(settings)],
    }
    if options.published:
        data["published"] = reference(PRESS)
    return json_of(data)


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
            {"round": round_, "best_qps": ladder.best_of(round_), "qps_by_clients": _keyed(rates)}
            for round_, rates in ladder.rounds.items()
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
        "found": one.support,
        "sentence": one.sentence,
        "ratio_of_best_by_round": _keyed(one.rounds),
        "ratio_by_clients_and_round": {
            str(users): _keyed(ratios) for users, ratios in one.steps.items()
        },
    }


def _keyed(values: Mapping[int, float]) -> dict[str, float]:
    """Keys of JSON are texts."""
    return {str(key): value for key, value in values.items()}


CLASSIC: Final = ("testName", "aveTime(us)", "totalTime(us)", "qps")


def classic_text(result: Result, options: ReportOptions) -> str:
    """A table of the published form for each setting, under its name."""
    out: list[str] = []
    for setting in settings_of(result):
        measured = [row for row in setting.rows if row.qps is not None]
        out += [f"{setting.name}:", *_aligned([CLASSIC, *map(_classic_row, measured)])]
        out += [
            f"! {_name(row)}: cut off, {row.line.completed:,} requests done"
            for row in measured
            if row.ended_by_time
        ]
        out.append("")
    return "\n".join(out[:-1]) + "\n" if out else "nothing was measured\n"


def _classic_row(row: PressRow) -> tuple[str, ...]:
    """The four published columns with their digits: us with up to five decimals, qps with five."""
    ave = "-" if row.ave_us is None else f"{row.ave_us:.5f}".rstrip("0").rstrip(".")
    total = "-" if row.total_us is None else f"{row.total_us:.0f}"
    return _name(row), ave, total, f"{row.qps:.5f}"


def _name(row: PressRow) -> str:
    return row.name if row.run == 1 else f"{row.name} (run {row.run})"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns two spaces apart, the names of the tests flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
