"""Records as lines of JSON, one object a line, `kind` first.

Rule: what a reader does not know (kinds, fields) is passed over, what it knows is checked against
the type hints of result.py, and a newer format is refused. A line that a kill cut off costs that
line alone. No file is opened here.
"""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union

from serve_bench.core.kept import kept_line, kept_names
from serve_bench.core.result import (
    FORMAT_VERSION,
    RECORDS,
    FormatError,
    ReadWarning,
    Record,
    Result,
    Run,
    result_of,
)


def to_line(record: Record) -> str:
    """The record as one line, newline included, with hashes in the place of secrets. Raises
    ValueError on NaN or infinity."""
    plain: dict[str, Any] = {"kind": record.KIND}
    if isinstance(record, Run):
        plain["format"] = record.format  # up front, for people who look into the file
    plain |= _fields(record)
    line = json.dumps(plain, separators=(",", ":"), allow_nan=False, default=_fields)
    return kept_line(line) + "\n"


def from_json(data: object) -> Record | None:
    """The record of one JSON value; None for a kind this version does not know.

    Unknown fields are passed over. Raises FormatError on a newer format, a missing field or a
    field of another type, and names it.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise FormatError("not a record: it has no kind")
    kind = RECORDS.get(data["kind"])
    if kind is Run:
        version = data.get("format")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError(f"run: format is {version!r}, not a version number")
        if version > FORMAT_VERSION:
            raise FormatError(
                f"records of format {version}: this serve-bench reads up to {FORMAT_VERSION}, "
                "a newer one is needed"
            )
    return None if kind is None else _build(kind, kept_names(data), data["kind"])


def _no_number(name: str) -> float:
    """NaN and Infinity are no JSON, and are never written."""
    raise ValueError(f"{name} is no number of JSON")


def parse(lines: Iterable[str]) -> Result:
    """Read the lines of a records file.

    A line that is no whole JSON (cut off by a kill) and a kind that is not known are passed over
    and reported in `Result.warnings`. Raises FormatError, naming the line, on all else.
    """
    records: list[Record] = []
    warnings: list[ReadWarning] = []
    for number, line, last in _numbered(lines):
        try:
            data = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):  # the latter: brackets without an end
            if number == 1:
                raise FormatError("line 1 is not the record of a run") from None
            warnings.append(_broken(number, last))
            continue
        try:
            record = from_json(data)
        except FormatError as error:
            raise FormatError(f"line {number}: {error}") from None
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


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Lines with their number and whether they are the last; blank ones are left out."""
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in kept:
        yield number, line, number == kept[-1][0]


# ---------------------------------------------------------------- the codec, by type hints

_T = TypeVar("_T")


def _fields(value: Any) -> dict[str, Any]:
    """The parts of what JSON does not know: dataclasses, and mappings that are no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _build(cls: type[_T], data: Any, where: str) -> _T:
    """A dataclass from a JSON object, checked against the class's type hints."""
    if not isinstance(data, dict):
        raise FormatError(f"{where} is {_named(data)}, not an object")
    hints = _hints(typing.cast(Any, cls))
    names = [item.name for item in fields(typing.cast(Any, cls)) if item.name in data]
    values = {name: _value(hints[name], data[name], f"{where}.{name}") for name in names}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # a missing field, or a part that refuses itself
        reason = str(error).replace(f"{cls.__name__}.__init__() ", "")
        raise FormatError(f"{where}: {reason}") from None


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _value(hint: Any, data: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if is_dataclass(hint):
        return _build(typing.cast(type[Any], hint), data, where)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        return _value(next(item for item in inner if item is not type(None)), data, where)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is Mapping and isinstance(data, dict):
        return {key: _value(inner[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is Literal and data in inner:
        return data
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return data
    if isinstance(hint, type) and isinstance(data, hint):
        if hint is int and isinstance(data, bool):
            raise FormatError(f"{where} is true or false, not a number")
        return data
    raise FormatError(f"{where} is {_named(data)}, not {_expected(hint)}")


def _named(data: object) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else text[:37] + "..."


def _expected(hint: Any) -> str:
    """A type hint in words of JSON."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(json.dumps(item) for item in inner)
    words = {tuple: "a list", Mapping: "an object", str: "a text", bool: "true or false"}
    return words.get(origin or hint, "a whole number" if hint is int else "a number")
