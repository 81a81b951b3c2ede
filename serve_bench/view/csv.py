"""A run for programs: JSON, and the tables of its document as CSV.

Rule: figures are not rounded. CSV knows no kind of run: a line is a finding or a cell of a
table, its `value` in the unit of its column, its `text` as a person reads it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from msgspec import UNSET, Struct, structs, to_builtins

from serve_bench.core.errors import visible
from serve_bench.core.result import Run
from serve_bench.view.document import Document, Number, Table, cell_text, unfold

FORMULA: Final = re.compile(r"[=@\t]|[+-](?!\d*\.?\d+(e[+-]?\d+)?$)")
"""Begins a cell that a spreadsheet calculates (OWASP, CSV injection); a number is none."""


def json_of(content: object) -> str:
    """Render content as JSON, indented: a dataclass as an object of its fields."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=_encoded)
    return f"{text}\n"


def _encoded(value: Any) -> dict[str, Any]:
    if isinstance(value, Struct):  # one that says nothing is of what was not looked at
        known = {name: part for name, part in structs.asdict(value).items() if part is not UNSET}
        return known if to_builtins(value) else {}
    if is_dataclass(value):
        return pick(value, *(field.name for field in fields(value)))
    return dict(value)  # a mapping of another type


def pick(item: object, *names: str) -> dict[str, Any]:
    """Return these figures of an item, by their names."""
    return {name: getattr(item, name) for name in names}


def run_json(run: Run, where: str | None) -> dict[str, Any]:
    """Return the key `run`. `where`: the place of the records, as it is shown."""
    names = ("id", "command", "argv", "started_at", "tool_version", "git_commit")
    return pick(run, *names) | {"records": where}


def csv_text(document: Document, run: str) -> str:
    """Render a line for each finding and each cell of the tables of the run with this id."""
    names = ("run", "section", "table", "line", "group", "row", "column", "value", "text")
    return csv_of(names, ({"run": run, **line} for line in _lines(document)))


def _lines(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the lines of `csv_text`: findings, cells of tables, and doubts of rows."""
    for finding in (*document.findings, *document.doubts):
        yield {"section": "findings", "text": finding.line}
    for section in document.sections:
        for table in unfold(section.blocks):
            if not isinstance(table, Table):
                continue
            for number, row in enumerate(table.rows, 1):
                place = {"section": section.name, "table": table.caption, "line": number}
                place |= {"group": row.group, "row": cell_text(row.cells[0])}
                for column, cell in zip(table.columns, row.cells, strict=True):
                    text = "" if cell_text(cell) == "-" else cell_text(cell)
                    value = cell.value if isinstance(cell, Number) else None
                    yield {**place, "column": column.full_name, "value": value, "text": text}
                if doubts := "; ".join(doubt.line for doubt in row.doubts):
                    yield {**place, "column": "doubts", "text": doubts}


def csv_of(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Render rows as CSV, a header first.

    Text that a spreadsheet would take for a formula has a `'` before it, which makes it text there.
    Control characters are written out."""
    out = io.StringIO()
    lines = (names, *([row.get(name) for name in names] for row in rows))
    csv.writer(out, lineterminator="\n").writerows([*map(_text_cell, line)] for line in lines)
    return out.getvalue()


def _text_cell(value: Any) -> Any:
    text = visible(value) if isinstance(value, str) else value
    return f"'{text}" if isinstance(text, str) and FORMULA.match(text) else text
