"""Records as JSON and back: `plain` writes a dataclass, `built` reads and checks it. Pure.

Rule: an error is one line that names the field and what it should be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.histogram import Histogram, HistogramFacts

_T = TypeVar("_T")


def plain(value: Any) -> dict[str, Any]:
    """Return a dataclass, or a dict of them, as JSON content.

    It has dicts with texts for keys, lists, bytes as base64, histograms in their sparse form. NaN
    and infinity are not allowed, since JSON lacks them."""
    content = msgspec.json.encode(value, enc_hook=encode_part)
    return msgspec.json.decode(content, type=dict[str, Any])


def encode_part(value: Any) -> Any:
    """Encode what msgspec does not know: histograms, other mappings than dict, subclasses of str.

    The version of torch is a subclass of str. Raises TypeError for what is no JSON."""
    if isinstance(value, Histogram):
        return value.encode()
    return str(value) if isinstance(value, str) else dict(value)


def _decode_part(kind: type[Any], value: Any) -> Any:
    if kind is not Histogram:
        raise TypeError(f"{kind.__name__} is no part of a record")
    return Histogram.decode(built(HistogramFacts, value, "histogram"))


def built(kind: type[_T], data: Any, where: str) -> _T:
    """Return JSON content as an object of a class, checked against its types; reverses `plain`.

    `where` names the content in errors. Fields that the class does not have are ignored. Raises
    FormatError."""
    try:
        return msgspec.convert(data, kind, str_keys=True, dec_hook=_decode_part)
    except msgspec.ValidationError as error:
        raise FormatError(_describe_fault(str(error), where)) from None
    except UnicodeEncodeError:  # half of a character, which JSON can spell
        raise FormatError(f"{where} holds text that is not Unicode") from None


def built_with(kind: type[_T], data: Any, where: str, **makers: Callable[[Any], Any]) -> _T:
    """Read a dataclass as `built`, with fields that are stored in another form.

    `makers` makes the field of that name from what is stored. Raises FormatError, and what the
    makers raise."""
    content = built(dict[str, Any], data, where)
    made = {name: make(content[name]) for name, make in makers.items() if name in content}
    value: Any = built(kind, {**content, **made}, where)
    return cast(_T, replace(value))  # with its defaults, which msgspec leaves to the class


def stored_suite(kind: type[_T], data: Any, **makers: Callable[[Any], Any]) -> _T:
    """Read the suite of a stored run, to resume it, as `built_with` does. Raises BadInput."""
    try:
        return built_with(kind, data, "suite", **makers)
    except FormatError as error:
        raise BadInput(f"the stored suite cannot be resumed: {error}") from None


def _describe_fault(error: str, where: str) -> str:
    """Put msgspec's message in one line after the full path of the field.

    `[...]` stands for a name of a mapping: `trial.limits[...].each: expected int, got str`."""
    reason, _, place = error.partition(" - at ")
    path = place.replace("`key` in ", "").strip("`$")
    return f"{where}{path}: {reason[:1].lower()}{reason[1:]}".replace("`", "")


def shown(value: object, most: int = 40) -> str:
    """Write a value for a message, cut to `most` characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= most else text[: most - 3] + "..."
