"""Apps with a known growth of memory: a leak of 1 kB a request, none, and a cache that fills.

Whatever is kept is an `os.urandom` of LEAK bytes, so that each of its pages is written; glibc gives
it LEAK + 33 (the head of a bytes object) + 8 bytes, rounded up to 16.
"""

from __future__ import annotations

import os

from ray import serve
from starlette.responses import PlainTextResponse

LEAK = 1024
CHUNK = (LEAK + 33 + 8 + 15) // 16 * 16
"""Bytes of memory for each request that is kept, without its place in the list (8 to 9 bytes)."""

FILLED = 8000
"""Requests after which the cache is full: 8.6 MB."""


@serve.deployment
class Shop:
    """Keeps `most` answers."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[bytes] = []

    async def __call__(self, request: object) -> PlainTextResponse:
        if len(self.kept) < self.most:
            self.kept.append(os.urandom(LEAK))
        return PlainTextResponse("ok")


leaking = Shop.bind(10**9)  # type: ignore[attr-defined]
steady = Shop.bind(0)  # type: ignore[attr-defined]
caching = Shop.bind(FILLED)  # type: ignore[attr-defined]
