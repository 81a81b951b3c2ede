"""Records as lines of JSON, one object a line, `kind` first; and any dataclass as a JSON object.

Rule: what a reader does not know (kinds, fields) is passed over, what it knows is checked against
its type, and a newer format is refused. A record that is damaged or that a kill cut off costs that
record alone, with a warning that names line and field. Pure: no file is opened here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from serve_bench.core.kept import kept_names, kept_record
from serve_bench.core.result import (
    FACTS,
    FORMAT_VERSION,
    RECORDS,
    FormatError,
    ReadWarning,
    Record,
    Result,
    Run,
    result_of,
)

_T = TypeVar("_T")

DEEPEST: Final = 60
"""Objects and lists in each other: what is nested deeper was not written by this tool, and would
not be printed either."""

# --------------------------------------------------------------------------------------- records


def to_line(record: Record) -> str:
    """The record as one line, newline included, with hashes in the place of secrets. Raises
    ValueError on NaN or infinity."""
    content: dict[str, Any] = {"kind": record.KIND}
    if isinstance(record, Run):
        content["format"] = record.format  # up front, for people who look into the file
    content |= plain(record)
    return json.dumps(kept_record(content), separators=(",", ":"), allow_nan=False) + "\n"


def from_json(data: object) -> Record | None:
    """The record of one JSON value; None for a kind this version does not know.

    Unknown fields are passed over. Raises FormatError on a newer format, a missing field or a
    field of another type, and names it.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise FormatError("not a record: it has no kind")
    kind = RECORDS.get(data["kind"])
    if kind is None:
        return None
    if kind is Run:
        _check_version(data.get("format"))
    _check_depth(data, data["kind"])
    content = kept_names(data)
    record = built(kind, content, data["kind"])
    for name, facts in FACTS.get(kind, {}).items():
        if name in content:
            built(facts, content[name], f"{data['kind']}.{name}")
    return record


def parse(lines: Iterable[str]) -> Result:
    """Read the lines of a records file.

    A line that is no whole record (cut off by a kill, damaged) and a kind that is not known are
    passed over and reported in `Result.warnings`. Raises FormatError, naming the line, where the
    first is not the record of a run that can be read, or another run follows.
    """
    records: list[Record] = []
    warnings: list[ReadWarning] = []
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in kept:
        try:
            data = json.loads(line, parse_constant=str, parse_float=_finite)
        except (ValueError, RecursionError):  # the latter: brackets without an end
            if number == 1:
                raise FormatError("line 1 is not the record of a run") from None
            warnings.append(_broken(number, number == kept[-1][0]))
            continue
        try:
            record = from_json(data)
        except FormatError as error:
            if not records:
                raise FormatError(f"line {number}: {error}") from None
            warnings.append(ReadWarning("damaged", f"line {number}: {error}: passed over"))
            continue
        if record is None:
            message = f"line {number}: a record of the unknown kind {data['kind']!r}: passed over"
            warnings.append(ReadWarning("unknown-kind", message))
        elif isinstance(record, Run) and records:
            raise FormatError(f"line {number}: a second run in one file")
        else:
            records.append(record)
    return result_of(records, warnings)


def _broken(number: int, last: bool) -> ReadWarning:
    if last:
        return ReadWarning("cut-off", f"line {number}, the last, is cut off: read up to it")
    return ReadWarning("broken-line", f"line {number} is no whole record: passed over")


def _check_version(version: object) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(f"run.format is {_shown(version)}, not a version number")
    if version > FORMAT_VERSION:
        raise FormatError(
            f"records of format {version}: this serve-bench reads up to {FORMAT_VERSION}, "
            "a newer one is needed"
        )


def _finite(text: str) -> float | str:
    """1e999 stays a text, as NaN does: the types refuse it where a number belongs."""
    value = float(text)
    return value if math.isfinite(value) else text


def _check_depth(data: Mapping[str, Any], where: str) -> None:
    """Raises FormatError for a field that is nested deeper than DEEPEST."""
    for name, value in data.items():
        level = [value] if isinstance(value, dict | list) else []
        for _ in range(DEEPEST):
            level = [
                inner
                for outer in level
                for inner in (outer.values() if isinstance(outer, dict) else outer)
                if isinstance(inner, dict | list)
            ]
            if not level:
                break
        else:
            raise FormatError(f"{where}.{name} is nested too deeply")


# ------------------------------------------------------------------------- any typed JSON object


def plain(value: Any) -> Any:
    """A dataclass as plain JSON content; keys are texts, bytes base64. Numbers are not checked."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=dict)


def built(kind: type[_T], data: Any, where: str) -> _T:
    """The reverse of `plain`, checked against the types of the class. `where` names it in errors.

    Fields that the class does not know are passed over. Raises FormatError, in one line with the
    field, its value and what it should be.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise FormatError(_message(kind, data, str(error), where)) from None


_FAULT: Final = re.compile(r"(?P<reason>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.S)
_EXPECTED: Final = re.compile(
    r"Expected `(?P<type>[^`]*)`(?:, got .*| (?:of length )?(?P<sign>[<>]=?) (?P<limit>.*))?"
)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "int | float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _message(kind: type[Any], data: Any, error: str, where: str) -> str:
    """msgspec's message in our words, with the full path of the field."""
    found = _FAULT.fullmatch(error)
    assert found is not None
    reason, steps = found["reason"], _STEP.findall(found["path"] or "")
    if found["key"]:
        steps.append(("", "..."))
    names, value = _followed(kind, data, error, steps)
    place = where + "".join(names)
    if found["key"]:
        return f"{place}: no such name is allowed"
    if (missing := re.fullmatch(r"Object missing required field `(.*)`", reason)) is not None:
        return f"{place}.{missing[1]} is missing"
    if reason.startswith("Invalid enum value"):
        return f"{place} is {_shown(value)}, which is none of its values"
    expected = _EXPECTED.fullmatch(reason)
    if expected is None:  # a part that refuses itself
        return f"{place}: {reason}"
    types = [one for one in expected["type"].split(" | ") if one != "null"]
    words = _WORDS.get(" | ".join(types)) or " or ".join(_WORDS.get(one, one) for one in types)
    bound = {">=": " of at least ", "<=": " of at most ", "<": " below ", "": ""}[
        expected["sign"] or ""
    ]
    return f"{place} is {_shown(value)}, not {words}{bound}{expected['limit'] or ''}"


def _followed(
    kind: type[Any], data: Any, error: str, steps: Sequence[tuple[str, str]]
) -> tuple[list[str], Any]:
    """The names on the way to the value that is refused, and the value.

    For the value of a mapping msgspec tells `[...]` in the place of the name: it is the one that
    is refused when it stands there alone.
    """
    names: list[str] = []
    whole = data = json.loads(json.dumps(data))
    for name, index in steps:
        if index == "..." and isinstance(data, dict):
            entries = dict(data)
            for name, value in entries.items():
                data.clear()
                data[name] = value
                if _fault(kind, whole) == error:
                    break
            data.update(entries)
        names.append(f"[{index}]" if index and index != "..." else f".{name}")
        try:
            data = data[int(index) if isinstance(data, list) else name]
        except (KeyError, IndexError, ValueError, TypeError):
            return names, None
    return names, data


def _fault(kind: type[Any], data: Any) -> str | None:
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."
