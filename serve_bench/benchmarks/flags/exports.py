"""A run of flags as JSON and CSV, for programs: each effect and its verdict. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from serve_bench.benchmarks.flags.request import label
from serve_bench.benchmarks.flags.summary import FlagEffects, effects_of, sentences_of
from serve_bench.benchmarks.parts.csv import csv_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result

COLUMNS = (
    *("run", "cell", "row", "client", "metric", "gated", "effect", "ratio", "low", "high", "p"),
    "verdict",
)


def json_text(result: Result, options: ReportOptions) -> str:
    """The effects as one JSON object, indented."""
    effects = effects_of(result)
    whole = {
        "run": result.run.id,
        "records": options.where,
        "findings": list(sentences_of(effects)),
        "flags": [
            {"name": one.name, "env": dict(one.env)} for one in effects.suite.factorial.factors
        ],
        "rounds": [
            {
                "round": number,
                "first": label(first),
                "second": label(second),
                "log_ratios": {
                    f"{one.place.row}/{one.measure.name}": one.logs.get(number)
                    for one in effects.metrics
                },
            }
            for number, (first, second) in enumerate(effects.rounds, 1)
        ],
        "effects": list(_lines(result, effects)),
        "host": dict(result.run.host),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _lines(result: Result, effects: FlagEffects) -> Iterator[dict[str, Any]]:
    for of in effects.metrics:
        for one in (*of.of(1), *of.of(2)):
            at = one.interval
            figures = (None,) * 3 if at is None else (at.ratio, at.low, at.high)
            name = effects.suite.factorial.name(one.term)
            place = (of.place.cell, of.place.row, of.place.client)
            where = (result.run.id, *place, of.measure.name, of.gated, name)
            values = (*where, *figures, one.judged.p, one.judged.word)
            yield dict(zip(COLUMNS, values, strict=True))


def csv_text(result: Result, options: ReportOptions) -> str:
    """A line for each effect, a header first."""
    return csv_of(COLUMNS, _lines(result, effects_of(result)))


def classic_text(result: Result, options: ReportOptions) -> str:
    """Nothing like it was published in the classic form: a line that says so."""
    return "flags has no published classic form: --format table shows it\n"
