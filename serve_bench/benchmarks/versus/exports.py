"""A comparison as JSON, for programs.

Rule: every figure, not rounded: the values of each launch, intervals (at 95 % and at the level that
Holm's correction asks), thresholds as they held, and in what runs were unlike. Times in ns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.model import About, Compared, ComparedRow, Comparing
from serve_bench.analysis.ratios import Interval
from serve_bench.benchmarks.versus.summary import side_changes
from serve_bench.benchmarks.versus.words import headline
from serve_bench.core.result import Result
from serve_bench.view.csv import json_of
from serve_bench.view.document import ReportOptions


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures of the run."""
    return versus_json(of_versus(result), () if options.where is None else (options.where,))


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
    return json_of(whole)


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
