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

from serve_bench.load import http1
from serve_bench.load.connect import Address
from serve_bench.request_spec import Request


class Wire:
    """What happened on the wire of one client during its request."""

    __slots__ = ("bytes", "ended", "error", "messages", "opened", "started")

    def __init__(self) -> None:
        self.bytes = 0
        self.opened = 0
        self.clear()

    def clear(self) -> None:
        """A new request begins."""
        self.started = self.ended = False
        self.messages = 0
        self.error: BaseException | None = None


class NotedHandler(ResponseHandler):
    """aiohttp's protocol, noting what arrives and how the connection ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wire: Wire) -> None:
        super().__init__(loop)
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire.opened += 1
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
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
