"""A comparison as JSON and CSV, for programs.

Rule: every figure, not rounded: the values of each launch, intervals (at 95 % and at the level that
Holm's correction asks), thresholds as they held, and in what runs were unlike. Times in ns. CSV has
a line for each metric of each row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.model import (
    About,
    Compared,
    ComparedRow,
    Comparing,
    headline,
    variant_of,
)
from serve_bench.analysis.ratios import Interval
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.benchmarks.versus.summary import side_changes
from serve_bench.core.document import ReportOptions
from serve_bench.core.figures import host_line
from serve_bench.core.result import Result, cell_slug


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return versus_json(of_versus(result), () if options.where is None else (options.where,))


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each row, a header first."""
    return versus_csv(of_versus(result))


def versus_json(comparing: Comparing, where: Sequence[str] = ()) -> str:
    """The comparison as one JSON object, indented."""
    whole = {
        "kind": comparing.kind,
        "verdict": comparing.word,
        "headline": headline(comparing),
        "aa": comparing.aa,
        "threshold": comparing.threshold,
        "gate": list(comparing.gate),
        "noise": {"run": comparing.noise, "floors": dict(comparing.floors)},
        "a": _side(comparing.sides[0]),
        "b": _side(comparing.sides[1]),
        "differs": side_changes(comparing),
        "rows": [row_json(row) for row in comparing.rows],
        "alone": [asdict(one) for one in comparing.alone],
        "failures": list(comparing.failures),
        "stop": None if comparing.stop is None else asdict(comparing.stop),
        "unlike": list(comparing.unlike),
        "warnings": list(comparing.warnings),
        "notes": list(comparing.notes),
        "records": list(where),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _side(side: About) -> dict[str, Any]:
    return {
        "name": side.name,
        "variant": side.variant,
        "settings": dict(side.settings),
        "run": side.run.id,
        "command": side.run.command,
        "started_at": side.run.started_at,
        "tool_version": side.run.tool_version,
        "host": dict(side.run.host),
        "suite": dict(side.run.suite),
        "launches": [
            {
                "id": one.id,
                "round": one.round,
                "variant": one.variant.name,
                "env": dict(one.variant.env),
                "versions": dict(one.proof.get("versions") or {}),
                "port_owner": one.proof.get("port_owner"),
                "app": one.proof.get("app"),
                "packages": one.proof.get("packages"),
            }
            for one in side.launches
        ],
    }


def row_json(row: ComparedRow) -> dict[str, Any]:
    """A row with all its metrics and what doubts it."""
    return {
        "variants": None if row.variants is None else list(row.variants),
        "cell": dict(row.cell),
        "row": row.row,
        "client": row.client,
        "verdict": row.word,
        "planned": list(row.planned),
        "measured": list(row.measured),
        "worse": row.worse or None,
        "metrics": {line.metric: line_json(line) for line in row.lines},
        "doubts": [asdict(one) for one in row.doubts],
        "slicing": None if row.slicing is None else asdict(row.slicing),
        "slices_to_steady": [
            {**vars(one), "interval": interval_json(one.interval)} for one in row.effects
        ],
        **({"hops": [asdict(one) for one in row.hops]} if row.hops else {}),
    }


def line_json(line: Compared) -> dict[str, Any]:
    """A metric of both sides, with its interval and verdict."""
    judged = line.judged
    strict = judged.interval
    if strict is not None and judged.alpha is not None:
        strict = strict.at(1 - judged.alpha)
    return {
        "unit": line.unit,
        "better": line.better,
        "gated": line.gated,
        "a": line.a,
        "b": line.b,
        "ratio": line.ratio,
        "a_by_round": {str(at): value for at, value in line.a_values.items()},
        "b_by_round": {str(at): value for at, value in line.b_values.items()},
        "interval": interval_json(judged.interval),
        "interval_by_holm": interval_json(strict) if judged.alpha is not None else None,
        "threshold": judged.threshold,
        "p": judged.p,
        "p_adjusted": judged.p_adjusted,
        "alpha": judged.alpha,
        "level": judged.level,
        "settled": judged.settled,
        "verdict": judged.word,
        "why": judged.why,
        "rounds_needed": judged.rounds_needed,
    }


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """An interval. `log_*`: on logarithms; an end beyond all numbers is null."""
    if interval is None:
        return None
    return {
        "ratio": interval.ratio,
        "low": interval.low,
        "high": interval.high if math.isfinite(interval.high) else None,
        "confidence": interval.confidence,
        "planned_looks": interval.planned,
        "between_runs": interval.between,
        "log_center": interval.center,
        "log_se": interval.se,
        "df": interval.df,
        "n_a": interval.n_a,
        "n_b": interval.n_b,
        "paired": interval.pairs,
    }


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
    return csv_of(_COLUMNS, ({**row, **about} for row in _rows(comparing)))


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
    interval = interval_json(line.judged.interval) or {}
    return {
        **line_json(line),
        **{name: interval.get(name) for name in ("low", "high", "confidence", "log_se", "df")},
        "metric": line.metric,
        "a_mean": line.a,
        "b_mean": line.b,
        "n_a": len(line.a_values),
        "n_b": len(line.b_values),
    }
