"""An app whose memory grows by a known amount.

Each request leaves 4 kB of `os.urandom`, so that each of its pages is written. glibc gives it 33
bytes more (the head of a bytes object) and 8, rounded up to 16.
"""

import os

from ray import serve
from starlette.responses import PlainTextResponse

LEAK = 4 * 1024

KEPT_BYTES = (LEAK + 33 + 8 + 15) // 16 * 16 + 8
"""Memory for each request that is kept, with its place in the list (8 to 9 bytes)."""


@serve.deployment
class Shop:
    def __init__(self) -> None:
        self.kept: list[bytes] = []

    async def __call__(self, request: object) -> PlainTextResponse:
        self.kept.append(os.urandom(LEAK))
        return PlainTextResponse("ok")


leaking = Shop.bind()  # type: ignore[attr-defined]
