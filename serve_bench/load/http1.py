"""HTTP/1.1 without I/O: the bytes of a request, and where a response ends.

Rule: no socket and no clock. llhttp (httptools) frames every response. This module does what llhttp
leaves to its caller: responses that end with the connection, HEAD, informational responses (1xx),
and surplus responses.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from serve_bench.core.load_result import REJECTIONS
from serve_bench.core.request_spec import Headers, Request

WAITING = 0
"""No whole response yet."""
PLAIN = 1
"""A whole response: status 200, the connection stays open, the body as expected."""
OTHER = 2
"""Another whole response: see `status`, `keep_alive` and `fault`."""
SURPLUS = 3
"""A whole response, followed by bytes that begin another, or are one."""

LARGE = 1 << 15
"""Bytes kept of a response before its head is looked for in them: what follows it is not kept. A
body of megabytes that is kept takes new memory at each read (1 MB of nginx: 0.81 of the rate of
wrk, else 0.93)."""

MAX_HEAD = 1 << 20
"""Bytes of the longest head that the raw client and aiohttp read, and of the longest trailers."""


def request_headers(request: Request, named: Headers, keepalive: bool) -> dict[str, str]:
    """Return the headers that are sent besides those of the body, defaults first.

    A header in `named` replaces a default of the same name. Host has the port only if the URL does.
    """
    port = urlsplit(request.url).port
    host = f"[{request.host}]" if ":" in request.host else request.host
    host = host if port is None else f"{host}:{port}"
    headers = {"Host": host, "User-Agent": "serve-bench", "Accept": "*/*"}
    if not keepalive:
        headers["Connection"] = "close"
    for name, value in named:
        for default in [known for known in headers if known.lower() == name.lower()]:
            del headers[default]
        headers[name] = value
    return headers


def request_bytes(request: Request, keepalive: bool = True) -> list[bytes]:
    """Return each of the request's turns as the bytes that are sent."""
    out = []
    made: dict[Headers, list[str]] = {}
    for url, body, named, method in request.turns:
        names = {name.lower() for name, _ in named}
        if named not in made:
            sent = request_headers(request, named, keepalive)
            made[named] = [f"{k}: {v}" for k, v in sent.items()]
        headers = made[named]
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", *headers]
        wants_length = bool(body) or method in ("POST", "PUT", "PATCH")
        if wants_length and "content-length" not in names:
            lines.append(f"Content-Length: {len(body)}")
        if body and "content-type" not in names:
            lines.append("Content-Type: application/octet-stream")
        out.append("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    return out


class ResponseFramer:
    """Frames the responses of one connection.

    Call `parser.feed_data(data)`, then read `done`. With WAITING, call `keep(data)`, which `eof()`
    needs, and end the response where that is False; with anything else, `reset()` before the next
    request. `feed_data` is llhttp's own and may raise HttpParserError or HttpParserUpgrade.

    `on_message_begin` costs 50 ns of about 7 us a request. Only it detects an incomplete response
    behind a whole one; without it, the next response would be parsed as its rest.

    Methods of the parser are looked up at each call, not kept: a bound method kept for each of
    1,000 connections is one more object that is out of the cache when its turn comes. Without
    them (and without those of the socket) a request costs 5 % less CPU at c=1000, 2-3 % at c=100.
    """

    __slots__ = ("_head", "_room", "done", "fault", "keep_alive", "parser", "started", "status")

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a new connection: a fresh parser."""
        self.parser = self._make_parser()
        self.reset()

    def _make_parser(self) -> HttpResponseParser:
        return lenient(HttpResponseParser(self))

    def reset(self) -> None:
        """Forget the response; the connection goes on."""
        self.done = WAITING
        self.status = 200
        self.keep_alive = True
        self.fault: str | None = None  # class of failure of a body that is not as expected
        self.started = False
        self._head: list[bytes] = []
        self._room = MAX_HEAD

    def on_message_begin(self) -> None:
        """Note a response that begins before `reset` (a callback of llhttp)."""
        if self.done:
            self.done = SURPLUS

    def on_message_complete(self) -> None:
        """Note the end of a response (a callback of llhttp, which knows keep-alive only here)."""
        status, keep_alive = self.parser.get_status_code(), self.parser.should_keep_alive()
        if status == 200 and keep_alive and self.done == WAITING:
            self.done = PLAIN
        else:
            self._complete(status, keep_alive)

    def _complete(self, status: int, keep_alive: bool) -> None:
        if status < 200 and status != 101:
            return  # informational: the response proper follows
        self.status = status
        self.keep_alive = keep_alive
        self.done = SURPLUS if self.done else OTHER

    def keep(self, data: bytes) -> bool:
        """Keep bytes that did not complete the response; return False if it is too large.

        The head is looked for when the bytes kept have doubled."""
        self.started = True
        if self._room > 0:
            self._head.append(data)
            self._room -= len(data)
            kept = MAX_HEAD - self._room
            if kept >= LARGE and kept.bit_length() > (kept - len(data)).bit_length():
                if _parse_head(self._head) is None:
                    return self._room > 0
                self._room = 0
        return True

    def seen(self, data: bytes = b"") -> bytes:
        """Return what has come of the response. `data`: the last bytes, which were not kept."""
        return b"".join((*self._head, data))

    def upgraded(self) -> None:
        """Count a switch of protocols as a response of status 101."""
        if not self.done:
            self._complete(101, False)
        self.keep_alive = False

    def eof(self) -> bool:
        """Return whether the connection's end completes the response; then `done` is OTHER.

        A response without a length and without chunks ends with the connection (RFC 9112, 6.3).
        False: it was cut off, or, with `started` unset, never began.
        """
        if self.done or not self.started:
            return bool(self.done)
        head = _parse_head(self._head)
        if head is None or head.has_length:
            return False
        self._complete(head.status, False)
        return self.done == OTHER


class _Head:
    """The headers of the last response in some bytes; it holds no parser (a worker has no gc)."""

    complete = has_length = False
    status = 0

    def on_message_begin(self) -> None:
        self.complete = self.has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        own_end = ends_itself(name, value)
        self.has_length = self.has_length if own_end is None else own_end

    def on_headers_complete(self) -> None:
        self.complete = True


def _parse_head(parts: Sequence[bytes]) -> _Head | None:
    """Return the head of the last response in these bytes; None if it is incomplete or a 1xx."""
    head = _Head()
    parser = lenient(HttpResponseParser(head))
    try:
        parser.feed_data(b"".join(parts))
    except (HttpParserError, HttpParserUpgrade):
        return None
    head.status = parser.get_status_code()
    return head if head.complete and head.status >= 200 else None


def ends_itself(name: bytes, value: bytes) -> bool | None:
    """Return whether a header says where a body ends (RFC 9112, 6.3); None: another header."""
    lower = name.lower()
    if lower == b"transfer-encoding":  # no other final coding ends itself
        return value.lower().rpartition(b",")[2].strip() == b"chunked"
    return True if lower == b"content-length" else None


class CheckedFramer(ResponseFramer):
    """A framer that also compares the body with the one expected."""

    __slots__ = ("_same", "expected")

    def __init__(self, expected: bytes) -> None:
        self.expected = expected
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self._same = 0  # bytes so far that are as expected; more than there are: another body

    def on_body(self, part: bytes) -> None:
        if self.expected.startswith(part, self._same):
            self._same += len(part)
        else:
            self._same = len(self.expected) + 1

    def on_message_complete(self) -> None:
        """Note the end of a response; PLAIN only with the expected body."""
        status, keep_alive = self.parser.get_status_code(), self.parser.should_keep_alive()
        same = self._same == len(self.expected)
        if status == 200 and keep_alive and self.done == WAITING and same:
            self.done = PLAIN
            self._same = 0
        else:
            self._complete(status, keep_alive)

    def _complete(self, status: int, keep_alive: bool) -> None:
        same = self._same == len(self.expected)
        self.fault = None if same else "body"
        self._same = 0
        super()._complete(status, keep_alive)
        if self.done == OTHER and status == 200 and keep_alive and same:
            self.done = PLAIN


class HeadFramer(ResponseFramer):
    """Frames responses to HEAD: they end with their head, whatever length it announces."""

    __slots__ = ()

    def _make_parser(self) -> HttpResponseParser:
        return lenient(_HeadParser(self))


class _HeadParser(HttpResponseParser):
    """llhttp has no option for HEAD; it gets each head with the length set to 0 instead."""

    def __init__(self, framer: ResponseFramer) -> None:
        super().__init__(framer)
        self._framer = framer
        self._buffer = b""

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        self._buffer += data
        while not self._framer.done:
            end = _HEAD_END.search(self._buffer)
            if end is None:
                return
            head, self._buffer = self._buffer[: end.start()], self._buffer[end.end() :]
            lines = [
                line
                for line in _FOLD.sub(b" ", head).splitlines()
                if not line.lower().startswith((b"content-length:", b"transfer-encoding:"))
            ]
            lines.append(b"Content-Length: 0")
            super().feed_data(b"\r\n".join(lines) + b"\r\n\r\n")
        if self._buffer:
            raise HttpParserError("bytes after the response to HEAD")


_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")

_Parser = TypeVar("_Parser", bound=HttpResponseParser)


def lenient(parser: _Parser) -> _Parser:
    """Return the parser, made as lenient as that of aiohttp."""
    parser.set_dangerous_leniencies(
        lenient_headers=True,  # folded ones (RFC 9112, 5.2), and control characters in them
        lenient_optional_cr_before_lf=True,  # lines that end with LF alone
        lenient_spaces_after_chunk_size=True,
    )
    return parser


def make_framer(request: Request) -> ResponseFramer:
    """Make the framer for responses to this request, which are no streams."""
    if request.method == "HEAD":
        return HeadFramer()
    if request.expect_body is not None:
        return CheckedFramer(request.expect_body)
    return ResponseFramer()


def status_allowed(status: int, request: Request) -> bool:
    """Return whether a response with this status counts as completed: 2xx, or as expected."""
    if request.expect_status:
        return status in request.expect_status
    return 200 <= status < 300


def judge(framer: ResponseFramer, request: Request) -> str | None:
    """Return the class of failure of the whole response in a framer; None if it is as expected."""
    if framer.done == SURPLUS:
        return "malformed"
    plain = framer.done == PLAIN
    status = 200 if plain else framer.status
    if status_allowed(status, request):  # the usual way: a further call costs 5 % of a response
        return None if plain else framer.fault
    return classify_response(request, status, None)


def classify_response(request: Request, status: int, fault: str | None) -> str | None:
    """Return the class of failure by status, else `fault`, that of the body; None: as expected."""
    if not status_allowed(status, request):
        return "rejected" if status in REJECTIONS else "status"
    return fault
