"""Apps with a known growth of memory: a leak of 1 kB a request, of 4, none, and a cache that fills.

Whatever is kept is an `os.urandom`, so that each of its pages is written; glibc gives it 33 bytes
more (the head of a bytes object) and 8, rounded up to 16.
"""

from __future__ import annotations

import os

from ray import serve
from starlette.responses import PlainTextResponse

LEAK = 1024


def kept_bytes(leak: int) -> int:
    """Memory for each request that is kept, with its place in the list (8 to 9 bytes)."""
    return (leak + 33 + 8 + 15) // 16 * 16 + 8


FILLED = 8000
"""Requests after which the cache is full: 8.6 MB."""


@serve.deployment
class Shop:
    """Keeps `most` answers of `leak` bytes."""

    def __init__(self, most: int, leak: int = LEAK) -> None:
        self.most, self.leak = most, leak
        self.kept: list[bytes] = []

    async def __call__(self, request: object) -> PlainTextResponse:
        if len(self.kept) < self.most:
            self.kept.append(os.urandom(self.leak))
        return PlainTextResponse("ok")


leaking = Shop.bind(10**9)  # type: ignore[attr-defined]
leaking_4k = Shop.bind(10**9, 4 * LEAK)  # type: ignore[attr-defined]
steady = Shop.bind(0)  # type: ignore[attr-defined]
caching = Shop.bind(FILLED)  # type: ignore[attr-defined]
