import asyncio
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from httptools import HttpParserError
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_bench.core.load_spec import Client, Load, Streaming
from serve_bench.core.request_spec import Request
from serve_bench.load import http1
from serve_bench.load.failures import describe_seen
from tests import servers
from tests.cases import Patch, cases
from tests.load.loads import run_here, split

URL = "http://127.0.0.1:8000/noop"


def take(framer: http1.ResponseFramer, *parts: bytes) -> http1.ResponseFramer:
    """Feed as the engine does."""
    for part in parts:
        framer.parser.feed_data(part)
        if not framer.done:
            framer.keep(part)
    return framer


def checked(expected: bytes = b"ok") -> tuple[http1.ResponseFramer, Request]:
    request = Request(URL, expect_body=expected)
    return http1.make_framer(request), request


def test_a_response_of_a_coding_without_a_length_ends_with_the_connection() -> None:
    framer, request = checked()
    take(framer, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"o", b"k")
    assert framer.done == http1.WAITING
    assert framer.eof()
    assert (framer.done, framer.status, framer.keep_alive) == (http1.OTHER, 200, False)
    assert http1.judge(framer, request) is None
    old = take(http1.ResponseFramer(), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (old.done, old.status, old.keep_alive) == (http1.OTHER, 200, False)


@cases("length", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"")
def test_a_response_to_head_has_no_body(length: bytes) -> None:
    response = b"HTTP/1.1 200 OK\r\n" + length + b"X: y\r\n\r\n"
    framer = http1.make_framer(Request(URL, method="HEAD"))
    for at in range(len(response) + 1):
        take(framer, response[:at], response[at:])
        assert (framer.done, framer.status) == (http1.PLAIN, 200)
        framer.reset()
    with pytest.raises(HttpParserError):
        framer.parser.feed_data(response + b"hello")
    folded = http1.make_framer(Request(URL, method="HEAD"))
    take(folded, b"HTTP/1.1 200 OK\nX: a\n b\r\nContent-Length:\r\n 5\n\n")
    assert (folded.done, folded.status) == (http1.PLAIN, 200)


TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).map(str.encode)
HEADERS = st.lists(st.tuples(TOKEN.map(lambda t: b"x-" + t), TOKEN), max_size=4)
COLONS = st.sampled_from([b": ", b":", b":  "])
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", HINTS]


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw the body in chunks of any size, with or without extensions and trailers."""
    wire, rest = b"", body
    while rest:
        size = draw(st.integers(1, len(rest)))
        extension = draw(st.sampled_from([b"", b"", b";name=value"]))
        wire += b"%x%s\r\n%s\r\n" % (size, extension, rest[:size])
        rest = rest[size:]
    return wire + b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"])) + b"\r\n"


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, int, bytes, str]:
    """Draw a valid response: (bytes, status, body, how its end is told).

    The last is `length`, `chunked`, `nothing` (a status that has no body), `close` (a length, and
    the server closes) or `eof` (the connection's end is the body's).
    """
    status = draw(st.sampled_from([200, 200, 201, 204, 206, 304, 400, 404, 429, 500, 503]))
    body = draw(st.binary(max_size=200) | st.just(b"ok"))
    ending = draw(st.sampled_from(["length", "chunked", "close", "eof"]))
    if status in (204, 304):
        body, ending = b"", "nothing"
    lines = [b"HTTP/1.1 %d %s" % (status, draw(st.sampled_from([b"Reason", b"Not So Good", b""])))]
    lines += [name + draw(COLONS) + value for name, value in draw(HEADERS)]
    length = draw(st.sampled_from([b"Content-Length", b"content-length", b"CONTENT-LENGTH"]))
    wire = body
    if ending in ("length", "close"):
        lines.append(b"%s: %d" % (length, len(body)))
    if ending == "close":
        lines.append(b"Connection: close")
    if ending == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
        wire = draw(chunks(body))
    interim = b"".join(draw(st.lists(st.sampled_from(INTERIM), max_size=2)))
    return interim + b"\r\n".join(lines) + b"\r\n\r\n" + wire, status, body, ending


def test_request_bytes() -> None:
    (get,) = http1.request_bytes(Request("http://h:81/p?q=1"))
    assert get.startswith(b"GET /p?q=1 HTTP/1.1\r\nHost: h:81\r\n") and get.endswith(b"\r\n\r\n")
    assert b"Content-Length" not in get and b"Connection" not in get
    (close,) = http1.request_bytes(Request("http://h/"), keepalive=False)
    assert b"\r\nConnection: close\r\n" in close and b"Host: h\r\n" in close
    first, two = http1.request_bytes(Request(URL, method="POST", bodies=(b"a", b"bcd")))
    assert first.endswith(b"\r\n\r\na") and b"Content-Length: 1\r\n" in first
    assert two.endswith(b"\r\n\r\nbcd") and b"Content-Length: 3\r\n" in two
    (empty,) = http1.request_bytes(Request(URL, method="POST"))
    assert b"Content-Length: 0\r\n" in empty
    # A header of the request replaces the default.
    headers = (("host", "other"), ("Authorization", "Bearer t"))
    (data,) = http1.request_bytes(Request("http://[::1]:8000/", headers=headers))
    assert data.lower().count(b"host:") == 1 and b"host: other\r\n" in data
    assert b"Authorization: Bearer t\r\n" in data
    (six,) = http1.request_bytes(Request("http://[::1]:8000/"))
    assert b"Host: [::1]:8000\r\n" in six


@settings(max_examples=60, deadline=None)
@given(responses(), st.lists(st.integers(0, 10_000), max_size=4))
def test_raw_and_aiohttp_frame_alike(
    clients_read: Callable[[list[bytes], bool], list[tuple[Any, ...]]],
    response: tuple[bytes, int, bytes, str],
    cuts: list[int],
) -> None:
    data, status, body, ending = response
    pieces = split(data, cuts)
    framer, request = checked(b"ok")
    take(framer, *pieces)
    if ending == "eof":
        assert framer.done == http1.WAITING and framer.eof()
    assert framer.done in (http1.PLAIN, http1.OTHER)
    assert framer.keep_alive == (ending not in ("eof", "close"))
    framed = http1.judge(framer, request), framer.status
    assert clients_read(pieces, ending not in ("eof", "close")) == [framed, framed]
    assert framed[1] == status
    refused = "rejected" if status in (429, 503) else "status"
    assert framed[0] == (refused if status >= 300 else None if body == b"ok" else "body")


ODD = """folded long_head many_headers long_head_until_eof bare_lf spaced_chunk empty_lines surplus
surplus_letter surplus_head surplus_cut surplus_bytes two_lengths body_of_204 switched error500
error503 wrong_body longer_body garbage bad_chunk close_before close_in_head close_in_body
close_in_chunks reset""".split()


@cases("client", "raw", "aiohttp")
@pytest.mark.parametrize("action", ODD)
def test_every_response_is_charged_to_its_own_request(client: Any, action: str) -> None:
    """Each second response is odd: half of the requests, and no other, end as that one does."""
    with servers.serving(servers.every_nth(2, action)) as server:
        request = Request(server.url, expect_body=b"ok")
        result = run_here(Load(request, client=client, count=20, timeout_s=5.0))
    failure = servers.FAILURES.get(action)
    assert result.total.failed == ({} if failure is None else {failure: 10})
    assert result.total.completed == (20 if failure is None else 10)
    assert len(server.log) == 20


@cases("client", "raw", "aiohttp")
@cases("action", "close_later", "surplus_later")
def test_the_end_of_an_idle_connection(client: Any, action: str, monkeypatch: Patch) -> None:
    """Its end, and a surplus while nothing is asked, are no answer to the next request."""

    async def surplus_later(writer: asyncio.StreamWriter) -> bool:
        writer.write(servers.OK)
        await asyncio.sleep(0.12)  # until the client has read it, on a busy host too
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return True

    monkeypatch.setitem(servers.ACTIONS, "surplus_later", surplus_later)
    with servers.serving(servers.every_nth(2, action)) as server:
        load = Load(Request(server.url), client=client, count=6, rate=4.0, timeout_s=5.0)
        result = run_here(load)
    assert (result.total.completed, result.total.failed) == (6, {})
    assert len(server.log) == 6 and result.reconnects == 3 - (server.log[-1].action == action)


@pytest.fixture(scope="module")
def clients_read() -> Iterator[Callable[[list[bytes], bool], list[tuple[Any, ...]]]]:
    """Send the pieces from a real server; return what each client reads: (class, status)."""
    pieces: list[bytes] = []
    keep = True

    async def scripted(writer: asyncio.StreamWriter) -> bool:
        mine, kept = list(pieces), keep  # the next example may come before this one returns
        for piece in mine:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return kept

    servers.ACTIONS["scripted"] = scripted
    with servers.serving(servers.always("scripted")) as server:
        load = Load(Request(server.url, expect_body=b"ok"), count=1, timeout_s=5.0)

        def reads(given: list[bytes], kept: bool) -> list[tuple[Any, ...]]:
            nonlocal keep
            pieces[:], keep = given, kept
            results = [run_here(load), run_here(replace(load, client="aiohttp"))]
            # One whole response, whatever it was judged.
            return [(next(iter(done.total.failed), None), *done.status_codes) for done in results]

        yield reads
    del servers.ACTIONS["scripted"]


def test_what_is_shown_of_an_answer_is_short_and_has_no_secrets_of_the_request() -> None:
    headers = (("Authorization", "Bearer top-secret"), ("X-Short", "te"))
    body = b"GET /a?key=abc of top-secret\x1b[31m: my body, text " + b"x" * 999
    answer = b"HTTP/1.1 401 No\r\nSet-Cookie: id=1\r\n\r\n" + body
    text = describe_seen(answer, Request("http://a", headers=headers, body=b"my body"))
    assert text.startswith("HTTP/1.1 401 No: GET /a?key=sha256:") and len(text) < 130
    assert "\\x1b[31m" in text and ", text x" in text and text.endswith("...")
    assert not any(hidden in text for hidden in ("abc", "top-secret", "my body", "id=1"))
    assert describe_seen(b"\xff\r\n", Request("http://a")) == "\\xff\\r\\n"


#: Answers that do not end: what is kept of them is bounded, and the request fails by its class.
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
    with servers.serving(steps=lambda number: steps) as server:
        request = Request(server.url, expect_body=asked.get("expect_body"))
        streaming = asked.get("streaming")
        load = Load(
            request, client=client, streaming=streaming, connections=3, count=6, timeout_s=120.0
        )
        tracemalloc.start()
        result = run_here(load)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert result.total.failed == {failure: 6} and result.total.sent == 6
    assert peak < 80e6
