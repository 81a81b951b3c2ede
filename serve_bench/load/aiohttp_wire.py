"""What aiohttp does not tell: bytes on the wire, how a connection ended, what an error means.

Rule: aiohttp is watched here, not steered; the client that uses it is `aiohttp_client.py`.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from serve_bench.core.request_spec import Request
from serve_bench.load import http1
from serve_bench.load.connect import Address


class Wire:
    """What happened on the wire of one client during its request."""

    __slots__ = ("awaited", "bytes", "ended", "error", "handler", "messages", "opened", "started")

    def __init__(self) -> None:
        self.bytes = 0
        self.opened = 0
        self.handler: NotedHandler | None = None
        self.clear()
        self.awaited = False

    def clear(self) -> None:
        """A new request begins."""
        self.started = self.ended = False
        self.awaited = True
        self.messages = 0
        self.error: BaseException | None = None

    def surplus(self) -> bool:
        """Whether more came than the one whole response that was taken; its connection is then
        closed, and bytes that come before the next request end it too."""
        self.awaited = False
        more = self.messages > 1 or (self.handler is not None and self.handler.within())
        if more and self.handler is not None:
            self.handler.close()
        return more


class NotedHandler(ResponseHandler):
    """aiohttp's protocol, noting what arrives and how the connection ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wire: Wire) -> None:
        super().__init__(loop)
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire.opened += 1
        self._wire.handler = self
        super().connection_made(transport)

    def within(self) -> bool:
        """Whether the parser is behind the beginning of a message. aiohttp would drop what that is
        of with its next request; between messages empty lines mean nothing (RFC 9112, 2.2)."""
        parser: Any = self._parser
        if parser is None or not self.is_connected():
            return False
        try:
            messages, _, _ = parser.feed_data(b"\r\n\r\n")
        except HttpProcessingError:  # what is there already is no whole, sound message
            return True
        return bool(messages)

    def data_received(self, data: bytes) -> None:
        if not self._wire.awaited:
            self.close()  # as the raw client does with bytes on an idle connection
            return
        self._wire.bytes += len(data)
        self._wire.started = True
        super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        status = data[0].code
        if status >= 200 or status == 101:
            self._wire.messages += 1  # final responses: more than one is a surplus
        super().feed_data(data, size)

    def eof_received(self) -> None:
        self._wire.ended = True
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._wire.error = exc
        super().connection_lost(exc)


class FixedResolver(AbstractResolver):
    """Gives the address that the parent has found to answer."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found, port = self._address.sockaddr[:2]
        return [
            ResolveResult(
                hostname=host,
                host=found,
                port=port,
                family=self._address.family,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        return None


def classify(error: BaseException, wire: Wire) -> str:
    """The class of what aiohttp raised."""
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return "connect"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(wire.error, OSError):
        return "reset"
    if isinstance(error, aiohttp.ClientOSError):
        return "reset"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        if not wire.started:
            return "reset"
        return "truncated" if wire.ended else "malformed"
    return "malformed"


def judge(request: Request, status: int, body: bytes) -> str | None:
    """The class of failure of a whole response; None when it is as expected."""
    if not http1.status_allowed(status, request):
        return http1.status_class(status)
    if request.expect_body is not None and body != request.expect_body:
        return "body"
    return None
