"""The gRPC client: a channel with a connection of its own for each client, by grpcio's asyncio.

A request is a call of the method that the path of the URL names (`/package.Service/Method`), with
the body as its message and the headers as metadata. Rule: messages are bytes here; what they mean
is for the service.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import grpc

from serve_bench.core.load_result import GIVEN_UP
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Headers
from serve_bench.load.async_engine import AsyncClient, AsyncEngine
from serve_bench.load.connection import Address
from serve_bench.load.pacing import WorkerShare, next_turn
from serve_bench.load.tally import NEVER

OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # else all channels of a process share a connection
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # unseen, they would be part of a latency
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # else a service that is back is found minutes later
)

CODES: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.UNAVAILABLE: "rejected",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "rejected",
}
"""The class of failure of a code that a service answers with; `status` of all others."""

BROKEN: Final = {
    grpc.ChannelConnectivity.IDLE: "reset",
    grpc.ChannelConnectivity.CONNECTING: "connect",
    grpc.ChannelConnectivity.TRANSIENT_FAILURE: "connect",
}
"""The class of a call that was UNAVAILABLE, by the state of its channel: nobody answered."""

TOO_LARGE: Final = "message larger than max"
"""What a server says that refuses a message for its size, with RESOURCE_EXHAUSTED."""

perf = time.perf_counter_ns


def _metadata(headers: Headers) -> Any:
    """Metadata as grpcio has them: made once, since it would make them anew for each call."""
    return grpc.aio.Metadata(*((name.lower(), value) for name, value in headers))


@dataclass(slots=True, eq=False)
class ChannelClient(AsyncClient):
    """One channel. `methods`: what calls each, by path; `last`: when the latest message of a stream
    came (ns), 0: none yet; `call`: the stream in flight, `stalled`: it was cancelled for its
    silence; `received`: bytes of messages."""

    channel: Any
    methods: dict[str, Any]
    last: int = 0
    call: Any = None
    stalled: bool = False
    received: int = 0


class GrpcEngine(AsyncEngine[ChannelClient]):
    """All channels of one worker."""

    def __init__(self, load: Load, address: Address, share: WorkerShare) -> None:
        super().__init__(load, address, share)
        sets = {named: _metadata(named) for named in load.request.all_headers}
        turns = [(urlsplit(url).path, body, sets[named]) for url, body, named in load.request.turns]
        self._paths = tuple(dict.fromkeys(path for path, _, _ in turns))
        self._draw = next_turn(load, share, turns)
        self._streaming = load.streaming
        gap_s = None if load.streaming is None else load.streaming.event_timeout_s
        self._gap_ns = NEVER if gap_s is None else int(gap_s * 1e9)

    def open_streams(self) -> list[tuple[int, int]] | None:
        if self._streaming is None:
            return None
        return [(client.due, client.last) for client in self._clients if client.busy]

    def _make_client(self) -> ChannelClient:
        host, port = self.address.sockaddr[:2]
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = (*OPTIONS, ("grpc.default_authority", urlsplit(self.load.request.url).netloc))
        if self._tls is not None:
            credentials = grpc.ssl_channel_credentials(self._roots())
            channel = grpc.aio.secure_channel(target, credentials, options)
        else:
            channel = grpc.aio.insecure_channel(target, options)
        kind = channel.unary_unary if self._streaming is None else channel.unary_stream
        return ChannelClient(channel, {path: kind(path) for path in self._paths})

    def _roots(self) -> bytes | None:
        if self.load.request.ca_file is None:
            return None
        with open(self.load.request.ca_file, "rb") as file:
            return file.read()

    async def _preconnect(self, client: ChannelClient) -> bool:
        try:
            await asyncio.wait_for(client.channel.channel_ready(), self.load.connect_timeout_s)
        except TimeoutError:
            self.connect_error = "no gRPC connection in time"
            return False
        return True

    async def _attempt(
        self, client: ChannelClient, turn: tuple[str, bytes, Any]
    ) -> tuple[str | None, int]:
        path, message, metadata = turn
        method = client.methods[path]
        try:
            if self._streaming is not None:
                return await self._stream(client, method, message, metadata)
            answer = await method(message, timeout=self.load.timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return self._failure(client, error)
        except asyncio.CancelledError:
            if not client.stalled or self._over.is_set():
                raise
            return "stalled", 0
        client.received += len(answer)
        expected = self.load.request.expect_body
        return ("body" if expected is not None and answer != expected else None), 0

    async def _stream(
        self, client: ChannelClient, method: Any, message: bytes, metadata: Any
    ) -> tuple[str | None, int]:
        """A stream of messages, each of which is an event."""
        client.last, client.stalled = 0, False
        client.call = method(message, timeout=self.load.timeout_s, metadata=metadata)
        async for answer in client.call:
            now = perf()
            if now >= self.tally.edge:
                self._turn(now)
            self.tally.streamed(client.due, client.last, now, 1)
            client.last = now
            client.received += len(answer)
        return (None if client.last else "event"), 0

    def _failure(
        self, client: ChannelClient, error: grpc.aio.AioRpcError
    ) -> tuple[str | None, int]:
        if client.stalled:
            return "stalled", 0
        code = error.code()
        number = int(code.value[0])
        if TOO_LARGE in (error.details() or ""):
            return "status", number
        if code is grpc.StatusCode.UNAVAILABLE:
            broken = BROKEN.get(client.channel.get_state())
            if broken is not None:
                return broken, 0
        return CODES.get(code, "status"), number

    def _given_up(self, client: ChannelClient, failure: str, now: int) -> None:
        if self._streaming is not None and failure in GIVEN_UP:
            self.tally.no_event(client.due, client.last, now)

    def _account(self, client: ChannelClient) -> None:
        self.tally.bytes += client.received
        client.received = 0

    def _turn(self, now: int) -> None:
        if self._gap_ns < NEVER:
            for client in self._clients:
                if client.busy and client.last and now - client.last > self._gap_ns:
                    client.stalled = True
                    client.call.cancel()
        super()._turn(now)

    async def _disconnect(self, client: ChannelClient) -> None:
        await client.channel.close()
