"""The aiohttp client: a ClientSession for each connection, as in the published benchmark.

Rule: the session is used as any user of aiohttp would use it, and observed through `Wire`.
A closed loop is one task for each connection; in an open loop those tasks wait for due requests.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Headers
from serve_bench.load.connection import Address
from serve_bench.load.failures import reason_of
from serve_bench.load.http1 import MAX_HEAD, response_class
from serve_bench.load.pacing import IDLE_S, Engine, WorkerShare, next_turn
from serve_bench.load.tally import NEVER

PAUSE_S = 0.05
"""As in the raw client: wait after a failed connect."""

FOREVER_S = 1e9
"""Idle connections are kept as long as the server keeps them."""

_LONG_HEADS: dict[str, Any] = {"max_line_size": MAX_HEAD, "max_field_size": MAX_HEAD}
if "max_headers" in inspect.signature(aiohttp.ClientSession).parameters:  # aiohttp 3.14 has it
    _LONG_HEADS["max_headers"] = MAX_HEAD // 4  # the shortest line of a head: "a:\r\n"

perf = time.perf_counter_ns


# --------------------------------------------------------------------------------------------------
# What aiohttp does not report: bytes on the wire, how a connection ended, what an error means.
#
# Rule: this part observes aiohttp and controls nothing.


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
        """Whether more arrived than the one whole response. Then the connection is closed; bytes
        that arrive before the next request close it too."""
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
        """Whether the parser is inside a message, which aiohttp would drop with its next request.
        Between messages empty lines mean nothing (RFC 9112, 2.2)."""
        parser: Any = self._parser
        if parser is None or not self.is_connected():
            return False
        try:
            messages, _, _ = parser.feed_data(b"\r\n\r\n")
        except HttpProcessingError:  # the bytes so far are no valid message
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
    """Resolves every host to the address that the parent has chosen."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        ip, port = self._address.sockaddr[:2]
        kind, flags = self._address.family, socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host=ip, port=port, family=kind, proto=0, flags=flags)]

    async def close(self) -> None:
        return None


def classify(error: BaseException, wire: Wire) -> str:
    """The class of what aiohttp raised."""
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
class SessionClient:
    """One session, its connection, and whether it has a request in flight."""

    session: aiohttp.ClientSession
    wire: Wire
    busy: bool = False
    due: int = 0
    task: asyncio.Task[None] | None = None


class AiohttpEngine(Engine):
    """All sessions of one worker."""

    def __init__(self, load: Load, address: Address, share: WorkerShare) -> None:
        super().__init__(load, address, share)
        self._loop = asyncio.new_event_loop()
        self._url = URL(load.request.url, encoded=True)
        turns = [
            (URL(url, encoded=True), body, named if load.request.header_sets else None)
            for url, body, named in load.request.turns
        ]
        self._draw = next_turn(load, share, turns)
        self._clients: list[SessionClient] = []
        self._free: list[tuple[SessionClient, asyncio.Future[int]]] = []
        self._over = asyncio.Event()

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        self._loop.add_reader(fd, call)

    def open_requests(self) -> tuple[list[int], list[int]]:
        return [client.due for client in self._clients if client.busy], list(self._backlog)

    # -- connecting ---------------------------------------------------------------------------

    def connect(self) -> int:
        return self._loop.run_until_complete(self._connect_all())

    async def _connect_all(self) -> int:
        self._clients = [self._make_client() for _ in range(self.share.connections)]
        begun = perf()
        opened = await asyncio.gather(*(self._preconnect(client) for client in self._clients))
        self.connecting = (begun, perf())
        return sum(opened)

    def _make_client(self) -> SessionClient:
        wire = Wire()
        keep: dict[str, Any] = {"force_close": True}
        if self.load.keepalive:
            keep = {"keepalive_timeout": FOREVER_S}
        connector: aiohttp.BaseConnector
        if self.address.family == socket.AF_UNIX:
            connector = aiohttp.UnixConnector(self.address.sockaddr, limit=1, **keep)
        else:
            connector = aiohttp.TCPConnector(
                limit=1,
                resolver=FixedResolver(self.address),
                ssl=self._tls if self._tls is not None else True,
                **keep,
            )
        # No public way leads to the bytes on the wire. Tests notice when aiohttp changes this.
        connector._factory = functools.partial(  # type: ignore[assignment]
            NotedHandler, self._loop, wire
        )
        session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            **_LONG_HEADS,
            headers=[] if self.load.request.header_sets else list(self.load.request.headers),
            timeout=aiohttp.ClientTimeout(
                total=self.load.timeout_s,
                sock_connect=self.load.connect_timeout_s,
                ceil_threshold=FOREVER_S,
            ),
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
            self.connect_error = reason_of(getattr(error, "os_error", error))
            return False
        connection.release()
        client.wire.opened = 0
        return True

    # -- one request --------------------------------------------------------------------------

    def _begin(self, client: SessionClient, due: int) -> None:
        """A request begins when a client gets it, before the task of that runs."""
        client.busy = True
        client.due = due
        self.tally.begun(due)

    async def _request(self, client: SessionClient, due: int, sent_at: int) -> None:
        """Send a request that has begun, and count how it ended."""
        tally, wire = self.tally, client.wire
        turn = self._draw()
        attempts = 0
        while True:
            wire.clear()
            failure, status = await self._attempt(client, *turn)
            now = perf()
            if now >= tally.edge:
                self._turn(now)
            tally.bytes += wire.bytes
            wire.bytes = 0
            tally.reconnects += wire.opened
            wire.opened = 0
            if failure is None:
                tally.success(due, sent_at, now, status)
                break
            if attempts == self.load.retries or self._over.is_set():
                tally.failure(failure, due, now, status or None)
                break
            attempts += 1
            tally.retried += 1
            if failure == "connect":
                await asyncio.sleep(PAUSE_S)
            sent_at = perf()
        client.busy = False
        if not tally.refill:
            self._turn(now)
        if failure == "connect":
            await asyncio.sleep(PAUSE_S)

    async def _attempt(
        self, client: SessionClient, url: URL, body: bytes, headers: Headers | None
    ) -> tuple[str | None, int]:
        """One try: (class of failure or None, status or 0)."""
        request = self.load.request
        try:
            async with client.session.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as response:
                body_read = await response.read()
                status = response.status
        except (aiohttp.ClientError, OSError) as error:
            return classify(error, client.wire), 0
        if client.wire.surplus():
            return "malformed", status
        expected = request.expect_body is None or body_read == request.expect_body
        return response_class(request, status, None if expected else "body"), status

    def try_once(self) -> tuple[str | None, int]:
        """Send one request outside any load: (class of failure or None, status or 0)."""
        client = self._clients[0]
        client.wire.clear()
        return self._loop.run_until_complete(self._attempt(client, *self._draw()))

    # -- the load -----------------------------------------------------------------------------

    def run(self, start: int, drain_ns: int) -> None:
        self._drain_ns = drain_ns
        self._loop.run_until_complete(self._run(start))

    def run_slice(self, length_ns: int, drain_ns: int) -> int:
        """As in `Engine`, but the drain waits for every response, whatever `drain_ns` is: a
        cancelled task would close its connection. The request time-out is the bound."""
        begun = perf()
        self._drain_ns, self._drain_until = NEVER // 2, NEVER
        self._over.clear()
        self.tally.open_slice(begun, length_ns)
        self._loop.run_until_complete(self._run(begun))
        return begun

    async def _run(self, start: int) -> None:
        self._turn(perf())
        if self.load.open_loop:
            self._set_clock(start)
            for client in self._clients:
                client.task = self._loop.create_task(self._serve(client, None))
            await asyncio.sleep(0)
            if self.timer.fd >= 0:
                self._loop.add_reader(self.timer.fd, self._timer_rang)
            self._pump()
        else:
            for client in self._clients:
                client.task = self._loop.create_task(self._repeat(client))
        tick = self._loop.create_task(self._tick())
        await self._over.wait()
        tick.cancel()
        for client in self._clients:
            if client.task is not None:
                client.task.cancel()
        tasks = [client.task for client in self._clients if client.task is not None]
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _repeat(self, client: SessionClient) -> None:
        """Closed loop: the next request when the last one has ended."""
        while self.tally.may_send():
            now = perf()
            if now >= self.tally.edge:  # it is sent in the window in which it is counted
                self._turn(now)
                continue
            self._begin(client, now)
            await self._request(client, now, now)

    async def _serve(self, client: SessionClient, due: int | None) -> None:
        """Open loop: requests as they are due, each with its own due time.

        `due`: of a request that has begun already.
        """
        while True:
            if due is None and self._backlog:  # in the drain too
                due = self._backlog.popleft()
                self._begin(client, due)
                self.tally.had_waited(due)
            if due is None:
                turn: asyncio.Future[int] = self._loop.create_future()
                self._free.append((client, turn))
                due = await turn
            now = perf()
            self.tally.record_of(due, "send_lag", now - due)
            await self._request(client, due, now)
            due = None

    def _timer_rang(self) -> None:
        self.timer.clear()
        self._pump()

    def _pump(self) -> None:
        """Begin every request that is due, and arrange the call for the next one."""
        clock = self._clock
        assert clock is not None
        now = perf()
        if now >= self.tally.edge:
            self._turn(now)
        self._launch_due(now)
        if not self.tally.refill:
            return
        sleep_s = self.timer.sleep_s(clock.due, now)
        if self.timer.fd < 0:
            self._loop.call_later(sleep_s, self._pump)

    def _launch_due(self, now: int) -> None:
        clock, tally = self._clock, self.tally
        while clock is not None and tally.refill and clock.due <= now and clock.due < tally.edge:
            left = tally.left_to_send
            if left is not None and left <= len(self._backlog):
                return
            self._launch(clock.due)
            clock.step()

    def _launch(self, due: int) -> None:
        if self._free:
            client, turn = self._free.pop()
            self._begin(client, due)
            turn.set_result(due)
        elif len(self._clients) < self.share.limit:
            client = self._make_client()
            self._clients.append(client)
            self._begin(client, due)
            client.task = self._loop.create_task(self._serve(client, due))
        else:
            self._backlog.append(due)

    async def _tick(self) -> None:
        """Keep the tally's time while no response comes."""
        while True:
            self._turn(perf())
            await asyncio.sleep(IDLE_S)

    def _turn(self, now: int) -> None:
        if self._advance(now):
            self._over.set()

    def _busy(self) -> bool:
        return any(client.busy for client in self._clients)

    def close(self) -> None:
        async def close_all() -> None:
            await asyncio.gather(*(client.session.close() for client in self._clients))

        self._loop.run_until_complete(close_all())
        self.timer.close()
        self._loop.close()
