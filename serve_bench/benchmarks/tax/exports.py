"""A run of tax as JSON, for programs: each layer, its ratios, its CPU by process. Pure."""

from __future__ import annotations

from typing import Any

from serve_bench.analysis.comparing.model import ComparedRow
from serve_bench.benchmarks.tax.summary import LayerFigures, RowFigures, figures_of, sentences_of
from serve_bench.benchmarks.versus.exports import line_json
from serve_bench.core.result import Result
from serve_bench.view.csv import json_of, pick
from serve_bench.view.document import ReportOptions


def json_text(result: Result, options: ReportOptions) -> str:
    """The figures as one JSON object, indented. Times in ns, CPU by role in us."""
    figures = figures_of(result)
    whole = {
        "run": result.run.id,
        "records": options.where,
        "findings": list(sentences_of(figures)),
        "left_out": list(figures.suite.left_out),
        "rounds": figures.measured,
        "rows": [_row(row) for row in figures.rows],
        "doubts": [one.line for one in figures.doubts],
        "failures": [one.message for one in result.failures],
        "host": dict(result.run.host),
    }
    return json_of(whole)


def _row(row: RowFigures) -> dict[str, Any]:
    return {
        "row": row.row.label,
        "connections": row.row.connections,
        "layers": [_layer(layer, row) for layer in row.layers],
    }


def _layer(one: LayerFigures, row: RowFigures) -> dict[str, Any]:
    before = row.step_of(one)
    return {
        **pick(one.layer, "name", "title"),
        "client": one.row.row.client,
        "measured": len(one.row.rounds),
        "values": {name: one.value(name) for name in one.row.values},
        "by_round": one.row.values,
        **pick(one, "cpu_us", "idle", "idle_all"),
        "against": row.base.layer.name if one.first is not None else None,
        "ratios": _lines(one.first),
        "before": None if before is None else before.name,
        "steps": {} if before is None else _lines(one.step),
    }


def _lines(compared: ComparedRow | None) -> dict[str, Any]:
    return {} if compared is None else {one.metric: line_json(one) for one in compared.lines}
