"""A press run as JSON and the lines of the published test.

Rule: figures of JSON are not rounded, and have the unit in their names; the published
columns keep their names, units and digits.
"""

from __future__ import annotations

from typing import Any, Final

from serve_bench.benchmarks.micro.exports import page_data
from serve_bench.benchmarks.parts.csv import json_of, pick
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
    about = ("name", "variant", "cell", "device", "visible", "launches", "first_ms", "settled")
    return {
        **pick(setting, *about, "best_qps"),
        "rows": [_row(setting, row) for row in setting.rows],
        "best_clients": None if best is None else best.clients,
        "knee_clients": None if knee is None else knee.clients,
        "knee_qps": None if knee is None else ladder.rate(knee.line),
        "collapses": [
            {"clients": one.at.clients, **pick(one, "qps", "share", "agree", "router", "runs")}
            for one in setting.collapses
        ],
        "rounds": [
            {"round": round_, "best_qps": ladder.best_of(round_), "qps_by_clients": rates}
            for round_, rates in ladder.rounds.items()
        ],
        **pick(ladder, "signs", "end"),
    }


def _row(setting: Setting, row: PressRow) -> dict[str, Any]:
    times = ("ave_us", "total_us", "without_us", "p50_ms", "p99_ms")
    account = ("asked", "cut", "late", "unaccounted")
    return {
        **pick(row, "name", "clients", "run", *times, "qps", "qps_without", *account),
        **pick(row, "use", "levels", "client_bound", "limited"),
        **pick(row.line, "status", "completed", "failed"),
        "mark": setting.ladder.mark(row.line),
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    figures = pick(one, "axis", "ratio", "support", "sentence", "rounds", "steps")
    return {"setting": one.other.name, "base": one.base.name, **figures}


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
