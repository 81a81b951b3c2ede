"""A comparison as Markdown, fit for a comment on a pull request, and as CSV.

Rule: Markdown is one line of verdict and one table, all else folded away, but for the names of
doubts, which stand with the verdict. CSV has a line for each metric of each row, not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.parts import (
    Compared,
    Comparing,
    variant_of,
)
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.versus.json_form import versus_json
from serve_bench.core.document import ReportOptions
from serve_bench.core.figures import host_line
from serve_bench.core.result import Result, cell_slug

# ------------------------------------------------------------------------------------------ csv

_COLUMNS: Final = (
    *("run_a", "run_b", "a", "b", "variant", "cell", "row", "client", "metric", "unit", "better"),
    *("a_mean", "b_mean", "ratio", "low", "high", "confidence", "log_se", "df", "n_a", "n_b"),
    *("threshold", "p", "p_adjusted", "alpha", "verdict", "gated", "rounds_needed", "why"),
    *("doubts", "host"),
)


def versus_csv(comparing: Comparing) -> str:
    """The comparison as CSV, a header first; what one side alone has is a line without figures."""
    a, b = comparing.sides
    about = {"run_a": a.run.id, "run_b": b.run.id, "a": a.name, "b": b.name}
    about["host"] = host_line(a.run.host)
    return csv_of(_COLUMNS, ({**about, **row} for row in _rows(comparing)))


def _rows(comparing: Comparing) -> Iterator[dict[str, Any]]:
    for row in comparing.rows:
        doubts = "; ".join(f"{one.side}: {one.code}: {one.message}" for one in row.doubts)
        at = {"variant": variant_of(row), "cell": cell_slug(row.cell), "row": row.row}
        for line in row.lines:
            yield {**at, "client": row.client, **_figures(line), "doubts": doubts}
    for one in comparing.alone:
        at = {"variant": one.variant, "cell": cell_slug(one.cell), "row": one.row}
        yield {**at, "client": one.client, "verdict": "", "why": f"in {one.side} alone"}


def _figures(line: Compared) -> dict[str, Any]:
    judged, interval = line.judged, line.judged.interval
    known: dict[str, Any] = {}
    if interval is not None:
        known = {
            "low": interval.low,
            "high": interval.high if math.isfinite(interval.high) else None,
            "confidence": interval.confidence,
            "log_se": interval.se,
            "df": interval.df,
        }
    return {
        "metric": line.metric,
        "unit": line.unit,
        "better": line.better,
        "a_mean": line.a,
        "b_mean": line.b,
        "ratio": line.ratio,
        **known,
        "n_a": len(line.a_values),
        "n_b": len(line.b_values),
        "threshold": judged.threshold,
        "p": judged.p,
        "p_adjusted": judged.p_adjusted,
        "alpha": judged.alpha,
        "verdict": judged.word,
        "gated": line.gated,
        "rounds_needed": judged.rounds_needed,
        "why": judged.why,
    }


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return versus_json(of_versus(result), () if options.where is None else (options.where,))


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return versus_csv(of_versus(result))


def classic_text(result: Result, options: ReportOptions) -> str:
    """Nothing like it was published in the classic form: a line that says so."""
    return "versus has no published classic form: --format table shows it\n"
