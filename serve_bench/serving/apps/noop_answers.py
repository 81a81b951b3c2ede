"""What the no-op app answers, whatever serves it: Serve, or a bare server beside it (bare.py).

Without Ray: a bare server has none.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import parse_qs

ANSWER = "ok"

#: An event of a stream.
EVENT = b"data: token\n\n"


@lru_cache(maxsize=16)
def asked(query: bytes, name: bytes) -> int:
    """Return the number that a query such as `events=10` has for `name`; 0 without it."""
    values = parse_qs(query).get(name)
    return int(values[0]) if values else 0


def query_of(message: bytes) -> bytes:
    """Return the query that a message begins with; zeros fill it up to its size."""
    end = message.find(b"\0")
    return message if end < 0 else message[:end]


@lru_cache(maxsize=4)  # made once: only Serve is to be measured
def body_of(query: bytes) -> bytes:
    """Return the body that a query asks for (`bytes=10`), else "ok"."""
    return b"a" * asked(query, b"bytes") or ANSWER.encode()
