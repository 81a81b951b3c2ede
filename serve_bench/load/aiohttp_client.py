"""The aiohttp client: a ClientSession for each connection, as in the published benchmark.

Rule: the session is used as any user of aiohttp would use it, and observed through `Wire`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from serve_bench.core.request_spec import Headers
from serve_bench.load.async_engine import AsyncClient, AsyncEngine
from serve_bench.load.connection import SO_TIMESTAMPNS, Address, receive_stamped
from serve_bench.load.failures import describe_error
from serve_bench.load.http1 import MAX_HEAD, classify_response
from serve_bench.load.pacing import Assignment, next_turn
from serve_bench.load.tally import NEVER

FOREVER_S = 1e9
"""Idle connections are kept as long as the server keeps them."""

_LONG_HEADS: dict[str, Any] = {"max_line_size": MAX_HEAD, "max_field_size": MAX_HEAD}
if "max_headers" in inspect.signature(aiohttp.ClientSession).parameters:  # aiohttp 3.14 has it
    _LONG_HEADS["max_headers"] = MAX_HEAD // 64  # each takes 400 bytes more in memory

STAMPED = "socket_factory" in inspect.signature(aiohttp.TCPConnector).parameters
"""Whether the sockets of a session can be timed: since aiohttp 3.12."""

perf = time.perf_counter_ns


# What aiohttp does not report: bytes on the wire, how a connection ended, what an error means.
#
# Rule: this part observes aiohttp and controls nothing.


class Wire:
    """What happened on the wire of one client during its request."""

    __slots__ = (
        *("awaited", "bytes", "ended", "error", "handler", "head", "messages", "opened"),
        *("received_at", "sent_at", "started", "timed"),
    )

    def __init__(self) -> None:
        self.bytes = 0
        self.opened = 0
        self.handler: NotedHandler | None = None
        self.clear()
        self.awaited = False

    def clear(self, timed: bool = False) -> None:
        """Begin a new request; `timed`: note its `sent_at` and `received_at`."""
        self.started = self.ended = False
        self.awaited = True
        self.messages = 0
        self.head = 0  # bytes since the last of a body: of a head, of trailers, of chunk sizes
        self.error: BaseException | None = None
        # When its first bytes were sent, when the kernel had the last of its answer; 0: unknown.
        self.timed, self.sent_at, self.received_at = timed, 0, 0

    def surplus(self) -> bool:
        """Return whether more than one whole response arrived; if so, close the connection."""
        self.awaited = False  # bytes that arrive before the next request close it too
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
        """Return whether the parser is inside a message: aiohttp drops that at the next request."""
        parser: Any = self._parser
        if parser is None or not self.is_connected():
            return False
        try:  # empty lines mean nothing between messages (RFC 9112, 2.2)
            messages, _, _ = parser.feed_data(b"\r\n\r\n")
        except HttpProcessingError:  # the bytes so far are no valid message
            return True
        return bool(messages)

    def data_received(self, data: bytes) -> None:
        if not self._wire.awaited:
            self.close()  # as the raw client does with bytes on an idle connection
            return
        self._wire.bytes += len(data)
        self._wire.head += len(data)
        self._wire.started = True
        before = self._body_bytes()
        super().data_received(data)
        if self._body_bytes() != before:
            self._wire.head = 0
        elif self._wire.head > MAX_HEAD and self.transport is not None:
            self.transport.abort()

    def _body_bytes(self) -> int:
        return 0 if self._payload is None else self._payload.total_bytes

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


class TimedSocket(socket.socket):
    """A socket that notes on its wire when a timed request was sent and answered."""

    def __init__(self, wire: Wire, address: Any) -> None:
        super().__init__(*address[:3])
        self.wire = wire
        self.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def send(self, *arguments: Any) -> int:
        self.wire.sent_at = self.wire.sent_at or perf()
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        self.wire.sent_at = self.wire.sent_at or perf()
        return super().sendmsg(*arguments)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.wire.timed:
            return super().recv(size, flags)
        data, age_ns = receive_stamped(self, size)
        if age_ns is not None:
            self.wire.received_at = perf() - age_ns
        return data


class FixedResolver(AbstractResolver):
    """Resolves every host to the address that the parent has chosen."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        sockaddr: Any = self._address.sockaddr
        ip, port = sockaddr[:2]
        kind, flags = self._address.family, socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host=ip, port=port, family=kind, proto=0, flags=flags)]

    async def close(self) -> None:
        return None


def classify(error: BaseException, wire: Wire) -> str:
    """Return the class of failure of a request that aiohttp ended with this error."""
    if wire.head > MAX_HEAD or "Too many headers" in str(error):
        return "too-large"
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return "connect"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(wire.error, OSError) or isinstance(error, aiohttp.ClientOSError):
        return "reset"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        if not wire.started:
            return "reset"
        return "truncated" if wire.ended else "malformed"
    return "malformed"


@dataclass(slots=True, eq=False)
class SessionClient(AsyncClient):
    """One session, and its connection."""

    session: aiohttp.ClientSession
    wire: Wire


class AiohttpEngine(AsyncEngine[SessionClient]):
    """All sessions of one worker."""

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        load = work.load
        self._url = URL(load.request.url, encoded=True)
        sets = load.request.header_sets
        parts = ((URL(url, encoded=True), *rest) for url, *rest in load.request.turns)
        turns = [(url, body, named if sets else None, method) for url, body, named, method in parts]
        self._draw = next_turn(load, work.share, turns)
        timed = STAMPED and self._tls is None and load.pickup_every > 0
        self._every = self._countdown = load.pickup_every if timed else NEVER

    def _make_client(self) -> SessionClient:
        wire = Wire()
        kept, stamped = self.load.keepalive, self._every < NEVER
        keep: dict[str, Any] = {"keepalive_timeout": FOREVER_S} if kept else {"force_close": True}
        factory = functools.partial(TimedSocket, wire)
        timed: dict[str, Any] = {"socket_factory": factory} if stamped else {}
        connector: aiohttp.BaseConnector
        if self.address.family == socket.AF_UNIX:
            connector = aiohttp.UnixConnector(str(self.address.sockaddr), limit=1, **keep)
        else:
            connector = aiohttp.TCPConnector(
                limit=1,
                resolver=FixedResolver(self.address),
                ssl=self._tls if self._tls is not None else True,
                **keep,
                **timed,
            )
        # No public way leads to the bytes on the wire. Tests notice when aiohttp changes this.
        connector._factory = functools.partial(  # type: ignore[assignment]
            NotedHandler, self._loop, wire
        )
        timeout = aiohttp.ClientTimeout(
            self.load.timeout_s, sock_connect=self.load.connect_timeout_s, ceil_threshold=FOREVER_S
        )
        session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            **_LONG_HEADS,
            headers=[] if self.load.request.header_sets else list(self.load.request.headers),
            timeout=timeout,
        )
        # aiohttp would send an idempotent request again, unseen, when a kept connection breaks.
        session._retry_connection = False
        return SessionClient(session, wire)

    async def _preconnect(self, client: SessionClient) -> bool:
        """Open the session's connection and put it into its pool."""
        connector = client.session.connector
        assert connector is not None
        request = aiohttp.ClientRequest("GET", self._url, loop=self._loop, session=client.session)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.load.connect_timeout_s)
        try:
            connection = await connector.connect(request, [], timeout)
        except (OSError, aiohttp.ClientError) as error:
            self.connect_error = describe_error(getattr(error, "os_error", error))
            return False
        connection.release()
        client.wire.opened = 0
        return True

    async def _attempt(
        self, client: SessionClient, turn: tuple[URL, bytes, Headers | None, str]
    ) -> tuple[str | None, int]:
        request, (url, body, headers, method) = self.load.request, turn
        self._countdown = self._countdown - 1 or self._every
        client.wire.clear(timed=self._countdown == self._every)
        try:
            async with client.session.request(
                method, url, data=body or None, headers=headers, allow_redirects=False
            ) as response:
                seen, expected = await _read(response.content, request.expect_body)
                status = response.status
        except (aiohttp.ClientError, OSError) as error:
            failure = classify(error, client.wire)
            self.see(failure, describe_error(error))
            return failure, 0
        fault = classify_response(request, status, None if expected else "body")
        if client.wire.surplus():
            fault = "malformed"
        if fault is not None:
            self.see(fault, b"status %d: %b" % (status, seen), status)
        return fault, status

    def _account(self, client: SessionClient) -> None:
        wire = client.wire
        self.tally.bytes_received += wire.bytes
        self.tally.reconnects += wire.opened
        wire.bytes = wire.opened = 0
        if wire.sent_at and wire.received_at:
            taken_ns = wire.sent_at - client.sent_at + perf() - wire.received_at
            self.tally.record_of(client.due, "handling", taken_ns)

    async def _disconnect(self, client: SessionClient) -> None:
        await client.session.close()


async def _read(content: aiohttp.StreamReader, expected: bytes | None) -> tuple[bytes, bool]:
    """Read a body to its end; return its first part, and whether the whole is as expected."""
    first, same = b"", 0
    async for part in content.iter_any():
        first = first or part
        if expected is not None:
            same = same + len(part) if expected.startswith(part, same) else len(expected) + 1
    return first, expected is None or same == len(expected)
