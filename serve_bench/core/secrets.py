"""The values of this invocation that may be secrets, and how they are taken out of a text.

Rule: a value is known once it was hashed by its place (core/redaction.py); `hide` puts that hash in
its place in every text kept or shown: of the whole, cut off or folded, or a text or word of it of 8
characters, as JSON, Python, HTML, URLs and base64 spell it. Under 6 characters, a plain word, short
number, address of digits or path is hidden by its place alone, since other texts have these too.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote_plus

HASH: Final = r"sha256:[0-9a-f]{8}"
#: Spellings that are known; of more the first. Of a long value each block is, as base64 has it.
MOST, _BLOCK = 2_000, 3 * 1024

_PLAIN: Final = re.compile(
    r"([A-Za-z]?[a-z]{0,14}|[-+]?\d{0,7}|[-+]?\d+(\.\d+)+)(:\d{1,5})?|(/[\w.-]+)+/?|sha256:?"
)

#: What a fold leaves in a text, and in a text that is itself spelt; and where one was cut off.
_FOLD: Final = r"(?:\s|\\n)*"
_CUT: Final = r"(?=[\"']*(?:\.\.\.|…|\n|$))"
#: The hash for each spelling, without folds.
KNOWN: Final[dict[str, str]] = {}


def hash_value(value: str | bytes) -> str:
    """Return `sha256:` and 8 hexadecimal digits of a value, which `hide` knows from now on.

    What is a hash already stays, and so does an empty value."""
    if isinstance(value, str) and (not value or re.fullmatch(HASH, value)):
        return value
    text = value if isinstance(value, str) else value.decode(errors="surrogateescape")
    hashed = f"sha256:{sha256(text.encode(errors='surrogateescape')).hexdigest()[:8]}"
    for part in _split_value(text) if _unfold(text) not in KNOWN else ():
        if len(KNOWN) >= MOST:
            break
        for spelling in _spell(part) if _unfold(part) not in KNOWN else ():
            if len(spelling) >= 6 and not _PLAIN.fullmatch(spelling):
                KNOWN.setdefault(_unfold(spelling), hashed)
    return hashed


def hide(text: str) -> str:
    """Replace each known secret in a text by its hash."""
    solid = _unfold(text) if KNOWN else ""
    found: dict[str, str] = {}
    for spelling, hashed in KNOWN.items():
        if (place := solid.find(spelling[:12])) >= 0:
            pairs = zip(spelling, solid[place:], strict=False)
            same = next((k for k, (a, b) in enumerate(pairs) if a != b), len(solid) - place)
            found[spelling if spelling in solid else spelling[:same]] = hashed
    patterns = [HASH]  # what is a hash stays
    for secret in sorted(found, key=len, reverse=True):
        patterns.append(_FOLD.join(map(re.escape, secret)) + ("" if secret in KNOWN else _CUT))
    return re.sub("|".join(patterns), lambda match: found.get(_unfold(match[0]), match[0]), text)


def _unfold(text: str) -> str:
    return "".join(text.split()).replace("\\n", "")


def _split_value(value: str) -> Iterator[str]:
    """Yield a value, in blocks, and the parts of it that an app may repeat."""
    yield from (value[begin : begin + _BLOCK] for begin in range(0, len(value), _BLOCK))
    try:
        inner: list[Any] = [json.loads(value)]
    except (ValueError, RecursionError):
        inner = re.split(r"[\s;:,=&?\"']+", value[: 32 * _BLOCK])
    while inner:
        part = inner.pop()
        if isinstance(part, dict | list):
            inner += part.values() if isinstance(part, dict) else part
        elif isinstance(part, str) and len(part) >= 8:
            yield part[:_BLOCK]


def _spell(value: str) -> Iterator[str]:
    """Yield the forms in which a text may hold the value."""
    data, quoted = value.encode(errors="surrogateescape"), json.dumps(value)[1:-1]
    yield from (value, escape(value), unquote_plus(value), quoted, json.dumps(quoted)[1:-1])
    yield from (repr(part).lstrip("b")[1:-1] for part in (value, data))
    for encoded in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield from (encoded, re.sub("%..", lambda match: match[0].lower(), encoded))
    yield from (encode(data).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode))
