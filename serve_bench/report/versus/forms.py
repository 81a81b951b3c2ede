"""A comparison as Markdown, fit for a comment on a pull request, and as CSV.

Rule: Markdown is one line of verdict and one table, all else folded away, but for the names of
doubts, which stand with the verdict. CSV has a line for each metric of each row, not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.analysis.comparing.parts import (
    Compared,
    ComparedRow,
    Comparing,
    ends,
    headline,
    ratio_text,
    row_title,
    variant_of,
)
from serve_bench.core.result import cell_slug
from serve_bench.report.columns import markdown_table
from serve_bench.report.csv import csv_of
from serve_bench.report.texts import cell_title, host_line
from serve_bench.report.versus.text import verdict_text
from serve_bench.report.versus.words import UNITS, closing, remarks, side_line, title, value_text


def versus_markdown(comparing: Comparing, where: Sequence[str] = ()) -> str:
    """The comparison as Markdown that ends with a newline."""
    a, b = comparing.names
    names = ("row", "metric", f"A: {a}", f"B: {b}", "B/A", "95 % interval", "verdict")
    rows = [_texts(comparing, row, line) for row in comparing.rows for line in row.lines]
    lines = [f"**{headline(comparing)}**", "", *markdown_table(names, rows, (0, 1, 6)), ""]
    lines += ["<details><summary>How, and what doubts it</summary>", ""]
    lines.append(f"- {title(comparing)}")
    lines += [
        f"- {side_line(letter, side, comparing.kind)}"
        for letter, side in zip("AB", comparing.sides, strict=True)
    ]
    for row in comparing.rows:
        name = row_title(comparing, row)
        lines.append(f"- {name}: {cell_title(row.cell)}; client {row.client}")
        lines += [f"  - {text}" for text in remarks(row, comparing.paired)]
    lines += [f"- {text}" for text in closing(comparing)]
    lines += [f"- records: `{one}`" for one in where]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _texts(comparing: Comparing, row: ComparedRow, line: Compared) -> tuple[str, ...]:
    word = verdict_text(row, line)
    return (
        row_title(comparing, row),
        UNITS[line.metric],
        value_text(line, line.a),
        value_text(line, line.b),
        ratio_text(line.ratio),
        ends(line.judged.interval),
        f"**{word}**{_doubts(row)}" if line.gated else word,
    )


def _doubts(row: ComparedRow) -> str:
    """`; errors (B)`: the names of the doubts of a row."""
    sides: dict[str, list[str]] = {}
    for one in row.doubts:
        sides.setdefault(one.code, []).append(one.side)
    return "".join(f"; {code} ({' and '.join(of)})" for code, of in sides.items())


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
