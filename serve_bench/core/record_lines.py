"""Records as lines of JSON, one object a line, `kind` first.

Rule: what a reader does not know (kinds, fields) is passed over, what it knows is checked against
its type, and another format is refused. A record that is damaged or that a kill cut off costs that
record alone, with a warning that names line and field. Pure: no file is opened here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from serve_bench.core.errors import FormatError
from serve_bench.core.facts import CELL_KINDS
from serve_bench.core.redaction import hide_settings
from serve_bench.core.relations import check_relations
from serve_bench.core.result import (
    FORMAT_VERSION,
    RECORDS,
    JsonObject,
    Launch,
    PlannedTrial,
    ReadWarning,
    Record,
    Result,
    Resume,
    Run,
    Trial,
    result_of,
)
from serve_bench.core.schema import built, encode_part, shown

DEEPEST: Final = 60
"""Objects and lists in each other: what is nested deeper was not written by this tool, and would
not be printed either."""

MOST_NAMED: Final = 3
"""Lines of one kind of damage that are named; of more there is one warning, with their number."""

_NESTED: Final = frozenset((dict, list))


def to_line(record: Record) -> str:
    """Write a record as one line with its newline; what may be a secret is hashed.

    Raises ValueError on NaN or infinity."""
    content: dict[str, Any] = {"kind": record.KIND}
    if isinstance(record, Run):
        content["format"] = record.format  # up front, for people who look into the file
    content |= msgspec.to_builtins(record, str_keys=True, enc_hook=encode_part)
    return json.dumps(hide_settings(content), separators=(",", ":"), allow_nan=False) + "\n"


def from_json(data: object, plan: Mapping[str, PlannedTrial] = {}) -> Record | None:
    """Read a record from a JSON value; None for a kind that this version does not know.

    `plan`: the planned trials by their keys. Unknown fields are passed over. Raises FormatError on
    another format, a missing field, a field of another type, or figures that do not go together,
    and names it."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise FormatError("not a record: it has no kind")
    kind = RECORDS.get(data["kind"])
    if kind is None:
        return None
    version = data.get("format")
    if kind is Run and not (isinstance(version, int) and version == FORMAT_VERSION):
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError(f"run.format is {shown(version)}, not a version number")
        advice = "a newer one is needed" if version > FORMAT_VERSION else "measure again with it"
        reads = f"this serve-bench reads {FORMAT_VERSION}, {advice}"
        raise FormatError(f"records of format {version}: {reads}")
    record = built(kind, data, data["kind"])
    # Of objects that are kept whole, suites, proofs and cells, what is read is checked now.
    cells: dict[str, JsonObject] = {"cell": getattr(record, "cell", None) or {}}
    if isinstance(record, Run):
        cells |= {f"suite.cells[{i}]": cell for i, cell in enumerate(record.asked.cells)}
    elif isinstance(record, Launch):
        _ = record.proved
    if isinstance(record, Run | Resume):
        cells |= {f"plan[{i}].cell": planned.cell for i, planned in enumerate(record.plan)}
    for place, cell in cells.items():
        for name in CELL_KINDS.keys() & cell.keys():
            built(CELL_KINDS[name], cell[name], f"{record.KIND}.{place}.{name}")
    if isinstance(record, Trial):
        check_relations(record, plan.get(record.key))
    return record


def parse(lines: Iterable[str]) -> Result:
    """Read the lines of a records file.

    A line that is no whole record (cut off by a kill, damaged) and a kind that is not known are
    passed over and reported in `Result.warnings`. Raises FormatError, naming the line, where the
    first is not the record of a run that can be read, or another run follows."""
    records: list[Record] = []
    warnings: list[ReadWarning] = []
    plan: dict[str, PlannedTrial] = {}
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in kept:
        try:
            data = _parse_line(line)
        except (ValueError, RecursionError):  # the latter: brackets without an end
            if number == 1:
                raise FormatError("line 1 is not the record of a run") from None
            if number == kept[-1][0]:
                message = f"line {number}, the last, is cut off: read up to it"
                warnings.append(ReadWarning("cut-off", message))
            else:
                message = f"line {number} is no whole record: passed over"
                warnings.append(ReadWarning("broken-line", message))
            continue
        try:
            if line.count("[") + line.count("{") > DEEPEST:  # else nothing in it can be too deep
                _check_depth(data)
            record = from_json(data, plan)
        except FormatError as error:
            if not records:
                raise FormatError(f"line {number}: {error}") from None
            warnings.append(ReadWarning("damaged", f"line {number}: {error}: passed over"))
            continue
        if record is None:
            message = f"line {number}: a record of unknown kind {data['kind']!r:.60}: passed over"
            warnings.append(ReadWarning("unknown-kind", message))
        elif isinstance(record, Run) and records:
            raise FormatError(f"line {number}: a second run in one file")
        else:
            records.append(record)
            if isinstance(record, Run):
                plan = {planned.key: planned for planned in record.plan}
    return result_of(records, _merge_warnings(warnings) if warnings else ())


def _merge_warnings(warnings: list[ReadWarning]) -> Iterator[ReadWarning]:
    """Yield the warnings, those of one code as one where there are more than MOST_NAMED."""
    by_code: dict[str, list[str]] = {}
    for warning in warnings:  # a text of a stranger's may hold a line break
        by_code.setdefault(warning.code, []).append(warning.message.replace("\n", "\\n"))
    for code, alike in by_code.items():
        if len(alike) <= MOST_NAMED:
            yield from (ReadWarning(code, message) for message in alike)
            continue
        first = "; ".join(message.removesuffix(": passed over") for message in alike[:MOST_NAMED])
        yield ReadWarning(code, f"{len(alike):,} lines are passed over; the first: {first}")


def _parse_line(line: str) -> Any:
    """Parse a line by msgspec, which is five times as fast as json, or else by json.

    The latter takes NaN, infinity and whole numbers of any length, for the types to refuse."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(line, parse_constant=str, parse_float=_parse_finite)


def _parse_finite(text: str) -> float | str:
    """Keep 1e999 a text, as NaN is: the types refuse it where a number belongs."""
    value = float(text)
    return value if math.isfinite(value) else text


def _check_depth(data: Any) -> None:
    """Raise FormatError for a field of a record that is nested deeper than DEEPEST."""
    for name, value in data.items() if isinstance(data, dict) else ():
        level = [value] if isinstance(value, dict | list) else []
        for _ in range(DEEPEST):
            level = [inner for outer in level for inner in _list_nested(outer)]
            if not level:
                break
        else:
            raise FormatError(f"{data.get('kind')!s:.40}.{name:.40} is nested too deeply")


def _list_nested(outer: dict[str, Any] | list[Any]) -> list[dict[str, Any] | list[Any]]:
    """List the objects and lists inside; pass over a list of thousands of numbers fast."""
    values = outer.values() if isinstance(outer, dict) else outer
    if _NESTED.isdisjoint(map(type, values)):
        return []
    return [inner for inner in values if isinstance(inner, dict | list)]
