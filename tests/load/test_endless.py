"""Answers that do not end: what is kept of them is bounded, and the request fails by its class."""

import tracemalloc
from typing import Any, Final

from serve_bench.core.load_spec import Client, Load, Streaming
from serve_bench.core.request_spec import Request
from tests.cases import cases
from tests.load.loads import run_here
from tests.servers import serving

OK: Final = b"HTTP/1.1 200 OK\r\n"
FULL: Final = b"a" * (1 << 16)
BLOCKS: Final = 640
"""Of them an answer has 42 MB, and more where they are repeated in it."""

SSE: Final = {"streaming": Streaming()}
CHAT: Final = {"streaming": Streaming(openai=True)}
EXPECT: Final = {"expect_body": b"a" * 100_000}
LENGTH: Final = b"%sConnection: close\r\nContent-Length: %d\r\n\r\n" % (OK, BLOCKS << 16)
TRAILERS: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: x\n\n\r\n0\r\nx-a: "


@cases(
    "asked, start, block, failure",
    ({}, OK, b"x-a: %s\r\n" % FULL, "too-large"),
    ({}, OK + b"x-a: ", FULL, "too-large"),
    ({}, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2600, "too-large"),
    (EXPECT, LENGTH, FULL, "body"),
    (SSE, OK + b"\r\ndata: ", FULL, "too-large"),
    (SSE, OK + b"\r\n", b"data: %s\n" % FULL, "too-large"),
    (SSE, TRAILERS, FULL, "too-large"),
    (CHAT, OK + b'\r\ndata: {"choices":[{"delta":{"content":"', FULL, "too-large"),
)
@cases("client", "raw", "aiohttp")
def test_an_endless_answer_is_given_up(
    client: Client, asked: dict[str, Any], start: bytes, block: bytes, failure: str
) -> None:
    if "streaming" in asked:  # by the raw client alone
        client = "raw"
    steps = [(0.0, start or block), *[(0.0, block)] * BLOCKS, (0.0, b"")]
    with serving(steps=lambda number: steps) as server:
        request = Request(server.url, expect_body=asked.get("expect_body"))
        streaming = asked.get("streaming")
        load = Load(request, client=client, streaming=streaming, connections=3, count=6)
        tracemalloc.start()
        result = run_here(load)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert result.total.failed == {failure: 6} and result.total.sent == 6
    assert peak < 80e6
