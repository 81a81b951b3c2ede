"""Any dataclass as JSON content and back, checked against its types. Pure.

Rule: a fault is one line that names the field, its value and what it should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar, cast, get_type_hints

import msgspec

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.histogram import Histogram, HistogramFacts

_T = TypeVar("_T")


def plain(value: Any) -> dict[str, Any]:
    """A dataclass, or a dict of such, as JSON content: dicts with texts for keys, lists, bytes as
    base64, histograms in their sparse form. Not for NaN and infinity, which are no JSON."""
    content = msgspec.json.encode(value, enc_hook=_encoded)
    return msgspec.json.decode(content, type=dict[str, Any])


def _encoded(value: Any) -> Any:
    """What msgspec does not know itself: histograms, and mappings that are no dict."""
    return value.encode() if isinstance(value, Histogram) else dict(value)


def _decoded(kind: type[Any], value: Any) -> Any:
    if kind is not Histogram:
        raise TypeError(f"{kind.__name__} is no part of a record")
    return Histogram.decode(built(HistogramFacts, value, "histogram"))


def built(kind: type[_T], data: Any, where: str) -> _T:
    """The reverse of `plain`, checked against the types of the class. `where` names it in errors.

    Fields that the class does not know are passed over. Raises FormatError, in one line with the
    field, its value and what it should be.
    """
    try:
        return msgspec.convert(data, kind, str_keys=True, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        raise FormatError(_message(kind, data, str(error), where)) from None
    except UnicodeEncodeError:  # half of a character, which JSON can spell
        raise FormatError(f"{where} holds text that is not Unicode") from None


def built_with(kind: type[_T], data: Any, where: str, **makers: Callable[[Any], Any]) -> _T:
    """`built` of a dataclass with parts that are stored in another form: `makers` makes the field
    of that name of what is stored. Raises FormatError, and what the makers raise."""
    content, hints = built(dict[str, Any], data, where), get_type_hints(kind, include_extras=True)
    parts = {}
    for member in fields(cast(Any, kind)):
        if member.name in makers and member.name in content:
            parts[member.name] = makers[member.name](content[member.name])
        elif member.name in content:
            parts[member.name] = built(
                hints[member.name], content[member.name], f"{where}.{member.name}"
            )
        elif member.default is MISSING and member.default_factory is MISSING:
            raise FormatError(f"{where}.{member.name} is missing")
    return kind(**parts)


def stored_suite(kind: type[_T], data: Any, **makers: Callable[[Any], Any]) -> _T:
    """The suite of a stored run, to go on with it; the rest as `built_with`. Raises BadInput."""
    try:
        return built_with(kind, data, "suite", **makers)
    except FormatError as error:
        raise BadInput(f"the stored suite cannot be resumed: {error}") from None


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
    fault = _FAULT.fullmatch(error)
    assert fault is not None
    reason, steps = fault["reason"], _STEP.findall(fault["path"] or "")
    if fault["key"]:
        steps.append(("", "..."))
    names, value = _followed(kind, data, error, steps)
    place = where + "".join(names)
    if fault["key"]:
        return f"{place}: no such name is allowed"
    if (missing := re.fullmatch(r"Object missing required field `(.*)`", reason)) is not None:
        return f"{place}.{missing[1]} is missing"
    if reason.startswith("Invalid enum value"):
        return f"{place} is {shown(value)}, which is none of its values"
    expected = _EXPECTED.fullmatch(reason)
    if expected is None:  # a part that refuses itself
        return f"{place}: {reason}"
    types = [type_ for type_ in expected["type"].split(" | ") if type_ != "null"]
    words = _WORDS.get(" | ".join(types)) or " or ".join(_WORDS.get(type, type) for type in types)
    bound = {">=": " of at least ", "<=": " of at most ", "<": " below ", ">": " above ", "": ""}[
        expected["sign"] or ""
    ]
    return f"{place} is {shown(value)}, not {words}{bound}{expected['limit'] or ''}"


def _followed(
    kind: type[Any], data: Any, error: str, steps: Sequence[tuple[str, str]]
) -> tuple[list[str], Any]:
    """The names on the way to the value that is refused, and the value.

    For the value of a mapping msgspec tells `[...]` in the place of the name: it is the one that
    is refused when it stands there alone.
    """
    names: list[str] = []
    whole = data = json.loads(json.dumps(data, default=str))
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
        msgspec.convert(data, kind, str_keys=True, dec_hook=_decoded)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return str(error)
    return None


def shown(value: object, most: int = 40) -> str:
    """A value in a message, cut to so many characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= most else text[: most - 3] + "..."
